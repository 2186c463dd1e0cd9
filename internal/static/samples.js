// Samples are single decisions, as a table.
import { html } from './vendor/preact.js';
import { Badge, Empty, Table } from './components.js';
import { clockSeconds, duration, t, zone } from './i18n.js';
import { href } from './router.js';
import { isCut, keyText, visible } from './telemetry.js';
import { exactUnits } from './units.js';

const tones = { refused: 'bad', denied: 'bad', failed: 'bad' };

const reasons = ['no_rule', 'within_limits', 'allow_list', 'limit_exceeded', 'banned', 'deny_list', 'missing_key', 'store_failed', 'bad_input', 'canceled', 'repeated'];

export const reasonText = (reason) => reasons.includes(reason) ? t('reason.' + reason) : reason;

export function Samples({ list, empty }) {
	const columns = [
		{ title: `${t('chart.time')} (${zone()})`, cell: (one) => html`<time datetime=${one.at} title=${one.at}>${clockSeconds(one.at)}</time>` },
		{ title: t('sample.outcome'), cell: (one) => html`<${Badge} tone=${tones[one.outcome] ?? ''}>${t('outcome.' + one.outcome)}</${Badge}>` },
		{ name: 'key', title: t('nav.key'), cell: (one) => html`${keyLink(one)}${one.rule && html`<div class="narrow"><${RuleLink} rule=${one.rule} /></div>`}` },
		{ title: t('nav.rule'), wide: true, cell: (one) => one.rule && html`<${RuleLink} rule=${one.rule} />` },
		{ title: t('sample.reason'), wide: true, cell: (one) => html`${reasonText(one.reason)}${one.wait_ns > 0 && html` <span class="note">${t('sample.wait', { wait: duration(one.wait_ns) })}</span>`}` },
		{ name: 'key', title: t('sample.target'), wide: true, cell: target },
		{ title: t('sample.request'), wide: true, cell: (one) => one.request_id && html`<a class="mono" href=${href('key', '', { q: one.request_id })}>${one.request_id}</a>` },
		{ title: t('sample.cost'), wide: true, number: true, cell: (one) => exactUnits(one.cost, one.unit) },
		{ title: t('sample.weight'), wide: true, number: true, cell: (one) => one.weight > 1 ? t('sample.oneOf', { n: one.weight }) : t('sample.each') },
	];
	return html`<${Table} caption=${t('key.decisions')} rows=${list} id=${identity} columns=${columns} empty=${html`<${Empty} title=${empty} />`} />`;
}

// target is the method, the path and the client of a request.
export const target = (one) => html`<span class="mono">${visible([one.method, one.path].filter(Boolean).join(' '))}</span>${one.client && html`<div class="note">${clientOf(one)}</div>`}`;

const clientOf = (one) => one.hidden || one.client.startsWith('hashed:') ? one.client : html`<a class="mono" href=${href('key', '', { q: one.client })}>${one.client}</a>`;

const RuleLink = ({ rule }) => html`<a href=${href('rules', rule)}>${rule}</a>`;

// keyLink leads to what is known of a key. A digest, or the beginning of a key, cannot be looked up.
function keyLink(one) {
	if (!one.key) return null;
	if (one.hidden || isCut(one.key)) return html`<span class="mono">${keyText(one)}</span>`;
	return html`<a class="mono" href=${href('key', '', { q: one.key, rule: one.rule })}>${keyText(one)}</a>`;
}

// identity numbers samples, which have no name of their own.
const numbers = new WeakMap();
let count = 0;

function identity(sample) {
	if (!numbers.has(sample)) numbers.set(sample, ++count);
	return numbers.get(sample);
}
