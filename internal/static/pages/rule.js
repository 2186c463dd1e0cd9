// A rule: who is refused by it, its candidate, its text and history.
import { html, useEffect, useLayoutEffect, useState } from '../vendor/preact.js';
import { Countdown, Done, ruleChange } from '../actions.js';
import { send, usePolled } from '../api.js';
import { Badge, Changes, Empty, Mistakes, Page, Panel, Result, Share, Table, Tile, Tiles, sentence, useSession } from '../components.js';
import { Confirm } from '../confirm.js';
import { TimeChart } from '../charts.js';
import { Interval } from '../interval.js';
import { ago, compact, day, moment, number, percent, t } from '../i18n.js';
import { href, interval } from '../router.js';
import { load, save } from '../settings.js';
import { keyText } from '../telemetry.js';
import { unitName, unitText, unitsNumber, unitsText } from '../units.js';
import { verdict } from '../verdict.js';
import { Folded, Traffic, spentOf } from './overview.js';

export function Rule({ route }) {
	const name = route.name, path = encodeURIComponent(name);
	const { query, fixed } = interval(route.params);
	const every = fixed ? 0 : 5000;
	const report = usePolled(`telemetry/rules/${path}`, { query, every });
	const marks = usePolled('telemetry/marks', { query, every: every && 15_000 });
	const rule = usePolled(`rules/${path}`, { every: 15_000 });
	const [draft, setDraft] = useState(() => kept(name)?.draft ?? null); // the text of an edit, or null
	const [change, setChange] = useState(null);
	const changed = (made) => {
		setChange(made);
		rule.reload();
	};
	const ours = (marks.data?.marks ?? []).filter((mark) => !mark.rule || mark.rule === name);
	return html`<${Page} title=${name} lead=${html`<${Lead} rule=${rule.data} report=${report.data} />`} actions=${html`<${Interval} route=${route} shown=${report.data} />`}>
		${change && html`<${Done} change=${change} set=${changed} />`}
		${rule.data?.reverts && html`<${Trial} name=${name} rule=${rule} changed=${changed} />`}
		<${Result} of=${report}>${(data) => html`<${Figures} report=${data} />
			<${Panel} bare title=${t('overview.traffic')}><${Traffic} report=${data} marks=${ours} /></${Panel}>
			${data.units && html`<${Panel} bare title=${t('units.chart')}><${UnitsChart} report=${data} marks=${ours} /></${Panel}>`}
			${data.classes && html`<${Classes} report=${data} />`}
			<${Top} report=${data} />${data.units && html`<${Spenders} report=${data} />`}`}</${Result}>
		${rule.data?.in_force && (report.data?.candidate ?? /^candidate\s*:|[{,]\s*candidate\s*:/m.test(rule.data.yaml ?? '')) && html`<${Comparison} name=${name} rule=${rule} changed=${changed} />`}
		<${Text} name=${name} rule=${rule} draft=${draft} setDraft=${setDraft} changed=${changed} />
		<${History} name=${name} rule=${rule} changed=${changed} /></${Page}>`;
}

// kept is the edit of a rule that this browser keeps until it is saved or discarded: {draft, read}; null: there is none.
function kept(name) {
	try {
		return JSON.parse(load('draft.' + name));
	} catch {
		return null;
	}
}

// Trial says when a change reverts, and keeps it.
function Trial({ name, rule, changed }) {
	const { write, ledger } = useSession();
	const [asking, ask] = useState(false);
	const { reverts, who, why } = rule.data;
	return html`<section class="trial" role="status" aria-label=${t('rule.trial')}><p><b>${t('rule.trial.text', { at: moment(reverts), who })}</b> ${why}
		<span class="note"><${Countdown} until=${+new Date(reverts)} then=${t('rule.trial.over')} /></span></p>
		<button class="primary" disabled=${!write || !ledger} onClick=${() => ask(true)}>${t('rule.trial.keep')}</button>
		${asking && html`<${Confirm} title=${t('rule.trial.keep.title')} button=${t('rule.trial.keep').replace(/[.…]+$/, '')} close=${() => ask(false)}
			done=${({ data }) => changed({ text: t('rule.trial.kept', { rule: name }), revision: data.revision })}
			request=${{ method: 'POST', path: `rules/${encodeURIComponent(name)}/confirm`, etag: rule.etag }} />`}</section>`;
}

const trials = ['15m', '30m', '1h', '4h', '24h'];

