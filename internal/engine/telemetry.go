package engine

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/tally"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/internal/telemetry/history"
	"github.com/weirproject/weir/layers"
	"github.com/weirproject/weir/memstore"
)

// The values of server.telemetry.
const (
	TelemetryOn     = "on"
	TelemetryHidden = "hidden" // keys are shown as digests
	TelemetryOff    = "off"
)

// checkTelemetry checks the settings of telemetry.
func (e *Engine) checkTelemetry() error {
	switch {
	case e.StateDir == "":
		return nil
	case e.Server.Telemetry == TelemetryOff:
		return wrong("server.state_dir keeps the history of telemetry, but server.telemetry is off; leave one " +
			"of them out")
	case e.Store != Memory:
		return wrong("server.state_dir keeps the history of counts in memory, but server.store is %s, which keeps the "+
			"history itself; leave server.state_dir out", Masked(e.Store))
	}
	return nil
}

// A watcher is the telemetry of an engine.
type watcher struct {
	*telemetry.Recorder
	history *history.History
	lock    *os.File // of server.state_dir; nil: none
	stop    context.CancelFunc
	ended   sync.WaitGroup

	mu      sync.Mutex // guards what follows
	steps   int64      // of the store's clock, at the last description
	stepped time.Time  // when there were more
	before  reading    // at the last description of this node
	shown   telemetry.Node
	at      time.Time
}

// A reading holds the counters whose growth the description of this node shows.
type reading struct {
	took                     tally.Buckets
	decided, recalled, asked int64
}

// openRecorder makes the recorder, if there is telemetry.
func (e *Engine) openRecorder(ctx context.Context) {
	if e.Server.Telemetry == TelemetryOff {
		return
	}
	o := telemetry.Options{Node: e.Node(), Metrics: e.Metrics.Metrics}
	if e.Server.Telemetry == TelemetryHidden {
		o.Hide = digester(e.digestSeed(ctx), e.HashKey)
	}
	e.watcher = &watcher{Recorder: telemetry.New(o)}
	e.Metrics.Registry().MustRegister(e.watcher.Recorder)
}

// digestSeed is the secret number of digests. All nodes of a Redis have the same.
func (e *Engine) digestSeed(ctx context.Context) uint64 {
	if e.Store == Memory {
		return rand.Uint64()
	}
	ctx, cancel := context.WithTimeout(ctx, firstAttempt)
	defer cancel()
	seed, err := history.Seed(ctx, e.Store)
	if err != nil {
		e.Log.Warn("telemetry: digests of keys are others than those of other nodes until the next start", "error", err)
		return rand.Uint64()
	}
	return seed
}

// digester returns a function that makes the digest of a key: the same on nodes with the same secrets.
func digester(seed uint64, secret string) func(string) string {
	return func(key string) string {
		mac := hmac.New(sha256.New, binary.LittleEndian.AppendUint64([]byte(secret), seed))
		mac.Write([]byte(key))
		return hex.EncodeToString(mac.Sum(nil)[:8])
	}
}

// openHistory begins to record. The gate has rules.
func (e *Engine) openHistory(store weir.Store) (err error) {
	w := e.watcher
	if w == nil {
		return nil
	}
	c := history.Config{Name: e.Node(), Version: e.Version, Recorder: w.Recorder, Rules: e.Gate.Rules,
		Describe: e.describe, Alerts: e.FiringAlerts, Ledger: e.Book, Dir: e.StateDir, Log: e.Log}
	if register, ok := store.(gate.Register); ok && e.Store != Memory {
		c.Redis, c.Register = e.Store, register
	}
	if c.Dir != "" {
		if err := os.MkdirAll(c.Dir, 0o700); err != nil {
			return fmt.Errorf("server.state_dir: %w", err)
		}
		if w.lock, err = lockFile(filepath.Join(c.Dir, "lock")); err != nil {
			return fmt.Errorf("server.state_dir: %w", err)
		}
	}
	w.Rules(e.Gate.Rules())
	w.Reserved = e.Gate.Reserved
	if w.history, err = history.Open(c); err != nil {
		return fmt.Errorf("server.state_dir: %w", err)
	}
	e.markers = append(e.markers, w.mark)
	h := w.history
	e.Metrics.Count("weir_history_writes_total", "Records of the history written to Redis.", h.Writes)
	e.Metrics.Count("weir_history_errors_total", "Failed writes and reads of the history, in Redis or files, and "+
		"records that were malformed.", h.Failures)
	e.Metrics.Gauge("weir_history_bytes", "Memory of the records of the last 24 hours, those of other nodes included.",
		h.Bytes)
	var run context.Context
	run, w.stop = context.WithCancel(context.Background())
	w.ended.Go(func() { w.Run(run) })
	return nil
}

// mark records an incident of this node. Changes of operators are in the ledger, which all nodes read.
func (w *watcher) mark(m telemetry.Mark) {
	if m.Actor == "" {
		w.history.Mark(m)
	}
}

// changed tells the other nodes at once which rules are in force here.
func (w *watcher) changed() {
	w.mu.Lock()
	w.at = time.Time{}
	w.mu.Unlock()
	w.history.Announce()
}

func (w *watcher) close() (err error) {
	if w.stop != nil {
		w.stop()
	}
	w.ended.Wait()
	if w.history != nil {
		err = w.history.Close()
	}
	if w.lock != nil {
		w.lock.Close()
	}
	return err
}

