package storetest

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/stories/model"
)

// modelStore is a store of models, under one lock.
type modelStore struct {
	mu     sync.Mutex
	clock  func() weir.Instant
	models map[string]model.Model // by limit and key
	limits map[string]*weir.Limit
}

func newModel(clock func() weir.Instant) *modelStore {
	return &modelStore{clock: clock, models: make(map[string]model.Model), limits: make(map[string]*weir.Limit)}
}

func place(c *weir.Claim) string {
	return c.Limit.Name() + " " + c.Limit.Algorithm().String() + " " + c.Key
}

func (m *modelStore) keyModel(c *weir.Claim) model.Model {
	found, ok := m.models[place(c)]
	if !ok {
		found = model.New(c.Limit)
		m.limits[place(c)] = c.Limit
		m.models[place(c)] = found
	}
	if f, ok := found.(interface {
		For(c *weir.Claim) model.Model
	}); ok {
		return f.For(c)
	}
	return found
}

// fits reports whether a claim would be granted n times, with its floor left after the last.
func (m *modelStore) fits(c *weir.Claim, n, now int64) bool {
	w := m.keyModel(c)
	if held, ok := w.(model.Holder); ok && (c.Renew || held.Holds(c.Lease, now)) {
		return held.Holds(c.Lease, now)
	}
	w = w.Clone()
	w.Back(c.Limit, now)
	return w.Fits(c.Limit, c.Cost*n+c.Floor, now)
}

// written is the model of a claim before a write. A state that was written by the other mode of
// a bucket is converted only then.
func (m *modelStore) written(c *weir.Claim, now int64) model.Model {
	w := m.keyModel(c)
	switch old := w.(type) {
	case *model.Bucket:
		if c.Limit.Step() {
			w = old.Stepped(c.Limit, now)
		}
	case *model.Steps:
		if !c.Limit.Step() {
			w = old.Continuous(c.Limit, now)
		}
	}
	m.models[place(c)] = w
	return w
}

// charge charges a claim n times. A charge of 0 units does not change the state.
func (m *modelStore) charge(c *weir.Claim, n, now int64) {
	held, isHeld := m.keyModel(c).(model.Holder)
	switch {
	case isHeld && n > 0 && c.Lease != "":
		held.Take(c.Limit, c.Lease, c.Cost, now)
	case !isHeld && c.Cost*n > 0 && c.Settle:
		m.written(c, now).Settle(c.Limit, c.Cost*n, now)
	case !isHeld && c.Cost*n > 0:
		m.written(c, now).Charge(c.Limit, c.Cost*n, now)
	}
}

// granted is how many of times requests fit all claims.
func (m *modelStore) granted(claims []weir.Claim, times, now int64) int64 {
	for i := range claims {
		more := func(n int64) bool { return n >= times || !m.fits(&claims[i], n+1, now) }
		times = min(times, model.First(more))
	}
	return times
}

func (m *modelStore) describe(claims []weir.Claim, now int64, decisions []weir.Decision) {
	for i := range decisions {
		c := &claims[i]
		decisions[i] = model.Describe(m.keyModel(c), c.Limit, c.Cost, c.Floor, now)
	}
}

func (m *modelStore) Decide(_ context.Context, claims []weir.Claim, times int64,
	decisions []weir.Decision) (int64, error) {
	if err := weir.Check(claims, times, decisions); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.models == nil {
		return 0, weir.ErrClosed
	}
	now := int64(m.clock())
	m.back(claims, times, now)
	granted := m.take(claims, times, now)
	m.describe(claims, now, decisions)
	if times == 0 {
		m.stand(claims, now, decisions)
	}
	return granted, nil
}

// stand adds what the members of a peek have.
func (m *modelStore) stand(claims []weir.Claim, now int64, decisions []weir.Decision) {
	for i := range decisions {
		if shared, ok := m.keyModel(&claims[i]).Clone().(model.Sharer); ok {
			shared.(model.Model).Back(claims[i].Limit, now)
			standing := shared.Standing(claims[i].Limit, now)
			decisions[i].Standing = &standing
		}
	}
}

// back brings states of a clock that was ahead back, before an operation that may write.
func (m *modelStore) back(claims []weir.Claim, times, now int64) {
	for i := range claims {
		if c := &claims[i]; c.Cost > 0 && times > 0 {
			m.keyModel(c).Back(c.Limit, now)
		}
	}
}

// take charges as many of times requests as fit.
func (m *modelStore) take(claims []weir.Claim, times, now int64) int64 {
	granted := m.granted(claims, times, now)
	for i := range claims {
		m.charge(&claims[i], granted, now)
	}
	return granted
}

// DecideBatch is, for each request, as many single takes as it has times.
func (m *modelStore) DecideBatch(_ context.Context, requests []weir.Request) {
	for i := range requests {
		m.batched(&requests[i])
	}
}

