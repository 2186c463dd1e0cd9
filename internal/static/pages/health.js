// Health: whether the limiter itself is well, and which accuracy holds now.
import { html } from '../vendor/preact.js';
import { usePolled } from '../api.js';
import { TimeChart } from '../charts.js';
import { Badge, Empty, Page, Panel, Result, Table, Tile, Tiles } from '../components.js';
import { Interval } from '../interval.js';
import { ago, compact, duration, percent, t } from '../i18n.js';
import { interval } from '../router.js';

const silence = 60_000, offset = 1e9; // ms, ns: more is a problem

export function Health({ route }) {
	const { query, fixed } = interval(route.params);
	const nodes = usePolled('telemetry/nodes', { every: 5000 });
	const names = (nodes.data?.nodes ?? []).map((node) => node.name);
	return html`<${Page} title=${t('nav.health')} lead=${t('health.lead')} actions=${html`<${Interval} route=${route} nodes=${names} />`}>
		<${Result} of=${nodes}>${({ nodes: list }) => list.length ? html`<${Figures} nodes=${list} /><${Bounds} nodes=${list} /><${Problems} nodes=${list} /><${Nodes} nodes=${list} />` :
			html`<${Empty} title=${t('health.none')} />`}</${Result}>
		<${Latency} query=${query} every=${fixed ? 0 : 10_000} /></${Page}>`;
}

// latency is 0 if the store was not asked.
const latency = (ns) => ns ? duration(ns) : '–';

const isSilent = (node) => Date.now() - new Date(node.seen) > silence;

const clockIsWrong = (node) => Math.abs(node.clock_offset_ns) > offset;

// isAlone: the other nodes could not be read, so that nothing is known of them.
const isAlone = (nodes) => nodes.some((node) => node.alone);

// problems are those that the node reports, and those that only others can see.
const problems = (node) => [...node.problems ?? [], ...isSilent(node) ? [t('health.silent', { for: duration(1e6 * (Date.now() - new Date(node.seen))) })] : []];

const isBad = (node) => !node.store_up || node.breaker === 'open' || clockIsWrong(node) || problems(node).length > 0;

function Figures({ nodes }) {
	const bad = nodes.filter(isBad).length, versions = new Set(nodes.map((node) => node.revision)).size, alone = isAlone(nodes);
	return html`<${Tiles} label=${t('health.figures')}>
		<${Tile} label=${t('health.nodes')} value=${alone ? t('health.unknown') : compact(nodes.length)} note=${bad ? t('health.nodes.bad', { n: bad }) : t('health.nodes.good')} tone=${bad ? 'bad' : ''} />
		<${Tile} label=${t('overview.store')} value=${latency(Math.max(...nodes.map((node) => node.store_p99_ns)))} note=${t('health.slowest')} />
		<${Tile} label=${t('health.revision')} value=${t(versions > 1 ? 'health.differs' : alone ? 'health.unknown' : 'health.same')} note=${alone ? t('health.alone') : t('health.rules', { n: versions })} tone=${versions > 1 ? 'bad' : ''} />
		<${Tile} label=${t('health.clock')} value=${alone ? t('health.unknown') : duration(Math.max(...nodes.map((node) => Math.abs(node.clock_offset_ns))))} note=${t(alone ? 'health.alone' : 'health.largest')} tone=${nodes.some(clockIsWrong) ? 'bad' : ''} /></${Tiles}>`;
}

const bounds = ['degraded', 'prefetch', 'strict']; // the weakest first

// Bounds says what holds for a request, whichever node it asks: the weakest bound of all.
function Bounds({ nodes }) {
	const weakest = new Set(nodes.map((node) => node.revision)).size > 1 ? 'differs' : bounds.find((bound) => nodes.some((node) => node.bound === bound)) ?? 'strict';
	const shares = nodes.filter((node) => node.share);
	return html`<${Panel} title=${t('health.bound')}><p class=${['degraded', 'differs'].includes(weakest) ? 'wrong' : ''}><b>${t('health.bound.' + weakest)}</b></p>
		${shares.length > 0 && html`<ul class="mistakes">${shares.map((node) => html`<li>${node.name}: ${node.share}</li>`)}</ul>`}</${Panel}>`;
}

