package engine

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/internal/servermetrics"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/rules"
)

// settleAfter is how long rules must be in force before they are checked for warnings. The check
// costs more than reading the rules, so it is skipped while they change continuously.
const settleAfter = time.Second

// sources is the state of the sources, for the metrics.
func (e *Engine) sources() (list []servermetrics.Source) {
	for _, y := range e.manager.Status().Layers {
		good := y.Err == nil && y.LeftOut == 0
		list = append(list,
			servermetrics.Source{Name: y.Name, Up: !y.Down, Good: good,
				Rules: y.Rules, LeftOut: y.LeftOut, Loaded: y.Loaded})
	}
	return list
}

// maxDegraded is the most lines of /readyz per source, and maxDetail the most bytes of each.
const (
	maxDegraded = 3
	maxDetail   = 300
)

// degraded lists the failures of the sources, and that paths are counted together, for /readyz.
func (e *Engine) degraded() (list []string) {
	if why := e.pathsFull(); why != "" {
		list = append(list, why)
	}
	list = append(list, e.Pending()...)
	if now := e.manager.Status().RuleSet; now != nil {
		list = append(list, now.Unmet[:min(len(now.Unmet), maxDegraded)]...)
		if more := len(now.Unmet) - maxDegraded; more > 0 {
			list = append(list, fmt.Sprintf("overlay: and %d more", more))
		}
	}
	for _, y := range e.manager.Status().Layers {
		why := y.Err
		if why == nil && y.LeftOut > 0 {
			why = y.Warning
			list = append(list, fmt.Sprintf("%s: invalid rules that are not in force: %d", y.Name, y.LeftOut))
		}
		lines := Mistakes(why)
		for _, m := range lines[:min(len(lines), maxDegraded)] {
			list = append(list, fmt.Sprintf("%s: %.*s", y.Name, maxDetail, m.Message))
		}
		if more := len(lines) - maxDegraded; more > 0 {
			list = append(list, fmt.Sprintf("%s: and %d more", y.Name, more))
		}
	}
	return list
}

// swap puts rules in force in the layers, the gate and the metrics.
func (e *Engine) swap(set *rules.Set) error {
	use, err := e.prepared(set)
	if err != nil {
		return err
	}
	if e.stack != nil {
		e.stack.follow(set) // first, so that no request has new rules and old terms
	}
	if err := e.Gate.Swap(set); err != nil {
		return err
	}
	use()
	if e.watcher != nil {
		e.watcher.Rules(set)
	}
	e.Metrics.Rules(set, time.Now())
	return nil
}

// prepared is Engine.Prepare's result.
func (e *Engine) prepared(set *rules.Set) (use func(), err error) {
	if err := e.checkGeo(set); err != nil {
		return nil, err
	}
	if e.Prepare == nil {
		return func() {}, nil
	}
	return e.Prepare(set)
}

// maxNames is how many rules a log line lists by name.
const maxNames = 8

// onEvent handles an event of the sources: it logs it, and updates readiness and metrics.
func (e *Engine) onEvent(v ruleset.Event) {
	e.logEvent(&v)
	status := e.manager.Status()
	missing := func(y ruleset.LayerStatus) bool { return y.Loaded.IsZero() && y.Name != e.optional }
	if !e.complete && !slices.ContainsFunc(status.Layers, missing) {
		e.complete = true
		e.Metrics.Incomplete(false)
	}
	failing := status.Err() != nil || status.LeftOut() > 0
	switch {
	case failing:
		e.Metrics.RulesFailed()
	case e.failing && status.RuleSet != nil: // a failure may end without new rules
		e.Metrics.Rules(status.RuleSet.Set, status.RuleSet.Loaded)
	}
	e.failing = failing
	if e.watcher != nil && v.Kind == ruleset.InForce {
		e.watcher.changed()
	}
}

func (e *Engine) logEvent(v *ruleset.Event) {
	from := []any{"rules", v.Rules}
	if v.Layer != "" { // otherwise the merged rules of all
		from = []any{"source", v.Layer, "revision", v.Revision, "rules", v.Rules}
	}
	switch v.Kind {
	case ruleset.InForce:
		if e.loaded && len(v.Changes) > 0 { // at the start everything is a change
			from = append(from, "changes", ruleset.Summary(v.Changes), "what", ruleset.Details(v.Changes))
			e.markRules(v)
		}
		e.loaded = true
		e.Log.Info("rules in force", from...)
		if note := CountIfNote(e.Gate.Rules()); note != "" {
			e.Log.Info("rules: " + note)
		}
		e.settleSoon()
		e.noteSettings()
	case ruleset.Refused:
		e.Log.Error("rules are invalid: the last valid rules stay in force",
			append(from, "mistakes", len(Mistakes(v.Err)))...)
		e.logMistakes(slog.LevelError, v.Layer, v.Err)
	case ruleset.Down:
		e.Log.Warn("rules cannot be read: the last valid rules stay in force", append(from, "error", v.Err)...)
	case ruleset.Recovered:
		e.Log.Info("rules of the source are in force again", from...)
	case ruleset.Collided:
		for _, c := range v.Collisions[:min(len(v.Collisions), maxNames)] {
			e.Log.Warn("rules: " + c.String())
		}
		if more := len(v.Collisions) - maxNames; more > 0 {
			e.Log.Warn(fmt.Sprintf("rules: %d more override others", more))
		}
	case ruleset.Warned:
		e.logMistakes(slog.LevelWarn, v.Layer, v.Err)
	case ruleset.Ready:
		if err := e.notInForce(); err != nil {
			e.Log.Error("some rule sources are not in force yet: the server is not ready", "rules", v.Rules, "error",
				err)
		}
	}
}

