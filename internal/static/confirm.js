// The dialog in front of a write.
import { html, useEffect, useState } from './vendor/preact.js';
import { send } from './api.js';
import { Changes, Dialog, Failure } from './components.js';
import { t } from './i18n.js';

// Confirm asks for a reason before a write. request is {method, path, query, body, etag}; dry: the server shows the
// effect first. done(answer) is called afterwards; title and button say what happens.
export function Confirm({ title, button, request, dry, danger, close, done, children }) {
	const [why, setWhy] = useState('');
	const [state, set] = useState({});
	const { method, path, query, body, etag } = request;
	useEffect(() => {
		if (!dry) return;
		send(method, path, { query: { ...query, dry_run: 'true' }, body, etag })
			.then(({ data }) => set({ changes: data.changes }), (error) => set({ error }));
	}, []);
	const submit = async (event) => {
		event.preventDefault();
		set((old) => ({ ...old, busy: true, error: null }));
		try {
			const answer = await send(method, path, { query: { ...query, why }, body, etag });
			done?.(answer);
			close();
		} catch (error) {
			set((old) => ({ ...old, busy: false, error }));
		}
	};
	return html`<${Dialog} title=${title} close=${close}><form onSubmit=${submit}>
		${children}${state.changes && html`<${Changes} list=${state.changes} />`}
		<label>${t('change.why')}<input name="why" value=${why} maxlength="500" onInput=${(event) => setWhy(event.target.value)} placeholder=${t('change.why.hint')} /></label>
		${state.error && html`<${Failure} error=${state.error} />`}
		<div class="buttons"><button class="primary ${danger ? 'danger' : ''}" disabled=${state.busy || dry && !state.changes}>${button}</button>
		<button type="button" onClick=${close}>${t('dialog.cancel')}</button></div></form></${Dialog}>`;
}
