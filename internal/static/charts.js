// SVG charts with axes, units, marks of changes, a cursor for mouse and keyboard, and a table with the same figures.
import { html, useEffect, useLayoutEffect, useRef, useState } from './vendor/preact.js';
import { clock, clockSeconds, compact, date, dateTime, day, offset, percent, t } from './i18n.js';

const left = 52, right = 20, top = 14, bottom = 26;

// useWidth returns a ref and the width of its element.
function useWidth() {
	const ref = useRef();
	const [width, set] = useState(0);
	useLayoutEffect(() => {
		const observer = new ResizeObserver(([entry]) => set(Math.floor(entry.contentRect.width)));
		observer.observe(ref.current);
		set(Math.floor(ref.current.clientWidth));
		return () => observer.disconnect();
	}, []);
	return [ref, width];
}

// ticks are about so many round numbers from 0 to at least most.
function ticks(most, about = 4) {
	if (!(most > 0)) return [0, 1];
	const raw = most / about, power = 10 ** Math.floor(Math.log10(raw));
	const step = [1, 2, 2.5, 5, 10].find((one) => one * power >= raw) * power;
	return Array.from({ length: Math.ceil(most / step - 1e-9) + 1 }, (_, i) => i * step);
}

const steps = [10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 2 * 86400, 7 * 86400, 28 * 86400, 364 * 86400].map((s) => s * 1000);

// timeTicks are about so many round times of the zone.
function timeTicks(from, to, about) {
	const step = steps.find((one) => (to - from) / one <= about) ?? steps.at(-1);
	const zone = -offset(from);
	const list = [];
	for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to; at += step) list.push(at);
	return list;
}

// tickText is the time of a tick, or its date at midnight.
const tickText = (time) => (time + offset(time)) % 86_400_000 ? clock(time) : date(time);

const incidents = ['alert', 'degraded', 'source', 'node_lost'];

// markTone distinguishes incidents from changes and ends.
export const markTone = (mark) => incidents.includes(mark.kind) ? 'incident' : ['resolved', 'recovered'].includes(mark.kind) ? 'end' : 'change';

export const markText = (mark) => [t('mark.' + mark.kind), mark.rule, mark.text].filter(Boolean).join(': ');

// stepping makes the handler of keys that move a cursor among so many values; -1 is none.
const stepping = (count, at, set) => (event) => {
	const to = { ArrowLeft: at < 0 ? count - 1 : at - 1, ArrowRight: at + 1, Home: 0, End: count - 1, Escape: -1 }[event.key];
	if (to === undefined) return;
	event.preventDefault();
	set(Math.max(-1, Math.min(count - 1, to)));
};

