package layers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/pause"
)

// The breaker puts a circuit breaker before a store: while the store fails or is slow, calls fail at once
// instead of waiting.
//
// # Closed
//
// Calls go through and are counted. The breaker opens when calls fail in a row without an answer, as with a
// frozen or dead store, or when too large a share of the last second's calls failed or was slow
// (breakerConfig.Slow). A failure is a weir.ErrUnavailable. Caller errors are not failures: wrong input, a cancelled
// context, a deadline too short, unless the call took longer than that. A foreign value under one key and a lease that
// is gone are answers. Slow answers alone never count as a row of failures: this process may have been paused.
//
// Calls under way when a store freezes wait for the store's timeout, and so do calls that begin before the
// first of them ends: about as many as arrive within one timeout.
//
// # Open
//
// Calls fail with an openError. A background goroutine probes the store, one call at a time, less often the
// longer the outage lasts, with jitter. A probe charges a key, because a read-only replica and a server out of
// memory answer everything but writes. It uses 16 keys at random, so that in a Cluster not all probes go to one
// node. The keys are under the limit "weir.breaker" and expire after a second.
//
// # Half-open
//
// After a successful probe a random share of the calls is admitted, growing to all in 250 ms; the
// others fail as while open. If the admitted calls fail, the breaker opens again, and the interval between
// probes goes on growing.
//
// # Beside redisstore
//
// The timeout of redisstore bounds each call, hence the cost of a probe and the wait of callers before the
// breaker opens. Its own valve, which shuts after 256 abandoned calls in a row, is for programs without a
// breaker; behind a breaker it is seldom reached, and a probe opens it again.

// A breakerConfig configures the layer. Tests alone change the unexported fields.
type breakerConfig struct {
	// Slow is the duration that makes a call slow, which is a failure: more than 0, such as three quarters of
	// the store's timeout. (A fixed default would take a healthy but distant store for dead.) It bounds probes as well.
	// A caller with a shorter deadline gives no evidence about the store when it gives up.
	Slow time.Duration
	// Changed, if non-nil, receives each change of the state, sequentially. It runs during the change, possibly in a
	// caller's goroutine: it must be fast and must not close the store.
	Changed func(breakerChange)

	burst       int64         // failures in a row that open the breaker, if none is answered for as long as Slow
	first, most time.Duration // bounds of the interval between probes, which is jittered down to a half
	ramp        time.Duration // from the first successful probe until all calls are admitted
}

// The breaker opens when this share of the requests of a window failed, if there were at least so many. Below a half,
// the loss of one master of a Cluster of three would count as the loss of the whole.
const (
	failedShare     = 0.5
	failureWindow   = time.Second
	minFailureCalls = 20
)

// A breaker is a weir.Store before another, which it watches. It is safe for concurrent use, and no shortcut.
type breaker struct {
	next   weir.Store
	config breakerConfig
	born   time.Time
	phase  atomic.Pointer[phase]
	counts breakerCounts

	ctx    context.Context // for the probes
	cancel context.CancelFunc
	probed *weir.Limit
	prober sync.WaitGroup

	mu      sync.Mutex // serializes changes of the phase
	closed  bool
	down    time.Duration // when the outage began
	tripped chan struct{} // signals: opened while half-open; capacity 1
}

