// The URL holds the whole state of a page, so that it can be sent to somebody else:
//
//	/console?span=1h                        the overview
//	/console/rules/NAME?span=24h&lang=zh    a rule
//	/console/rules/NAME?from=T&until=T        the same, in a fixed interval
import { useEffect, useState } from './vendor/preact.js';

const base = '/console';

// Links to other pages keep these parameters.
const kept = ['lang', 'span', 'from', 'until', 'node'];

function decoded(text) {
	try {
		return decodeURIComponent(text);
	} catch {
		return text; // a malformed escape is shown as it is
	}
}

// parse returns the page of the current URL, the rest of its path, and its parameters.
export function parse() {
	const [page = '', ...rest] = location.pathname.slice(base.length).split('/').filter(Boolean).map(decoded);
	return { page, name: rest.join('/'), params: new URLSearchParams(location.search) };
}

// href returns the URL of a page. A parameter that is null, undefined or '' is left out.
export function href(page, name = '', params = {}) {
	const query = new URLSearchParams();
	const now = new URLSearchParams(location.search);
	for (const key of kept) if (now.has(key)) query.set(key, now.get(key));
	for (const [key, value] of Object.entries(params)) {
		query.delete(key);
		if (value !== null && value !== undefined && value !== '') query.set(key, value);
	}
	const path = [base, page, name].filter(Boolean).map((part, i) => i ? encodeURIComponent(part) : part).join('/');
	const text = query.toString();
	return text ? path + '?' + text : path;
}

// go shows another URL of the console. With replace, Back does not return to the present one.
export function go(url, { replace = false } = {}) {
	if (url === location.pathname + location.search) return;
	const moved = url.split('?')[0] !== location.pathname;
	history[replace ? 'replaceState' : 'pushState'](null, '', url);
	dispatchEvent(new Event('weir:moved'));
	if (moved) scrollTo(0, 0);
}

// setParams changes parameters of the page that is shown.
export function setParams(params, options) {
	const { page, name, params: now } = parse();
	go(href(page, name, { ...Object.fromEntries(now), ...params }), options);
}

// useRoute returns parse(), again at each move.
export function useRoute() {
	const [route, set] = useState(parse);
	useEffect(() => {
		const moved = () => set(parse());
		addEventListener('weir:moved', moved);
		addEventListener('popstate', moved);
		return () => {
			removeEventListener('weir:moved', moved);
			removeEventListener('popstate', moved);
		};
	}, []);
	return route;
}

// follow makes links of the console change the page without loading it again.
export function follow() {
	document.addEventListener('click', (event) => {
		const link = event.target.closest?.('a[href]');
		const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
		if (!link || !plain || event.defaultPrevented || link.target || link.origin !== location.origin) return;
		if (link.pathname !== base && !link.pathname.startsWith(base + '/')) return;
		if (link.hash) return;
		event.preventDefault();
		go(link.pathname + link.search);
	});
}

export const spans = ['15m', '1h', '6h', '24h'];

// interval returns the parameters from, until and node of the telemetry API; fixed: the interval does not move with time.
export function interval(params) {
	const query = {};
	for (const key of ['from', 'until', 'node']) if (params.get(key)) query[key] = params.get(key);
	const fixed = Boolean(query.from && query.until);
	if (!query.from) query.from = spans.includes(params.get('span')) ? params.get('span') : spans[0];
	return { query, fixed };
}
