package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

// A forgetful is a model behind a memory of refusals, with at most one thing wrong.
type forgetful struct {
	*modelStore
	clock func() weir.Instant
	kept  map[string]keptRefusal
	wrong wrong
}

// wrong is the faults of a store that remembers refusals.
type wrong struct {
	believes func(retryAfter time.Duration) time.Duration
	covers   func(asked, kept int64) bool
	tells    func(said weir.Decision, by time.Duration) weir.Decision
	refunds  bool // are not noticed
	numbers  bool // are not looked at
	others   bool // other claims are reported as unused, if one claim refuses
	floors   bool // are not looked at
	grants   bool // are not noticed
}

// keptRefusal is a refused claim and its decision.
type keptRefusal struct {
	limit *weir.Limit
	cost  int64
	floor int64
	said  weir.Decision
}

func (f *forgetful) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	if err := weir.Check(claims, times, d); err != nil {
		return 0, err
	}
	if times > 0 && f.knows(claims) {
		f.tell(claims, d)
		return 0, nil
	}
	said := make([]weir.Decision, len(claims))
	granted, err := f.modelStore.Decide(ctx, claims, times, said)
	copy(d, said)
	if granted > 0 && !f.wrong.grants { // of a claim with a smaller floor, after a refusal
		f.forget(claims)
	}
	for i := range claims { // not of a peek, which leaves entries of a later time as they are
		if c := &claims[i]; err == nil && times > 0 && said[i].RetryAfter > 0 && said[i].RetryAfter != weir.Never &&
			!c.Limit.Leases() && c.Limit.Whole() == nil {
			f.kept[place(c)] = keptRefusal{c.Limit, c.Cost, c.Floor, said[i]}
		}
	}
	return granted, err
}

// knows reports whether all claims are remembered.
func (f *forgetful) knows(claims []weir.Claim) bool {
	known := 0
	for i := range claims {
		if f.refuses(&claims[i]) {
			known++
		}
	}
	return known == len(claims) || known > 0 && f.wrong.others
}

func (f *forgetful) refuses(c *weir.Claim) bool {
	now := f.clock() // which may have forgotten
	k, ok := f.kept[place(c)]
	if !ok || !f.wrong.numbers && k.limit != c.Limit || !f.wrong.covers(c.Cost, k.cost) ||
		!f.wrong.floors && k.floor != c.Floor {
		return false
	}
	by := time.Duration(now-k.said.At) * time.Microsecond
	return by >= 0 && by < f.wrong.believes(k.said.RetryAfter)
}

func (f *forgetful) tell(claims []weir.Claim, d []weir.Decision) {
	now := f.clock()
	for i := range d {
		k := f.kept[place(&claims[i])]
		if f.refuses(&claims[i]) {
			d[i] = f.wrong.tells(k.said, time.Duration(now-k.said.At)*time.Microsecond)
		} else {
			d[i] = weir.Decision{Remaining: claims[i].Limit.Most()}
		}
		if claims[i].Cost > claims[i].Limit.Most() {
			d[i].RetryAfter = weir.Never
		}
		d[i].At = now
	}
}

func (f *forgetful) forget(claims []weir.Claim) {
	for i := range claims {
		if claims[i].Limit != nil {
			delete(f.kept, place(&claims[i]))
		}
	}
}

func (f *forgetful) Charge(ctx context.Context, claims []weir.Claim, d []weir.Decision) error {
	f.forget(claims)
	return f.modelStore.Charge(ctx, claims, d)
}

func (f *forgetful) Refund(ctx context.Context, claims []weir.Claim, taken weir.Instant, d []weir.Decision) error {
	if !f.wrong.refunds {
		f.forget(claims)
	}
	return f.modelStore.Refund(ctx, claims, taken, d)
}

func (f *forgetful) Reset(ctx context.Context, claims []weir.Claim) error {
	f.forget(claims)
	return f.modelStore.Reset(ctx, claims)
}

