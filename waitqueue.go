package weir

import (
	"container/list"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

const (
	// maxDirect is how many callers of a key ask the store at once, separately, before the
	// first refusal. Further callers queue.
	maxDirect = 64

	// maxTogether is how many waiters one call of the store asks for.
	maxTogether = 1024

	// firstPause and lastPause are between two calls while the store fails, or while a concurrency
	// limit refuses: its Retry-After is an upper bound, as a holder may release at any time.
	firstPause = 10 * time.Millisecond
	lastPause  = 500 * time.Millisecond

	// failing is how long calls may fail one after the other before the callers get the error.
	failing = time.Second
)

// waiters are a limiter's queues, one for each key that callers wait or ask for.
type waiters struct {
	mu     sync.Mutex // guards all queues
	queues map[string]*queue
	spare  *queue // an unused one, so that a Wait that is granted at once allocates little
}

// A queue holds the callers that wait for one key, in order of arrival.
//
// While the queue is empty, a caller asks the store itself. The first refused caller joins the
// queue, and so do all later ones. While there are waiters, one goroutine (run) sleeps until
// the store's retry-after, asks in one call for as many of the first waiters as have equal
// costs, ends the wait of the granted ones, and repeats. Each answer also predicts when
// waiters come first: waiters with an earlier end of their context are refused at once.
type queue struct {
	limiter *Limiter
	key     string
	direct  int // callers between enter and leave or join

	waiters list.List // of *waiter
	units   []int64   // for each limit, the sum of the waiters' costs
	running bool
	changed chan struct{} // of one element: the first waiter has changed, or the key was reset

	answer  Answer    // the store's last one
	request costs     // the costs it was given for
	ready   time.Time // when one more such request would be granted; zero: unknown

	again  time.Time     // the next call is not before this time
	pause  time.Duration // that led to it
	failed time.Time     // the first failed call since the store's last answer; zero: none
}

// A waiter is a caller in a queue.
type waiter struct {
	ctx   context.Context
	costs costs
	place *list.Element
	done  chan outcome // of one element, sent under waiters.mu as the waiter leaves the queue
}

// An outcome is how waiting ends. The reservation is nil where there is neither a delay nor a lease.
type outcome struct {
	reservation *Reservation
	err         error
}

// enter is the queue of a key. If direct is true the caller asks the store itself, then calls
// leave or wait; otherwise it calls wait.
func (w *waiters) enter(l *Limiter, key string) (q *queue, direct bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q = w.queues[key]; q == nil {
		q = w.unused(l)
		q.key = key
		w.queues[key] = q
	}
	q.direct++ // also of a caller that will wait: the queue must not be dropped meanwhile
	return q, q.waiters.Len() == 0 && q.direct <= maxDirect
}

func (w *waiters) unused(l *Limiter) *queue {
	if q := w.spare; q != nil {
		w.spare = nil
		return q
	}
	return &queue{limiter: l, units: make([]int64, len(l.limits)), changed: make(chan struct{}, 1)}
}

// reset drops the prediction of a key, so that the store is asked again for its first waiter.
func (w *waiters) reset(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q := w.queues[key]; q != nil {
		q.ready = time.Time{}
		q.wake()
	}
}

// freed ends the pause of a queue, because a holder has released units.
func (w *waiters) freed(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q := w.queues[key]; q != nil && q.failed.IsZero() {
		q.again, q.pause = time.Time{}, 0
		q.wake()
	}
}

// leave ends asking directly.
func (q *queue) leave() {
	q.limiter.waiters.mu.Lock()
	defer q.limiter.waiters.mu.Unlock()
	q.direct--
	q.dropUnused()
}

func (q *queue) dropUnused() {
	if q.direct == 0 && q.waiters.Len() == 0 && !q.running {
		delete(q.limiter.waiters.queues, q.key)
		q.key, q.ready, q.again, q.pause, q.failed = "", time.Time{}, time.Time{}, 0, time.Time{}
		q.limiter.waiters.spare = q
	}
}

// wait joins the queue and returns when the units are granted or the context is over. refusal
// is the store's answer to a caller that asked directly, else nil.
func (q *queue) wait(ctx context.Context, c costs, refusal *Answer) (*Reservation, error) {
	w := &waiter{ctx: ctx, costs: c, done: make(chan outcome, 1)}
	if err := q.join(w, refusal); err != nil {
		return nil, err
	}
	var end outcome
	select {
	case end = <-w.done:
	case <-ctx.Done():
		end = q.abandon(w)
	}
	return sleepDelay(ctx, end.reservation, end.err)
}

func (q *queue) join(w *waiter, refusal *Answer) error {
	q.limiter.waiters.mu.Lock()
	defer q.limiter.waiters.mu.Unlock()
	q.direct--
	if refusal != nil && q.waiters.Len() == 0 {
		q.predict(refusal, w.costs)
	}
	if err := q.tooLate(w, q.units); err != nil {
		q.dropUnused()
		return err
	}
	w.place = q.waiters.PushBack(w)
	q.count(w, 1)
	if !q.running {
		q.running = true
		go q.run()
	}
	return nil
}

// abandon removes a waiter when its context is over, unless its outcome came at that moment.
func (q *queue) abandon(w *waiter) outcome {
	q.limiter.waiters.mu.Lock()
	defer q.limiter.waiters.mu.Unlock()
	select {
	case end := <-w.done:
		return end
	default:
		q.remove(w)
		return outcome{err: w.ctx.Err()}
	}
}

func (q *queue) first() *waiter {
	if front := q.waiters.Front(); front != nil {
		return front.Value.(*waiter)
	}
	return nil
}

func (q *queue) remove(w *waiter) {
	if w.place == q.waiters.Front() {
		q.wake()
	}
	q.waiters.Remove(w.place)
	q.count(w, -1)
}

func (q *queue) count(w *waiter, sign int64) {
	for i := range q.units {
		q.units[i] += sign * w.costs.of(i)
	}
}

func (q *queue) end(w *waiter, end outcome) {
	q.remove(w)
	w.done <- end
}

// wake ends a pause of run.
func (q *queue) wake() {
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

// run asks for the waiters until the queue is empty.
func (q *queue) run() {
	for {
		ctx, c, times, wait := q.next()
		switch {
		case times == 0:
			return
		case wait > 0:
			pause(wait, q.changed)
		default:
			q.ask(ctx, c, times)
		}
	}
}

// next is the next request: the costs of the first waiter, and times, how many waiters in a
// row have the same; and how long to wait before it is sent. times = 0: there is no waiter.
// The request does not end with its caller's context, because others depend on it.
func (q *queue) next() (ctx context.Context, c costs, times int64, wait time.Duration) {
	q.limiter.waiters.mu.Lock()
	defer q.limiter.waiters.mu.Unlock()
	first := q.first()
	if first == nil {
		q.running = false
		q.dropUnused()
		return nil, nil, 0, 0
	}
	most := min(q.limiter.maxTimes(first.costs), maxTogether)
	if !q.failed.IsZero() {
		most = 1 // a call without an answer may have charged for all
	}
	for e := first.place; e != nil && times < most && slices.Equal(e.Value.(*waiter).costs, first.costs); e = e.Next() {
		times++
	}
	if first.costs.cover(q.request) {
		wait = time.Until(q.ready)
	}
	wait = max(wait, time.Until(q.again))
	return context.WithoutCancel(first.ctx), first.costs, times, wait
}

// maxTimes is how many requests of these costs one call may ask for: as many as can be granted
// at once. Where a grant may have a delay or a lease it is one, because each has its own.
func (l *Limiter) maxTimes(c costs) int64 {
	most := int64(MaxUnits)
	for i, limit := range l.limits {
		if limit.lends() || limit.Leases() {
			return 1
		}
		if n := c.of(i); n > 0 {
			most = min(most, limit.capacity/n)
		}
	}
	return most
}

// ask asks the store for the first waiters, and ends the wait of the granted ones.
func (q *queue) ask(ctx context.Context, c costs, times int64) {
	l := q.limiter
	call, lease := l.newCall(), ""
	if l.holds() {
		lease = NewLeaseID()
	}
	call.fill(q.key, c, lease)
	sent := l.sinceStart()
	granted, err := l.store.Decide(ctx, call.claims, times, call.decisions)
	if err != nil {
		q.fail(err)
		return
	}
	if unused := granted - q.answered(call, c, granted, sent); unused > 0 { // of callers that have gone
		l.reservation(call, c.times(unused), sent).Cancel(ctx)
	}
}

// fail leaves the callers waiting for a while if the store may answer again. Then it ends all waits
// with the store's error: a call for each would only repeat it.
func (q *queue) fail(err error) {
	q.limiter.waiters.mu.Lock()
	defer q.limiter.waiters.mu.Unlock()
	if q.failed.IsZero() {
		q.failed, q.pause = time.Now(), 0
	}
	if errors.Is(err, ErrUnavailable) && time.Since(q.failed) < failing {
		q.back()
		return
	}
	q.failed, q.again, q.pause = time.Time{}, time.Time{}, 0
	for w := q.first(); w != nil; w = q.first() {
		q.end(w, outcome{err: err})
	}
}

// back puts the next call off for longer than the last one, and at another moment than other processes.
func (q *queue) back() {
	q.pause = min(max(2*q.pause, firstPause), lastPause)
	q.again = time.Now().Add(q.pause/2 + rand.N(q.pause/2))
}

// answered ends the wait of up to granted waiters, and of waiters now known to wait in
// vain. It returns how many were granted.
func (q *queue) answered(call *call, c costs, granted int64, sent time.Duration) (ended int64) {
	var answer Answer
	call.answer(&answer)
	q.limiter.waiters.mu.Lock()
	defer q.limiter.waiters.mu.Unlock()
	if granted == 0 && answer.RetryAfter == 0 {
		answer.RetryAfter = time.Millisecond // no correct store does this; do not spin on one that does
	}
	unknown := q.ready.IsZero()
	if q.failed = (time.Time{}); granted > 0 {
		q.pause = 0
	}
	q.predict(&answer, c)
	first := q.firstOf(c)
	for ; ended < granted && first != nil; first = q.firstOf(c) {
		var end outcome
		if answer.Delay > 0 || q.limiter.holds() {
			end.reservation = q.limiter.reservation(call, c, sent)
		}
		q.end(first, end)
		ended++
	}
	if granted == 0 && answer.RetryAfter == Never && first != nil {
		q.end(first, outcome{err: &RefusedError{Answer: answer}})
	}
	q.refuseLate(unknown)
	return ended
}

// firstOf is the first waiter if its costs are these. It may have left while the store was asked.
func (q *queue) firstOf(c costs) *waiter {
	if w := q.first(); w != nil && slices.Equal(w.costs, c) {
		return w
	}
	return nil
}

// predict notes the store's answer to a request of costs c.
func (q *queue) predict(answer *Answer, c costs) {
	q.answer, q.request, q.ready, q.again = *answer, c, time.Time{}, time.Time{}
	switch {
	case answer.RetryAfter == Never:
	case answer.RetryAfter > 0 && answer.Limit.Leases():
		q.back()
	default:
		q.ready, q.pause = time.Now().Add(answer.RetryAfter), 0
	}
}

// refuseLate ends the wait of the first waiters with a context that would end before their turn; of
// all such waiters, if all is true. Later ones were checked when they joined.
func (q *queue) refuseLate(all bool) {
	ahead := make([]int64, len(q.units))
	for e := q.waiters.Front(); e != nil; {
		w := e.Value.(*waiter)
		e = e.Next()
		if err := q.tooLate(w, ahead); err != nil {
			q.end(w, outcome{err: err})
			continue
		}
		if !all {
			return
		}
		for i := range ahead {
			ahead[i] += w.costs.of(i)
		}
	}
}

// tooLate is a refusal if w's context would end before its turn, with ahead units for each limit
// to be granted before it.
func (q *queue) tooLate(w *waiter, ahead []int64) error {
	if _, ok := w.ctx.Deadline(); !ok || q.ready.IsZero() {
		return nil
	}
	limit := q.answer.Limit
	i := slices.Index(q.limiter.limits, limit)
	missing := ahead[i] + w.costs.of(i) - q.request.of(i)
	if missing < 0 || q.answer.RetryAfter == 0 || q.answer.RetryAfter == Never {
		return nil
	}
	// At ready the limit has the units of the last request. A bucket refills the missing ones
	// evenly; of other limits it is not known when they have them.
	turn := q.ready
	if limit.Refills() && !limit.step {
		wait, _ := limit.interval.Times(missing)
		turn = turn.Add(time.Duration(min(wait, MaxUnits)) * time.Microsecond)
	}
	return tooLong(w.ctx, q.answer, max(0, time.Until(turn)+time.Microsecond-1).Truncate(time.Microsecond))
}
