// The overview: which rules refuse, whom most, and whether something is wrong.
import { html } from '../vendor/preact.js';
import { alertText } from '../alerts.js';
import { usePolled } from '../api.js';
import { Sparkline, TimeChart } from '../charts.js';
import { Badge, Empty, Page, Panel, Result, Share, Table, Tile, Tiles } from '../components.js';
import { Interval } from '../interval.js';
import { ago, compact, duration, percent, t } from '../i18n.js';
import { href, interval, setParams } from '../router.js';
import { keyText, outcomes, shadowOutcomes } from '../telemetry.js';
import { unitText, unitsNumber, unitsText } from '../units.js';

const first = 100, all = 1000; // rules

export function Overview({ route }) {
	const { query, fixed } = interval(route.params);
	const every = fixed ? 0 : 5000;
	const most = route.params.get('rules') === 'all' ? all : first;
	const overview = usePolled('telemetry/overview', { query: { ...query, most }, every });
	const marks = usePolled('telemetry/marks', { query, every: every && 15_000 });
	const nodes = (overview.data?.nodes ?? []).map((node) => node.name);
	return html`<${Page} title=${t('nav.overview')} lead=${t('overview.lead')}
		actions=${html`<${Interval} route=${route} nodes=${nodes} shown=${overview.data} />`}>
		<${Result} of=${overview}>${(data) => html`<${Wrong} data=${data} /><${Figures} data=${data} />
			<${Panel} bare title=${t('overview.traffic')}><${Traffic} report=${data} marks=${marks.data?.marks} /></${Panel}>
			<${Rules} data=${data} filter=${route.params.get('filter') ?? ''} />`}</${Result}></${Page}>`;
}

// Traffic is the chart of a report's decisions per second.
export function Traffic({ report, marks }) {
	const seconds = report.step_ns / 1e9;
	const used = (report.mode === 'shadow' ? shadowOutcomes : outcomes).filter((one) => one.always || report.series.some((point) => point[one.field]));
	return html`<${TimeChart} label=${t('overview.traffic')} unit=${t('overview.perSecond')} points=${report.series} from=${report.from} to=${report.to}
		step=${report.step_ns / 1e6} marks=${marks ?? []} series=${used.map((one) => ({ name: t('outcome.' + one.name), tone: one.name, value: (point) => (point[one.field] ?? 0) / seconds }))} />`;
}

function Figures({ data }) {
	const { total, series, step_ns: step, nodes } = data;
	const decided = (point) => point.passed + point.refused + point.denied + point.failed;
	const count = decided(total), refused = total.refused + total.denied;
	const latest = series.at(-2) ?? series.at(-1); // the last one is not complete
	const slowest = Math.max(0, ...nodes.map((node) => node.store_p99_ns));
	const degraded = total.degraded ?? 0;
	return html`<${Tiles} label=${t('overview.figures')}>
		<${Tile} label=${t('overview.rate')} value=${compact(latest ? decided(latest) / (step / 1e9) : 0)} note=${t('overview.rate.note', { total: compact(count) })} />
		<${Tile} label=${t('overview.refused')} value=${percent(count ? refused / count : 0)} note=${t('overview.refused.note', { count: compact(refused) })} tone=${refused > 0.1 * count ? 'bad' : ''} />
		<${Tile} label=${t('overview.degraded')} value=${compact(degraded)} note=${t(degraded ? 'overview.degraded.some' : 'overview.degraded.none')} tone=${degraded ? 'bad' : ''} />
		<${Tile} label=${t('overview.store')} value=${slowest ? duration(slowest) : '–'} note=${slowest ? t('overview.store.note', { n: nodes.length }) : t('overview.store.none')} />
	</${Tiles}>`;
}

const shown = 3; // lines of the banner that are not folded

// Wrong is a banner, if there is something to do.
function Wrong({ data }) {
	const list = (data.alerts ?? []).filter((alert) => !alert.resolved).map((alert) => html`<li>${alert.rule ? html`<a href=${href('rules', alert.rule)}>${alertText(alert)}</a>` : alertText(alert)}
		<span class="note"> ${t('overview.since', { at: ago(alert.since) })}</span></li>`);
	for (const node of data.nodes) {
		if (!node.store_up) list.push(html`<li>${t('overview.nodeDown', { node: node.name })}</li>`);
		else if (node.breaker && node.breaker !== 'closed') list.push(html`<li>${t('overview.nodeBreaker', { node: node.name, state: node.breaker })}</li>`);
		for (const problem of node.problems ?? []) list.push(html`<li>${node.name}: ${problem}</li>`);
	}
	if (new Set(data.nodes.map((node) => node.revision)).size > 1) list.push(html`<li>${t('overview.revisions')}</li>`);
	return list.length > 0 && html`<section class="banner" role="alert" aria-label=${t('overview.wrong')}><h2><a href=${href('health')}>${t('overview.wrong')}</a></h2><ul>${list.slice(0, shown)}</ul>
		${list.length > shown && html`<details><summary>${t('overview.wrong.more', { n: list.length - shown })}</summary><ul>${list.slice(shown)}</ul></details>`}</section>`;
}

