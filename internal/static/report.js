// The report of a backtest, as weir backtest --format json prints it. All that comes from the log is text of an element,
// without characters that are not seen or turn the direction of the text.
import { html, useEffect, useState } from './vendor/preact.js';
import { Curve, DataTable, Histogram, Sparkline, TimeChart } from './charts.js';
import { Badge, Empty, Panel, Share, Table, Tile, Tiles } from './components.js';
import { clockSeconds, compact, dateTime, day, inLanguage, number, percent, t, zoneName } from './i18n.js';
import { visible } from './telemetry.js';

const stopped = (count) => count.refused + count.denied;
const part = (some, all) => all ? some / all : 0;
const refusedShare = (count) => part(stopped(count), count.requests);
const clientShare = (count) => part(count.clients_refused, count.clients);

// Shown is a text of the log, or of a file.
const Shown = ({ children, most = 120 }) => {
	const text = visible(children);
	return html`<bdi class="mono ${text.length > 45 ? 'long' : ''}" title=${text.length > most ? text.slice(0, 2000) : null}>${text.length > most ? text.slice(0, most) + '…' : text}</bdi>`;
};

// Notes are the server's sentences, in the language of the page; a severe one says that the figures are not to be trusted.
const Notes = ({ list }) => html`<ul class="changes">${list.map((one) => html`<li class=${one.severe ? 'wrong' : ''}>${visible(inLanguage(one.text, one.text_zh))}</li>`)}</ul>`;

const units = { h: 3600e3, m: 60e3, s: 1e3 };

// milliseconds of a duration such as 1h30m0s.
const milliseconds = (text) => [...text.matchAll(/([\d.]+)(h|m|s)/g)].reduce((sum, [, n, unit]) => sum + n * units[unit], 0) || 60e3;

// brief is a duration without what is zero: 5m of 5m0s.
const brief = (text) => text.replace(/(\D)0s$/, '$1').replace(/(\D)0m$/, '$1');

export function Report({ report }) {
	const rules = report.by_rule ?? [];
	const wanted = useHash();
	const printing = usePrinting();
	const ranked = rules.toSorted((a, b) => stopped(b) - stopped(a));
	const chosen = rules.find((rule) => rule.name === wanted) ?? rules.find((rule) => rule.name === report.proposed?.[0]?.rule) ?? ranked[0];
	const details = printing ? ranked.filter((rule) => stopped(rule) || rule === chosen).slice(0, 20) : [chosen].filter(Boolean);
	if (!report.total.requests) return html`<${Panel} bare title=${t('report.nothing')}><${Empty} title=${t('report.nothing')}>${t('report.nothing.text')}</${Empty}></${Panel}><${Limits} list=${report.limits ?? []} /><${Facts} report=${report} />`;
	return html`<${Verdict} report=${report} />
		<${Figures} report=${report} />
		<${Limits} list=${report.limits ?? []} />
		${report.proposed?.length > 0 && html`<${Proposals} report=${report} />`}
		<${Panel} bare title=${t('report.timeline')}><${Timeline} report=${report} /></${Panel}>
		<${Rules} report=${report} rules=${ranked} chosen=${chosen} />
		<div class="details">${details.map((rule) => html`<${Detail} key=${rule.name} report=${report} rule=${rule} moved=${rule.name === wanted} />`)}</div>
		<${Who} report=${report} />
		${report.against && html`<${Against} against=${report.against} total=${report.total} />`}
		<${Facts} report=${report} />`;
}

// useHash is the fragment of the URL, which names the rule that is shown.
function useHash() {
	const read = () => {
		try {
			return decodeURIComponent(location.hash.slice(1));
		} catch {
			return '';
		}
	};
	const [hash, set] = useState(read);
	useEffect(() => {
		const changed = () => set(read());
		addEventListener('hashchange', changed);
		return () => removeEventListener('hashchange', changed);
	}, []);
	return hash;
}

