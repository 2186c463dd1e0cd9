package lease_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/lease"
	"github.com/weirproject/weir/memstore"
)

const second = time.Second

// always says the same of all limits.
func always(t lease.Terms) func(*weir.Limit) lease.Terms {
	return func(*weir.Limit) lease.Terms { return t }
}

// A spy notes what the layer asks of the store below.
type spy struct {
	weir.Store
	mu      sync.Mutex
	times   []int64      // of Decide
	refunds []weir.Claim // in their order, and when they were taken
	taken   []weir.Instant
	latency time.Duration // there, and again back
	err     error         // what calls end with, undone
	lost    error         // what calls end with, done
	apart   bool          // the claims' clocks differ by their places
}

// travel is a way there, or back; it ends with the error of that way.
func (s *spy) travel(ctx context.Context, err *error) error {
	s.mu.Lock()
	latency := s.latency
	s.mu.Unlock()
	select {
	case <-time.After(latency):
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return *err
}

func (s *spy) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	s.mu.Lock()
	s.times = append(s.times, times)
	s.mu.Unlock()
	if err := s.travel(ctx, &s.err); err != nil {
		return 0, err
	}
	granted, err := s.Store.Decide(ctx, claims, times, decisions)
	for i := 1; i < len(decisions) && s.apart; i++ {
		decisions[i].At += weir.Instant(i)
	}
	return granted, errors.Join(err, s.travel(ctx, &s.lost))
}

func (s *spy) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant, decisions []weir.Decision) error {
	s.mu.Lock()
	for _, c := range claims {
		s.refunds, s.taken = append(s.refunds, c), append(s.taken, takenAt)
	}
	s.mu.Unlock()
	if err := s.travel(ctx, &s.err); err != nil {
		return err
	}
	return errors.Join(s.Store.Refund(ctx, claims, takenAt, decisions), s.travel(ctx, &s.lost))
}

func (s *spy) Reset(ctx context.Context, claims []weir.Claim) error {
	return errors.Join(s.travel(ctx, &s.err), s.Store.Reset(ctx, claims), s.travel(ctx, &s.lost))
}

// set changes what the wire is like.
func (s *spy) set(latency time.Duration, err, lost error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latency, s.err, s.lost = latency, err, lost
}

// seen returns the calls and refunds since the last time.
func (s *spy) seen() (times []int64, refunds []weir.Claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	times, refunds = s.times, s.refunds
	s.times, s.refunds, s.taken = nil, nil, nil
	return times, refunds
}

// A bench is a layer over a spied store.
type bench struct {
	*lease.Store
	t     *testing.T
	below *spy
}

func open(t *testing.T, terms func(*weir.Limit) lease.Terms, options ...lease.Option) *bench {
	t.Helper()
	b := openIdle(t, terms, options...)
	t.Cleanup(func() { b.Close() })
	return b
}

// openIdle is open for a test that ends with all leases over: a bubble ends only when all goroutines have.
func openIdle(t *testing.T, terms func(*weir.Limit) lease.Terms, options ...lease.Option) *bench {
	t.Helper()
	b := &bench{t: t, below: &spy{Store: memstore.New()}}
	b.Store = lease.NewWith(b.below, terms, options...)
	return b
}

func one(l *weir.Limit) []weir.Claim { return []weir.Claim{{Key: "hot", Limit: l, Cost: 1}} }

// ask is one request.
func (b *bench) ask(claims []weir.Claim) (granted bool, d []weir.Decision) {
	b.t.Helper()
	d = make([]weir.Decision, len(claims))
	n, err := b.Decide(context.Background(), claims, 1, d)
	if err != nil {
		b.t.Fatal(err)
	}
	return n == 1, d
}

// many are requests that all pass, one a millisecond.
func (b *bench) many(n int, claims []weir.Claim) {
	b.t.Helper()
	for range n {
		if granted, d := b.ask(claims); !granted {
			b.t.Fatalf("refused: %+v", d)
		}
		time.Sleep(time.Millisecond)
	}
}

// expire waits until the lease of a hot key is over and back. The key is still known then.
func (b *bench) expire() {
	b.t.Helper()
	for before := b.Stats().Returned; b.Stats().Returned == before; time.Sleep(time.Millisecond) {
		if b.Stats().Leases == 0 {
			b.t.Fatal("there is nothing left of the lease")
		}
	}
	b.below.seen()
}

// remaining is what the store has left of the first claim.
func (b *bench) remaining(claims []weir.Claim) int64 {
	b.t.Helper()
	d := make([]weir.Decision, len(claims))
	if _, err := b.below.Store.Decide(context.Background(), claims, 0, d); err != nil {
		b.t.Fatal(err)
	}
	return d[0].Remaining
}

// daily is a limit of n units a day, so that refills do not matter.
func daily(n int64) *weir.Limit {
	return weir.MustLimit("daily", weir.FixedWindow{Limit: n, Window: 24 * time.Hour})
}

var tenth = always(lease.Terms{Share: 0.1})
