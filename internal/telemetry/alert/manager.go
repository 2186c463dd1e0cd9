package alert

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirproject/weir/internal/telemetry"
)

const (
	// every is the time between looks.
	every = 5 * time.Second
	// confirm is how many looks in a row must show what raises an alert: counts of other nodes are older.
	confirm = 2
	// easing is the part of a threshold below which a raised alert may be resolved.
	easing = 0.8
	// maxApart is how many rules have an alert each. Further ones have one cause, and one alert.
	maxApart = 5
	// maxNamed is how many rules that one names.
	maxNamed = 10
	// flapping is the time that makes another begin of a condition a flap: then its end must last twice as long,
	// and again twice with the next flap, up to maxFlaps times.
	flapping = time.Hour
	maxFlaps = 4
	// readWithin bounds the reading of the other nodes.
	readWithin = 3 * time.Second
)

// Nodes answers for the nodes that share a store: see history.History.
type Nodes interface {
	Overview(context.Context, telemetry.Query) (*telemetry.Overview, error)
	// Others describes the other nodes. leads: this one decides for all, as the oldest, or because the others cannot be
	// read.
	Others(context.Context) (others []telemetry.Node, leads bool, err error)
}

// A Config describes a Manager.
type Config struct {
	Settings
	Nodes    Nodes         // nil: there is no telemetry, and no alert reject_share
	Degraded func() uint64 // decisions without the store since the start
	// Tell is called with each alert that is raised or, with Resolved, resolved.
	Tell func(a *telemetry.Alert)
}

// A Manager raises and resolves alerts from Start to Close.
type Manager struct {
	Config
	states   map[string]*state
	degraded uint64            // at the last look
	others   []telemetry.Alert // what the other nodes told, at the last look
	led      bool

	mu          sync.Mutex
	own, firing []telemetry.Alert // on this node, and on all

	cancel context.CancelFunc
	ended  sync.WaitGroup
}

// A state is an alert that fires, may soon, or did.
type state struct {
	telemetry.Alert
	firing  bool
	row     int       // looks in a row that would raise it
	held    time.Time // when the condition held last
	ended   time.Time // when the alert was resolved last
	flapped int
}

// A condition is the subject of an alert, at one look. It keeps an alert that fires from being resolved.
type condition struct {
	telemetry.Alert
	raises bool
}

// New makes a Manager.
func New(c Config) *Manager { return &Manager{Config: c, states: make(map[string]*state)} }

// Start starts it. Tell may use the Manager.
func (m *Manager) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	m.ended.Go(func() { m.run(ctx) })
}

// Close ends a Manager. Alerts that fire stay as they are: a restart is no resolution.
func (m *Manager) Close() {
	if m.cancel != nil {
		m.cancel()
	}
	m.ended.Wait()
}

// Firing returns the alerts that fire, on all nodes that share a Redis.
func (m *Manager) Firing() []telemetry.Alert {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.firing
}

// Own returns the alerts that this node raised.
func (m *Manager) Own() []telemetry.Alert {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.own
}

func (m *Manager) run(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			m.look(ctx, now.UTC())
		case <-ctx.Done():
			return
		}
	}
}

// look evaluates the conditions.
func (m *Manager) look(ctx context.Context, now time.Time) {
	seen := make(map[string]bool)
	apply := func(c condition) {
		seen[ID(&c.Alert)] = true
		m.apply(&c, now)
	}
	if c, holds := m.isDegraded(); holds {
		apply(c)
	}
	for _, c := range m.rejects(ctx, now) {
		apply(c)
	}
	if ctx.Err() != nil {
		return
	}
	var own []telemetry.Alert
	for id, s := range m.states {
		quiet := now.Sub(s.held)
		switch {
		case s.firing && quiet >= m.Resolve<<s.flapped:
			s.firing, s.ended, s.Resolved = false, now, now
			if !m.goesOn(&s.Alert) {
				m.Tell(&s.Alert)
			}
		case s.firing:
			own = append(own, s.Alert)
		case quiet > flapping:
			delete(m.states, id)
		}
		if !seen[id] {
			s.row = 0
		}
	}
	m.publish(own)
}

// goesOn reports whether the node that leads has an alert that this one raised when it did not see the others.
func (m *Manager) goesOn(a *telemetry.Alert) bool {
	return a.Name == rejectShare && !m.led &&
		slices.ContainsFunc(m.others, func(other telemetry.Alert) bool { return ID(&other) == ID(a) })
}

// publish keeps what fires.
func (m *Manager) publish(own []telemetry.Alert) {
	byID := func(a, b telemetry.Alert) int { return strings.Compare(ID(&a), ID(&b)) }
	all := slices.Concat(own, m.others)
	slices.SortStableFunc(all, byID)
	all = slices.CompactFunc(all, func(a, b telemetry.Alert) bool { return byID(a, b) == 0 })
	m.mu.Lock()
	defer m.mu.Unlock()
	m.own, m.firing = own, all
}

