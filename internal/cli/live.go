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
	"github.com/weirproject/weir/observe"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/rules/source"
)

// reloadWithin is how long a reload may take until it is given up, with what it has brought
// so far in force.
const reloadWithin = 30 * time.Second

// lintAfter is how long rules must have been in force until it is looked for what is odd
// about them, which costs more than reading them: while they change every moment nobody
// reads it.
const lintAfter = time.Second

// A live is the rules of a server that runs: it listens to their sources, puts in force what
// they say, and tells logs and metrics of it.
type live struct {
	log     *slog.Logger
	gate    *gate.Gate
	stack   *stack // nil: there are no layers to be told
	metrics *observe.Metrics
	setup   *setup                 // as it was at the start
	given   func(flag string) bool // beats what the file says

	optional string // the layer that nobody has asked for: the server is ready without it
	keeper   *source.Keeper

	stop  context.CancelFunc
	ended sync.WaitGroup

	// These are the keeper's goroutine's.
	complete bool              // each source was in force once
	began    bool              // some rules were
	failing  bool              // something that a source says was not in force, as it was told last
	settings map[string]string // that were said last, and take a start
	leftOut  []string          // what of sets names nobody, as it was told last

	linter *time.Timer // nil: none is due

	linting sync.Mutex
	odd     []string // what weir check would warn of, as it was told last
}

// start listens to sources until close, and returns when their rules are in force, or when
// the time that is waited for them is over: then the server is not ready, and goes on
// without what is missing. A signal ends the waiting.
func (l *live) start(layers []source.Layer, wait time.Duration, signals <-chan os.Signal) (err error) {
	l.keeper, err = source.NewKeeper(layers, l.swap, source.WithCompile(l.setup.compile), source.WithRest(l.setup.rest),
		source.WithTell(l.tell), source.WithStartWithin(wait))
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
	case <-ready: // what is missing was told
		l.setup.serving.Store(true)
		return nil
	case received := <-signals:
		l.log.Info("ending before the rules were there", "signal", received.String())
		return &exit{code: exitClean}
	}
}

// close ends it, and waits for what was begun.
func (l *live) close() {
	if l.stop != nil {
		l.stop()
	}
	l.ended.Wait()
	if l.linter != nil {
		l.linter.Stop()
	}
}

// sources are how they stand, for the metrics.
func (l *live) sources() (list []observe.Source) {
	for _, y := range l.keeper.Status().Layers {
		good := y.Err == nil && y.LeftOut == 0 && (y.Name != setsLayer || y.Warning == nil && l.gate.Rules().LeftOut() == nil)
		list = append(list, observe.Source{Name: y.Name, Up: !y.Down, Good: good, Rules: y.Rules, LeftOut: y.LeftOut, Loaded: y.Loaded})
	}
	return list
}

// maxDegraded is how many lines /readyz has of one source, and how long each is at most.
const (
	maxDegraded = 3
	maxDetail   = 300
)

