// A key: which rules limit it, what it has left, who made an exception for it, and what can be done.
import { html, useState } from '../vendor/preact.js';
import { Countdown, Done, EndDialog, ExceptionDialog, LiftDialog, ResetDialog, exceptionColumns, scopes, valuesOf } from '../actions.js';
import { usePolled } from '../api.js';
import { Sparkline } from '../charts.js';
import { Badge, Empty, Page, Panel, Result, Table, useSession } from '../components.js';
import { number, t } from '../i18n.js';
import { go, href } from '../router.js';
import { Samples } from '../samples.js';
import { keyText } from '../telemetry.js';
import { exactUnits, unitsText } from '../units.js';
import { spentOf } from './overview.js';

export function Key({ route }) {
	const q = route.params.get('q') ?? '';
	return html`<${Page} title=${t('nav.key')} lead=${t('key.lead')}>
		<form class="lookup" role="search" aria-label=${t('nav.key')} onSubmit=${(event) => {
			event.preventDefault();
			go(href('key', '', { q: event.target.elements.q.value.trim() }));
		}}><input key=${q} name="q" type="search" defaultValue=${q} maxlength="512" required aria-label=${t('app.search')} placeholder=${t('app.search')} /><button class="primary">${t('app.search.button')}</button></form>
		${q ? html`<${One} key=${q} q=${q} rule=${route.params.get('rule')} />` : html`<${All} />`}</${Page}>`;
}

// One is what is known of one key.
function One({ q, rule }) {
	const result = usePolled('explain', { body: { text: q }, every: 2000 });
	const [dialog, open] = useState(null);
	const [change, setChange] = useState(null);
	const done = (made) => {
		setChange(made);
		result.reload();
	};
	const close = () => open(null);
	return html`${change && html`<${Done} change=${change} set=${done} />`}
		<${Result} of=${result}>${(data) => html`<${Verdict} q=${q} data=${data} at=${result.at} first=${rule} open=${open} />
			${data.problems?.map((one) => html`<p class="stale" role="status">${one}</p>`)}
			<${Rules} data=${data} at=${result.at} first=${rule} open=${open} />
			${data.exceptions.length > 0 && html`<${Panel} title=${t('key.exceptions')}><${Table} caption=${t('key.exceptions')} rows=${data.exceptions} id=${(one) => one.id}
				columns=${exceptionColumns((exception) => open({ Kind: EndDialog, exception }))} /></${Panel}>`}
			<${Past} q=${q} />
			<${Panel} title=${t('key.decisions')} note=${t('key.decisions.note')}><${Samples} list=${data.samples} empty=${t('key.decisions.none')} /></${Panel}>
			${dialog && html`<${dialog.Kind} ...${dialog} rules=${data.rules} close=${close} done=${done} />`}`}</${Result}>`;
}

// Past is what the key did in the last 24 hours, under each rule, in the minutes in which it stood out.
function Past({ q }) {
	const result = usePolled('telemetry/key', { query: { key: q, from: '24h' }, every: 60_000 });
	if (!result.data?.rules.length) return null;
	const { from, to, step_ns: step, rules } = result.data;
	const series = [{ tone: 'passed', value: (point) => point.passed ?? 0 }, { tone: 'refused', value: (point) => point.refused ?? 0 }];
	return html`<${Panel} title=${t('key.past')} note=${t('key.past.note')}><${Table} caption=${t('key.past')} rows=${rules} id=${(one) => one.rule} columns=${[
		{ title: t('nav.rule'), cell: (one) => html`<a href=${href('rules', one.rule)}>${one.rule}</a>` },
		{ title: t('overview.trend'), cell: (one) => html`<${Sparkline} points=${one.series} from=${from} to=${to} step=${step / 1e6} series=${series} />` },
		{ title: t('outcome.passed'), number: true, cell: (one) => number(one.counts.passed) },
		{ title: t('outcome.refused'), number: true, cell: (one) => number(one.counts.refused) },
		...rules.some((one) => one.units) ? [{ title: t('units.spent'), number: true, cell: (one) => one.units && unitsText(spentOf(one.counts), one.units) }] : []]} /></${Panel}>`;
}

// waits is the time until a limit grants the next request, in seconds; Infinity: never.
const waits = (limit) => limit.retry_after ?? Infinity;

// used tells rules that have counted the key from those that only could.
const used = (rule) => rule.banned_for > 0 || rule.limits.some((one) => one.reset_after > 0 || waits(one) > 0);

const refuses = (rule) => rule.mode !== 'shadow' && (rule.degraded === 'deny' || rule.banned_for > 0 || rule.limits.some((one) => waits(one) > 0));

// isUnknown: neither the store nor this server says what the rule does now.
const isUnknown = (rule) => rule.degraded === 'local' && !rule.limits.length;

