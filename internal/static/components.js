// The parts that pages are made of.
import { createContext, html, useContext, useEffect, useRef } from './vendor/preact.js';
import { clockSeconds, percent, t } from './i18n.js';

// Session is the context of what the user may do: {name, write, ledger, logout}.
export const Session = createContext({});
export const useSession = () => useContext(Session);

// Page is the frame of a page: its heading, what stands beside it, and the title of the tab.
export function Page({ title, lead, actions, children }) {
	useEffect(() => {
		document.title = title + ' · weir';
	}, [title]);
	return html`<div class="page-head"><div><h1 id="title" tabindex="-1">${title}</h1>${lead && html`<p class="lead">${lead}</p>`}</div>
		${actions && html`<div class="actions">${actions}</div>`}</div>${children}`;
}

// Panel is a part of a page, with a heading; bare: what is in it has one.
export function Panel({ title, label = title, note, actions, bare, children }) {
	return html`<section class="panel" aria-label=${label}>${!bare && html`<header><h2>${title}</h2>
		${note && html`<span class="note">${note}</span>`}${actions && html`<div class="actions">${actions}</div>`}</header>`}${children}</section>`;
}

// Result shows what usePolled returned: loading, an error with another try, or children(data), with "as of" if it is
// not the newest.
export function Result({ of: result, children }) {
	const { data, error, at, busy, reload } = result;
	if (!data && error) return html`<${Failure} error=${error} retry=${reload} />`;
	if (!data) return html`<p class="loading" role="status">${t('state.loading')}</p>`;
	return html`${error && html`<p class="stale" role="status">${t('state.stale', { at: clockSeconds(at) })} ${sentence(error)}
		<button class="link" onClick=${reload} disabled=${busy}>${t('state.retry')}</button></p>`}${children(data)}`;
}

// sentence is the text of an error for people.
export function sentence(error) {
	if (error.status === 0) return error.late ? t('error.late', { s: error.late }) : t('error.unreachable');
	return error.detail ?? error.message;
}

export function Failure({ error, retry }) {
	return html`<div class="failure" role="alert"><h2>${t('error.title')}</h2><p>${sentence(error)}</p>
		${error.mistakes && html`<${Mistakes} list=${error.mistakes} />`}
		${retry && html`<button onClick=${retry}>${t('state.retry')}</button>`}</div>`;
}

export function Mistakes({ list }) {
	return html`<ul class="mistakes">${list.map((one) => html`<li>${one.line && html`<b>${t('error.line', { line: one.line, column: one.column })}</b>`} ${one.message}</li>`)}</ul>`;
}

// Empty says that there is nothing, and what to do.
export function Empty({ title, children }) {
	return html`<div class="empty"><p><b>${title}</b></p>${children && html`<p>${children}</p>`}</div>`;
}

// Tile is one figure.
export function Tile({ label, value, note, tone = '' }) {
	return html`<div class="tile ${tone}"><dt>${label}</dt><dd><span class="figure">${value}</span>${note && html`<span class="note">${note}</span>`}</dd></div>`;
}

// Tiles are figures that screen readers announce when they are idle.
export function Tiles({ label, children }) {
	return html`<dl class="tiles" aria-label=${label} aria-live="polite">${children}</dl>`;
}

export function Badge({ tone = '', children }) {
	return html`<span class="badge ${tone}">${children}</span>`;
}

// Share is a share of requests as a number with a bar.
export function Share({ value, tone = 'refused' }) {
	return html`<span class="share"><span class="bar" aria-hidden="true"><span class=${tone} style=${{ width: `${Math.min(100, 100 * value)}%` }}></span></span><span>${percent(value)}</span></span>`;
}

// Table shows rows. A column is {name, title, cell(row), number, wide}: numbers stand at the right, wide columns are
// left out on narrow screens, and the first is the heading of its row. id(row) is unique.
export function Table({ caption, columns, rows, id, empty }) {
	if (!rows.length) return empty ?? html`<${Empty} title=${t('state.empty')} />`;
	const kind = (column) => [column.number && 'number', column.wide && 'wide', column.name].filter(Boolean).join(' ');
	return html`<div class="scroll" role="region" aria-label=${caption} tabindex="0"><table><caption class="hidden">${caption}</caption>
		<thead><tr>${columns.map((column) => html`<th scope="col" class=${kind(column)}>${column.title}</th>`)}</tr></thead>
		<tbody>${rows.map((row) => html`<tr key=${id(row)}>${columns.map((column, i) => i ? html`<td class=${kind(column)}>${column.cell(row)}</td>` :
			html`<th scope="row" class=${kind(column)}>${column.cell(row)}</th>`)}</tr>`)}</tbody></table></div>`;
}

// Choice is a row of links, one of which is chosen: options are [value, text, url].
export function Choice({ label, value, options }) {
	return html`<div class="choice" role="group" aria-label=${label}>${options.map(([option, text, url]) =>
		html`<a href=${url} aria-current=${option === value ? 'true' : null}>${text}</a>`)}</div>`;
}

// Dialog is modal; Escape and close() close it.
export function Dialog({ title, close, children }) {
	const element = useRef();
	useEffect(() => {
		if (!element.current.open) element.current.showModal();
	}, []);
	return html`<dialog ref=${element} onClose=${close} aria-labelledby="dialog-title"><form method="dialog">
		<button class="close" aria-label=${t('dialog.close')}>×</button></form><h2 id="dialog-title">${title}</h2>${children}</dialog>`;
}

// Changes are the effects of a write, as the server describes them.
export function Changes({ list }) {
	if (!list.length) return html`<p class="note">${t('change.none')}</p>`;
	return html`<ul class="changes">${list.map((one) => html`<li class=${one.counts === 'anew' ? 'anew' : ''}>${one.text}</li>`)}</ul>`;
}
