package gate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

var apart = strings.ReplaceAll(`
rules:
  - {name: near, match: {descriptor: {near: "*"}}, quota: true, limit: fixed_window 1/100d}
  - {name: far, match: {descriptor: {far: "*"}}, quota: true, limit: fixed_window 2/100d}
  - {name: tried, match: {descriptor: {tried: "*"}}, quota: true, mode: shadow, limit: fixed_window 1/100d}
  - {name: plain, match: {descriptor: {plain: "*"}}, limit: fixed_window 3/100d}
  - {name: closed, match: {descriptor: {closed: "*"}}, quota: true, limit: none}
  - {name: free, match: {descriptor: {free: "*"}}, quota: true, limit: unlimited}
  - {name: all, match: {descriptor: {all: "*"}}, alias: usual, limit: fixed_window 1/100d}
  - {name: gold, match: {descriptor: {gold: "*"}}, alias: special, replaces: usual, limit: fixed_window 2/100d}
  - {name: later, match: {descriptor: {later: "*"}}, replaces: usual, limit: unlimited, schedule: {days: NEVER}}
  - {name: off, enabled: false, match: {descriptor: {off: "*"}}, replaces: usual, limit: unlimited}
  - {name: open, match: {descriptor: {open: "*"}}, deny: {descriptor.open: mallory}, limit: unlimited}
  - {name: banned, match: {descriptor: {banned: "*"}}, limit: fixed_window 1/100d, ban: {after: 1 refusals within 1d, for: 2d}}
  - {name: once, match: {descriptor: {once: "*"}}, limit: fixed_window 1/100d, once: {by: descriptor.id, for: 1h}}
  - {name: top, match: {descriptor: {top: "*"}}, replaces: [usual, special], limit: unlimited}
`, "NEVER", never)

// never is a day that is not today, and neither soon nor just over.
var never = strings.ToLower(time.Now().UTC().AddDate(0, 0, 3).Weekday().String()[:3])

// told is the outcome of each request.
func told(questions []gate.Question) string {
	var list []string
	for i := range questions {
		list = append(list, fmt.Sprint(questions[i].Verdict.Outcome, " ", questions[i].Verdict.Reason))
	}
	return strings.Join(list, ", ")
}

// a calls step is a call of requests, each named by its descriptor, and its outcomes.
type callStep struct {
	call, want string
	act        gate.Act
	spent      bool
}

var apartCalls = map[string][]callStep{
	"one of the quotas that passes suffices": {
		{call: "near far", want: "passed within_limits, passed within_limits"},
		{call: "near far plain", want: "passed other_granted, passed within_limits, passed within_limits"},
		{call: "near far plain", want: "refused limit_exceeded, refused limit_exceeded, refused other_refused"},
		{call: "plain", want: "passed within_limits"}, {call: "plain", want: "passed within_limits"},
		{call: "plain", want: "refused limit_exceeded"},
	},
	"a call that is refused charges no quota": {
		{call: "plain", want: "passed within_limits"}, {call: "plain", want: "passed within_limits"},
		{call: "plain", want: "passed within_limits"},
		{call: "near plain", want: "refused other_refused, refused limit_exceeded"},
		{call: "near free", want: "passed within_limits, passed no_rule"},
		{call: "near free", want: "refused limit_exceeded, refused other_refused"},
	},
	"a shadow rule's quota passes": {
		{call: "closed tried", want: "passed other_granted, passed no_rule"},
		{call: "closed tried", want: "passed other_granted, passed no_rule"},
		{call: "closed plain", want: "denied deny_list, refused other_refused"},
	},
	"quota matters in a call of several requests alone": {
		{call: "near", want: "passed within_limits"}, {call: "near", want: "refused limit_exceeded"},
	},
	"asked for": {
		{call: "plain all", want: "passed within_limits, passed within_limits", act: gate.Quota},
		{call: "plain all", want: "passed within_limits, passed other_granted", act: gate.Quota},
		{call: "plain all", want: "passed within_limits, passed other_granted", act: gate.Quota},
		{call: "plain all", want: "refused limit_exceeded, refused limit_exceeded", act: gate.Quota},
	},
	"spent units are charged beyond the limit": {
		{call: "far near", want: "passed within_limits, passed within_limits", spent: true},
		{call: "far near", want: "passed within_limits, passed other_granted", spent: true},
		{call: "far near", want: "refused limit_exceeded, refused limit_exceeded", spent: true},
	},
	"spent units of a quota that is alone": {
		{call: "far", want: "passed within_limits", spent: true}, {call: "far plain", want: "passed within_limits, passed within_limits", spent: true},
		{call: "far plain", want: "refused limit_exceeded, passed within_limits", spent: true},
		{call: "plain", want: "passed within_limits", spent: true}, {call: "plain", want: "refused limit_exceeded", spent: true},
	},
	"a quota of one request refuses": {
		{call: "near", want: "passed within_limits", act: gate.Quota}, {call: "near", want: "refused limit_exceeded", act: gate.Quota},
	},
	"spent quotas of a refused call stay charged": {
		{call: "plain", want: "passed within_limits"}, {call: "plain", want: "passed within_limits"},
		{call: "plain", want: "passed within_limits"},
		{call: "near plain", want: "refused other_refused, refused limit_exceeded", spent: true},
		{call: "near", want: "refused limit_exceeded"},
	},
	"an unlimited request is no quota that passes": {
		{call: "near free", want: "passed within_limits, passed no_rule", act: gate.Quota},
		{call: "near free", want: "refused limit_exceeded, refused other_refused", act: gate.Quota},
	},
	"refusals of spent units count towards bans": {
		{call: "banned", want: "passed within_limits", spent: true}, {call: "banned", want: "refused limit_exceeded", spent: true},
		{call: "banned", want: "refused banned"},
	},
	"an id is not charged with spent units": {
		{call: "once", want: "passed within_limits"}, {call: "once+id", want: "refused limit_exceeded", spent: true},
		{call: "once+id", want: "refused limit_exceeded"},
	},
	"a rule that is not active replaces nothing": {
		{call: "all later", want: "passed within_limits, passed no_rule"}, {call: "all later", want: "refused limit_exceeded, refused other_refused"},
		{call: "all off", want: "refused limit_exceeded, refused other_refused"},
	},
	"an unlimited rule denies": {{call: "open=mallory", want: "denied deny_list"}, {call: "open", want: "passed no_rule"}},
	"a rule replaces rules of other requests and of its own": {
		{call: "all", want: "passed within_limits"},
		{call: "all gold", want: "passed no_rule, passed within_limits"}, {call: "gold all", want: "passed within_limits, passed no_rule"},
		{call: "all gold", want: "refused other_refused, refused limit_exceeded"},
		{call: "all", want: "refused limit_exceeded"},
		{call: "all top gold", want: "passed no_rule, passed no_rule, passed no_rule"},
		{call: "all+top", want: "passed no_rule"}, {call: "all+gold", want: "refused limit_exceeded"},
	},
}

