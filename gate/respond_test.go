package gate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

const failedLogins = `
rules:
  - name: login
    key: [user]
    count_if: {status: [401, 403]}
    limit: sliding_log 20/1h
    ban: {after: 5 counted within 10m, for: 10m}
`

// countings collects the ends of reservations, as "RULE RESULT".
type countings struct {
	mu   sync.Mutex
	list []string
}

func (c *countings) note(one *gate.Counting) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := one.Rule.Name() + " " + one.Result.String()
	for _, ban := range one.Banned {
		text += fmt.Sprintf(" bans %s for %v", ban.Key, ban.Length)
	}
	c.list = append(c.list, text)
}

func (c *countings) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.list, ", ")
}

// begin decides a request of a user, which passes, and returns its receipt.
func begin(t *testing.T, g *gate.Gate, user string) gate.Receipt {
	t.Helper()
	var v gate.Verdict
	if err := g.Decide(t.Context(), &rules.Request{User: user}, gate.Once, &v); err != nil || v.Outcome != gate.Passed {
		t.Fatalf("%v %v %v", v.Outcome, v.Reason, err)
	}
	return v.Receipt()
}

func respond(t *testing.T, g *gate.Gate, receipt gate.Receipt, status int) {
	t.Helper()
	if _, err := g.Respond(t.Context(), receipt, gate.Response{Status: status}); err != nil {
		t.Fatal(err)
	}
}

// remaining is what the first limit of the only rule has left for a user.
func remaining(t *testing.T, g *gate.Gate, user string) int64 {
	t.Helper()
	var v gate.Verdict
	if err := g.Decide(t.Context(), &rules.Request{User: user}, gate.Ask{}, &v); err != nil {
		t.Fatal(err)
	}
	return v.At(0).Decision.Remaining
}

// TestFifthCountedResponseBans, request by request; what does not count leaves no trace.
func TestFifthCountedResponseBans(t *testing.T) {
	c, seen := newClock(), new(countings)
	g := open(t, c.store(), failedLogins, gate.WithCountObserver(seen.note))
	for i, status := range []int{401, 200, 403, 500, 200, 401, 0, 200} {
		receipt := begin(t, g, "ann")
		c.advance(time.Second)
		respond(t, g, receipt, status)
		if want := []int64{19, 19, 18, 18, 18, 17, 16, 16}[i]; remaining(t, g, "ann") != want {
			t.Fatalf("after response %d, %d: %d left, want %d", i, status, remaining(t, g, "ann"), want)
		}
	}
	respond(t, g, begin(t, g, "ann"), 401)
	if got := reasonFor(t, g, "ann"); got != "banned login 10m0s" {
		t.Errorf("after the fifth: %s", got)
	}
	if got := reasonFor(t, g, "bob"); got != "within_limits" {
		t.Errorf("another user: %s", got)
	}
	c.advance(10 * time.Minute)
	if got := reasonFor(t, g, "ann"); got != "within_limits" {
		t.Errorf("after the ban: %s", got)
	}
	want := "login kept, login given_back, login kept, login given_back, login given_back, login kept, " +
		"login no_response, login given_back, login kept bans user=3:ann for 10m0s"
	if seen.text() != want {
		t.Errorf("observed %s\nwant     %s", seen.text(), want)
	}
}

// TestResponsesDuringABanDoNotCountTowardsTheNext: all twenty were under way when the fifth brought the ban.
func TestResponsesDuringABanDoNotCountTowardsTheNext(t *testing.T) {
	c := newClock()
	g := open(t, c.store(), strings.NewReplacer("within 10m", "within 1h", "20/1h", "26/1h").Replace(failedLogins))
	var receipts []gate.Receipt
	for range 20 {
		receipts = append(receipts, begin(t, g, "ann"))
	}
	for _, receipt := range receipts {
		respond(t, g, receipt, 401)
	}
	bans, err := g.Bans(t.Context())
	if err != nil || len(bans) != 1 {
		t.Fatalf("%d bans, %v", len(bans), err)
	}
	c.advance(10 * time.Minute)
	for range 5 {
		respond(t, g, begin(t, g, "ann"), 401)
	}
	if got := reasonFor(t, g, "ann"); got != "banned login 10m0s" {
		t.Errorf("after five more: %s", got)
	}
}

// TestRequestsUnderWayFillTheLimit: one more is refused until one of them gets a response that does not count.
func TestRequestsUnderWayFillTheLimit(t *testing.T) {
	g := open(t, newClock().store(), failedLogins)
	var receipts []gate.Receipt
	for range 20 {
		receipts = append(receipts, begin(t, g, "ann"))
	}
	if got := reasonFor(t, g, "ann"); got != "limit_exceeded login 1h0m0s" {
		t.Errorf("the 21st at once: %s", got)
	}
	respond(t, g, receipts[7], 200)
	if got := reasonFor(t, g, "ann"); got != "within_limits" {
		t.Errorf("after a successful one: %s", got)
	}
}

