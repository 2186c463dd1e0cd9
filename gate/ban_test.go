package gate_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/rules"
)

// A driven clock, at first at some time.
type clock struct{ now atomic.Int64 }

func newClock() *clock {
	c := new(clock)
	c.now.Store(1e15)
	return c
}

func (c *clock) advance(d time.Duration) { c.now.Add(d.Microseconds()) }

func (c *clock) store() *memstore.Store {
	return memstore.New(memstore.WithClock(func() weir.Instant { return weir.Instant(c.now.Load()) }))
}

const guarded = `
rules:
  - {name: site, limit: fixed_window 1000/1h}
  - name: login
    key: [user]
    limit: fixed_window 2/1m
    ban: {after: 3 refusals within 1m, for: 10m, then: [1h, 24h]}
`

// reasonFor returns the reason of the verdict on one request of a user.
func reasonFor(t *testing.T, g *gate.Gate, user string) string {
	t.Helper()
	var v gate.Verdict
	if err := g.Decide(t.Context(), &rules.Request{User: user}, gate.Once, &v); err != nil {
		t.Fatal(err)
	}
	text := v.Reason.String()
	if v.Outcome == gate.Passed {
		return text
	}
	worst, _ := v.Worst()
	text += fmt.Sprintf(" %s %v", v.Rule.Name(), worst.Decision.RetryAfter)
	for _, ban := range v.Banned() {
		text += fmt.Sprintf(", bans %s for %v", ban.Key, ban.Length)
	}
	return text
}

// provoke refuses a user until a ban, and returns its length.
func provoke(t *testing.T, g *gate.Gate, user string) string {
	t.Helper()
	for range 10 {
		if _, length, banned := strings.Cut(reasonFor(t, g, user), ", bans user=3:"+user+" for "); banned {
			return length
		}
	}
	return "never"
}

// TestBanOfOneUser, from the first refusal to the end, request by request.
func TestBanOfOneUser(t *testing.T) {
	c := newClock()
	g := open(t, c.store(), guarded)
	for i, step := range []struct {
		after time.Duration
		want  string
	}{
		{0, "within_limits"},
		{0, "within_limits"},
		{0, "limit_exceeded login 1m0s"},
		{10 * time.Second, "limit_exceeded login 50s"},
		{0, "limit_exceeded login 50s, bans user=3:ann for 10m0s"},
		{0, "banned login 10m0s"},
		{time.Minute, "banned login 9m0s"}, // the limit would grant it
		{0, "banned login 9m0s"},           // nor does asking make it longer
		{9*time.Minute - time.Microsecond, "banned login 1µs"},
		{time.Microsecond, "within_limits"},
		{0, "within_limits"},
		{0, "limit_exceeded login 1m0s"}, // as many refusals as before
		{0, "limit_exceeded login 1m0s"},
		{0, "limit_exceeded login 1m0s, bans user=3:ann for 1h0m0s"},
		{time.Hour - time.Microsecond, "banned login 1µs"},
		{time.Microsecond, "within_limits"},
		{0, "within_limits"},
		{0, "limit_exceeded login 1m0s"},
		{59 * time.Second, "limit_exceeded login 1s"},
		{time.Second, "within_limits"},
		{0, "within_limits"},
		{0, "limit_exceeded login 1m0s"}, // within a minute only two were refused
		{0, "limit_exceeded login 1m0s, bans user=3:ann for 24h0m0s"},
		{24 * time.Hour, "within_limits"},
	} {
		c.advance(step.after)
		if got := reasonFor(t, g, "ann"); got != step.want {
			t.Fatalf("request %d: %s, want %s", i, got, step.want)
		}
		if i == 6 {
			if got := reasonFor(t, g, "bob"); got != "within_limits" {
				t.Errorf("another user: %s", got)
			}
		}
	}
}

