// Alerts in the language of the page, worded from their name and values: the server's text is for programs without one.
import { duration, number, percent, t } from './i18n.js';

const names = ['reject_share', 'degraded'];

// alertTitle is what an alert is about; "" for one that this page does not know.
export const alertTitle = (name) => names.includes(name) ? t('alert.title.' + name) : '';

// alertText is an alert as a sentence.
export function alertText(alert) {
	if (!names.includes(alert.name)) return alert.text;
	const [worst = '', ...others] = alert.rules ?? [], { name, value, limit } = alert;
	const text = t('alert.' + name, { rule: alert.rule || worst, share: percent(value), limit: percent(limit), total: number(alert.total ?? 0), n: value,
		window: duration(alert.window_ns ?? 0) });
	return text + (alert.count > 1 ? t('alert.more', { n: alert.count - 1, rules: others.join(t('alert.and')) }) : '') + (alert.alone ? t('alert.alone') : '');
}