// newBreaker returns a breaker before next. Closing it closes next.
func newBreaker(next weir.Store, config breakerConfig) *breaker {
	config.burst = cmp.Or(config.burst, 5)
	config.first, config.most = cmp.Or(config.first, 50*time.Millisecond), cmp.Or(config.most, 500*time.Millisecond)
	config.ramp = cmp.Or(config.ramp, 250*time.Millisecond)
	b := &breaker{
		next: next, config: config, born: time.Now(), tripped: make(chan struct{}, 1),
		probed: weir.MustLimit("weir.breaker", weir.FixedWindow{Limit: weir.MaxUnits, Window: time.Second}),
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.phase.Store(b.letting(stateClosed))
	return b
}

// State returns the current state.
func (b *breaker) State() breakerState { return b.phase.Load().state }

// breakerStats are counters since New.
type breakerStats struct {
	Opened     int64 // transitions to Open, including those from HalfOpen
	TurnedAway int64 // requests that failed without a call
	Failed     int64 // admitted requests without an answer
	Slow       int64 // requests answered after breakerConfig.Slow
	Probes     int64
	ProbesLost int64 // probes that failed or took too long
}

type breakerCounts struct{ opened, turnedAway, failed, slow, probes, probesLost atomic.Int64 }

// Stats returns the counters.
func (b *breaker) Stats() breakerStats {
	c := &b.counts
	return breakerStats{Opened: c.opened.Load(), TurnedAway: c.turnedAway.Load(), Failed: c.failed.Load(),
		Slow: c.slow.Load(), Probes: c.probes.Load(), ProbesLost: c.probesLost.Load()}
}

// now is the time since New. time.Since reads one clock, time.Now two.
func (b *breaker) now() time.Duration { return time.Since(b.born) }

// enter admits a call, or returns the error that refuses it.
func (b *breaker) enter() (*phase, time.Duration, error) {
	t, now := b.phase.Load(), b.now()
	if t.state != stateClosed && !b.admits(t, now) {
		return t, now, t.refusal
	}
	return t, now, nil
}

// admits decides at random whether a half-open breaker admits a call.
func (b *breaker) admits(t *phase, now time.Duration) bool {
	return t.state == stateHalfOpen && rand.Int64N(int64(b.config.ramp)) < int64(now-t.began)
}

// A callOutcome counts the requests of one admitted call by their effect on the breaker.
type callOutcome struct {
	answered int64
	slow     int64 // answered, but later than breakerConfig.Slow
	lost     int64
	left     int64 // ended by their callers: no evidence about the store
	invalid  int64 // wrong input: no evidence either
	cause    error // error of the last lost request
}

// add counts one request.
func (b *breaker) add(ctx context.Context, o *callOutcome, err error) {
	switch {
	case err == nil, errors.Is(err, weir.ErrLeaseGone), errors.Is(err, weir.ErrForeignState):
		o.answered++
	case errors.Is(err, weir.ErrUnavailable) && !b.over(ctx):
		o.lost++
		o.cause = err
	case errors.Is(err, weir.ErrUnavailable):
		o.left++
	default:
		o.invalid++
	}
}

// over reports whether a context has ended. Connections have the same deadline and may end slightly earlier.
func (b *breaker) over(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(end)
}

// late corrects an outcome for a call that took at least breakerConfig.Slow: abandoned requests count as lost. In a
// batch with lost requests, the answered ones do not count as slow, because the time of each answer is unknown: if
// they did, a frozen node of a Cluster would have the callers of the two others refused.
func (o *callOutcome) late(took, slow time.Duration) {
	if o.lost+o.left == 0 {
		o.slow, o.answered = o.answered, 0
	}
	o.lost += o.left + o.invalid
	o.left, o.invalid = 0, 0
	if o.cause == nil {
		o.cause = &slowError{took, slow}
	}
}

// leave counts the outcome of an admitted call in the phase of its beginning: a late answer is no evidence
// of the current state of the store.
func (b *breaker) leave(t *phase, began time.Duration, o callOutcome) {
	now := b.now()
	if took := now - began; took >= b.config.Slow {
		o.late(took, b.config.Slow)
	}
	if o.slow+o.lost > 0 {
		b.counts.slow.Add(o.slow)
		b.counts.failed.Add(o.lost)
	}
	if t.tally.count(now, began, &b.config, &o) {
		b.trip(t, o.cause)
	}
}

// breakerState is the state of a breaker. The larger, the worse.
type breakerState uint8

const (
	stateClosed   breakerState = iota // calls go through
	stateHalfOpen                     // a growing share goes through, the others fail at once
	stateOpen                         // calls fail at once
)

// String is "closed", "half-open" or "open".
func (s breakerState) String() string { return [...]string{"closed", "half-open", "open"}[s] }

// A breakerChange is a transition, as the observer receives it.
type breakerChange struct {
	From, To breakerState
	At       time.Time
	Cause    error // of opening: the last failure; otherwise nil
}

// An openError is the error of a refused call. It is a weir.ErrUnavailable, and the call was not executed. Many
// calls share one value.
type openError struct {
	Next  time.Time // the next probe; zero: the breaker is half-open
	Cause error     // the last failure; not unwrapped, since its context was another call's
}

// Error says when the store is probed next, and names the last failure.
func (e *openError) Error() string {
	what := "is half-open and admits a growing share of calls"
	if !e.Next.IsZero() {
		what = fmt.Sprintf("is open and probes the store again in %v",
			max(0, time.Until(e.Next)).Round(time.Millisecond))
	}
	return fmt.Sprintf("%v (the call was not executed): the circuit breaker %s; it opened because of: %v",
		weir.ErrUnavailable, what, e.Cause)
}

// Unwrap implements errors.Is.
func (e *openError) Unwrap() []error { return []error{weir.ErrUnavailable, weir.ErrNotExecuted} }

// A slowError is the cause of an opening without any failed call.
type slowError struct{ took, slow time.Duration }

func (e *slowError) Error() string {
	return fmt.Sprintf("a call took %v, and %v or more is slow", e.took.Round(time.Microsecond), e.slow)
}

// A phase lasts from one change of the state to the next. While the breaker is open, each probe begins one.
type phase struct {
	state   breakerState
	began   time.Duration // since New
	wait    time.Duration // Open: until the next probe
	refusal error         // unless Closed: an *OpenError
	tally   tally
}

// tallySlices is the number of parts of the window that are counted and forgotten separately.
const tallySlices = 8

// A tally counts the outcomes of a phase. At the start of a slice, a concurrent count may be lost.
type tally struct {
	row    atomic.Int64 // requests begun and lost since the last answer
	well   atomic.Int64 // approximate time of the last answer, ns since New
	slices [tallySlices]tallySlice
}

type tallySlice struct{ turn, answered, failed atomic.Int64 }

// at returns the slice for now, emptied if it is of an earlier turn.
func (y *tally) at(now, width time.Duration) *tallySlice {
	turn := int64(now/width) + 1 // 0: never used
	s := &y.slices[turn%tallySlices]
	if old := s.turn.Load(); old < turn && s.turn.CompareAndSwap(old, turn) {
		s.answered.Store(0)
		s.failed.Store(0)
	}
	return s
}

// count adds an outcome and reports whether the breaker should open.
func (y *tally) count(now, began time.Duration, c *breakerConfig, o *callOutcome) bool {
	s := y.at(now, failureWindow/tallySlices)
	if o.answered > 0 {
		s.answered.Add(o.answered)
	}
	if o.answered+o.slow > 0 {
		y.answeredAt(now, c)
	}
	if o.lost+o.slow == 0 {
		return false
	}
	s.failed.Add(o.lost + o.slow)
	return o.lost > 0 && y.silent(now, began, c, o.lost) || y.bad(now)
}

// answeredAt notes an answer. It writes seldom: a write for each call would bounce the cache line between cores.
func (y *tally) answeredAt(now time.Duration, c *breakerConfig) {
	if y.row.Load() != 0 {
		y.row.Store(0)
	}
	if int64(now)-y.well.Load() > int64(c.Slow/16) {
		y.well.Store(int64(now))
	}
}

// silent reports whether failures alone prove the store dead: a row of them, of calls begun after the last
// answer, and no answer for as long as breakerConfig.Slow. The row alone does not prove it: calls to a lost node of a
// Cluster end together at their timeout, while calls to other nodes are answered.
func (y *tally) silent(now, began time.Duration, c *breakerConfig, lost int64) bool {
	well := y.well.Load()
	return int64(began) >= well && y.row.Add(lost) >= c.burst && int64(now)-well >= int64(c.Slow)
}

// bad reports whether too large a share of the window failed.
func (y *tally) bad(now time.Duration) bool {
	answered, failed := y.sum(now, failureWindow/tallySlices)
	return answered+failed >= minFailureCalls && float64(failed) >= failedShare*float64(answered+failed)
}

func (y *tally) sum(now, width time.Duration) (answered, failed int64) {
	oldest := int64(now/width) + 1 - tallySlices
	for i := range y.slices {
		if s := &y.slices[i]; s.turn.Load() > oldest {
			answered += s.answered.Load()
			failed += s.failed.Load()
		}
	}
	return answered, failed
}

func (b *breaker) Decide(ctx context.Context, claims []weir.Claim, times int64,
	decisions []weir.Decision) (granted int64, err error) {
	err = b.call(ctx, claims, times, decisions, func() (err error) {
		granted, err = b.next.Decide(ctx, claims, times, decisions)
		return err
	})
	return granted, err
}

func (b *breaker) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	return b.call(ctx, claims, 1, decisions, func() error { return b.next.Charge(ctx, claims, decisions) })
}

