// What an operator can do about a key: override, block, allow, reset, lift, and undo; and on which nodes it is in force.
import { html, useEffect, useState } from './vendor/preact.js';
import { send, usePolled } from './api.js';
import { Badge, Dialog, Failure, useSession } from './components.js';
import { Confirm } from './confirm.js';
import { clockSeconds, t } from './i18n.js';
import { keyText, keyValues, visible } from './telemetry.js';

// valuesOf are the values of an explained rule's key, one for each component; null if they are not known.
export function valuesOf(rule) {
	const values = rule.values.length ? rule.values : keyValues(rule.key) ?? [];
	return values.length && values.length === rule.components.length ? values : null;
}

// scopes are what an exception can be about: a component's value under all rules, or the key of one rule.
export function scopes(kind, rules) {
	const list = [], seen = new Set();
	for (const rule of rules) {
		const values = valuesOf(rule);
		if (!values) continue;
		const by = rule.components[0].split(' ')[0];
		if (kind !== 'override' && values.length === 1 && !seen.has(by)) {
			seen.add(by);
			list.push({ name: t('key.scope.all', { component: by }), body: { by: by === 'client.ip' ? '' : by, values } });
		}
		list.push({ name: t('key.scope.rule', { rule: rule.rule }), rule, body: { rule: rule.rule, values } });
	}
	return list.sort((a, b) => Boolean(a.rule) - Boolean(b.rule));
}

const same = (a, b) => a.kind === b.kind && (a.rule ?? '') === (b.rule ?? '') && (a.by ?? '') === (b.by ?? '') &&
	JSON.stringify(a.values) === JSON.stringify(b.values);

const bodyOf = ({ kind, rule, by, values, limit }) => ({ kind, values, ...rule && { rule }, ...by && { by }, ...limit && { limit } });

const etagOf = (revision) => `"${revision}"`;

const durations = ['15m', '1h', '4h', '24h', '7d'];

// ExceptionDialog makes an override, block or allow. An exception of the same key is shown and replaced.
export function ExceptionDialog({ kind, rules, first, close, done }) {
	const list = scopes(kind, rules);
	// An override is of the rule that the user came from, or that is in use; otherwise nothing is chosen.
	const [chosen, choose] = useState(kind === 'override' && list.length > 1 ? list.findIndex((one) => first && one.rule?.rule === first) :
		Math.max(0, list.findIndex((one) => first && one.rule?.rule === first)));
	const [form, setForm] = useState({ for: '1h', limit: '', why: '' });
	const [state, set] = useState({ busy: true });
	const scope = list[chosen] ?? { body: { values: [] } };
	useEffect(() => {
		send('GET', 'exceptions').then(({ data }) => set({ known: data.exceptions ?? [] }), (error) => set({ error }));
	}, []);
	const body = { kind, ...scope.body, ...kind === 'override' && { limit: form.limit.split(',').map((one) => one.trim()) } };
	const replaced = state.known?.find((one) => same(one, body));
	const submit = async (event) => {
		event.preventDefault();
		set((old) => ({ ...old, busy: true, error: null }));
		try {
			const { data } = await send('POST', 'exceptions', { body: { ...bodyOf(body), for: form.for, why: form.why }, etag: replaced ? etagOf(replaced.revision) : '' });
			done({ text: t('key.done.' + kind, { id: data.id }), revision: data.revision, made: data, replaced });
			close();
		} catch (error) {
			set((old) => ({ ...old, busy: false, error }));
		}
	};
	const field = (name) => ({ name, value: form[name], onInput: ({ target }) => setForm((old) => ({ ...old, [name]: target.value })), required: true });
	const now = scope.rule?.limits.map((one) => one.limit).join(', ');
	return html`<${Dialog} title=${t('key.title.' + kind)} close=${close}><form onSubmit=${submit}>
		<p>${t('key.about.' + kind)}</p>
		<label>${t('key.scope')}<select name="scope" value=${chosen} required onChange=${(event) => choose(Number(event.target.value))}>${chosen < 0 && html`<option value="-1" selected disabled>${t('key.choose')}</option>`}${list.map((one, i) =>
			html`<option value=${i}>${one.name}</option>`)}</select></label>
		<p>${t('key.values')} <b class="mono">${scope.rule ? keyText(scope.rule) : scope.body.values.join(' · ')}</b></p>
		${kind === 'override' && chosen >= 0 && html`<label>${t('key.limit')}<input ...${field('limit')} maxlength="200" placeholder=${now} /></label><p class="note">${t('key.limit.now', { limit: now })}</p>`}
		<label>${t('key.for')}<input ...${field('for')} list="durations" maxlength="20" /></label><datalist id="durations">${durations.map((one) => html`<option value=${one} />`)}</datalist>
		<label>${t('change.why')}<input ...${field('why')} maxlength="500" placeholder=${t('change.why.hint')} /></label>
		${replaced && html`<p class="note">${t('key.replaces', { id: replaced.id, who: replaced.who, left: replaced.left })} ${replaced.why}</p>`}
		${state.error && html`<${Failure} error=${state.error} />`}
		<div class="buttons"><button class="primary ${kind === 'block' ? 'danger' : ''}" disabled=${state.busy || !state.known || chosen < 0}>${t('key.title.' + kind)}</button>
		<button type="button" onClick=${close}>${t('dialog.cancel')}</button></div></form></${Dialog}>`;
}

