package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

// claim asks for one unit of a new key.
func (b *fixture) claim(spec weir.Spec) weir.Claim {
	limit := weir.MustLimit("limit", spec)
	return weir.Claim{Key: b.key(), Limit: limit, Cost: 1, Lease: leaseOf(limit, "lease")}
}

func badInput(t *testing.T, s Subject) {
	b := open(t, s)
	t.Run("limits", func(t *testing.T) { badLimits(t) })
	t.Run("claims", func(t *testing.T) { badClaims(t, b) })
	t.Run("decide", func(t *testing.T) { badDecide(t, b) })
	t.Run("odd keys are keys", func(t *testing.T) { oddKeys(t, b) })
	t.Run("zero costs", func(t *testing.T) { zeroCosts(t, b) })
	t.Run("closed", func(t *testing.T) { closed(t, s) })
}

// namesField fails unless err is an InputError about the field.
func namesField(t TB, what string, err error, field string) {
	t.Helper()
	var input *weir.InputError
	if !errors.As(err, &input) {
		t.Fatalf("%s: got error %v, want a *weir.InputError about %s", what, err, field)
	}
	if input.Field != field || input.Allowed == "" {
		t.Fatalf("%s: the error is about %q (allowed: %q), want %q: %v", what, input.Field, input.Allowed, field, err)
	}
}

const tooMany = weir.MaxUnits + 1

// badLimits are numbers that are refused when the limit is made.
func badLimits(t TB) {
	t.Helper()
	s, us := time.Second, time.Microsecond
	for _, bad := range []struct {
		spec  weir.Spec
		field string
	}{
		{nil, "spec"},
		{weir.TokenBucket{Capacity: 0, Refill: 1, Period: s}, "capacity"},
		{weir.TokenBucket{Capacity: -1, Refill: 1, Period: s}, "capacity"},
		{weir.TokenBucket{Capacity: tooMany, Refill: 1, Period: us}, "capacity"},
		{weir.TokenBucket{Capacity: 1, Refill: 0, Period: s}, "refill"},
		{weir.TokenBucket{Capacity: 1, Refill: -5, Period: s}, "refill"},
		{weir.TokenBucket{Capacity: 1, Refill: tooMany, Period: s}, "refill"},
		{weir.TokenBucket{Capacity: 1, Refill: 1, Period: 0}, "period"},
		{weir.TokenBucket{Capacity: 1, Refill: 1, Period: -s}, "period"},
		{weir.TokenBucket{Capacity: 1, Refill: 1, Period: us - 1}, "period"},
		{weir.TokenBucket{Capacity: 1, Refill: 1, Period: us + 1}, "period"},
		{weir.TokenBucket{Capacity: 1, Refill: 1, Period: s, Overdraft: -1}, "overdraft"},
		{weir.TokenBucket{Capacity: 1, Refill: 1, Period: s, Mode: 9}, "mode"},
		{weir.TokenBucket{Capacity: 1 << 40, Refill: 1, Period: s}, "capacity"}, // full in 35,000 years
		{weir.FixedWindow{Limit: 0, Window: s}, "limit"},
		{weir.FixedWindow{Limit: 1, Window: 0}, "window"},
		{weir.FixedWindow{Limit: 1, Window: s, Anchor: 9}, "anchor"},
		{weir.Calendar{Limit: 0, Unit: weir.Day}, "limit"},
		{weir.Calendar{Limit: 1}, "unit"},
		{weir.Calendar{Limit: 1, Unit: weir.Day, Zone: "Mars/Olympus"}, "zone"},
		{weir.SlidingLog{Limit: -1, Window: s}, "limit"},
		{weir.SlidingLog{Limit: 1, Window: us / 2}, "window"},
		{weir.SlidingCounter{Limit: tooMany, Window: s, Slices: 1}, "limit"},
		{weir.SlidingCounter{Limit: 1, Window: s, Slices: -1}, "slices"},
		{weir.SlidingCounter{Limit: 1, Window: s, Slices: 7}, "slices"},
		{weir.SlidingCounter{Limit: weir.MaxUnits, Window: s + s/2, Slices: 1}, "limit"}, // × slice in ms
		{weir.Concurrency{Limit: 0, TTL: s}, "limit"},
		{weir.Concurrency{Limit: 1, TTL: 0}, "ttl"},
	} {
		_, err := weir.NewLimit("limit", bad.spec)
		namesField(t, fmt.Sprintf("NewLimit(%#v)", bad.spec), err, bad.field)
	}
	for _, name := range []string{"", "a b", "ü", strings.Repeat("n", weir.MaxName+1)} {
		_, err := weir.NewLimit(name, weir.PerSecond(1))
		namesField(t, fmt.Sprintf("NewLimit(%q)", name), err, "name")
	}
}

