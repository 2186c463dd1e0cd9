package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/observe"
	"github.com/weirproject/weir/rules"
)

// reloadWithin is the timeout of a reload on a signal. Sources read before it stay in force.
const reloadWithin = 30 * time.Second

// lintAfter is how long rules must be in force before they are checked for warnings. The check
// costs more than reading the rules, so it is skipped while they change continuously.
const lintAfter = time.Second

// A live keeps the rules of a running server up to date: it watches the sources, puts their rules in
// force, and reports to logs and metrics.
type live struct {
	log     *slog.Logger
	gate    *gate.Gate
	stack   *stack // nil: there are no layers
	metrics *observe.Metrics
	setup   *setup                 // as it was at the start
	given   func(flag string) bool // the flag is set, and overrides the file

	optional string // a layer that no flag named: the server is ready without it
	keeper   *ruleset.Keeper

	stop  context.CancelFunc
	ended sync.WaitGroup

	// Used by the keeper's goroutine alone.
	complete bool              // each source was in force once
	began    bool              // some rules were
	failing  bool              // some rules of a source were not in force at the last event
	settings map[string]string // last seen settings that take effect at a start
	leftOut  []string          // invalid members of sets, as logged last

	linter *time.Timer // nil: none is due

	linting sync.Mutex
	odd     []string // warnings of weir check, as logged last
}

// start watches the sources until close. It returns when their rules are in force, or after wait:
// then the server runs without the missing rules and is not ready. A signal ends the wait.
func (l *live) start(layers []ruleset.Layer, wait time.Duration, signals <-chan os.Signal) (err error) {
	l.keeper, err = ruleset.NewKeeper(layers, l.swap, ruleset.WithCompile(l.setup.compile), ruleset.WithRest(l.setup.rest),
		ruleset.WithTell(l.tell), ruleset.WithStartWithin(wait))
	if err != nil {
		return err
	}
	l.metrics.Sources(l.sources)
	l.metrics.Degraded(l.degraded)
	if p := l.setup.primary; p.text != nil {
		l.lint(p.name, p.text)
	}
	l.settings = settingsOf(l.setup.file)
	l.metrics.Incomplete(true)
	var ctx context.Context
	ctx, l.stop = context.WithCancel(context.Background())
	ready := make(chan error, 1)
	l.ended.Go(func() { l.keeper.Run(ctx) })
	l.ended.Go(func() { ready <- l.keeper.Wait(ctx) })
	select {
	case <-ready: // missing rules were logged
		l.setup.serving.Store(true)
		return nil
	case received := <-signals:
		l.log.Info("stopping before the rules were read", "signal", received.String())
		return &exit{code: exitClean}
	}
}

// close stops watching, and waits for the goroutines.
func (l *live) close() {
	if l.stop != nil {
		l.stop()
	}
	l.ended.Wait()
	if l.linter != nil {
		l.linter.Stop()
	}
}

// sources is the state of the sources, for the metrics.
func (l *live) sources() (list []observe.Source) {
	for _, y := range l.keeper.Status().Layers {
		good := y.Err == nil && y.LeftOut == 0 &&
			(y.Name != setsLayer || y.Warning == nil && l.gate.Rules().LeftOut() == nil)
		list = append(list,
			observe.Source{Name: y.Name, Up: !y.Down, Good: good, Rules: y.Rules, LeftOut: y.LeftOut, Loaded: y.Loaded})
	}
	return list
}

// maxDegraded is the most lines of /readyz per source, and maxDetail the most bytes of each.
const (
	maxDegraded = 3
	maxDetail   = 300
)

