package gate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// described is a request with descriptors only.
type described map[string]string

func (d described) Header(string) string          { return "" }
func (d described) Query(string) string           { return "" }
func (d described) Cookie(string) string          { return "" }
func (d described) Descriptor(name string) string { return d[name] }

// part is a request of some hits for a call of DecideTogether; 0 looks.
func part(d described, hits int64, act gate.Act) gate.Question {
	q := gate.Question{Request: &rules.Request{Attributes: d}, Ask: gate.Ask{Times: 1, Cost: &hits}, Act: act,
		Verdict: new(gate.Verdict)}
	if hits == 0 && act == gate.Decided {
		one := int64(1)
		q.Ask = gate.Ask{Times: 0, Cost: &one}
	}
	return q
}

func together(t *testing.T, g *gate.Gate, questions ...gate.Question) []gate.Question {
	t.Helper()
	if err := g.DecideTogether(t.Context(), questions); err != nil {
		t.Fatal(err)
	}
	return questions
}

// left is what the first limit of a request has left.
func left(t *testing.T, g *gate.Gate, d described) int64 {
	t.Helper()
	var v gate.Verdict
	if err := g.Decide(t.Context(), &rules.Request{Attributes: d}, gate.Ask{}, &v); err != nil {
		t.Fatal(err)
	}
	return v.At(0).Decision.Remaining
}

// unbatched hides the store's DecideBatch.
type unbatched struct{ weir.Store }

