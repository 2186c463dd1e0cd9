// The admin API, and how pages read it: usePolled for what moves, send for changes.
import { useCallback, useEffect, useRef, useState } from './vendor/preact.js';

const prefix = '/v1/admin/';

// A Problem is an error answer of the API (RFC 9457), or a status of 0 if there was no answer.
export class Problem extends Error {
	constructor(body) {
		super(body.detail || body.title);
		Object.assign(this, body);
	}
}

function pathWith(path, query) {
	const text = new URLSearchParams(Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== ''));
	return prefix + path + (text.size ? '?' + text : '');
}

async function problemOf(response) {
	const text = await response.text();
	try {
		return new Problem(JSON.parse(text));
	} catch {
		return new Problem({ status: response.status, title: response.statusText, detail: `${response.status} ${response.statusText}` });
	}
}

// send makes a request, and returns the document of its answer and its ETag; a Problem is thrown. body is an object,
// sent as JSON, a text, sent as YAML, or a form. etag is the revision that the user has read; '' means that the entry is new.
export async function send(method, path, { query, body, etag, signal } = {}) {
	const headers = {};
	const raw = typeof body === 'string' || body instanceof FormData;
	if (body !== undefined && !(body instanceof FormData)) headers['Content-Type'] = typeof body === 'string' ? 'application/yaml' : 'application/json';
	if (etag) headers['If-Match'] = etag;
	if (etag === '') headers['If-None-Match'] = '*';
	let response;
	try {
		response = await fetch(pathWith(path, query), {
			method, headers, signal, credentials: 'same-origin',
			body: body === undefined || raw ? body : JSON.stringify(body),
		});
	} catch (error) {
		if (error.name === 'AbortError') throw error;
		throw new Problem({ status: 0, title: String(error), late: error.name === 'TimeoutError' && patience / 1000 });
	}
	if (response.status === 401 && path !== 'session') dispatchEvent(new Event('weir:unauthorized'));
	if (!response.ok) throw await problemOf(response);
	const data = response.status === 204 ? null : await response.json();
	return { data, etag: response.headers.get('ETag') ?? '' };
}

const most = 60_000; // ms between attempts after errors
const patience = 10_000; // ms for an answer: then what is shown is marked as old

// usePolled reads a document now and every so many ms, and returns {data, etag, error, at, busy, reload}. data is the
// last document that was read, and at its time, also while error says why there is no newer one. Nothing is read while
// the tab is hidden. A null path reads nothing; every 0 reads once. A document of another path is never shown. With a
// body, the document is the answer to a POST.
export function usePolled(path, { query, body, every = 5000 } = {}) {
	const address = path === null ? null : pathWith(path, query) + (body ? ' ' + JSON.stringify(body) : '');
	const [state, set] = useState({ address, busy: true });
	const again = useRef(() => {});
	useEffect(() => {
		if (address === null) return undefined;
		let timer = 0, wait = every, stopped = false, running = null;
		const next = () => {
			clearTimeout(timer);
			if (!stopped && every && !document.hidden) timer = setTimeout(read, wait);
		};
		const read = async () => {
			running?.abort();
			const mine = running = new AbortController();
			set((old) => old.address === address ? { ...old, busy: true } : { address, busy: true });
			try {
				const answer = await send(body ? 'POST' : 'GET', path, { query, body, signal: AbortSignal.any([mine.signal, AbortSignal.timeout(patience)]) });
				wait = every;
				if (!stopped) set({ address, ...answer, at: new Date(), busy: false });
			} catch (error) {
				if (error.name === 'AbortError') return;
				wait = Math.min(2 * wait, most);
				if (!stopped) set((old) => ({ ...old, address, error, busy: false }));
			}
			next();
		};
		const shown = () => {
			if (document.hidden) clearTimeout(timer);
			else if (every) read();
		};
		again.current = read;
		document.addEventListener('visibilitychange', shown);
		read();
		return () => {
			stopped = true;
			clearTimeout(timer);
			running?.abort();
			document.removeEventListener('visibilitychange', shown);
		};
	}, [address, every]);
	const reload = useCallback(() => again.current(), []);
	return { ...(state.address === address ? state : { busy: true }), reload };
}
