package storetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirproject/weir"
)

// A property holds for every schedule, on a fresh store or on a used one.
type property func(t TB, b *fixture, s schedule)

// check tries a property on schedules drawn by chance, shrunk where it fails.
func check(t *testing.T, b *fixture, drawn *rapid.Generator[schedule], holds property) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) { holds(t, b, drawn.Draw(t, "schedule")) })
}

// properties runs all of them.
func properties(t *testing.T, s Subject) {
	b := open(t, s)
	for _, kind := range kinds {
		t.Run("equals the model/"+kind, func(t *testing.T) { check(t, b, schedules(kind, 60), equalsModel) })
	}
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) { check(t, b, anyKind(p.kinds), p.holds) })
	}
}

// promises are properties of SPEC.md that need no model.
var promises = []struct {
	name  string
	kinds []string
	holds property
}{
	{"several keys apart equal the model", []string{"several"}, apartEqualsModel},
	{"refusals and peeks change nothing", kinds, refusalsChangeNothing},
	{"partial grants charge the granted requests", kinds, partialGrants},
	{"retry after is honest", kinds, retryIsExact},
	{"reset after is honest", kinds, resetIsExact},
	{"a refund undoes a take", kinds, refundUndoes},
	{"reset forgets, and neighbours stay", kinds, neighboursStay},
	{"grants stay within the bounds", bounded, staysBounded},
}

// equalsModel compares every field of every answer with the model's.
func equalsModel(t TB, b *fixture, s schedule) {
	t.Helper()
	b.clock.set(s.start)
	b.actor(&s).equalsModel(t, s)
}

// apartEqualsModel uses keys that may lie in different slots of a Redis Cluster. There a
// refusal gives back the grants of other slots, which is exact while no other caller comes,
// the clock does not step back, and no lease is taken twice.
func apartEqualsModel(t TB, b *fixture, s schedule) {
	t.Helper()
	b.clock.set(s.start)
	a := b.actor(&s)
	a.apart(&s)
	a.equalsModel(t, s)
}

// apart gives the actor keys anywhere, and the schedule leases that are taken once.
func (a *actor) apart(s *schedule) {
	a.forward = true
	for i := range a.claims {
		a.claims[i].Key = a.b.key()
	}
	s.steps = slices.Clone(s.steps)
	for i := range s.steps {
		if s.steps[i].op == "take" {
			s.steps[i].lease, s.steps[i].renew = i, false
		}
	}
}

func (a *actor) equalsModel(t TB, s schedule) {
	t.Helper()
	model := newModel(a.b.clock.read)
	for i := range s.steps {
		step := &s.steps[i]
		got := a.do(t, step)
		want, err := a.play(model, step)
		if err != nil {
			t.Fatalf("the model: %v", err)
		}
		if !got.equal(want) {
			t.Fatalf("step %d, %s of %s (times %d) at %d:\n  got  %v\n  want %v", i, step.op,
				claimsText(a.claimsOf(step)), step.times, a.b.clock.read(), got, want)
		}
		a.note(step, got)
	}
}

// peek asks without changing anything.
func (a *actor) peek(t TB, claims []weir.Claim) []weir.Decision {
	t.Helper()
	_, decisions := a.b.decide(t, 0, claims...)
	return decisions
}

// refusalsChangeNothing plays a schedule in full on some keys, and on others only the
// steps that changed something: the answers must be equal. While the clock is behind, a refusal
// may bring a state back.
func refusalsChangeNothing(t TB, b *fixture, s schedule) {
	t.Helper()
	b.clock.set(s.start)
	full, sparse := b.actor(&s), b.actor(&s)
	newest := s.start
	for i := range s.steps {
		step := s.steps[i]
		got := full.do(t, &step)
		behind := b.clock.now.Load() < newest
		newest = max(newest, b.clock.now.Load())
		changed := got.granted > 0 || step.op != "take" && step.op != "peek"
		if changed || behind && step.op == "take" {
			step.move = "stay"
			if !behind {
				step.times = got.granted
			}
			if again := sparse.do(t, &step); !again.equal(got) {
				t.Fatalf("step %d, %s at %d: with the refusals and peeks before it\n  %v\nwithout them\n  %v", i,
					step.op, b.clock.read(), got, again)
			}
		}
		full.note(&step, got)
		sparse.taken = full.taken
		claims := full.claimsOf(&step)
		if once, again := full.peek(t, claims), full.peek(t, claims); !sameDecisions(once, again) {
			t.Fatalf("step %d: a peek changed the answer of the next one:\n  %v\n  %v", i, once, again)
		}
	}
}

