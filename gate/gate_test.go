package gate_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// compiled are the rules of a text.
func compiled(t testing.TB, text string) *rules.Set {
	t.Helper()
	set, err := rules.Load("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func open(t testing.TB, store weir.Store, text string, opts ...gate.Option) *gate.Gate {
	t.Helper()
	g, err := gate.New(store, compiled(t, text), append([]gate.Option{gate.WithLocal(memstore.New())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func from(address string) *rules.Request {
	return &rules.Request{Method: "GET", Path: "/", Client: netip.MustParseAddr(address)}
}

func TestTheRefusedAreChargedNowhere(t *testing.T) {
	g := open(t, memstore.New(), `
rules:
  - {name: site, limit: fixed_window 5/1h}
  - {name: ip, key: [client.ip], limit: fixed_window 2/1h}
`)
	var v gate.Verdict
	for i, want := range []gate.Outcome{gate.Passed, gate.Passed, gate.Refused, gate.Refused} {
		if err := g.Decide(t.Context(), from("192.0.2.1"), gate.Once, &v); err != nil || v.Outcome != want {
			t.Fatalf("request %d: %v %v, want %v", i, v.Outcome, err, want)
		}
	}
	if v.Rule.Name() != "ip" || v.Reason != gate.LimitExceeded || v.At(0).Decision.Remaining != 3 {
		t.Errorf("decided by %v for %v, the site has %d left", v.Rule.Name(), v.Reason, v.At(0).Decision.Remaining)
	}
	if err := g.Decide(t.Context(), from("192.0.2.2"), gate.Once, &v); err != nil || v.Outcome != gate.Passed {
		t.Errorf("another address: %v %v", v.Outcome, err)
	}
}

// failing is a store that returns the given error.
type failing struct {
	weir.Store
	err error
}

func (s *failing) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	if s.err != nil {
		return 0, s.err
	}
	return s.Store.Decide(ctx, claims, times, d)
}

const policies = `
rules:
  - {name: local, match: {path: "/{l}/local/**"}, limit: fixed_window 1/1h}
  - {name: tight, match: {path: /*/local/tight}, limit: fixed_window 1/1h}
  - {name: wide, match: {path: /*/local/tight}, limit: fixed_window 9/1h}
  - {name: allow, match: {path: /allow/**}, limit: fixed_window 1/1h, on_store_error: allow}
  - {name: deny, match: {path: /*/*/deny}, limit: fixed_window 1/1h, on_store_error: deny}
  - {name: tried, match: {path: /x/none/**}, limit: fixed_window 1/1h, mode: shadow, on_store_error: deny}
`

// TestFaultsAndPolicies: the outcomes of two requests in a row, by the fault of the store and the rules'
// on_store_error.
func TestFaultsAndPolicies(t *testing.T) {
	const unavailable, foreign, closed = "unavailable", "foreign", "closed"
	faults := map[string]error{unavailable: weir.ErrUnavailable, foreign: weir.ErrForeignState, closed: weir.ErrClosed}
	for _, test := range []struct {
		path, first, second, by string
	}{
		{"/x/none/y", "passed no_rule", "passed no_rule", ""},
		{"/allow/y/y", "passed store_failed", "passed store_failed", ""},
		{"/x/local", "passed within_limits", "refused limit_exceeded", "local"},
		{"/allow/local", "passed within_limits", "refused limit_exceeded", "local"},
		{"/x/local/tight", "passed within_limits", "refused limit_exceeded", "local"},
		{"/allow/x/deny", "failed store_failed", "failed store_failed", "deny"},
		{"/x/local/deny", "failed store_failed", "failed store_failed", "deny"},
		{"/x/x/deny", "failed store_failed", "failed store_failed", "deny"},
	} {
		for name, fault := range faults {
			g := open(t, &failing{memstore.New(), fault}, policies)
			for _, want := range []string{test.first, test.second} {
				var v gate.Verdict
				if err := g.Decide(t.Context(), &rules.Request{Path: test.path}, gate.Once, &v); err != nil {
					t.Fatal(test.path, err)
				}
				by := ""
				if v.Rule != nil {
					by = v.Rule.Name()
				}
				if got := v.Outcome.String() + " " + v.Reason.String(); got != want || by != test.by {
					t.Errorf("%s, %s: %s by %q, want %s by %q", test.path, name, got, by, want, test.by)
				}
				if asked := test.first != "passed no_rule"; asked != errors.Is(v.Err, fault) || asked != v.Degraded() || (v.Outcome == gate.Passed) != (v.Granted == 1) {
					t.Errorf("%s, %s: granted %d, the error is %v", test.path, name, v.Granted, v.Err)
				}
			}
		}
	}
}

// TestClientErrorsDoNotFallBack: otherwise a client could provoke them in order to pass.
func TestClientErrorsDoNotFallBack(t *testing.T) {
	store := &failing{Store: memstore.New()}
	g := open(t, store, `rules: [{name: a, limit: 1/1h, on_store_error: allow}]`)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	store.err = fmt.Errorf("%w: %w", weir.ErrUnavailable, context.Canceled)
	var v gate.Verdict
	if err := g.Decide(over, &rules.Request{}, gate.Once, &v); !errors.Is(err, context.Canceled) || v.Outcome != gate.Failed || v.Reason != gate.Canceled || v.Granted != 0 || v.Degraded() {
		t.Errorf("a context that is over: %v, %v", v.Outcome, err)
	}
	store.err = nil
	for _, ask := range []gate.Ask{{Times: -1}, {Times: 1, Cost: new(int64(-1))}, {Times: 1, Cost: new(int64(weir.MaxUnits + 1))}, {Times: 1, Claims: make([]weir.Claim, 1)}} {
		var input *weir.InputError
		if err := g.Decide(t.Context(), &rules.Request{}, ask, &v); !errors.As(err, &input) || v.Outcome != gate.Failed || v.Reason != gate.BadInput || v.Len() != 0 || v.Degraded() {
			t.Errorf("%+v: %v %v, %v", ask, v.Outcome, v.Reason, err)
		}
	}
}

// TestFailureOfBothStoresIsAFailure: no store has decided.
func TestFailureOfBothStoresIsAFailure(t *testing.T) {
	local := &failing{memstore.New(), weir.ErrClosed}
	g := open(t, &failing{memstore.New(), weir.ErrUnavailable}, `rules: [{name: a, limit: 1/1h}]`, gate.WithLocal(local))
	var v gate.Verdict
	if err := g.Decide(t.Context(), &rules.Request{}, gate.Once, &v); err != nil || v.Outcome != gate.Failed ||
		!errors.Is(v.Err, weir.ErrClosed) || !errors.Is(v.Err, weir.ErrUnavailable) {
		t.Errorf("%v, %v, %v", v.Outcome, v.Err, err)
	}
}

func TestALocalRuleNeedsALocalStore(t *testing.T) {
	set := compiled(t, `rules: [{name: a, limit: 1/1h}]`)
	if _, err := gate.New(memstore.New(), set); err != nil {
		t.Errorf("an embedded store is its own: %v", err)
	}
	if _, err := gate.New(&failing{memstore.New(), nil}, set); err == nil || !strings.Contains(err.Error(), `rule "a"`) {
		t.Errorf("the error is %v", err)
	}
	if _, err := gate.New(nil, set); err == nil {
		t.Error("no store is no error")
	}
	g := open(t, memstore.New(), `rules: []`)
	if err := g.Swap(nil); err == nil || g.Rules() == nil {
		t.Error("no rules are no error")
	}
}

// TestShadowRulesCountOnTheirOwnKeys, each by itself, when the enforced rules granted.
func TestShadowRulesCountOnTheirOwnKeys(t *testing.T) {
	store := memstore.New()
	const tried = `
rules:
  - {name: site, limit: fixed_window 3/1h}
  - {name: one, mode: shadow, limit: fixed_window 1/1h}
  - {name: two, mode: shadow, limit: [fixed_window 2/1h, fixed_window 100/1d]}
`
	g := open(t, store, tried)
	var v gate.Verdict
	for i, want := range []string{"passed one 1 two 1", "passed one 0 two 1", "passed one 0 two 0", "refused"} {
		if err := g.Decide(t.Context(), &rules.Request{}, gate.Once, &v); err != nil {
			t.Fatal(err)
		}
		got := v.Outcome.String()
		for j := range v.Len() {
			if c := v.At(j); c.Shadow && c.Claim.Limit.Name() == c.Rule.Name() {
				got += fmt.Sprint(" ", c.Rule.Name(), " ", c.Granted)
			}
		}
		if got != want {
			t.Errorf("request %d: %s, want %s", i, got, want)
		}
	}
	// In force, the rules have budgets that nobody used.
	if err := g.Swap(compiled(t, strings.ReplaceAll(tried, "shadow", "enforce"))); err != nil {
		t.Fatal(err)
	}
	if err := g.Decide(t.Context(), &rules.Request{}, gate.Ask{}, &v); err != nil || v.Rule.Name() != "site" {
		t.Fatalf("by %v, %v", v.Rule, err)
	}
	for i, want := range []int64{0, 1, 2, 100} {
		if got := v.At(i).Decision.Remaining; got != want {
			t.Errorf("claim %d has %d left, want %d", i, got, want)
		}
	}
}

// TestFailingShadowRuleAffectsNoRequest: what is tried out changes no answer.
func TestFailingShadowRuleAffectsNoRequest(t *testing.T) {
	g := open(t, &failing{memstore.New(), weir.ErrUnavailable}, `
rules:
  - {name: tried, mode: shadow, limit: 1/1h, on_store_error: deny}
  - {name: unkeyed, mode: shadow, key: [user], on_missing: deny, limit: 1/1h}
  - {name: skipped, key: [user], on_missing: skip, limit: 1/1h}
`)
	var v gate.Verdict
	if err := g.Decide(t.Context(), &rules.Request{}, gate.Once, &v); err != nil || v.Outcome != gate.Passed || v.Reason != gate.NoRule {
		t.Fatalf("%v %v, %v", v.Outcome, v.Reason, err)
	}
	var skips []string
	for _, s := range v.Skips() {
		skips = append(skips, s.Rule.Name()+": "+s.Why)
	}
	want := "skipped: a component of its key is missing; tried: the store did not answer; unkeyed: would be denied"
	if got := strings.Join(skips, "; "); got != want {
		t.Errorf("skipped are\n%s\nwant\n%s", got, want)
	}
}

func TestMissingKeyIsDeniedAndChargesNothing(t *testing.T) {
	g := open(t, memstore.New(), `
rules:
  - {name: site, limit: fixed_window 3/1h}
  - {name: user, key: [user], on_missing: deny, limit: 1/1h}
`)
	var v gate.Verdict
	if err := g.Decide(t.Context(), &rules.Request{}, gate.Once, &v); err != nil || v.Outcome != gate.Denied || v.Reason != gate.MissingKey || v.Rule.Name() != "user" || v.Len() != 0 {
		t.Fatalf("%v %v, %v", v.Outcome, v.Reason, err)
	}
	if err := g.Decide(t.Context(), &rules.Request{User: "u"}, gate.Ask{}, &v); err != nil || v.At(0).Decision.Remaining != 3 {
		t.Errorf("the site has %d left, %v", v.At(0).Decision.Remaining, err)
	}
}

// TestTimesGrantsAsManyAsFit, and a peek changes nothing and returns what would be granted.
func TestTimesGrantsAsManyAsFit(t *testing.T) {
	g := open(t, memstore.New(), `
rules:
  - {name: site, limit: fixed_window 5/1h}
  - {name: tried, limit: fixed_window 3/1h, mode: shadow}
`)
	var v gate.Verdict
	for _, test := range []struct {
		times, granted, shadow int64
		outcome                gate.Outcome
	}{{0, 0, 0, gate.Passed}, {4, 4, 3, gate.Passed}, {4, 1, 0, gate.Passed}, {4, 0, 0, gate.Refused}, {0, 0, 0, gate.Refused}} {
		if err := g.Decide(t.Context(), &rules.Request{}, gate.Ask{Times: test.times}, &v); err != nil || v.Granted != test.granted || v.Outcome != test.outcome {
			t.Errorf("%+v: granted %d, %v, %v", test, v.Granted, v.Outcome, err)
		}
		shadow := int64(0)
		for i := range v.Len() {
			if c := v.At(i); c.Shadow {
				shadow += c.Granted
			}
		}
		if shadow != test.shadow {
			t.Errorf("%+v: the shadow granted %d", test, shadow)
		}
	}
}

// TestClaimsOfTheCaller: they are decided together with those of the rules, or alone.
func TestClaimsOfTheCaller(t *testing.T) {
	store := &failing{Store: memstore.New()}
	g := open(t, store, `rules: [{name: site, limit: fixed_window 5/1h, on_store_error: allow}]`)
	own := gate.Ask{Times: 1, Claims: []weir.Claim{{Key: "k", Limit: weir.MustLimit("own", weir.FixedWindow{Limit: 1, Window: time.Hour}), Cost: 1}}}
	var v gate.Verdict
	for _, want := range []gate.Outcome{gate.Passed, gate.Refused} {
		if err := g.Decide(t.Context(), &rules.Request{}, own, &v); err != nil || v.Outcome != want || v.At(0).Decision.Remaining != 4 {
			t.Errorf("%v, %v, %d left", v.Outcome, err, v.At(0).Decision.Remaining)
		}
	}
	if v.Rule != nil || v.At(1).Rule != nil {
		t.Error("the caller's claim has a rule")
	}
	if err := g.Decide(t.Context(), nil, own, &v); err != nil || v.Outcome != gate.Refused || v.Len() != 1 {
		t.Errorf("alone: %v, %v", v.Outcome, err)
	}
	store.err = weir.ErrUnavailable
	if err := g.Decide(t.Context(), &rules.Request{}, own, &v); err != nil || v.Outcome != gate.Failed {
		t.Errorf("without a store: %v, %v", v.Outcome, err)
	}
}

func TestCosts(t *testing.T) {
	g := open(t, memstore.New(), `rules: [{name: site, limit: fixed_window 10/1h}]`)
	var v gate.Verdict
	if err := g.Decide(t.Context(), &rules.Request{}, gate.Ask{Times: 1, Cost: new(int64(7))}, &v); err != nil || v.At(0).Decision.Remaining != 3 {
		t.Fatalf("%d left, %v", v.At(0).Decision.Remaining, err)
	}
	for _, test := range []struct{ actual, left int64 }{{2, 8}, {12, 3}, {9, 1}} {
		if err := g.Settle(t.Context(), v.Receipt(), test.actual); err != nil {
			t.Fatal(err)
		}
		var look gate.Verdict
		if err := g.Decide(t.Context(), &rules.Request{}, gate.Ask{}, &look); err != nil || look.At(0).Decision.Remaining != test.left {
			t.Errorf("settled at %d: %d left, want %d", test.actual, look.At(0).Decision.Remaining, test.left)
		}
	}
	var input *weir.InputError
	if err := g.Settle(t.Context(), v.Receipt(), -1); !errors.As(err, &input) {
		t.Errorf("settled at -1: %v", err)
	}
}

// TestLeasesBesideOtherLimits: they are held under one id, renewed, and released alone.
func TestLeasesBesideOtherLimits(t *testing.T) {
	var now atomic.Int64
	now.Store(1e15)
	clock := memstore.WithClock(func() weir.Instant { return weir.Instant(now.Load()) })
	for _, fault := range []error{nil, weir.ErrUnavailable} { // held by the store, and by the local one
		g := open(t, &failing{memstore.New(clock), fault}, `
rules:
  - {name: rate, limit: fixed_window 10/1h}
  - {name: held, limit: concurrency 1 ttl 10s}
`, gate.WithLocal(memstore.New(clock)))
		var v, other gate.Verdict
		ask := func(v *gate.Verdict, ask gate.Ask) gate.Outcome {
			t.Helper()
			if err := g.Decide(t.Context(), &rules.Request{}, ask, v); err != nil {
				t.Fatal(err)
			}
			return v.Outcome
		}
		if ask(&v, gate.Once) != gate.Passed || !v.Holds() || len(v.Lease()) < 20 {
			t.Fatalf("%v, lease %q", v.Outcome, v.Lease())
		}
		receipt := v.Receipt()
		if ask(&other, gate.Once) != gate.Refused || other.Rule.Name() != "held" || other.Holds() || other.Lease() != "" || other.Receipt() != nil {
			t.Errorf("another: %v by %s", other.Outcome, other.Rule.Name())
		}
		if ask(&other, gate.Ask{Times: 1, Lease: v.Lease()}) != gate.Passed {
			t.Errorf("the same again: %v", other.Outcome)
		}
		now.Add(8e6)
		if err := g.Renew(t.Context(), receipt); err != nil {
			t.Error(err)
		}
		now.Add(8e6)
		if err := g.Release(t.Context(), receipt); err != nil {
			t.Error(err)
		}
		if err := g.Release(t.Context(), receipt); !errors.Is(err, weir.ErrLeaseGone) {
			t.Errorf("released twice: %v", err)
		}
		if err := g.Renew(t.Context(), receipt); !errors.Is(err, weir.ErrLeaseGone) {
			t.Errorf("renewed after it: %v", err)
		}
		if ask(&other, gate.Ask{}) != gate.Passed || other.At(0).Decision.Remaining != 8 {
			t.Errorf("after it: %v, %d left of the rate", other.Outcome, other.At(0).Decision.Remaining)
		}
	}
}

// TestSwapIsWhole: a request is decided by the old rules or by the new ones. The two sets
// have two rules each that never match together.
func TestSwapIsWhole(t *testing.T) {
	sets := []*rules.Set{
		compiled(t, `rules: [{name: a1, limit: 1000000/1s}, {name: a2, limit: 1000000/1s}]`),
		compiled(t, `rules: [{name: b1, limit: 1000000/1s}, {name: b2, limit: 1000000/1s}, {name: b3, limit: 1000000/1s}]`),
	}
	g := open(t, memstore.New(), `rules: []`)
	var done sync.WaitGroup
	for range 4 {
		done.Go(func() {
			var v gate.Verdict
			for range 5000 {
				if err := g.Decide(context.Background(), &rules.Request{}, gate.Once, &v); err != nil {
					t.Error(err)
					return
				}
				text := ""
				for _, rule := range v.Matched() {
					text += rule.Name() + " "
				}
				if text != "" && text != "a1 a2 " && text != "b1 b2 b3 " {
					t.Errorf("a mixture: %s", text)
					return
				}
			}
		})
	}
	for i := range 1000 {
		if err := g.Swap(sets[i%2]); err != nil {
			t.Error(err)
		}
	}
	done.Wait()
}

func TestObserversGetEachVerdict(t *testing.T) {
	var told []string
	g := open(t, memstore.New(), `rules: [{name: a, limit: fixed_window 1/1h}]`, gate.WithObserver(func(v *gate.Verdict) {
		told = append(told, fmt.Sprint(v.Outcome, " ", v.Reason, " ", v.Took > 0))
	}))
	var v gate.Verdict
	for _, ask := range []gate.Ask{gate.Once, gate.Once, {Times: -1}} {
		g.Decide(t.Context(), &rules.Request{}, ask, &v)
	}
	if got := strings.Join(told, "; "); got != "passed within_limits true; refused limit_exceeded true; failed bad_input true" {
		t.Errorf("told: %s", got)
	}
}

// TestAVerdictAllocatesNothing, from the parsed request to the decision, granted or refused.
func TestAVerdictAllocatesNothing(t *testing.T) {
	g := open(t, memstore.New(), `
rules:
  - {name: site, limit: 1000000/1s}
  - {name: ip, key: [client.ip], limit: 5/1m}
  - {name: tried, key: [client.ip], limit: 5/1m, mode: shadow}
`, gate.WithObserver(func(*gate.Verdict) {}))
	var v gate.Verdict
	request := from("192.0.2.1")
	if n := testing.AllocsPerRun(1000, func() {
		if err := g.Decide(t.Context(), request, gate.Once, &v); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestVerdictIsReused: it keeps nothing of the request before, and results that were copied stay valid.
func TestVerdictIsReused(t *testing.T) {
	g := open(t, memstore.New(), `rules: [{name: user, key: [user], limit: fixed_window 5/1h}]`)
	var v gate.Verdict
	if err := g.Decide(t.Context(), &rules.Request{User: "first"}, gate.Once, &v); err != nil {
		t.Fatal(err)
	}
	receipt := v.Receipt()
	if err := g.Decide(t.Context(), &rules.Request{User: "other"}, gate.Once, &v); err != nil {
		t.Fatal(err)
	}
	if got := receipt[0].Claim.Key; got != "user=5:first" {
		t.Errorf("the receipt is of %q", got)
	}
	if err := g.Decide(t.Context(), nil, gate.Once, &v); err != nil || v.Outcome != gate.Passed || v.Rule != nil || v.Len() != 0 || v.Receipt() != nil {
		t.Errorf("nothing asked: %v", v.Outcome)
	}
}

// TestCostOfNothingTakesNoLease: a request of a cost of 0 passes unless a limit is exceeded, and leaves nothing to
// release or to settle of a concurrency limit; beside a request that takes a lease too.
func TestCostOfNothingTakesNoLease(t *testing.T) {
	const text = `rules:
  - {name: rate, key: [user], limit: 10/1m}
  - {name: held, key: [user], limit: concurrency 1 ttl 30s}
  - {name: tried, key: [user], limit: concurrency 1 ttl 30s, mode: shadow}
`
	for name, store := range map[string]weir.Store{"batches": memstore.New(), "single calls": unbatched{memstore.New()}} {
		t.Run(name, func(t *testing.T) {
			g := open(t, store, text)
			zero := int64(0)
			ask := gate.Ask{Times: 1, Cost: &zero}
			for range 3 {
				var v gate.Verdict
				if err := g.Decide(t.Context(), &rules.Request{User: "ann"}, ask, &v); err != nil {
					t.Fatal(err)
				}
				if v.Outcome != gate.Passed || v.Holds() || v.Len() != 3 {
					t.Fatalf("%v, %v, holds %v, %d checks", v.Outcome, v.Reason, v.Holds(), v.Len())
				}
				receipt := v.Receipt()
				if err := errors.Join(g.Settle(t.Context(), receipt, 1), g.Settle(t.Context(), receipt, 0),
					g.Release(t.Context(), receipt)); err != nil || len(receipt) != 1 {
					t.Fatalf("%d charges, %v", len(receipt), err)
				}
			}
			questions := []gate.Question{
				{Request: &rules.Request{User: "ann"}, Ask: ask, Verdict: new(gate.Verdict)},
				{Request: &rules.Request{User: "ann"}, Ask: gate.Once, Verdict: new(gate.Verdict)},
			}
			if err := g.DecideTogether(t.Context(), questions); err != nil {
				t.Fatal(err)
			}
			if questions[0].Verdict.Holds() || !questions[1].Verdict.Holds() {
				t.Error("the wrong one of two requests holds a lease")
			}
			for _, q := range questions {
				if err := g.Release(t.Context(), q.Verdict.Receipt()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