// TestTogetherIsAsTheModel compares random calls with a model of fixed windows, which never end here.
func TestTogetherIsAsTheModel(t *testing.T) {
	const text = `
rules:
  - {name: a, match: {descriptor: {a: "*"}}, key: [descriptor.a], limit: fixed_window 10/100d}
  - {name: b, match: {descriptor: {b: "*"}}, key: [descriptor.b], limit: fixed_window 7/100d}
  - {name: full, match: {descriptor: {full: "*"}}, key: [descriptor.full], charge: full, limit: fixed_window 9/100d}
  - {name: both, match: {descriptor: {a: "1"}}, limit: fixed_window 25/100d}
`
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		var store weir.Store = memstore.New()
		if seed%2 == 0 {
			store = unbatched{store}
		}
		g, m := open(t, store, text), &fixedModel{limits: map[string]int64{"a": 10, "b": 7, "full": 9, "both": 25},
			used: make(map[string]int64)}
		for range 40 {
			m.compare(t, g, m.draw(random))
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// A fixedModel is the slow model: units used by rule and key.
type fixedModel struct{ limits, used map[string]int64 }

type modelled struct {
	gate.Question
	claims []string // rule and key
	hits   int64
}

func (m *fixedModel) draw(random *rand.Rand) (call []modelled) {
	names := []string{"a", "b", "full", "none"}
	for range 1 + random.IntN(5) {
		name, value := names[random.IntN(len(names))], fmt.Sprint(random.IntN(2))
		p := modelled{hits: random.Int64N(5)}
		act := gate.Decided
		if random.IntN(8) == 0 {
			act = gate.Act(1 + random.IntN(2))
			p.hits++
		}
		if name != "none" {
			p.claims = append(p.claims, name+" "+value)
		}
		if name == "a" && value == "1" {
			p.claims = append(p.claims, "both ")
		}
		p.Question = part(described{name: value}, p.hits, act)
		call = append(call, p)
	}
	return call
}

// fits reports whether a state has room for what all requests of a call need of it.
func (m *fixedModel) fits(claim string, need int64) bool {
	rule := claim[:len(claim)-len(value(claim))-1]
	if rule == "full" {
		need = min(need, 1)
	}
	return m.used[claim]+need <= m.limits[rule]
}

func value(claim string) string {
	for i := range claim {
		if claim[i] == ' ' {
			return claim[i+1:]
		}
	}
	return ""
}

func (m *fixedModel) compare(t *testing.T, g *gate.Gate, call []modelled) {
	t.Helper()
	need, passes := make(map[string]int64), true
	for _, looks := range []bool{false, true} { // looks need one unit, unless a request takes some
		for _, p := range call {
			for _, c := range p.claims {
				switch {
				case p.Act != gate.Decided || looks != (p.hits == 0):
				case looks:
					need[c] = max(need[c], 1)
				default:
					need[c] += p.hits
				}
			}
		}
	}
	own := make([]bool, len(call))
	for i, p := range call {
		own[i] = true
		for _, c := range p.claims {
			own[i] = own[i] && (p.Act != gate.Decided || m.fits(c, need[c]))
		}
		passes = passes && own[i]
	}
	for _, act := range []gate.Act{gate.Decided, gate.Charge, gate.Refund} {
		for _, p := range call {
			for _, c := range p.claims {
				switch {
				case p.Act != act:
				case act == gate.Charge, act == gate.Decided && passes:
					m.used[c] += p.hits
				case act == gate.Refund && passes:
					m.used[c] = max(0, m.used[c]-p.hits)
				}
			}
		}
	}
	questions := make([]gate.Question, len(call))
	for i := range call {
		questions[i] = call[i].Question
	}
	together(t, g, questions...)
	for i, p := range call {
		v := questions[i].Verdict
		want, reason := gate.Passed, "passes"
		switch {
		case !own[i]:
			want, reason = gate.Refused, "limit_exceeded"
		case !passes && (p.hits > 0 && p.Act == gate.Decided || p.Act == gate.Refund):
			want, reason = gate.Refused, "other_refused"
		}
		if v.Outcome != want || want == gate.Refused && v.Reason.String() != reason {
			t.Errorf("part %d %v, act %d, %d hits: %v for %v, want %v %s", i, p.claims, p.Act, p.hits, v.Outcome, v.Reason,
				want, reason)
		}
	}
	for i, p := range call {
		for j, c := range p.claims {
			var v gate.Verdict
			if err := g.Decide(t.Context(), questions[i].Request, gate.Ask{}, &v); err != nil {
				t.Fatal(err)
			}
			rule := c[:len(c)-len(value(c))-1]
			if got, want := v.At(j).Decision.Remaining, max(0, m.limits[rule]-m.used[c]); got != want {
				t.Errorf("%s has %d left, want %d", c, got, want)
			}
		}
	}
}

func TestTogetherNeedsAtMostAsManyClaimsAsADecision(t *testing.T) {
	g := open(t, memstore.New(), `
rules:
  - {name: a, key: [descriptor.a], limit: [fixed_window 9/1h, fixed_window 99/1d]}
`)
	var many []gate.Question
	for i := range 17 {
		many = append(many, part(described{"a": fmt.Sprint(i)}, 1, gate.Decided))
	}
	together(t, g, many[:16]...)
	var input *weir.InputError
	if err := g.DecideTogether(t.Context(), many); !errors.As(err, &input) || input.Field != "claims" {
		t.Errorf("34 claims: %v", err)
	}
	for i := range many {
		if v := many[i].Verdict; v.Outcome != gate.Failed || v.Reason != gate.BadInput {
			t.Errorf("%d: %v for %v", i, v.Outcome, v.Reason)
		}
	}
	if n := left(t, g, described{"a": "0"}); n != 8 {
		t.Errorf("%d left: the wrong call was charged", n)
	}
	for range 10_000 { // equal ones are one claim
		many = append(many[:1], many...)
		many[0] = part(described{"a": "0"}, 1<<52, gate.Decided)
		if len(many) > 1000 {
			break
		}
	}
	if err := g.DecideTogether(t.Context(), many[:500]); !errors.As(err, &input) || input.Field != "cost" {
		t.Errorf("a sum beyond 2^52: %v", err)
	}
}

// TestTogetherEachHasItsPolicies: lists, bans, shadow rules and candidates are those of each request.
func TestTogetherEachHasItsPolicies(t *testing.T) {
	const text = `
rules:
  - {name: a, match: {descriptor: {a: "*"}}, key: [descriptor.a], deny: {descriptor.a: bad}, allow: {descriptor.a: good},
     limit: fixed_window 2/1h, ban: {after: 1 refusals within 1h, for: 1h}}
  - {name: b, match: {descriptor: {b: "*"}}, key: [descriptor.b], limit: fixed_window 5/1h, candidate: {limit: fixed_window 1/1h}}
  - {name: try, match: {descriptor: {b: "*"}}, key: [descriptor.b], mode: shadow, limit: fixed_window 1/1h}
`
	for name, store := range map[string]weir.Store{"batches": memstore.New(), "single": unbatched{memstore.New()}} {
		g := open(t, store, text)
		shadows := func(v *gate.Verdict) (n int) {
			for i := range v.Len() {
				if c := v.At(i); c.Shadow && !c.Candidate {
					n++
				}
			}
			return n
		}
		for i, want := range []int64{1, 0} {
			q := together(t, g, part(described{"a": "1"}, 1, gate.Decided), part(described{"b": "1"}, 1, gate.Decided))
			a, b := q[0].Verdict, q[1].Verdict
			if a.Outcome != gate.Passed || b.Outcome != gate.Passed || shadows(a) != 0 || shadows(b) != 1 ||
				len(b.Differences()) != 1 || b.Differences()[0].Candidate != want {
				t.Errorf("%s, call %d: %v and %v, %d and %d shadow checks, %v", name, i, a.Outcome, b.Outcome, shadows(a), shadows(b),
					b.Differences())
			}
		}
		q := together(t, g, part(described{"b": "1"}, 1, gate.Decided), part(described{"a": "1"}, 1, gate.Decided),
			part(described{"a": "1"}, 1, gate.Decided))
		if v := q[0].Verdict; v.Reason != gate.OtherRefused || v.Rule != nil || shadows(v) != 0 || len(v.Differences()) != 0 {
			t.Errorf("%s: b is %v for %v with %v", name, v.Outcome, v.Reason, v.Differences())
		}
		if v := q[1].Verdict; v.Reason != gate.LimitExceeded || v.Rule.Name() != "a" || len(v.Banned()) != 1 {
			t.Errorf("%s: a is %v for %v, banned %v", name, v.Outcome, v.Reason, v.Banned())
		}
		if v := q[2].Verdict; v.Reason != gate.LimitExceeded || len(v.Banned()) != 0 {
			t.Errorf("%s: the second a is %v for %v, banned %v", name, v.Outcome, v.Reason, v.Banned())
		}
		q = together(t, g, part(described{"b": "1"}, 1, gate.Decided), part(described{"a": "1"}, 0, gate.Decided))
		if q[0].Verdict.Reason != gate.OtherRefused || q[1].Verdict.Reason != gate.Banned {
			t.Errorf("%s: %v, and the banned one %v", name, q[0].Verdict.Reason, q[1].Verdict.Reason)
		}
		q = together(t, g, part(described{"a": "bad"}, 1, gate.Decided), part(described{"b": "1"}, 1, gate.Decided))
		if q[0].Verdict.Reason != gate.DenyList || q[1].Verdict.Reason != gate.OtherRefused {
			t.Errorf("%s: %v, and %v beside it", name, q[0].Verdict.Reason, q[1].Verdict.Reason)
		}
		q = together(t, g, part(described{"a": "good"}, 9, gate.Decided), part(described{"b": "1"}, 3, gate.Decided))
		if q[0].Verdict.Outcome != gate.Passed || q[1].Verdict.Outcome != gate.Passed || left(t, g, described{"b": "1"}) != 0 {
			t.Errorf("%s: %v and %v, %d left", name, q[0].Verdict.Reason, q[1].Verdict.Reason, left(t, g, described{"b": "1"}))
		}
	}
}

func TestTogetherWithoutTheStore(t *testing.T) {
	const text = `
rules:
  - {name: local, match: {descriptor: {local: "*"}}, limit: fixed_window 1/1h}
  - {name: allow, match: {descriptor: {allow: "*"}}, on_store_error: allow, limit: fixed_window 1/1h}
  - {name: deny, match: {descriptor: {deny: "*"}}, on_store_error: deny, limit: fixed_window 1/1h}
`
	g := open(t, &failing{memstore.New(), errors.New("gone")}, text)
	local, allow, deny := described{"local": "x"}, described{"allow": "x"}, described{"deny": "x"}
	for i, want := range []string{"within_limits", "other_refused"} {
		q := together(t, g, part(allow, 9, gate.Decided), part(local, 1, gate.Decided))
		if v := q[1].Verdict; !v.Degraded() || (v.Outcome == gate.Passed) != (i == 0) {
			t.Errorf("call %d, local: %v for %v", i, v.Outcome, v.Reason)
		}
		if v := q[0].Verdict; !v.Degraded() || i == 1 && v.Reason.String() != want || i == 0 && v.Reason != gate.StoreFailed {
			t.Errorf("call %d, allow: %v for %v", i, v.Outcome, v.Reason)
		}
	}
	for _, hits := range []int64{0, 1} {
		q := together(t, g, part(deny, hits, gate.Decided), part(allow, 1, gate.Decided))
		if v := q[0].Verdict; v.Outcome != gate.Failed || v.Reason != gate.StoreFailed || v.Rule.Name() != "deny" {
			t.Errorf("deny, %d hits: %v for %v", hits, v.Outcome, v.Reason)
		}
		if v := q[1].Verdict; v.Outcome != gate.Refused || v.Reason != gate.OtherRefused {
			t.Errorf("beside deny, %d hits: %v for %v", hits, v.Outcome, v.Reason)
		}
	}
}

// TestFullGrantsOneBeyondTheLimit: however many ask at once, and whatever algorithm counts.
func TestFullGrantsOneBeyondTheLimit(t *testing.T) {
	for _, limit := range []string{"fixed_window 100/1d", "100/1d", "sliding_log 100/1d", "sliding_counter 100/1d slices 10", "7/1d burst 100",
		"calendar 100/year"} {
		g := open(t, memstore.New(), `rules: [{name: tokens, charge: full, cost: {default: 60}, limit: `+limit+`}]`)
		results := make(chan int64)
		for range 32 {
			go func() {
				var v gate.Verdict
				err := g.Decide(t.Context(), &rules.Request{}, gate.Once, &v)
				if err != nil || v.Outcome == gate.Refused && (v.Rule == nil || v.At(0).Decision.RetryAfter == 0) {
					t.Errorf("%s: %v %v", limit, v.Outcome, err)
				}
				results <- v.Granted
			}()
		}
		granted := int64(0)
		for range 32 {
			granted += <-results
		}
		if granted != 2 {
			t.Errorf("%s: %d of cost 60 were granted, want 2", limit, granted)
		}
		var v gate.Verdict
		if err := g.Decide(t.Context(), &rules.Request{}, gate.Ask{Times: 5}, &v); err != nil || v.Granted != 0 {
			t.Errorf("%s: 5 at once: %d %v", limit, v.Granted, err)
		}
	}
}

// TestFullOfManyAtOnce: of identical requests, one more than fit passes.
func TestFullOfManyAtOnce(t *testing.T) {
	g := open(t, memstore.New(), `
rules:
  - {name: tokens, charge: full, cost: {default: 30}, limit: fixed_window 100/1d}
  - {name: tried, mode: shadow, charge: full, cost: {default: 60}, limit: fixed_window 100/1d}
`)
	var v gate.Verdict
	if err := g.Decide(t.Context(), &rules.Request{}, gate.Ask{Times: 9}, &v); err != nil || v.Granted != 4 {
		t.Errorf("%d of 9 were granted, %v, want 4", v.Granted, err)
	}
	if c := v.At(1); !c.Shadow || c.Granted != 2 {
		t.Errorf("the shadow rule grants %d, want 2", c.Granted)
	}
	if c := v.At(0); c.Decision.Remaining != 0 || c.Claim.Cost != 30 {
		t.Errorf("%d left, cost %d", c.Decision.Remaining, c.Claim.Cost)
	}
	if err := g.Decide(t.Context(), &rules.Request{}, gate.Once, &v); err != nil || v.Outcome != gate.Refused {
		t.Errorf("in debt: %v %v", v.Outcome, err)
	}
}

// TestFullTellsOfTheDebt: the fields of the grant that goes beyond the limit are those of the state with its whole
// cost.
func TestFullTellsOfTheDebt(t *testing.T) {
	g := open(t, newClock().store(), `rules: [{name: tokens, charge: full, cost: {default: 60}, limit: 100/100s}]`)
	var v gate.Verdict
	for _, want := range []weir.Decision{{Remaining: 40, RetryAfter: 20 * time.Second, ResetAfter: 60 * time.Second},
		{RetryAfter: 40 * time.Second, ResetAfter: 120 * time.Second}} {
		err := g.Decide(t.Context(), &rules.Request{}, gate.Once, &v)
		got := *v.At(0).Decision
		if got.At = 0; err != nil || v.Outcome != gate.Passed || got != want {
			t.Errorf("%v %+v, %v; want %+v", v.Outcome, got, err, want)
		}
	}
}

// TestGivenBackIsTheLatest: of each algorithm, and never below zero used.
func TestGivenBackIsTheLatest(t *testing.T) {
	for _, limit := range []string{"fixed_window 10/1d", "10/1d", "9/1d step burst 10", "sliding_log 10/1d", "sliding_counter 10/1d slices 4",
		"calendar 10/year"} {
		g := open(t, memstore.New(), `rules: [{name: r, key: [descriptor.a], limit: `+limit+`}]`)
		d := described{"a": "x"}
		together(t, g, part(d, 10, gate.Refund)) // nothing to give back
		for range 3 {
			together(t, g, part(d, 2, gate.Decided))
		}
		q := together(t, g, part(d, 5, gate.Refund))
		if v := q[0].Verdict; v.Outcome != gate.Passed || v.Times != 0 || left(t, g, d) != 9 {
			t.Errorf("%s: %v for %v, %d left, want 9", limit, v.Outcome, v.Reason, left(t, g, d))
		}
		together(t, g, part(d, 1000, gate.Refund))
		if n := left(t, g, d); n != 10 {
			t.Errorf("%s: %d left of 10", limit, n)
		}
		q = []gate.Question{part(d, 11, gate.Decided)}
		if together(t, g, q...); q[0].Verdict.Outcome != gate.Refused {
			t.Errorf("%s: 11 of 10 were granted", limit)
		}
	}
}

func TestOverrideReplacesTheNumbers(t *testing.T) {
	const text = `
rules:
  - {name: site, limit: fixed_window 100/1h}
  - {name: tenant, match: {descriptor: {tenant: "*"}}, key: [descriptor.tenant], limit: [sliding_log 50/1h, 9/1s]}
`
	g := open(t, memstore.New(), text)
	two := &gate.Override{Limit: weir.FixedWindow{Limit: 2, Window: 3600e9}, Name: "override", Key: "x"}
	for name, d := range map[string]described{"tenant": {"tenant": "x"}, "override": {"other": "x"}} {
		for i := range 3 {
			q := part(d, 1, gate.Decided)
			q.Ask.Override = two
			v := together(t, g, q)[0].Verdict
			if v.Len() != 2 || v.At(0).Claim.Limit.Capacity() != 100 || v.At(1).Claim.Limit.Name() != name ||
				(v.Outcome == gate.Passed) != (i < 2) {
				t.Errorf("%s, request %d: %v with %v", name, i, v.Outcome, v.At(1).Claim)
			}
			if name == "tenant" && v.At(1).Claim.Limit.Algorithm() != weir.AlgorithmSlidingLog {
				t.Errorf("an override counts as %v", v.At(1).Claim.Limit)
			}
		}
	}
	q := part(described{"tenant": "x"}, 1, gate.Decided)
	q.Ask.Override = &gate.Override{Name: "override", Key: "x"}
	var input *weir.InputError
	if err := g.DecideTogether(t.Context(), []gate.Question{q}); !errors.As(err, &input) {
		t.Errorf("an override without numbers: %v", err)
	}
}

// down is a store that answers nothing.
type down struct{ weir.Store }

func (down) Decide(context.Context, []weir.Claim, int64, []weir.Decision) (int64, error) {
	return 0, weir.ErrUnavailable
}
func (down) Charge(context.Context, []weir.Claim, []weir.Decision) error { return weir.ErrUnavailable }
func (down) Refund(context.Context, []weir.Claim, weir.Instant, []weir.Decision) error {
	return weir.ErrUnavailable
}

// TestSpentAndGivenBackWithoutTheStore: what is spent is charged to the local store; what is given back stays charged.
func TestSpentAndGivenBackWithoutTheStore(t *testing.T) {
	g := open(t, down{memstore.New()}, `rules: [{name: r, key: [descriptor.a], limit: fixed_window 10/1h}]`)
	d := described{"a": "x"}
	q := together(t, g, part(d, 15, gate.Charge))
	if v := q[0].Verdict; v.Outcome != gate.Passed || !v.Degraded() {
		t.Errorf("spent: %v for %v", v.Outcome, v.Reason)
	}
	q = together(t, g, part(d, 5, gate.Refund))
	if v := q[0].Verdict; v.Outcome != gate.Passed || v.Reason != gate.StoreFailed || !v.Degraded() {
		t.Errorf("given back: %v for %v", v.Outcome, v.Reason)
	}
	if v := together(t, g, part(d, 1, gate.Decided))[0].Verdict; v.Outcome != gate.Refused {
		t.Errorf("after 15 of 10 were spent: %v for %v", v.Outcome, v.Reason)
	}
}

// TestSpentIsChargedToShadowRules: beyond their limits too.
func TestSpentIsChargedToShadowRules(t *testing.T) {
	g := open(t, memstore.New(), `rules: [{name: tried, mode: shadow, limit: fixed_window 10/1h}]`)
	together(t, g, part(described{}, 15, gate.Charge))
	if v := together(t, g, part(described{}, 1, gate.Decided))[0].Verdict; v.Len() != 1 || v.At(0).Granted != 0 {
		t.Errorf("%d checks after 15 of 10 were spent", v.Len())
	}
	together(t, g, part(described{}, 6, gate.Refund))
	if v := together(t, g, part(described{}, 1, gate.Decided))[0].Verdict; v.Len() != 1 || v.At(0).Granted != 1 {
		t.Errorf("%d checks after 6 were given back", v.Len())
	}
}

// TestDescriptorsTogetherOnAFullStore: calls of 2 to 32 descriptors of one rule are all answered while the store fills,
// be it the gate's own or the local one of an outage.
func TestDescriptorsTogetherOnAFullStore(t *testing.T) {
	const text = `rules: [{name: r, match: {descriptor: {a: "*"}}, key: [descriptor.a], limit: 10/1s}]`
	set, err := rules.Load("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for name, store := range map[string]weir.Store{"own": nil, "local": down{memstore.New()}} {
		full := memstore.New(memstore.WithMaxKeys(100))
		if store == nil {
			store = full
		}
		g, err := gate.New(store, set, gate.WithLocal(full))
		if err != nil {
			t.Fatal(err)
		}
		var callers sync.WaitGroup
		for caller := range 4 {
			callers.Go(func() { fill(t, g, caller) })
		}
		done := make(chan struct{})
		go func() { callers.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(2 * time.Minute):
			t.Fatalf("%s: calls get no answer; %+v", name, full.Stats())
		}
		if full.Stats().Overflow == 0 {
			t.Errorf("%s: the store never was full: %+v", name, full.Stats())
		}
	}
}

// fill asks about new keys, several in a call.
func fill(t *testing.T, g *gate.Gate, caller int) {
	random := rand.New(rand.NewPCG(uint64(caller), 11))
	for call := range 1500 {
		n := 2
		if random.IntN(20) == 0 {
			n = 1 + random.IntN(weir.MaxClaims)
		}
		questions := make([]gate.Question, n)
		for i := range questions {
			questions[i] = part(described{"a": fmt.Sprint(caller, "-", call, "-", i)}, 1, gate.Decided)
		}
		if err := g.DecideTogether(t.Context(), questions); err != nil {
			t.Error(err)
		}
	}
}

// TestReceiptOfTogether: equal claims are one charge of their sum, and a lease is listed once: all units come back, and
// it is released without an error.
func TestReceiptOfTogether(t *testing.T) {
	const text = `
rules:
  - {name: failed, match: {descriptor: {a: "*"}}, key: [descriptor.a], count_if: {status: 4xx}, limit: sliding_log 20/100d}
  - {name: held, match: {descriptor: {b: "*"}}, limit: concurrency 9 ttl 1h}
`
	for _, store := range []weir.Store{memstore.New(), unbatched{memstore.New()}} {
		g := open(t, store, text)
		x, y, held := described{"a": "x", "b": "1"}, described{"a": "y"}, described{"b": "1"}
		questions := together(t, g, part(x, 2, gate.Decided), part(y, 3, gate.Decided), part(x, 4, gate.Decided), part(y, 5, gate.Charge))
		receipt := gate.ReceiptOf(questions)
		if len(receipt) != 3 || left(t, g, x) != 14 || left(t, g, held) != 7 || left(t, g, y) != 12 {
			t.Errorf("%d charges; left are %d, %d and %d", len(receipt), left(t, g, x), left(t, g, held), left(t, g, y))
		}
		rest, err := g.Respond(t.Context(), receipt, gate.Response{Status: 200})
		if err != nil || len(rest) != 1 || left(t, g, x) != 20 || left(t, g, y) != 15 {
			t.Errorf("%v: %d charges are kept; left are %d and %d", err, len(rest), left(t, g, x), left(t, g, y))
		}
		if err := g.Release(t.Context(), rest); err != nil || left(t, g, held) != 9 {
			t.Errorf("%v: left are %d", err, left(t, g, held))
		}
	}
}
