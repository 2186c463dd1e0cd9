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

// keyText is a key for people, as Go's package keytext has it: 198.51.100.7 for "client.ip=12:198.51.100.7", and edge: a=1, b=2
// for "service=4:edge descriptor.a=1:1 descriptor.b=1:2". The whole key is in links. Characters that are not seen, or turn the
// direction of the text, are replaced.
export function keyText({ key, hidden }) {
	if (hidden) return '#' + key.slice(0, 12);
	const { parts, rest } = partsOf(key);
	if (!parts.length) return visible(sentText(key) ?? (isCut(key) ? key.replace(/^(?:descriptor\.([^=]+=)|[^=]+=)\d+:/, '$1') + '…' : key));
	return visible(textOf(parts)) + (rest ? '…' : '');
}

const blank = 32; // after which the window follows

const descriptor = 'descriptor.', entry = 'entry.';

// textOf has the names of descriptors, after the domain, and of other keys the values alone. The value of an entry has its name.
function textOf(parts) {
	if (!parts.some(({ name }) => name.startsWith(descriptor) || name.startsWith(entry))) return parts.map(({ value }) => value).join(' · ');
	const named = ({ name, value }) => name.startsWith(entry) ? value : `${name.startsWith(descriptor) ? name.slice(descriptor.length) : name}=${value}`;
	if (parts[0].name !== 'service') return parts.map(named).join(', ');
	return `${parts[0].value}: ${parts.slice(1).map(named).join(', ')}`;
}

// sentText is the text for the key of a limit that a descriptor of Envoy brought along: its domain, names and values with
// their lengths. null: the key is another one.
function sentText(key) {
	const texts = [];
	for (let rest = /^envoy /.test(key) ? encoder.encode(key.slice(6)) : []; rest.length && rest[0] !== blank;) {
		const one = measured(rest, /^(\d+):/);
		if (!one) return null;
		texts.push(one.value);
		rest = one.rest;
	}
	if (texts.length % 2 === 0) return null;
	return `${texts[0]}: ${texts.slice(1).flatMap((name, i) => i % 2 ? [] : [`${name}=${texts[i + 2]}`]).join(', ')}`;
}

// isCut tells a key of which only the beginning is kept. It cannot be looked up.
export const isCut = (key) => /^[^= ]+=\d+:/.test(key) && !keyValues(key);

export const visible = (text) => text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, '\uFFFD');

// keyValues are the values in a key like "client.ip=12:198.51.100.7 user=3:ann", in the order of its rule's components;
// null if the text is another one, or lacks a value.
export function keyValues(key) {
	const { parts, rest } = partsOf(key);
	return parts.length && !rest && parts.every(({ missing }) => !missing) ? parts.map(({ value }) => value) : null;
}

// partsOf are the components of a key that are whole, as {name, value, missing}; rest is true if the text goes on.
function partsOf(key) {
	const parts = [];
	let rest = encoder.encode(key);
	while (rest.length) {
		const lacks = /^ ?([^=]+)=-(?= |$)/.exec(decoder.decode(rest));
		const one = lacks ? { name: lacks[1], value: '-', missing: true, rest: rest.slice(encoder.encode(lacks[0]).length) } : measured(rest, /^ ?([^=]+)=(\d+):/);
		if (!one) break;
		parts.push(one);
		rest = one.rest;
	}
	return { parts, rest: rest.length > 0 };
}

// measured reads a value after its name, perhaps, and its length, which counts bytes.
function measured(rest, pattern) {
	const found = pattern.exec(decoder.decode(rest));
	if (!found) return null;
	const start = encoder.encode(found[0]).length, end = start + Number(found.at(-1));
	return end > rest.length ? null : { name: found[1], value: decoder.decode(rest.slice(start, end)), rest: rest.slice(end) };
}

const encoder = new TextEncoder(), decoder = new TextDecoder();
