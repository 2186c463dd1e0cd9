// Live shows sampled decisions as they happen.
import { html, useEffect, useRef, useState } from '../vendor/preact.js';
import { usePolled } from '../api.js';
import { Failure, Page, Panel } from '../components.js';
import { t } from '../i18n.js';
import { setParams } from '../router.js';
import { Samples } from '../samples.js';

const most = 200; // rows

const outcomes = ['passed', 'refused', 'denied', 'failed'];

export function Live({ route }) {
	const filter = {};
	for (const name of ['rule', 'key', 'outcome']) if (route.params.get(name)) filter[name] = route.params.get(name);
	return html`<${Page} title=${t('nav.live')} lead=${t('live.lead')} actions=${html`<${FilterForm} filter=${filter} />`}>
		<${Stream} key=${JSON.stringify(filter)} filter=${filter} /></${Page}>`;
}

// FilterForm changes the filter in the URL.
function FilterForm({ filter }) {
	const change = (name) => (event) => setParams({ [name]: event.target.value.trim() });
	const field = (name, label) => html`<input type="search" key=${name + filter[name]} defaultValue=${filter[name]} aria-label=${label} placeholder=${label} maxlength="512" onChange=${change(name)} />`;
	return html`<form class="actions" aria-label=${t('live.filter')} onSubmit=${(event) => event.preventDefault()}>${field('rule', t('nav.rule'))}${field('key', t('nav.key'))}
		<select aria-label=${t('live.outcome')} value=${filter.outcome ?? ''} onChange=${change('outcome')}><option value="">${t('live.outcome.all')}</option>
			${outcomes.map((one) => html`<option value=${one}>${t('outcome.' + one)}</option>`)}</select></form>`;
}

// Stream begins with the last decisions, and adds those that happen. While it is paused they wait, as many as a page
// shows.
function Stream({ filter }) {
	const [shown, show] = useState([]);
	const [waiting, setWaiting] = useState([]);
	const [paused, pause] = useState(false);
	const [state, setState] = useState({ dropped: 0 });
	const before = usePolled('telemetry/recent', { query: { ...filter, most }, every: 0 });
	const add = useRef();
	add.current = (list) => {
		const put = (old) => [...list.reverse(), ...old].slice(0, most);
		(paused ? setWaiting : show)(put);
	};
	useEffect(() => {
		if (before.data) show((old) => [...old, ...before.data.samples].slice(0, most));
	}, [before.data]);
	useEffect(() => listen(filter, (list) => add.current(list), (change) => setState((old) => ({ ...old, ...change(old) }))), []);
	const resume = () => {
		show((old) => [...waiting, ...old].slice(0, most));
		setWaiting([]);
		pause(false);
	};
	if (before.error) return html`<${Failure} error=${before.error} retry=${before.reload} />`;
	return html`<${Panel} title=${t('live.list')} note=${note(shown, state, before.busy)} actions=${html`<span class="note" role="status">${paused && t('live.paused', { n: waiting.length })}</span>
		<button aria-pressed=${paused} onClick=${paused ? resume : () => pause(true)}>${t(paused ? 'live.resume' : 'live.pause')}</button>`}>
		<${Samples} list=${shown} empty=${t('live.none')} /></${Panel}>`;
}

function note(shown, { open, dropped }) {
	const stands = shown.reduce((sum, one) => sum + one.weight, 0);
	const share = stands > 1.05 * shown.length ? t('live.share', { n: Math.round(10 * stands / shown.length) / 10 }) : t('live.every');
	return [t(open ? 'live.connected' : 'live.connecting'), shown.length > 0 && share, dropped > 0 && t('live.dropped', { n: dropped })].filter(Boolean).join(' · ');
}

// listen calls each with new samples, four times a second at most, and state with changes of the connection.
function listen(filter, each, state) {
	const source = new EventSource('/v1/admin/telemetry/live?' + new URLSearchParams(filter));
	let waiting = [];
	const timer = setInterval(() => {
		if (waiting.length) each(waiting.splice(0));
	}, 250);
	source.addEventListener('open', () => state(() => ({ open: true })));
	source.addEventListener('error', () => state(() => ({ open: false })));
	source.addEventListener('sample', (event) => {
		waiting.push(JSON.parse(event.data));
		if (waiting.length > most) waiting.shift();
	});
	source.addEventListener('state', (event) => state((old) => ({ dropped: old.dropped + JSON.parse(event.data).dropped })));
	return () => {
		clearInterval(timer);
		source.close();
	};
}
