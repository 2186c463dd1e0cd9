package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/weirproject/weir"
)

// A schedule is a random sequence of requests.
type schedule struct {
	start int64
	specs []weir.Spec
	steps []step
}

// A step is one call of the store, after the clock was moved.
type step struct {
	op     string // take, peek, charge, refund, reset
	move   string // stay, by, back, retry, early (1 µs before retry), reset, almost (1 µs before reset)
	by     int64  // µs, of by and back
	times  int64
	costs  []int64 // one a claim
	floors []int64 // one a claim
	lease  int     // the number of the lease; of a refund: how many takes ago
	renew  bool    // of a charge: it settles an earlier one
	peer   bool    // through the other handle
	quiet  bool    // without decisions
	wait   int64   // of a refund: quarters of the grant's delay after which it acts; 0: units go back whole
}

// GoString is printed by rapid for a schedule that failed.
func (s schedule) GoString() string {
	var text strings.Builder
	fmt.Fprintf(&text, "start at %d", s.start)
	for _, spec := range s.specs {
		fmt.Fprintf(&text, "\n  limit %s", spec)
	}
	for i, step := range s.steps {
		if step.op == "peek" && step.move == "stay" && i < len(s.steps)-1 {
			continue // rapid shrinks a step that does not matter to this
		}
		fmt.Fprintf(&text, "\n  %2d %s %d; %s %d × %v floors %v lease %d", i, step.move, step.by, step.op,
			step.times, step.costs, step.floors, step.lease)
		if step.op == "refund" && step.wait != 0 {
			fmt.Fprintf(&text, " after %d/4 of the delay", step.wait)
		}
		for word, said := range map[string]bool{" renew": step.renew, " peer": step.peer, " quiet": step.quiet} {
			if said {
				text.WriteString(word)
			}
		}
	}
	return text.String()
}

// kinds are the families that limits are drawn from.
var kinds = []string{"continuous bucket", "step bucket", "fixed window first", "fixed window epoch", "calendar",
	"sliding log", "sliding counter", "concurrency", "fair window", "fair concurrency", "large", "several"}

// anyKind draws the kind as well.
func anyKind(kinds []string) *rapid.Generator[schedule] {
	return rapid.Custom(func(t *rapid.T) schedule {
		return schedules(rapid.SampledFrom(kinds).Draw(t, "kind"), 24).Draw(t, "schedule")
	})
}

// schedules of about a number of steps or less, of a kind of limits.
func schedules(kind string, most int) *rapid.Generator[schedule] {
	return rapid.Custom(func(t *rapid.T) schedule {
		s := schedule{start: rapid.SampledFrom(starts).Draw(t, "start")}
		s.specs = drawSpecs(t, kind)
		limits := s.limits()
		n := pick(t, "n", most/12, most/6, most/3, most)
		s.steps = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step { return drawStep(t, kind, limits) }), n,
			n+5).Draw(t, "steps")
		return s
	})
}

func at(text string) int64 {
	instant, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return instant.UnixMicro()
}

// starts are a plain instant, the first ones, and the eves of difficult days of calendars.
var starts = []int64{epoch, epoch, epoch, epoch, 0, 1_000_000,
	at("2026-03-28T22:30:00Z"), at("2026-10-24T22:30:00Z"), // the clock is changed in Europe
	at("2028-02-28T23:59:59Z"), at("2026-12-31T23:00:00Z"),
	at("2018-11-03T20:00:00Z"), // São Paulo: no midnight
	at("2011-12-29T08:00:00Z"), // Apia: no 30 December
	at("2026-04-04T14:20:00Z"), // Lord Howe: half an hour
}

var zones = []string{"", "UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Asia/Kathmandu",
	"Asia/Shanghai", "Pacific/Apia", "Australia/Lord_Howe"}

func drawSpecs(t *rapid.T, kind string) []weir.Spec {
	if kind != "several" {
		return []weir.Spec{drawSpec(t, kind)}
	}
	single := kinds[:len(kinds)-2]
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) weir.Spec {
		return drawSpec(t, rapid.SampledFrom(single).Draw(t, "kind"))
	}), 2, 4).Draw(t, "specs")
}

func pick[T any](t *rapid.T, name string, of ...T) T { return rapid.SampledFrom(of).Draw(t, name) }

