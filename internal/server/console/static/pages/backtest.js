// Backtest: what rules would have done to the requests of a log, or, by the sample of keys, to those of the last day.
import { html, useEffect, useRef, useState } from '../vendor/preact.js';
import { send, usePolled } from '../api.js';
import { Curve, DataTable } from '../charts.js';
import { Empty, Failure, Page, Panel, Result, useSession } from '../components.js';
import { number, percent, t } from '../i18n.js';
import { href, setParams } from '../router.js';
import { Report } from '../report.js';
import { numberOf, withNumber } from '../verdict.js';

const mostBytes = 64 << 20; // of an upload, as the server has it

export function Backtest({ route }) {
	const rules = usePolled('rules', { every: 0 });
	const [report, setReport] = useState(null);
	const names = (rules.data?.rules ?? []).filter((one) => one.in_force).map((one) => one.name);
	return html`<${Page} title=${t('nav.backtest')} lead=${t('report.lead')}>
		<${Upload} names=${names} done=${setReport} />
		${report ? html`<section id="report" class="details" aria-label=${t('backtest.result')}><${Report} report=${report} /></section>` :
			html`<${Sampled} names=${names} chosen=${route.params.get('rule')} />`}</${Page}>`;
}

// Upload sends a log. Leaving the page, or the button, ends the backtest on the server.
function Upload({ names, done }) {
	const { write } = useSession();
	const form = useRef();
	const running = useRef(null);
	const [state, set] = useState({});
	useEffect(() => () => running.current?.abort(), []);
	const submit = async (event) => {
		event.preventDefault();
		const fields = new FormData(form.current);
		const log = fields.get('log');
		if (log.size > mostBytes) {
			set({ error: { detail: t('backtest.tooLarge', { size: number(log.size / 2 ** 20), most: number(mostBytes / 2 ** 20) }) } });
			return;
		}
		const body = new FormData();
		body.append('rules', fields.get('rules'));
		body.append('log', log);
		const query = Object.fromEntries(['log_format', 'sweep', 'propose', 'good'].map((name) => [name, fields.get(name).trim()]));
		running.current = new AbortController();
		set({ busy: true });
		done(null);
		try {
			const { data } = await send('POST', 'backtest', { query, body, signal: running.current.signal });
			set({});
			done(data);
		} catch (error) {
			set(error.name === 'AbortError' ? {} : { error });
		}
	};
	const field = (name, hint) => html`<label>${t('backtest.' + name)}<input name=${name} maxlength="500" placeholder=${hint} class="mono" /></label>`;
	return html`<${Panel} title=${t('backtest.upload')} note=${t('backtest.upload.note')}><form ref=${form} onSubmit=${submit}>
		<div class="columns"><div><label>${t('backtest.log')}<input type="file" name="log" required /></label>
			<label>${t('backtest.propose')}<select name="propose"><option value="">${t('backtest.propose.none')}</option><option value="all">${t('backtest.propose.all')}</option>
				${names.map((name) => html`<option value=${name}>${name}</option>`)}</select></label>
			${field('sweep', `${names[0] ?? 'login'}=5/1m..200/1m:12`)}${field('good', 'method=POST path=/login status=302')}${field('log_format', 'auto')}</div>
		<label>${t('backtest.rules')}<textarea name="rules" rows="13" spellcheck=${false} placeholder=${t('backtest.rules.hint')}></textarea></label></div>
		${state.error && html`<${Failure} error=${state.error} />`}
		<div class="buttons"><button class="primary" disabled=${!write || state.busy}>${t('backtest.run')}</button>
			${state.busy && html`<button type="button" onClick=${() => running.current.abort()}>${t('dialog.cancel')}</button><span role="status" class="note">${t('backtest.running')}</span>`}
			${!write && html`<span class="note">${t('rule.readonly')}</span>`}</div></form></${Panel}>`;
}

// Sampled is what other limits of a rule would have refused in the last day, by the telemetry.
function Sampled({ names, chosen }) {
	const name = names.includes(chosen) ? chosen : names[0];
	const path = name === undefined ? null : `telemetry/rules/${encodeURIComponent(name)}`;
	const result = usePolled(path, { query: { from: '24h' }, every: 0 });
	if (!name) return html`<${Panel} title=${t('backtest.sample')}><${Empty} title=${t('state.empty')} /></${Panel}>`;
	const choice = html`<select aria-label=${t('nav.rule')} value=${name} onChange=${(event) => setParams({ rule: event.target.value }, { replace: true })}>
		${names.map((one) => html`<option value=${one}>${one}</option>`)}</select>`;
	return html`<${Panel} title=${t('backtest.sample')} actions=${choice}><${Result} of=${result}>${(data) => {
		if (!data.what_if?.length) return html`<${Empty} title=${t('backtest.sample.none')}>${t('backtest.sample.none.text')}</${Empty}>`;
		const limit = data.limits[0];
		const series = [{ name: t('report.sweep.requests'), tone: 'refused', value: (one) => one.share },
			{ name: t('backtest.sample.keys'), tone: 'clients', value: (one) => data.distinct ? Math.min(1, one.keys / data.distinct) : 0 }];
		return html`<p class="note">${t('backtest.sample.note', { n: data.sampled, error: percent(data.error) })} <a href=${href('rules', name)}>${t('backtest.sample.rule')}</a></p>
			<${Curve} label=${t('report.sweep')} points=${data.what_if} x=${(one) => one.limit} name=${(one) => withNumber(limit, one.limit)} series=${series}
				lines=${[{ at: numberOf(limit), name: `${t('report.now')} ${limit}`, tone: 'limit' }]} />
			<${DataTable} caption=${t('report.sweep')} head=${[t('report.limit'), ...series.map((one) => one.name)]}
				rows=${() => data.what_if.map((one) => [withNumber(limit, one.limit), ...series.map((s) => percent(s.value(one)))])} />`;
	}}</${Result}></${Panel}>`;
}
