package storetest

import (
	"fmt"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/stories/model"
)

// numbersChange: the numbers of a limit change while its keys are in use, and nodes with
// the old and the new ones run side by side.
func numbersChange(t *testing.T, s Subject) {
	b := open(t, s)
	for _, family := range families {
		drawn := changes(family[0], family[1])
		t.Run("usage is kept/"+family[0]+" to "+family[1], func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { usageIsKept(t, b, drawn.Draw(t, "change")) })
		})
		t.Run("retry after is honest/"+family[0]+" to "+family[1], func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { exactAfterwards(t, b, drawn.Draw(t, "change")) })
		})
	}
	for _, kind := range longerKinds {
		t.Run("settling forgets nothing/"+kind, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { settlingForgetsNothing(t, b, changes(kind, kind).Draw(t, "change")) })
		})
		t.Run("side by side, other numbers/"+kind, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { sideBySide(t, b, changes(kind, kind).Draw(t, "change")) })
		})
	}
	t.Run("counters by turns stay at the clock", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			byTurns(t, b, changes("sliding counter", "sliding counter").Draw(t, "change"))
		})
	})
	t.Run("side by side, one shape", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { sideBySide(t, b, sameShape().Draw(t, "change")) })
	})
	t.Run("side by side, other fractions", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			bucketsSideBySide(t, b, changes("continuous bucket", "continuous bucket").Draw(t, "change"))
		})
	})
}

// longerKinds are the kinds of which some numbers count longer than others.
var longerKinds = []string{"fixed window first", "fixed window epoch", "sliding log", "sliding counter"}

// families are the changes within one algorithm.
var families = [][2]string{
	{"continuous bucket", "continuous bucket"}, {"step bucket", "step bucket"},
	{"continuous bucket", "step bucket"}, {"step bucket", "continuous bucket"},
	{"fixed window first", "fixed window first"}, {"fixed window epoch", "fixed window epoch"},
	{"fixed window first", "fixed window epoch"}, {"fixed window epoch", "fixed window first"},
	{"calendar", "calendar"}, {"sliding log", "sliding log"}, {"sliding counter", "sliding counter"},
	{"concurrency", "concurrency"},
}

// A change is a schedule of one limit, and the numbers that it gets.
type change struct {
	schedule
	to   weir.Spec
	cost int64
}

func (c change) GoString() string {
	return fmt.Sprintf("%#v\n  then %s, cost %d", c.schedule, c.to, c.cost)
}

func changes(from, to string) *rapid.Generator[change] {
	return rapid.Custom(func(t *rapid.T) change {
		c := change{schedule: schedules(from, 12).Draw(t, "schedule"), to: drawSpec(t, to)}
		c.cost = pick(t, "cost", 1, 2, 3, weir.MustLimit("to", c.to).Most())
		return c
	})
}

// limitsOf are both limits: one name, one state.
func (c *change) limitsOf() (from, to *weir.Limit) {
	return weir.MustLimit("changing", c.specs[0]), weir.MustLimit("changing", c.to)
}

// changing is an actor and the limit that its own changes to.
func (b *fixture) changing(c *change, from *weir.Limit) *actor {
	b.clock.set(c.start)
	a := b.actor(&c.schedule)
	a.claims[0].Limit = from
	a.forward = true
	return a
}

// usageIsKept plays a schedule under the old numbers and asks under the new ones.
func usageIsKept(t TB, b *fixture, c change) {
	t.Helper()
	from, to := c.limitsOf()
	a := b.changing(&c, from)
	charges := a.use(t, c.steps)
	before := a.peek(t, a.claims)[0]
	now := int64(before.At)
	claim := a.claims[0]
	claim.Limit, claim.Cost = to, 1
	got := a.peek(t, []weir.Claim{claim})[0]
	most, least := kept(charges, from, to, now)
	if got.Remaining > most || got.Remaining < least {
		t.Fatalf("%s became %s at %d: %d remain; want %d to %d", from, to, now, got.Remaining, least, most)
	}
	if again := a.peek(t, a.claims)[0]; again != before {
		t.Fatalf("%s became %s at %d: a peek by the new numbers changed the decisions by the old ones:\n  %+v\n  %+v",
			from, to, now, before, again)
	}
	if claim.Cost = got.Remaining; claim.Cost > 0 {
		claim.Lease = leaseOf(to, "all")
		if granted, _ := b.decide(t, 1, claim); granted != 1 {
			t.Fatalf("%s became %s at %d: %d remain, but they are refused", from, to, now, got.Remaining)
		}
	}
}

