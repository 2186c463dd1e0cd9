// Texts in both languages, and numbers and times as their readers write them.
import { load, save } from './settings.js';

// texts have a pair for each name: English, Chinese.
const texts = {};

// addTexts adds tables of texts: those of the pages that a program has.
export const addTexts = (...tables) => Object.assign(texts, ...tables);

export const languages = ['en', 'zh'];
const locales = { en: 'en', zh: 'zh-CN' };

let current = 'en';
let numbers = {};

// setLanguage chooses the language: that of the URL, else the one chosen before, else the browser's.
export function setLanguage(wanted) {
	const browser = navigator.languages.map((one) => one.slice(0, 2)).find((one) => languages.includes(one)) ?? 'en';
	current = [wanted, load('lang'), browser].find((one) => languages.includes(one));
	document.documentElement.lang = locales[current];
	numbers = {};
	return current;
}

// inLanguage is the text in the language of the page, of a pair that is not in the tables.
export const inLanguage = (...pair) => pair[languages.indexOf(current)];

export function keepLanguage(language) {
	save('lang', language);
}

// t returns a text. {name} in it is a value; of "one|several" in an English text, values.n chooses.
export function t(name, values = {}) {
	const pair = texts[name];
	if (!pair) {
		console.error(`there is no text ${name}`);
		return name;
	}
	let text = pair[languages.indexOf(current)];
	if (text.includes('|')) text = text.split('|')[values.n === 1 ? 0 : 1];
	return text.replace(/\{(\w+)\}/g, (_, key) => {
		const value = values[key];
		return typeof value === 'number' ? number(value) : String(value ?? '');
	});
}

function formatter(options) {
	const key = JSON.stringify(options);
	return numbers[key] ??= new Intl.NumberFormat(locales[current], options);
}

// number: 12,400.
export const number = (n, digits = 0) => formatter({ maximumFractionDigits: digits }).format(n);

// compact: 12.4K, 1.2万.
export const compact = (n) => Math.abs(n) < 10_000 ? number(n, n !== 0 && Math.abs(n) < 10 ? 2 : n < 100 ? 1 : 0) :
	formatter({ notation: 'compact', maximumSignificantDigits: 3 }).format(n);

// percent of a share: 0.034 is 3.4%. A share that is not 0 is never shown as 0%, nor one below 1 as 100%.
export function percent(share) {
	if (share > 0 && share < 0.0001) return '< ' + formatter({ style: 'percent', maximumFractionDigits: 2 }).format(0.0001);
	if (share < 1 && share > 0.999) return '> ' + formatter({ style: 'percent', maximumFractionDigits: 1 }).format(0.999);
	const digits = share < 0.01 ? 2 : share < 0.1 || share > 0.99 && share < 1 ? 1 : 0;
	return formatter({ style: 'percent', maximumFractionDigits: digits }).format(share);
}

const units = [['ns', 1], ['µs', 1e3], ['ms', 1e6], ['s', 1e9], ['min', 60e9], ['h', 3600e9], ['d', 86400e9]];

// duration of nanoseconds: 81 µs, 1.5 s, 2 h.
export function duration(ns) {
	const size = Math.abs(ns);
	if (size === 0) return '0 s';
	const [unit, scale] = units.findLast(([, scale]) => size >= scale) ?? units[0];
	const value = ns / scale;
	return `${number(value, Math.abs(value) < 10 ? 1 : 0)} ${unit}`;
}

let utc = false;

// showUTC makes all times UTC, as a file needs that people read in several zones.
export function showUTC() {
	utc = true;
}

// offset is the difference to UTC at a time, in ms.
export const offset = (time) => utc ? 0 : -60_000 * new Date(time).getTimezoneOffset();

// zone is the short name of the zone that times are in, such as GMT+8.
export const zone = () => new Intl.DateTimeFormat(locales[current], { timeZoneName: 'short', ...utc && { timeZone: 'UTC' } })
	.formatToParts().find((part) => part.type === 'timeZoneName').value;

export const zoneName = () => utc ? 'UTC' : Intl.DateTimeFormat().resolvedOptions().timeZone;

const dates = (options) => (value) => new Intl.DateTimeFormat(locales[current], { hourCycle: 'h23', ...utc && { timeZone: 'UTC' }, ...options })
	.format(new Date(value));

export const clock = dates({ hour: '2-digit', minute: '2-digit' });
export const clockSeconds = dates({ hour: '2-digit', minute: '2-digit', second: '2-digit' });
export const dateTime = dates({ year: 'numeric', month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit' });
// moment is a date and time with its zone.
export const moment = dates({ year: 'numeric', month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit', timeZoneName: 'short' });
export const date = dates({ month: '2-digit', day: '2-digit' });
export const day = dates({ month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit' });

// ago: 3 min ago. In the future: in 3 min.
export function ago(value) {
	const seconds = (new Date(value) - Date.now()) / 1000;
	const [unit, scale] = [['day', 86400], ['hour', 3600], ['minute', 60], ['second', 1]]
		.find(([, scale]) => Math.abs(seconds) >= scale) ?? ['second', 1];
	return new Intl.RelativeTimeFormat(locales[current], { numeric: 'always' }).format(Math.round(seconds / scale), unit);
}
