package engine

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/tally"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/internal/telemetry/alert"
	"github.com/weirproject/weir/rules"
)

// Alerts says which alerts are raised, and where they go besides the log.
type Alerts struct {
	Settings string // of alert.Parse; "": off
	Webhook  string // URL; "": none
	Format   string // of alert.Formats; "": json
	Language string // of alert.Languages; "": en
	Secret   string // signs messages; "": they are not signed
}

// alertsKey is the hash of the alerts of all nodes in Redis.
const alertsKey = "weir:alerts"

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
	case a.Format == "slack" && a.Secret != "":
		return wrong("%s is slack, whose messages are not signed; leave out the secret of alerts",
			l.field("AlertFormat"))
	}
	if err := alert.CheckURL(a.Webhook); err != nil {
		return wrong("%s: %v", l.field("AlertWebhook"), err)
	}
	return nil
}

// openAlerts begins to watch for alerts. The manager of rules and the gate are there.
func (e *Engine) openAlerts() {
	if e.Alerts.Settings == "off" {
		return
	}
	c := alert.Config{Settings: e.alerting, Read: e.alertReading, Tell: e.tellAlert, Log: e.Log}
	if e.Store == Memory {
		c.StoreSlow = 0
	} else {
		c.Shared = alert.NewShared(e.Store, alertsKey)
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
	e.alerts.Start()
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
	e.Mark(telemetry.Mark{Kind: kind, Rule: a.Rule, Key: a.Key, Text: a.Name + ": " + a.Text})
	if e.webhook != nil {
		e.webhook.Send(a)
	}
}

// alertReading is the state of this node.
func (e *Engine) alertReading(ctx context.Context) *alert.Reading {
	r := &alert.Reading{Store: e.Metrics.ReadStore(), Limits: e.sharedLimits(ctx), Keys: e.topKeys(ctx)}
	total, _ := e.Metrics.Read(func(string, *tally.Rule) {})
	r.Degraded = total[tally.Degraded]
	if e.stack != nil {
		r.Steps = e.stack.Stats().ClockSteps
	}
	r.Rules = func(each func(rule string, passed, refused uint64)) {
		e.Metrics.Read(func(name string, n *tally.Rule) {
			each(name, n.N[tally.Passed].Load(), n.N[tally.Refused].Load())
		})
	}
	for _, s := range e.sources() {
		if !s.Up || !s.Good {
			r.Sources = append(r.Sources, alert.Source{Name: s.Name, Down: !s.Up})
		}
	}
	return r
}

// mostTop is the number of rules, those with most refusals, whose most refused keys are read for alerts.
const mostTop = 20

// topKeys returns the most refused keys of the last minute on this node.
func (e *Engine) topKeys(ctx context.Context) (list []alert.TopKey) {
	if e.watcher == nil || e.alerting.NewTopKey == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	q := telemetry.Query{From: time.Now().Add(-time.Minute), Node: e.NodeName(), Most: mostTop}
	o, err := e.Telemetry().Overview(ctx, q)
	if err != nil {
		return nil // of other nodes; the next reading is soon
	}
	for i := range o.Rules {
		if key := o.Rules[i].WorstKey; key != nil && o.Rules[i].Mode != string(rules.Shadow) {
			list = append(list, alert.TopKey{Rule: o.Rules[i].Name, Key: key.Key, Refused: key.Refused,
				Share: key.Share})
		}
	}
	return list
}

const (
	// maxShared is the most limits whose use is read for alerts.
	maxShared = 50
	// readWithin bounds these reads.
	readWithin = time.Second
)

// sharedLimits reads the use of the limits that all requests of a rule share. A limit of each key is nearly used by
// one of them at any time.
func (e *Engine) sharedLimits(ctx context.Context) (list []alert.Use) {
	if e.alerting.NearLimit == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	for _, rule := range e.Gate.Rules().Rules() {
		if !rule.Enabled() || len(rule.Components()) > 0 || rule.Mode() == rules.Shadow || rule.EnforcePercent() < 100 {
			continue
		}
		key, limits, err := rule.Lookup(nil)
		if err != nil {
			continue
		}
		claims := e.Gate.ClaimsOf(rule, key, limits)
		decisions := make([]weir.Decision, len(claims))
		if len(list)+len(claims) > maxShared {
			return list
		}
		if _, err := e.Counts.Decide(ctx, claims, 0, decisions); err != nil {
			return list // the store does not answer, which is another alert
		}
		for i, limit := range limits {
			used := 1 - float64(decisions[i].Remaining)/float64(limit.Capacity())
			list = append(list, alert.Use{Rule: rule.Name(), Limit: limit.String(), Share: max(0, used)})
		}
	}
	return list
}
