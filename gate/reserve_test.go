package gate_test

import (
	"testing"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

const reserved = `rules:
  - name: all
    limit: [fixed_window 10/1h, concurrency 10 ttl 1h]
    reserve: {by: user, classes: {checkout: 0%, search: 20%, export: 50%}, otherwise: search}
    candidate: {limit: fixed_window 20/1h}
`

// TestClassesLeaveUnitsToOthers: each class passes until its share is left, of each limit of the rule.
func TestClassesLeaveUnitsToOthers(t *testing.T) {
	g := gatetest.New(t, memstore.New(), reserved)
	passes := func(user string) (n int64) {
		for range 20 {
			var v gate.Verdict
			if err := g.Decide(t.Context(), &rules.Request{User: user}, gate.Once, &v); err != nil {
				t.Fatal(err)
			}
			if n += v.Granted; v.Outcome != gate.Passed {
				if v.Class() == nil || v.Reason != gate.LimitExceeded {
					t.Errorf("%s is refused as class %v, for %v", user, v.Class(), v.Reason)
				}
				break
			}
		}
		return n
	}
	for _, want := range []struct {
		user string
		n    int64
	}{{"export", 5}, {"search", 3}, {"unknown", 0}, {"checkout", 2}} {
		if n := passes(want.user); n != want.n {
			t.Errorf("%s passes %d times, want %d", want.user, n, want.n)
		}
	}
}

func TestAnExplanationHasTheClass(t *testing.T) {
	g := gatetest.New(t, memstore.New(), reserved)
	var v gate.Verdict
	request := &rules.Request{User: "export"}
	if err := g.Decide(t.Context(), request, gate.Ask{Times: 0}, &v); err != nil {
		t.Fatal(err)
	}
	e := v.Explain(nil, request).Rules[0]
	if e.Class != "export" || e.Limits[0].Floor != 5 || e.Limits[0].Remaining != 5 || e.Candidate[0].Floor != 10 ||
		e.Candidate[0].Remaining != 10 {
		t.Errorf("explained as %+v", e)
	}
}

// TestRequestsOfOneCallLeaveTheLargestFloor: they pass together or not at all.
func TestRequestsOfOneCallLeaveTheLargestFloor(t *testing.T) {
	text := "rules: [{name: all, limit: fixed_window 10/1h, reserve: {by: user, classes: {a: 0%, b: 50%}}}]"
	g := gatetest.New(t, memstore.New(), text)
	ask := func(users ...string) gate.Outcome {
		questions := make([]gate.Question, len(users))
		for i, user := range users {
			questions[i] = gate.Question{Request: &rules.Request{User: user}, Ask: gate.Once, Verdict: new(gate.Verdict)}
		}
		if err := g.DecideTogether(t.Context(), questions); err != nil {
			t.Fatal(err)
		}
		return questions[0].Verdict.Outcome
	}
	for i, want := range []gate.Outcome{gate.Passed, gate.Passed, gate.Refused} {
		if got := ask("a", "b"); got != want {
			t.Errorf("call %d of a and b: %v, want %v", i, got, want)
		}
	}
	if got := ask("a", "a"); got != gate.Passed {
		t.Errorf("two of a after that: %v", got)
	}
}

// TestRefundsIgnoreFloors: units that Refund gives back are counted without the floor.
func TestRefundsIgnoreFloors(t *testing.T) {
	text := "rules: [{name: all, limit: sliding_log 10/1h, reserve: {by: user, classes: {a: 0%, b: 50%}}}]"
	g := gatetest.New(t, memstore.New(), text)
	decide := func(user string, act gate.Act, cost int64) *gate.Verdict {
		v := new(gate.Verdict)
		q := []gate.Question{{Act: act, Request: &rules.Request{User: user}, Ask: gate.Ask{Times: 1, Cost: &cost}, Verdict: v}}
		if err := g.DecideTogether(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Microsecond) // each charge at an instant of its own
		return v
	}
	for range 8 {
		decide("a", gate.Decided, 1)
	}
	decide("b", gate.Refund, 3)
	if v := decide("a", gate.Decided, 5); v.Outcome != gate.Passed {
		t.Errorf("after 3 of 8 units were given back, 5 do not fit")
	}
	if v := decide("a", gate.Decided, 1); v.Outcome == gate.Passed {
		t.Errorf("more than 3 units were given back")
	}
}
