package recall_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/recall"
	"github.com/weirproject/weir/memstore"
)

// answering is a store that says the same of everything, and takes no time.
type answering struct {
	weir.Store
	says  weir.Decision
	calls atomic.Int64
}

func (s *answering) Decide(_ context.Context, _ []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	s.calls.Add(1)
	for i := range d {
		d[i] = s.says
	}
	if s.says.RetryAfter != 0 {
		return 0, nil
	}
	return times, nil
}

func (s *answering) Close() error { return nil }

func TestSetFillsItsCacheLines(t *testing.T) {
	if recall.SetSize != 128 {
		t.Errorf("a set has %d bytes, want 128: two cache lines, and none that it shares", recall.SetSize)
	}
}

// However many keys are refused, those that are being refused stay known, and the rest take
// the room from one another.
func TestFloodOfKeysKeepsHotOnes(t *testing.T) {
	next := &answering{says: weir.Decision{RetryAfter: time.Hour}}
	layer := over(t, next, recall.WithRefusals(1024))
	limit := weir.MustLimit("limit", weir.PerHour(1))
	ask := func(key string) {
		if granted, err := layer.Decide(t.Context(), []weir.Claim{{Key: key, Limit: limit, Cost: 1}}, 1,
			nil); granted != 0 || err != nil {
			t.Fatalf("granted %d (%v)", granted, err)
		}
	}
	hot := make([]string, 32)
	for i := range hot {
		hot[i] = fmt.Sprint("hot-", i)
		ask(hot[i])
		ask(hot[i])
	}
	const cold = 100_000
	for i := range cold {
		ask(fmt.Sprint("cold-", i))
		ask(hot[i%len(hot)])
	}
	if calls := next.calls.Load(); calls > cold+cold/100 {
		t.Errorf("the store was asked %d times about %d keys that came once, and %d that came all the time", calls,
			cold, len(hot))
	}
	if kept, room := layer.Kept(), layer.Room(); room != 1024 || kept > room || kept < room*9/10 {
		t.Errorf("%d are remembered, there is room for %d", kept, room)
	}
	if layer.Stats().Evicted == 0 {
		t.Error("none was told to have made room")
	}
}

// Refusals that are over are the first to make room.
func TestExpiredRefusalsMakeRoom(t *testing.T) {
	s := newScene(t, recall.WithRefusals(8))
	for i := range 8 {
		s.ask(1, true, under("limit", fmt.Sprint("old-", i), weir.PerSecond(1)))
	}
	s.pass(time.Second)
	for i := range 8 {
		s.ask(1, true, under("limit", fmt.Sprint("new-", i), weir.PerSecond(1)))
	}
	if stats := s.layer.Stats(); stats.Evicted != 0 || s.layer.Kept() != 8 {
		t.Errorf("%+v, %d kept; want all of the new ones in the place of the old", stats, s.layer.Kept())
	}
}

// A refusal of a smaller cost is not replaced by one of a larger, which it covers, nor a later
// one by an earlier, whatever order their calls return in.
func TestSmallestThenLatestRefusalStays(t *testing.T) {
	next := &answering{says: weir.Decision{RetryAfter: time.Hour, At: 1}}
	var now atomic.Int64
	clock := func() time.Duration { return time.Duration(now.Load()) }
	var layer *recall.Store
	limit := weir.MustLimit("limit", weir.PerHour(100))
	decide := func(cost int64) weir.Decision {
		d := make([]weir.Decision, 1)
		layer.Decide(context.Background(), []weir.Claim{{Key: "k", Limit: limit, Cost: cost}}, 1, d)
		return d[0]
	}
	inner := &interleaved{answering: next}
	layer = over(t, inner, recall.WithClock(clock))
	// While a cost of 5 is being asked, one of 2 is asked and learned, which then stays.
	inner.during = func() {
		now.Add(1)
		decide(2)
	}
	decide(5)
	calls := next.calls.Load()
	if decide(3); next.calls.Load() != calls {
		t.Error("a refusal of 2 gave way to one of 5")
	}
	layer.Reset(t.Context(), []weir.Claim{{Key: "k", Limit: limit}})
	inner.during = func() {
		now.Add(int64(time.Millisecond))
		next.says.At = 2_000
		decide(2)
		next.says.At = 1
	}
	decide(2)
	if d := decide(2); d.At != 2_000 {
		t.Errorf("told by an answer of instant %d, although a later one came first", d.At)
	}
	layer = over(t, next, recall.WithClock(clock))
	decide(0)
	decide(1)
	if n := layer.Kept(); n != 1 {
		t.Errorf("%d refusals of one state are kept, want the one that covers more", n)
	}
}

// interleaved has something happen during the next call.
type interleaved struct {
	*answering
	during func()
}

func (s *interleaved) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	granted, err := s.answering.Decide(ctx, claims, times, d)
	if during := s.during; during != nil {
		s.during = nil
		during()
	}
	return granted, err
}

func (s *interleaved) Reset(context.Context, []weir.Claim) error { return nil }

// Many goroutines decide, refund and reset few keys of a small table: refusals end with the store's, which are
// so short that all are granted in the end.
func TestRace(t *testing.T) {
	layer := over(t, memstore.New(), recall.WithRefusals(8))
	limit := weir.MustLimit("limit", weir.GCRA(2, 2000, time.Second))
	var wait sync.WaitGroup
	var granted atomic.Int64
	for worker := range 8 {
		wait.Go(func() {
			d := make([]weir.Decision, 2)
			for i := range 2000 {
				claims := []weir.Claim{
					{Key: fmt.Sprint((worker + i) % 20), Limit: limit, Cost: 1},
					{Key: fmt.Sprint(20 + i%3), Limit: limit, Cost: int64(1 + i%2)},
				}
				decided := d
				if i%2 == 0 { // one claim that refuses is enough
					decided = nil
				}
				n, err := layer.Decide(context.Background(), claims, 1, decided)
				if err != nil {
					t.Error(err)
					return
				}
				granted.Add(n)
				switch i % 5 {
				case 0:
					layer.Refund(context.Background(), claims[:1], d[0].At, nil)
				case 1:
					layer.Reset(context.Background(), claims[1:])
				}
			}
		})
	}
	wait.Wait()
	if granted.Load() == 0 || layer.Stats().Recalled == 0 {
		t.Errorf("%d granted, %+v: want both some grants and some memories", granted.Load(), layer.Stats())
	}
}
