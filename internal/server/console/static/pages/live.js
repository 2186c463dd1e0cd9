import { html } from '../vendor/preact.js';
import { Empty, Page } from '../components.js';
import { t } from '../i18n.js';

export function Live() {
	return html`<${Page} title=${t('nav.live')}><${Empty} title=${t('state.empty')} /></${Page}>`;
}