// usePrinting is true while the page is printed: paper has the details of all rules.
function usePrinting() {
	const [printing, set] = useState(false);
	useEffect(() => {
		const begin = () => set(true), end = () => set(false);
		addEventListener('beforeprint', begin);
		addEventListener('afterprint', end);
		return () => {
			removeEventListener('beforeprint', begin);
			removeEventListener('afterprint', end);
		};
	}, []);
	return printing;
}

// Verdict is the answer in a sentence or two.
function Verdict({ report }) {
	const { total, clients } = report;
	const worst = clients?.[0];
	const values = { n: total.clients_refused, share: percent(refusedShare(total)), requests: number(total.requests), clients: number(total.clients_refused), all: number(total.clients), clientShare: percent(clientShare(total)) };
	if (!stopped(total)) return html`<p class="reading" data-reading="none">${t('report.read.none', values)}</p>`;
	return html`<p class="reading" data-reading="some">${t('report.read.some', values)}
		${worst && html`<span> ${t('report.read.worst', { share: percent(part(worst.refused, stopped(total))) })} <${Shown}>${worst.client}</${Shown}>${t('report.read.failed', { share: percent(part(worst.failing, worst.requests)) })}</span>`}</p>`;
}

function Figures({ report }) {
	const { total, good, by_rule: rules = [], proposed } = report;
	const first = proposed?.[0];
	const sum = (value) => rules.reduce((n, rule) => n + value(rule), 0);
	const refusals = sum(stopped);
	return html`<${Tiles} label=${t('report.figures')}>
		<${Tile} label=${t('report.refused')} value=${percent(refusedShare(total))} note=${t('report.refused.note', { count: number(stopped(total)), total: number(total.requests) })} tone=${stopped(total) > 0.1 * total.requests ? 'bad' : ''} />
		<${Tile} label=${t('report.clients')} value=${percent(clientShare(total))} note=${t('report.clients.note', { count: number(total.clients_refused), total: number(total.clients) })} />
		${refusals > 0 && html`<${Tile} label=${t('report.failed')} value=${percent(part(sum((rule) => rule.failing), refusals))} note=${t('report.failed.note')} />`}
		${good && html`<${Tile} label=${t('report.good')} value=${percent(part(good.clients_refused, good.clients))} note=${t('report.good.note', { count: number(good.clients_refused), total: number(good.clients) })} tone=${good.clients_refused ? 'bad' : 'good'} />`}
		${first && html`<${Tile} label=${t('report.proposed')} value=${first.limit ? html`<span class="mono">${first.limit}</span>` : t('report.proposed.none')} note=${t('report.proposed.note', { rule: first.rule, old: first.old })} tone=${first.limit ? 'good' : ''} />`}
	</${Tiles}>`;
}

// Proposals are limits of rules side by side.
function Proposals({ report }) {
	const hit = (good) => good ? t('report.hit', { count: number(good.clients_refused), total: number(good.clients) }) : t('report.unknown');
	return html`<${Panel} title=${t('report.proposals')}>${report.proposed.map((one) => html`<h3><a href=${'#' + encodeURIComponent(one.rule)}>${one.rule}</a></h3>
		${one.points?.length > 0 && html`<${Table} caption=${`${t('report.proposals')}: ${one.rule}`} rows=${one.points} id=${(point) => point.limit} columns=${[
			{ name: 'key', title: t('report.limit'), cell: (point) => html`<span class="mono">${point.limit}</span>
				${point.limit === one.old && html` <${Badge}>${t('report.now')}</${Badge}>`}${point.limit === one.limit && html` <${Badge} tone="good">${t('report.proposed')}</${Badge}>`}` },
			{ title: t('report.wouldRefuse'), number: true, cell: (point) => html`${number(stopped(point))} <span class="note">${percent(refusedShare(point))}</span>` },
			{ title: t('report.failed'), number: true, cell: (point) => stopped(point) ? percent(part(point.failing, stopped(point))) : '–' },
			{ title: t('report.hit.good'), number: true, cell: (point) => html`${hit(point.good)}<div class="note">${(point.good?.examples ?? []).map((name, i) => html`${i > 0 && ', '}<${Shown}>${name}</${Shown}>`)}</div>` },
			{ title: t('report.hit.failing'), number: true, cell: (point) => t('report.hit', { count: number(point.fails_refused), total: number(point.fails) }) },
			{ title: t('report.hour'), number: true, cell: (point) => number(point.hour) },
			{ title: t('report.day'), number: true, cell: (point) => number(point.day) }]} />`}
		<${Notes} list=${one.why ?? []} />`)}</${Panel}>`;
}