// exactAfterwards waits for the retry-after of a refusal by the new numbers.
func exactAfterwards(t TB, b *fixture, c change) {
	t.Helper()
	from, to := c.limitsOf()
	a := b.changing(&c, from)
	a.use(t, c.steps)
	a.claims[0].Limit = to
	s := step{op: "take", move: "stay", times: 1, costs: []int64{min(c.cost, to.Most())},
		floors: []int64{0}, lease: len(c.steps)}
	if o := a.do(t, &s); o.granted == 0 {
		a.waitFor(t, s, o.decisions)
	}
}

// settlingForgetsNothing: what was charged under a shorter window is settled or given back when the key was charged
// under a longer one. That one gains the units that are given back, and no others.
func settlingForgetsNothing(t TB, b *fixture, c change) {
	t.Helper()
	from, to := c.limitsOf()
	if from.Period() > to.Period() {
		from, to = to, from
	}
	a, last := b.changing(&c, from), c.steps[len(c.steps)-1]
	for i := range c.steps[:len(c.steps)-1] {
		s := c.steps[i]
		if s.op == "refund" {
			s.op = "take"
		}
		a.claims[0].Limit = from
		if i%2 == 1 {
			a.claims[0].Limit = to
		}
		a.note(&s, a.do(t, &s))
	}
	a.claims[0].Limit = to
	if granted, _ := b.decide(t, 1, weir.Claim{Key: a.claims[0].Key, Limit: to, Cost: 1}); granted == 0 {
		return
	}
	a.move(&last)
	last.move, last.renew, last.peer = "stay", true, false
	if last.op != "refund" {
		last.op = "charge"
	}
	before := a.peek(t, a.claims)[0]
	a.claims[0].Limit = from
	a.do(t, &last)
	a.claims[0].Limit = to
	gained := a.peek(t, a.claims)[0].Remaining - before.Remaining
	if most := last.costs[0]; gained > most || gained > 0 && last.op == "charge" {
		t.Fatalf("%s, after one of %s %ss %d at %d: %d more remain", to, from, last.op, most, before.At, gained)
	}
}

// byTurns: nodes with either numbers charge by turns, while the clock goes on a little. Neither has a state that stands
// more than a slice of the longer kind ahead of the clock: it is fresh again a window and two slices after the last
// charge.
func byTurns(t TB, b *fixture, c change) {
	t.Helper()
	from, to := c.limitsOf()
	a := b.changing(&c, from)
	for i := range 2 * len(c.steps) {
		b.clock.set(b.clock.now.Load() + int64(c.steps[i/2].lease))
		for _, l := range []*weir.Limit{from, to} {
			_, d := b.decide(t, 1, weir.Claim{Key: a.claims[0].Key, Limit: l, Cost: 1})
			most := l.Period() + l.Slice() + max(from.Slice(), to.Slice())
			if got := d[0].ResetAfter.Microseconds(); got > most {
				t.Fatalf("%s beside %s, after %d charges: reset after %d µs, at most %d", from, to, 2*i, got, most)
			}
		}
	}
}

// use plays the takes and charges of a schedule; the model is charged at true times.
func (a *actor) use(t TB, steps []step) (charged []model.Units) {
	t.Helper()
	for i := range steps {
		s := steps[i]
		if s.op == "refund" || s.op == "reset" || s.renew {
			s.op, s.renew = "take", false
		}
		s.lease = i // one of its own
		o := a.do(t, &s)
		a.note(&s, o)
		if s.op == "charge" {
			o.granted = 1
		}
		if n := o.granted * s.costs[0]; n > 0 {
			charged = append(charged, model.Units{At: a.b.clock.now.Load(), N: n})
		}
	}
	return charged
}