function Lead({ rule, report }) {
	const limits = rule?.limit ?? report?.limits ?? [];
	return html`${(rule?.label || report?.label) && html`<b>${rule?.label ?? report.label}</b> · `}<span class="mono">${limits.join(', ')}</span>${report?.units?.name && ' ' + unitText(report.units)}
		${rule && html` · ${t('rule.from', { source: rule.from })}`} ${report?.mode === 'shadow' && html`<${Badge} tone="shadow">${t('overview.shadow')}</${Badge}>`}
		${report?.folded && html`<${Folded} />`}${rule && !rule.enabled && html`<${Badge} tone="bad">${t('rule.disabled')}</${Badge}>`} · ${t('rule.lead')}
		${rule?.description && html`<span class="note description">${rule.description}</span>`}
		${rule?.labels && html`<span class="note mono">${Object.entries(rule.labels).map(([name, value]) => `${name}=${value}`).join(', ')}</span>`}`;
}

function Figures({ report }) {
	const { passed, refused, shadow_passed: would = 0, shadow_refused: wouldNot = 0 } = report.counts;
	const shadow = report.mode === 'shadow';
	const count = shadow ? wouldNot : refused, total = shadow ? would + wouldNot : passed + refused;
	const worst = report.worst_key;
	return html`<${Tiles} label=${t('rule.figures')}>
		<${Tile} label=${t(shadow ? 'rule.wouldRefuse' : 'rule.refused')} value=${percent(total ? count / total : 0)} note=${t('rule.refused.note', { count: compact(count), total: compact(total) })} tone=${count > 0.1 * total ? 'bad' : ''} />
		<${Tile} label=${t('rule.keys')} value=${report.unwatched ? '–' : compact(report.distinct)} note=${t(report.unwatched ? 'rule.unwatched' : 'rule.keys.note')} />
		${report.units && html`<${Tile} label=${t('units.spent')} value=${unitsText(spentOf(report.counts), report.units)} note=${estimatesNote(report.counts)} />`}
		${report.units?.estimates && html`<${Tile} label=${t('units.reserved')} value=${unitsNumber(report.units.reserved, report.units)} note=${t('units.reserved.note')} />`}
		<${Tile} label=${t('rule.worst')} value=${worst ? percent(worst.share) : '–'} note=${worst && html`<a class="mono" href=${href('key', '', { q: worst.key, rule: report.name })}>${keyText(worst)}</a>`} />
	</${Tiles}>`;
}

// estimatesNote says how good the estimates are: what is reserved too much, others cannot use.
const estimatesNote = ({ estimated = 0, settled = 0 }) => settled > 0 && t('units.estimates', { factor: number(estimated / settled, 1) });

// UnitsChart is what was spent, beside what was reserved on average.
function UnitsChart({ report, marks }) {
	const { units, step_ns: ns, series } = report;
	const minutes = ns / 60e9;
	// seconds are those of a step that are over.
	const seconds = (point) => Math.max(1, Math.min(ns / 1e9, (Date.now() - new Date(point.at)) / 1000));
	const lines = [{ name: t('units.perMinute'), tone: 'passed', value: (point) => spentOf(point) / minutes }];
	if (units.estimates) lines.push({ name: t('units.reserved'), tone: 'shadow', value: (point) => (point.reserved_seconds ?? 0) / seconds(point) });
	return html`<${TimeChart} label=${t('units.chart')} unit=${unitName(units)} kind="lines" points=${series} from=${report.from} to=${report.to} step=${ns / 1e6}
		marks=${marks} series=${lines} format=${(value) => unitsNumber(value, units)} />`;
}

// Spenders are the keys with most units.
function Spenders({ report }) {
	const { units, counts, top } = report;
	const all = Math.max(1, spentOf(counts));
	const rows = top.filter((one) => one.units > 0).sort((a, b) => b.units - a.units).slice(0, shown);
	return html`<${Panel} title=${t('units.spenders')} note=${t('rule.keys.note')}>
		<${Table} caption=${t('units.spenders')} rows=${rows} id=${(one) => one.key} empty=${html`<${Empty} title=${t('units.spenders.none')} />`} columns=${[
		{ name: 'key', title: t('rule.top.key'), cell: (one) => html`<a class="mono" href=${href('key', '', { q: one.key, rule: report.name })} title=${one.hidden ? t('rule.top.hidden') : one.key}>${keyText(one)}</a>` },
		{ title: unitName(units), number: true, cell: (one) => unitsNumber(one.units, units) },
		{ title: t('units.each'), number: true, wide: true, cell: (one) => one.passed > 0 ? unitsNumber(one.units / one.passed, units) : '–' },
		{ title: t('units.share'), number: true, cell: (one) => html`<${Share} tone="passed" value=${Math.min(1, one.units / all)} />` }]} /></${Panel}>`;
}

