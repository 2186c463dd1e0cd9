import { html } from '../vendor/preact.js';
import { Empty, Page } from '../components.js';
import { t } from '../i18n.js';

export function Health() {
	return html`<${Page} title=${t('nav.health')}><${Empty} title=${t('state.empty')} /></${Page}>`;
}
