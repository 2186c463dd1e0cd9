import { html, useEffect, useRef, useState } from './vendor/preact.js';
import { send } from './api.js';
import { sentence } from './components.js';
import { t } from './i18n.js';

// Login asks for a token, and calls done when there is a session.
export function Login({ ended, done }) {
	const field = useRef();
	const [state, set] = useState({});
	useEffect(() => {
		document.title = t('login.title') + ' · weir';
		field.current.focus();
	}, []);
	const submit = async (event) => {
		event.preventDefault();
		set({ busy: true });
		try {
			await send('POST', 'session', { body: { token: field.current.value.trim() } });
			set({});
			done();
		} catch (error) {
			set({ error: error.status === 401 ? t('login.wrong') : sentence(error) });
			field.current.select();
		}
	};
	return html`<main class="alone"><form class="panel login" onSubmit=${submit}>
		<h1><img src="/console/static/icon.svg" alt="" width="28" height="28" />weir</h1>
		${ended && !state.error && html`<p role="status">${t('login.ended')}</p>`}
		<label>${t('login.token')}<input ref=${field} type="password" name="token" autocomplete="current-password" required maxlength="2000" /></label>
		<p class="note">${t('login.text')}</p>
		${state.error && html`<p class="wrong" role="alert">${state.error}</p>`}
		<button class="primary" disabled=${state.busy}>${t('login.button')}</button></form></main>`;
}