const outcomes = [
	{ name: 'passed', value: (point) => point.passed },
	{ name: 'refused', value: (point) => point.refused },
];

function Timeline({ report }) {
	const { start, step, passed = [], refused = [] } = report.timeline;
	const ms = milliseconds(step), begin = +new Date(start);
	const points = passed.map((count, i) => ({ at: begin + i * ms, passed: count, refused: refused[i] ?? 0 }));
	return html`<${TimeChart} label=${t('report.timeline')} unit=${t('report.timeline.unit', { step: brief(step) })} points=${points}
		from=${begin} to=${begin + points.length * ms} step=${ms} series=${outcomes.map((one) => ({ ...one, tone: one.name, name: t('outcome.' + one.name) }))} />`;
}

const few = 15; // rules

function Rules({ report, rules, chosen }) {
	const [all, showAll] = useState(false);
	const { start, step } = report.timeline;
	const begin = +new Date(start);
	const spark = (rule) => {
		const series = rule.series ?? [], ms = milliseconds(step) * (report.timeline.passed.length / Math.max(1, series.length));
		return html`<${Sparkline} points=${series.map((refused, i) => ({ at: begin + i * ms, refused }))} from=${begin} to=${begin + series.length * ms} step=${ms}
			series=${[{ tone: rule.shadow ? 'shadow' : 'refused', value: (point) => point.refused }]} />`;
	};
	return html`<${Panel} title=${t('report.rules')} note=${t('report.rules.note')}>
		<${Table} caption=${t('report.rules')} rows=${all ? rules : rules.slice(0, few)} id=${(one) => one.name} columns=${[
			{ title: t('nav.rule'), cell: (one) => html`<a href=${'#' + encodeURIComponent(one.name)} aria-current=${one === chosen ? 'true' : null}>${one.name}</a>
				${one.shadow && html` <${Badge} tone="shadow">${t('report.shadowed')}</${Badge}>`}<div class="narrow note mono">${one.limit}</div>${one.description && html`<span class="note description wide">${visible(one.description)}</span>`}` },
			{ title: t('report.limit'), wide: true, cell: (one) => html`<span class="mono">${one.limit}</span>` },
			{ title: t('report.matched'), number: true, wide: true, cell: (one) => compact(one.requests) },
			{ title: t('report.wouldRefuse'), number: true, cell: (one) => compact(stopped(one)) },
			{ title: t('report.refused'), number: true, cell: (one) => html`<${Share} value=${refusedShare(one)} tone=${one.shadow ? 'shadow' : 'refused'} />` },
			{ title: t('report.clients'), number: true, cell: (one) => html`${compact(one.clients_refused)} <span class="note">${percent(clientShare(one))}</span>` },
			{ title: t('report.spark'), wide: true, cell: spark },
			{ title: t('report.peak'), number: true, wide: true, cell: (one) => one.peak?.requests ? html`${t('report.peak.value', { count: compact(one.peak.requests) })} <span class="note">${day(one.peak.start)}</span>` : '–' },
			{ title: t('report.first'), wide: true, number: true, cell: (one) => one.first ? dateTime(one.first) : '–' }]} />
		${!all && rules.length > few && html`<p><button onClick=${() => showAll(true)}>${t('report.rules.all', { n: rules.length })}</button></p>`}</${Panel}>`;
}