// TimeChart draws series over time. points are {at, …}; a series is {name, tone, value(point)} with a value of null
// where there is none. kind is 'bars' (stacked) or 'lines'. step is in ms; format writes a value with its unit.
export function TimeChart({ label, unit, kind = 'bars', points, from, to, step, series, marks = [], format = compact, height = 200 }) {
	const [ref, width] = useWidth();
	const [at, setAt] = useState(-1);
	const begin = +new Date(from), end = Math.max(+new Date(to), begin + step);
	const rows = points.map((point) => ({ at: +new Date(point.at), values: series.map((one) => one.value(point)) }))
		.filter((row) => row.at + step > begin && row.at < end);
	const total = (row) => kind === 'bars' ? row.values.reduce((sum, value) => sum + (value ?? 0), 0) : Math.max(0, ...row.values.map((value) => value ?? 0));
	const axis = ticks(Math.max(0, ...rows.map(total)));
	const x = (time) => left + (width - left - right) * (time - begin) / (end - begin);
	const y = (value) => top + (height - top - bottom) * (1 - value / axis.at(-1));
	const shown = marks.filter((mark) => +new Date(mark.at) >= begin && +new Date(mark.at) <= end);
	const move = (event) => {
		const time = begin + (end - begin) * (event.clientX - ref.current.getBoundingClientRect().left - left) / (width - left - right);
		setAt(rows.findIndex((row) => time >= row.at && time < row.at + step));
	};
	const keys = stepping(rows.length, at, setAt);
	const row = rows[at];
	const exact = end - begin > 86_400_000 ? dateTime : clockSeconds;
	const near = row ? shown.filter((mark) => +new Date(mark.at) >= row.at && +new Date(mark.at) < row.at + step) : [];
	return html`<figure class="chart" ref=${ref}>
		<figcaption><span class="chart-name">${label}${unit && html` <span class="note">${unit}</span>`}</span>
			<span class="legend">${series.map((one) => html`<span><i class="swatch ${one.tone}"></i>${one.name}</span>`)}
			${shown.length > 0 && html`<span><i class="swatch mark"></i>${t('chart.marks', { n: shown.length })}</span>`}</span></figcaption>
		${width > 0 && html`<svg width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} role="img" tabindex="0" aria-label=${`${label}. ${t('chart.keys')}`}
			onPointerMove=${move} onPointerLeave=${() => setAt(-1)} onKeyDown=${keys} onBlur=${() => setAt(-1)}>
			<g class="axis">${axis.map((value) => html`<line x1=${left} x2=${width - right} y1=${y(value)} y2=${y(value)} />
				<text x=${left - 8} y=${y(value) + 4} text-anchor="end">${format(value)}</text>`)}
				${timeTicks(begin, end, Math.max(2, Math.floor(width / 90))).map((time) => html`<text x=${x(time)} y=${height - 8} text-anchor="middle">${tickText(time)}</text>
				<line class="tick" x1=${x(time)} x2=${x(time)} y1=${height - bottom} y2=${height - bottom + 4} />`)}</g>
			${row && html`<rect class="cursor" x=${x(row.at)} y=${top} width=${Math.max(1, x(row.at + step) - x(row.at))} height=${height - top - bottom} />`}
			${kind === 'bars' ? bars(rows, series, x, y, step) : lines(rows, series, x, y, step)}
			${shown.map((mark) => html`<g class="mark ${markTone(mark)}"><line x1=${x(+new Date(mark.at))} x2=${x(+new Date(mark.at))} y1=${top - 4} y2=${height - bottom} />
				<path d=${`M${x(+new Date(mark.at)) - 5},${top - 10}h10l-5,8z`}><title>${clockSeconds(mark.at)} ${markText(mark)}</title></path></g>`)}</svg>`}
		${row && html`<div class="tip ${x(row.at) > width / 2 ? 'at-left' : ''}" role="status" style=${{ left: `${x(row.at + step / 2)}px` }}><b>${exact(row.at)}</b>
			${series.map((one, i) => html`<span><i class="swatch ${one.tone}"></i>${one.name} <b>${row.values[i] === null ? '–' : format(row.values[i])}</b></span>`)}
			${near.map((mark) => html`<span class="note">${markText(mark)}</span>`)}</div>`}
		<${DataTable} caption=${label} head=${[t('chart.time'), ...series.map((one) => one.name)]}
			rows=${() => rows.map((one) => [day(one.at), ...one.values.map((value) => value === null ? '–' : format(value))])} marks=${shown} />
	</figure>`;
}

function bars(rows, series, x, y, step) {
	return series.map((one, i) => {
		const path = rows.filter((row) => row.values[i] > 0).map((row) => {
			const below = row.values.slice(0, i).reduce((sum, value) => sum + (value ?? 0), 0);
			const wide = x(row.at + step) - x(row.at);
			return `M${x(row.at).toFixed(1)},${y(below).toFixed(1)}V${y(below + row.values[i]).toFixed(1)}h${(wide > 3 ? wide - 1 : wide).toFixed(1)}V${y(below).toFixed(1)}z`;
		}).join('');
		return html`<path class="fill ${one.tone}" d=${path} />`;
	});
}

// lines are interrupted where there is no value.
function lines(rows, series, x, y, step) {
	return series.map((one, i) => {
		let pen = 'M';
		const path = rows.map((row) => {
			if (row.values[i] === null) {
				pen = 'M';
				return '';
			}
			const point = `${pen}${x(row.at + step / 2).toFixed(1)},${y(row.values[i]).toFixed(1)}`;
			pen = 'L';
			return point;
		}).join('');
		return html`<path class="stroke ${one.tone}" d=${path} />`;
	});
}