// CountIfNote names the rules with count_if, and says which front ends count every request by them; "" if there are no
// such rules.
func CountIfNote(set *rules.Set) string {
	var names []string
	for _, rule := range set.Rules() {
		if rule.HasCountIf() {
			names = append(names, rule.Name())
		}
	}
	if more := len(names) - maxNames; more > 0 {
		names = append(names[:maxNames], fmt.Sprint(more, " more"))
	}
	if len(names) == 0 {
		return ""
	}
	return "count_if of " + strings.Join(names, ", ") + ": the gateway sees responses, and callers of /v1/settle " +
		"report them; forward-auth, ext_authz, Envoy's rate limit service, /v1/decide and RESP count every request " +
		"by these rules"
}

// markReverted records a change of the ledger that was not confirmed.
func (e *Engine) markReverted(rule string, revision int64, by ledger.Author) {
	e.Log.Info("rules: a change was taken back", "rule", rule, "revision", revision, "why", by.Why)
	e.Mark(telemetry.Mark{Kind: "rules", Rule: rule, Text: "revert", Actor: by.Who, Reason: by.Why,
		Change: fmt.Sprint(revision)})
}

// markRules records a change of rules. Those of the ledger are recorded where an operator made them.
func (e *Engine) markRules(v *ruleset.Event) {
	if v.Layer != LedgerLayer {
		e.Mark(telemetry.Mark{Kind: "rules", Text: v.Layer + ": " + ruleset.Details(v.Changes)})
	}
}

// logMistakes logs each mistake in the rules of a source with its place.
func (e *Engine) logMistakes(level slog.Level, source string, err error) {
	for _, m := range Mistakes(err) {
		e.Log.Log(context.Background(), level, "rules: "+m.Message, Place(&m, source)...)
	}
}

// notInForce returns the errors of the sources that readiness depends on.
func (e *Engine) notInForce() error {
	asked := &ruleset.Status{}
	for _, y := range e.manager.Status().Layers {
		if y.Name != e.optional {
			asked.Layers = append(asked.Layers, y)
		}
	}
	return asked.Err()
}

// noteSettings warns once of each change of a setting that only a start reads, and remembers it for the status.
func (e *Engine) noteSettings() {
	now := e.over(e.manager.Status().RuleSet.File.Server)
	if e.Changed != nil {
		e.Changed(&now)
	}
	was, values, pending := e.Pending(), now.Values(), []string{}
	for _, s := range rules.Settings() {
		began, will := strings.Join(e.began[s.Path], ","), strings.Join(values[s.Path], ",")
		if s.Live || began == will {
			continue
		}
		line := fmt.Sprintf("server.%s changed to %s: takes effect at the next start", s.Path, Masked(will))
		if pending = append(pending, line); !slices.Contains(was, line) {
			e.Log.Warn("server."+s.Path+" changed: takes effect at the next start", "is", Masked(began), "will_be",
				Masked(will))
		}
	}
	e.pending.Store(&pending)
}

// Pending are the changed settings that take effect at the next start.
func (e *Engine) Pending() []string {
	if list := e.pending.Load(); list != nil {
		return *list
	}
	return nil
}

// settleSoon completes a change of the rules after settleAfter: it checks a changed file for warnings, and calls
// Engine.Settled.
func (e *Engine) settleSoon() {
	if e.settler != nil {
		e.settler.Stop()
	}
	e.settler = time.AfterFunc(settleAfter, func() {
		e.lintChanged()
		if set := e.Gate.Rules(); e.Settled != nil && e.settled.Swap(set) != set { // exceptions leave the set as it is
			e.Settled(set)
		}
	})
}

// lintChanged checks the file for warnings if it is not the file that was checked last.
func (e *Engine) lintChanged() {
	p := e.primary
	revision := e.revision(p.Name)
	e.linting.Lock()
	defer e.linting.Unlock()
	if p.linted == "" || p.linted == revision {
		return
	}
	text, err := os.ReadFile(p.name)
	if err == nil && len(text) <= rules.MaxFile {
		e.lint(p.name, text)
		p.linted = revision
	}
}

// revision is the revision of a layer in force.
func (e *Engine) revision(layer string) string {
	for _, y := range e.manager.Status().Layers {
		if y.Name == layer {
			return y.Revision
		}
	}
	return ""
}

// lint logs the warnings of weir check about a file, except warnings that it logged before.
func (e *Engine) lint(name string, text []byte) {
	_, warnings, _ := rules.Lint(name, text, ListOptions(name)...)
	var warned []string
	for i := range warnings {
		w := &warnings[i]
		if warned = append(warned, w.Message); !slices.Contains(e.warned, w.Message) {
			e.Log.Warn("rules: "+w.Message, "at", fmt.Sprintf("%s:%d:%d", w.File, w.Line, w.Column))
		}
	}
	e.warned = warned
}
