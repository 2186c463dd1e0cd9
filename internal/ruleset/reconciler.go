package ruleset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirproject/weir/rules"
)

// A reconciler collects updates of all layers and applies them in batches. One goroutine owns it;
// compiling runs in another one, so that updates are received meanwhile.
type reconciler struct {
	*Keeper
	states     []sourceState
	current    *RuleSet
	collisions []Collision

	started bool
	since   time.Time     // when the oldest waiting update was received; zero: none waits
	batch   *time.Timer   // fires when the batch is to be applied
	attempt chan *attempt // receives the attempt under way; nil: none
	due     bool          // another attempt must follow
}

// A sourceState is the state of one layer.
type sourceState struct {
	unheard  bool
	latest   *Update       // the newest good update, if it is not in force yet
	refused  bool          // the newest update was refused on receipt: Err is its error
	waiting  []func(error) // Done functions of updates that are not settled
	file     *rules.File   // in force
	reported string        // the error that was reported last, so that it is reported once
	LayerStatus
}

func newReconciler(k *Keeper) *reconciler {
	b := &reconciler{Keeper: k, states: make([]sourceState, len(k.layers)), batch: time.NewTimer(time.Hour)}
	b.batch.Stop()
	now := time.Now()
	for i, y := range k.layers {
		b.states[i] = sourceState{unheard: true, LayerStatus: LayerStatus{Name: y.Name, Err: errSilent, Since: now}}
	}
	return b
}

// run receives and applies updates until ctx is done.
func (b *reconciler) run(ctx context.Context) {
	late := time.NewTimer(b.startWithin)
	defer late.Stop()
	for {
		select {
		case h := <-b.received:
			b.receive(&b.states[h.layer], &h.Update, b.layers[h.layer].AllowEmpty)
			if !b.started && !slices.ContainsFunc(b.states, func(s sourceState) bool { return s.unheard }) {
				b.begin()
			}
		case <-late.C:
			if !b.started {
				b.begin()
			}
		case <-b.batch.C:
			b.begin()
		case t := <-b.attempt:
			b.end(t)
		case <-ctx.Done():
			b.stop(context.Cause(ctx))
			return
		}
		b.publish()
	}
}

// stop ends the attempt under way and answers all waiters.
func (b *reconciler) stop(why error) {
	b.batch.Stop()
	if b.due = false; b.attempt != nil {
		b.end(<-b.attempt)
	}
	for i := range b.states {
		for _, done := range b.states[i].waiting {
			done(why)
		}
	}
	b.publish()
}

// receive records an update. An update with an error does not displace a good one that is not in
// force yet.
func (b *reconciler) receive(s *sourceState, n *Update, allowEmpty bool) {
	s.unheard, s.refused = false, false
	warned := s.Warning != nil
	s.Warning, s.LeftOut = n.Warning, n.LeftOut
	if n.Warning != nil || warned {
		b.event(Event{Kind: Warned, Layer: s.Name, Revision: n.Revision, Err: n.Warning})
	}
	if err := s.check(n, allowEmpty); err != nil {
		s.refused = true
		kind := Refused
		if n.Err != nil && n.Revision == "" {
			kind = Down
		}
		b.report(s, kind, n.Revision, err)
		n.finish(err)
		return
	}
	s.latest = n
	if n.Done != nil {
		s.waiting = append(s.waiting, n.Done)
	}
	if !b.started {
		return
	}
	now := time.Now()
	if b.since.IsZero() {
		b.since = now
	}
	b.batch.Reset(max(0, min(quietTime, maxDelay-now.Sub(b.since))))
}