// DataTable is the text of a chart. It is made when it is opened.
export function DataTable({ caption, head, rows, marks = [] }) {
	const [open, set] = useState(false);
	return html`<details class="data" onToggle=${(event) => set(event.target.open)}><summary>${t('chart.table')}</summary>${open && html`
		<div class="scroll" role="region" tabindex="0" aria-label=${caption}><table><caption class="hidden">${caption}</caption>
		<thead><tr>${head.map((one, i) => html`<th scope="col" class=${i ? 'number' : ''}>${one}</th>`)}</tr></thead>
		<tbody>${rows().map((row) => html`<tr>${row.map((cell, i) => i ? html`<td class="number">${cell}</td>` : html`<th scope="row">${cell}</th>`)}</tr>`)}</tbody></table></div>
		${marks.length > 0 && html`<ul>${marks.map((mark) => html`<li>${day(mark.at)} ${markText(mark)}</li>`)}</ul>`}`}</details>`;
}

// Sparkline is a small picture of passed and refused requests beside figures that say the same.
export function Sparkline({ points = [], from, to, step, series, width = 140, height = 28 }) {
	const begin = +new Date(from), end = +new Date(to);
	const rows = points.map((point) => ({ at: +new Date(point.at), values: series.map((one) => one.value(point)) }));
	const most = Math.max(1, ...rows.map((row) => row.values.reduce((sum, value) => sum + value, 0)));
	const x = (time) => width * (Math.max(time, begin) - begin) / (end - begin);
	const y = (value) => height * (1 - value / most);
	return html`<svg class="spark" width=${width} height=${height} aria-hidden="true">${bars(rows, series, x, y, step)}
		<line class="base" x1="0" x2=${width} y1=${height - 0.5} y2=${height - 0.5} /></svg>`;
}

// Histogram draws bars {from, to, keys} of the use of a limit; over(bar) tells that it is above the limit, and a bar whose
// to is 0 has no end. All bars have one width, although they span more and more above the limit, and heights are logarithmic, so that 3
// keys stay visible beside 12,000. lines are {at, name, tone}. format writes a use, and range that of a bar.
export function Histogram({ label, bars: list, lines: limits = [], over = (bar) => bar.from >= 1, format = percent, range = rangeOf(format), column = t('chart.use'), height = 220 }) {
	const [ref, width] = useWidth();
	const [at, setAt] = useState(-1);
	const most = Math.max(1, ...list.map((bar) => bar.keys));
	const high = Math.max(1, Math.ceil(Math.log10(most + 1)));
	const wide = (width - left - right) / Math.max(1, list.length);
	const y = (keys) => top + (height - top - bottom) * (1 - Math.log10(keys + 1) / high);
	const bar = list[at];
	const every = Math.max(1, Math.ceil(list.length / Math.max(3, Math.floor(width / 62))));
	return html`<figure class="chart" ref=${ref}><figcaption><span class="chart-name">${label} <span class="note">${t('chart.log')}</span></span>
		<span class="legend">${limits.map((one) => html`<span><i class="swatch line ${one.tone}"></i>${one.name}</span>`)}</span></figcaption>
		${width > 0 && html`<svg width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} role="img" aria-label=${label} onPointerLeave=${() => setAt(-1)}
			onPointerMove=${(event) => setAt(Math.floor((event.clientX - ref.current.getBoundingClientRect().left - left) / wide))}>
			<g class="axis">${Array.from({ length: high + 1 }, (_, i) => 10 ** i).map((keys, i) => html`<line x1=${left} x2=${width - right} y1=${y(i ? keys : 0)} y2=${y(i ? keys : 0)} />
				<text x=${left - 8} y=${y(i ? keys : 0) + 4} text-anchor="end">${compact(i ? keys : 0)}</text>`)}
				${list.map((one, i) => i % every === 0 && html`<text x=${left + i * wide} y=${height - 8} text-anchor="middle">${format(one.from)}</text>`)}</g>
			${list.map((one, i) => one.keys > 0 && html`<rect class="fill ${over(one) ? 'refused' : 'passed'} ${i === at ? 'at' : ''}" x=${left + i * wide + 1} y=${y(one.keys)}
				width=${Math.max(1, wide - 2)} height=${height - bottom - y(one.keys)} />`)}
			${limits.map((one) => html`<line class="limit ${one.tone}" x1=${left + wide * place(list, one.at)} x2=${left + wide * place(list, one.at)} y1=${top - 6} y2=${height - bottom} />`)}</svg>`}
		${bar && html`<div class="tip ${at > list.length / 2 ? 'at-left' : ''}" style=${{ left: `${left + (at + 0.5) * wide}px` }}><b>${range(bar)}</b><span>${t('chart.keysOf', { n: bar.keys })}</span></div>`}
		<${DataTable} caption=${label} head=${[column, t('chart.keysColumn')]} rows=${() => list.map((one) => [range(one), compact(one.keys)])} />
	</figure>`;
}

