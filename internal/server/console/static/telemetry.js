// What the reports of the telemetry API mean.

// outcomes of requests in the order in which they are stacked; field is their name in Counts.
export const outcomes = [
	{ name: 'passed', field: 'passed', always: true },
	{ name: 'refused', field: 'refused', always: true },
	{ name: 'denied', field: 'denied' },
	{ name: 'failed', field: 'failed' },
];

// keyText is a key for people: the lengths before the values of several components are left out, so that
// "client.ip=12:198.51.100.7" is 198.51.100.7. The whole key is in links.
export function keyText({ key, hidden }) {
	if (hidden) return '#' + key.slice(0, 12);
	const parts = [];
	for (let rest = key; rest;) {
		const found = /^[\w.\-]+=(\d+):/.exec(rest);
		if (!found) return key;
		parts.push(rest.slice(found[0].length, found[0].length + Number(found[1])));
		rest = rest.slice(found[0].length + Number(found[1]));
	}
	return parts.join(' · ') || key;
}
