package weir

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Wait waits until one unit is granted, and until what it borrowed is repaid.
func (l *Limiter) Wait(ctx context.Context, key string) error { return l.WaitN(ctx, key, 1) }

// WaitN waits until n units are granted, and until what they borrowed is repaid. If the
// context ends first, nothing stays charged; if it would end before the wait is over, as far as
// that is known, WaitN fails at once. The error is a *RefusedError ([ErrNever], [ErrTooLong]),
// the context's, or the store's.
//
// Callers of one Limiter that wait for the same key are served in the order of their coming: a
// large n is not overtaken by small ones. One of them asks the store for all. Several limiters
// and several processes compete, and so do Allow and its kin, which do not wait.
//
// A limiter with a concurrency limit cannot wait: what it held would have no owner to release it.
func (l *Limiter) WaitN(ctx context.Context, key string, n int64) error {
	return l.wait(ctx, key, costs{n})
}

// WaitEach is WaitN with a cost for each limit, in the order of Limits.
func (l *Limiter) WaitEach(ctx context.Context, key string, cost ...int64) error {
	if err := l.checkEach(cost); err != nil {
		return err
	}
	return l.wait(ctx, key, slices.Clone(cost))
}

func (l *Limiter) wait(ctx context.Context, key string, c costs) error {
	if l.holds() {
		return invalid("limits", "a concurrency limit", "limits without leases to wait; use Acquire")
	}
	if err := ctx.Err(); err != nil { // before a unit is taken in vain
		return err
	}
	if !l.fits(c) { // nobody should wait behind what cannot be granted
		return l.reserveNow(ctx, key, c)
	}
	q, mayAsk := l.waiters.enter(l, key)
	if !mayAsk {
		return q.wait(ctx, c)
	}
	reservation, answer, err := l.askOnce(ctx, key, c)
	if err == nil && !answer.Allowed && answer.RetryAfter != Never {
		return q.refused(ctx, c, &answer)
	}
	q.leave()
	switch {
	case err != nil:
		return err
	case !answer.Allowed:
		return &RefusedError{Answer: answer}
	case reservation == nil:
		return nil
	}
	return l.sleepReserved(ctx, reservation)
}

// askOnce asks for a request. It makes a reservation only where there may be a delay.
func (l *Limiter) askOnce(ctx context.Context, key string, c costs) (*Reservation, Answer, error) {
	if len(c) == 1 && !slices.ContainsFunc(l.limits, (*Limit).lends) {
		answer, err := l.decide(ctx, key, c[0])
		return nil, answer, err
	}
	reservation, err := l.reserve(ctx, key, c)
	var refused *RefusedError
	switch {
	case err == nil:
		return reservation, reservation.answer, nil
	case errors.As(err, &refused):
		return nil, refused.Answer, nil
	}
	return nil, Answer{}, err
}

// lends reports whether what is granted may have to wait.
func (l *Limit) lends() bool { return l.overdraft > 0 }

// fits reports whether the limits can ever grant the costs.
func (l *Limiter) fits(c costs) bool {
	for i, limit := range l.limits {
		if n := c.of(i); n < 0 || n > limit.Most() {
			return false
		}
	}
	return true
}

func (l *Limiter) reserveNow(ctx context.Context, key string, c costs) error {
	reservation, err := l.reserve(ctx, key, c)
	if err != nil {
		return err
	}
	return l.sleepReserved(ctx, reservation)
}

// sleepReserved sleeps the delay of what was granted; if it cannot, it gives it back.
func (l *Limiter) sleepReserved(ctx context.Context, r *Reservation) error {
	if r.answer.Delay == 0 {
		return nil
	}
	err := sleep(ctx, r.answer)
	if err != nil {
		// The context may be over: the unit is given back all the same.
		err = errors.Join(err, r.Cancel(context.WithoutCancel(ctx)))
	}
	return err
}