// degraded lists the failures of the sources, for /readyz.
func (l *live) degraded() (list []string) {
	for _, y := range l.keeper.Status().Layers {
		why := y.Err
		if why == nil && y.LeftOut > 0 {
			why = y.Warning
			list = append(list, fmt.Sprintf("%s: %d rules are invalid and not in force", y.Name, y.LeftOut))
		}
		lines := mistakesOf(why)
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
func (l *live) swap(set *rules.Set) error {
	if l.stack != nil {
		l.stack.follow(set) // first, so that no request has new rules and old terms
	}
	if err := l.gate.Swap(set); err != nil {
		return err
	}
	l.metrics.Rules(set, time.Now())
	l.keepSets(set)
	return nil
}

// tell handles an event of the sources: it logs it, and updates readiness and metrics.
func (l *live) tell(e ruleset.Event) {
	l.note(&e)
	status := l.keeper.Status()
	missing := func(y ruleset.LayerStatus) bool { return y.Loaded.IsZero() && y.Name != l.optional }
	if !l.complete && !slices.ContainsFunc(status.Layers, missing) {
		l.complete = true
		l.metrics.Incomplete(false)
	}
	failing := status.Err() != nil || status.LeftOut() > 0
	switch {
	case failing:
		l.metrics.RulesFailed()
	case l.failing && status.RuleSet != nil: // a failure may end without new rules
		l.metrics.Rules(status.RuleSet.Set, status.RuleSet.Loaded)
	}
	l.failing = failing
}

func (l *live) note(e *ruleset.Event) {
	from := []any{"rules", e.Rules}
	if e.Layer != "" { // otherwise the merged rules of all
		from = []any{"source", e.Layer, "revision", e.Revision, "rules", e.Rules}
	}
	switch e.Kind {
	case ruleset.InForce:
		if l.began && len(e.Changes) > 0 { // at the start everything is a change
			from = append(from, "changes", ruleset.Summary(e.Changes), "what", ruleset.Details(e.Changes))
		}
		l.began = true
		l.log.Info("rules in force", from...)
		l.lintSoon(e.Layer)
		l.noteSettings()
	case ruleset.Refused:
		l.log.Error("rules are invalid: the last valid rules stay in force",
			append(from, "mistakes", len(mistakesOf(e.Err)))...)
		for _, text := range mistakesOf(e.Err) {
			l.log.Error("rules: "+text.Message, text.where(e.Layer)...)
		}
	case ruleset.Down:
		l.log.Warn("rules cannot be read: the last valid rules stay in force", append(from, "error", e.Err)...)
	case ruleset.Recovered:
		l.log.Info("rules of the source are in force again", from...)
	case ruleset.Collided:
		for _, c := range e.Collisions[:min(len(e.Collisions), maxNames)] {
			l.log.Warn("rules: " + c.String())
		}
		if more := len(e.Collisions) - maxNames; more > 0 {
			l.log.Warn(fmt.Sprintf("rules: %d more override others", more))
		}
	case ruleset.Warned:
		for _, text := range mistakesOf(e.Err) {
			l.log.Warn("rules: "+text.Message, text.where(e.Layer)...)
		}
	case ruleset.Ready:
		if err := l.lacking(); err != nil {
			l.log.Error("some rule sources are not in force yet: the server is not ready", "rules", e.Rules, "error",
				err)
		}
	}
}

// lacking returns the errors of the sources that readiness depends on.
func (l *live) lacking() error {
	asked := &ruleset.Status{}
	for _, y := range l.keeper.Status().Layers {
		if y.Name != l.optional {
			asked.Layers = append(asked.Layers, y)
		}
	}
	return asked.Err()
}

// noteSettings warns once of each change of a setting that only a start reads.
func (l *live) noteSettings() {
	began := settingsOf(l.setup.file)
	for name, now := range settingsOf(l.keeper.Status().RuleSet.File) {
		if now == l.settings[name] {
			continue
		}
		l.settings[name] = now
		if flag := settingFlags[name]; now != began[name] && !l.given(flag) {
			l.log.Warn(name+" changed: takes effect at the next start", "is", masked(began[name]), "will_be",
				masked(now))
		}
	}
}

// settingFlags are the fields of a file that only a start reads, with the flags that override them.
var settingFlags = map[string]string{
	"store":           "store",
	"nodes":           "nodes",
	"fallback_keys":   "fallback-keys",
	"trusted_proxies": "trusted-proxies",
	"client_header":   "client-header",
	"path_form":       "path-form",
}

func settingsOf(file *rules.File) map[string]string {
	return map[string]string{
		"store":           file.Store,
		"nodes":           fmt.Sprint(file.Nodes),
		"fallback_keys":   fmt.Sprint(file.FallbackKeys),
		"trusted_proxies": fmt.Sprint(file.TrustedProxies),
		"client_header":   file.ClientHeader,
		"path_form":       strings.Join(file.PathForm, ", "),
	}
}

// lintSoon checks a changed file for warnings, after lintAfter.
func (l *live) lintSoon(layer string) {
	p := l.setup.primary
	if p.text == nil || p.static || layer != "" && layer != p.Name {
		return
	}
	if l.linter != nil {
		l.linter.Stop()
	}
	l.linter = time.AfterFunc(lintAfter, func() {
		text, err := os.ReadFile(p.name)
		if err == nil && len(text) <= rules.MaxFile {
			l.lint(p.name, text)
		}
	})
}

// lint logs the warnings of weir check about a file, except those that it logged before.
func (l *live) lint(name string, text []byte) {
	l.linting.Lock()
	defer l.linting.Unlock()
	_, warnings, _ := rules.Lint(name, text, append(listOptions(name), rules.WithRest(l.setup.rest))...)
	var odd []string
	for i := range warnings {
		w := &warnings[i]
		if odd = append(odd, w.Message); !slices.Contains(l.odd, w.Message) {
			l.log.Warn("rules: "+w.Message, "at", fmt.Sprintf("%s:%d:%d", w.File, w.Line, w.Column))
		}
	}
	l.odd = odd
}

// reloadOn reads all sources on each signal. It logs the result, since unchanged sources send no
// event.
func (l *live) reloadOn(hup <-chan os.Signal) {
	for range hup {
		ctx, cancel := context.WithTimeout(context.Background(), reloadWithin)
		err := l.keeper.Reload(ctx)
		cancel()
		if err == nil {
			l.log.Info("reload: all rules are in force", "signal", "hangup", "rules", len(l.gate.Rules().Rules()))
			continue
		}
		l.log.Error("reload: not all rules are in force",
			"signal", "hangup", "rules", len(l.gate.Rules().Rules()), "mistakes", len(mistakesOf(err)))
		for _, text := range mistakesOf(err) {
			l.log.Error("rules: "+text.Message, text.where("")...)
		}
	}
}