func TestRequestsThatAreDecidedApart(t *testing.T) {
	for name, steps := range apartCalls {
		for _, store := range []weir.Store{memstore.New(), unbatched{memstore.New()}} {
			g := open(t, store, apart)
			for i, s := range steps {
				var questions []gate.Question
				for word := range strings.FieldsSeq(s.call) {
					d := described{}
					for key := range strings.SplitSeq(word, "+") {
						name, value, ok := strings.Cut(key, "=")
						if !ok {
							value = "x"
						}
						d[name] = value
					}
					q := part(d, 1, s.act)
					q.Ask.Spent = s.spent
					questions = append(questions, q)
				}
				if got := told(together(t, g, questions...)); got != s.want {
					t.Errorf("%s, %T, call %d: %s\nwant %s", name, store, i, got, s.want)
				}
			}
		}
	}
}

// TestRulesThatReplace: a rule that is disabled does not make requests of calls depend on each other.
func TestRulesThatReplace(t *testing.T) {
	for text, want := range map[string]bool{"replaces: a, limit: 1/1s": true, "replaces: a, limit: 1/1s, enabled: false": false, "limit: 1/1s": false} {
		set, err := rules.Load("f", []byte("rules: [{name: r, "+text+"}]"))
		if err != nil || set.Replaces() != want {
			t.Errorf("%s: %v, %v", text, set.Replaces(), err)
		}
	}
}

// TestSpentUnitsAreOwed: a request that costs nothing passes until more than the limit is used. The local store counts
// them too.
func TestSpentUnitsAreOwed(t *testing.T) {
	for name, store := range map[string]weir.Store{"shared": memstore.New(), "local": silent{memstore.New()}} {
		g := open(t, store, apart)
		ask := func(units int64, spent bool) string {
			q := part(described{"plain": "x"}, units, gate.Decided)
			q.Ask.Times, q.Ask.Cost, q.Ask.Spent = 1, &units, spent
			together(t, g, q)
			return q.Verdict.Outcome.String()
		}
		got := ask(3, true) + ", " + ask(0, false) + ", " + ask(1, true) + ", " + ask(0, false)
		if got != "passed, passed, refused, refused" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestTheDebtOfABucketIsBounded: a client that states its hits cannot block a key for long.
func TestTheDebtOfABucketIsBounded(t *testing.T) {
	const text = `rules: [{name: bucket, match: {descriptor: {plain: "*"}}, limit: [5/10s, 3/10s step]}]`
	now := weir.Instant(1e15)
	g := open(t, memstore.New(memstore.WithClock(func() weir.Instant { return now })), text)
	for _, units := range []int64{1, 1 << 40, 4, 1 << 40, 1, 1} {
		q := part(described{"plain": "x"}, units, gate.Decided)
		q.Ask.Times, q.Ask.Cost, q.Ask.Spent = 1, &units, true
		together(t, g, q)
		for i := range q.Verdict.Len() {
			if reset := q.Verdict.At(i).Decision.ResetAfter; reset > 35*time.Second {
				t.Errorf("after %d hits a bucket is full after %v", units, reset)
			}
		}
	}
	now += 30e6
	if got := told(together(t, g, part(described{"plain": "x"}, 1, gate.Decided))); got != "passed within_limits" {
		t.Errorf("30 s later: %s", got)
	}
}

// TestALimitAloneMeetsNoRule: whatever the descriptors match.
func TestALimitAloneMeetsNoRule(t *testing.T) {
	g := open(t, memstore.New(), apart)
	override := &gate.Override{Limit: weir.FixedWindow{Limit: 1, Window: 1e9}, Name: "own", Key: "k", Alone: true}
	for i, want := range []string{"passed within_limits", "refused limit_exceeded"} {
		var v gate.Verdict
		r := &rules.Request{Attributes: described{"top": "x", "closed": "x"}}
		if err := g.Decide(t.Context(), r, gate.Ask{Times: 1, Override: override}, &v); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(v.Outcome, " ", v.Reason); got != want {
			t.Errorf("request %d: %s, want %s", i, got, want)
		}
	}
}