function Problems({ nodes }) {
	const list = nodes.flatMap((node) => problems(node).map((text) => html`<li><b>${node.name}</b>: ${text}</li>`));
	return list.length > 0 && html`<section class="banner" role="alert" aria-label=${t('health.problems')}><h2>${t('health.problems')}</h2><ul>${list}</ul></section>`;
}

function Nodes({ nodes }) {
	const usual = nodes.map((node) => node.revision).sort((a, b) => count(nodes, b) - count(nodes, a))[0];
	const columns = [
		{ name: 'key', title: t('health.node'), cell: (node) => html`${node.name}<div class="note">${node.version} · ${t('health.started', { at: ago(node.started) })}</div>` },
		{ title: t('health.bound.column'), cell: (node) => html`<${Badge} tone=${node.bound === 'degraded' ? 'bad' : ''}>${t('health.bound.name.' + (bounds.includes(node.bound) ? node.bound : 'strict'))}</${Badge}>` },
		{ title: t('health.revision'), cell: (node) => html`<span class="mono code">${shortened(node.revision)}</span> ${node.revision !== usual && html`<${Badge} tone="bad">${t('health.differs')}</${Badge}>`}` },
		{ title: t('health.store'), cell: (node) => html`<${Badge} tone=${node.store_up ? 'good' : 'bad'}>${t(node.store_up ? 'health.up' : 'health.down')}</${Badge}>` },
		{ title: t('health.latency'), number: true, cell: (node) => `${latency(node.store_p50_ns)} / ${latency(node.store_p99_ns)}` },
		{ title: t('health.breaker'), cell: (node) => html`<${Badge} tone=${node.breaker && node.breaker !== 'closed' ? 'bad' : ''}>${t('health.breaker.' + breaker(node))}</${Badge}>` },
		{ title: t('health.recall'), number: true, cell: (node) => percent(node.recall_hits) },
		{ title: t('health.lease'), number: true, cell: (node) => percent(node.lease_hits) },
		{ title: t('health.keys'), number: true, cell: (node) => html`${compact(node.keys)}${node.overflow > 0 && html`<div class="wrong">${t('health.overflow', { n: node.overflow })}</div>`}` },
		{ title: t('health.clock'), number: true, cell: (node) => html`<span class=${clockIsWrong(node) ? 'wrong' : ''}>${duration(node.clock_offset_ns)}</span>` },
	];
	return html`<${Panel} title=${t('health.nodes')} note=${t('health.nodes.note')}><${Table} caption=${t('health.nodes')} columns=${columns} rows=${nodes} id=${(node) => node.name} /></${Panel}>`;
}

// shortened is a revision with the beginning of each hash in it: ab6b6204+12.
const shortened = (revision) => revision.replace(/[0-9a-f]{9,}/g, (hash) => hash.slice(0, 8));

const count = (nodes, revision) => nodes.filter((node) => node.revision === revision).length;

const breaker = (node) => ({ closed: 'closed', open: 'open', 'half-open': 'half' })[node.breaker] ?? 'none';

function Latency({ query, every }) {
	const overview = usePolled('telemetry/overview', { query: { ...query, most: 1 }, every });
	const marks = usePolled('telemetry/marks', { query, every: every && 15_000 });
	const series = ['p50', 'p99'].map((name) => ({ name, tone: name, value: (point) => point[name + '_ns'] ?? null }));
	return html`<${Panel} bare title=${t('health.decision')}><${Result} of=${overview}>${(data) => html`<${TimeChart} label=${t('health.decision')} kind="lines" points=${data.series} from=${data.from} to=${data.to}
		step=${data.step_ns / 1e6} series=${series} marks=${marks.data?.marks ?? []} format=${duration} />`}</${Result}></${Panel}>`;
}
