package recall_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/layers/recall"
)

// under is a claim of one unit on a key, under a limit with a name.
func under(name, key string, spec weir.Spec) weir.Claim {
	return weir.Claim{Key: key, Limit: weir.MustLimit(name, spec), Cost: 1}
}

func TestOneThatRefusesRefusesAll(t *testing.T) {
	s := newScene(t, recall.WithLongest(longest))
	site, ip := under("site", "", weir.PerMinute(5)), under("ip", "1", weir.PerMinute(1))
	site.Key = "all"
	s.ask(1, true, site, ip)
	s.pass(time.Second)
	seen := s.ask(0, false, site, ip) // learned from the grant
	want := []weir.Decision{
		{Remaining: 4, ResetAfter: 11 * time.Second, At: s.redis},
		{RetryAfter: 59 * time.Second, ResetAfter: 59 * time.Second, At: s.redis},
	}
	if !slices.Equal(seen, want) {
		t.Errorf("as it was seen:\n  %+v\nwant\n  %+v", seen, want)
	}
	s.pass(20 * time.Second)
	if d := s.ask(0, false, site, ip); d[0].ResetAfter != 0 {
		t.Errorf("a reset of 11 s is told as %v, 20 s later", d[0].ResetAfter)
	}
	other := under("ip", "2", weir.PerMinute(1))
	s.ask(1, true, site, other)

	alone := s.ask(0, false, other, ip) // never asked together
	want = []weir.Decision{
		{RetryAfter: 60 * time.Second, ResetAfter: 60 * time.Second, At: s.redis},
		{RetryAfter: 39 * time.Second, ResetAfter: 39 * time.Second, At: s.redis},
	}
	if !slices.Equal(alone, want) {
		t.Errorf("both remembered:\n  %+v\nwant\n  %+v", alone, want)
	}
	fresh := under("endpoint", "new", weir.PerMinute(7))
	large := under("large", "new", weir.PerMinute(7))
	large.Cost = 8
	unknown := s.ask(0, false, fresh, ip, large)
	if d := unknown[0]; d != (weir.Decision{Remaining: 7, At: s.redis}) {
		t.Errorf("one that was never asked: %+v, want it as if never used", d)
	}
	if d := unknown[2]; d.RetryAfter != weir.Never {
		t.Errorf("one that can never fit: %+v", d)
	}
	if d := make([]weir.Decision, 3); weir.Worse(&unknown[0], &unknown[1]) || weir.Worse(&d[0], &unknown[1]) {
		t.Errorf("the worst is not the one that refuses: %+v", unknown)
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

// A claim of cost 0 asks whether somebody is banned. Where that may have changed since, what
// is remembered of the limits does not answer for it.
func TestWhoIsBannedHereIsToldSo(t *testing.T) {
	s := newScene(t)
	limit := under("ip", "1", weir.PerMinute(1))
	hold := under("hold", "1", weir.PerHour(1))
	hold.Cost = 0
	s.ask(1, true, limit, hold)
	s.ask(0, false, limit, hold)
	ban := hold // in the same instant
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
	s.ask(0, false, limit) // which needs no ban

	hold.Key = strings.Repeat("k", recall.MaxKey+1) // nobody notes what becomes of it
	s.ask(0, true, limit, hold)
}

func TestLeasesBesideLimits(t *testing.T) {
	s := newScene(t)
	limit, held := under("ip", "1", weir.PerMinute(1)), under("held", "1", weir.Concurrency{Limit: 5, TTL: time.Hour})
	held.Lease = "one"
	s.ask(1, true, limit, held)
	held.Lease = "two"
	if d := s.ask(0, false, limit, held); d[1].Remaining != 4 {
		t.Errorf("%+v, want 4 as it was seen", d[1])
	}
}

// What is seen is kept of few claims, and told only of the same ones.
func TestManyClaims(t *testing.T) {
	s := newScene(t)
	claims := make([]weir.Claim, weir.MaxClaims)
	for i := range claims {
		claims[i] = under(fmt.Sprint("limit-", i), "k", weir.PerMinute(10))
	}
	last := &claims[len(claims)-1]
	last.Limit = weir.MustLimit("last", weir.PerMinute(1))
	s.ask(1, true, claims...)
	if d := s.ask(0, false, claims...); d[0].Remaining != 10 || d[31].RetryAfter != time.Minute {
		t.Errorf("of 32 claims: first %+v, last %+v", d[0], d[31])
	}
	s.layer.Reset(t.Context(), claims)
	few := append([]weir.Claim{*last}, claims[:7]...)
	s.ask(1, true, few...)
	if d := s.ask(0, false, few...); d[7].Remaining != 9 {
		t.Errorf("of 8 claims: %+v, want 9 as it was seen", d[7])
	}
	few[1], few[2] = few[2], few[1]
	if d := s.ask(0, false, few...); d[7].Remaining != 10 {
		t.Errorf("of 8 claims in another order: %+v, want it as if never used", d[7])
	}
}
