package telemetry

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
)

const twoAnHour = `
rules:
  - {name: user, key: [user], limit: fixed_window 2/1h}
  - {name: admin, match: {path: /admin}, key: [service], on_missing: deny, limit: 5/1h}
`

// headers are attributes of a request.
type headers map[string]string

func (h headers) Header(name string) string { return h[name] }
func (headers) Query(string) string         { return "" }
func (headers) Cookie(string) string        { return "" }
func (headers) Descriptor(string) string    { return "" }

func TestRecentHasTheLatestFirst(t *testing.T) {
	n := newNode(t, twoAnHour, true)
	var v gate.Verdict
	ask := func(r *rules.Request, want gate.Outcome) {
		t.Helper()
		if n.gate.Decide(t.Context(), r, gate.Once, &v); v.Outcome != want {
			t.Fatalf("%v, want %v", v.Outcome, want)
		}
		n.pass(tick)
	}
	id := headers{"X-Request-Id": "r-7"}
	ask(&rules.Request{User: "a"}, gate.Passed)
	ask(&rules.Request{User: "a"}, gate.Passed)
	client := netip.MustParseAddr("192.0.2.1")
	ask(&rules.Request{User: "a", Attributes: id, Method: "GET", Path: "/a", Client: client}, gate.Refused)
	ask(&rules.Request{User: "b", Method: "PUT", Path: "/admin", Client: client}, gate.Denied)
	ask(&rules.Request{Path: "/"}, gate.Passed)
	n.gate.Decide(t.Context(), &rules.Request{User: "c"}, gate.Ask{}, &v) // a look
	n.pass(tick)
	text := func(f Filter, most int) (lines string) {
		for _, s := range n.Recent(f, most) {
			lines += fmt.Sprintln(s.Rule, s.Key, s.Method, s.Path, s.Client, s.Outcome, s.Reason, s.Wait > 0, s.RequestID, s.Weight, s.Node)
		}
		return lines
	}
	denied := "admin client.ip=9:192.0.2.1 PUT /admin 192.0.2.1 denied missing_key false  1 a\n"
	refused := "user user=1:a GET /a 192.0.2.1 refused limit_exceeded true r-7 1 a\n"
	passed := "user user=1:a    passed within_limits false  1 a\n"
	all := "user user=-  /  passed within_limits false  1 a\n" + denied + refused + passed + passed
	for _, c := range []struct {
		filter Filter
		most   int
		want   string
	}{
		{Filter{}, 100, all},
		{Filter{}, 0, ""},
		{Filter{Outcome: "refused"}, 100, refused},
		{Filter{Key: "192.0.2.1"}, 100, denied + refused},
		{Filter{Rule: "user", Key: "user=1:a"}, 1, refused},
		{Filter{Rule: "nothing"}, 100, ""},
	} {
		if got := text(c.filter, c.most); got != c.want {
			t.Errorf("%+v:\n%swant\n%s", c.filter, got, c.want)
		}
	}
	for value, is := range map[string]bool{"1": true, "edge": true, "a=1": true, "a": false, "2": false} {
		if f := (Filter{Key: value}); f.Matches(&Sample{Key: "service=4:edge entry.1=3:a=1"}) != is {
			t.Errorf("%q is a value of a key with entries: %v", value, !is)
		}
	}
	if shown := (Filter{Key: "edge: a=1"}); !shown.Matches(&Sample{Key: "service=4:edge descriptor.a=1:1"}) {
		t.Error("a key with descriptors is not found as it is shown")
	}
	n.Hide = func(key string) string { return fmt.Sprint("hidden ", len(key)) }
	ask(&rules.Request{User: "secret", Path: "/of/ann", Client: client}, gate.Passed)
	if s := n.Recent(Filter{}, 1)[0]; s.Key != "hidden 13" || !s.Hidden || s.Path != "hidden 7" || s.Client != "hidden 9" {
		t.Errorf("%+v", s)
	}
}