// Detail is one rule: the histogram of its keys, and what other limits would do.
function Detail({ report, rule, moved }) {
	const sweep = report.sweeps?.find((one) => one.rule === rule.name);
	const proposal = report.proposed?.find((one) => one.rule === rule.name);
	const title = html`<span>${rule.name} <span class="mono">${rule.limit}</span></span>`;
	useEffect(() => {
		if (moved) document.getElementById('rule-detail')?.scrollIntoView({ block: 'start' });
	}, [moved]);
	return html`<div id="rule-detail"><${Panel} title=${title} label=${rule.name} note=${rule.shadow ? t('report.shadow') : ''}>
		<${RuleReading} rule=${rule} />
		<div class="columns">${rule.peaks?.length > 0 && html`<${Peaks} rule=${rule} proposal=${proposal} />`}
			${sweep?.points?.length > 1 && html`<${SweepCurve} sweep=${sweep} rule=${rule} proposal=${proposal} />`}</div>
		<${Worst} rule=${rule} /></${Panel}></div>`;
}

function RuleReading({ rule }) {
	const sum = (bars) => bars.reduce((keys, bar) => keys + bar.keys, 0);
	const over = number(sum((rule.peaks ?? []).filter((bar) => bar.from > rule.units)));
	const { good } = rule, count = stopped(rule);
	return html`${rule.peaks?.length > 0 && rule.units > 0 && html`<p class="reading">${t('report.rule.over', { over, keys: number(rule.keys), units: number(rule.units), window: brief(rule.window) })}</p>`}
		${count > 0 && html`<p>${t('report.rule.refused', { count: number(count), total: number(rule.requests), share: percent(refusedShare(rule)), clients: number(rule.clients_refused), first: dateTime(rule.first), last: dateTime(rule.last) })}
		${' ' + t('report.rule.failing', { share: percent(part(rule.failing, count)) })}</p>`}
		${good?.clients > 0 && html`<p class=${good.clients_refused ? 'wrong' : ''}>${t('report.rule.good', { count: number(good.clients_refused), total: number(good.clients), requests: number(good.requests_refused) })}
			${' '}${(good.examples ?? []).map((one, i) => html`${i > 0 && ', '}<${Shown}>${one}</${Shown}>`)}</p>`}`;
}

const barEnds = [10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100];

// barAfter is where the bar after the one from n begins, as the report makes bars.
function barAfter(n) {
	if (n < 10) return n + 1;
	const scale = 10 ** Math.max(0, Math.floor(Math.log10(n)) - 1);
	return barEnds.find((end) => end * scale > n) * scale;
}

// filled are bars with those that no key is in, from a tenth of the first one or of a limit. Their to is where the next
// one begins.
function filled(bars, limits) {
	const list = [], until = 1.5 * Math.max(...limits);
	let at = Math.max(1, 10 ** (Math.floor(Math.log10(Math.min(bars[0].from, ...limits))) - 1));
	for (const bar of [...bars, { from: Math.max(until, bars.at(-1).to + 1), to: -1 }]) {
		for (; at < bar.from && list.length < 400; at = list.at(-1).to) list.push({ from: at, to: Math.min(barAfter(at), bar.to < 0 ? Infinity : bar.from), keys: 0 });
		if (bar.to < 0) break;
		list.push({ from: bar.from, to: bar.to + 1, keys: bar.keys });
		at = bar.to + 1;
	}
	return list;
}

// A limit of 5 is drawn at 6, where what it refuses begins.
function Peaks({ rule, proposal }) {
	const proposed = unitsOf(proposal);
	const lines = [];
	if (rule.units) lines.push({ at: rule.units + 1, name: `${t('report.now')} ${rule.limit}`, tone: 'limit' });
	if (proposed) lines.push({ at: proposed + 1, name: `${t('report.proposed')} ${proposal.limit}`, tone: 'wanted' });
	const bars = filled(rule.peaks, lines.map((one) => one.at));
	const range = (bar) => bar.to - 1 > bar.from ? `${number(bar.from)} – ${number(bar.to - 1)}` : number(bar.from);
	return html`<${Histogram} label=${t('report.peaks', { window: brief(rule.window) })} bars=${bars} lines=${lines} over=${(bar) => rule.units && bar.to - 1 > rule.units}
		format=${compact} range=${range} column=${t('report.peaks.column', { window: brief(rule.window) })} />`;
}

// unitsOf is the first number of a limit: 180 of sliding 180/1m.
const unitsOf = (proposal) => Number(/\d+/.exec(proposal?.limit ?? '')?.[0] ?? 0);