// check returns the reason for refusing an update without compiling it.
func (s *sourceState) check(n *Update, allowEmpty bool) error {
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
func (b *reconciler) report(s *sourceState, kind EventKind, revision string, err error) {
	text := kind.String()
	if kind == Refused { // while it is down, the reasons may vary
		text += revision + err.Error()
	}
	if s.Err == nil || errors.Is(s.Err, errSilent) {
		s.Since = time.Now()
	}
	s.Err, s.Down = err, kind == Down
	if s.reported != text {
		s.reported = text
		b.event(Event{Kind: kind, Layer: s.Name, Revision: revision, Err: err})
	}
}

// begin starts to apply all good updates that are not in force.
func (b *reconciler) begin() {
	b.started = true
	if b.attempt != nil {
		b.due = true
		return
	}
	b.since, b.due = time.Time{}, false
	t := &attempt{Keeper: b.Keeper, current: b.current, collisions: b.collisions,
		files: make([]*rules.File, len(b.states))}
	for i := range b.states {
		s := &b.states[i]
		t.files[i] = s.file
		if s.latest != nil {
			t.pending = append(t.pending, pending{layer: i, update: s.latest, waiting: s.waiting,
				same: s.file != nil && s.latest.Revision != "" && s.latest.Revision == s.Revision})
			s.waiting = nil
		}
	}
	b.attempt = make(chan *attempt, 1)
	go func(report chan<- *attempt) {
		t.run()
		report <- t
	}(b.attempt)
}

// end records the result of an attempt. Waiters are answered last, when Status has the result.
func (b *reconciler) end(t *attempt) {
	b.attempt = nil
	if n := len(t.applied); n > 0 { // one Status has the rule set and its revisions
		b.current = t.applied[n-1].rules
	}
	var recovered []*sourceState
	for i := range t.pending {
		if s := &b.states[t.pending[i].layer]; t.pending[i].err == nil && s.accept(&t.pending[i]) {
			recovered = append(recovered, s)
		}
	}
	for _, p := range t.applied {
		b.reportApplied(p)
	}
	for _, s := range recovered {
		b.event(Event{Kind: Recovered, Layer: s.Name, Revision: s.Revision})
	}
	for _, c := range t.pending {
		// What the source said since then may be wrong in another way, and was reported.
		if s := &b.states[c.layer]; c.err != nil && !s.refused {
			b.report(s, Refused, c.update.Revision, c.err)
		}
	}
	b.reportReady()
	for _, c := range t.pending {
		for _, done := range c.waiting {
			done(c.err)
		}
	}
	if b.due {
		b.begin()
	}
}

// accept records that an update is in force, and reports whether an error is over. A refused update
// is kept, because another layer may have caused the refusal, and may change. An error of a later
// update stays: clearing it would report a bad file as good.
func (s *sourceState) accept(c *pending) (recovered bool) {
	if !c.same {
		s.Loaded = time.Now()
	}
	s.file, s.Revision, s.Rules = c.update.File, c.update.Revision, len(c.update.File.Rules)
	if !s.refused {
		recovered = s.reported != ""
		s.reported, s.Err, s.Down, s.Since = "", nil, false, time.Time{}
	}
	if s.latest == c.update {
		s.latest = nil
	}
	return recovered
}

func (b *reconciler) reportApplied(p applied) {
	b.event(Event{Kind: InForce, Layer: p.layer, Revision: p.revision, Changes: p.changes})
	if !slices.Equal(p.collisions, b.collisions) {
		b.collisions = p.collisions
		b.event(Event{Kind: Collided, Collisions: p.collisions})
	}
}

// reportReady reports once that the Keeper is ready.
func (b *reconciler) reportReady() {
	b.publish()
	select {
	case <-b.ready:
	default:
		b.start = b.Status().Err()
		b.event(Event{Kind: Ready, Err: b.start})
		close(b.ready)
	}
}

// event completes an event and passes it on.
func (b *reconciler) event(e Event) {
	b.publish()
	e.Time = time.Now()
	if b.current != nil {
		e.Rules, e.Loaded = len(b.current.File.Rules), b.current.Loaded
	}
	b.onEvent(e)
}

func (b *reconciler) publish() {
	status := &Status{RuleSet: b.current, Collisions: b.collisions}
	for i := range b.states {
		y := b.states[i].LayerStatus
		if latest := b.states[i].latest; latest != nil {
			y.Pending = latest.Revision
		}
		status.Layers = append(status.Layers, y)
	}
	b.status.Store(status)
}