func drawSpec(t *rapid.T, kind string) weir.Spec {
	limit := pick[int64](t, "limit", 1, 2, 3, 5, 7, 10, 40, 100, 1000)
	length := pick(t, "period", time.Second, time.Microsecond, 7*time.Microsecond, time.Millisecond,
		250*time.Millisecond, 1900*time.Millisecond,
		3*time.Second, time.Minute, time.Hour, 24*time.Hour, 30*24*time.Hour)
	switch kind {
	case "continuous bucket", "step bucket":
		return drawBucket(t, kind, limit, length)
	case "fixed window first":
		return weir.FixedWindow{Limit: limit, Window: length}
	case "fixed window epoch":
		return weir.FixedWindow{Limit: limit, Window: length, Anchor: weir.Epoch}
	case "calendar":
		unit := pick(t, "unit", weir.Minute, weir.Hour, weir.Day, weir.Week, weir.Month, weir.Year)
		return weir.Calendar{Limit: limit, Unit: unit, Zone: pick(t, "zone", zones...)}
	case "sliding log":
		return weir.SlidingLog{Limit: limit, Window: length}
	case "sliding counter":
		n := pick[int64](t, "slices", 1, 2, 3, 6, 10, 60, weir.MaxSlices)
		slice := pick(t, "slice", length, time.Second/2, 7*time.Microsecond, 1500*time.Microsecond)
		return weir.SlidingCounter{Limit: limit, Window: time.Duration(n) * slice, Slices: n}
	case "concurrency":
		return weir.Concurrency{Limit: limit, TTL: length}
	case "fair concurrency":
		return weir.Fair{Of: drawSpec(t, "concurrency"), Above: pick(t, "above", 0, 20, 50, 80, 99, 100),
			MaxKeys: pick[int64](t, "keys", 1, 2, 3, 0)}
	case "fair window":
		of := pick(t, "of", "fixed window first", "fixed window epoch", "calendar")
		return weir.Fair{Of: drawSpec(t, of), Above: pick(t, "above", 0, 20, 50, 80, 99, 100),
			MaxKeys: pick[int64](t, "keys", 1, 2, 3, 0)}
	default:
		return pick(t, "large", large...)
	}
}

func drawBucket(t *rapid.T, kind string, capacity int64, length time.Duration) weir.TokenBucket {
	spec := weir.TokenBucket{Capacity: capacity, Period: length,
		Refill:    pick[int64](t, "refill", 1, 2, 3, 7, 10, 50, 997, 1_000_003),
		Overdraft: pick[int64](t, "overdraft", 0, 0, 1, 4, 20)}
	if kind == "step bucket" {
		spec.Mode = weir.Step
	}
	if limit := weir.MustLimit("drawn", spec); limit.Span().Whole > 1<<46 {
		spec.Period = time.Second // SPEC.md leaves open how charges beyond 2^52 µs are cut
	}
	return spec
}

// large are limits at the edge of exact arithmetic.
var large = []weir.Spec{
	weir.TokenBucket{Capacity: weir.MaxUnits, Refill: 1, Period: time.Microsecond},
	weir.TokenBucket{Capacity: 1, Refill: 1, Period: weir.MaxUnits * time.Microsecond},
	weir.TokenBucket{Capacity: 1 << 51, Refill: weir.MaxUnits, Period: weir.MaxUnits * time.Microsecond,
		Overdraft: 1 << 50},
	weir.TokenBucket{Capacity: 4_503_599, Refill: 999_999_937, Period: 999_999_937_000 * time.Microsecond},
	weir.TokenBucket{Capacity: 1 << 30, Refill: 1<<30 - 35, Period: 1 << 50 * time.Microsecond},
	weir.TokenBucket{Capacity: weir.MaxUnits, Refill: weir.MaxUnits, Period: weir.MaxUnits * time.Microsecond,
		Mode: weir.Step},
	weir.FixedWindow{Limit: weir.MaxUnits, Window: weir.MaxUnits * time.Microsecond},
	weir.FixedWindow{Limit: weir.MaxUnits, Window: weir.MaxUnits * time.Microsecond, Anchor: weir.Epoch},
	weir.Calendar{Limit: weir.MaxUnits, Unit: weir.Year, Zone: "Asia/Shanghai"},
	weir.SlidingLog{Limit: weir.MaxUnits, Window: weir.MaxUnits * time.Microsecond},
	weir.SlidingCounter{Limit: 1, Window: weir.MaxUnits * time.Microsecond, Slices: 1},
	weir.SlidingCounter{Limit: weir.MaxUnits, Window: time.Microsecond, Slices: 1},
	weir.SlidingCounter{Limit: 1 << 32, Window: 60 << 20 * time.Microsecond, Slices: 60},
	weir.Concurrency{Limit: weir.MaxUnits, TTL: weir.MaxUnits * time.Microsecond},
}