function SweepCurve({ sweep, rule, proposal }) {
	const proposed = unitsOf(proposal);
	const lines = [];
	if (rule.units) lines.push({ at: rule.units, name: `${t('report.now')} ${rule.limit}`, tone: 'limit' });
	if (proposed) lines.push({ at: proposed, name: `${t('report.proposed')} ${proposal.limit}`, tone: 'wanted' });
	const good = sweep.points.some((point) => point.good);
	const goodShare = (point) => part(point.good?.clients_refused ?? 0, point.good?.clients ?? 0);
	const series = [
		{ name: t('report.sweep.requests'), tone: 'refused', value: refusedShare },
		{ name: t('report.sweep.clients'), tone: 'clients', value: clientShare },
		...good ? [{ name: t('report.good'), tone: 'denied', value: goodShare }] : [],
	];
	return html`<div><${Curve} label=${t('report.sweep')} points=${sweep.points} x=${(point) => point.units} name=${(point) => point.limit} series=${series} lines=${lines} />
		<${DataTable} caption=${t('report.sweep')} head=${[t('report.limit'), ...series.map((one) => one.name), t('report.sweep.peak')]}
			rows=${() => sweep.points.map((point) => [point.limit, ...series.map((one) => percent(one.value(point))), number(point.peak)])} /></div>`;
}

// evidence are the columns of what the log says of a client or key.
const evidence = () => [
	{ title: t('report.wouldRefuse'), number: true, cell: (one) => html`${compact(one.refused)} <span class="note">${t('report.of', { total: compact(one.requests) })}</span>` },
	{ title: t('report.evidence.failed'), number: true, cell: (one) => percent(part(one.failing, one.requests)) },
	{ title: t('report.evidence.agents'), number: true, wide: true, cell: (one) => number(one.agents) },
	{ title: t('report.evidence.names'), number: true, wide: true, cell: (one) => number(one.names) },
	{ title: t('report.evidence.paths'), number: true, wide: true, cell: (one) => number(one.paths) },
];

const agent = () => ({ title: t('report.agent'), wide: true, cell: (one) => one.agent ? html`<${Shown} most=${60}>${one.agent}</${Shown}>` : '–' });

function Who({ report }) {
	const clients = report.clients ?? [];
	return html`<${Panel} title=${t('report.who')} note=${clients.length ? t('report.who.note', { n: clients.length, all: number(report.total.clients_refused) }) : ''}>
		<${Table} caption=${t('report.who')} rows=${clients} id=${(one) => one.client} empty=${html`<${Empty} title=${t('report.who.none')} />`} columns=${[
			{ name: 'key', title: t('report.client'), cell: (one) => html`<${Shown}>${one.client}</${Shown}><div class="note">${(one.rules ?? []).join(', ')}</div>` },
			...evidence(),
			agent(),
			{ title: t('report.when'), wide: true, number: true, cell: (one) => html`${day(one.first)}<div class="note">– ${day(one.last)}</div>` }]} /></${Panel}>`;
}

// Worst are the keys of a rule that are refused most.
const Worst = ({ rule }) => rule.worst?.length > 0 && html`<h3>${t('report.worst')}</h3><${Table} caption=${t('report.worst')} rows=${rule.worst} id=${(one) => one.key} columns=${[
	{ name: 'key', title: t('report.key'), cell: (one) => html`<${Shown}>${one.key}</${Shown}>` },
	...evidence(), { title: t('report.evidence.addresses'), number: true, wide: true, cell: (one) => number(one.addresses) }, agent()]} />`;

