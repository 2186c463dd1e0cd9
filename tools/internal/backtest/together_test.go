package backtest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/tools/internal/accesslog"
	"github.com/weirproject/weir/tools/internal/backtest"
)

const descriptorRules = `
rules:
  - {name: plan, match: {service: edge, descriptor_keys: [plan=free, user]}, key: [service, entry.1, entry.2], limit: fixed_window 3/1m epoch}
  - {name: all, match: {service: edge, descriptor_keys: [all]}, key: [service], limit: fixed_window 5/1m epoch}
  - {name: http, key: [client.ip], limit: 1/1h, match: {path: /**}}
`

// calls are lines of a log, each a call with the descriptors of a plan's user and of all.
func calls(from time.Time, users ...string) string {
	var b strings.Builder
	for i, user := range users {
		at := ""
		if !from.IsZero() {
			at = fmt.Sprintf(`"time":%q,`, from.Add(time.Duration(i)*time.Second).Format(time.RFC3339Nano))
		}
		fmt.Fprintf(&b, `{%s"request":{"domain":"edge","descriptors":[{"entries":[{"key":"plan","value":"free"},{"key":"user","value":%q}]},`+
			`{"entries":[{"key":"all","value":"1"}]}]}}`+"\n", at, user)
	}
	return b.String()
}

// TestRateLimitRequestsAreReplayed: all descriptors of a call as one decision, a refused call charged nowhere; with the
// times of the log, or in the order of its lines.
func TestRateLimitRequestsAreReplayed(t *testing.T) {
	t.Parallel()
	minute := time.Date(2026, 11, 28, 6, 0, 0, 0, time.UTC)
	users := []string{"ann", "ann", "ann", "ann", "ann", "bob", "bob", "bob"}
	for name, from := range map[string]time.Time{"times": minute.Add(10 * time.Second), "order": {}} {
		c := config(t, descriptorRules, calls(from, users...))
		sweep(t, c, "plan=1/1m,3/1m,9/1m")
		r := run(t, c)
		// ann's fourth and fifth are refused by plan; then two of bob's pass all, and the third is refused by all.
		if r.Total.Requests != 8 || r.Total.Refused != 3 {
			t.Errorf("%s: %+v", name, r.Total)
		}
		got := make(map[string]backtest.Count)
		for _, rule := range r.ByRule {
			got[rule.Name] = rule.Count
		}
		if got["plan"].Refused != 2 || got["plan"].Requests != 8 || got["all"].Refused != 1 || got["http"].Requests != 0 {
			t.Errorf("%s: %+v", name, got)
		}
		worst := r.ByRule[slices.IndexFunc(r.ByRule, func(rule backtest.Rule) bool { return rule.Name == "plan" })].Worst
		if len(worst) != 1 || worst[0].Key != "edge: plan=free, user=ann" {
			t.Errorf("%s: keys %+v", name, worst)
		}
		var refused []int64
		for _, p := range r.Sweeps[0].Points {
			refused = append(refused, p.Refused)
		}
		if !slices.Equal(refused, []int64{6, 2, 0}) {
			t.Errorf("%s: a sweep refuses %v", name, refused)
		}
		noted := slices.ContainsFunc(r.Limits, func(n backtest.Note) bool { return n.Code == "time_order" })
		if noted != (name == "order") || slices.ContainsFunc(r.Limits, func(n backtest.Note) bool { return n.Code == "unformed" }) {
			t.Errorf("%s: %+v", name, r.Limits)
		}
	}
}

// TestHitsOfRateLimitRequests: the descriptor's, else the request's; one with a limit of its own is not read.
func TestHitsOfRateLimitRequests(t *testing.T) {
	t.Parallel()
	const one = `{"entries":[{"key":"all","value":"1"}]%s}`
	log := ""
	for _, extra := range []string{`],"hitsAddend":2`, `,"hits_addend":"3"`, `,"hitsAddend":0`, `,"limit":{"requestsPerUnit":1,"unit":"HOUR"}`, ``} {
		own, of, _ := strings.Cut(extra, "]")
		log += fmt.Sprintf(`{"time":"2026-11-28T06:00:10Z","domain":"edge","descriptors":[`+one+`]%s}`+"\n", own, of)
	}
	c := configOf(t, descriptorRules, log, accesslog.Options{Format: "ratelimit"})
	r := run(t, c)
	if r.Total.Requests != 4 || r.Total.Refused != 2 || r.Log.Unread != 1 || !strings.Contains(r.Log.Files[0].Examples[0].Why, "limit of its own") {
		t.Errorf("%+v %+v", r.Total, r.Log)
	}
}