// TestRespondSettlesEachRuleByItself: limits of a rule together, fixed costs too, shadow rules without a ban.
func TestRespondSettlesEachRuleByItself(t *testing.T) {
	const text = `
rules:
  - {name: plain, limit: fixed_window 100/1h}
  - {name: failed, count_if: {status: 4xx}, cost: 3, limit: [sliding_log 100/1h, fixed_window 100/1d]}
  - {name: served, count_if: {status: 2xx, header: {X-Cache: [miss]}}, limit: sliding_counter 100/1m}
  - {name: tried, mode: shadow, key: [user], count_if: {status: 500-599}, limit: sliding_log 100/1h,
     ban: {after: 1 counted within 1m, for: 1m}}
`
	hit, miss := map[string][]string{"X-Cache": {"hit"}}, map[string][]string{"X-Cache": {" miss "}}
	for _, test := range []struct {
		status int
		header map[string][]string
		want   string
	}{
		{404, nil, "plain 99, failed 97, failed.2 97, served 100, tried 100, "},
		{200, miss, "plain 99, failed 100, failed.2 100, served 99, tried 100, "},
		{200, hit, "plain 99, failed 100, failed.2 100, served 100, tried 100, "},
		{502, nil, "plain 99, failed 100, failed.2 100, served 100, tried 99, "},
		{101, nil, "plain 99, failed 100, failed.2 100, served 100, tried 100, "},
		{0, nil, "plain 99, failed 97, failed.2 97, served 99, tried 99, "},
	} {
		g := open(t, memstore.New(), text)
		rest, err := g.Respond(t.Context(), begin(t, g, "ann"), gate.Response{Status: test.status, Header: test.header})
		if err != nil {
			t.Fatal(err)
		}
		var v gate.Verdict
		if err := g.Decide(t.Context(), &rules.Request{User: "ann"}, gate.Ask{}, &v); err != nil {
			t.Fatal(err)
		}
		got, charged := "", 0
		for i := range v.Len() {
			got += fmt.Sprintf("%s %d, ", v.At(i).Claim.Limit.Name(), v.At(i).Decision.Remaining)
			if v.At(i).Decision.Remaining < 100 {
				charged++
			}
		}
		if got != test.want || charged != len(rest) {
			t.Errorf("%d %v: %s and %d charges, want %s", test.status, test.header, got, len(rest), test.want)
		}
	}
}

// A broken store fails refunds and what charges the refusals of bans, with err, a number of times.
type broken struct {
	weir.Store
	err   error
	times atomic.Int64
	calls atomic.Int64
}

func (b *broken) fails() bool {
	b.calls.Add(1)
	return b.times.Add(-1) >= 0
}

func (b *broken) Refund(ctx context.Context, claims []weir.Claim, at weir.Instant, d []weir.Decision) error {
	if b.fails() {
		return b.err
	}
	return b.Store.Refund(ctx, claims, at, d)
}

func (b *broken) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	if claims[0].Limit.Name() == "login.refusals" && b.fails() {
		return 0, b.err
	}
	return b.Store.Decide(ctx, claims, times, d)
}

// TestFailedGiveBack: a call that was never executed is repeated for ten seconds, for sliding logs; any other is
// not. Units that are not given back stay charged, and are counted as lost.
func TestFailedGiveBack(t *testing.T) {
	unsent := fmt.Errorf("%w (%w): no route", weir.ErrUnavailable, weir.ErrNotExecuted)
	for name, test := range map[string]struct {
		limit  string
		err    error
		times  int64
		calls  int64 // 0: any number
		left   int64
		end    string
		failed bool // at once
	}{
		"once":           {"sliding_log", unsent, 1, 2, 5, "login given_back", false},
		"for 9 seconds":  {"sliding_log", unsent, 12, 13, 5, "login given_back", false},
		"for ever":       {"sliding_log", unsent, 1e9, 0, 4, "login lost", false},
		"unknown":        {"sliding_log", weir.ErrUnavailable, 1, 1, 4, "login lost", true},
		"a window":       {"fixed_window", unsent, 1, 1, 4, "login lost", true},
		"a log, unknown": {"sliding_log", context.DeadlineExceeded, 1e9, 1, 4, "login lost", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, seen := &broken{Store: memstore.New(), err: test.err}, new(countings)
				store.times.Store(test.times)
				g := open(t, store, fmt.Sprintf("rules: [{name: login, key: user, count_if: {status: 401}, limit: %s 5/1h}]",
					test.limit), gate.WithCountObserver(seen.note))
				_, err := g.Respond(t.Context(), begin(t, g, "ann"), gate.Response{Status: 200})
				if (err != nil) != test.failed || test.failed && !errors.Is(err, test.err) {
					t.Errorf("Respond: %v", err)
				}
				time.Sleep(time.Minute)
				if left := remaining(t, g, "ann"); left != test.left || seen.text() != test.end {
					t.Errorf("%d left and %q, want %d and %q", left, seen.text(), test.left, test.end)
				}
				if calls := store.calls.Load(); test.calls > 0 && calls != test.calls || calls > 30 {
					t.Errorf("%d calls, want %d", calls, test.calls)
				}
			})
		})
	}
}