func (b *breaker) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant,
	decisions []weir.Decision) error {
	called := false
	err := b.call(ctx, claims, 1, decisions, func() error {
		called = true
		return b.next.Refund(ctx, claims, takenAt, decisions)
	})
	if !called && errors.Is(err, weir.ErrUnavailable) {
		b.releaseLater(claims, takenAt)
	}
	return err
}

// endedContext is a context that has ended.
var endedContext = func() context.Context {
	ctx, end := context.WithCancel(context.Background())
	end()
	return ctx
}()

// releaseLater tells the store below of leases that were not released: the store makes no call in a context that has
// ended, and releases them in the background.
func (b *breaker) releaseLater(claims []weir.Claim, takenAt weir.Instant) {
	for i := range claims {
		if claims[i].Renew { // the call depends on it: its caller repeats it
			return
		}
	}
	for i := range claims {
		if claims[i].Lease != "" {
			b.next.Refund(endedContext, claims[i:i+1:i+1], takenAt, nil)
		}
	}
}

func (b *breaker) Reset(ctx context.Context, claims []weir.Claim) error {
	return b.call(ctx, claims, 0, nil, func() error { return b.next.Reset(ctx, claims) })
}

// Close stops the probes and closes the next store.
func (b *breaker) Close() error {
	b.stop()
	return b.next.Close()
}

