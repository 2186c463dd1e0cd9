// Services: what the services behind the gateway of this server can take now, who is refused there, and which address fails.
import { html } from '../vendor/preact.js';
import { usePolled } from '../api.js';
import { Badge, Empty, Page, Panel, Result, Share, Table } from '../components.js';
import { compact, duration, t } from '../i18n.js';

export function Services() {
	const found = usePolled('services', { every: 2000 });
	return html`<${Page} title=${t('nav.services')} lead=${t('services.lead')}><${Result} of=${found}>${({ services, routes }) => services.length ?
		html`<${Limits} services=${services.filter((one) => one.concurrency)} /><${Addresses} services=${services} /><${Routes} routes=${routes} />` :
		html`<${Empty} title=${t('services.none')}>${t('services.none.text')}</${Empty}>`}</${Result}></${Page}>`;
}

// latency is 0 if it is not known yet.
const latency = (seconds) => seconds ? duration(1e9 * seconds) : '–';

function Limits({ services }) {
	const columns = [
		{ name: 'key', title: t('services.service'), cell: (one) => html`${one.name}<div class="note">${t('services.adaptive.' + one.concurrency.adaptive, one.concurrency)}</div>` },
		{ title: t('services.limit'), number: true, cell: ({ concurrency: c }) => html`${compact(c.limit)}${(c.measuring || c.why) && html`<div class="note">${t(c.measuring ? 'services.measuring' : 'services.why.' + c.why)}</div>`}` },
		{ title: t('services.flight'), number: true, cell: ({ concurrency: c }) => html`<${Share} value=${c.in_flight / c.limit} tone="" /><div class="note">${compact(c.in_flight)}</div>` },
		{ title: t('services.waiting'), number: true, wide: true, cell: ({ concurrency: c }) => compact(c.waiting) },
		{ title: t('services.latency'), number: true, wide: true, cell: ({ concurrency: c }) => `${latency(c.latency)} / ${latency(c.unloaded)}` },
		{ title: t('services.refused'), cell: ({ concurrency: c }) => c.classes.map((one) => html`<div><${Share} value=${part(one)} /> ${one.name || t('services.all')} <span class="note">${compact(one.refused)}</span></div>`) },
	];
	return html`<${Panel} title=${t('services.limits')} note=${t('services.limits.note')}><${Table} caption=${t('services.limits')} columns=${columns} rows=${services} id=${(one) => one.name}
		empty=${html`<${Empty} title=${t('services.unlimited')}>${t('services.unlimited.text')}</${Empty}>`} /></${Panel}>`;
}

const part = (one) => one.refused ? one.refused / (one.refused + one.admitted) : 0;

function Addresses({ services }) {
	const rows = services.flatMap((service) => service.addresses.map((address) => ({ ...address, service: service.name })));
	const columns = [
		{ name: 'key', title: t('services.address'), cell: (one) => html`<span class="mono">${one.url}</span><div class="note">${one.service}</div>` },
		{ title: t('services.health'), cell: (one) => html`<${Badge} tone=${one.healthy ? 'good' : 'bad'}>${t(one.healthy ? 'services.well' : one.ejected_for ? 'services.ejected' : 'services.fails', { for: duration(1e9 * (one.ejected_for ?? 0)) })}</${Badge}>` },
		{ title: t('services.flight'), number: true, cell: (one) => compact(one.in_progress) },
		{ title: t('services.ejections'), number: true, cell: (one) => compact(one.ejections) },
	];
	return html`<${Panel} title=${t('services.addresses')}><${Table} caption=${t('services.addresses')} columns=${columns} rows=${rows} id=${(one) => `${one.service} ${one.url}`} /></${Panel}>`;
}

function Routes({ routes }) {
	const columns = [
		{ name: 'key', title: t('services.route'), cell: (one) => html`${one.name}<div class="note">${one.service}</div>` },
		{ title: t('services.requests'), number: true, cell: (one) => compact(one.requests) },
		{ title: t('services.forwarded'), number: true, cell: (one) => compact(one.forwarded) },
		{ title: t('services.refused'), number: true, cell: (one) => html`<${Share} value=${one.requests ? one.refused / one.requests : 0} />` },
	];
	return html`<${Panel} title=${t('services.routes')}><${Table} caption=${t('services.routes')} columns=${columns} rows=${routes} id=${(one) => one.name} /></${Panel}>`;
}