// partialGrants asks for times requests at once on some keys and one by one on others.
func partialGrants(t TB, b *fixture, s schedule) {
	t.Helper()
	b.clock.set(s.start)
	atOnce, oneByOne := b.actor(&s), b.actor(&s)
	for i := range s.steps {
		step := s.steps[i]
		step.quiet = false
		step.times = min(step.times, 20)
		got := atOnce.do(t, &step)
		step.move = "stay"
		var again outcome
		if step.op != "take" {
			again = oneByOne.do(t, &step)
		} else {
			again = oneByOne.each(t, step)
		}
		if !got.equal(again) {
			t.Fatalf("step %d, %s of %s at %d: %d at once\n  %v\none by one\n  %v", i, step.op,
				claimsText(atOnce.claimsOf(&step)), b.clock.read(), step.times, got, again)
		}
		atOnce.note(&step, got)
		oneByOne.taken = atOnce.taken
	}
}

// each takes one at a time, until a refusal.
func (a *actor) each(t TB, s step) (sum outcome) {
	t.Helper()
	sum.decisions = a.peek(t, a.claimsOf(&s))
	times := s.times
	for i := range sum.decisions {
		if times > 0 {
			sum.decisions[i].Standing = nil // only a peek has it
		}
	}
	s.times = 1
	for range times {
		one := a.do(t, &s)
		if one.granted == 0 {
			break
		}
		sum.granted++
		sum.decisions = one.decisions
	}
	return sum
}

// retryIsExact waits after each refusal: it is refused until 1 µs before its retry-after,
// and then granted.
func retryIsExact(t TB, b *fixture, s schedule) {
	t.Helper()
	b.clock.set(s.start)
	a, newest := b.actor(&s), s.start
	for i := range s.steps {
		step := s.steps[i]
		// With a new lease each: a held one is granted at once, and an expired one is not revived.
		step.quiet, step.renew, step.lease = false, false, i
		got := a.do(t, &step)
		a.note(&step, got)
		newest = max(newest, b.clock.now.Load())
		if step.op != "take" || step.times == 0 || got.granted > 0 {
			continue
		}
		if b.clock.now.Load() < newest && slices.Contains(step.costs, 0) {
			continue // what costs nothing does not bring the state of a clock that was ahead back
		}
		step.times, step.lease = 1, 12*len(s.steps)+i // of the same member and weight: see claimsOf
		a.waitFor(t, step, got.decisions)
	}
}

// waitFor checks a refusal until its retry-after.
func (a *actor) waitFor(t TB, s step, refused []weir.Decision) {
	t.Helper()
	worst := slices.MaxFunc(refused, func(x, y weir.Decision) int { return cmp.Compare(x.RetryAfter, y.RetryAfter) })
	if slices.ContainsFunc(refused, func(d weir.Decision) bool { return d.RetryAfter == weir.Never }) {
		return
	}
	granted := int64(worst.At) + worst.RetryAfter.Microseconds()
	if worst.RetryAfter == 0 {
		t.Fatalf("%s at %d: refused, and no claim has a retry-after:\n  %v", claimsText(a.claimsOf(&s)), worst.At,
			outcome{decisions: refused})
	}
	if granted > latest {
		return
	}
	s.move = "stay"
	a.b.clock.set(granted - 1)
	ends := func(c weir.Claim) bool { return c.Limit.Leases() && c.Limit.Whole() != nil } // an upper bound
	if o := a.do(t, &s); o.granted != 0 && slices.ContainsFunc(a.claims, ends) {
		return
	} else if o.granted != 0 {
		t.Fatalf("%s at %d: retry after %d µs, but granted 1 µs earlier", claimsText(a.claimsOf(&s)), worst.At,
			worst.RetryAfter.Microseconds())
	}
	a.b.clock.set(granted)
	o := a.do(t, &s)
	if o.granted != 1 {
		t.Fatalf("%s at %d: retry after %d µs, but then refused:\n  %v", claimsText(a.claimsOf(&s)), worst.At,
			worst.RetryAfter.Microseconds(), o)
	}
	a.note(&s, o)
}

// resetIsExact: at reset-after each claim is in its initial state, and grants all its units;
// 1 µs earlier it is not. A state that a clock far ahead wrote is brought back first.
func resetIsExact(t TB, b *fixture, s schedule) {
	t.Helper()
	b.clock.set(s.start)
	a := b.actor(&s)
	for i := range s.steps {
		a.note(&s.steps[i], a.do(t, &s.steps[i]))
	}
	for _, claim := range a.claims {
		claim.Cost = 1
		if !claim.Limit.Leases() && !claim.Limit.Refills() {
			if err := b.Store.Refund(context.Background(), []weir.Claim{claim}, 0, nil); err != nil {
				t.Fatalf("%s: a refund of nothing: %v", claim.Limit, err)
			}
		}
		d := a.peek(t, []weir.Claim{claim})[0]
		reset := int64(d.At) + d.ResetAfter.Microseconds()
		if reset > latest {
			continue
		}
		if d.ResetAfter > 0 {
			b.clock.set(reset - 1)
			if d := a.peek(t, []weir.Claim{claim})[0]; d.ResetAfter.Microseconds() != 1 {
				t.Fatalf("%s: reset at %d, but 1 µs before it the reset is after %v", claim.Limit, reset, d.ResetAfter)
			}
		}
		b.clock.set(reset)
		claim.Cost, claim.Lease = claim.Limit.Most(), leaseOf(claim.Limit, "last")
		fresh := weir.Decision{Remaining: claim.Limit.Most(), At: weir.Instant(reset)}
		if d := a.peek(t, []weir.Claim{claim})[0]; !isFresh(d, fresh) {
			t.Fatalf("%s: reset at %d, but then it is not in its initial state: %+v", claim.Limit, reset, d)
		}
		if granted, _ := b.decide(t, 1, claim); granted != 1 {
			t.Fatalf("%s: reset at %d, but then it does not grant its %d", claim.Limit, reset, claim.Cost)
		}
		b.clock.set(int64(d.At))
	}
}