// sleep waits out answer.Delay, or fails at once if the context would end before.
func sleep(ctx context.Context, answer Answer) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := inTime(ctx, answer, answer.Delay); err != nil {
		return err
	}
	timer := time.NewTimer(answer.Delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// inTime refuses where the context would end before the wait does.
func inTime(ctx context.Context, answer Answer, wait time.Duration) error {
	deadline, ok := ctx.Deadline()
	if !ok || time.Until(deadline) > wait { // at its deadline a context is over
		return nil
	}
	answer.Allowed, answer.RetryAfter = false, wait
	return &RefusedError{Answer: answer, cause: errors.Join(ErrTooLong, context.DeadlineExceeded)}
}

// mostAsking is how many callers of a key ask the store at once, each for itself, while none
// was refused; those that come then wait, and are asked for together.
const mostAsking = 64

// mostTogether is how many callers are asked for by one call.
const mostTogether = 1024

// waiters are the queues of a limiter, one for each key of which somebody waits or asks.
type waiters struct {
	mu     sync.Mutex // guards all queues
	queues map[string]*queue
	spare  *queue // one that is not used, so that a wait that need not wait allocates little
}

// A queue is the callers that wait for a key, in the order of their coming. While there are
// some, a goroutine asks the store for the first of them, and sleeps when it refuses.
type queue struct {
	limiter *Limiter
	key     string
	asking  int // callers that ask for themselves

	first, last *waiter
	units       []int64 // of each limit, that the waiters want
	running     bool
	changed     chan struct{} // the first waiter is another one, or may be granted sooner

	said Answer    // what the store said last
	of   costs     // of which request
	next time.Time // when it said that one more such request would be granted; zero: it did not
}

// A waiter is a caller in a queue. All but its channel is guarded by waiters.mu.
type waiter struct {
	ctx        context.Context
	costs      costs
	turn       chan turn // of one element
	prev, next *waiter
	left       bool // the queue
}

// A turn is how waiting ends. A reservation is what may have a delay.
type turn struct {
	reservation *Reservation
	err         error
}

// enter is the queue of a key, and whether the caller may ask for itself: then it must call
// refused or leave; else wait.
func (w *waiters) enter(l *Limiter, key string) (q *queue, mayAsk bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q = w.queues[key]; q == nil {
		q = w.unused(l)
		q.key = key
		w.queues[key] = q
	}
	q.asking++ // a queue that somebody has found is not forgotten
	return q, q.first == nil && q.asking <= mostAsking
}

func (w *waiters) unused(l *Limiter) *queue {
	if w.queues == nil {
		w.queues = make(map[string]*queue)
	}
	q := w.spare
	if w.spare = nil; q == nil {
		q = &queue{limiter: l, units: make([]int64, len(l.limits)), changed: make(chan struct{}, 1)}
	}
	return q
}

// leave ends asking.
func (q *queue) leave() {
	q.limiter.waiters.mu.Lock()
	defer q.limiter.waiters.mu.Unlock()
	q.asking--
	q.forget()
}

// forget drops a queue that nobody uses.
func (q *queue) forget() {
	if q.asking == 0 && q.first == nil && !q.running {
		delete(q.limiter.waiters.queues, q.key)
		q.key, q.next = "", time.Time{}
		q.limiter.waiters.spare = q
	}
}

// refused is wait of a caller that has asked.
func (q *queue) refused(ctx context.Context, c costs, answer *Answer) error {
	q.limiter.waiters.mu.Lock()
	if q.first == nil {
		q.hear(answer, c)
	}
	q.limiter.waiters.mu.Unlock()
	return q.wait(ctx, c)
}

// hear notes what the store has just said.
func (q *queue) hear(answer *Answer, c costs) {
	q.said, q.of, q.next = *answer, c, time.Time{}
	if answer.RetryAfter != Never {
		q.next = time.Now().Add(answer.RetryAfter)
	}
}

// wait joins the queue, and returns when its turn has come or its context is over.
func (q *queue) wait(ctx context.Context, c costs) error {
	all := &q.limiter.waiters
	w := &waiter{ctx: ctx, costs: c, turn: make(chan turn, 1)}
	all.mu.Lock()
	q.asking--
	if err := q.inTime(w, q.units); err != nil {
		q.forget()
		all.mu.Unlock()
		return err
	}
	q.push(w)
	if !q.running {
		q.running = true
		go q.run()
	}
	all.mu.Unlock()
	select {
	case t := <-w.turn:
		return q.take(w, t)
	case <-ctx.Done():
	}
	all.mu.Lock()
	gone := !w.left
	if gone {
		q.remove(w)
	}
	all.mu.Unlock()
	if gone {
		return ctx.Err()
	}
	return q.take(w, <-w.turn) // its turn came at that moment
}

// take ends a wait.
func (q *queue) take(w *waiter, t turn) error {
	if t.err != nil || t.reservation == nil {
		return t.err
	}
	return q.limiter.sleepReserved(w.ctx, t.reservation)
}

func (q *queue) push(w *waiter) {
	if w.prev = q.last; q.last == nil {
		q.first = w
	} else {
		q.last.next = w
	}
	q.last = w
	q.count(w, 1)
}

// remove takes a waiter out, wherever it stands.
func (q *queue) remove(w *waiter) {
	if w.prev == nil {
		q.first = w.next
		q.wake()
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.left = true
	q.count(w, -1)
}

func (q *queue) count(w *waiter, sign int64) {
	for i := range q.units {
		q.units[i] += sign * w.costs.of(i)
	}
}

// end removes a waiter and tells it how.
func (q *queue) end(w *waiter, t turn) {
	q.remove(w)
	w.turn <- t
}

// wake has the first waiter asked for anew.
func (q *queue) wake() {
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

// forget what the store said of a key: it was reset.
func (w *waiters) reset(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q := w.queues[key]; q != nil {
		q.next = time.Time{}
		q.wake()
	}
}

// run asks for the waiters until there are none.
func (q *queue) run() {
	for {
		ctx, c, times, pause := q.head()
		switch {
		case times == 0:
			return
		case pause > 0:
			q.pause(pause)
		default:
			q.ask(ctx, c, times)
		}
	}
}

// pause sleeps, unless something changes before.
func (q *queue) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-q.changed:
	}
}

// head is what is to be asked next: the costs of the first waiter, and how many want the same
// one after the other; and how long to wait before. The caller's context may end while others
// depend on the answer. times = 0 says that nobody waits.
func (q *queue) head() (ctx context.Context, c costs, times int64, pause time.Duration) {
	q.limiter.waiters.mu.Lock()
	defer q.limiter.waiters.mu.Unlock()
	w := q.first
	if w == nil {
		q.running = false
		q.forget()
		return nil, nil, 0, 0
	}
	most := min(q.limiter.mostTimes(w.costs), mostTogether)
	for next := w; next != nil && times < most && slices.Equal(next.costs, w.costs); next = next.next {
		times++
	}
	if w.costs.cover(q.of) {
		pause = time.Until(q.next)
	}
	return context.WithoutCancel(w.ctx), w.costs, times, pause
}

// mostTimes is how many requests of these costs can be granted at once at most. Where they may
// have a delay it is one, whose delay is known.
func (l *Limiter) mostTimes(c costs) int64 {
	most := int64(MaxUnits)
	for i, limit := range l.limits {
		if limit.lends() {
			return 1
		}
		if n := c.of(i); n > 0 {
			most = min(most, limit.capacity/n)
		}
	}
	return most
}

// ask asks the store for the first waiters, and ends the wait of those that are granted.
func (q *queue) ask(ctx context.Context, c costs, times int64) {
	l := q.limiter
	call := newCall(l.limits)
	call.set(q.key, c, "")
	granted, err := l.store.Decide(ctx, call.claims, times, call.decisions)
	if err != nil {
		l.waiters.mu.Lock()
		defer l.waiters.mu.Unlock()
		q.endAll(err)
		return
	}
	if left := granted - q.answered(call, c, granted); left > 0 { // of callers that have gone
		l.reservation(call, c.times(left)).Cancel(ctx)
	}
}

// answered notes what the store said, and ends the wait of up to granted waiters and of those
// that now are known to wait in vain. It returns how many were granted.
func (q *queue) answered(call *call, c costs, granted int64) (ended int64) {
	var answer Answer
	call.answer(&answer)
	q.limiter.waiters.mu.Lock()
	defer q.limiter.waiters.mu.Unlock()
	if granted == 0 && answer.RetryAfter == 0 {
		answer.RetryAfter = time.Millisecond // no store says so; it must not be asked without end
	}
	unknown := q.next.IsZero()
	q.hear(&answer, c)
	for ; ended < granted && q.first != nil && slices.Equal(q.first.costs, c); ended++ {
		t := turn{}
		if answer.Delay > 0 {
			t.reservation = q.limiter.reservation(call, c)
		}
		q.end(q.first, t)
	}
	if granted == 0 && answer.RetryAfter == Never && q.first != nil && slices.Equal(q.first.costs, c) {
		q.end(q.first, turn{err: &RefusedError{Answer: answer}})
	}
	q.sweep(unknown)
	return ended
}

// endAll tells all waiters of the store's error: each that asked would hear the same, one
// after the other, however long that takes.
func (q *queue) endAll(err error) {
	for q.first != nil {
		q.end(q.first, turn{err: err})
	}
}

// sweep ends the wait of those that cannot be granted in time, as far as that is known: of the
// first one, or of all. Later ones were looked at when they came.
func (q *queue) sweep(all bool) {
	ahead := make([]int64, len(q.units))
	for w := q.first; w != nil; w = w.next {
		if err := q.inTime(w, ahead); err != nil {
			q.end(w, turn{err: err})
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

// inTime refuses a waiter whose context would end before its turn, if all before it stay:
// ahead are the units that they want.
func (q *queue) inTime(w *waiter, ahead []int64) error {
	if _, ok := w.ctx.Deadline(); !ok || q.next.IsZero() {
		return nil
	}
	i := slices.Index(q.limiter.limits, q.said.Limit)
	missing := ahead[i] + w.costs.of(i) - q.of.of(i)
	if missing < 0 || q.said.RetryAfter == 0 || q.said.RetryAfter == Never {
		return nil
	}
	// When next comes the limit has what the last request wanted. What is wanted beyond that a
	// bucket refills evenly; of other limits it is not known when they have it.
	end := q.next
	if limit := q.said.Limit; limit.algorithm == AlgorithmTokenBucket && !limit.step {
		wait, _ := limit.interval.Times(missing)
		end = end.Add(time.Duration(min(wait, MaxUnits)) * time.Microsecond)
	}
	return inTime(w.ctx, q.said, max(0, time.Until(end)+time.Microsecond-1).Truncate(time.Microsecond))
}
