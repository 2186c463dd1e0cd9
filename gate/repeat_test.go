package gate_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/rules"
)

// order is a request of a user with an id; "" is none.
func order(user, id string) *rules.Request {
	return &rules.Request{Method: "POST", Path: "/order", User: user, Attributes: said{"Idempotency-Key": id}}
}

// unspent is what is left of the first limit of each rule for a user.
func unspent(t *testing.T, g *gate.Gate, user string) (list []int64) {
	t.Helper()
	for _, rule := range g.Rules().Rules() {
		key, ok := rule.AppendKey(nil, order(user, ""))
		if !ok {
			t.Fatal("no key")
		}
		var v gate.Verdict
		ask := gate.Ask{Claims: g.ClaimsOf(rule, key, rule.Limits()[:1])}
		if err := g.Decide(t.Context(), nil, ask, &v); err != nil {
			t.Fatal(err)
		}
		list = append(list, v.At(0).Decision.Remaining)
	}
	return list
}

// A repetition is a request of user ann with the id, and its result: what is left is that of each rule.
type repetition struct{ id, want, left string }

const keepsOrders = `once: {by: header.Idempotency-Key, for: 10m, repeats: 2}`

var repetitions = map[string]struct {
	rules string
	steps []repetition
}{
	"repeats are free, then charged": {
		`[{name: order, key: [user], limit: sliding_log 5/1h, ` + keepsOrders + `}]`,
		[]repetition{
			{"a", "passed within_limits", "[4]"}, {"a", "passed within_limits repeated", "[4]"},
			{"a", "passed within_limits repeated", "[4]"}, {"a", "passed within_limits", "[3]"},
			{"", "passed within_limits", "[2]"}, {"", "passed within_limits", "[1]"},
			{"b", "passed within_limits", "[0]"}, {"c", "refused limit_exceeded", "[0]"},
			{"a", "refused limit_exceeded", "[0]"}, {"b", "passed within_limits repeated", "[0]"},
		},
	},
	"repeats are refused": {
		`[{name: order, key: [user], limit: sliding_log 1/1h, once: {by: header.Idempotency-Key, for: 10m, repeat: refuse},
  ban: {after: 1 refusals within 1h, for: 10m}}]`,
		[]repetition{
			{"a", "passed within_limits", "[0]"}, {"a", "refused repeated", "[0]"}, {"a", "refused repeated", "[0]"},
			{"b", "refused limit_exceeded", "[0]"}, {"b", "refused banned", "[0]"},
		},
	},
	"other rules are charged": {
		`[{name: order, key: [user], limit: sliding_log 1/1h, ` + keepsOrders + `}, {name: site, limit: fixed_window 2/1h}]`,
		[]repetition{
			{"a", "passed within_limits", "[0 1]"}, {"a", "passed within_limits repeated", "[0 0]"},
			{"a", "refused limit_exceeded", "[0 0]"},
		},
	},
	"each rule has its repeats": {
		`[{name: order, key: [user], limit: sliding_log 9/1h, ` + keepsOrders + `},
  {name: site, limit: fixed_window 9/1h, once: {by: header.Idempotency-Key, for: 1m, repeats: 1}}]`,
		[]repetition{
			{"a", "passed within_limits", "[8 8]"}, {"a", "passed within_limits repeated", "[8 8]"},
			{"a", "passed within_limits repeated", "[8 7]"}, {"a", "passed within_limits", "[7 6]"},
		},
	},
	"a ban holds for repetitions": {
		`[{name: order, key: [user], limit: sliding_log 1/1h, ` + keepsOrders + `, ban: {after: 1 refusals within 1h, for: 10m}}]`,
		[]repetition{
			{"a", "passed within_limits", "[0]"}, {"b", "refused limit_exceeded", "[0]"}, {"a", "refused banned", "[0]"},
		},
	},
	"shadow rules repeat by themselves": {
		`[{name: order, mode: shadow, key: [user], limit: sliding_log 5/1h, ` + keepsOrders + `},
  {name: site, limit: fixed_window 9/1h}]`,
		[]repetition{
			{"a", "passed within_limits", "[4 8]"}, {"a", "passed within_limits", "[4 7]"},
			{"a", "passed within_limits", "[4 6]"}, {"a", "passed within_limits", "[3 5]"},
		},
	},
	"a shadow rule counts what passes": {
		`[{name: order, key: [user], limit: sliding_log 5/1h, ` + keepsOrders + `},
  {name: site, mode: shadow, limit: fixed_window 9/1h}]`,
		[]repetition{{"a", "passed within_limits", "[4 8]"}, {"a", "passed within_limits repeated", "[4 7]"}},
	},
	"a candidate is compared on what is charged": {
		`[{name: order, key: [user], limit: sliding_log 5/1h, ` + keepsOrders + `, candidate: {limit: sliding_log 1/1h}}]`,
		[]repetition{
			{"a", "passed within_limits +0", "[4]"}, {"a", "passed within_limits repeated", "[4]"},
			{"b", "passed within_limits +1", "[3]"},
		},
	},
	"a debt is charged once": {
		`[{name: order, key: [user], charge: full, cost: 3, limit: fixed_window 4/1h, ` + keepsOrders + `},
  {name: site, charge: full, cost: 5, limit: fixed_window 7/1h}]`,
		[]repetition{
			{"a", "passed within_limits", "[1 2]"}, {"a", "passed within_limits repeated", "[1 0]"},
			{"a", "refused limit_exceeded", "[1 0]"},
		},
	},
}

