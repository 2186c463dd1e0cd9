package engine

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"

	"github.com/weirproject/weir/internal/tally"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/internal/telemetry/alert"
)

// Alerts says which alerts are raised, and where they go besides the log.
type Alerts struct {
	Settings string // of alert.Parse; "": off
	Webhook  string // URL; "": none
	Format   string // of alert.Formats; "": json
	Language string // of alert.Languages; "": en
	Secret   string // signs messages; "": they are not signed
}

// checkAlerts checks the settings of alerts.
func (l *Setup) checkAlerts() (err error) {
	a := &l.Alerts
	a.Format, a.Language = cmp.Or(a.Format, alert.Formats[0]), cmp.Or(a.Language, alert.Languages[0])
	if a.Settings == "" {
		a.Settings = "off"
	}
	if l.alerting, err = alert.Parse(a.Settings); err != nil {
		return wrong("%s: %v", l.field("Alerts"), err)
	}
	switch {
	case !slices.Contains(alert.Formats, a.Format):
		return wrong("%s is %.80q; allowed: %s", l.field("AlertFormat"), a.Format, strings.Join(alert.Formats, ", "))
	case !slices.Contains(alert.Languages, a.Language):
		return wrong("%s is %.80q; allowed: %s", l.field("AlertLanguage"), a.Language,
			strings.Join(alert.Languages, ", "))
	case a.Webhook == "":
		return nil
	case a.Settings == "off":
		return wrong("there is a webhook for alerts, but %s is off; leave one of them out", l.field("Alerts"))
	}
	if err := alert.CheckURL(a.Webhook); err != nil {
		return wrong("%s: %v", l.field("AlertWebhook"), err)
	}
	return nil
}

// newAlerts makes what watches for alerts. Start begins when the history is there.
func (e *Engine) newAlerts() {
	if e.Alerts.Settings == "off" {
		return
	}
	c := alert.Config{Settings: e.alerting, Tell: e.tellAlert, Degraded: func() uint64 {
		total, _ := e.Metrics.Read(func(string, *tally.Rule) {})
		return total[tally.Degraded]
	}}
	if e.watcher != nil {
		c.Nodes = e.watcher
	}
	if a := &e.Alerts; a.Webhook != "" {
		e.webhook = alert.NewWebhook(alert.WebhookConfig{URL: a.Webhook, Format: a.Format, Language: a.Language,
			Secret: a.Secret, Node: e.NodeName(), Log: e.Log})
		const name, help = "weir_alert_messages_total", "Messages to the webhook for alerts, by result."
		e.Metrics.Count(name, help, func() int64 { sent, _ := e.webhook.Counts(); return sent }, "result", "sent")
		e.Metrics.Count(name, help, func() int64 { _, failed := e.webhook.Counts(); return failed }, "result", "failed")
	}
	e.alerts = alert.New(c)
	e.Metrics.Gauge("weir_alerts_firing", "Alerts that fire, on all nodes that share a Redis.",
		func() int64 { return int64(len(e.alerts.Firing())) })
}

// closeAlerts ends the watch.
func (e *Engine) closeAlerts() {
	if e.alerts != nil {
		e.alerts.Close()
	}
	if e.webhook != nil {
		e.webhook.Close()
	}
}

// FiringAlerts returns the alerts that fire, on all nodes that share a Redis.
func (e *Engine) FiringAlerts() []telemetry.Alert {
	if e.alerts == nil {
		return nil
	}
	return e.alerts.Firing()
}

// tellAlert tells of an alert that is raised or resolved.
func (e *Engine) tellAlert(a *telemetry.Alert) {
	kind, level, text := "alert", slog.LevelWarn, "alert: "+a.Text
	if !a.Resolved.IsZero() {
		kind, level, text = "resolved", slog.LevelInfo, "alert resolved: "+alert.ID(a)
	}
	e.Log.Log(context.Background(), level, text, "alert", alert.ID(a), "since", a.Since)
	e.Mark(telemetry.Mark{Kind: kind, Rule: a.Rule, Text: a.Name + ": " + a.Text})
	if e.webhook != nil {
		e.webhook.Send(a)
	}
}
