// How a rule's most refused keys are read: abuse, or perhaps a limit that is too tight.

const most = 0.9; // share of refusals that few keys make

// verdict returns {text, keys, share}: a text of the page of a rule, and the number of the worst keys that make a share of
// the refusals. It is
//
//	abuse   if at most 1 % of the keys, or 3, make 90 % of the refusals
//	spread  if keys were refused otherwise
//	quiet   if no request was refused
//
// The text of a rule without keys is empty.
export function verdict(report) {
	const refused = report.counts.refused + (report.counts.shadow_refused ?? 0);
	if (!report.distinct || report.unwatched) return { text: '' };
	if (!refused) return { text: 'quiet' };
	let share = 0;
	for (let i = 0; i < report.top.length && i < Math.max(3, 0.01 * report.distinct); i++) {
		share += report.top[i].share;
		if (share >= most) return { text: 'abuse', keys: i + 1, share: Math.min(1, share) };
	}
	return { text: 'spread', keys: report.top.length, share: report.top[0]?.share ?? 0 };
}
