// Changes: rules, exceptions, bans, alerts, degraded spells and starts of nodes on one time axis, and how to take back
// what operators did.
import { html, useState } from '../vendor/preact.js';
import { Done, EndDialog, ruleChange } from '../actions.js';
import { alertTitle } from '../alerts.js';
import { send, usePolled } from '../api.js';
import { markTone } from '../charts.js';
import { Badge, Changes as Differences, Choice, Empty, Failure, Page, Panel, Result, useSession } from '../components.js';
import { Confirm } from '../confirm.js';
import { Interval } from '../interval.js';
import { moment, t } from '../i18n.js';
import { href, interval } from '../router.js';
import { visible } from '../telemetry.js';
import { Traffic } from './overview.js';

const groups = { made: (mark) => markTone(mark) === 'change' && mark.kind !== 'start', incidents: (mark) => markTone(mark) !== 'change' || mark.kind === 'start' };

export function Changes({ route }) {
	const { query, fixed } = interval(route.params);
	const every = fixed ? 0 : 5000, group = route.params.get('kind') ?? '';
	const marks = usePolled('telemetry/marks', { query: { ...query, most: 1000 }, every });
	const overview = usePolled('telemetry/overview', { query: { ...query, most: 1 }, every });
	const [change, setChange] = useState(null);
	const [dialog, open] = useState(null);
	const done = (made) => {
		setChange(made);
		marks.reload();
	};
	const list = (marks.data?.marks ?? []).filter(groups[group] ?? (() => true));
	return html`<${Page} title=${t('nav.changes')} lead=${t('changes.lead')} actions=${html`<${Interval} route=${route} shown=${overview.data} />`}>
		${change && html`<${Done} change=${change} set=${done} />`}
		<${Panel} bare title=${t('overview.traffic')}><${Result} of=${overview}>${(data) => html`<${Traffic} report=${data} marks=${list} />`}</${Result}></${Panel}>
		<${Panel} title=${t('changes.list')} note=${t('changes.list.note')} actions=${html`<${Choice} label=${t('changes.kind')} value=${group}
			options=${[['', t('changes.all'), here(route, '')], ...Object.keys(groups).map((one) => [one, t('changes.' + one), here(route, one)])]} />`}>
			<${Result} of=${marks}>${() => list.length ? html`<ol class="events">${list.map((mark) => html`<${Mark} key=${[mark.at, mark.kind, mark.node, mark.rule, mark.text].join()} mark=${mark} open=${open} />`)}</ol>` :
				html`<${Empty} title=${t('changes.none')} />`}</${Result}></${Panel}>
		${dialog && html`<${dialog.Kind} ...${dialog} close=${() => open(null)} done=${done} />`}</${Page}>`;
}

const exceptions = ['override', 'block', 'allow'];

const here = (route, kind) => href('changes', '', { ...Object.fromEntries(route.params), kind });

// Mark is one line, which opens if there is more to know.
function Mark({ mark, open }) {
	const [expanded, expand] = useState(false);
	const line = html`<span class="event"><time datetime=${mark.at}>${moment(mark.at)}</time><${Badge} tone=${{ incident: 'bad', end: 'good' }[markTone(mark)] ?? ''}>${t('mark.' + mark.kind)}</${Badge}>
		${mark.rule && (mark.change ? html`<b>${mark.rule}</b>` : html`<a href=${href('rules', mark.rule)}>${mark.rule}</a>`)}<span>${textOf(mark)}</span>
		<span class="note">${[mark.actor && t('changes.by', { who: mark.actor }), mark.reason, mark.node].filter(Boolean).map(visible).join(' · ')}</span></span>`;
	if (!mark.change) return html`<li>${line}</li>`;
	return html`<li><details onToggle=${(event) => expand(event.target.open)}><summary>${line}</summary>${expanded && html`<${Change} mark=${mark} open=${open} />`}</details></li>`;
}

// textOf is the text of a mark; of an alert what it is about, before the server's words.
function textOf(mark) {
	const [name, ...rest] = mark.text.split(': '), title = ['alert', 'resolved'].includes(mark.kind) && alertTitle(name);
	return title ? html`${title} <span class="note" lang="en">${visible(rest.join(': '))}</span>` : visible(mark.text);
}

