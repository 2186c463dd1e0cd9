import { html } from '../vendor/preact.js';
import { Empty, Page } from '../components.js';
import { t } from '../i18n.js';

export function Changes() {
	return html`<${Page} title=${t('nav.changes')}><${Empty} title=${t('state.empty')} /></${Page}>`;
}