// TestCountTowardsABanIsRepeated likewise.
func TestCountTowardsABanIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, seen := &broken{Store: memstore.New(), err: weir.ErrNotExecuted}, new(countings)
		g := open(t, store, strings.Replace(failedLogins, "5 counted", "1 counted", 1), gate.WithCountObserver(seen.note))
		receipt := begin(t, g, "ann")
		store.times.Store(3)
		respond(t, g, receipt, 401)
		time.Sleep(10 * time.Second)
		if want := "login kept bans user=3:ann for 10m0s"; seen.text() != want {
			t.Errorf("observed %q, want %q", seen.text(), want)
		}
		store.err = weir.ErrUnavailable
		receipt = begin(t, g, "bob")
		store.times.Store(1)
		if _, err := g.Respond(t.Context(), receipt, gate.Response{Status: 401}); !errors.Is(err, weir.ErrUnavailable) {
			t.Errorf("a count that may have been executed: %v", err)
		}
		if got := reasonFor(t, g, "bob"); got != "within_limits" || remaining(t, g, "bob") != 18 {
			t.Errorf("its unit stays charged: %s, %d left", got, remaining(t, g, "bob"))
		}
	})
}

func TestUnfinishedCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, seen := &broken{Store: memstore.New(), err: weir.ErrNotExecuted}, new(countings)
		g := open(t, store, "rules: [{name: login, key: user, count_if: {status: 401}, limit: sliding_log 20000/1h}]",
			gate.WithCountObserver(seen.note))
		store.times.Store(10_001)
		failed := 0
		for range 10_001 {
			if _, err := g.Respond(t.Context(), begin(t, g, "ann"), gate.Response{Status: 200}); err != nil {
				failed++
			}
		}
		time.Sleep(time.Minute)
		if left := remaining(t, g, "ann"); failed != 1 || left != 19_999 {
			t.Errorf("%d failed and %d are left, want 1 and 19999", failed, left)
		}
	})
}

// TestSettleResponseOnce: a reservation is settled by its response once, with and without another actual cost.
func TestSettleResponseOnce(t *testing.T) {
	const text = `
rules:
  - {name: requests, cost: 1, limit: fixed_window 100/1h}
  - {name: tokens, cost: {default: 10}, limit: fixed_window 1000/1h}
  - {name: errors, count_if: {status: 5xx}, cost: 2, limit: sliding_log 100/1h}
  - {name: served, count_if: {status: 2xx}, cost: {default: 10}, limit: fixed_window 1000/1h}
`
	for _, test := range []struct {
		units  int64
		status int
		want   string
	}{
		{-1, 200, "99 990 100 990"},
		{-1, 503, "99 990 98 1000"},
		{-1, 404, "99 990 100 1000"},
		{-1, 0, "99 990 98 990"},
		{25, 200, "99 975 100 975"},
		{0, 200, "99 1000 100 1000"},
		{25, 503, "99 975 98 1000"},
	} {
		seen := new(countings)
		g := open(t, memstore.New(), text, gate.WithCountObserver(seen.note))
		var v gate.Verdict
		ask := gate.Ask{Times: 1, Claims: []weir.Claim{guard(t, "first")}}
		if err := g.Decide(t.Context(), &rules.Request{}, ask, &v); err != nil || v.Outcome != gate.Passed {
			t.Fatalf("%v %v", v.Outcome, err)
		}
		receipt := v.Receipt()
		held, charged := receipt[4], receipt[:4]
		response := gate.Response{Status: test.status}
		if err := g.SettleResponse(t.Context(), held, charged, test.units, response); err != nil {
			t.Fatalf("%+v: %v", test, err)
		}
		if err := g.SettleResponse(t.Context(), held, charged, 0, response); !errors.Is(err, weir.ErrLeaseGone) {
			t.Errorf("%+v: settled again: %v", test, err)
		}
		if err := g.Decide(t.Context(), &rules.Request{}, gate.Ask{}, &v); err != nil {
			t.Fatal(err)
		}
		got := ""
		for i := range v.Len() {
			got += fmt.Sprintf(" %d", v.At(i).Decision.Remaining)
		}
		if got = got[1:]; got != test.want || strings.Count(seen.text(), ",") != 1 {
			t.Errorf("%+v: %s left, and %s", test, got, seen.text())
		}
	}
}
