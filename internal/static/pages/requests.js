// Requests: what was refused, denied or banned, on all nodes, from the audit log; by request ID, key, rule and time.
import { html } from '../vendor/preact.js';
import { usePolled } from '../api.js';
import { Badge, Empty, Page, Panel, Result, Table } from '../components.js';
import { dateTime, duration, t, zoneName } from '../i18n.js';
import { href, setParams } from '../router.js';
import { reasonText, target } from '../samples.js';
import { keyText, visible } from '../telemetry.js';

const spans = ['1h', '24h', '168h', '720h'];

const fields = ['request_id', 'key', 'rule', 'path'];

export function Requests({ route }) {
	const query = { from: route.params.get('since') || '24h', most: 200 };
	for (const name of fields) if (route.params.get(name)) query[name] = route.params.get(name);
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
		setParams({ ...Object.fromEntries(fields.map((name) => [name, elements[name].value.trim()])), since: elements.since.value });
	};
	return html`<form class="lookup" role="search" aria-label=${t('nav.requests')} onSubmit=${submit}>${fields.map((name) =>
		html`<input name=${name} type="search" defaultValue=${query[name] ?? ''} maxlength="512" aria-label=${t('requests.' + name)} placeholder=${t('requests.' + name)} />`)}
		<select name="since" aria-label=${t('span.label')} defaultValue=${query.from}>${spans.map((one) => html`<option value=${one} selected=${one === query.from}>${t('requests.since', { span: one })}</option>`)}</select>
		<button class="primary">${t('app.search.button')}</button></form>`;
}

const tones = { refused: 'bad', denied: 'bad', failed: 'bad', ban: 'bad' };

const outcome = (one) => t((tones[one.outcome] && one.outcome !== 'ban' ? 'outcome.' : 'mark.') + one.outcome);

const columns = () => [
	{ title: t('chart.time'), cell: (one) => html`<time datetime=${one.at} title=${one.at}>${dateTime(one.at)}</time>` },
	{ title: t('sample.outcome'), cell: (one) => html`<${Badge} tone=${tones[one.outcome] ?? ''}>${outcome(one)}</${Badge}>` },
	{ name: 'key', title: t('nav.key'), cell: (one) => html`${one.key && html`<a class="mono" href=${href('key', '', { q: one.key, rule: one.rule })}>${keyText(one)}</a>`}<div class="narrow note">${one.rule} ${target(one)} ${one.request_id}</div>` },
	{ title: t('nav.rule'), wide: true, cell: (one) => one.rule && html`<a href=${href('rules', one.rule)}>${one.rule}</a>` },
	{ title: t('sample.reason'), wide: true, cell: (one) => html`${one.text ? visible(one.text) : reasonText(one.reason ?? '')}${one.wait_ns > 0 && html` <span class="note">${t('sample.wait', { wait: duration(one.wait_ns) })}</span>`}` },
	{ name: 'key', title: t('sample.target'), wide: true, cell: target },
	{ name: 'key', title: t('sample.request'), wide: true, cell: (one) => one.request_id && html`<a class="mono" href=${href('requests', '', { request_id: one.request_id })}>${visible(one.request_id)}</a>` },
	{ title: t('health.node'), wide: true, cell: (one) => one.node },
];