function Rules({ data, filter }) {
	const wanted = filter.toLowerCase();
	const rows = data.rules.filter((rule) => (rule.name + ' ' + (rule.label ?? '')).toLowerCase().includes(wanted));
	const series = [{ tone: 'passed', value: (point) => (point.passed ?? 0) + (point.shadow_passed ?? 0) },
		{ tone: 'refused', value: (point) => point.refused ?? 0 }, { tone: 'shadow', value: (point) => point.shadow_refused ?? 0 }];
	const columns = [
		{ name: 'key', title: t('overview.rule'), cell: (rule) => html`<a href=${href('rules', rule.name)}>${rule.name}</a> ${marksOf(rule)}${rule.label && html`<div class="note">${rule.label}</div>`}` },
		{ title: t('overview.limit'), wide: true, cell: (rule) => html`<span class="mono">${rule.limits?.join(', ')}</span>${rule.units?.name && html` <span class="note">${unitText(rule.units)}</span>`}` },
		{ title: t('overview.trend'), wide: true, cell: (rule) => html`<${Sparkline} points=${rule.series} from=${data.from} to=${data.to} step=${data.step_ns / 1e6} series=${series} />` },
		{ title: t('overview.count'), number: true, wide: true, cell: (rule) => compact(rule.counts.passed + rule.counts.refused + (rule.counts.shadow_passed ?? 0) + (rule.counts.shadow_refused ?? 0)) },
		...data.rules.some((rule) => rule.units) ? [{ title: t('units.spent'), number: true, wide: true, cell: spent }] : [],
		{ title: t('overview.share'), number: true, cell: refusedShare },
		{ name: 'key', title: t('overview.worst'), cell: (rule) => rule.unwatched && !rule.worst_key ? html`<span class="note">${t('overview.unwatched')}</span>` : rule.worst_key && html`<a class="mono" href=${href('key', '', { q: rule.worst_key.key, rule: rule.name })}>${keyText(rule.worst_key)}</a>
			${rule.worst_key.share > 0 && html`<span class="note"> ${t('overview.worst.note', { percent: percent(rule.worst_key.share) })}</span>`}` },
	];
	const none = wanted ? html`<${Empty} title=${t('overview.filter.none')} />` : html`<${Empty} title=${t('overview.none')}>${t('overview.none.text')}</${Empty}>`;
	return html`<${Panel} title=${t('overview.rules')} note=${t('overview.rules.note')} actions=${data.rules.length > 8 && html`<input type="search" aria-label=${t('overview.filter')} placeholder=${t('overview.filter')}
			value=${filter} onInput=${(event) => setParams({ filter: event.target.value }, { replace: true })} />`}>
		<${Table} caption=${t('overview.rules')} columns=${columns} rows=${rows} id=${(rule) => rule.name} empty=${none} />
		${data.more > 0 && html`<p class="note">${t('overview.more', { n: data.more })} <button class="link" onClick=${() => setParams({ rules: 'all' })}>${t('overview.more.show')}</button></p>`}</${Panel}>`;
}

// spent are the units of a metered rule, beside those that wait to be settled.
function spent({ units, counts }) {
	if (!units) return null;
	return html`${unitsText(spentOf(counts), units)}${units.reserved > 0 && html`<div class="note">${t('units.reserved.short', { units: unitsNumber(units.reserved, units) })}</div>`}`;
}

// spentOf is the number of units that stay spent.
export const spentOf = ({ spent = 0, returned = 0 }) => Math.max(0, spent - returned);

function marksOf(rule) {
	return [rule.mode === 'shadow' && html`<${Badge} tone="shadow">${t('overview.shadow')}</${Badge}>`, rule.candidate && html`<${Badge}>${t('overview.candidate')}</${Badge}>`,
		rule.removed && html`<${Badge}>${t('overview.removed')}</${Badge}>`, rule.folded && html`<${Folded} />`];
}

// Folded marks counts that may be missing, because those of many rules are in one sum.
export const Folded = () => html`<${Badge} tone="bad"><span title=${t('overview.folded.text', { other: '(other)' })}>${t('overview.folded', { other: '(other)' })}</span></${Badge}>`;

// refusedShare of a shadow rule is what it would refuse.
function refusedShare(rule) {
	const { passed, refused, shadow_passed: would = 0, shadow_refused: wouldNot = 0 } = rule.counts;
	if (rule.mode === 'shadow') return html`<${Share} tone="shadow" value=${would + wouldNot ? wouldNot / (would + wouldNot) : 0} />`;
	return html`<${Share} value=${passed + refused ? refused / (passed + refused) : 0} />`;
}
