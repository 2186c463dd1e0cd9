// What the reports of the telemetry API mean.

// outcomes of requests in the order in which they are stacked; field is their name in Counts.
export const outcomes = [
	{ name: 'passed', field: 'passed', always: true },
	{ name: 'refused', field: 'refused', always: true },
	{ name: 'denied', field: 'denied' },
	{ name: 'failed', field: 'failed' },
];

// shadowOutcomes are those of a rule that only observes.
export const shadowOutcomes = [
	{ name: 'passed', field: 'shadow_passed', always: true },
	{ name: 'shadow', field: 'shadow_refused', always: true },
];

// keyText is a key for people: 198.51.100.7 for "client.ip=12:198.51.100.7". The whole key is in links. Characters that
// are not seen, or turn the direction of the text, are replaced.
export function keyText({ key, hidden }) {
	if (hidden) return '#' + key.slice(0, 12);
	if (isCut(key)) return visible(key.replace(/^[^=]+=\d+:/, '')) + '…';
	return visible(keyValues(key)?.join(' · ') ?? key);
}

// isCut tells a key of which only the beginning is kept. It cannot be looked up.
export const isCut = (key) => /^[^= ]+=\d+:/.test(key) && !keyValues(key);

export const visible = (text) => text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, '\uFFFD');

// keyValues are the values in a key like "client.ip=12:198.51.100.7 user=3:ann", in the order of its rule's components;
// null if the text is another one, or lacks a value. Lengths count bytes.
export function keyValues(key) {
	const values = [];
	for (let rest = encoder.encode(key); rest.length;) {
		const found = /^ ?[^=]+=(\d+):/.exec(decoder.decode(rest));
		if (!found) return null;
		const start = encoder.encode(found[0]).length, end = start + Number(found[1]);
		if (end > rest.length) return null;
		values.push(decoder.decode(rest.slice(start, end)));
		rest = rest.slice(end);
	}
	return values.length ? values : null;
}

const encoder = new TextEncoder(), decoder = new TextDecoder();
