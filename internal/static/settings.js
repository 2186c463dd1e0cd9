// What a browser keeps of one user: theme and language. A browser that keeps nothing works too.
export function load(name) {
	try {
		return localStorage.getItem('weir.' + name);
	} catch {
		return null;
	}
}

export function save(name, value) {
	try {
		if (value === null) localStorage.removeItem('weir.' + name);
		else localStorage.setItem('weir.' + name, value);
	} catch { /* it holds until the page is closed */ }
}

const themes = ['auto', 'light', 'dark'];

export const theme = () => document.documentElement.dataset.theme ?? 'auto';

// nextTheme switches from automatic to light, dark, and back.
export function nextTheme() {
	const next = themes[(themes.indexOf(theme()) + 1) % themes.length];
	if (next === 'auto') delete document.documentElement.dataset.theme;
	else document.documentElement.dataset.theme = next;
	save('theme', next === 'auto' ? null : next);
	return next;
}
