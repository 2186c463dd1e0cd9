package gate_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
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

// scriptCalls is how many scripts a Redis has run.
func scriptCalls(server *redistest.Server) int {
	_, rest, _ := strings.Cut(server.Info("commandstats")["cmdstat_evalsha"], "calls=")
	number, _, _ := strings.Cut(rest, ",")
	n, _ := strconv.Atoi(number)
	return n
}

func redisAt(t *testing.T, url string, opts ...redisstore.Option) *redisstore.Store {
	t.Helper()
	store, err := redisstore.Open(t.Context(), url, append(opts, redisstore.WithTimeout(10*time.Second))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// eightTried are a rule with a candidate and eight shadow rules.
func eightTried(limit string) string {
	text := fmt.Sprintf("rules:\n  - {name: live, key: [user], limit: %s, candidate: {limit: 9/1h}}\n", limit)
	for i := range 8 {
		text += fmt.Sprintf("  - {name: tried%d, key: [user], mode: shadow, limit: 5/1h}\n", i)
	}
	return text
}

// TestShadowRulesJoinTheCall: what is tried out costs no call of its own.
func TestShadowRulesJoinTheCall(t *testing.T) {
	server := redistest.Start(t)
	g := open(t, redisAt(t, server.URL()), eightTried("1/1h"))
	var v gate.Verdict
	ask := func(user string, want gate.Outcome, checks int) {
		t.Helper()
		if err := g.Decide(t.Context(), &rules.Request{User: user}, gate.Once, &v); err != nil || v.Outcome != want || v.Len() != checks {
			t.Fatalf("%s: %v with %d checks, %v", user, v.Outcome, v.Len(), err)
		}
	}
	ask("warm", gate.Passed, 10) // loads the scripts
	before := scriptCalls(server)
	for i := range 100 {
		ask(fmt.Sprint(i), gate.Passed, 10)
	}
	if got := scriptCalls(server) - before; got != 100 {
		t.Errorf("100 requests that pass take %d calls, want 100", got)
	}
	ask("0", gate.Refused, 2) // the candidate's check stays
	before = scriptCalls(server)
	for i := range 100 {
		ask(fmt.Sprint(i), gate.Refused, 2)
	}
	if got := scriptCalls(server) - before; got != 200 {
		t.Errorf("100 requests that are refused take %d calls, want 200: the second gives back", got)
	}
	if err := g.Decide(t.Context(), &rules.Request{User: "7"}, gate.Ask{}, &v); err != nil || v.Len() != 10 {
		t.Fatal(v.Len(), err)
	}
	for i := 2; i < v.Len(); i++ {
		if c := v.At(i); c.Decision.Remaining != 4 {
			t.Errorf("%s has %d left of 5 after one request that passed", c.Claim.Limit.Name(), c.Decision.Remaining)
		}
	}
}

// TestABatchTakesFewCalls: one script call for 64 keys.
func TestABatchTakesFewCalls(t *testing.T) {
	server := redistest.Start(t)
	g := open(t, redisAt(t, server.URL()), "rules: [{name: live, key: [user], limit: 5/1h, ban: {after: 100 refusals within 1h, for: 1h}}]")
	batch := func(each int) []gate.Question {
		questions := make([]gate.Question, 100)
		for i := range questions {
			questions[i] = gate.Question{Request: &rules.Request{User: fmt.Sprint(i / each)}, Ask: gate.Once, Verdict: new(gate.Verdict)}
		}
		return questions
	}
	g.DecideBatch(t.Context(), batch(1))
	for _, test := range []struct{ each, calls int }{{1, 4}, {100, 8}} {
		before := scriptCalls(server)
		g.DecideBatch(t.Context(), batch(test.each))
		if got := scriptCalls(server) - before; got > test.calls {
			t.Errorf("a batch with each key %d times takes %d calls, want at most %d", test.each, got, test.calls)
		}
	}
}

// plainly is a store without batches.
type plainly struct{ weir.Store }

// mixed are rules of all sorts, of which some share keys.
const mixed = `
rules:
  - {name: site, limit: fixed_window 40/1h}
  - {name: user, key: [user], limit: [7/1h, sliding_log 9/1h], candidate: {limit: fixed_window 4/1h}}
  - {name: paths, match: {path: /a}, key: [user], limit: sliding_counter 6/1h slices 6, candidate: {limit: 3/1h, key: [constant.all]}}
  - {name: tried, key: [user], mode: shadow, limit: [fixed_window 5/1h, 8/1h]}
  - {name: triedPath, match: {path: /a}, mode: shadow, limit: concurrency 9 ttl 1h}
  - {name: part, key: [user], enforce_percent: 50, limit: fixed_window 6/1h}
  - {name: denied, match: {path: /c}, key: [header.X-No], on_missing: deny, limit: 1/1h}
`

// TestBatchesDecideAsOneByOne: the same requests have the same verdicts, by themselves on a store
// without batches, and in batches on Redis, where followers are charged before it is known whether
// the request passes.
func TestBatchesDecideAsOneByOne(t *testing.T) {
	clock := func() weir.Instant { return 1_790_000_000_000_000 }
	url := redistest.Start(t).URL()
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 12 {
		store := redisAt(t, url, redisstore.WithPrefix(fmt.Sprint("round", round)), redisstore.WithClock(clock))
		single := open(t, plainly{memstore.New(memstore.WithClock(clock))}, mixed)
		batched, followed := open(t, store, mixed), open(t, memstore.New(memstore.WithClock(clock)), mixed)
		for range 10 {
			var questions []gate.Question
			for range 1 + random.IntN(12) {
				r := &rules.Request{User: string("abc"[random.IntN(3)]), Path: "/" + string("abc"[random.IntN(3)])}
				ask := gate.Ask{Times: []int64{0, 1, 1, 1, 1, 1, 3}[random.IntN(7)]}
				questions = append(questions, gate.Question{Request: r, Ask: ask, Verdict: new(gate.Verdict)})
			}
			batched.DecideBatch(t.Context(), questions)
			for i := range questions {
				q := &questions[i]
				var one, other gate.Verdict
				single.Decide(t.Context(), q.Request, q.Ask, &one)
				followed.Decide(t.Context(), q.Request, q.Ask, &other)
				want := verdictText(&one)
				if got := verdictText(q.Verdict); got != want {
					t.Fatalf("round %d, request %d of %d, %+v %d times:\n got %s\nwant %s", round, i, len(questions), q.Request, q.Ask.Times, got, want)
				}
				if got := verdictText(&other); got != want {
					t.Fatalf("in memory %+v %d times:\n got %s\nwant %s", q.Request, q.Ask.Times, got, want)
				}
			}
		}
		if got, want := compared(t, batched, "user"), compared(t, single, "user"); got != want {
			t.Errorf("the candidate:\n got %s\nwant %s", got, want)
		}
	}
}

func verdictText(v *gate.Verdict) string {
	text := fmt.Sprint(v.Outcome, " ", v.Reason, " ", v.Granted, v.Err)
	for i := range v.Len() {
		c := v.At(i)
		text += fmt.Sprintf("\n  %s %s %d: granted %d, %+v", c.Claim.Limit.Name(), c.Claim.Key, c.Claim.Cost, c.Granted, *c.Decision)
	}
	for _, skip := range v.Skips() {
		text += fmt.Sprintf("\n  %s: %s", skip.Rule.Name(), skip.Why)
	}
	return text
}

// unanswering is a store that answers nothing, and counts how often it was asked.
type unanswering struct {
	weir.Store
	calls atomic.Int64
}

func (u *unanswering) Decide(context.Context, []weir.Claim, int64, []weir.Decision) (int64, error) {
	u.calls.Add(1)
	return 0, weir.ErrUnavailable
}

// TestNoCallFollowsAnError: a store that does not answer is waited for once, whatever is
// tried out beside the rules.
func TestNoCallFollowsAnError(t *testing.T) {
	for _, times := range []int64{0, 1, 3} {
		store := &unanswering{Store: memstore.New()}
		g := open(t, store, eightTried("5/1h"))
		var v gate.Verdict
		if err := g.Decide(t.Context(), &rules.Request{User: "u"}, gate.Ask{Times: times}, &v); err != nil || v.Outcome != gate.Passed {
			t.Fatalf("%v, %v", v.Outcome, err)
		}
		if n := store.calls.Load(); n != 1 {
			t.Errorf("%d times: the store was asked %d times, want 1", times, n)
		}
		if times > 0 && len(v.Skips()) != 8 {
			t.Errorf("%d times: %d rules say that they were not asked, want 8", times, len(v.Skips()))
		}
	}
}

// TestABatchBans: refusals of a batch are counted, and ban.
func TestABatchBans(t *testing.T) {
	g := open(t, memstore.New(), "rules: [{name: live, key: [user], limit: fixed_window 2/1h, ban: {after: 3 refusals within 1h, for: 1h}}]")
	questions := make([]gate.Question, 6)
	for i := range questions {
		questions[i] = gate.Question{Request: &rules.Request{User: "u"}, Ask: gate.Once, Verdict: new(gate.Verdict)}
	}
	g.DecideBatch(t.Context(), questions)
	for i := range questions {
		if passes := questions[i].Verdict.Outcome == gate.Passed; passes != (i < 2) {
			t.Errorf("request %d: %v", i, questions[i].Verdict.Outcome)
		}
	}
	if bans, err := g.Bans(t.Context()); err != nil || len(bans) != 1 {
		t.Errorf("banned are %v (%v)", bans, err)
	}
}

// TestQuestionsThatTakeCallsOfTheirOwn: several times, and any question of a store that knows no batches.
func TestQuestionsThatTakeCallsOfTheirOwn(t *testing.T) {
	for name, store := range map[string]weir.Store{"batches": memstore.New(), "none": &failing{Store: memstore.New()}} {
		g := open(t, store, "rules: [{name: a, key: [user], limit: fixed_window 5/1h}]")
		var questions []gate.Question
		for _, times := range []int64{3, 1, 3} {
			questions = append(questions, gate.Question{Request: &rules.Request{User: "u"}, Ask: gate.Ask{Times: times},
				Verdict: new(gate.Verdict)})
		}
		g.DecideBatch(t.Context(), questions)
		for i, want := range []int64{3, 1, 1} {
			if q := &questions[i]; q.Err != nil || q.Verdict.Granted != want {
				t.Errorf("%s, question %d: granted %d, %v, want %d", name, i, q.Verdict.Granted, q.Err, want)
			}
		}
	}
}

// heedless is a store that decides followers of refused requests, as a script of Redis does. Each call has another
// time.
type heedless struct{ *memstore.Store }

func (h *heedless) DecideBatch(ctx context.Context, requests []weir.Request) {
	for i := range requests {
		requests[i].Follows = false
	}
	h.Store.DecideBatch(ctx, requests)
}

// TestVoidChargesAreRefunded: what shadow rules and candidates were charged for a request that does not pass, at
// several times, and of more claims than one call takes.
func TestVoidChargesAreRefunded(t *testing.T) {
	text := "rules:\n  - {name: live, key: [user], limit: fixed_window 1/1h}\n" +
		"  - {name: other, key: [user], limit: fixed_window 9/1h, candidate: {limit: fixed_window 7/1h}}\n"
	shadows := weir.MaxClaims + 5
	for i := range shadows {
		text += fmt.Sprintf("  - {name: tried%d, key: [user], mode: shadow, limit: [fixed_window 9/1h, fixed_window 8/2h]}\n", i)
	}
	for _, step := range []weir.Instant{0, 1000} {
		now := weir.Instant(1_790_000_000_000_000)
		clock := func() weir.Instant { now += step; return now }
		g := open(t, &heedless{memstore.New(memstore.WithClock(clock))}, text)
		var v gate.Verdict
		for i, want := range []gate.Outcome{gate.Passed, gate.Refused, gate.Refused} {
			if err := g.Decide(t.Context(), &rules.Request{User: "u"}, gate.Once, &v); err != nil || v.Outcome != want {
				t.Fatalf("request %d: %v, %v, want %v", i, v.Outcome, err, want)
			}
		}
		g.Decide(t.Context(), &rules.Request{User: "u"}, gate.Ask{}, &v)
		seen := 0
		for i := range v.Len() {
			c := v.At(i)
			if !c.Shadow {
				continue
			}
			seen++
			if charged := c.Claim.Limit.Most() - c.Decision.Remaining; charged != 1 {
				t.Errorf("step %d: %s was charged %d times for one request that passed", step, c.Claim.Limit.Name(), charged)
			}
		}
		if seen != 2*shadows+1 {
			t.Errorf("step %d: %d limits were decided in shadow, want %d", step, seen, 2*shadows+1)
		}
	}
}