// badClaims are refused by every operation, and charge nothing to the good claim before them.
func badClaims(t TB, b *fixture) {
	t.Helper()
	log, held := b.claim(weir.SlidingLog{Limit: 5, Window: time.Second}),
		b.claim(weir.Concurrency{Limit: 5, TTL: time.Second})
	change := func(c weir.Claim, edit func(*weir.Claim)) weir.Claim { edit(&c); return c }
	for _, bad := range []struct {
		field string
		claim weir.Claim
	}{
		{"limit", change(log, func(c *weir.Claim) { c.Limit = nil })},
		{"limit", change(log, func(c *weir.Claim) { c.Limit = new(weir.Limit) })},
		{"key", change(log, func(c *weir.Claim) { c.Key = "" })},
		{"key", change(log, func(c *weir.Claim) { c.Key = strings.Repeat("k", weir.MaxKey+1) })},
		{"cost", change(log, func(c *weir.Claim) { c.Cost = -1 })},
		{"cost", change(log, func(c *weir.Claim) { c.Cost = tooMany })},
		{"lease", change(log, func(c *weir.Claim) { c.Lease = "lease" })},
		{"lease", change(log, func(c *weir.Claim) { c.Renew = true })},
		{"lease", change(held, func(c *weir.Claim) { c.Lease = strings.Repeat("l", weir.MaxLease+1) })},
	} {
		good := b.claim(weir.SlidingLog{Limit: 5, Window: time.Second})
		refused(t, b, []weir.Claim{good, bad.claim}, bad.field)
		refused(t, b, []weir.Claim{bad.claim}, bad.field)
	}
	good := b.claim(weir.SlidingLog{Limit: 5, Window: time.Second})
	other := good
	other.Limit = weir.MustLimit("limit", weir.SlidingLog{Limit: 9, Window: time.Hour}) // the same state
	refused(t, b, []weir.Claim{good, good}, "claims")
	refused(t, b, []weir.Claim{good, other}, "claims")
	refused(t, b, nil, "claims")
	refused(t, b, slices.Repeat([]weir.Claim{good}, weir.MaxClaims+1), "claims")
}

// refused tries all operations on bad claims. The first claim may be a good one.
func refused(t TB, b *fixture, claims []weir.Claim, field string) {
	t.Helper()
	ctx, now := context.Background(), b.clock.read()
	what := "on " + field
	granted, err := b.Decide(ctx, claims, 1, nil)
	namesField(t, "Decide "+what, err, field)
	if granted != 0 {
		t.Fatalf("Decide %s: granted %d with an error", what, granted)
	}
	namesField(t, "Charge "+what, b.Charge(ctx, claims, nil), field)
	namesField(t, "Refund "+what, b.Refund(ctx, claims, now, nil), field)
	namesField(t, "Reset "+what, b.Reset(ctx, claims), field)
	if len(claims) > 1 {
		if _, d := b.decide(t, 0, claims[0]); d[0].ResetAfter != 0 {
			t.Fatalf("a refused call (%s) charged the claim beside the bad one: %+v", what, d[0])
		}
	}
}

// badDecide is bad input of Decide alone.
func badDecide(t TB, b *fixture) {
	t.Helper()
	ctx := context.Background()
	log, held := b.claim(weir.SlidingLog{Limit: 5, Window: time.Second}),
		b.claim(weir.Concurrency{Limit: 5, TTL: time.Second})
	dear, nameless, nothing := log, held, held
	dear.Cost, nameless.Lease, nothing.Cost = weir.MaxUnits, "", 0
	for _, bad := range []struct {
		field     string
		claim     weir.Claim
		times     int64
		decisions []weir.Decision
	}{
		{"times", log, -1, nil},
		{"times", log, tooMany, nil},
		{"times", held, 2, nil}, // one lease for two
		{"cost × times", dear, weir.MaxUnits, nil},
		{"lease", nameless, 1, nil},
		{"cost", nothing, 1, nil},
		{"decisions", log, 1, make([]weir.Decision, 2)},
		{"decisions", log, 1, make([]weir.Decision, 0)},
	} {
		_, err := b.Decide(ctx, []weir.Claim{bad.claim}, bad.times, bad.decisions)
		namesField(t, fmt.Sprintf("Decide(%s, times %d, %d decisions)", claimsText([]weir.Claim{bad.claim}),
			bad.times, len(bad.decisions)), err, bad.field)
		if _, d := b.decide(t, 0, bad.claim); d[0].ResetAfter != 0 {
			t.Fatalf("a refused call (%s) charged something: %+v", bad.field, d[0])
		}
	}
}

// oddKeys: a key is any bytes, and no two keys share their state.
func oddKeys(t TB, b *fixture) {
	t.Helper()
	long := strings.Repeat("k", weir.MaxKey)
	keys := []string{" ", "\x00", "\x00\x00", "\xff\xfe", "a\r\nb", "{", "}", "{}", "{a}b", "a{a}", "key:1", "key:1:",
		"limit", "%s", "🙂", long, long[1:]}
	limit := weir.MustLimit("odd", weir.SlidingLog{Limit: 1, Window: time.Second})
	for round, want := range []int64{1, 0} {
		for _, key := range keys {
			if granted, _ := b.decide(t, 1, weir.Claim{Key: key, Limit: limit, Cost: 1}); granted != want {
				t.Fatalf("round %d: key %.20q granted %d, want %d", round, key, granted, want)
			}
		}
	}
}