// ID is the same for the same alert on all nodes.
func ID(a *telemetry.Alert) string {
	if a.Rule == "" {
		return a.Name
	}
	return a.Name + "/" + a.Rule
}

// isDegraded reports whether requests were decided without the store.
func (m *Manager) isDegraded() (c condition, holds bool) {
	total := m.Degraded()
	n := total - m.degraded
	m.degraded = total
	c = condition{raises: true, Alert: telemetry.Alert{Name: degraded, Value: float64(n), Window: every}}
	c.Text = fmt.Sprintf("store is not responding: %d requests in the last %v were decided by on_store_error", n, every)
	return c, m.Settings.Degraded && n > 0
}

// rejects compares the refused share of each rule, over all nodes, with the threshold. It reads the other nodes' alerts
// even if this alert is off.
func (m *Manager) rejects(ctx context.Context, now time.Time) []condition {
	if m.Nodes == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	others, leads, missing := m.Nodes.Others(ctx)
	if missing == nil {
		if leads && !m.led {
			m.succeed(now)
		}
		m.led = leads
	}
	m.others = nil
	for i := range others {
		m.others = append(m.others, others[i].Alerts...)
	}
	if !leads || m.RejectShare == 0 {
		return nil
	}
	o, err := m.Nodes.Overview(ctx, telemetry.Query{From: now.Add(-m.Window)})
	if err != nil {
		return nil // the next look is soon
	}
	var list []condition
	for i := range o.Rules {
		if c := m.rejected(&o.Rules[i], now.Sub(o.From), missing != nil); c.Value >= m.RejectShare*easing &&
			c.Total >= uint64(m.Minimum) {
			list = append(list, c)
		}
	}
	return m.grouped(list)
}

// succeed takes over the alerts of the node that decided before, and is gone.
func (m *Manager) succeed(now time.Time) {
	for _, a := range m.others {
		if s := m.states[ID(&a)]; a.Name == rejectShare && (s == nil || !s.firing) {
			m.states[ID(&a)] = &state{Alert: a, firing: true, held: now}
		}
	}
}

const (
	rejectShare = "reject_share"
	degraded    = "degraded"
)

func (m *Manager) rejected(r *telemetry.RuleSummary, window time.Duration, alone bool) (c condition) {
	c.raises = r.RefusedShare > m.RejectShare
	window = window.Round(time.Second)
	c.Alert = telemetry.Alert{Name: rejectShare, Rule: r.Name, Value: r.RefusedShare, Limit: m.RejectShare,
		Total: r.Counts.Passed + r.Counts.Refused, Window: window, Alone: alone}
	c.Text = fmt.Sprintf("rule %s refused %.1f %% of %d requests in the last %v, more than %.4g %%", r.Name,
		100*r.RefusedShare, c.Total, window, 100*m.RejectShare)
	if alone {
		c.Text += " (on this node alone: Redis does not answer)"
	}
	return c
}

// grouped joins the rules beyond the first ones that refuse too much.
func (m *Manager) grouped(list []condition) (out []condition) {
	var rest []condition
	raising := 0
	for _, c := range list {
		if s := m.states[ID(&c.Alert)]; s != nil && s.firing {
			out = append(out, c)
			continue
		}
		if rest = append(rest, c); c.raises {
			raising++
		}
	}
	group := m.states[rejectShare]
	if len(rest) > 0 && (group != nil && group.firing || len(out)+raising > maxApart) {
		return append(out, together(rest))
	}
	return append(out, rest...)
}

// together is the alert that stands for some.
func together(list []condition) condition {
	slices.SortFunc(list, func(a, b condition) int {
		return cmp.Or(cmp.Compare(b.Value, a.Value), strings.Compare(a.Rule, b.Rule))
	})
	worst := list[0]
	worst.Count = len(list)
	for _, c := range list[:min(len(list), maxNamed)] {
		worst.Rules = append(worst.Rules, c.Rule)
	}
	if more := len(list) - 1; more > 0 {
		worst.Text += fmt.Sprintf("; and %d more like this, such as %s", more, strings.Join(worst.Rules[1:], ", "))
	}
	worst.Rule = ""
	return worst
}

// apply takes a condition that holds.
func (m *Manager) apply(c *condition, now time.Time) {
	id := ID(&c.Alert)
	s := m.states[id]
	if s == nil {
		s = new(state)
		m.states[id] = s
	}
	if s.row++; !c.raises {
		s.row = 0
	}
	if !s.firing && s.row < confirm {
		if s.held.IsZero() {
			s.held = now // it is forgotten an hour from now
		}
		return
	}
	begins := !s.firing
	if begins {
		s.flap(now)
		s.firing, s.Since = true, now
	}
	c.Since = s.Since
	s.held, s.Alert = now, c.Alert
	if begins {
		m.Tell(&s.Alert)
	}
}

// flap counts a begin that is soon after an end.
func (s *state) flap(now time.Time) {
	if s.ended.IsZero() || now.Sub(s.ended) > flapping {
		s.flapped = 0
	} else {
		s.flapped = min(s.flapped+1, maxFlaps)
	}
}