// call makes a call of one request, or refuses it. Wrong input stays wrong input: gates answer in place of an
// unavailable store, and a client must not be able to provoke that.
func (b *breaker) call(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision,
	next func() error) error {
	t, began, away := b.enter()
	if away != nil {
		if err := weir.Check(claims, times, decisions); err != nil {
			return err
		}
		b.counts.turnedAway.Add(1)
		return away
	}
	err := next()
	var o callOutcome
	b.add(ctx, &o, err)
	b.leave(t, began, o)
	return err
}

// DecideBatch implements weir.Batcher. A batch is admitted as a whole or not at all; each of its requests counts.
func (b *breaker) DecideBatch(ctx context.Context, requests []weir.Request) {
	t, began, away := b.enter()
	if away != nil {
		b.turnAwayAll(requests, away)
		return
	}
	decideBatch(ctx, b.next, requests)
	var o callOutcome
	for i := range requests {
		b.add(ctx, &o, requests[i].Err)
	}
	b.leave(t, began, o)
}

func (b *breaker) turnAwayAll(requests []weir.Request, away error) {
	for i := range requests {
		r := &requests[i]
		if r.Granted, r.Err = 0, r.Check(); r.Err == nil {
			r.Err = away
			b.counts.turnedAway.Add(1)
		}
	}
}

