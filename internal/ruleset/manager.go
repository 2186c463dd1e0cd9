package ruleset

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// Delays of a Manager. Updates that follow each other closely become one rule set: the first waits until no other came
// for quietTime, but at most maxDelay.
const (
	quietTime   = 5 * time.Millisecond
	maxDelay    = 50 * time.Millisecond
	startWithin = 10 * time.Second
	maxWait     = time.Hour // without an update
)

// A Manager keeps a rule set up to date with its sources. Its methods are safe for concurrent use;
// Run is called once.
type Manager struct {
	layers      []Layer
	followers   []*Follower // of each layer
	swap        func(*rules.Set) error
	compile     func(*rules.File) (*rules.Set, error)
	onEvent     func(Event)
	startWithin time.Duration

	begun  atomic.Bool
	status atomic.Pointer[Status]
	ready  chan struct{}
	start  error         // the error at the time of ready
	heard  chan struct{} // closed when each layer has sent an update
	wake   chan struct{} // has a value when an update is to be applied

	mu         sync.Mutex // guards what follows; held while an event is reported
	states     []layerState
	silent     int // layers that have sent nothing
	current    *RuleSet
	collisions []Collision
	kept       []string // layers with rules that no overlay changes
	unmet      []string // of the overlay, as they were reported last
}

// A layerState is the state of one layer.
type layerState struct {
	heard    bool
	latest   *Update       // the newest good update, if it is not in force yet
	refused  bool          // the newest update was refused on receipt: Err is its error
	waiting  []func(error) // of reloads that are not answered
	file     *rules.File   // in force, with exceptions that may have ended
	reported string        // the error that was reported last, so that it is reported once
	LayerStatus
}

// An Option changes how a Manager works.
type Option func(*Manager)

// WithEvents calls onEvent with each event, sequentially. The Manager waits for it: onEvent must return
// quickly, and must not call Reload.
func WithEvents(onEvent func(Event)) Option { return func(m *Manager) { m.onEvent = onEvent } }

// WithCompile replaces rules.Compile without options.
func WithCompile(compile func(*rules.File) (*rules.Set, error)) Option {
	return func(m *Manager) { m.compile = compile }
}

// WithStartWithin sets how long the first rule set waits for layers that have sent no update, instead of 10 seconds.
// Their updates are later changes like any other.
func WithStartWithin(d time.Duration) Option { return func(m *Manager) { m.startWithin = d } }

// NewManager makes a manager of layers in order of precedence: a later one replaces rules of earlier
// ones. swap puts a rule set in force, such as gate.Gate.Swap. If it returns an error it must not
// have changed anything, and the updates are refused.
func NewManager(layers []Layer, swap func(*rules.Set) error, opts ...Option) (*Manager, error) {
	m := &Manager{layers: layers, swap: swap, onEvent: func(Event) {}, startWithin: startWithin,
		compile: func(f *rules.File) (*rules.Set, error) { return rules.Compile(f) },
		silent:  len(layers), ready: make(chan struct{}), heard: make(chan struct{}), wake: make(chan struct{}, 1)}
	for _, opt := range opts {
		opt(m)
	}
	if swap == nil {
		return nil, &weir.InputError{Field: "swap", Given: "nil",
			Allowed: "what puts rules in force, such as a gate's Swap"}
	}
	if len(layers) == 0 {
		return nil, &weir.InputError{Field: "layers", Given: "none", Allowed: "at least one"}
	}
	names := make(map[string]bool)
	now := time.Now()
	for i, y := range layers {
		if y.Name == "" || names[y.Name] || y.Source == nil {
			return nil, &weir.InputError{Field: "layers", Given: y.Name,
				Allowed: "names of their own, each with a source"}
		}
		names[y.Name] = true
		if y.Kept {
			m.kept = append(m.kept, y.Name)
		}
		m.followers = append(m.followers, Follow(y.Source, func(n Update, done func(error)) { m.receive(i, &n, done) }))
		m.states = append(m.states, layerState{LayerStatus: LayerStatus{Name: y.Name, Err: errSilent, Since: now}})
	}
	m.publish()
	return m, nil
}

var errSilent = errors.New("it has not said anything yet")

// Status returns a snapshot, which must not be changed.
func (m *Manager) Status() *Status { return m.status.Load() }

// Wait waits until all layers have sent an update, or WithStartWithin has passed, and these updates
// were tried. It returns nil if all of them are in force, or an error that says which are not. The
// caller decides whether to serve without them; the Manager goes on either way.
func (m *Manager) Wait(ctx context.Context) error {
	select {
	case <-m.ready:
		return m.start
	case <-ctx.Done():
		return fmt.Errorf("waiting for the first rules: %w", context.Cause(ctx))
	}
}

