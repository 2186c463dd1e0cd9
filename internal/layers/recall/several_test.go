package recall_test

import (
	"slices"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/recall"
)

// under is a claim of one unit on a key, under a limit with a name.
func under(name, key string, spec weir.Spec) weir.Claim {
	return weir.Claim{Key: key, Limit: weir.MustLimit(name, spec), Cost: 1}
}

// TestSeveralClaims: the decision of each claim is exact, so the store is called unless all of them are known
// refusals.
func TestSeveralClaims(t *testing.T) {
	s := newScene(t, recall.WithLongest(longest))
	site, ip := under("site", "all", weir.PerMinute(2)), under("ip", "1", weir.PerMinute(1))
	s.ask(1, true, site, ip)
	s.pass(time.Second)
	d := s.ask(0, true, site, ip)
	want := []weir.Decision{
		{Remaining: 1, ResetAfter: 29 * time.Second, At: s.redis},
		{RetryAfter: 59 * time.Second, ResetAfter: 59 * time.Second, At: s.redis},
	}
	if !slices.Equal(d, want) {
		t.Errorf("got\n  %+v, want\n  %+v", d, want)
	}
	s.ask(1, true, site, under("ip", "2", weir.PerMinute(1)))
	s.pass(time.Second)
	d = s.ask(0, false, site, ip)
	want = []weir.Decision{
		{RetryAfter: 28 * time.Second, ResetAfter: 58 * time.Second, At: s.redis},
		{RetryAfter: 58 * time.Second, ResetAfter: 58 * time.Second, At: s.redis},
	}
	if !slices.Equal(d, want) {
		t.Errorf("both remembered\n  %+v, want\n  %+v", d, want)
	}
}

// TestVerdictAlone: a caller that wants no decisions is answered by one claim that refuses.
func TestVerdictAlone(t *testing.T) {
	s := newScene(t)
	site, ip := under("site", "all", weir.PerMinute(5)), under("ip", "1", weir.PerMinute(1))
	s.ask(1, true, site, ip)
	if granted, err := s.layer.Decide(t.Context(), []weir.Claim{site, ip}, 1, nil); granted != 0 || err != nil ||
		s.calls != 1 {
		t.Errorf("granted %d (%v) by call %d, want 0 from memory", granted, err, s.calls)
	}
}

// All claims of one decision have one instant, although they were learned by calls that took
// different times; and each grants at the instant that it did.
func TestOneInstant(t *testing.T) {
	s := newScene(t)
	a, b := under("a", "k", weir.PerMinute(1)), under("b", "k", weir.PerMinute(1))
	s.ask(1, true, a)
	s.back = 3 * time.Second
	s.ask(1, true, b)
	d := s.ask(0, false, a, b)
	if d[0].At != d[1].At || d[0].At > s.redis {
		t.Errorf("at %d and %d, by the store %d", d[0].At, d[1].At, s.redis)
	}
	for i, due := range []weir.Instant{4_000_000_060_000_000, 4_000_000_060_000_000} {
		if got := d[i].At + weir.Instant(d[i].RetryAfter.Microseconds()); got != due {
			t.Errorf("claim %d is told to grant at %d, want %d", i, got, due)
		}
	}
}

// TestBanBesideALimit: a claim of cost 0 asks whether a ban is there, and is asked about until one is.
func TestBanBesideALimit(t *testing.T) {
	s := newScene(t)
	limit := under("ip", "1", weir.PerMinute(1))
	hold := under("hold", "1", weir.PerHour(1))
	hold.Cost = 0
	s.ask(1, true, limit, hold)
	s.ask(0, true, limit, hold)
	ban := hold
	ban.Cost = 3
	if err := s.layer.Charge(t.Context(), []weir.Claim{ban}, nil); err != nil {
		t.Fatal(err)
	}
	if d := s.ask(0, true, limit, hold); d[1].RetryAfter == 0 {
		t.Errorf("banned, and told %+v", d)
	}
	if d := s.ask(0, false, limit, hold); d[1].RetryAfter == 0 {
		t.Errorf("banned, known, and told %+v", d)
	}
	s.ask(0, false, limit)
}