// EndDialog ends an exception.
export function EndDialog({ exception, close, done }) {
	const request = { method: 'DELETE', path: 'exceptions/' + encodeURIComponent(exception.id), etag: etagOf(exception.revision) };
	return html`<${Confirm} title=${t('key.end.title', { id: exception.id })} button=${t('key.end')} request=${request} close=${close}
		done=${({ data }) => done({ text: t('key.done.end', { id: exception.id }), revision: data.revision, ended: exception })}>
		<p><b class="mono">${exception.values.join(' · ')}</b> ${exception.why}</p></${Confirm}>`;
}

// ResetDialog resets the counts of a key; LiftDialog ends its ban. Neither can be undone.
export const ResetDialog = ({ rule, close, done }) => html`<${KeyDialog} what="reset" path="keys/reset" rule=${rule} close=${close} done=${done} />`;
export const LiftDialog = ({ rule, close, done }) => html`<${KeyDialog} what="lift" path="bans/lift" rule=${rule} close=${close} done=${done} />`;

function KeyDialog({ what, path, rule, close, done }) {
	const request = { method: 'POST', path, query: { rule: rule.rule, key: rule.key } };
	return html`<${Confirm} title=${t('key.title.' + what)} button=${t('key.title.' + what)} request=${request} close=${close}
		done=${() => done({ text: t('key.done.' + what, { rule: rule.rule }) })}>
		<p>${t('key.about.' + what)}</p><p><b>${rule.rule}</b> <b class="mono">${keyText(rule)}</b></p></${Confirm}>`;
}

// undo takes a change back: what it made is ended, and what it replaced or ended is there again for the rest of its time.
async function undo({ made, replaced, ended, back }) {
	const before = replaced ?? ended, why = t('key.undo.why');
	if (back) {
		const { data } = await send(back.method, back.path, { query: { ...back.query, why }, etag: back.etag });
		return { text: t('key.done.undo'), revision: data.revision };
	}
	if (before) {
		const { data } = await send('POST', 'exceptions', { body: { ...bodyOf(before), for: before.left, why: before.why ?? why }, etag: made ? etagOf(made.revision) : '' });
		return { text: t('key.done.undo'), revision: data.revision };
	}
	const { data } = await send('DELETE', 'exceptions/' + encodeURIComponent(made.id), { query: { why }, etag: etagOf(made.revision) });
	return { text: t('key.done.undo'), revision: data.revision };
}

// ruleChange is what Done says of a change of a rule, and undoes: before is the rule's revision until then, 0 where it
// is from elsewhere. gone: the change took the rule out of the ledger.
export const ruleChange = (name, { data }, before = 0, gone = false) => ({ text: [t('changes.done', { rule: name }), ...(data.changes ?? []).map((one) => one.text)].join(' '),
	revision: data.revision, back: { method: 'POST', path: `rules/${encodeURIComponent(name)}/rollback`, query: { to: before }, etag: gone ? '' : etagOf(data.revision) } });