// Classes are those of reserve, with what each leaves to others and how often it was refused.
function Classes({ report }) {
	const all = Math.max(1, report.classes.reduce((sum, one) => sum + one.refused, 0));
	return html`<${Panel} title=${t('rule.classes')} note=${t('rule.classes.note')}>
		<${Table} caption=${t('rule.classes')} rows=${report.classes} id=${(one) => one.name} columns=${[
		{ name: 'key', title: t('rule.classes.name'), cell: (one) => one.name },
		{ title: t('rule.classes.leaves'), number: true, cell: (one) => percent(one.leaves / 100) },
		{ title: t('outcome.refused'), number: true, cell: (one) => compact(one.refused) },
		{ title: t('rule.top.share'), number: true, cell: (one) => html`<${Share} tone="refused" value=${one.refused / all} />` }]} /></${Panel}>`;
}

const shown = 15; // keys; the reading uses all that the server sends

function Top({ report }) {
	const shadow = report.mode === 'shadow' ? 'shadow' : 'refused';
	const read = verdict(report);
	return html`<${Panel} title=${t('rule.top')}>
		${read.text && html`<p class="reading" data-reading=${read.text}>${t('rule.read.' + read.text, { n: read.keys, keys: number(read.keys), all: number(report.distinct), share: percent(read.share) })}</p>`}
		<${Table} caption=${t('rule.top')} rows=${report.top.slice(0, shown)} id=${(one) => one.key} empty=${html`<${Empty} title=${t(report.unwatched ? 'rule.unwatched' : 'rule.top.none')}>${report.unwatched && t('rule.unwatched.text')}</${Empty}>`} columns=${[
		{ name: 'key', title: t('rule.top.key'), cell: (one) => html`<a class="mono" href=${href('key', '', { q: one.key, rule: report.name })} title=${one.hidden ? t('rule.top.hidden') : one.key}>${keyText(one)}</a>` },
		{ title: t('outcome.passed'), number: true, cell: (one) => compact(one.passed) },
		{ title: t('outcome.refused'), number: true, cell: (one) => compact(one.refused) },
		{ title: t('rule.top.share'), number: true, cell: (one) => html`<${Share} tone=${shadow} value=${one.share} />` }]} /></${Panel}>`;
}

function Comparison({ name, rule, changed }) {
	const { write, ledger } = useSession();
	const [asking, ask] = useState(false);
	const compared = usePolled(`rules/${encodeURIComponent(name)}/compare`);
	const inLedger = rule.data.revision > 0;
	return html`<${Panel} title=${t('rule.compare')} note=${compared.data && t('rule.compare.note', { at: day(compared.data.since) })}
		actions=${html`<button disabled=${!write || !ledger || !inLedger} onClick=${() => ask(true)}>${t('rule.compare.promote')}…</button>`}>
		<${Result} of=${compared}>${(data) => {
			const total = data.both_grant + data.newly_refused + data.newly_granted + data.both_refuse;
			const share = (count) => percent(total ? count / total : 0);
			return html`<div class="columns"><table class="compare"><caption class="hidden">${t('rule.compare')}</caption><thead><tr><td></td><th scope="col" class="number">${t('rule.compare.live')}<div class="mono">${data.limit.join(', ')}</div></th>
				<th scope="col" class="number">${t('rule.compare.candidate')}<div class="mono">${data.candidate.join(', ')}</div></th></tr></thead><tbody>
				<tr><th scope="row">${t('outcome.passed')}</th><td class="number">${compact(data.both_grant + data.newly_refused)}</td><td class="number">${compact(data.both_grant + data.newly_granted)}</td></tr>
				<tr><th scope="row">${t('outcome.refused')}</th><td class="number">${compact(data.newly_granted + data.both_refuse)}</td><td class="number">${compact(data.newly_refused + data.both_refuse)}</td></tr>
				<tr><th scope="row">${t('overview.share')}</th><td class="number">${share(data.newly_granted + data.both_refuse)}</td><td class="number">${share(data.newly_refused + data.both_refuse)}</td></tr></tbody></table>
				<dl class="pairs">${[['both', data.both_grant], ['newlyRefused', data.newly_refused], ['newlyGranted', data.newly_granted], ['neither', data.both_refuse]].map(([key, count]) =>
					html`<div><dt>${t('rule.compare.' + key)}</dt><dd>${number(count)} <span class="note">${share(count)}</span></dd></div>`)}</dl></div>
				${[['refusedKeys', data.refused_keys], ['grantedKeys', data.granted_keys]].map(([key, list]) => list?.length > 0 && html`<h3>${t('rule.compare.' + key)}</h3>
					<${Table} caption=${t('rule.compare.' + key)} rows=${list.slice(0, 10)} id=${(one) => one.key} columns=${[
						{ name: 'key', title: t('rule.top.key'), cell: (one) => html`<a class="mono" href=${href('key', '', { q: one.key, rule: name })}>${keyText(one)}</a>` },
						{ title: t('rule.compare.count'), number: true, cell: (one) => number(one.count) + (one.over ? ` (−${number(one.over)})` : '') }]} />`)}`;
		}}</${Result}>
		${asking && html`<${Confirm} title=${t('rule.compare.promote.title')} button=${t('rule.compare.promote')} dry close=${() => ask(false)} done=${(answer) => changed(ruleChange(name, answer, rule.data.revision))}
			request=${{ method: 'POST', path: `rules/${encodeURIComponent(name)}/promote`, etag: rule.etag }} />`}</${Panel}>`;
}