// trip opens the breaker, unless the phase of the evidence has ended.
func (b *breaker) trip(t *phase, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.phase.Load() != t || b.closed {
		return
	}
	if t.state == stateHalfOpen {
		b.change(b.opening(cause), cause)
		b.tripped <- struct{}{}
		return
	}
	b.down = b.now()
	b.change(b.opening(cause), cause)
	b.prober.Go(b.tend)
}

// probeRatio divides the length of the outage so far to give the interval until the next probe: recovery is
// noticed late by at most that part of the outage. With intervals that double, it would be a third.
const probeRatio = 20

// opening returns a phase that lasts until the next probe. The jitter keeps nodes that lost the store together
// from returning together. A successful probe followed by failing calls does not restart the intervals.
func (b *breaker) opening(cause error) *phase {
	now := b.now()
	most := min(max(b.config.first, (now-b.down)/probeRatio), b.config.most)
	wait := most/2 + time.Duration(rand.Int64N(int64(most/2+1)))
	refusal := &openError{Next: time.Now().Add(wait), Cause: cause}
	return &phase{state: stateOpen, began: now, wait: wait, refusal: refusal}
}

// change begins a phase. The caller holds mu.
func (b *breaker) change(to *phase, cause error) {
	from := b.phase.Load().state
	b.phase.Store(to)
	if from == to.state {
		return
	}
	if to.state == stateOpen {
		b.counts.opened.Add(1)
	}
	if b.config.Changed != nil {
		b.config.Changed(breakerChange{From: from, To: to.state, At: time.Now(), Cause: cause})
	}
}

// tend probes an open breaker until it is closed.
func (b *breaker) tend() {
	for b.ctx.Err() == nil && pause.For(b.phase.Load().wait, b.ctx.Done()) {
		if err := b.probe(); err != nil {
			b.stayOpen(err)
		} else if b.close() {
			return
		}
	}
}

// probeKeys is large enough that each node of a Cluster probably has one.
const probeKeys = 16

// probe charges, because a peek only proves that the store can be read.
func (b *breaker) probe() error {
	b.counts.probes.Add(1)
	ctx, cancel := context.WithTimeout(b.ctx, b.config.Slow)
	defer cancel()
	key := "probe-" + strconv.FormatInt(rand.Int64N(probeKeys), 10)
	claim := weir.Claim{Key: key, Limit: b.probed, Cost: 1}
	began := b.now()
	err := b.next.Charge(ctx, []weir.Claim{claim}, nil)
	switch took := b.now() - began; {
	case errors.Is(err, weir.ErrUnavailable):
	case took >= b.config.Slow:
		err = &slowError{took, b.config.Slow}
	default:
		return nil
	}
	b.counts.probesLost.Add(1)
	return err
}

func (b *breaker) stayOpen(cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.change(b.opening(cause), cause)
	}
}

// close admits a growing share of calls. It returns false if the breaker opened again meanwhile.
func (b *breaker) close() bool {
	t := b.beginHalfOpen()
	ramp, cancel := context.WithTimeout(b.ctx, b.config.ramp)
	defer cancel()
	select {
	case <-ramp.Done():
	case <-b.tripped:
		return false
	}
	if b.ctx.Err() != nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return true
	case b.phase.Load() != t: // opened just before the lock
		<-b.tripped
		return false
	}
	b.change(b.letting(stateClosed), nil)
	return true
}

func (b *breaker) beginHalfOpen() *phase {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.letting(stateHalfOpen)
	if !b.closed {
		last, _ := b.phase.Load().refusal.(*openError)
		t.refusal = &openError{Cause: last.Cause}
		b.change(t, nil)
	}
	return t
}

// letting returns a phase that admits calls.
func (b *breaker) letting(state breakerState) *phase {
	t := &phase{state: state, began: b.now()}
	t.tally.well.Store(int64(t.began))
	return t
}

// stop ends the probes. Calls go through, to a closed store that returns its own error.
func (b *breaker) stop() {
	b.mu.Lock()
	b.closed = true
	b.phase.Store(b.letting(stateClosed))
	b.mu.Unlock()
	b.cancel()
	b.prober.Wait()
}