// Change is an entry of the ledger's history, with what can be taken back.
function Change({ mark, open }) {
	const byRule = !exceptions.includes(mark.kind); // the history has exceptions by their ID
	const history = usePolled('history', { query: { name: byRule ? mark.rule : '', most: 1000 }, every: 0 });
	return html`<${Result} of=${history}>${({ history: list }) => {
		const entry = list?.find((one) => String(one.revision) === mark.change);
		if (!entry) return html`<p class="note">${t('changes.gone')}</p>`;
		return html`<div class="change"><p class="note">${t('changes.revision', { n: entry.revision })} · ${entry.what} · ${mark.rule ? html`<a href=${href('rules', mark.rule)}>${entry.name}</a>` : entry.name}</p>
			${entry.changes.length > 0 && html`<${Differences} list=${entry.changes} />`}
			<${Text} before=${previous(entry, list)?.yaml ?? ''} after=${entry.yaml ?? ''} />
			<${Undo} entry=${entry} list=${list} open=${open} /></div>`;
	}}</${Result}>`;
}

const ofRule = (entry, list) => list.filter((one) => one.name === entry.name && !one.key && !one.exception);

function previous(entry, list) {
	const own = ofRule(entry, list);
	return own[own.indexOf(entry) + 1];
}

// Text shows the lines of a rule that were removed and added.
function Text({ before, after }) {
	if (!before && !after) return null;
	return html`<div class="lines mono" role="region" tabindex="0" aria-label=${t('changes.text')}>${difference(lines(before), lines(after)).map(([sign, line]) =>
		html`<div class=${{ '+': 'added', '-': 'removed' }[sign]}>${sign + ' ' + line}</div>`)}</div>`;
}

const lines = (text) => text ? text.trimEnd().split('\n') : [];

// difference of two lists of lines, by their longest common subsequence.
function difference(a, b) {
	const common = Array.from({ length: a.length + 1 }, () => Array(b.length + 1).fill(0));
	for (let i = a.length - 1; i >= 0; i--) {
		for (let j = b.length - 1; j >= 0; j--) common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
	}
	const list = [];
	for (let i = 0, j = 0; i < a.length || j < b.length;) {
		if (i < a.length && j < b.length && a[i] === b[j]) list.push([' ', a[i++], j++]);
		else if (j === b.length || i < a.length && common[i + 1][j] >= common[i][j + 1]) list.push(['-', a[i++]]);
		else list.push(['+', b[j++]]);
	}
	return list;
}

// Undo offers what takes an entry back.
function Undo({ entry, list, open }) {
	const { write, ledger } = useSession();
	const [error, setError] = useState(null);
	if (!write || !ledger || entry.key && entry.what !== 'ban') return null;
	const start = (make) => async () => {
		try {
			open(await make());
		} catch (error) {
			setError(error);
		}
	};
	const buttons = entry.exception ? [[t('key.end'), () => endOf(entry)]] : ruleButtons(entry, list);
	return html`<div class="buttons">${buttons.map(([text, make]) => html`<button onClick=${start(make)}>${text}</button>`)}</div>
		${error && (error.status === 404 && entry.exception ? html`<p class="note">${t('changes.ended')}</p>` : html`<${Failure} error=${error} />`)}`;
}

async function endOf(entry) {
	const { data } = await send('GET', 'exceptions/' + encodeURIComponent(entry.exception.id));
	return { Kind: EndDialog, exception: data };
}

// ruleButtons take a rule back to what it was before the entry, or to the entry itself if it was changed since.
function ruleButtons(entry, list) {
	const at = ofRule(entry, list).indexOf(entry), before = previous(entry, list);
	const back = before?.revision === 0 ? [t('changes.original', { source: before.who }), () => rollbackOf(entry.name, 0, before.who)] : before ? [t('changes.rollback', { n: before.revision }), () => rollbackOf(entry.name, before.revision)] :
		[t('changes.delete'), () => deletionOf(entry.name)];
	return at > 0 ? [[t('changes.restore'), () => rollbackOf(entry.name, entry.revision)], back] : [back];
}

const ruleOf = (name) => send('GET', 'rules/' + encodeURIComponent(name)).catch((error) => {
	if (error.status === 404) return { etag: '' };
	throw error;
});

async function rollbackOf(name, to, source) {
	const { etag, data } = await ruleOf(name);
	return { Kind: RuleDialog, name, before: data?.revision, gone: to === 0, title: source ? t('rule.history.back.title', { source }) : t('changes.rollback.title', { rule: name, n: to }), dry: true,
		request: { method: 'POST', path: `rules/${encodeURIComponent(name)}/rollback`, query: { to }, etag } };
}

async function deletionOf(name) {
	const { etag, data } = await ruleOf(name);
	return { Kind: RuleDialog, name, before: data?.revision, gone: true, title: t('changes.delete.title', { rule: name }), request: { method: 'DELETE', path: 'rules/' + encodeURIComponent(name), etag } };
}

function RuleDialog({ name, before, gone, title, dry, request, close, done }) {
	return html`<${Confirm} title=${title} button=${title} request=${request} dry=${dry} danger close=${close}
		done=${(answer) => done(ruleChange(name, answer, before, gone))} />`;
}