// TestTheLastBanRepeatsAndBansAreForgotten, one in each time of forget.
func TestTheLastBanRepeatsAndBansAreForgotten(t *testing.T) {
	const day = 24 * time.Hour
	c := newClock()
	g := open(t, c.store(), guarded)
	for i, step := range []struct {
		after time.Duration
		want  string
	}{
		{0, "10m0s"}, {time.Hour, "1h0m0s"}, {2 * time.Hour, "24h0m0s"}, {2 * day, "24h0m0s"}, {2 * day, "24h0m0s"},
		{2 * day, "24h0m0s"},                              // 6 days and 3 hours after the first: nothing is forgotten
		{2 * day, "24h0m0s"},                              // the first was, and this is the third again
		{30 * day, "10m0s"},                               // all were
		{7*day - time.Minute, "1h0m0s"},                   // not yet
		{7 * day, "1h0m0s"},                               // of two one
		{14 * day, "10m0s"},                               // and both
		{7*day + time.Microsecond, "10m0s"}, {0, "never"}, // who is banned is not banned again
	} {
		c.advance(step.after)
		if got := provoke(t, g, "ann"); got != step.want {
			t.Errorf("step %d: banned for %s, want %s", i, got, step.want)
		}
	}
}

// onRedis is a store on a server of its own.
func onRedis(t *testing.T) weir.Store { return opened(t, redistest.Start(t).URL()) }