// Text is the editor: the server checks each text, and says what it would change.
function Text({ name, rule, draft, setDraft, changed }) {
	const { write, ledger } = useSession();
	const [read, setRead] = useState(() => kept(name)?.read ?? {}); // what the edit began with: another revision since then is a conflict
	const [asking, ask] = useState(''); // save, enable, disable
	const [reverts, setReverts] = useState(''); // unless the change is confirmed in this time
	const begun = draft !== null;
	const text = begun ? draft : rule.data?.yaml ?? '';
	const checked = useChecked(name, begun && draft !== read.yaml ? draft : null);
	const conflict = begun && rule.data && rule.etag !== read.etag;
	useEffect(() => {
		if (!begun && rule.data) setRead({ yaml: rule.data.yaml, etag: rule.etag });
	}, [begun, rule.data]);
	useLayoutEffect(() => save('draft.' + name, begun && draft !== read.yaml ? JSON.stringify({ draft, read }) : null), [draft, read]);
	const path = `rules/${encodeURIComponent(name)}`;
	const done = (answer) => {
		setReverts('');
		setDraft(null);
		changed(ruleChange(name, answer, rule.data.revision, asking === 'enable' && rule.data.from !== 'ledger'));
	};
	const requests = {
		save: { method: 'PUT', path, query: { revert_after: reverts }, body: text, etag: read.etag ?? '' },
		enable: { method: 'POST', path: path + '/enable', etag: rule.etag ?? '' },
		disable: { method: 'POST', path: path + '/disable', etag: rule.etag ?? '' },
	};
	const editable = write && ledger;
	const toggle = rule.data?.enabled ? 'disable' : 'enable';
	return html`<div id="rule-text"><${Panel} title=${t('rule.text')} note=${rule.data?.revision && t('rule.text.revision', { revision: rule.data.revision, who: rule.data.who, at: moment(rule.data.when) })}
		actions=${rule.data && html`<button disabled=${!editable} onClick=${() => ask(toggle)}>${t('rule.' + toggle)}</button>`}>
		<${Result} of=${rule}>${(data) => html`
			${!write ? html`<p class="note">${t('rule.readonly')}</p>` : !ledger ? html`<p class="note">${t('rule.noledger')}</p>` : !data.revision && data.yaml && html`<p class="note">${t('rule.text.elsewhere', { source: data.from })}</p>`}
			${!data.yaml && html`<p class="note">${t('rule.text.none', { source: data.from })}</p>`}
			${(data.yaml || begun) && html`<div class="columns"><label>${t('rule.text.yaml')}<textarea name="yaml" spellcheck=${false} rows=${Math.min(24, Math.max(8, text.split('\n').length + 1))} readonly=${!editable}
				value=${text} onInput=${(event) => setDraft(event.target.value)}></textarea></label>
				<div aria-live="polite" class="effect"><h3>${t('rule.text.effect')}</h3><${Effect} checked=${checked} changed=${begun && draft !== read.yaml} />
				${begun && draft !== read.yaml && html`<p class="note">${t('rule.text.kept')}</p>`}
				${conflict && html`<p class="stale">${t('rule.text.conflict')} <button class="link" onClick=${() => setDraft(null)}>${t('rule.text.reload')}</button></p>`}
				${editable && html`<div class="buttons"><button class="primary" disabled=${!checked.changes?.length || conflict} onClick=${() => ask('save')}>${t('rule.text.save')}</button>
					<button disabled=${!begun} onClick=${() => setDraft(null)}>${t('rule.text.revert')}</button></div>`}</div></div>`}`}</${Result}>
		${asking === 'save' && html`<${Confirm} title=${t('rule.text.save.title')} button=${t('rule.text.save').replace(/[.…]+$/, '')} request=${requests.save} dry close=${() => ask('')} done=${done}>
			<div class="check"><label><input type="checkbox" name="trial" checked=${Boolean(reverts)} onChange=${({ target }) => setReverts(target.checked ? '30m' : '')} /> ${t('rule.trial.choose')}</label>
			<select name="revert_after" aria-label=${t('rule.trial.after')} value=${reverts || '30m'} disabled=${!reverts} onChange=${({ target }) => setReverts(target.value)}>${trials.map((one) => html`<option value=${one}>${one}</option>`)}</select></div></${Confirm}>`}
		${['enable', 'disable'].includes(asking) && html`<${Confirm} title=${t(`rule.${asking}.title`)} button=${t('rule.' + asking).replace(/[.…]+$/, '')} danger=${asking === 'disable'}
			request=${requests[asking]} close=${() => ask('')} done=${done}>${asking === 'disable' && html`<p>${t('rule.disable.text')}</p>`}</${Confirm}>`}</${Panel}></div>`;
}