// zeroCosts: a cost of 0 asks whether the limit is exceeded, and charges nothing.
func zeroCosts(t TB, b *fixture) {
	t.Helper()
	for _, spec := range oneOfEach {
		claim := b.claim(spec)
		lease := claim.Lease
		claim.Cost, claim.Lease = 0, ""
		asks := func(want int64, when string) {
			if granted, _ := b.decide(t, 3, claim); granted != want {
				t.Fatalf("%s: cost 0 × 3 %s: granted %d, want %d", spec, when, granted, want)
			}
		}
		asks(3, "on a fresh key")
		if _, d := b.decide(t, 0, claim); d[0].ResetAfter != 0 {
			t.Fatalf("%s: a cost of 0 charged something: %+v", spec, d[0])
		}
		full := claim
		full.Cost, full.Lease = claim.Limit.Most(), lease
		b.decide(t, 1, full)
		asks(3, "when exhausted")
		full.Cost, full.Lease = 1, leaseOf(claim.Limit, "beyond")
		if err := b.Charge(context.Background(), []weir.Claim{full}, nil); err != nil {
			t.Fatalf("Charge: %v", err)
		}
		asks(0, "when exceeded")
	}
}

// oneOfEach kind of limit.
var oneOfEach = []weir.Spec{
	weir.TokenBucket{Capacity: 10, Refill: 10, Period: time.Second},
	weir.TokenBucket{Capacity: 10, Refill: 7, Period: time.Second}, // with a remainder
	weir.TokenBucket{Capacity: 10, Refill: 10, Period: time.Second, Overdraft: 3},
	weir.TokenBucket{Capacity: 10, Refill: 3, Period: time.Second, Mode: weir.Step},
	weir.FixedWindow{Limit: 10, Window: time.Second},
	weir.FixedWindow{Limit: 10, Window: time.Second, Anchor: weir.Epoch},
	weir.Calendar{Limit: 10, Unit: weir.Hour, Zone: "Asia/Kathmandu"},
	weir.SlidingLog{Limit: 10, Window: time.Second},
	weir.SlidingCounter{Limit: 10, Window: time.Second, Slices: 1},
	weir.SlidingCounter{Limit: 10, Window: time.Second, Slices: 10},
	weir.Concurrency{Limit: 10, TTL: time.Second},
	weir.Fair{Of: weir.FixedWindow{Limit: 10, Window: time.Second}},
	weir.Fair{Of: weir.Concurrency{Limit: 10, TTL: time.Second}},
}

// closed: calls after Close return ErrClosed.
func closed(t *testing.T, s Subject) {
	t.Helper()
	b := open(t, s)
	claims, ctx := []weir.Claim{b.claim(weir.PerSecond(1))}, context.Background()
	if err := b.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	_, err := b.Decide(ctx, claims, 1, nil)
	for call, err := range map[string]error{"Decide": err, "Charge": b.Charge(ctx, claims, nil),
		"Refund": b.Refund(ctx, claims, 0, nil), "Reset": b.Reset(ctx, claims)} {
		if !errors.Is(err, weir.ErrClosed) {
			t.Fatalf("%s after Close: got %v, want weir.ErrClosed", call, err)
		}
	}
}

// foreignState: foreign state is an error of every operation, and is not changed.
func foreignState(t *testing.T, s Subject) {
	b := open(t, s)
	for kind, plant := range b.Foreign {
		for _, spec := range oneOfEach {
			t.Run(kind+"/"+spec.String(), func(t *testing.T) { keepsForeign(t, b, spec, plant) })
		}
	}
}

func keepsForeign(t TB, b *fixture, spec weir.Spec, plant func(weir.Claim) func() bool) {
	t.Helper()
	ctx := context.Background()
	beside, claim := b.claim(weir.PerSecond(5)), b.claim(spec)
	beside.Key, claim.Key = "{"+beside.Key+"}", "{"+beside.Key+"}x" // in one slot of a Redis Cluster
	beside.Limit = weir.MustLimit("beside", weir.PerSecond(5))
	unchanged := plant(claim)
	claims := []weir.Claim{beside, claim}
	_, taking := b.Decide(ctx, claims, 1, nil)
	_, peeking := b.Decide(ctx, claims, 0, make([]weir.Decision, 2))
	for call, err := range map[string]error{"Decide": taking, "a peek": peeking, "Charge": b.Charge(ctx, claims, nil),
		"Refund": b.Refund(ctx, claims, b.clock.read(), nil)} {
		if !errors.Is(err, weir.ErrForeignState) {
			t.Fatalf("%s on foreign state: got %v, want weir.ErrForeignState", call, err)
		}
	}
	if !unchanged() {
		t.Fatalf("the foreign state was changed")
	}
	if _, d := b.decide(t, 0, beside); d[0].ResetAfter != 0 {
		t.Fatalf("the claim beside the foreign one was charged: %+v", d[0])
	}
}