func opened(t *testing.T, url string) weir.Store {
	t.Helper()
	store, err := redisstore.Open(context.Background(), url, redisstore.WithTimeout(10*time.Second)) // tests share a busy machine
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// TestRefusalsBeforeABanAreForgotten: after it, it takes as many as before, also within the
// same time.
func TestRefusalsBeforeABanAreForgotten(t *testing.T) {
	c := newClock()
	g := open(t, c.store(), `rules: [{name: login, key: [user], limit: fixed_window 1/1h, ban: {after: 3 refusals within 1d, for: 10s, then: 20s}}]`)
	reasonFor(t, g, "ann")
	for i, want := range []string{"", "", "bans user=3:ann for 10s", "", "", "bans user=3:ann for 20s", "", ""} {
		if _, got, _ := strings.Cut(reasonFor(t, g, "ann"), ", "); got != want {
			t.Errorf("refusal %d: %q, want %q", i, got, want)
		}
		c.advance(20 * time.Second)
	}
}

// TestNodesBanOnce: many are refused at once, at two gates on one store. There is one ban, and
// the next is the second. Instead of waiting for its end the ban is taken away.
func TestNodesBanOnce(t *testing.T) {
	const text = `rules: [{name: login, key: [user], limit: fixed_window 1/1h, ban: {after: 5 refusals within 1h, for: 1h, then: [2h, 3h]}}]`
	for name, store := range map[string]weir.Store{"embedded": memstore.New(), "Redis": onRedis(t), "a cluster": opened(t, redistest.StartCluster(t, 3, 0).URL())} {
		t.Run(name, func(t *testing.T) {
			budget := gate.WithBudget(time.Minute)
			nodes := []*gate.Gate{open(t, store, text, budget), open(t, store, text, budget)}
			bans := nodes[0].Rules().Rules()[0].Bans()
			for _, want := range []string{"[1h0m0s]", "[2h0m0s]", "[3h0m0s]", "[3h0m0s]"} {
				if got := fmt.Sprint(storm(t, nodes)); got != want {
					t.Errorf("the bans are %s, want %s", got, want)
				}
				if got := reasonFor(t, nodes[1], "ann"); !strings.HasPrefix(got, "banned login") {
					t.Errorf("after it: %s", got)
				}
				if err := store.Reset(t.Context(), []weir.Claim{{Key: "user=3:ann", Limit: bans.Hold}, {Key: "user=3:ann", Limit: bans.Turn}}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestBanOnRedisHoldsOnAllNodes, and ends by the clock of Redis.
func TestBanOnRedisHoldsOnAllNodes(t *testing.T) {
	const text = `rules: [{name: login, key: [user], limit: fixed_window 1/1s, ban: {after: 1 refusal within 1s, for: %s}}]`
	store := onRedis(t)
	for length, user := range map[string]string{"1h": "ann", "1s": "bob"} {
		rule := fmt.Sprintf(text, length)
		here, there := open(t, store, rule, gate.WithBudget(time.Minute)), open(t, store, rule)
		redistest.Await(t, "a ban", func() bool { return strings.Contains(reasonFor(t, here, user), "bans user=3:"+user+" for "+length) })
		if length == "1s" {
			redistest.Await(t, "its end", func() bool { return reasonFor(t, there, user) == "within_limits" })
		} else if got := reasonFor(t, there, user); !strings.HasPrefix(got, "banned login") {
			t.Errorf("at another node: %s", got)
		}
	}
}

// storm is 16 goroutines that are refused until they are banned; the bans that came of it.
func storm(t *testing.T, nodes []*gate.Gate) (bans []time.Duration) {
	var done sync.WaitGroup
	var mu sync.Mutex
	for i := range 16 {
		done.Go(func() {
			var v gate.Verdict
			for range 500 {
				if err := nodes[i%len(nodes)].Decide(context.Background(), &rules.Request{User: "ann"}, gate.Once, &v); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, ban := range v.Banned() {
					bans = append(bans, ban.Length)
				}
				mu.Unlock()
				if v.Reason == gate.Banned {
					return
				}
			}
			t.Error("500 refusals lead to no ban")
		})
	}
	done.Wait()
	return bans
}

func TestBanKeepsItsEndWhenTheRuleChanges(t *testing.T) {
	c := newClock()
	g := open(t, c.store(), guarded)
	if got := provoke(t, g, "ann"); got != "10m0s" {
		t.Fatal(got)
	}
	if err := g.Swap(compiled(t, strings.NewReplacer("2/1m", "200/1h", "10m", "2m", "[1h, 24h]", "4h, forget: 2d", "3 ref", "1 ref").Replace(guarded))); err != nil {
		t.Fatal(err)
	}
	c.advance(time.Minute)
	if got := reasonFor(t, g, "ann"); got != "banned login 9m0s" {
		t.Errorf("by other numbers: %s", got)
	}
	if err := g.Swap(compiled(t, strings.Replace(guarded, "2/1m", "1/1m", 1))); err != nil {
		t.Fatal(err)
	}
	c.advance(9 * time.Minute)
	if got := provoke(t, g, "ann"); got != "1h0m0s" {
		t.Errorf("the ban after it: %s", got)
	}
	without, _, _ := strings.Cut(guarded, "    ban:")
	if err := g.Swap(compiled(t, without)); err != nil {
		t.Fatal(err)
	}
	c.advance(time.Minute)
	if got := reasonFor(t, g, "ann"); got != "within_limits" {
		t.Errorf("by a rule without a ban: %s", got)
	}
}

// TestTheRefusingRuleBans: of several rules the one that refused counts; where both refuse, both count.
func TestTheRefusingRuleBans(t *testing.T) {
	c := newClock()
	g := open(t, c.store(), `
rules:
  - {name: ip, key: [constant.here], limit: fixed_window 4/1m, ban: {after: 2 refusals within 1h, for: 2h}}
  - {name: user, key: [user], limit: fixed_window 2/1m, ban: {after: 2 refusals within 1h, for: 1h}}
  - {name: slow, key: [user], limit: fixed_window 9/5h}
`)
	for i, want := range []string{
		"ann within_limits", "ann within_limits", "ann limit_exceeded user 1m0s", "bob within_limits",
		"ann limit_exceeded user 1m0s, bans user=3:ann for 1h0m0s",
		"bob within_limits",
		"bob limit_exceeded ip 1m0s", // of the user's limit too
		"ann banned user 1h0m0s, bans constant.here=4:here for 2h0m0s",
		"ann banned ip 2h0m0s",
		"bob banned ip 2h0m0s, bans user=3:bob for 1h0m0s",
		"eve banned ip 2h0m0s",
	} {
		user, want, _ := strings.Cut(want, " ")
		if got := reasonFor(t, g, user); got != want {
			t.Errorf("request %d: %s, want %s", i, got, want)
		}
	}
}

func TestBanCountsEachOfSeveralTimes(t *testing.T) {
	g := open(t, newClock().store(), guarded)
	for i, test := range []struct{ times, granted, bans int64 }{{4, 2, 0}, {5, 0, 1}, {5, 0, 0}} {
		var v gate.Verdict
		if err := g.Decide(t.Context(), &rules.Request{User: "ann"}, gate.Ask{Times: test.times}, &v); err != nil || v.Granted != test.granted || len(v.Banned()) != int(test.bans) {
			t.Errorf("step %d: granted %d, %d bans, %v", i, v.Granted, len(v.Banned()), err)
		}
	}
	var v gate.Verdict
	if err := g.Decide(t.Context(), &rules.Request{User: "ann"}, gate.Ask{}, &v); err != nil || v.Reason != gate.Banned || v.Outcome != gate.Refused {
		t.Errorf("a look says %v %v, %v", v.Outcome, v.Reason, err)
	}
}

// TestShadowRulesDoNotBan: neither mode shadow, nor a key outside of the percentage.
func TestShadowRulesDoNotBan(t *testing.T) {
	for _, how := range []string{"mode: shadow", "enforce_percent: 0"} {
		g := open(t, memstore.New(), strings.Replace(guarded, "    key: [user]", "    key: [user]\n    "+how, 1))
		for range 20 {
			if got := reasonFor(t, g, "ann"); got != "within_limits" {
				t.Fatalf("%s: %s", how, got)
			}
		}
		var v gate.Verdict
		if err := g.Decide(t.Context(), &rules.Request{User: "ann"}, gate.Once, &v); err != nil || v.Len() != 2 {
			t.Errorf("%s: %d checks, %v; want those of two limits", how, v.Len(), err)
		}
	}
}

// TestBansAreListedAndLifted.
func TestBansAreListedAndLifted(t *testing.T) {
	c := newClock()
	store := c.store()
	g, other := open(t, store, guarded), open(t, store, guarded)
	list := func() (text string) {
		bans, err := g.Bans(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, ban := range bans {
			text += fmt.Sprintf("%s %s %v until %v; ", ban.Rule.Name(), ban.Key, ban.Length, time.Duration(int64(ban.Until)-c.now.Load())*time.Microsecond)
		}
		return text
	}
	provoke(t, g, "ann")
	c.advance(time.Minute)
	provoke(t, g, "bob")
	provoke(t, other, "eve")
	if got := list(); got != "login user=3:ann 10m0s until 9m0s; login user=3:bob 10m0s until 10m0s; " {
		t.Errorf("banned are %s", got)
	}
	rule := g.Rules().Rules()[1]
	for _, user := range []string{"ann", "eve"} { // also what others banned
		if err := g.Lift(t.Context(), rule, "user=3:"+user); err != nil {
			t.Fatal(err)
		}
	}
	if got := list(); got != "login user=3:bob 10m0s until 10m0s; " {
		t.Errorf("banned are then %s", got)
	}
	if got := reasonFor(t, other, "ann"); got != "within_limits" {
		t.Errorf("lifted: %s", got)
	}
	if got := provoke(t, g, "ann"); got != "10m0s" {
		t.Errorf("after it the first ban again; it is %s", got)
	}
	var v gate.Verdict
	if err := g.Decide(t.Context(), &rules.Request{User: "bob"}, gate.Ask{}, &v); err != nil {
		t.Fatal(err)
	}
	if err := g.Reset(t.Context(), &v); err != nil {
		t.Fatal(err)
	}
	if got := provoke(t, g, "bob"); got != "10m0s" {
		t.Errorf("reset: banned for %s", got)
	}
	c.advance(10 * time.Minute)
	if got := list(); got != "" {
		t.Errorf("over: %s", got)
	}
	var input *weir.InputError
	if err := g.Lift(t.Context(), g.Rules().Rules()[0], "all"); !errors.As(err, &input) {
		t.Errorf("a rule without bans: %v", err)
	}
}

// TestBansAreThoseOfTheRulesInForce: a ban that is in nobody's way is not listed, and is again
// when the rule bans again.
func TestBansAreThoseOfTheRulesInForce(t *testing.T) {
	const rule = "rules: [{name: login, key: [user], limit: fixed_window 2/1m"
	const ban = ", ban: {after: 3 refusals within 1m, for: 10m}"
	g := open(t, newClock().store(), rule+ban+"}]")
	provoke(t, g, "ann")
	for _, test := range []struct {
		rules, then string
		listed      int
	}{
		{rule + "}]", "limit_exceeded login 1m0s", 0},
		{rule + ban + ", mode: shadow}]", "no_rule", 0},
		{"rules: []", "no_rule", 0},
		{rule + ban + "}, {name: other, limit: 1000/1s}]", "banned login 10m0s", 1},
	} {
		if err := g.Swap(compiled(t, test.rules)); err != nil {
			t.Fatal(err)
		}
		bans, err := g.Bans(t.Context())
		if err != nil || len(bans) != test.listed || test.listed == 1 && bans[0].Rule != g.Rules().Rules()[0] {
			t.Errorf("%s: %+v, %v; want %d", test.rules, bans, err, test.listed)
		}
		if got := reasonFor(t, g, "ann"); got != test.then {
			t.Errorf("%s: %s, want %s", test.rules, got, test.then)
		}
	}
}

// TestABanKeepsNoRules: it lasts longer than rules do that change every moment, of which each
// set may be of a hundred thousand.
func TestABanKeepsNoRules(t *testing.T) {
	g := open(t, newClock().store(), guarded)
	provoke(t, g, "ann")
	before := weak.Make(g.Rules())
	if err := g.Swap(compiled(t, guarded)); err != nil {
		t.Fatal(err)
	}
	redistest.Await(t, "the end of the rules before", func() bool {
		runtime.GC()
		return before.Value() == nil
	})
	if bans, err := g.Bans(t.Context()); err != nil || len(bans) != 1 {
		t.Errorf("%+v, %v", bans, err)
	}
}

// TestTheListOfBansIsBounded: attackers choose how many there are.
func TestTheListOfBansIsBounded(t *testing.T) {
	g := open(t, newClock().store(), `rules: [{name: a, key: [user], limit: fixed_window 1/1h, ban: {after: 1 refusal within 1h, for: 1h}}]`)
	var v gate.Verdict
	for i := range 1100 {
		for range 2 {
			if err := g.Decide(t.Context(), &rules.Request{User: fmt.Sprint(i)}, gate.Once, &v); err != nil {
				t.Fatal(err)
			}
		}
	}
	bans, err := g.Bans(t.Context())
	if err != nil || len(bans) != 1000 || bans[0].Key != "user=3:100" || bans[999].Key != "user=4:1099" {
		t.Errorf("%d bans, %v", len(bans), err)
	}
}

func TestEndedBansMakeRoomInTheList(t *testing.T) {
	c := newClock()
	g := open(t, c.store(), `rules: [{name: a, key: [user], limit: fixed_window 1/1h, ban: {after: 1 refusal within 1h, for: 1s, then: 1d}}]`)
	for range 2 {
		provoke(t, g, "ann")
		c.advance(time.Second)
	}
	var v gate.Verdict
	for i := range 1100 {
		for range 2 {
			if err := g.Decide(t.Context(), &rules.Request{User: fmt.Sprint(i)}, gate.Once, &v); err != nil {
				t.Fatal(err)
			}
		}
		c.advance(time.Second)
	}
	if bans, err := g.Bans(t.Context()); err != nil || len(bans) != 1 || bans[0].Key != "user=3:ann" {
		t.Errorf("%v, %v", bans, err)
	}
}

// TestLocalStoreBansDuringAnOutage, and the shared store does not learn of it.
func TestLocalStoreBansDuringAnOutage(t *testing.T) {
	c := newClock()
	store := &failing{c.store(), weir.ErrUnavailable}
	g := open(t, store, guarded, gate.WithLocal(c.store()))
	if got := provoke(t, g, "ann"); got != "10m0s" {
		t.Errorf("banned for %s", got)
	}
	if got := reasonFor(t, g, "ann"); got != "banned login 10m0s" {
		t.Error(got)
	}
	if bans, err := g.Bans(t.Context()); err != nil || len(bans) != 1 || !bans[0].Local {
		t.Errorf("%v, %v", bans, err)
	}
	store.err = nil
	if got := reasonFor(t, g, "ann"); got != "within_limits" {
		t.Errorf("when the store answers: %s", got)
	}
}

// faltering fails its nth call from now on.
type faltering struct {
	weir.Store
	n int
}

func (s *faltering) falters() error {
	if s.n--; s.n == 0 {
		return weir.ErrUnavailable
	}
	return nil
}

func (s *faltering) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	if err := s.falters(); err != nil {
		return 0, err
	}
	return s.Store.Decide(ctx, claims, times, d)
}

func (s *faltering) Charge(ctx context.Context, claims []weir.Claim, d []weir.Decision) error {
	if err := s.falters(); err != nil {
		return err
	}
	return s.Store.Charge(ctx, claims, d)
}

func (s *faltering) Reset(ctx context.Context, claims []weir.Claim) error {
	if err := s.falters(); err != nil {
		return err
	}
	return s.Store.Reset(ctx, claims)
}

// TestFailedBanIsRepeated: each call of a ban fails once, after the decision itself. The refusal
// stands, a later one bans, and no level is skipped.
func TestFailedBanIsRepeated(t *testing.T) {
	for call := 2; call <= 5; call++ {
		c := newClock()
		store := &faltering{Store: c.store()}
		g := open(t, store, guarded)
		for range 4 {
			reasonFor(t, g, "ann")
		}
		store.n = call
		if got := reasonFor(t, g, "ann"); !strings.HasPrefix(got, "limit_exceeded login 1m0s") || strings.Contains(got, "bans") != (call == 5) {
			t.Errorf("call %d fails: %s", call, got)
		}
		c.advance(10 * time.Second) // of somebody who has its turn and dies
		if got := provoke(t, g, "ann"); call < 5 && got != "10m0s" {
			t.Errorf("call %d failed; banned for %s", call, got)
		}
		c.advance(10 * time.Minute)
		if got := provoke(t, g, "ann"); got != "1h0m0s" {
			t.Errorf("call %d failed; the second ban is %s", call, got)
		}
	}
}

// hangingUp is a store whose callers leave as soon as they are refused.
type hangingUp struct {
	weir.Store
	leave context.CancelFunc
}

func (s *hangingUp) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	defer s.leave()
	return s.Store.Decide(ctx, claims, times, d)
}

// TestDisconnectedClientsAreCountedTowardsBans: otherwise a client could avoid its ban by hanging up.
func TestDisconnectedClientsAreCountedTowardsBans(t *testing.T) {
	store := &hangingUp{Store: newClock().store()}
	g := open(t, store, guarded)
	var v gate.Verdict
	for range 6 {
		ctx, cancel := context.WithCancel(t.Context())
		store.leave = cancel
		if err := g.Decide(ctx, &rules.Request{User: "ann"}, gate.Once, &v); err != nil {
			t.Fatal(err)
		}
	}
	if v.Reason != gate.Banned {
		t.Errorf("it is %v", v.Reason)
	}
}

// TestABanIsNoPartOfWhatWasCharged: a look shows it only to who is banned, and settling and
// giving back leave it alone.
func TestABanIsNoPartOfWhatWasCharged(t *testing.T) {
	g := open(t, newClock().store(), guarded)
	var v gate.Verdict
	if err := g.Decide(t.Context(), &rules.Request{User: "ann"}, gate.Once, &v); err != nil || len(v.Receipt()) != 2 {
		t.Fatalf("charged were %d claims, %v", len(v.Receipt()), err)
	}
	if c := v.At(2); !c.Ban || !c.Aside || c.Rule.Name() != "login" {
		t.Errorf("the check is %+v", c)
	}
	if worst, _ := v.Worst(); worst.Ban {
		t.Error("a ban of nobody is the worst")
	}
	if err := g.Settle(t.Context(), v.Receipt(), 5); err != nil {
		t.Fatal(err)
	}
	if got := reasonFor(t, g, "ann"); got != "limit_exceeded login 1m0s" {
		t.Error(got)
	}
	provoke(t, g, "ann")
	if err := g.Decide(t.Context(), &rules.Request{User: "ann"}, gate.Once, &v); err != nil {
		t.Fatal(err)
	}
	if c := v.At(2); !c.Ban || c.Aside || v.Delay != 0 {
		t.Errorf("the check of who is banned is %+v", c)
	}
}

func TestARuleWithABanAllocatesNothing(t *testing.T) {
	c := newClock()
	g := open(t, c.store(), `rules: [{name: ip, key: [client.ip], limit: fixed_window 3/1m, ban: {after: 1 refusal within 1m, for: 1h}}]`, gate.WithObserver(func(*gate.Verdict) {}))
	var v gate.Verdict
	request := from("192.0.2.1")
	for _, want := range []gate.Reason{gate.WithinLimits, gate.Banned} {
		if n := testing.AllocsPerRun(1000, func() {
			if want == gate.WithinLimits {
				c.advance(time.Minute)
			}
			if err := g.Decide(t.Context(), request, gate.Once, &v); err != nil || v.Reason != want {
				t.Fatal(v.Reason, err)
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations", want, n)
		}
		for range 4 {
			g.Decide(t.Context(), request, gate.Once, &v)
		}
	}
}

// TestBansAreListedByAllNodes: a node that starts later lists them too; lifted and ended bans leave
// the list.
func TestBansAreListedByAllNodes(t *testing.T) {
	c := newClock()
	server := redistest.Start(t)
	nodes := make([]*gate.Gate, 2)
	for i := range nodes {
		store, err := redisstore.Open(t.Context(), server.URL(), redisstore.WithTimeout(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		if nodes[i], err = gate.New(store, compiled(t, guarded), gate.WithLocal(c.store()), gate.WithRegister(store)); err != nil {
			t.Fatal(err)
		}
	}
	listed := func(g *gate.Gate) (text string) {
		bans, err := g.Bans(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range bans {
			text += fmt.Sprint(b.Rule.Name(), " ", b.Key, " ", b.Length, " ", b.Until > b.From, "; ")
		}
		return text
	}
	provoke(t, nodes[0], "ann")
	provoke(t, nodes[1], "bob")
	const both = "login user=3:ann 10m0s true; login user=3:bob 10m0s true; "
	for i, g := range nodes {
		if got := listed(g); got != both {
			t.Errorf("node %d lists %q", i, got)
		}
	}
	if err := nodes[1].Lift(t.Context(), nodes[1].Rules().Rules()[1], "user=3:ann"); err != nil {
		t.Fatal(err)
	}
	for i, g := range nodes {
		if got := listed(g); got != "login user=3:bob 10m0s true; " {
			t.Errorf("node %d lists %q", i, got)
		}
	}
	if ttl := server.Do("PTTL", "weir:register:{bans}").(int64); ttl < 1 || ttl > 10*60*1000 {
		t.Errorf("the register ends in %d ms", ttl)
	}
}

func TestLiftEndsBansOfTheLocalStore(t *testing.T) {
	g := open(t, &failing{newClock().store(), weir.ErrUnavailable}, guarded, gate.WithLocal(newClock().store()))
	if got := provoke(t, g, "ann"); got != "10m0s" {
		t.Fatalf("banned for %s", got)
	}
	if err := g.Lift(t.Context(), g.Rules().Rules()[1], "user=3:ann"); err != nil {
		t.Fatal(err)
	}
	if got := reasonFor(t, g, "ann"); got != "limit_exceeded login 1m0s" {
		t.Errorf("lifted: %s", got)
	}
}

func TestLiftNeedsNoLocalStore(t *testing.T) {
	text := "rules: [{name: login, key: [user], limit: fixed_window 2/1m, on_store_error: allow, " +
		"ban: {after: 3 refusals within 1m, for: 10m}}]"
	g, err := gate.New(newClock().store(), compiled(t, text))
	if err != nil {
		t.Fatal(err)
	}
	provoke(t, g, "ann")
	if err := g.Lift(t.Context(), g.Rules().Rules()[0], "user=3:ann"); err != nil {
		t.Fatal(err)
	}
	if got := reasonFor(t, g, "ann"); got != "limit_exceeded login 1m0s" {
		t.Errorf("lifted: %s", got)
	}
}