// kept is how many units may remain under the new numbers, at most and at least, after
// charges at their true times under the old ones.
func kept(charges []model.Units, from, to *weir.Limit, now int64) (most, least int64) {
	switch to.Algorithm() {
	case weir.AlgorithmTokenBucket:
		return keptBucket(charges, from, to, now)
	case weir.AlgorithmFixedWindow, weir.AlgorithmCalendar:
		return keptWindow(charges, from, to, now)
	case weir.AlgorithmSlidingCounter:
		return keptCounter(charges, from, to, now)
	}
	// A log, or leases. Charges that the old numbers dropped may be gone.
	life := min(from.Period(), to.Period())
	if to.Leases() {
		return remainOf(to, since(charges, now-from.Period()+1)), remainOf(to, since(charges, now-from.Period()+1))
	}
	return remainOf(to, since(charges, now-life+1)), remainOf(to, since(charges, now-to.Period()+1))
}

func since(charges []model.Units, at int64) (n int64) {
	for _, c := range charges {
		if c.At >= at {
			n += c.N
		}
	}
	return n
}

func remainOf(l *weir.Limit, used int64) int64 { return max(0, l.Capacity()-used) }

// replay charges a model of the old limit.
func replay(charges []model.Units, l *weir.Limit) model.Model {
	w := model.New(l)
	for _, c := range charges {
		w.Charge(l, c.N, c.At)
	}
	return w
}

// keptBucket: the full instant stays, up to 1 µs; the missing units stay, up to one step if the
// bucket changes to steps. Units refilled since the mark may be read at either pace.
func keptBucket(charges []model.Units, from, to *weir.Limit, now int64) (most, least int64) {
	switch old := replay(charges, from).(type) {
	case *model.Bucket:
		late := &model.Bucket{Full: new(big.Rat).Add(old.Full, model.Whole(1))}
		most, least = left(old, to, now), left(late, to, now)
		if to.Step() {
			return most, max(0, most-to.Refill())
		}
		return most, least
	case *model.Steps:
		if to.Step() {
			return left(old, to, now), left(old, to, now)
		}
		settled := old.At(from, now)
		even := &model.Bucket{Full: new(big.Rat).Add(model.Whole(old.Mark), model.Over(to, old.Missing))}
		missing := max(settled.Missing, old.At(to, now).Missing)
		late := &model.Bucket{Full: new(big.Rat).Add(model.Whole(now+1), model.Over(to, missing))}
		return max(to.Most()-settled.Missing, left(old, to, now), left(even, to, now)), left(late, to, now)
	}
	return 0, 0
}

// left is the units that remain in a bucket; its model reads the state by the numbers of any limit.
func left(w model.Model, l *weir.Limit, now int64) int64 {
	return model.Describe(w, l, 0, 0, now).Remaining
}

// keptWindow: the count of the open window stands in the new one, as far as it may have been
// charged there; units charged before both began do not.
func keptWindow(charges []model.Units, from, to *weir.Limit, now int64) (most, least int64) {
	old := replay(charges, from).(*model.Window)
	newStart, _ := model.Period(to, now)
	if model.Own(to) {
		newStart = old.Start
		if now >= old.Start+to.Period() {
			newStart = now + 1
		}
	}
	if old.Used(from, now) == 0 { // the count of an old window may be gone, or still stand
		return to.Capacity(), remainOf(to, since(charges, min(old.Start, newStart)))
	}
	return remainOf(to, since(charges, max(old.Start, newStart))),
		remainOf(to, since(charges, min(old.Start, newStart)))
}

// keptCounter: each charge counts in the new slice of its true time, or an old slice and a
// new one after the end of its old one at the latest.
func keptCounter(charges []model.Units, from, to *weir.Limit, now int64) (most, least int64) {
	exact, late := &model.SlidingCounter{}, &model.SlidingCounter{}
	for _, c := range charges {
		slice := model.FloorDiv(c.At, from.Slice())
		late.Charges = append(late.Charges, model.Units{At: min(now, (slice+2)*from.Slice()-1+to.Slice()), N: c.N})
		if slice >= model.FloorDiv(now, from.Slice())-from.Slices() {
			exact.Charges = append(exact.Charges, c)
		}
	}
	return left(exact, to, now), left(late, to, now)
}

