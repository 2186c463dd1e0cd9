import { html } from './vendor/preact.js';
import { Choice } from './components.js';
import { day, t, zone, zoneName } from './i18n.js';
import { href, interval, setParams, spans } from './router.js';

// Interval is the choice of what a page shows: a span until now, or a fixed interval, which a URL keeps for others; and
// of the node, if there are several. shown is {from, to} of the report.
export function Interval({ route, nodes = [], shown }) {
	const { query, fixed } = interval(route.params);
	const here = (params) => href(route.page, route.name, { ...Object.fromEntries(route.params), ...params });
	return html`${nodes.length > 1 && html`<select aria-label=${t('span.node')} value=${query.node ?? ''} onChange=${(event) => setParams({ node: event.target.value })}>
			<option value="">${t('span.node.all')}</option>${nodes.map((node) => html`<option value=${node}>${node}</option>`)}</select>`}
		${fixed && html`<span class="badge">${t('span.fixed', { from: day(query.from), to: day(query.until) })}</span>`}
		<${Choice} label=${t('span.label')} value=${fixed ? '' : query.from} options=${spans.map((span) => [span, span, here({ span, from: '', until: '' })])} />
		<span class="note" title=${t('span.zone', { zone: zoneName() })}>${zone()}</span>
		${shown && !fixed && html`<a class="button" href=${here({ from: shown.from, until: shown.to })} title=${t('span.fix')} aria-label=${t('span.fix')}>⚲</a>`}`;
}