// A passed request is shown under the limit that is nearest to refusing it, so that a rule without a key before all others
// does not take the samples of every client.
func TestPassedSampleIsOfTheLimitNearestItsEnd(t *testing.T) {
	n := newNode(t, `
rules:
  - {name: site, limit: fixed_window 3/1h}
  - {name: wide, key: [user], limit: [fixed_window 100/1h, fixed_window 200/1d]}
  - {name: narrow, key: [user], limit: [fixed_window 90/1h, fixed_window 2/1d]}
`, true)
	var v gate.Verdict
	n.gate.Decide(t.Context(), &rules.Request{User: "a"}, gate.Once, &v)
	n.pass(tick)
	if s := n.Recent(Filter{Key: "a"}, 10); len(s) != 1 || s[0].Rule != "narrow" || s[0].Outcome != "passed" {
		t.Errorf("%+v", s)
	}
}

// A flood of requests that pass hides no refusal, and a tick takes a bounded number of samples, whose weights add up to
// the requests.
func TestFloodOfPassedRequestsHidesNoRefusal(t *testing.T) {
	n := newNode(t, twoAnHour, true)
	var v gate.Verdict
	const ticks, each = 30, 5_000
	weights, refusals := 0.0, 0
	for i := range ticks {
		for j := range each {
			n.ask(t, fmt.Sprint("user", i, j), &v)
		}
		if n.ask(t, "again", &v) != (i < 2) {
			t.Fatal("the limit is wrong")
		}
		n.pass(tick)
	}
	for _, s := range n.Recent(Filter{}, math.MaxInt) {
		if s.Outcome == "refused" {
			refusals++
		} else {
			weights += s.Weight
		}
	}
	if refusals != ticks-2 {
		t.Errorf("%d refusals are shown of %d", refusals, ticks-2)
	}
	recent := float64(len(n.live.rings[0].list)) / (perTick / 2) * each
	if weights < 0.7*recent || weights > 1.4*recent {
		t.Errorf("the last samples stand for %v requests, want about %v", weights, recent)
	}
	if taken := n.passes.taken.Load(); taken > ticks*perTick || taken < ticks*perTick/8 {
		t.Errorf("%d samples are taken in %d ticks", taken, ticks)
	}
	if n.passes.lost.Load() == 0 {
		t.Error("nothing is lost of the first ticks")
	}
}

// After a flood, a request a tick is drawn again with certainty.
func TestDrawsAllOnceTheFloodIsOver(t *testing.T) {
	n := newNode(t, twoAnHour, true)
	var v gate.Verdict
	for i := range 100_000 {
		n.ask(t, fmt.Sprint("user", i), &v)
		if i%20_000 == 0 {
			n.pass(tick)
		}
	}
	n.pass(2 * time.Second)
	before := n.passes.taken.Load()
	for i := range 50 {
		n.ask(t, fmt.Sprint("later", i), &v)
		n.pass(tick)
	}
	if got := n.passes.taken.Load() - before; got != 50 {
		t.Errorf("%d of 50 are drawn", got)
	}
}

func TestRunEmptiesTheTaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, twoAnHour, true)
		n.Recorder.Now = time.Now
		ctx, stop := context.WithCancel(t.Context())
		go n.Run(ctx)
		var v gate.Verdict
		n.ask(t, "a", &v)
		time.Sleep(tick)
		synctest.Wait()
		if len(n.Recent(Filter{}, 10)) != 1 {
			t.Error("no sample after a tick")
		}
		stop()
	})
}

// TestFilterFindsKeysByValue: people look for 203.0.113.7, not for the key of a rule.
func TestFilterFindsKeysByValue(t *testing.T) {
	s := Sample{Rule: "login", Outcome: "refused", Key: "client.ip=11:203.0.113.7 user=3:ann"}
	for f, want := range map[Filter]bool{
		{}: true, {Key: s.Key}: true, {Key: "ann"}: true, {Key: "203.0.113.7", Rule: "login"}: true,
		{Key: "203.0.113"}: false, {Key: "ann", Rule: "other"}: false, {Key: "ann", Outcome: "passed"}: false,
	} {
		if got := f.Matches(&s); got != want {
			t.Errorf("%+v: %v, want %v", f, got, want)
		}
	}
}
