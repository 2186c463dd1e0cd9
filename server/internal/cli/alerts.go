package cli

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirproject/weir/internal/telemetry/alert"
)

// addAlerts adds the flags of alerts.
func (f *serveFlags) addAlerts(flags *pflag.FlagSet) {
	a := &f.rules.Alerts
	flags.StringVar(&a.Settings, "alerts", "on",
		"alerts in the log and to the webhook: on, off, or comma-separated\n`SETTINGS` that differ from "+
			"reject_share=10%,degraded=on,window=1m,minimum=100,resolve=1m")
	flags.StringVar(&f.alertURLFile, "alert-webhook-file", "",
		"`FILE` with the URL that alerts are posted to (or WEIR_ALERT_WEBHOOK)")
	flags.StringVar(&f.alertSecretFile, "alert-secret-file", "",
		"`FILE` with the secret that signs them (or WEIR_ALERT_SECRET)")
	flags.StringVar(&a.Format, "alert-format", alert.Formats[0],
		"`FORMAT` of what is posted: "+strings.Join(alert.Formats, ", "))
	flags.StringVar(&a.Language, "alert-language", alert.Languages[0],
		"`LANGUAGE` of what is posted: "+strings.Join(alert.Languages, ", "))
}

// readAlertSecrets reads the URL of the webhook, which often has a token in it, and the secret.
func (f *serveFlags) readAlertSecrets(s *System, warn func(string)) (err error) {
	a := &f.rules.Alerts
	if a.Webhook, err = s.secret("alert-webhook-file", f.alertURLFile, warn); err != nil {
		return err
	}
	a.Secret, err = s.secret("alert-secret-file", f.alertSecretFile, warn)
	if err == nil && a.Secret != "" && a.Webhook == "" {
		return usagef("there is a secret for alerts and no webhook; give --alert-webhook-file or WEIR_ALERT_WEBHOOK")
	}
	return err
}