// useChecked asks the server for the effect of a text, once its author pauses. null: there is nothing to check.
function useChecked(name, text) {
	const [state, set] = useState({});
	useEffect(() => {
		if (text === null) {
			set({});
			return undefined;
		}
		const controller = new AbortController();
		const timer = setTimeout(async () => {
			try {
				const { data } = await send('POST', 'diff', { query: { rule: name }, body: text, signal: controller.signal });
				set({ changes: data.changes });
			} catch (error) {
				if (error.name !== 'AbortError') set({ error });
			}
		}, 250);
		set({ busy: true });
		return () => {
			clearTimeout(timer);
			controller.abort();
		};
	}, [name, text]);
	return state;
}

function Effect({ checked, changed }) {
	if (!changed) return html`<p class="note">${t('rule.text.same')}</p>`;
	if (checked.error) return html`<div class="failure">${checked.error.mistakes ? html`<${Mistakes} list=${checked.error.mistakes} />` : html`<p>${sentence(checked.error)}</p>`}</div>`;
	if (!checked.changes) return html`<p class="note">${t('rule.text.checking')}</p>`;
	return html`<${Changes} list=${checked.changes} />`;
}

function History({ name, rule, changed }) {
	const { write, ledger } = useSession();
	const [to, setTo] = useState(null);
	const history = usePolled(ledger ? 'history' : null, { query: { name, most: 20 }, every: 15_000 });
	useEffect(() => history.reload(), [rule.data?.revision]);
	if (!ledger) return null;
	const path = `rules/${encodeURIComponent(name)}/rollback`;
	return html`<${Panel} title=${t('rule.history')}><${Result} of=${history}>${({ history: list }) => html`<${Table} caption=${t('rule.history')} rows=${list ?? []} id=${(one) => one.revision || 'before ' + one.when}
		empty=${html`<${Empty} title=${t('rule.history.none')} />`} columns=${[
			{ title: t('rule.history.revision'), number: true, cell: (one) => one.revision },
			{ title: t('rule.history.when'), cell: (one) => one.revision === 0 ? t('rule.history.before') : html`<time datetime=${one.when} title=${moment(one.when)}>${ago(one.when)}</time>` },
			{ title: t('rule.history.who'), wide: true, cell: (one) => one.who },
			{ name: 'key', title: t('rule.history.what'), cell: (one) => one.revision === 0 ? t('rule.history.original', { source: one.who }) : one.changes?.map((change) => change.text).join('; ') || one.what + (one.key ? ' ' + one.key : '') },
			{ name: 'key', title: t('rule.history.why'), wide: true, cell: (one) => one.why },
			{ title: '', number: true, cell: (one) => one.revision === (rule.data?.revision ?? 0) ? html`<${Badge}>${t('rule.history.now')}</${Badge}>` :
				one.yaml && html`<button disabled=${!write} onClick=${() => setTo(one)}>${t(one.revision ? 'rule.history.rollback' : 'rule.history.back')}</button>` }]} />`}</${Result}>
		${to && html`<${Confirm} title=${to.revision ? t('rule.history.rollback.title', { revision: to.revision }) : t('rule.history.back.title', { source: to.who })} button=${t(to.revision ? 'rule.history.rollback' : 'rule.history.back').replace(/[.…]+$/, '')} dry close=${() => setTo(null)}
			request=${{ method: 'POST', path, query: { to: to.revision }, etag: rule.etag ?? '' }} done=${(answer) => {
				changed(ruleChange(name, answer, rule.data?.revision, to.revision === 0));
				history.reload();
			}} />`}</${Panel}>`;
}
