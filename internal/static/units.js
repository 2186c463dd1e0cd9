// Units as people read them: 12.4K tokens, 0.0025 USD.
import { compact, number, t } from './i18n.js';

// unitOf is the unit of a rule, as {name, scale}, by the text that rules have: tokens, or USD/1000000.
export function unitOf(text) {
	const [name, scale] = (text ?? '').split('/');
	return { name, scale: Number(scale ?? 1) };
}

// unitsNumber is a number of units without their name.
export function unitsNumber(n, { scale = 1 } = {}) {
	const value = n / (scale || 1);
	const size = Math.abs(value);
	if (scale <= 1 || size >= 10_000) return compact(value);
	return number(value, size >= 1 || size === 0 ? 2 : Math.min(9, 1 - Math.floor(Math.log10(size)) + 1));
}

// unitsText is a number of units with their name.
export const unitsText = (n, unit) => `${unitsNumber(n, unit)} ${unitName(unit)}`;

// unitText is a unit as rules write it, beside a limit that counts in it.
export const unitText = ({ name, scale }) => scale > 1 ? `${name}/${scale}` : name;

export const unitName = (unit) => unit?.name || t('units.none');

// exactUnits is unitsText without rounding, and without a name that is none.
export const exactUnits = (n, text) => {
	const { name, scale } = unitOf(text);
	return [number(n / scale, 9), name].filter(Boolean).join(' ');
};