// Overview and Others implement alert.Nodes.
func (w *watcher) Overview(ctx context.Context, q telemetry.Query) (*telemetry.Overview, error) {
	return w.history.Overview(ctx, q)
}

func (w *watcher) Others(ctx context.Context) ([]telemetry.Node, bool, error) {
	return w.history.Others(ctx)
}

// Telemetry answers for all nodes that share the store; nil: it is off.
func (e *Engine) Telemetry() telemetry.Reader {
	if e.watcher == nil {
		return nil
	}
	return e.watcher.history
}

// describeEvery is how often the description of this node is made anew.
const describeEvery = time.Second

// describe completes the description of this node.
func (e *Engine) describe(n *telemetry.Node) {
	w := e.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); now.Sub(w.at) >= describeEvery {
		shown := telemetry.Node{}
		e.describeStore(&shown, w)
		e.describeRules(&shown)
		w.shown, w.at = shown, now
	}
	own := *n
	*n = w.shown
	n.Name, n.Version, n.Seen, n.Started = own.Name, own.Version, own.Seen, own.Started
	if e.alerts != nil {
		n.Alerts = e.alerts.Own()
	}
}

// minCalls is how many store calls a description needs for its latencies.
const minCalls = 20

// describeStore describes the store and its layers: latencies and shares of the time since the description with enough
// calls before it.
func (e *Engine) describeStore(n *telemetry.Node, w *watcher) {
	now := reading{took: e.Metrics.ReadStore()}
	if n.StoreUp = e.Metrics.StoreUp() || e.isBack(); n.StoreUp && e.outage.down.Load() {
		e.outage.recover()
	}
	n.Problems = e.evicts()
	if local, ok := e.store.(*memstore.Store); ok {
		stats := local.Stats()
		n.Keys, n.Overflow = stats.Keys, uint64(stats.Overflow)
	}
	if e.stack != nil {
		stats := e.stack.Stats()
		n.Problems = append(n.Problems, w.clockStepped(stats.ClockSteps, time.Now())...)
		now.recalled, now.asked = stats.Recalled, stats.Decisions
		if !slices.Contains(e.Without, "breaker") {
			n.Breaker = [...]string{"closed", "half-open", "open"}[stats.BreakerState]
		}
	}
	total, _ := e.Metrics.Read(func(string, *tally.Rule) {})
	for _, count := range total[:tally.Degraded] {
		now.decided += int64(count)
	}
	calls := now.took.Minus(w.before.took)
	n.StoreP50, n.StoreP99 = calls.Quantile(0.5), calls.Quantile(0.99)
	if decided := now.decided - w.before.decided; decided > 0 && e.stack != nil {
		recalled := now.recalled - w.before.recalled
		n.RecallHits = min(1, float64(recalled)/float64(decided))
		n.LeaseHits = e.leased(decided, recalled, now.asked-w.before.asked)
	}
	if calls.Total() >= minCalls || w.at.IsZero() {
		w.before = now
	}
}

// steppedLasts is how long a step of the store's clock is a problem.
const steppedLasts = time.Hour

// clockStepped says that the store's clock stepped lately.
func (w *watcher) clockStepped(steps int64, now time.Time) []string {
	if steps > w.steps {
		w.steps, w.stepped = steps, now
	}
	if w.stepped.IsZero() || now.Sub(w.stepped) > steppedLasts {
		return nil
	}
	return []string{fmt.Sprintf("the clock of Redis stepped at %s: what was charged while it was ahead is shortened "+
		"where it is found; set it right by slewing (NTP)", w.stepped.UTC().Format(time.RFC3339))}
}

// leased is the share of decisions that prefetched units answered: decisions that neither the refusal cache nor the
// store answered.
func (e *Engine) leased(decided, recalled, asked int64) float64 {
	if e.stack.Stats().Leases == 0 || slices.Contains(e.Without, "coalesce") {
		return 0
	}
	return max(0, float64(decided-recalled-asked)/float64(decided))
}

// describeRules describes the rules in force, and the accuracy that they have now.
func (e *Engine) describeRules(n *telemetry.Node) {
	n.Problems = append(n.Problems, e.degraded()...)
	status := e.manager.Status()
	n.Revision = status.Revision()
	for i := range status.Layers {
		if status.Layers[i].Name == LedgerLayer {
			text, _, _ := strings.Cut(status.Layers[i].Revision, ",") // such as "12, 1 reverted"
			n.Ledger, _ = strconv.ParseInt(text, 10, 64)
		}
	}
	n.Reserved = most(e.Gate.Reserved(), maxDescribed)
	n.Bound = "strict"
	var leasing []string
	for _, rule := range e.Gate.Rules().Rules() {
		if terms := LeaseTerms(rule); terms != (layers.Terms{}) && len(leasing) < maxNames {
			leasing = append(leasing, fmt.Sprintf("%s: %s", rule.Name(), terms.Bound(rule.Limits()[0], e.Nodes)))
		}
	}
	switch {
	case e.Store == Memory:
		n.Share = "this process counts by itself"
	case e.outage.down.Load():
		n.Bound = "degraded"
		n.Share = fmt.Sprintf("the store does not respond: rules apply their on_store_error; with local each of %d "+
			"nodes grants its share of a limit", e.Nodes)
	case len(leasing) > 0:
		n.Bound, n.Share = "prefetch", strings.Join(leasing, "; ")
	}
}
