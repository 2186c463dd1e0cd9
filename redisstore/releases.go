package redisstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redisconn"
)

const (
	maxReleases    = 10_000
	maxReleaseKeys = 16 << 20 // bytes of keys and members
	releasesAtOnce = 64

	firstPause = 25 * time.Millisecond // after a release that was not answered
	lastPause  = 500 * time.Millisecond

	// An acquire that was sent on another connection is surely read this long after Redis has answered its release.
	minOvertaking = 100 * time.Millisecond
	maxOvertaking = 500 * time.Millisecond

	lastReleases = time.Second // that Close waits for at most
)

// releases finishes failed calls in the background: it releases the lease of an acquire with an unknown outcome, and a
// lease that was not released. To release a lease by its id is idempotent. Otherwise its units would stay held until
// the time-to-live is over.
//
// A release may overtake its acquire, if they are on different connections. So the answer that such a lease is gone
// counts only if Redis repeats it a while later.
type releases struct {
	send    func(context.Context, weir.Claim) error
	patient time.Duration // between the two answers

	mu     sync.Mutex
	queue  []release
	again  []release // to be sent again at release.at, in this order
	bytes  int       // in both: see release.bytes
	closed bool
	ended  chan struct{} // of the goroutine that runs while there are releases; nil: none runs
	wake   chan struct{} // of one element: something is in the queue
	up     chan struct{} // of one element: Redis has answered another call
	stop   chan struct{} // closed by close

	pending, done, lost atomic.Int64
}

// A release is one lease that may still be held without a user.
type release struct {
	claim  weir.Claim
	until  time.Time // then it has expired by itself
	unsure bool      // of an acquire that Redis may read later than its release
	at     time.Time
}

// bytes is the length of the texts that have no small bound.
func (r *release) bytes() int { return len(r.claim.Key) + len(r.claim.Member) }

func newReleases(timeout time.Duration, send func(context.Context, weir.Claim) error) *releases {
	patient := min(max(2*timeout, minOvertaking), maxOvertaking)
	return &releases{send: send, patient: patient,
		wake: make(chan struct{}, 1), up: make(chan struct{}, 1), stop: make(chan struct{})}
}

// answered ends the pause after a release that was not answered.
func (r *releases) answered() {
	if r.pending.Load() > 0 {
		signal(r.up)
	}
}

func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// leftover notes the leases of a call that failed.
func (r *releases) leftover(c *call) {
	unsure := c.takes() && perhapsExecuted(c.err)
	if !unsure && !(c.gives() && errors.Is(c.err, weir.ErrUnavailable)) {
		return
	}
	for i := range c.claims {
		claim := c.claims[i]
		if claim.Lease != "" && !claim.Renew && !(unsure && claim.OwnLease) {
			r.add(claim, unsure)
		}
	}
}

// takes reports whether the call may have taken leases.
func (c *call) takes() bool {
	return c.op == opTake || c.op == opCharge || (c.op == opTimes || c.op == opBatch) && c.times > 0
}

// gives reports whether the call releases leases, and takes no lease. Its caller repeats one that does.
func (c *call) gives() bool {
	depends := func(claim weir.Claim) bool { return claim.Renew }
	return (c.op == opRefund || c.op == opCancel) && !slices.ContainsFunc(c.claims, depends)
}

func perhapsExecuted(err error) bool {
	var answer *redisconn.ServerError // Redis did nothing
	return errors.Is(err, weir.ErrUnavailable) && !errors.Is(err, weir.ErrNotExecuted) && !errors.As(err, &answer)
}

// add queues a release. The claim's texts are copied: callers reuse their memory.
func (r *releases) add(claim weir.Claim, unsure bool) {
	ttl := time.Duration(claim.Limit.Period()) * time.Microsecond
	claim.Key, claim.Lease = strings.Clone(claim.Key), strings.Clone(claim.Lease)
	claim.Member, claim.Delay = strings.Clone(claim.Member), 0
	one := release{claim: claim, until: time.Now().Add(ttl), unsure: unsure}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.pending.Load() >= maxReleases || r.bytes+one.bytes() > maxReleaseKeys {
		r.lost.Add(1)
		return
	}
	r.pending.Add(1)
	r.bytes += one.bytes()
	r.queue = append(r.queue, one)
	if r.ended == nil {
		r.ended = make(chan struct{})
		go r.run(r.ended)
	}
	signal(r.wake)
}

// run sends releases until the list is empty. While Redis does not answer it sends one at a time, at growing intervals.
func (r *releases) run(ended chan struct{}) {
	defer close(ended)
	most, pause := releasesAtOnce, firstPause
	for {
		some, wait := r.next(most)
		switch {
		case len(some) > 0 && r.all(context.Background(), some):
			most, pause = releasesAtOnce, firstPause
		case len(some) > 0:
			most = 1
			r.pause(pause, r.up)
			pause = min(2*pause, lastPause)
		case wait > 0:
			r.pause(wait, r.wake)
		default:
			return
		}
	}
}

// pause waits, at most until close is called or there is a value in early.
func (r *releases) pause(d time.Duration, early <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-early:
	case <-r.stop:
	}
}

// next takes at most so many releases that are due, or tells how long to wait for one. If both are zero, the goroutine
// of run must end.
func (r *releases) next(most int) (some []release, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for len(r.again) > 0 && (r.closed || !r.again[0].at.After(now)) {
		r.queue, r.again = append(r.queue, r.again[0]), r.again[1:]
	}
	switch {
	case r.closed && len(r.queue) > 0: // the last time: see close
		return nil, 0
	case len(r.queue) > 0:
		n := min(most, len(r.queue))
		some, r.queue = r.queue[:n:n], r.queue[n:]
	case len(r.again) > 0:
		wait = r.again[0].at.Sub(now)
	default:
		r.queue, r.again, r.ended = nil, nil, nil
	}
	return some, wait
}

// all sends releases at the same time. It reports whether Redis answered all of them.
func (r *releases) all(ctx context.Context, some []release) bool {
	var wait sync.WaitGroup
	var silent atomic.Bool
	for _, one := range some {
		wait.Go(func() {
			err := r.send(ctx, one.claim)
			if errors.Is(err, weir.ErrUnavailable) {
				silent.Store(true)
			}
			r.sent(one, err)
		})
	}
	wait.Wait()
	return !silent.Load()
}

// sent ends a release, or queues it again.
func (r *releases) sent(one release, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	switch {
	case errors.Is(err, weir.ErrUnavailable) && now.Before(one.until):
		r.queue = append(r.queue, one)
		return
	case errors.Is(err, weir.ErrLeaseGone) && one.unsure:
		one.unsure, one.at = false, now.Add(r.patient)
		r.again = append(r.again, one)
		return
	case err == nil || errors.Is(err, weir.ErrLeaseGone):
		r.done.Add(1)
	default:
		r.lost.Add(1)
	}
	r.pending.Add(-1)
	r.bytes -= one.bytes()
}

// close sends the remaining releases a last time.
func (r *releases) close(timeout time.Duration) {
	r.mu.Lock()
	r.closed = true
	ended := r.ended
	r.mu.Unlock()
	close(r.stop)
	if ended == nil {
		return
	}
	<-ended
	ctx, cancel := context.WithTimeout(context.Background(), min(timeout, lastReleases))
	defer cancel()
	left := r.queue // nobody else has it
	r.queue = nil
	for i := range left {
		left[i].unsure = false
	}
	for some := range slices.Chunk(left, releasesAtOnce) {
		r.all(ctx, some)
	}
	r.lost.Add(r.pending.Swap(0))
}
