package engine

import (
	"context"
	"log/slog"

	"github.com/weirproject/weir/internal/tally"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/internal/telemetry/alert"
)

// checkAlerts checks the settings of alerts.
func (e *Engine) checkAlerts() (err error) {
	if e.alerting, err = alert.Parse(e.Alerts); err != nil {
		return wrong("server.alerts: %v", err)
	}
	switch {
	case e.Webhook == "" && e.AlertSecret != "":
		return wrong("there is a secret for alerts and no webhook; give server.alert.webhook_file")
	case e.Webhook == "":
		return nil
	case e.Alerts == "off":
		return wrong("there is a webhook for alerts, but server.alerts is off; leave one of them out")
	}
	if err := alert.CheckURL(e.Webhook); err != nil {
		return wrong("server.alert.webhook_file: %v", err)
	}
	return nil
}

// newAlerts makes the watcher for alerts. It is started when the history exists.
func (e *Engine) newAlerts() {
	if e.Alerts == "off" {
		return
	}
	c := alert.Config{Settings: e.alerting, Tell: e.tellAlert, Degraded: func() uint64 {
		total, _ := e.Metrics.Read(func(string, *tally.Rule) {})
		return total[tally.Degraded]
	}}
	if e.watcher != nil {
		c.Nodes = e.watcher
	}
	if e.Webhook != "" {
		e.webhook = alert.NewWebhook(alert.WebhookConfig{URL: e.Webhook, Format: e.AlertFormat,
			Language: e.AlertLanguage, Secret: e.AlertSecret, Node: e.Node(), Log: e.Log})
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