// Done says what was done, on which nodes it is in force, and undoes it. change is {text, revision, made, replaced, ended, back}.
export function Done({ change, set }) {
	const [error, setError] = useState(null);
	const back = async () => {
		try {
			set(await undo(change));
		} catch (error) {
			setError(error);
		}
	};
	return html`<section class="done" role="status" aria-label=${t('key.done')}><p><b>${change.text}</b>
		${change.revision && html` <${Applied} key=${change.revision} revision=${change.revision} />`}</p>
		<div class="buttons">${(change.made || change.ended || change.back) && html`<button onClick=${back}>${t('key.undo')}</button>`}
		<button class="plain" onClick=${() => set(null)} aria-label=${t('dialog.close')}>×</button></div>
		${error && html`<${Failure} error=${error} />`}</section>`;
}

// Applied shows which nodes have a revision of the ledger. It asks until all have it, for two minutes at most.
export function Applied({ revision }) {
	const [since] = useState(Date.now);
	const [every, setEvery] = useState(1000);
	const { data } = usePolled('telemetry/nodes', { every });
	const nodes = data?.nodes ?? [];
	const has = (node) => (node.ledger ?? 0) >= revision;
	useEffect(() => {
		if (data && (nodes.every(has) || Date.now() - since > 120_000)) setEvery(0);
	}, [data]);
	return html`<span class="nodes">${nodes.map((node) => html`<${Badge} key=${node.name} tone=${has(node) ? 'good' : ''}><span aria-hidden="true">${has(node) ? '●' : '○'}</span> ${node.name}
		<span class="hidden">${t(has(node) ? 'key.applied' : 'key.waiting')}</span></${Badge}>`)}</span>`;
}

// Exceptions are overrides, blocks and allows, which can be ended.
export function exceptionColumns(end) {
	const { write, ledger } = useSession();
	return [
		{ title: t('key.kind'), cell: (one) => html`<${Badge} tone=${one.kind === 'block' ? 'bad' : one.kind === 'allow' ? 'good' : ''}>${t('mark.' + one.kind)}</${Badge}>` },
		{ name: 'key', title: t('nav.key'), cell: (one) => html`<span class="mono">${one.by && one.by + ' '}${visible(one.values.join(' · '))}</span>
			<div class="narrow note">${[one.rule, one.limit?.join(', '), one.who, one.why].filter(Boolean).join(' · ')}</div>` },
		{ title: t('nav.rule'), wide: true, cell: (one) => one.rule ?? t('key.allRules') },
		{ title: t('key.limit'), wide: true, cell: (one) => html`<span class="mono code">${one.limit?.join(', ')}</span>` },
		{ title: t('key.until'), cell: (one) => html`<span title=${one.until}>${one.left}</span>` },
		{ title: t('key.author'), wide: true, cell: (one) => html`${one.who}<div class="note">${one.why}</div>` },
		{ title: t('key.state'), wide: true, cell: (one) => one.in_force ? t('key.applied') : html`<span class="wrong">${one.waiting}</span>` },
		...write && ledger ? [{ title: html`<span class="hidden">${t('key.actions')}</span>`, number: true, cell: (one) => html`<button onClick=${() => end(one)}>${t('key.end')}</button>` }] : [],
	];
}

// Countdown shows the seconds until a time, and at its end what follows.
export function Countdown({ until, then }) {
	const [now, set] = useState(Date.now);
	useEffect(() => {
		const timer = setInterval(() => set(Date.now()), 250);
		return () => clearInterval(timer);
	}, []);
	const left = Math.ceil((until - now) / 1000);
	return left > 0 ? html`<span role="timer" title=${clockSeconds(until)}>${seconds(left)}</span>` : then;
}

// seconds: 41 s, 3 min 20 s, 2 h 5 min.
function seconds(n) {
	if (n < 60) return t('key.seconds', { s: n });
	if (n < 3600) return t('key.minutes', { m: Math.floor(n / 60), s: n % 60 });
	return t('key.hours', { h: Math.floor(n / 3600), m: Math.floor(n % 3600 / 60) });
}
