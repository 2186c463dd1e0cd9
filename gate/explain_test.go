package gate_test

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// TestExplanationIsData: what decided, the state of each rule that matches, and why others do not.
func TestExplanationIsData(t *testing.T) {
	file, err := rules.Parse("rules.yaml", []byte(`
rules:
  - {name: site, limit: fixed_window 9/1h}
  - {name: login, match: {path: /login}, key: [client.ip], limit: [fixed_window 1/1h, fixed_window 5/1h], candidate: {limit: fixed_window 2/1h}}
  - {name: tried, mode: shadow, key: [user], on_missing: skip, limit: 5/1m}
  - {name: post, match: {path: /login, method: POST, user: [ann, bob]}, limit: 5/1m}
  - {name: slash, match: {path: /login/}, limit: 5/1m}
  - {name: off, enabled: false, match: {path: /login}, limit: 5/1m}
  - {name: elsewhere, match: {path: /other}, limit: 5/1m}
`))
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	g, err := gate.New(memstore.New(), set)
	if err != nil {
		t.Fatal(err)
	}
	r := &rules.Request{Method: "GET", Path: "/login", Client: netip.MustParseAddr("192.0.2.1")}
	var v gate.Verdict
	for _, ask := range []gate.Ask{gate.Once, {}} {
		if err := g.Decide(t.Context(), r, ask, &v); err != nil {
			t.Fatal(err)
		}
	}
	e := v.Explain(file, r)
	if err := g.Decide(t.Context(), &rules.Request{Path: "/other"}, gate.Once, &v); err != nil {
		t.Fatal(err)
	}
	for i := range e.Rules { // of the store's clock
		for j := range e.Rules[i].Limits {
			e.Rules[i].Limits[j].ResetAfter, e.Rules[i].Limits[j].RetryAfter = 0, nil
		}
		for j := range e.Rules[i].Candidate {
			e.Rules[i].Candidate[j].ResetAfter, e.Rules[i].Candidate[j].RetryAfter = 0, nil
		}
	}
	got, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"outcome":"refused","reason":"limit_exceeded","rule":"login","rules":[` +
		`{"rule":"site","mode":"enforce","key":"all","components":[],"values":[],"limits":[{"name":"site","limit":"fixed_window 9/1h","cost":1,` +
		`"remaining":8,"retry_after":null,"reset_after":0}],"binding":0},` +
		`{"rule":"login","mode":"enforce","key":"client.ip=9:192.0.2.1","components":["client.ip"],"values":[],"limits":[` +
		`{"name":"login","limit":"fixed_window 1/1h","cost":1,"remaining":0,"retry_after":null,"reset_after":0},` +
		`{"name":"login.2","limit":"fixed_window 5/1h","cost":1,"remaining":4,"retry_after":null,"reset_after":0}],` +
		`"candidate":[{"name":"login.candidate","limit":"fixed_window 2/1h","cost":1,"remaining":1,"retry_after":null,"reset_after":0}],` +
		`"binding":0,"decides":true},` +
		`{"rule":"tried","mode":"shadow","key":"","components":["user"],"values":[],"limits":[],"skipped":"a component of its key is missing"}],` +
		`"not_matched":[{"rule":"post","why":["method is GET, not POST","user is missing, not ann or bob"]},` +
		`{"rule":"slash","why":["path is /login, not /login/; they are equal with path_form: drop-trailing-slash"]},` +
		`{"rule":"off","why":["it is disabled, and would match"]}]}`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if e := v.Explain(nil, r); len(e.NotMatched) > 0 {
		t.Errorf("without the file there is %v", e.NotMatched)
	}
}

// TestExplainKeyChargesNothing: what is left, and how long a ban lasts.
func TestExplainKeyChargesNothing(t *testing.T) {
	g := open(t, memstore.New(), "rules: [{name: a, key: [user], limit: fixed_window 2/1h, ban: {after: 1 refusals within 1m, for: 1h}}]")
	rule := g.Rules().Rules()[0]
	key, limits, err := rule.LookupText("ann")
	if err != nil {
		t.Fatal(err)
	}
	for want := int64(2); want >= 0; want-- {
		for range 2 {
			e, err := g.ExplainKey(t.Context(), rule, string(key), limits)
			if err != nil || e.Key != "user=3:ann" || len(e.Limits) != 1 || e.Limits[0].Remaining != want || e.BannedFor != 0 {
				t.Errorf("%+v, %v", e, err)
			}
		}
		var v gate.Verdict
		if err := g.Decide(t.Context(), &rules.Request{User: "ann"}, gate.Once, &v); err != nil {
			t.Fatal(err)
		}
	}
	if e, err := g.ExplainKey(t.Context(), rule, string(key), limits); err != nil || e.BannedFor <= 0 || e.BannedFor == weir.Never.Seconds() {
		t.Errorf("after a refusal: %+v, %v", e, err)
	}
}