// sameShape are pairs of numbers whose state has one shape: then every field is exact.
func sameShape() *rapid.Generator[change] {
	return rapid.Custom(func(t *rapid.T) change {
		kind := pick(t, "kind", "continuous bucket", "step bucket", "fixed window first", "fixed window epoch",
			"calendar", "sliding log", "sliding counter", "concurrency")
		c := change{schedule: schedules(kind, 24).Draw(t, "schedule")}
		n := pick[int64](t, "other", 1, 2, 5, 10, 100)
		switch spec := c.specs[0].(type) {
		case weir.TokenBucket:
			spec.Capacity, spec.Overdraft = n, pick[int64](t, "overdraft", 0, 0, 3)
			c.to = spec
		case weir.FixedWindow:
			spec.Limit = n
			c.to = spec
		case weir.Calendar:
			spec.Limit = n
			c.to = spec
		case weir.SlidingLog:
			spec.Limit = n
			c.to = spec
		case weir.SlidingCounter:
			spec.Limit = n
			c.to = spec
		case weir.Concurrency:
			c.to = drawSpec(t, kind)
		}
		return c
	})
}

// sideBySide: two nodes, one with the old numbers and one with the new ones, equal the
// model that reads one state by either.
func sideBySide(t TB, b *fixture, c change) {
	t.Helper()
	from, to := c.limitsOf()
	a, model := b.changing(&c, from), newModel(b.clock.read)
	for i := range c.steps {
		s := c.steps[i]
		a.claims[0].Limit = from
		if s.peer {
			a.claims[0].Limit = to
		}
		s.peer = s.peer && !b.Recalls // it learns of other numbers by its own calls
		got := a.do(t, &s)
		want, err := a.play(model, &s)
		if err != nil {
			t.Fatalf("the model: %v", err)
		}
		if !got.equal(want) {
			t.Fatalf("%s beside %s, step %d, %s of %s (times %d) at %d:\n  got  %v\n  want %v", from, to, i, s.op,
				claimsText(a.claimsOf(&s)), s.times, b.clock.read(), got, want)
		}
		a.note(&s, got)
	}
}

// bucketsSideBySide: with other fractions of a microsecond each write may round against
// the caller, by at most one. The true state and that bound enclose the store.
func bucketsSideBySide(t TB, b *fixture, c change) {
	t.Helper()
	from, to := c.limitsOf()
	a := b.changing(&c, from)
	exact, strict := &model.Bucket{Full: new(big.Rat)}, &model.Bucket{Full: new(big.Rat)}
	for i := range c.steps {
		s := c.steps[i]
		if s.op == "refund" || s.op == "reset" {
			s.op = "take"
		}
		s.quiet = false
		a.claims[0].Limit = from
		if s.peer {
			a.claims[0].Limit = to
		}
		l := a.claims[0].Limit
		s.peer = s.peer && !b.Recalls
		got := a.do(t, &s)
		a.note(&s, got)
		now := b.clock.now.Load()
		n := got.granted
		if s.op == "charge" {
			n = 1
		}
		if n *= s.costs[0]; n > 0 {
			exact.Charge(l, n, now)
			strict.Full.Add(strict.Full, model.Whole(1))
			strict.Charge(l, n, now)
		}
		later := &model.Bucket{Full: new(big.Rat).Add(strict.Full, model.Whole(1))}
		best := model.Describe(exact, l, s.costs[0], s.floors[0], now)
		worst := model.Describe(later, l, s.costs[0], s.floors[0], now)
		if d := got.decisions[0]; d.Remaining > best.Remaining || d.Remaining < worst.Remaining ||
			d.ResetAfter < best.ResetAfter || d.ResetAfter > worst.ResetAfter {
			t.Fatalf("%s beside %s, step %d, %s at %d:\n  got %v\n  not within %+v\n  and        %+v", from, to, i,
				s.op, now, got, best, worst)
		}
	}
}