function Against({ against, total }) {
	const share = (count) => percent(part(count, total.requests));
	const rows = [
		['report.against.new', against.newly_refused], ['report.against.old', against.no_longer_refused], ['report.against.both', against.both_refused],
	];
	return html`<${Panel} title=${t('report.against')} note=${html`<${Shown}>${against.rules}</${Shown}>`}>
		<div class="columns"><dl class="pairs">${rows.map(([name, count]) => html`<div><dt>${t(name)}</dt><dd>${number(count)} <span class="note">${share(count)}</span></dd></div>`)}
			<div><dt>${t('report.against.total')}</dt><dd>${share(stopped(against.total))} → <b>${share(stopped(total))}</b></dd></div></dl>
			<${Table} caption=${t('report.against')} rows=${against.by_rule ?? []} id=${(one) => one.rule} columns=${[
				{ title: t('nav.rule'), cell: (one) => one.rule },
				{ title: t('report.against.new'), number: true, cell: (one) => number(one.newly_refused) },
				{ title: t('report.against.old'), number: true, cell: (one) => number(one.no_longer_refused) }]} /></div>
		${against.examples?.length > 0 && html`<h3>${t('report.against.examples')}</h3><${Table} caption=${t('report.against.examples')} rows=${against.examples} id=${(one) => one.file + ':' + one.line} columns=${[
			{ name: 'key', title: t('report.line'), cell: (one) => html`<${Shown}>${`${one.file}:${one.line}`}</${Shown}>` },
			{ title: t('chart.time'), wide: true, cell: (one) => dateTime(one.time) },
			{ title: t('report.client'), cell: (one) => html`<${Shown}>${one.client}</${Shown}>` },
			{ title: t('report.target'), wide: true, cell: (one) => html`<${Shown} most=${80}>${one.target}</${Shown}>` },
			{ title: t('report.change'), cell: (one) => html`${outcome(one.old)} → ${outcome(one.new)}` }]} />`}</${Panel}>`;
}

const outcome = (rule) => rule === 'passed' ? t('outcome.passed') : t('report.refusedBy', { rule });

// Limits are what the figures cannot say. They stand where the figures are read.
function Limits({ list }) {
	return list.length > 0 && html`<details class="limits" open><summary>${t('report.limits')}</summary><${Notes} list=${list} /></details>`;
}

// Facts are what was read.
function Facts({ report }) {
	const { log } = report;
	const pairs = [
		['report.log.interval', log.requests ? `${dateTime(log.from)} – ${dateTime(log.to)} ${zoneName()}` : '–'],
		['report.log.lines', number(log.lines)], ['report.log.unread', number(log.unread)], ['report.log.dropped', number(log.dropped)],
		['report.log.requests', number(log.requests)], ['report.log.clients', number(log.clients)],
		['report.log.refused', number(log.refused)], ['report.log.time', t('report.log.time.' + (['start', 'end'].includes(log.time_is) ? log.time_is : 'mixed'))],
		['report.log.resolution', log.resolution], ['report.log.spread', log.spread],
	];
	const examples = log.files?.flatMap((file) => (file.examples ?? []).map((one) => ({ ...one, file: file.name }))) ?? [];
	return html`<${Panel} title=${t('report.log')}><dl class="pairs facts">${pairs.filter(([, value]) => value).map(([name, value]) => html`<div><dt>${t(name)}</dt><dd>${value}</dd></div>`)}</dl>
		<${Table} caption=${t('report.files')} rows=${log.files ?? []} id=${(one) => one.name} columns=${[
			{ name: 'key', title: t('report.file'), cell: (one) => html`<${Shown}>${one.name}</${Shown}>` },
			{ title: t('report.format'), cell: (one) => html`<${Shown} most=${60}>${one.format}</${Shown}>` },
			{ title: t('report.log.lines'), number: true, cell: (one) => number(one.lines) },
			{ title: t('report.log.unread'), number: true, cell: (one) => number(one.unread) }]} />
		${examples.length > 0 && html`<h3>${t('report.unread')}</h3><${Table} caption=${t('report.unread')} rows=${examples} id=${(one) => one.file + ':' + one.line} columns=${[
			{ name: 'key', title: t('report.line'), cell: (one) => html`<${Shown}>${`${one.file}:${one.line}`}</${Shown}>` },
			{ title: t('report.unread.text'), cell: (one) => html`<${Shown}>${one.text}</${Shown}>` },
			{ title: t('report.unread.why'), cell: (one) => html`<span lang="en">${visible(one.why)}</span>` }]} />`}</${Panel}>`;
}
