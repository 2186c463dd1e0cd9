package gate_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
)

// wasAhead is the register of a store whose clock was ahead of what it shows.
type wasAhead struct{ behind bool }

func (w *wasAhead) Behind() bool { return w.behind }

func (*wasAhead) Register(context.Context, string, string, string, time.Duration) error { return nil }

func (*wasAhead) Registered(context.Context, string) (map[string]string, error) { return nil, nil }

// TestBanOfAClockThatWasAhead: a ban that began while the store's clock was ahead lasts its own length at most, once
// the store has seen that, for each of many requests. Without a sign of it a ban keeps its length.
func TestBanOfAClockThatWasAhead(t *testing.T) {
	const ahead = 30 * 24 * time.Hour
	now := time.Date(2027, 5, 3, 7, 1, 13, 0, time.UTC).UnixMicro()
	store := memstore.New(memstore.WithClock(func() weir.Instant { return weir.Instant(now) }))
	register := new(wasAhead)
	g := open(t, store, `
rules:
  - {name: site, key: [user], limit: fixed_window 1/1s, ban: {after: 2 refusals within 1m, for: 2m}}
`, gate.WithRegister(register))
	wait := func(v *gate.Verdict) time.Duration {
		worst, _ := v.Worst()
		return worst.Decision.RetryAfter
	}
	ask := func() *gate.Verdict {
		t.Helper()
		r, v := from("192.0.2.1"), new(gate.Verdict)
		r.User = "ann"
		if err := g.Decide(t.Context(), r, gate.Once, v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	now += ahead.Microseconds()
	for range 4 {
		ask()
	}
	now -= ahead.Microseconds()
	if v := ask(); v.Reason != gate.Banned || wait(v) < ahead {
		t.Fatalf("before the store knows: %v, retry after %v", v.Reason, wait(v))
	}
	register.behind = true
	for range 3 {
		if v := ask(); v.Reason != gate.Banned || wait(v) > 2*time.Minute {
			t.Errorf("%v, retry after %v, at most 2m", v.Reason, wait(v))
		}
	}
	now += 2 * time.Minute.Microseconds()
	if v := ask(); v.Outcome != gate.Passed {
		t.Errorf("after the ban: %v, %v, retry after %v", v.Outcome, v.Reason, wait(v))
	}
}