// Reload has all sources read now, and waits until their rules are in force. The error lists the
// sources that failed.
func (m *Manager) Reload(ctx context.Context) error {
	errs := make([]error, len(m.layers))
	var all sync.WaitGroup
	for i, y := range m.layers {
		all.Go(func() {
			if err := m.followers[i].Reload(ctx); err != nil {
				errs[i] = fmt.Errorf("%s: %w", y.Name, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Run runs until ctx is done and all sources are closed. It then returns nil. A second call returns
// an error at once.
func (m *Manager) Run(ctx context.Context) error {
	if m.begun.Swap(true) {
		return errors.New("ruleset: this Manager was run before; make another one")
	}
	var all sync.WaitGroup
	for _, f := range m.followers {
		all.Go(func() { f.Run(ctx) })
	}
	m.waitForAll(ctx)
	for ctx.Err() == nil {
		m.apply()
		m.wait(ctx)
	}
	all.Wait()
	for i := range m.states {
		for _, done := range m.states[i].waiting {
			done(context.Cause(ctx))
		}
	}
	return nil
}

// waitForAll waits until all layers have sent an update, or the time for it has passed.
func (m *Manager) waitForAll(ctx context.Context) {
	late := time.NewTimer(m.startWithin)
	defer late.Stop()
	select {
	case <-m.heard:
	case <-late.C:
	case <-ctx.Done():
	}
	select {
	case <-m.wake:
	default:
	}
}

// wait waits until updates have been received and no other follows closely, or until an exception ends.
func (m *Manager) wait(ctx context.Context) {
	timer := time.NewTimer(m.nextEnd())
	defer timer.Stop()
	select {
	case <-m.wake:
	case <-timer.C:
		return
	case <-ctx.Done():
		return
	}
	for first := time.Now(); ; {
		timer.Reset(max(0, min(quietTime, maxDelay-time.Since(first))))
		select {
		case <-m.wake:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// nextEnd returns the time until the next exception ends.
func (m *Manager) nextEnd() time.Duration {
	wait := maxWait
	if m.current == nil {
		return wait
	}
	for i := range m.current.File.Exceptions {
		if until := m.current.File.Exceptions[i].Until; !until.IsZero() {
			wait = min(wait, time.Until(until))
		}
	}
	return max(0, wait)
}

// receive records an update. An update with an error does not displace a good one that is not in
// force yet.
func (m *Manager) receive(layer int, n *Update, done func(error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.states[layer]
	if !s.heard {
		s.heard = true
		if m.silent--; m.silent == 0 {
			defer close(m.heard)
		}
	}
	warned := s.Warning
	s.refused, s.Warning, s.LeftOut = false, n.Warning, n.LeftOut
	if textOf(n.Warning) != textOf(warned) {
		m.event(Event{Kind: Warned, Layer: s.Name, Revision: n.Revision, Err: n.Warning})
	}
	if err := s.check(n, m.layers[layer].AllowEmpty); err != nil {
		s.refused = true
		kind := Refused
		if n.Err != nil && n.Revision == "" {
			kind = Down
		}
		m.report(s, kind, n.Revision, err)
		if done != nil {
			done(err)
		}
		return
	}
	s.latest = n
	if done != nil {
		s.waiting = append(s.waiting, done)
	}
	m.publish()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// check returns the reason for refusing an update without compiling it.
func (s *layerState) check(n *Update, allowEmpty bool) error {
	if n.Err != nil {
		return n.Err
	}
	if n.File == nil {
		return errors.New("the source sent neither rules nor an error, which is a bug in it")
	}
	before := s.file
	if s.latest != nil {
		before = s.latest.File
	}
	if had := len(rulesOf(before)); had > 0 && len(n.File.Rules) == 0 && !allowEmpty {
		return fmt.Errorf("%w: its %d rules stay in force; remove them one by one, "+
			"or allow this source to be empty", ErrEmpty, had)
	}
	return nil
}

// report reports an error of a layer, once.
func (m *Manager) report(s *layerState, kind EventKind, revision string, err error) {
	text := kind.String()
	if kind == Refused { // while it is down, the reasons may vary
		text += revision + err.Error()
	}
	if s.Err == nil || errors.Is(s.Err, errSilent) {
		s.Since = time.Now()
	}
	s.Err, s.Down = err, kind == Down
	if s.reported == text {
		m.publish()
		return
	}
	s.reported = text
	m.event(Event{Kind: kind, Layer: s.Name, Revision: revision, Err: err})
}

// event completes an event and passes it on.
func (m *Manager) event(e Event) {
	m.publish()
	e.Time = time.Now()
	if m.current != nil {
		e.Rules, e.Loaded = len(m.current.File.Rules), m.current.Loaded
	}
	m.onEvent(e)
}

func (m *Manager) publish() {
	status := &Status{RuleSet: m.current, Collisions: m.collisions}
	for i := range m.states {
		y := m.states[i].LayerStatus
		if latest := m.states[i].latest; latest != nil {
			y.Pending = latest.Revision
		}
		status.Layers = append(status.Layers, y)
	}
	m.status.Store(status)
}