const rangeOf = (format) => (bar) => bar.to ? `${format(bar.from)} – ${format(bar.to)}` : `≥ ${format(bar.from)}`;

// place is the position of a use among the bars, in bars.
function place(list, use) {
	const i = list.findIndex((bar) => use < bar.to || !bar.to);
	if (i < 0) return list.length;
	const bar = list[i];
	return i + (bar.to ? Math.max(0, (use - bar.from) / (bar.to - bar.from)) : Math.min(0.5, (use - bar.from) / Math.max(1e-9, bar.from)));
}

// Curve draws shares over the numbers of a limit, which are logarithmic if they span much. points ascend by x(point); a
// series is {name, tone, value(point)}, lines are {at, name, tone}, and name(point) is the text of a point.
export function Curve({ label, points, x: valueOf, name, series, lines: limits = [], height = 220 }) {
	const [ref, width] = useWidth();
	const [at, setAt] = useState(-1);
	const all = [...points.map(valueOf), ...limits.map((one) => one.at)];
	const low = Math.max(1e-9, Math.min(...all)), high = Math.max(low * 1.01, ...all);
	const scale = high / low > 20 ? Math.log : (value) => value;
	const x = (value) => left + (width - left - right) * (scale(value) - scale(low)) / (scale(high) - scale(low));
	const axis = ticks(Math.max(0, ...points.flatMap((point) => series.map((one) => one.value(point)))));
	const y = (share) => top + (height - top - bottom) * (1 - share / axis.at(-1));
	const move = (event) => {
		const pointer = event.clientX - ref.current.getBoundingClientRect().left;
		const far = points.map((point) => Math.abs(x(valueOf(point)) - pointer));
		setAt(far.indexOf(Math.min(...far)));
	};
	const keys = stepping(points.length, at, setAt);
	const point = points[at];
	return html`<figure class="chart" ref=${ref}><figcaption><span class="chart-name">${label}</span>
		<span class="legend">${series.map((one) => html`<span><i class="swatch ${one.tone}"></i>${one.name}</span>`)}
			${limits.map((one) => html`<span><i class="swatch line ${one.tone}"></i>${one.name}</span>`)}</span></figcaption>
		${width > 0 && html`<svg width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} role="img" tabindex="0" aria-label=${`${label}. ${t('chart.keys')}`}
			onPointerMove=${move} onPointerLeave=${() => setAt(-1)} onKeyDown=${keys} onBlur=${() => setAt(-1)}>
			<g class="axis">${axis.map((share) => html`<line x1=${left} x2=${width - right} y1=${y(share)} y2=${y(share)} />
				<text x=${left - 8} y=${y(share) + 4} text-anchor="end">${percent(share)}</text>`)}
				${spaced(points.map(valueOf), x, 48).map((value) => html`<text x=${x(value)} y=${height - 8} text-anchor="middle">${compact(value)}</text>
				<line class="tick" x1=${x(value)} x2=${x(value)} y1=${height - bottom} y2=${height - bottom + 4} />`)}</g>
			${limits.map((one) => html`<line class="limit ${one.tone}" x1=${x(one.at)} x2=${x(one.at)} y1=${top - 6} y2=${height - bottom} />`)}
			${series.map((one) => html`<path class="stroke ${one.tone}" d=${points.map((p, i) => `${i ? 'L' : 'M'}${x(valueOf(p)).toFixed(1)},${y(one.value(p)).toFixed(1)}`).join('')} />
				${points.map((p, i) => html`<circle class="fill ${one.tone}" cx=${x(valueOf(p))} cy=${y(one.value(p))} r=${i === at ? 5 : 2.5} />`)}`)}</svg>`}
		${point && html`<div class="tip ${x(valueOf(point)) > width / 2 ? 'at-left' : ''}" role="status" style=${{ left: `${x(valueOf(point))}px` }}><b class="mono">${name(point)}</b>
			${series.map((one) => html`<span><i class="swatch ${one.tone}"></i>${one.name} <b>${percent(one.value(point))}</b></span>`)}</div>`}
	</figure>`;
}

// spaced are those of the ascending values whose texts have so much room.
function spaced(values, x, room) {
	let last = -Infinity;
	return values.filter((value) => {
		const fits = x(value) - last >= room;
		if (fits) last = x(value);
		return fits;
	});
}
