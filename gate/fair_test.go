package gate_test

import (
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

const shared = `rules:
  - name: search
    limit: fixed_window 100/1h epoch
    fair: {by: [user], above: 0%, weights: {gold: 3}, weight_by: service}
    candidate: {limit: fixed_window 200/1h epoch}
`

// TestMembersShareALimit: beside each other, members pass as their weights are. A member that settles, gives its own
// units back.
func TestMembersShareALimit(t *testing.T) {
	g := gatetest.New(t, memstore.New(), shared)
	ask := func(user, plan string, cost int64) (v gate.Verdict) {
		request := &rules.Request{User: user, Service: plan}
		if err := g.Decide(t.Context(), request, gate.Ask{Times: 1, Cost: &cost}, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	passes := func(user, plan string, cost int64, want gate.Outcome) gate.Verdict {
		t.Helper()
		v := ask(user, plan, cost)
		if v.Outcome != want {
			t.Errorf("%s, %d units: %v, want %v", user, cost, v.Outcome, want)
		}
		return v
	}
	first := passes("ann", "gold", 60, gate.Passed)
	passes("bob", "free", 25, gate.Passed)
	passes("ann", "gold", 16, gate.Refused)
	if err := g.Settle(t.Context(), first.Receipt(), 10); err != nil {
		t.Fatal(err)
	}
	passes("ann", "gold", 66, gate.Refused)
	v := passes("ann", "gold", 65, gate.Passed)
	request := &rules.Request{User: "ann", Service: "gold"}
	limit := v.Explain(nil, request).Rules[0].Limits[0]
	if limit.Member != "user=3:ann" || limit.Weight != 3 {
		t.Errorf("explained as %+v", limit)
	}
}

// TestTheFirstMemberPaysForAll: of requests that are decided together, each gives back what was charged for it.
func TestTheFirstMemberPaysForAll(t *testing.T) {
	still := func() weir.Instant { return 1 }
	g := gatetest.New(t, memstore.New(memstore.WithClock(still)), shared)
	cost := int64(20)
	together := func(users ...string) []gate.Question {
		var questions []gate.Question
		for _, user := range users {
			questions = append(questions, gate.Question{Request: &rules.Request{User: user},
				Ask: gate.Ask{Times: 1, Cost: &cost}, Verdict: new(gate.Verdict)})
		}
		if err := g.DecideTogether(t.Context(), questions); err != nil {
			t.Fatal(err)
		}
		return questions
	}
	together("dan")
	list := together("ann", "bob")
	if err := g.Settle(t.Context(), list[1].Verdict.Receipt(), 0); err != nil {
		t.Fatal(err)
	}
	cost = 30
	if v := together("ann")[0].Verdict; v.Outcome != gate.Passed {
		t.Errorf("with 20 of 50 units, 30 are %v", v.Outcome)
	}
	cost = 1
	if v := together("ann")[0].Verdict; v.Outcome != gate.Refused {
		t.Errorf("with 50 of 50 units, 1 is %v", v.Outcome)
	}
}

// TestExplanationHasShare: a peek says what the member has, and why it is granted or refused.
func TestExplanationHasShare(t *testing.T) {
	const text = `rules:
  - name: search
    limit: concurrency 10 ttl 1h
    fair: {by: [user], above: 20%, max_keys: 2}
    reserve: {by: service, classes: {live: 0%, batch: 10%}, otherwise: live}
`
	g := gatetest.New(t, memstore.New(), text)
	ask := func(user, class string, cost, times int64) *gate.Share {
		request := &rules.Request{User: user, Service: class}
		var v gate.Verdict
		if err := g.Decide(t.Context(), request, gate.Ask{Times: times, Cost: &cost, HoldsCost: true}, &v); err != nil {
			t.Fatal(err)
		}
		return v.Explain(nil, request).Rules[0].Limits[0].Standing
	}
	explains := func(user, class string, cost int64, want gate.Share) {
		t.Helper()
		if got := ask(user, class, cost, 0); got == nil || *got != want {
			t.Errorf("%d units for %s: explained as %+v, want %+v", cost, user, got, want)
		}
	}
	explains("ann", "live", 2, gate.Share{Share: 10, Weights: 1, Open: 2, Why: gate.HasRoom})
	explains("ann", "live", 11, gate.Share{Share: 10, Weights: 1, Open: 2})
	if s := ask("ann", "live", 4, 1); s != nil {
		t.Errorf("a request that is charged has the standing %+v", s)
	}
	explains("ann", "live", 6, gate.Share{Own: 4, Share: 10, Weights: 1, Used: 4, Open: 2, Why: gate.WithinShare})
	explains("ann", "batch", 6, gate.Share{Own: 4, Share: 10, Weights: 1, Used: 4, Open: 2, Why: gate.IsFull})
	ask("bob", "live", 1, 1)
	explains("ann", "live", 2, gate.Share{Own: 4, Share: 5, Weights: 2, Used: 5, Open: 2, Why: gate.BeyondShare})
	explains("cat", "live", 3, gate.Share{Share: 3, Weights: 3, Used: 5, Open: 2, Others: true, Why: gate.WithinShare})
	explains("cat", "live", 7, gate.Share{Share: 3, Weights: 3, Used: 5, Open: 2, Others: true, Why: gate.IsFull})
}
