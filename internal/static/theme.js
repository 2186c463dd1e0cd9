// This script runs before the page is drawn: otherwise a dark page would flash white. It is no module, because modules
// wait for the document.
try {
	const theme = localStorage.getItem('weir.theme');
	if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch { /* the browser keeps nothing: prefers-color-scheme decides */ }