const wait = (rule) => Math.max(rule.banned_for ?? 0, ...rule.limits.map(waits));

// inUse is the rule that has least left for the key, of those that have counted it.
const inUse = (data) => data.rules.filter(used).sort((a, b) => left(a) - left(b))[0]?.rule;

const left = (rule) => Math.min(...rule.limits.map((one) => one.remaining / (Number(/\d+/.exec(one.limit)?.[0]) || 1)));

const kinds = [['override', 'key.do.override'], ['allow', 'key.do.allow'], ['block', 'key.do.block']];

// Verdict is the answer in a sentence, and what can be done for all rules.
function Verdict({ q, data, at, first, open }) {
	const { write, ledger } = useSession();
	const blocked = data.exceptions.find((one) => one.kind === 'block' && !one.rule && one.in_force);
	const allowed = data.exceptions.find((one) => one.kind === 'allow' && !one.rule && one.in_force);
	const refusing = data.rules.filter(refuses).sort((a, b) => wait(b) - wait(a))[0];
	const possible = (kind) => write && ledger && scopes(kind, data.rules).length > 0;
	return html`<section class="panel verdict ${blocked || refusing && !allowed ? 'bad' : ''}" aria-label=${t('key.verdict')}>
		<h2 class="mono">${keyText({ key: q })} <${Badge}>${t('key.what.' + data.what)}</${Badge}></h2>
		<p class="answer">${sentence(data, blocked, allowed, refusing, +at)}</p>
		${isUnseen(data) && html`<p class="note"><a href=${href('requests', '', { request_id: q })}>${t('key.search')}</a></p>`}
		${write && html`<div class="buttons">${kinds.filter(([kind]) => possible(kind)).map(([kind, text]) =>
			html`<button onClick=${() => open({ Kind: ExceptionDialog, kind, first: kind === 'override' && (first ?? refusing?.rule ?? inUse(data)) })}>${t(text)}</button>`)}
			${!ledger && html`<span class="note">${t('key.noLedger')}</span>`}</div>`}</section>`;
}

// isUnseen: no rule has counted the text as a key, which may be the ID of a request that another node decided, or long ago.
const isUnseen = (data) => data.what === 'key' && !data.exceptions.length && !data.samples.length && !data.rules.some((rule) => used(rule) || rule.degraded);

function sentence(data, blocked, allowed, refusing, at) {
	if (blocked) return t('key.isBlocked', { who: blocked.who, why: blocked.why ?? '', left: blocked.left });
	if (allowed) return t('key.isAllowed', { who: allowed.who, why: allowed.why ?? '', left: allowed.left });
	if (isUnseen(data)) return t('key.unseen');
	if (!data.rules.length) return t(data.what === 'request_id' ? 'key.noRule.request' : 'key.noRule');
	if (refusing?.degraded === 'deny') return t('key.store.deny', { rule: refusing.rule });
	if (!refusing) return t(data.rules.some(isUnknown) ? 'key.unknown' : data.rules.some((rule) => rule.degraded) ? 'key.store.passes' : 'key.passes');
	const next = wait(refusing);
	if (next === Infinity) return t('key.never', { rule: refusing.rule });
	return html`${refusing.degraded && t('key.store') + ' '}${t(refusing.banned_for > 0 ? 'key.isBanned' : 'key.isRefused', { rule: refusing.rule })} <b><${Countdown} until=${at + 1000 * next} then=${t('key.now')} /></b>`;
}

// Rules are those that limit the key. Those that have not counted it yet are folded.
function Rules({ data, at, first, open }) {
	if (!data.rules.length) return null;
	const shown = data.rules.filter((rule) => used(rule) || rule.skipped || rule.rule === first);
	const others = data.rules.filter((rule) => !shown.includes(rule));
	const columns = ruleColumns(+at, data.exceptions, open);
	const table = (rows) => html`<${Table} caption=${t('key.rules')} columns=${columns} rows=${rows} id=${(rule) => rule.rule} />`;
	return html`<${Panel} title=${t('key.rules')} note=${t('key.rules.note')}>
		${shown.length > 0 ? table(shown) : html`<${Empty} title=${t('key.unused')} />`}
		${others.length > 0 && html`<details open=${!shown.length}><summary>${t('key.others', { n: others.length })}</summary>${table(others)}</details>`}
		${data.more > 0 && html`<p class="note">${t('key.more', { n: data.more })}</p>`}</${Panel}>`;
}