// degraded is what is wrong with the sources, for /readyz.
func (l *live) degraded() (list []string) {
	for _, y := range l.keeper.Status().Layers {
		why := y.Err
		if why == nil && y.LeftOut > 0 {
			why = y.Warning
			list = append(list, fmt.Sprintf("%s: %d rules are not in force as they are there", y.Name, y.LeftOut))
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

// swap puts rules in force, where gate and metrics are to know of them.
func (l *live) swap(set *rules.Set) error {
	if l.stack != nil {
		l.stack.follow(set) // first, so that no request meets new rules and old terms
	}
	if err := l.gate.Swap(set); err != nil {
		return err
	}
	l.metrics.Rules(set, time.Now())
	l.keepSets(set)
	return nil
}

// tell is told what becomes of the sources. It keeps the health in step.
func (l *live) tell(e source.Event) {
	l.note(&e)
	status := l.keeper.Status()
	missing := func(y source.LayerStatus) bool { return y.Loaded.IsZero() && y.Name != l.optional }
	if !l.complete && !slices.ContainsFunc(status.Layers, missing) {
		l.complete = true
		l.metrics.Incomplete(false)
	}
	failing := status.Err() != nil || status.LeftOut() > 0
	switch {
	case failing:
		l.metrics.RulesFailed()
	case l.failing && status.Law != nil: // what is in force may have been said again
		l.metrics.Rules(status.Law.Set, status.Law.Loaded)
	}
	l.failing = failing
}

func (l *live) note(e *source.Event) {
	from := []any{"rules", e.Rules}
	if e.Layer != "" { // else it is what all of them come to
		from = []any{"source", e.Layer, "revision", e.Revision, "rules", e.Rules}
	}
	switch e.Kind {
	case source.InForce:
		if l.began && len(e.Changes) > 0 { // at the start all is new
			from = append(from, "changes", source.Summary(e.Changes), "what", source.Details(e.Changes))
		}
		l.began = true
		l.log.Info("rules are in force", from...)
		l.lintSoon(e.Layer)
		l.noteSettings()
	case source.Refused:
		l.log.Error("rules are refused: the last good ones stay in force", append(from, "mistakes", len(mistakesOf(e.Err)))...)
		for _, text := range mistakesOf(e.Err) {
			l.log.Error("rules: "+text.Message, text.where(e.Layer)...)
		}
	case source.Down:
		l.log.Warn("rules cannot be read: the last good ones stay in force", append(from, "error", e.Err)...)
	case source.Recovered:
		l.log.Info("what the source says is in force again", from...)
	case source.Collided:
		for _, c := range e.Collisions[:min(len(e.Collisions), maxNames)] {
			l.log.Warn("rules: " + c.String())
		}
		if more := len(e.Collisions) - maxNames; more > 0 {
			l.log.Warn(fmt.Sprintf("rules: %d more replace others", more))
		}
	case source.Warned:
		for _, text := range mistakesOf(e.Err) {
			l.log.Warn("rules: "+text.Message, text.where(e.Layer)...)
		}
	case source.Ready:
		if err := l.lacking(); err != nil {
			l.log.Error("not all rules are in force that were asked for: the server is not ready until they are", "rules", e.Rules, "error", err)
		}
	}
}

// lacking is what is not in force of the sources that were asked for.
func (l *live) lacking() error {
	asked := &source.Status{}
	for _, y := range l.keeper.Status().Layers {
		if y.Name != l.optional {
			asked.Layers = append(asked.Layers, y)
		}
	}
	return asked.Err()
}

// noteSettings warns of what only a start reads, once for each change.
func (l *live) noteSettings() {
	began := settingsOf(l.setup.file)
	for name, now := range settingsOf(l.keeper.Status().Law.File) {
		if now == l.settings[name] {
			continue
		}
		l.settings[name] = now
		if flag := settingFlags[name]; now != began[name] && !l.given(flag) {
			l.log.Warn(name+" was changed: this takes effect at the next start", "is", masked(began[name]), "will_be", masked(now))
		}
	}
}

// settingFlags are the fields of a file that only a start reads, and the flags that beat them.
var settingFlags = map[string]string{"store": "store", "nodes": "nodes", "fallback_keys": "fallback-keys", "trusted_proxies": "trusted-proxies",
	"client_header": "client-header", "path_form": "path-form"}

func settingsOf(file *rules.File) map[string]string {
	return map[string]string{"store": file.Store, "nodes": fmt.Sprint(file.Nodes), "fallback_keys": fmt.Sprint(file.FallbackKeys),
		"trusted_proxies": fmt.Sprint(file.TrustedProxies), "client_header": file.ClientHeader, "path_form": strings.Join(file.PathForm, ", ")}
}

// lintSoon has a file that changed looked at.
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

// lint logs what is odd about the rules of a file, without the lines that weir check shows,
// where that is not what was odd before.
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

// reloadOn has all sources read when there is a signal. What came of it was told, but for
// sources that say what they said before.
func (l *live) reloadOn(hup <-chan os.Signal) {
	for range hup {
		ctx, cancel := context.WithTimeout(context.Background(), reloadWithin)
		err := l.keeper.Reload(ctx)
		cancel()
		if err == nil {
			l.log.Info("all rules were read again, and are in force", "signal", "hangup", "rules", len(l.gate.Rules().Rules()))
			continue
		}
		l.log.Error("rules were read again, and not all are in force", "signal", "hangup", "rules", len(l.gate.Rules().Rules()), "mistakes", len(mistakesOf(err)))
		for _, text := range mistakesOf(err) {
			l.log.Error("rules: "+text.Message, text.where("")...)
		}
	}
}