// leaseOf is the id, for a limit that needs one.
func leaseOf(l *weir.Limit, id string) string {
	if l.Leases() {
		return id
	}
	return ""
}

// refundUndoes gives each second grant back at once: nothing was taken. The clock only
// advances, because charges by a clock that stepped back may count as charged later.
func refundUndoes(t TB, b *fixture, s schedule) {
	t.Helper()
	b.clock.set(s.start)
	a := b.actor(&s)
	a.forward = true
	for i := range s.steps {
		step := s.steps[i]
		if step.op == "take" && i%2 == 1 {
			a.takeAndRefund(t, &step)
		} else {
			a.note(&step, a.do(t, &step))
		}
	}
}

func (a *actor) takeAndRefund(t TB, s *step) {
	t.Helper()
	a.move(s)
	s.move, s.lease, s.renew = "stay", 9, false // a lease that is not held
	claims := a.claimsOf(s)
	before := a.peek(t, claims)
	got := a.do(t, s)
	if got.granted == 0 {
		return
	}
	back := slices.Clone(claims)
	for i := range back {
		back[i].Cost *= got.granted
	}
	now := a.b.clock.read()
	if err := a.b.Refund(context.Background(), back, now, nil); err != nil {
		t.Fatalf("Refund(%s): %v", claimsText(back), err)
	}
	if after := a.peek(t, claims); !sameDecisions(before, after) {
		t.Fatalf("take and refund of %s at %d left a trace:\n  before %v\n  after  %v", claimsText(back), now,
			outcome{decisions: before}, outcome{decisions: after})
	}
}

// isFresh reports whether a peek found a state equal to the initial one.
func isFresh(d, fresh weir.Decision) bool {
	if s := d.Standing; s != nil && (s.Own != 0 || s.Used != 0 || s.Others) {
		return false
	}
	d.Standing = nil
	return d == fresh
}

// neighboursStay: other keys, names and algorithms see nothing of a schedule, and Reset
// makes its keys unused.
func neighboursStay(t TB, b *fixture, s schedule) {
	t.Helper()
	b.clock.set(s.start)
	a := b.actor(&s)
	others := a.neighbours(t)
	before := a.peek(t, others)
	for i := range s.steps {
		a.note(&s.steps[i], a.do(t, &s.steps[i]))
	}
	if err := b.Reset(context.Background(), a.claims); err != nil {
		t.Fatalf("Reset: %v", err)
	}
	now := b.clock.now.Load()
	for i, d := range a.peek(t, a.claims) {
		if want := (weir.Decision{Remaining: a.claims[i].Limit.Most(), At: weir.Instant(now)}); !isFresh(d, want) {
			t.Fatalf("%s at %d: after Reset got %+v, want %+v", a.claims[i].Limit, now, d, want)
		}
	}
	b.clock.set(s.start)
	if after := a.peek(t, others); !sameDecisions(before, after) {
		t.Fatalf("steps on %s changed a neighbour:\n  before %v\n  after  %v", claimsText(a.claims),
			outcome{decisions: before}, outcome{decisions: after})
	}
}

// neighbours are claims one step away from an actor's, charged with one unit.
func (a *actor) neighbours(t TB) (others []weir.Claim) {
	t.Helper()
	for _, claim := range a.claims {
		renamed, rekeyed, other := claim, claim, claim
		renamed.Limit = weir.MustLimit(claim.Limit.Name()+"x", claim.Limit.Spec())
		rekeyed.Key += "x"
		other.Limit = weir.MustLimit(claim.Limit.Name(), otherSpec(claim.Limit))
		others = append(others, renamed, rekeyed, other)
	}
	for i := range others {
		others[i].Cost, others[i].Lease = 1, leaseOf(others[i].Limit, fmt.Sprint("neighbour-", i))
	}
	if granted, _ := a.b.decide(t, 1, others...); granted != 1 {
		t.Fatalf("keys never used refuse one unit: %s", claimsText(others))
	}
	return others
}

func otherSpec(l *weir.Limit) weir.Spec {
	if l.Algorithm() == weir.AlgorithmSlidingLog {
		return weir.FixedWindow{Limit: 5, Window: 1e9}
	}
	return weir.SlidingLog{Limit: 5, Window: 1e9}
}
