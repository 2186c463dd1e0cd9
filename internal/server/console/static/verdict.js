// How a rule's histogram is read: abuse, or a limit that is too tight.

const most = 0.9; // share of refusals that few keys make

// verdict returns {text, values}: a text of the page of a rule, and its values. It is
//
//	abuse   if at most 1 % of the keys, or 3, make 90 % of the refusals
//	tight   if at least 5 % of the keys peak at the limit or above, half of them below twice the limit
//	spread  if keys were refused otherwise
export function verdict(report) {
	const refused = report.counts.refused + (report.counts.shadow_refused ?? 0);
	const all = report.distinct;
	const counted = report.histogram.reduce((sum, bar) => sum + bar.keys, 0);
	const scale = counted ? all / counted : 0; // the histogram can be of a sample
	const between = (from, to) => Math.round(scale * report.histogram.filter((bar) => bar.from >= from && bar.from < to).reduce((sum, bar) => sum + bar.keys, 0));
	if (!counted) return { text: 'nokeys', values: {} };
	if (!refused) {
		const near = between(0.8, Infinity);
		const peak = report.histogram.findLast((bar) => bar.keys > 0);
		return near ? { text: 'near', values: { keys: near, all } } : { text: 'quiet', values: { peak: peak.to || peak.from } };
	}
	const few = fewest(report.top);
	if (few && few.keys <= Math.max(3, 0.01 * all)) return { text: 'abuse', values: { ...few, all } };
	const over = between(1, Infinity);
	if (over >= 0.05 * all && between(1, 2) >= over / 2) return { text: 'tight', values: { keys: over, all, share: over / all } };
	return { text: 'spread', values: { keys: over, all, share: report.top[0]?.share ?? 0 } };
}

// fewest returns how many of the worst keys make most of the refusals, and what share; undefined: more than are known.
function fewest(top) {
	let share = 0;
	for (let i = 0; i < top.length; i++) {
		share += top[i].share;
		if (share >= most) return { keys: i + 1, share: Math.min(1, share) };
	}
	return undefined;
}

// withNumber replaces the number of units in the text of a limit: 100/1m, sliding_log 5/1h.
export const withNumber = (limit, number) => limit.replace(/\d+/, String(number));

export const numberOf = (limit) => Number(/\d+/.exec(limit)?.[0] ?? 0);

// withCandidate adds a candidate to the YAML of a rule, or replaces its candidate. Other lines stay as they are. A rule
// on one line, {name: …}, gets it before its end.
export function withCandidate(yaml, limits) {
	const value = `candidate: {limit: [${limits.map((one) => JSON.stringify(one)).join(', ')}]}`;
	const text = yaml.trimEnd();
	if (text.startsWith('{')) return text.replace(/,?\s*\}$/, `, ${value}}`) + '\n';
	const lines = [];
	let inside = false;
	for (const line of text.split('\n')) {
		if (/^\S/.test(line)) inside = /^candidate\s*:/.test(line);
		if (!inside) lines.push(line);
	}
	return [...lines, value, ''].join('\n');
}