func drawStep(t *rapid.T, kind string, limits []*weir.Limit) step {
	ops := []string{"peek", "take", "take", "take", "take", "take", "charge", "refund", "refund", "reset"}
	if kind == "large" { // nothing beyond 2^52
		ops = []string{"peek", "take", "take", "take", "refund"}
	}
	s := step{
		op:    pick(t, "op", ops...),
		move:  pick(t, "move", "stay", "by", "by", "by", "retry", "early", "reset", "almost", "back"),
		times: pick[int64](t, "times", 1, 1, 1, 1, 0, 2, 3, 17, 1000),
		lease: pick(t, "lease", 0, 1, 2, 3, 4),
		renew: pick(t, "renew", false, false, true),
		peer:  pick(t, "peer", false, true),
		quiet: pick(t, "quiet", false, false, false, true),
		wait:  pick[int64](t, "wait", 0, 4, 4, 4, 1, 3, 9),
	}
	var strides []int64
	for _, limit := range limits {
		s.costs, s.floors = append(s.costs, drawCost(t, s.op, limit)), append(s.floors, drawFloor(t, limit))
		strides = append(strides, stridesOf(limit)...)
		if limit.Leases() {
			s.times = min(s.times, 1)
		}
	}
	if s.move == "by" || s.move == "back" {
		s.by = max(1, pick(t, "stride", strides...)/pick[int64](t, "part", 1, 1, 2, 3, 1000)+pick[int64](t, "off", 0,
			0, -1, 1))
	}
	return s
}

func drawCost(t *rapid.T, op string, limit *weir.Limit) int64 {
	most := limit.Most()
	cost := pick(t, "cost", 1, 1, 1, 1, 2, 3, 0, most/2, most-1, most, most+1)
	if op == "take" || op == "peek" {
		cost = pick(t, "or", cost, cost, cost, cost, cost, weir.MaxUnits)
	}
	return min(cost, weir.MaxUnits)
}

// drawFloor draws mostly none, and at times more than the limit can hold.
func drawFloor(t *rapid.T, limit *weir.Limit) int64 {
	most := limit.Most()
	return min(pick(t, "floor", 0, 0, 0, 0, 1, (most+4)/5, most/2, most-1, most, most+1), weir.MaxUnits)
}

// stridesOf are waits at which a limit changes.
func stridesOf(l *weir.Limit) []int64 {
	switch l.Algorithm() {
	case weir.AlgorithmTokenBucket:
		return []int64{1, l.Interval().Whole + 1, l.Period(), l.Span().Whole + 1}
	case weir.AlgorithmFairWindow:
		return []int64{1, l.Period() / 100, l.Period() / 10, l.Period(), 2 * l.Period()}
	case weir.AlgorithmCalendar, weir.AlgorithmFairCalendar:
		return []int64{1, 60e6, 3600e6, 86400e6, 7 * 86400e6, 31 * 86400e6}
	case weir.AlgorithmSlidingCounter:
		return []int64{1, l.Slice(), l.Period(), 3 * l.Period()}
	}
	return []int64{1, l.Period(), 2 * l.Period()}
}

func (s *schedule) limits() []*weir.Limit {
	limits := make([]*weir.Limit, len(s.specs))
	for i, spec := range s.specs {
		limits[i] = weir.MustLimit(fmt.Sprint("limit-", i), spec)
	}
	return limits
}

// An actor plays the steps of a schedule on keys of its own.
type actor struct {
	b       *fixture
	forward bool // the clock does not step back
	others  int  // 1: other members ask than those of an actor with 0
	claims  []weir.Claim
	taken   []taking        // the steps that charged units
	last    []weir.Decision // of the last step that had some
}

// A taking is the time of a charge, and its decisions, if asked for.
type taking struct {
	at        int64
	decisions []weir.Decision
}

// actor has a claim for each limit of a schedule, on new keys.
func (b *fixture) actor(s *schedule) *actor {
	limits := s.limits()
	a := &actor{b: b, claims: make([]weir.Claim, len(limits)), last: make([]weir.Decision, len(limits))}
	keys := b.keysTogether(len(limits))
	for i, limit := range limits {
		a.claims[i] = weir.Claim{Key: keys[i], Limit: limit}
		a.last[i].At = b.clock.read()
	}
	return a
}