function ruleColumns(at, exceptions, open) {
	const { write, ledger } = useSession();
	const actions = (rule) => html`<span class="row-actions">${rule.banned_for > 0 && html`<button onClick=${() => open({ Kind: LiftDialog, rule })}>${t('key.do.lift')}</button>`}
		${ledger && valuesOf(rule) && html`<button onClick=${() => open({ Kind: ExceptionDialog, kind: 'override', first: rule.rule })}>${t('key.do.override')}</button>`}
		<button onClick=${() => open({ Kind: ResetDialog, rule })}>${t('key.do.reset')}</button></span>`;
	const each = (rule, cell) => rule.limits.map((limit, i) => html`<div class=${i === rule.binding ? 'binding' : ''}>${cell(limit, i === rule.binding)}</div>`);
	return [
		{ name: 'key', title: t('nav.rule'), cell: (rule) => html`<a href=${href('rules', rule.rule)}>${rule.rule}</a> ${rule.mode === 'shadow' && html`<${Badge} tone="shadow">${t('overview.shadow')}</${Badge}>`}
			${rule.banned_for > 0 && html`<${Badge} tone="bad">${t('key.banned')}</${Badge}>`}${exceptions.filter((one) => one.rule === rule.rule).map((one) => html` <${Badge}>${t('mark.' + one.kind)}</${Badge}>`)}
			<div class="note">${[rule.label, rule.components.join(', '), rule.degraded ? t('key.store.' + rule.degraded + '.note') : rule.skipped].filter(Boolean).join(' · ')}</div>${write && html`<div class="narrow">${actions(rule)}</div>`}` },
		{ title: t('key.limit'), cell: (rule) => each(rule, (limit, binding) => html`<span class="mono code">${limit.limit}</span>${binding && rule.limits.length > 1 && html` <${Badge}>${t('key.binding')}</${Badge}>`}`) },
		{ title: t('key.remaining'), number: true, cell: (rule) => each(rule, (limit) => exactUnits(limit.remaining, rule.unit)) },
		{ title: t('key.next'), number: true, cell: (rule) => each(rule, (limit) => next(limit, rule, at)) },
		{ title: t('key.full'), number: true, wide: true, cell: (rule) => each(rule, (limit) => limit.reset_after > 0 ? html`<${Countdown} until=${at + 1000 * limit.reset_after} then=${t('key.now')} />` : '–') },
		...write ? [{ title: html`<span class="hidden">${t('key.actions')}</span>`, wide: true, number: true, cell: actions }] : [],
	];
}

function next(limit, rule, at) {
	const seconds = Math.max(waits(limit), rule.banned_for ?? 0);
	if (seconds === Infinity) return t('key.neverShort');
	if (seconds === 0) return t('key.now');
	return html`<b class="wrong"><${Countdown} until=${at + 1000 * seconds} then=${t('key.now')} /></b>`;
}

// All are the exceptions and bans in force, for those who have no key at hand.
function All() {
	const { write, ledger } = useSession();
	const exceptions = usePolled(ledger ? 'exceptions' : null, { every: 5000 });
	const bans = usePolled('bans', { every: 5000 });
	const [dialog, open] = useState(null);
	const [change, setChange] = useState(null);
	const done = (made) => {
		setChange(made);
		exceptions.reload();
		bans.reload();
	};
	const banColumns = [
		{ name: 'key', title: t('nav.key'), cell: (ban) => html`<a class="mono" href=${href('key', '', { q: ban.key, rule: ban.rule })}>${keyText(ban)}</a>` },
		{ title: t('nav.rule'), cell: (ban) => html`<a href=${href('rules', ban.rule)}>${ban.rule}</a>` },
		{ title: t('key.next'), number: true, cell: (ban) => html`<${Countdown} until=${+new Date(ban.until)} then=${t('key.now')} />` },
		...write ? [{ title: html`<span class="hidden">${t('key.actions')}</span>`, number: true, cell: (ban) => html`<button onClick=${() => open({ Kind: LiftDialog, rule: ban })}>${t('key.do.lift')}</button>` }] : [],
	];
	return html`${change && html`<${Done} change=${change} set=${done} />`}
		${ledger ? html`<${Panel} title=${t('key.exceptions.all')}><${Result} of=${exceptions}>${(data) => html`<${Table} caption=${t('key.exceptions.all')} rows=${data.exceptions ?? []} id=${(one) => one.id}
			columns=${exceptionColumns((exception) => open({ Kind: EndDialog, exception }))} empty=${html`<${Empty} title=${t('key.exceptions.none')} />`} />`}</${Result}></${Panel}>` : html`<p class="note">${t('key.noLedger')}</p>`}
		<${Panel} title=${t('key.bans')}><${Result} of=${bans}>${(data) => html`<${Table} caption=${t('key.bans')} rows=${data.bans ?? []} id=${(ban) => ban.rule + ' ' + ban.key} columns=${banColumns}
			empty=${html`<${Empty} title=${t('key.bans.none')} />`} />`}</${Result}></${Panel}>
		${dialog && html`<${dialog.Kind} ...${dialog} close=${() => open(null)} done=${done} />`}`;
}