// right is a memory with nothing wrong.
var right = wrong{
	believes: func(retryAfter time.Duration) time.Duration { return retryAfter },
	covers:   func(asked, kept int64) bool { return asked == kept && asked <= 1 },
	tells: func(said weir.Decision, by time.Duration) weir.Decision {
		said.RetryAfter -= by
		said.ResetAfter = max(0, said.ResetAfter-by)
		said.Delay = max(0, said.Delay-by)
		return said
	},
}

// but is right with one thing wrong.
func but(spoil func(w *wrong)) wrong {
	w := right
	spoil(&w)
	return w
}

// recalling opens a memory. A clock that stepped back has none.
func recalling(w wrong) Subject {
	return func(t testing.TB, clock func() weir.Instant) Handle {
		f := &forgetful{kept: make(map[string]keptRefusal), wrong: w}
		var last weir.Instant
		f.clock = func() weir.Instant {
			now := clock()
			if now < last {
				clear(f.kept)
			}
			last = now
			return now
		}
		f.modelStore = newModel(f.clock)
		return Handle{Store: f, Recalls: true}
	}
}

// severalKinds have decisions of more than one claim.
var severalKinds = []string{"several"}

var recallFindings = []struct {
	name  string
	wrong wrong
	check func(t TB, b *fixture)
}{
	{"a cache of refusals that outlives the window", but(func(w *wrong) {
		w.believes = func(time.Duration) time.Duration { return time.Second }
	}), drawn(kinds, equalsModel)},
	{"used 1 µs too long", but(func(w *wrong) {
		w.believes = func(retryAfter time.Duration) time.Duration { return retryAfter + time.Microsecond }
	}), drawn(kinds, retryIsExact)},
	{"a refusal of a large cost is used for a small one",
		but(func(w *wrong) { w.covers = func(int64, int64) bool { return true } }), drawn(kinds, equalsModel)},
	{"a wait that does not shrink", but(func(w *wrong) {
		w.tells = func(said weir.Decision, _ time.Duration) weir.Decision { return said }
	}), drawn(kinds, equalsModel)},
	{"a wait of nothing", but(func(w *wrong) {
		w.tells = func(said weir.Decision, by time.Duration) weir.Decision {
			said = right.tells(said, by)
			said.RetryAfter = 0
			return said
		}
	}), drawn(kinds, equalsModel)},
	{"refunds that are not noticed", but(func(w *wrong) { w.refunds = true }), drawn(kinds, equalsModel)},
	{"numbers that are ignored", but(func(w *wrong) { w.numbers = true }), func(t TB, b *fixture) {
		for seed := range 300 {
			sideBySide(t, b, sameShape().Example(seed))
		}
	}},
	{"a large cost gets an earlier decision", but(func(w *wrong) {
		w.grants = true
		w.covers = func(asked, kept int64) bool { return asked == kept }
	}), drawnTimes(5000, kinds, equalsModel)},
	{"a large cost gets the decision of a small one", but(func(w *wrong) {
		w.covers = func(asked, kept int64) bool { return asked >= kept && kept > 0 }
	}), drawn(kinds, equalsModel)},
	{"a floor gets the decision of another", but(func(w *wrong) { w.floors = true }), drawn(kinds, equalsModel)},
	{"others that were not asked", but(func(w *wrong) { w.others = true }), drawn(severalKinds, equalsModel)},
}

// TestTheSuiteFindsWrongMemories: a memory of refusals that is exact passes, and no other does.
func TestTheSuiteFindsWrongMemories(t *testing.T) {
	for _, holds := range []property{equalsModel, retryIsExact, refundUndoes, partialGrants, refusalsChangeNothing} {
		b := open(t, recalling(right))
		if said := failure(func(t TB) { drawn(kinds, holds)(t, b) }); said != "" {
			t.Errorf("a memory with nothing wrong: %s", said)
		}
	}
	for _, test := range recallFindings {
		t.Run(test.name, func(t *testing.T) {
			b := open(t, recalling(test.wrong))
			said := failure(func(t TB) { test.check(t, b) })
			if said == "" {
				t.Fatal("the check found nothing wrong")
			}
			t.Log(said)
		})
	}
}