// move sets the clock for a step.
func (a *actor) move(s *step) {
	now := a.b.clock.now.Load()
	before := now
	worst := a.last[0]
	for _, d := range a.last[1:] {
		if weir.Worse(&d, &worst) {
			worst = d
		}
	}
	switch s.move {
	case "by":
		now += s.by
	case "back":
		now -= s.by
	case "retry":
		now = int64(worst.At) + max(0, waitMicros(worst.RetryAfter))
	case "early":
		now = int64(worst.At) + max(1, waitMicros(worst.RetryAfter)) - 1
	case "reset":
		now = int64(worst.At) + worst.ResetAfter.Microseconds()
	case "almost":
		now = int64(worst.At) + max(1, worst.ResetAfter.Microseconds()) - 1
	}
	if a.forward {
		now = max(now, before)
	}
	a.b.clock.set(min(max(0, now), latest))
}

// latest keeps sums of an instant and a wait far from the end of int64, and whole in a double.
const latest = 1 << 51

// claimsOf are the claims of a step: its costs, its floors, its lease.
func (a *actor) claimsOf(s *step) []weir.Claim {
	claims := slices.Clone(a.claims)
	for i := range claims {
		claims[i].Cost, claims[i].Floor = s.costs[i], s.floors[i]
		claims[i].Settle = s.op == "charge" && s.renew
		if claims[i].Limit.Whole() != nil {
			claims[i].Member, claims[i].Weight = member(s.lease^a.others), (int64(s.lease)+s.wait)%4
			if a.forward { // keys apart: a refused request may leave its weight
				claims[i].Weight = 1
			}
		}
		if claims[i].Limit.Leases() {
			claims[i].Renew = s.renew && (s.op == "take" || s.op == "peek")
			if claims[i].Cost > 0 || claims[i].Renew { // what charges nothing takes no lease
				claims[i].Lease = fmt.Sprint("lease-", s.lease)
			}
		}
		if g := a.ago(s.lease); s.op == "refund" && g.decisions != nil {
			claims[i].Delay = (g.decisions[i].Delay / 4 * time.Duration(s.wait)).Truncate(time.Microsecond)
		}
	}
	return claims
}

// member is one of three.
func member(n int) string { return fmt.Sprint("member-", n%3) }

// An outcome is the whole answer of a store.
type outcome struct {
	granted   int64
	gone      bool
	decisions []weir.Decision // nil if they were not asked for
}

func (o outcome) String() string {
	text := fmt.Sprintf("granted %d", o.granted)
	if o.gone {
		text += ", a lease was gone"
	}
	for i, d := range o.decisions {
		text += fmt.Sprintf("\n    %d: remaining %d, retry after %d, reset after %d, delay %d µs, at %d",
			i, d.Remaining, waitMicros(d.RetryAfter), d.ResetAfter.Microseconds(), d.Delay.Microseconds(), d.At)
		if d.Standing != nil {
			text += fmt.Sprintf(", standing %+v", *d.Standing)
		}
	}
	return text
}

func (o outcome) equal(other outcome) bool {
	return o.granted == other.granted && o.gone == other.gone && sameDecisions(o.decisions, other.decisions)
}

// play does a step on a store, at the time that the clock shows.
func (a *actor) play(store weir.Store, s *step) (outcome, error) {
	claims := a.claimsOf(s)
	var o outcome
	if !s.quiet && s.op != "reset" {
		o.decisions = make([]weir.Decision, len(claims))
	}
	var err error
	ctx := context.Background()
	switch s.op {
	case "take":
		o.granted, err = store.Decide(ctx, claims, s.times, o.decisions)
	case "peek":
		o.granted, err = store.Decide(ctx, claims, 0, o.decisions)
	case "charge":
		err = store.Charge(ctx, claims, o.decisions)
	case "refund":
		err = store.Refund(ctx, claims, weir.Instant(a.ago(s.lease).at), o.decisions)
		o.gone = errors.Is(err, weir.ErrLeaseGone)
		if o.gone {
			err = nil
		}
	case "reset":
		err = store.Reset(ctx, claims)
	}
	return o, err
}

func (a *actor) ago(takings int) taking {
	if i := len(a.taken) - 1 - takings; i >= 0 {
		return a.taken[i]
	}
	return taking{at: a.b.clock.now.Load()}
}

// note records takes, for later steps.
func (a *actor) note(s *step, o outcome) {
	if o.granted > 0 || s.op == "charge" {
		a.taken = append(a.taken, taking{a.b.clock.now.Load(), o.decisions})
	}
	if o.decisions != nil {
		a.last = o.decisions
	}
}

// do moves the clock and plays a step on the fixture's store, or on its peer.
func (a *actor) do(t TB, s *step) outcome {
	t.Helper()
	a.move(s)
	store := a.b.Store
	if s.peer {
		store = a.b.peer
	}
	o, err := a.play(store, s)
	if err != nil {
		t.Fatalf("%s of %s: %v", s.op, claimsText(a.claimsOf(s)), err)
	}
	return o
}