func (m *modelStore) batched(r *weir.Request) {
	if r.Granted, r.Err = 0, r.Check(); r.Err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.models == nil {
		r.Err = weir.ErrClosed
		return
	}
	now, n := int64(m.clock()), len(r.Claims)
	m.back(r.Claims, r.Times, now)
	if r.Decisions == nil {
		r.Granted = m.take(r.Claims, r.Times, now)
		return
	}
	m.describe(r.Claims, now, r.Decisions[:n])
	if r.Times == 0 {
		m.stand(r.Claims, now, r.Decisions[:n])
	}
	for left := r.Decisions; r.Granted < r.Times; left = left[n:] {
		if m.take(r.Claims, 1, now) == 0 {
			break
		}
		r.Granted++
		m.describe(r.Claims, now, left[:n])
	}
	repeat(r.Decisions, int(max(r.Granted, 1))*n, n)
}

// sameDecisions reports whether decisions are equal.
func sameDecisions(a, b []weir.Decision) bool {
	return slices.EqualFunc(a, b, func(x, y weir.Decision) bool {
		if x.Standing != nil && y.Standing != nil && *x.Standing == *y.Standing {
			x.Standing, y.Standing = nil, nil
		}
		return x == y
	})
}

// repeat fills decisions from a place on with the n before it.
func repeat(decisions []weir.Decision, from, n int) {
	for ; from < len(decisions); from++ {
		decisions[from] = decisions[from-n]
	}
}

func (m *modelStore) Charge(_ context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	if err := weir.Check(claims, 1, decisions); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.models == nil {
		return weir.ErrClosed
	}
	now := int64(m.clock())
	err := m.conditions(claims, now)
	if err == nil {
		m.back(claims, 1, now)
	}
	for i := range claims {
		if err == nil && !m.release(&claims[i], now) {
			m.charge(&claims[i], 1, now)
		}
	}
	m.describe(claims, now, decisions)
	return err
}

// conditions is ErrLeaseGone if a lease that a Charge or Refund depends on is not held.
func (m *modelStore) conditions(claims []weir.Claim, now int64) error {
	for i := range claims {
		held, isHeld := m.keyModel(&claims[i]).(model.Holder)
		if isHeld && claims[i].Renew && !held.Holds(claims[i].Lease, now) {
			return weir.ErrLeaseGone
		}
	}
	return nil
}

// release ends the lease that a Charge depends on. It is false if the claim is no condition.
func (m *modelStore) release(c *weir.Claim, now int64) bool {
	held, isHeld := m.keyModel(c).(model.Holder)
	return isHeld && c.Renew && held.Release(c.Lease, now)
}

func (m *modelStore) Refund(_ context.Context, claims []weir.Claim, takenAt weir.Instant,
	decisions []weir.Decision) error {
	if err := weir.Check(claims, 1, decisions); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.models == nil {
		return weir.ErrClosed
	}
	now := int64(m.clock())
	err := m.conditions(claims, now)
	if err != nil {
		m.describe(claims, now, decisions)
		return err
	}
	m.back(claims, 1, now)
	for i := range claims {
		c := &claims[i]
		held, isHeld := m.keyModel(c).(model.Holder)
		switch {
		case isHeld && c.Lease != "" && !held.Release(c.Lease, now):
			err = weir.ErrLeaseGone
		case !isHeld && c.Cost > 0:
			m.refund(c, int64(takenAt), now)
		}
	}
	m.describe(claims, now, decisions)
	return err
}

// refund gives a claim's units back, less those charged after a grant that still waits.
func (m *modelStore) refund(c *weir.Claim, taken, now int64) {
	w, n := m.written(c, now), c.Cost
	debtor, ok := w.(model.Indebted)
	if due := taken + c.Delay.Microseconds(); ok && c.Delay > 0 && due > now {
		n -= min(n, debtor.After(c.Limit, due))
	}
	if n > 0 {
		w.Refund(c.Limit, n, taken, now)
	}
}

func (m *modelStore) Reset(_ context.Context, claims []weir.Claim) error {
	if err := weir.Check(claims, 0, nil); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.models == nil {
		return weir.ErrClosed
	}
	for i := range claims {
		delete(m.models, place(&claims[i]))
	}
	return nil
}

func (m *modelStore) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.models = nil
	return nil
}

// clone is a copy for one branch of a search; text tells equal ones.
func (m *modelStore) clone(clock func() weir.Instant) *modelStore {
	copied := newModel(clock)
	for where, w := range m.models {
		copied.models[where], copied.limits[where] = w.Clone(), m.limits[where]
	}
	return copied
}

func (m *modelStore) text() string {
	lines := make([]string, 0, len(m.models))
	for where, w := range m.models {
		lines = append(lines, where+": "+w.Text())
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
