// The page that weir backtest writes: one file with its report.
import { html, render, useState } from './vendor/preact.js';
import { Page } from './components.js';
import { addTexts, dateTime, keepLanguage, number, setLanguage, showUTC, t, zoneName } from './i18n.js';
import { Report } from './report.js';
import { nextTheme, theme } from './settings.js';
import { visible } from './telemetry.js';
import frame from './texts/frame.js';
import report from './texts/report.js';

addTexts(frame, report);
showUTC();

function File({ report }) {
	const [wanted, want] = useState(null);
	const [, redraw] = useState(0);
	const language = setLanguage(wanted);
	const { log } = report;
	const switchLanguage = () => {
		const next = language === 'en' ? 'zh' : 'en';
		keepLanguage(next);
		want(next);
	};
	const switchTheme = () => {
		nextTheme();
		redraw((n) => n + 1);
	};
	const lead = log.requests ? t('report.lead.log', { requests: number(log.requests), clients: number(log.clients), from: dateTime(log.from), to: dateTime(log.to), zone: zoneName() }) : t('report.lead');
	const tools = html`<div class="tools"><button class="plain" onClick=${switchLanguage} lang=${language === 'en' ? 'zh-CN' : 'en'}>${t('app.language')}</button>
		<button class="plain" onClick=${switchTheme} aria-label=${t('app.theme.' + theme())} title=${t('app.theme.' + theme())}>${{ auto: '◐', light: '☀', dark: '☾' }[theme()]}</button></div>`;
	return html`<main key=${language}><${Page} title=${t('report.title', { rules: visible(report.rules) })} lead=${lead} actions=${tools}><${Report} report=${report} /></${Page}></main>`;
}

const root = document.getElementById('app');
root.replaceChildren();
render(html`<${File} report=${JSON.parse(document.getElementById('report').textContent)} />`, root);
