// Requests: what was refused, denied or banned, on all nodes, from the audit log; by request ID, key, rule and time.
import { html } from '../vendor/preact.js';
import { usePolled } from '../api.js';
import { Badge, Empty, Page, Panel, Result, Table } from '../components.js';
import { dateTime, duration, number, t, zoneName } from '../i18n.js';
import { href, setParams } from '../router.js';
import { reasonText, target } from '../samples.js';
import { keyText, visible } from '../telemetry.js';
import { exactUnits, unitOf } from '../units.js';

const spans = ['1h', '24h', '168h', '720h'];

const fields = ['request_id', 'key', 'rule', 'path'];

export function Requests({ route }) {
	const query = { from: route.params.get('since') || '24h', most: 200 };
	for (const name of [...fields, 'outcome']) if (route.params.get(name)) query[name] = route.params.get(name);
	const found = usePolled('audit', { query, every: 0 });
	return html`<${Page} title=${t('nav.requests')} lead=${t('requests.lead')}>
		<${Form} key=${JSON.stringify(query)} query=${query} />
		<${Panel} title=${t('requests.list')} note=${t('requests.list.note', { zone: zoneName() })}><${Result} of=${found}>${(data) =>
			html`<${Table} caption=${t('requests.list')} rows=${data.records} id=${identity} columns=${columns()}
				empty=${html`<${Empty} title=${t('requests.none', { from: dateTime(data.from) })}>${t('requests.none.text')}</${Empty}>`} />`}</${Result}></${Panel}></${Page}>`;
}

const identity = (one) => [one.at, one.node, one.outcome, one.rule, one.key, one.request_id, one.text].join();

function Form({ query }) {
	const submit = (event) => {
		event.preventDefault();
		const { elements } = event.target;
		setParams({ ...Object.fromEntries(fields.map((name) => [name, elements[name].value.trim()])), since: elements.since.value, outcome: elements.outcome.value });
	};
	return html`<form class="lookup" role="search" aria-label=${t('nav.requests')} onSubmit=${submit}>${fields.map((name) =>
		html`<input name=${name} type="search" defaultValue=${query[name] ?? ''} maxlength="512" aria-label=${t('requests.' + name)} placeholder=${t('requests.' + name)} />`)}
		<select name="since" aria-label=${t('span.label')} defaultValue=${query.from}>${spans.map((one) => html`<option value=${one} selected=${one === query.from}>${t('requests.since', { span: one })}</option>`)}</select>
		<select name="outcome" aria-label=${t('requests.kind')}>${kinds.map((one) => html`<option value=${one} selected=${one === (query.outcome ?? '')}>${t(one ? 'requests.costs' : 'requests.others')}</option>`)}</select>
		<button class="primary">${t('app.search.button')}</button></form>`;
}

// kinds are the records that are searched: by a request ID all of them.
const kinds = ['', 'cost'];

const tones = { refused: 'bad', denied: 'bad', failed: 'bad', ban: 'bad' };

const outcome = (one) => one.outcome === 'cost' ? t('units.cost.title') : t((tones[one.outcome] && one.outcome !== 'ban' ? 'outcome.' : 'mark.') + one.outcome);

// costText is what a request cost, and its estimate; of one that did not pass, what it asked for.
function costText({ outcome, reason, cost = 0, estimate = 0, unit }) {
	if (outcome !== 'cost') return estimate > 0 ? t('units.asked', { estimate: exactUnits(estimate, unit) }) : '';
	if (cost === estimate || reason !== 'settled') return exactUnits(cost, unit);
	return t('units.cost', { cost: number(cost / unitOf(unit).scale, 9), estimate: exactUnits(estimate, unit) });
}

const why = (one) => one.outcome === 'cost' ? t('units.' + one.reason) : one.text ? visible(one.text) : reasonText(one.reason ?? '');

const columns = () => [
	{ title: t('chart.time'), cell: (one) => html`<time datetime=${one.at} title=${one.at}>${dateTime(one.at)}</time>` },
	{ title: t('sample.outcome'), cell: (one) => html`<${Badge} tone=${tones[one.outcome] ?? ''}>${outcome(one)}</${Badge}>` },
	{ name: 'key', title: t('nav.key'), cell: (one) => html`${one.key && html`<a class="mono" href=${href('key', '', { q: one.key, rule: one.rule })}>${keyText(one)}</a>`}<div class="narrow note">${one.rule}${costText(one) && html`<div>${costText(one)}</div>`} ${target(one)} ${one.request_id}</div>` },
	{ title: t('nav.rule'), wide: true, cell: (one) => one.rule && html`<a href=${href('rules', one.rule)}>${one.rule}</a>` },
	{ title: t('sample.reason'), wide: true, cell: (one) => html`${why(one)}${one.wait_ns > 0 && html` <span class="note">${t('sample.wait', { wait: duration(one.wait_ns) })}</span>`}` },
	{ title: t('units.cost.title'), number: true, wide: true, cell: costText },
	{ name: 'key', title: t('sample.target'), wide: true, cell: target },
	{ name: 'key', title: t('sample.request'), wide: true, cell: (one) => one.request_id && html`<a class="mono" href=${href('requests', '', { request_id: one.request_id })}>${visible(one.request_id)}</a>` },
	{ title: t('health.node'), wide: true, cell: (one) => one.node },
];
