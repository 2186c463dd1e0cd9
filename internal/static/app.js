// The frame of all pages: session, navigation, language, theme, shortcuts.
import { html, render, useCallback, useEffect, useErrorBoundary, useLayoutEffect, useRef, useState } from './vendor/preact.js';
import { send } from './api.js';
import { Dialog, Empty, Failure, Page, Session } from './components.js';
import { addTexts, keepLanguage, setLanguage, t } from './i18n.js';
import { follow, go, href, setParams, useRoute } from './router.js';
import { nextTheme, theme } from './settings.js';
import { Login } from './login.js';
import { Overview } from './pages/overview.js';
import { Rule } from './pages/rule.js';
import { Key } from './pages/key.js';
import { Requests } from './pages/requests.js';
import { Health } from './pages/health.js';
import { Changes } from './pages/changes.js';
import { Services } from './pages/services.js';
import changes from './texts/changes.js';
import frame from './texts/frame.js';
import health from './texts/health.js';
import key from './texts/key.js';
import overview from './texts/overview.js';
import requests from './texts/requests.js';
import rule from './texts/rule.js';
import samples from './texts/samples.js';
import services from './texts/services.js';
import units from './texts/units.js';

addTexts(frame, overview, rule, key, samples, health, changes, requests, services, units);

// pages are by the first segment of their path. Those with a letter are in the navigation; "g" and it go there.
const pages = {
	'': { name: 'overview', page: Overview, letter: 'o' },
	rules: { name: 'rule', page: Rule },
	key: { name: 'key', page: Key, letter: 'k' },
	requests: { name: 'requests', page: Requests, letter: 'r' },
	health: { name: 'health', page: Health, letter: 'h' },
	services: { name: 'services', page: Services, letter: 's' },
	changes: { name: 'changes', page: Changes, letter: 'c' },
};

const inNavigation = Object.entries(pages).filter(([, one]) => one.letter);

function App() {
	const route = useRoute();
	const [session, setSession] = useState(null);
	const [, redraw] = useState(0);
	const read = useCallback(async () => {
		try {
			setSession((await send('GET', 'session')).data);
		} catch (error) {
			setSession({ error });
		}
	}, []);
	useEffect(() => {
		read();
		const ended = () => setSession((old) => ({ ...old, login: true, ended: true }));
		addEventListener('weir:unauthorized', ended);
		return () => removeEventListener('weir:unauthorized', ended);
	}, []);
	const language = setLanguage(route.params.get('lang'));
	if (!session) return html`<p class="loading" role="status">${t('state.loading')}</p>`;
	if (session.error) return html`<main class="alone"><${Failure} error=${session.error} retry=${read} /></main>`;
	if (session.login) return html`<${Login} ended=${session.ended} done=${read} />`;
	return html`<${Session.Provider} value=${session}><${Frame} key=${language} route=${route} session=${session} language=${language}
		read=${read} redraw=${() => redraw((n) => n + 1)} /></${Session.Provider}>`;
}

function Frame({ route, session, language, read, redraw }) {
	const [help, setHelp] = useState(false);
	const search = useRef();
	const shown = pages[route.page];
	const switchLanguage = () => {
		const next = language === 'en' ? 'zh' : 'en';
		keepLanguage(next);
		setParams({ lang: next }, { replace: true });
	};
	const switchTheme = () => {
		nextTheme();
		redraw();
	};
	useShortcuts({
		'/': () => search.current.focus(), '?': () => setHelp(true), t: switchTheme, z: switchLanguage,
		...Object.fromEntries(inNavigation.map(([path, one]) => ['g' + one.letter, () => go(href(path))])),
	});
	const logout = async () => {
		await send('DELETE', 'session').catch(() => {});
		read();
	};
	const find = (event) => {
		event.preventDefault();
		go(href('key', '', { q: search.current.value.trim() }));
	};
	return html`<a class="skip" href="#title" onClick=${focusTitle}>${t('app.skip')}</a>
		<header class="top"><a class="brand" href=${href('')}><img src="/console/static/icon.svg" alt="" width="24" height="24" />weir</a>
			<nav aria-label=${t('app.nav')}>${inNavigation.map(([path, one]) =>
				html`<a href=${href(path)} aria-current=${path === route.page ? 'page' : null}>${t('nav.' + one.name)}</a>`)}</nav>
			<form class="search" role="search" onSubmit=${find}><input ref=${search} type="search" aria-label=${t('app.search')} placeholder=${t('app.search')} maxlength="512" />
				<button>${t('app.search.button')}</button></form>
			<div class="tools">${session.name && html`<span class="who">${session.name}</span>`}${!session.write && html`<span class="badge">${t('app.readonly')}</span>`}
				<button class="plain" onClick=${switchLanguage} lang=${language === 'en' ? 'zh-CN' : 'en'}>${t('app.language')}</button>
				<button class="plain" onClick=${switchTheme} aria-label=${t('app.theme.' + theme())} title=${t('app.theme.' + theme())}>${{ auto: '◐', light: '☀', dark: '☾' }[theme()]}</button>
				<button class="plain" onClick=${() => setHelp(true)} aria-label=${t('app.shortcuts')} title=${t('app.shortcuts')}>?</button>
				${session.logout && html`<button class="plain" onClick=${logout}>${t('app.logout')}</button>`}</div></header>
		<main><${Guarded} key=${route.page + '/' + route.name}>${shown ? html`<${shown.page} route=${route} />` : html`<${Missing} />`}</${Guarded}></main>
		${help && html`<${Help} close=${() => setHelp(false)} />`}`;
}

function focusTitle(event) {
	event.preventDefault();
	document.getElementById('title')?.focus();
}

// Guarded shows an error of a page in its place, so that the rest can be used.
function Guarded({ children }) {
	const [error, reset] = useErrorBoundary((one) => console.error(one));
	return error ? html`<${Page} title=${t('app.crashed')}><${Failure} error=${error} retry=${reset} /></${Page}>` : children;
}

function Missing() {
	return html`<${Page} title=${t('app.missing')}><${Empty} title=${location.pathname}>${t('app.missing.text')} <a href=${href('')}>${t('nav.overview')}</a></${Empty}></${Page}>`;
}

// useShortcuts calls a function for each key, or two keys in a row, outside of fields.
function useShortcuts(actions) {
	const latest = useRef();
	latest.current = actions;
	useLayoutEffect(() => {
		let before = '';
		const pressed = (event) => {
			if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, textarea, select, dialog')) return;
			const action = latest.current[before + event.key] ?? latest.current[event.key];
			before = event.key === 'g' ? 'g' : '';
			if (!action) return;
			event.preventDefault();
			before = '';
			action();
		};
		addEventListener('keydown', pressed);
		return () => removeEventListener('keydown', pressed);
	}, []);
}

function Help({ close }) {
	const list = [...inNavigation.map(([, one]) => [['g', one.letter], t('nav.' + one.name)]),
		[['/'], t('keys.search')], [['t'], t('keys.theme')], [['z'], t('keys.language')], [['←', '→'], t('keys.chart')], [['Esc'], t('keys.close')], [['?'], t('keys.help')]];
	return html`<${Dialog} title=${t('app.shortcuts')} close=${close}><dl class="shortcuts">${list.map(([keys, text]) =>
		html`<div><dt>${keys.map((key) => html`<kbd>${key}</kbd> `)}</dt><dd>${text}</dd></div>`)}</dl></${Dialog}>`;
}

follow();
const root = document.getElementById('app');
root.replaceChildren();
render(html`<${App} />`, root);