// TestRepeatedRequests plays requests with ids on both stores, one by one.
func TestRepeatedRequests(t *testing.T) {
	shared, err := redisstore.Open(t.Context(), redistest.Start(t).URL(), redisstore.WithTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	for name, test := range repetitions {
		for kind, store := range map[string]weir.Store{"memory": memstore.New(), "Redis": shared} {
			g := open(t, store, "rules: "+test.rules)
			user := "ann-" + strings.ReplaceAll(name, " ", "-")
			for i, step := range test.steps {
				var v gate.Verdict
				if err := g.Decide(t.Context(), order(user, step.id), gate.Once, &v); err != nil {
					t.Fatal(err)
				}
				got := fmt.Sprint(v.Outcome, " ", v.Reason)
				if v.Found {
					got += " repeated"
				}
				for _, d := range v.Differences() {
					_, newly, _, _ := d.Parts()
					got += fmt.Sprint(" +", newly)
				}
				if now := fmt.Sprint(unspent(t, g, user)); got != step.want || now != step.left {
					t.Errorf("%s, %s, step %d: %s, %s left; want %s, %s", name, kind, i, got, now, step.want, step.left)
				}
			}
			for _, rule := range g.Rules().Rules() { // of the site, for the next test on this Redis
				key, _ := rule.AppendKey(nil, order(user, ""))
				_ = store.Reset(t.Context(), g.ClaimsOf(rule, key, rule.Limits()))
			}
		}
	}
}

// TestOneOfManyEqualRequestsIsCharged: also where keys lie in several slots of a Cluster, and in batches.
func TestOneOfManyEqualRequestsIsCharged(t *testing.T) {
	cluster, err := redisstore.Open(t.Context(), redistest.StartCluster(t, 3, 0).URL(), redisstore.WithTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	const text = `rules:
  - {name: order, key: [user], limit: sliding_log 100/1h, once: {by: header.Idempotency-Key, for: 10m, repeats: 60}}
  - {name: site, limit: fixed_window 100/1h, once: {by: header.Idempotency-Key, for: 10m, repeats: 60}}
  - {name: seen, mode: shadow, limit: fixed_window 100/1h}
`
	for name, store := range map[string]weir.Store{"memory": memstore.New(), "Cluster": cluster} {
		g := open(t, store, text)
		var again atomic.Int64
		var all sync.WaitGroup
		for range 25 {
			all.Go(func() {
				questions := make([]gate.Question, 2)
				for i := range questions {
					questions[i] = gate.Question{Request: order("ann", "a"), Ask: gate.Once, Verdict: new(gate.Verdict)}
				}
				g.DecideBatch(t.Context(), questions)
				for _, q := range questions {
					if q.Err != nil || q.Verdict.Outcome != gate.Passed {
						t.Errorf("%s: %v %v", name, q.Verdict.Outcome, q.Err)
					}
					if q.Verdict.Found {
						again.Add(1)
					}
				}
			})
		}
		all.Wait()
		if now := fmt.Sprint(unspent(t, g, "ann")); now != "[99 99 50]" || again.Load() != 49 {
			t.Errorf("%s: %s left, %d repeated; want [99 99 50], 49", name, now, again.Load())
		}
	}
}

func TestUnitsThatComeBackFreeTheID(t *testing.T) {
	const text = `rules:
  - {name: order, key: [user], limit: sliding_log 9/1h, once: {by: header.Idempotency-Key, for: 10m},
     count_if: {status: 200}}
`
	for name, test := range map[string]struct {
		end  func(g *gate.Gate, receipt gate.Receipt) error
		left string
	}{
		"the response counts": {func(g *gate.Gate, receipt gate.Receipt) error {
			_, err := g.Respond(context.Background(), receipt, gate.Response{Status: 200})
			return err
		}, "[8]"},
		"the response does not count": {func(g *gate.Gate, receipt gate.Receipt) error {
			_, err := g.Respond(context.Background(), receipt, gate.Response{Status: 500})
			return err
		}, "[9]"},
		"settled":  {func(g *gate.Gate, r gate.Receipt) error { return g.Settle(context.Background(), r, 4) }, "[5]"},
		"canceled": {func(g *gate.Gate, r gate.Receipt) error { return g.Settle(context.Background(), r, 0) }, "[9]"},
	} {
		g := open(t, memstore.New(), text)
		var first, second gate.Verdict
		if err := g.Decide(t.Context(), order("ann", "a"), gate.Once, &first); err != nil {
			t.Fatal(err)
		}
		err := test.end(g, first.Receipt())
		if now := fmt.Sprint(unspent(t, g, "ann")); err != nil || now != test.left {
			t.Errorf("%s: %s left, %v; want %s", name, now, err, test.left)
		}
		if err := g.Decide(t.Context(), order("ann", "a"), gate.Once, &second); err != nil {
			t.Fatal(err)
		}
		free := test.left == "[9]"
		if second.Found == free || len(second.Receipt()) > 0 != free {
			t.Errorf("%s: repeated %v, receipt %v", name, second.Found, second.Receipt())
		}
	}
}

// TestAskedIDs: the id of an ask stands for all limits of the request.
func TestAskedIDs(t *testing.T) {
	g := open(t, memstore.New(), `rules:
  - {name: order, key: [user], limit: sliding_log 1/1h}
  - {name: site, limit: fixed_window 9/1h, ban: {after: 1 refusals within 1h, for: 10m}}
`)
	var v gate.Verdict
	decide := func(want string, ask gate.Ask) {
		t.Helper()
		err := g.Decide(t.Context(), order("ann", ""), ask, &v)
		if got := fmt.Sprint(v.Outcome, " ", v.Reason, " ", v.Found, " ", len(v.Receipt()), " ", err); got != want {
			t.Errorf("got %s; want %s", got, want)
		}
	}
	ask := gate.Ask{Times: 1, ID: "a", Keep: time.Minute, Aside: []weir.Claim{guard(t, "first")}}
	decide("passed within_limits false 4 <nil>", ask)
	ask.Aside = []weir.Claim{guard(t, "second")}
	decide("passed within_limits true 0 <nil>", ask)
	decide("refused limit_exceeded false 0 <nil>", gate.Once)
	ask.ID = "b"
	decide("refused limit_exceeded false 0 <nil>", ask)
	cost := int64(2)
	ask.ID, ask.Cost = "a", &cost
	decide("refused limit_exceeded false 0 <nil>", ask)
	ask.Times = 2
	decide(`failed bad_input false 0 weir: times is 2; allowed: 0 or 1 with an id`, ask)
	ask.Times, ask.ID = 1, strings.Repeat("a", 257)
	decide(`failed bad_input false 0 weir: id is "257 bytes"; allowed: 1 to 256 bytes`, ask)
}

// TestAskedIDsBesideIDsOfRules: the id of an ask neither counts nor refuses as a repetition, and stands for no response
// that gave units back.
func TestAskedIDsBesideIDsOfRules(t *testing.T) {
	g := open(t, memstore.New(), `rules:
  - {name: order, key: [user], limit: sliding_log 9/1h, once: {by: header.Idempotency-Key, for: 10m, repeats: 1},
     count_if: {status: 200}}
  - {name: form, key: [user], limit: sliding_log 9/1h, once: {by: header.Idempotency-Key, for: 10m, repeat: refuse}}
`)
	ask := gate.Ask{Times: 1, ID: "a", Keep: time.Minute}
	for i, want := range []string{"passed false [8 8]", "passed true [8 8]", "passed true [8 8]", "passed true [8 8]"} {
		var v gate.Verdict
		if err := g.Decide(t.Context(), order("ann", "x"), ask, &v); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(v.Outcome, " ", v.Found, " ", unspent(t, g, "ann")); got != want {
			t.Errorf("step %d: %s; want %s", i, got, want)
		}
	}
	for _, test := range []struct {
		status int
		found  bool
	}{{500, false}, {200, false}, {200, true}} { // of the request before
		var v gate.Verdict
		if err := g.Decide(t.Context(), order("bob", ""), ask, &v); err != nil || v.Found != test.found {
			t.Errorf("before a response of %d: repeated %v, %v", test.status, v.Found, err)
		}
		if _, err := g.Respond(t.Context(), v.Receipt(), gate.Response{Status: test.status}); err != nil {
			t.Fatal(err)
		}
	}
}

// interrupted calls a function before its second decision.
type interrupted struct {
	weir.Store
	calls  int
	second func()
}

func (s *interrupted) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	if s.calls++; s.calls == 2 {
		s.second()
	}
	return s.Store.Decide(ctx, claims, times, d)
}

// TestEqualRequestTakesWhatIsLeft: of two equal requests that take what is left, the second is a repetition.
func TestEqualRequestTakesWhatIsLeft(t *testing.T) {
	store := &interrupted{Store: memstore.New()}
	g := open(t, store, `rules: [{name: order, key: [user], charge: full, cost: 5, limit: fixed_window 3/1h, `+keepsOrders+`}]`)
	var first, second gate.Verdict
	store.second = func() {
		if err := g.Decide(t.Context(), order("ann", "a"), gate.Once, &first); err != nil || first.Granted != 1 || first.Found {
			t.Errorf("%v %v", first.Outcome, err)
		}
	}
	if err := g.Decide(t.Context(), order("ann", "a"), gate.Once, &second); err != nil || !second.Found {
		t.Errorf("%v, repeated %v, %v", second.Outcome, second.Found, err)
	}
}

// TestIDsWhileTheStoreIsDown: this process keeps the ids of what it decides.
func TestIDsWhileTheStoreIsDown(t *testing.T) {
	store := &failing{Store: memstore.New()}
	g := open(t, store, `rules: [{name: order, key: [user], limit: sliding_log 9/1h, `+keepsOrders+`}]`)
	for i, step := range []struct {
		err   error
		found bool
	}{{nil, false}, {nil, true}, {weir.ErrUnavailable, false}, {weir.ErrUnavailable, true}, {nil, true}} {
		store.err = step.err
		var v gate.Verdict
		err := g.Decide(t.Context(), order("ann", "a"), gate.Once, &v)
		if err != nil || v.Outcome != gate.Passed || v.Found != step.found {
			t.Errorf("step %d: %v, repeated %v, %v", i, v.Outcome, v.Found, err)
		}
	}
}

// TestRuleThatIsLeftOutKeepsNoIDs: while the store is down, a rule with allow decides nothing.
func TestRuleThatIsLeftOutKeepsNoIDs(t *testing.T) {
	g := open(t, &failing{Store: memstore.New(), err: weir.ErrUnavailable}, `rules:
  - {name: site, limit: fixed_window 9/1h}
  - {name: form, key: [user], limit: 9/1h, on_store_error: allow, once: {by: header.Idempotency-Key, for: 1m, repeat: refuse}}
`)
	for range 2 {
		var v gate.Verdict
		if err := g.Decide(t.Context(), order("ann", "a"), gate.Once, &v); err != nil || v.Outcome != gate.Passed {
			t.Errorf("%v %v, %v", v.Outcome, v.Reason, err)
		}
	}
}
