import { html } from '../vendor/preact.js';
import { Empty, Page } from '../components.js';
import { t } from '../i18n.js';

export function Rule() {
	return html`<${Page} title=${t('nav.rule')}><${Empty} title=${t('state.empty')} /></${Page}>`;
}
