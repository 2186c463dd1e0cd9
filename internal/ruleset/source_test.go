package ruleset_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

// A script is a source whose updates a test sets.
type script struct {
	changed chan struct{}

	mu  sync.Mutex
	now *ruleset.Update // nil: Load waits
}

func newScript() *script { return &script{changed: make(chan struct{}, 1)} }

// set sets the update that Load returns from now on.
func (s *script) set(n ruleset.Update) {
	s.mu.Lock()
	s.now = &n
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *script) Load(ctx context.Context, _ bool) ruleset.Update {
	for {
		s.mu.Lock()
		now := s.now
		s.mu.Unlock()
		if now != nil || ctx.Err() != nil {
			return *cmp.Or(now, &ruleset.Update{})
		}
		s.Wait(ctx)
	}
}

func (s *script) Wait(ctx context.Context) {
	select {
	case <-s.changed:
	case <-ctx.Done():
	}
}

func (s *script) Close() {}

// updateOf returns a valid update with rules, written "name limit; name limit".
func updateOf(text string) ruleset.Update {
	file := &rules.File{Name: "test"}
	for rule := range strings.SplitSeq(text, ";") {
		if name, limit, ok := strings.Cut(strings.TrimSpace(rule), " "); ok {
			file.Rules = append(file.Rules, rules.Spec{Name: name, Limit: []string{limit}})
		}
	}
	return ruleset.Update{File: file, Revision: text}
}

// A harness is a Manager with scripts for sources, and records what it does. It runs in a synctest bubble, so that
// quiet is exact.
type harness struct {
	t       *testing.T
	manager *ruleset.Manager
	scripts []*script
	end     func()
	slow    time.Duration // how long compiling takes
	refuse  error         // the error of swap

	mu       sync.Mutex
	force    string
	compiled int
	swapped  int
	events   []string
}

func newHarness(t *testing.T, layers int, change func(*ruleset.Layer), opts ...ruleset.Option) *harness {
	h := &harness{t: t}
	var list []ruleset.Layer
	for i := range layers {
		h.scripts = append(h.scripts, newScript())
		y := ruleset.Layer{Name: string(rune('a' + i)), Source: h.scripts[i]}
		if change != nil {
			change(&y)
		}
		list = append(list, y)
	}
	opts = append([]ruleset.Option{ruleset.WithEvents(h.report), ruleset.WithCompile(h.compile)}, opts...)
	manager, err := ruleset.NewManager(list, h.swap, opts...)
	if err != nil {
		t.Fatal(err)
	}
	h.manager = manager
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- manager.Run(ctx) }()
	h.end = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	return h
}

func (h *harness) report(e ruleset.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e.String())
}

func (h *harness) compile(f *rules.File) (*rules.Set, error) {
	time.Sleep(h.slow)
	h.mu.Lock()
	h.compiled++
	h.mu.Unlock()
	return rules.Compile(f)
}

func (h *harness) swap(set *rules.Set) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refuse != nil {
		return h.refuse
	}
	h.swapped++
	h.force = ""
	for _, r := range set.Rules() {
		h.force += r.Name() + " " + r.Limits()[0].String() + "; "
	}
	return nil
}

// send makes a source return an update, and waits until the Manager has received it.
func (h *harness) send(i int, n ruleset.Update) {
	h.scripts[i].set(n)
	synctest.Wait()
}

// reload makes a source return an update, and sends the answer of a Reload.
func (h *harness) reload(i int, n ruleset.Update, answers chan<- error) {
	h.send(i, n)
	go func() { answers <- h.manager.Reload(context.Background()) }()
	synctest.Wait()
}

// quiet waits until all updates are applied, batches included.
func (h *harness) quiet() {
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
}

// expect compares the rules in force.
func (h *harness) expect(want string) {
	h.t.Helper()
	h.quiet()
	h.mu.Lock()
	defer h.mu.Unlock()
	if got := strings.TrimSuffix(h.force, "; "); got != want {
		h.t.Errorf("%q is in force, want %q", got, want)
	}
}

// reported compares the events since the last call; … stands for any end.
func (h *harness) reported(want ...string) {
	h.t.Helper()
	h.quiet()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.EqualFunc(h.events, want, func(got, want string) bool {
		begin, more := strings.CutSuffix(want, "…")
		return got == want || more && strings.HasPrefix(got, begin)
	}) {
		h.t.Errorf("the events are\n%s\nwant\n%s", strings.Join(h.events, "\n"), strings.Join(want, "\n"))
	}
	h.events = nil
}

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func TestTheFirstRuleSetWaitsForAllLayers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, 2, nil)
		defer h.end()
		h.send(0, updateOf("x 1/1s"))
		h.expect("")
		h.send(1, updateOf("y 2/1s"))
		h.expect("x 1/1s; y 2/1s")
		if err := h.manager.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		h.reported("in force: 2 rules (2 added)", "ready")
	})
}

func TestALayerThatFailsDoesNotHoldUpTheStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, 2, nil)
		defer h.end()
		h.send(0, updateOf("x 1/1s"))
		h.send(1, ruleset.Update{Err: errors.New("no route")})
		h.expect("x 1/1s")
		if err := h.manager.Wait(t.Context()); err == nil || err.Error() != "b: no route" {
			t.Errorf("Wait returns %v", err)
		}
		h.reported("b: down, 0 rules stay in force: no route", "a: in force: 1 rules (1 added)", "ready: b: no route")
		h.send(1, updateOf("y 2/1s"))
		h.expect("x 1/1s; y 2/1s")
		h.reported("b: in force: 2 rules (1 added)", "b: recovered")
	})
}

func TestSilenceEndsTheWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, 2, nil, ruleset.WithStartWithin(3*time.Second))
		defer h.end()
		h.send(0, updateOf("x 1/1s"))
		time.Sleep(2900 * time.Millisecond)
		h.mu.Lock()
		if h.swapped != 0 {
			t.Error("it did not wait")
		}
		h.mu.Unlock()
		if err := h.manager.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "b: it has not said anything yet") {
			t.Errorf("Wait returns %v", err)
		}
		h.expect("x 1/1s")
		h.send(1, updateOf("y 1/1s"))
		h.expect("x 1/1s; y 1/1s")
		if err := h.manager.Status().Err(); err != nil {
			t.Error(err)
		}
	})
}

func TestStartWithoutAnyValidSource(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, 1, nil)
		defer h.end()
		h.send(0, ruleset.Update{Err: errors.New("line 1"), Revision: "1"})
		if err := h.manager.Wait(t.Context()); err == nil {
			t.Error("Wait is content")
		}
		if set := h.manager.Status().RuleSet; set != nil {
			t.Errorf("rules are in force: %v", set)
		}
		h.reported("a: refused, 0 rules stay in force: line 1", "ready: a: line 1")
	})
}

func TestBadUpdatesChangeNothing(t *testing.T) {
	mistake := updateOf("x 1/1s")
	mistake.File.Rules[0].Limit = []string{"1/60"}
	mistake.Revision = "mistake"
	tests := []struct {
		name    string
		updates ruleset.Update
		report  string
	}{
		{"it cannot be read", ruleset.Update{Err: errors.New("gone")}, "a: down, 1 rules stay in force: gone"},
		{"it has mistakes", ruleset.Update{Err: errors.New("line 3"), Revision: "r"}, "a: refused, 1 rules stay in force: line 3"},
		{"it is empty", updateOf(""), "a: refused, 1 rules stay in force: it has no rules any more: its 1 rules stay in force; remove them one by one, or allow this source to be empty"},
		{"an empty update", ruleset.Update{Revision: "r"}, "a: refused, 1 rules stay in force: the source sent neither rules nor an error, which is a bug in it"},
		{"it does not compile", mistake, `a: refused, 1 rules stay in force: test: rules[0].limit[0]: limit is "1/60"; allowed: a period with its unit, such as 1s, 500ms, 1m30s, 1h, 1d or 1w; "60" is not one`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h := newHarness(t, 1, nil)
				defer h.end()
				h.send(0, updateOf("x 1/1s"))
				h.quiet()
				loaded := h.manager.Status().RuleSet.Loaded
				h.events = nil
				for range 3 { // reported once, however often it is sent
					h.send(0, test.updates)
					if err := h.manager.Reload(t.Context()); err == nil {
						t.Error("Reload returned no error")
					}
					h.expect("x 1/1s")
				}
				h.reported(test.report)
				status := h.manager.Status()
				if y := status.Layers[0]; y.Err == nil || y.Since.IsZero() || y.Rules != 1 || y.Loaded.After(y.Since) || status.RuleSet.Loaded != loaded {
					t.Errorf("the status is %+v", y)
				}
				h.send(0, updateOf("x 1/1s")) // what was good before is good again, and no change
				h.expect("x 1/1s")
				h.reported("a: recovered")
				if h.swapped != 1 || h.manager.Status().Err() != nil {
					t.Errorf("%d swaps; status %v", h.swapped, h.manager.Status().Err())
				}
			})
		})
	}
}

func TestASourceMayBeAllowedToBeEmpty(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, 1, func(y *ruleset.Layer) { y.AllowEmpty = true })
		defer h.end()
		h.send(0, updateOf("x 1/1s"))
		h.expect("x 1/1s")
		h.send(0, updateOf(""))
		h.expect("")
		h.reported("a: in force: 1 rules (1 added)", "ready", "a: in force: 0 rules (1 removed)")
	})
}

func TestASourceMayBeginEmpty(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, 1, nil)
		defer h.end()
		h.send(0, updateOf(""))
		if err := h.manager.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		h.reported("a: in force: 0 rules (no rule changed)", "ready")
	})
}

func TestBurstOfUpdatesIsOneRuleSet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, 1, nil)
		defer h.end()
		h.send(0, updateOf("x 1/1s"))
		h.expect("x 1/1s")
		for i := range 1000 {
			h.send(0, updateOf(fmt.Sprintf("x %d/1s", i+2)))
		}
		h.expect("x 1001/1s")
		if h.compiled != 2 {
			t.Errorf("compiled %d times", h.compiled)
		}
	})
}

func TestEndlessUpdatesAreAppliedMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, 1, nil)
		defer h.end()
		h.send(0, updateOf("x 1/1s"))
		h.expect("x 1/1s")
		began := time.Now()
		for i := 2; h.swapped < 2; i++ {
			h.send(0, updateOf(fmt.Sprintf("x %d/1s", i)))
			time.Sleep(time.Millisecond)
			synctest.Wait()
			if i > 100 {
				t.Fatal("nothing is in force while news go on")
			}
		}
		if took := time.Since(began); took < 50*time.Millisecond || took > 52*time.Millisecond {
			t.Errorf("it took %v of the bubble's time", took)
		}
	})
}

func TestUpdatesDuringASlowAttemptAreNotLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, 1, nil)
		defer h.end()
		h.slow = time.Second
		h.send(0, updateOf("x 1/1s"))
		time.Sleep(1500 * time.Millisecond)
		for i := range 100 { // each is heard at once, though a trial takes a second
			began := time.Now()
			h.send(0, updateOf(fmt.Sprintf("x %d/1s", i+2)))
			if time.Since(began) != 0 {
				t.Fatal("news had to wait")
			}
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		h.expect("x 101/1s")
		if h.compiled > 5 {
			t.Errorf("compiled %d times", h.compiled)
		}
	})
}

// TestStatusIsOfTheNewestRevision: what a source sends while an earlier revision compiles stays
// reported when that one is in force.
func TestStatusIsOfTheNewestRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, 1, nil)
		defer h.end()
		h.send(0, updateOf("a 5/1m"))
		h.expect("a 5/1m")
		h.slow = time.Second
		h.send(0, updateOf("a 6/1m"))
		h.quiet()
		h.send(0, ruleset.Update{Err: errors.New("line 3: mistake"), Revision: "bad"})
		time.Sleep(2 * time.Second)
		h.expect("a 6/1m")
		status := h.manager.Status()
		if y := status.Layers[0]; y.Revision != "a 6/1m" || y.Err == nil || y.Since.IsZero() {
			t.Errorf("revision %q, error %v since %v", y.Revision, y.Err, y.Since)
		}
		h.reported("a: in force…", "ready…", "a: refused…", "a: in force…")

		h.send(0, updateOf("a 7/1m"))
		h.quiet()
		h.send(0, ruleset.Update{Err: errors.New("the connection is gone")}) // down, while it compiles
		time.Sleep(2 * time.Second)
		h.expect("a 7/1m")
		if y := h.manager.Status().Layers[0]; !y.Down || y.Err == nil {
			t.Errorf("it is down, and the status is %+v", y)
		}
		h.send(0, updateOf("a 7/1m"))
		h.quiet()
		if err := h.manager.Status().Err(); err != nil {
			t.Errorf("it has recovered, and the status is %v", err)
		}
	})
}

// TestExceptionsNeedNoCompile: another exception is in force at once, whatever compiling all
// rules would take, and goes with the rules when they change.
func TestExceptionsNeedNoCompile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, 2, func(y *ruleset.Layer) { y.AllowEmpty = true })
		defer h.end()
		blocked := func(address string) ruleset.Update {
			e := rules.Exception{ID: address, Kind: rules.Blocked, Values: []string{address}}
			return ruleset.Update{File: &rules.File{Name: "ledger", Exceptions: []rules.Exception{e}}, Revision: address}
		}
		listed := func(address string) rules.Listing {
			return h.manager.Status().RuleSet.Set.Listed(&rules.Request{Client: netip.MustParseAddr(address)})
		}
		h.send(0, updateOf("a 5/1m"))
		h.send(1, ruleset.Update{File: &rules.File{Name: "ledger"}, Revision: "0"})
		h.expect("a 5/1m")
		compiled, swapped := h.compiled, h.swapped
		h.slow = time.Hour
		for _, address := range []string{"192.0.2.1", "192.0.2.2"} {
			h.send(1, blocked(address))
			h.quiet()
			if listed(address) != rules.Denied {
				t.Errorf("%s is not denied", address)
			}
			if y := h.manager.Status().Layers[1]; y.Revision != address || y.Err != nil {
				t.Errorf("the ledger is at %q, %v", y.Revision, y.Err)
			}
		}
		if listed("192.0.2.1") != rules.Unlisted {
			t.Error("the exception before is still in force")
		}
		if h.compiled != compiled || h.swapped != swapped {
			t.Errorf("%d compiles and %d swaps for exceptions", h.compiled-compiled, h.swapped-swapped)
		}
		h.slow = 0
		h.send(0, updateOf("a 6/1m"))
		h.expect("a 6/1m")
		if listed("192.0.2.2") != rules.Denied {
			t.Error("the exception was lost with other rules")
		}
	})
}

func TestLaterLayersReplaceEarlierOnes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, 3, nil)
		defer h.end()
		h.send(0, updateOf("x 1/1s; y 1/1s"))
		h.send(1, updateOf("z 2/1s; x 2/1s"))
		h.send(2, updateOf("x 3/1s"))
		h.expect("x 3/1s; y 1/1s; z 2/1s")
		set := h.manager.Status().RuleSet
		if !slices.Equal(set.From, []string{"c", "a", "b"}) {
			t.Errorf("the rules are from %v", set.From)
		}
		h.reported("in force: 3 rules (3 added)", `collided: rule "x" of b replaces that of a, and 1 more`, "ready")
		h.send(2, updateOf("w 3/1s"))
		h.expect("x 2/1s; y 1/1s; z 2/1s; w 3/1s")
		h.reported("c: in force: 4 rules (1 changed, 1 added)", `collided: rule "x" of b replaces that of a`)
		h.send(1, updateOf("z 2/1s"))
		h.reported("b: in force: 4 rules (1 changed)", "collided: no more")
	})
}

// Two limits of x are called x and x.2: with a rule x.2 of another layer they cannot stand.
func TestLayersThatCannotStandTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, 4, nil)
		defer h.end()
		h.send(0, updateOf("x 1/1s"))
		h.send(1, updateOf("x.2 1/1s"))
		h.send(2, updateOf("z 1/1s"))
		h.send(3, updateOf("w 1/1s"))
		h.expect("x 1/1s; x.2 1/1s; z 1/1s; w 1/1s")
		h.events = nil
		two := updateOf("x 5/1s")
		two.File.Rules[0].Limit = []string{"5/1s", "9/1m"}
		h.send(0, two)
		h.send(2, updateOf("z 2/1s"))
		h.send(3, updateOf("w 2/1s"))
		h.expect("x 1/1s; x.2 1/1s; z 2/1s; w 2/1s")
		h.reported("c: in force: 4 rules (1 changed)", "d: in force: 4 rules (1 changed)",
			`a: refused, 4 rules stay in force: a + b + c + d: rule "x.2" of b…`)
		h.send(1, updateOf("y 1/1s")) // what was in its way is gone: no need to say it again
		h.expect("x 5/1s; y 1/1s; z 2/1s; w 2/1s")
		h.reported("in force: 4 rules (1 changed, 1 renamed, counts start anew: y)", "a: recovered")
	})
}

func TestASwapThatRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, 1, nil)
		defer h.end()
		h.send(0, updateOf("x 1/1s"))
		h.quiet()
		h.mu.Lock()
		h.refuse, h.events = errors.New("no local store"), nil
		h.mu.Unlock()
		h.send(0, updateOf("x 2/1s"))
		h.expect("x 1/1s")
		h.reported("a: refused, 1 rules stay in force: no local store")
		if set := h.manager.Status().RuleSet; set.File.Rules[0].Limit[0] != "1/1s" {
			t.Error("the status has rules that are not in force")
		}
	})
}

func TestWarningsArePassedOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, 1, nil)
		defer h.end()
		n := updateOf("x 1/1s")
		n.Warning = errors.New("polled only")
		h.send(0, n)
		h.reported("a: warned: polled only", "a: in force: 1 rules (1 added)", "ready")
	})
}

// TestEachReloadIsAnswered, whatever its result.
func TestEachReloadIsAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHarness(t, 2, nil)
		answers := make(chan error, 3)
		h.send(0, updateOf("x 1/1s"))
		h.send(1, updateOf("y 1/1s"))
		h.quiet()
		h.reload(0, updateOf("x 2/1s"), answers)
		h.reload(0, updateOf("x 3/1s"), answers) // replaces it before it is tried
		for range 2 {
			if err := <-answers; err != nil {
				t.Error(err)
			}
		}
		h.expect("x 3/1s; y 1/1s")
		h.slow = time.Second
		h.reload(0, updateOf("x 4/1s"), answers)
		time.Sleep(500 * time.Millisecond) // it compiles
		late := make(chan error, 1)
		h.reload(0, updateOf("x 5/1s"), late)
		h.quiet() // it would be tried next
		h.end()
		if compiling, waiting := <-answers, <-late; compiling != nil || !errors.Is(waiting, context.Canceled) {
			t.Errorf("at the end the answers are %v and %v", compiling, waiting)
		}
		if err := h.manager.Run(t.Context()); err == nil {
			t.Error("it runs twice")
		}
	})
}

// TestReloadsShareAReading: those that wait at the same time are answered by one.
func TestReloadsShareAReading(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &counted{}
		ctx, cancel := context.WithCancel(t.Context())
		f := ruleset.Follow(s, func(_ ruleset.Update, done func(error)) {
			if done != nil {
				done(nil)
			}
		})
		ended := make(chan bool)
		go func() { f.Run(ctx); close(ended) }()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if err := f.Reload(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if s.loads > 3 {
			t.Errorf("%d readings for 100 reloads at once", s.loads)
		}
		if err := f.Reload(t.Context()); err != nil || s.loads > 4 {
			t.Errorf("%d readings, %v", s.loads, err)
		}
		cancel()
		<-ended
		late, cancelLate := context.WithTimeout(t.Context(), time.Second)
		defer cancelLate()
		if err := f.Reload(late); !errors.Is(err, context.DeadlineExceeded) || !s.closed {
			t.Errorf("a reload after the end: %v; closed is %v", err, s.closed)
		}
	})
}

// A counted source takes a second for each reading.
type counted struct {
	loads  int
	closed bool
}

func (s *counted) Load(context.Context, bool) ruleset.Update {
	s.loads++
	time.Sleep(time.Second)
	return updateOf("x 1/1s")
}

func (s *counted) Wait(ctx context.Context) { <-ctx.Done() }
func (s *counted) Close()                   { s.closed = true }

func TestAManagerNeedsLayersWithNames(t *testing.T) {
	swap := func(*rules.Set) error { return nil }
	s := newScript()
	for name, layers := range map[string][]ruleset.Layer{
		"none":      nil,
		"no name":   {{Source: s}},
		"no source": {{Name: "a"}},
		"twice":     {{Name: "a", Source: s}, {Name: "a", Source: s}},
	} {
		if _, err := ruleset.NewManager(layers, swap); err == nil {
			t.Errorf("%s: it is made", name)
		}
	}
	if _, err := ruleset.NewManager([]ruleset.Layer{{Name: "a", Source: s}}, nil); err == nil {
		t.Error("it is made without a swap")
	}
}

// described returns a valid update with rules of a domain, written "descriptor limit; …", and an overlay.
func described(text string, overlay ...rules.OverlaySpec) ruleset.Update {
	n := updateOf(text)
	for i := range n.File.Rules {
		n.File.Rules[i].Match = rules.Match{Service: []string{"edge"}, DescriptorKeys: []string{n.File.Rules[i].Name}}
	}
	n.File.Overlay = overlay
	n.Revision += fmt.Sprint(overlay)
	return n
}

// TestOverlayOfOneLayerAppliesToTheOthers: whichever changes; not to rules of operators; a bad one changes nothing.
func TestOverlayOfOneLayerAppliesToTheOthers(t *testing.T) {
	log := rules.OverlaySpec{Domain: "edge", Descriptor: []string{"x"}, Set: rules.Spec{Algorithm: "sliding_log"}}
	bubble(t, func(t *testing.T) {
		h := newHarness(t, 3, func(y *ruleset.Layer) { y.AllowEmpty, y.Kept = true, y.Name == "c" })
		defer h.end()
		h.send(0, described("", log))
		h.send(1, described(""))
		h.send(2, described(""))
		h.expect("")
		h.reported("in force: 0 rules (no rule changed)", "ready") // rules may come later
		h.send(1, described("x 1/1s; y 1/1s"))
		h.expect("x sliding_log 1/1s; y 1/1s")
		h.reported("b: in force: 2 rules (2 added)")
		h.send(1, described("y 1/1s"))
		h.expect("y 1/1s")
		h.reported("b: in force: 1 rules (1 removed)", "warned: overlay of domain edge, descriptor x: no rule has this domain and descriptor")
		if got := h.manager.Status().RuleSet.Unmet; len(got) != 1 {
			t.Errorf("without an effect: %v", got)
		}
		h.send(1, described("y 2/1s")) // it is said once
		h.expect("y 2/1s")
		h.reported("b: in force: 1 rules (1 changed)")
		h.send(1, described("x 1/1s; y 2/1s"))
		h.expect("x sliding_log 1/1s; y 2/1s")
		h.reported("b: in force: 2 rules (1 added)", "warned")
		h.send(0, ruleset.Update{Err: errors.New("line 1"), Revision: "bad"})
		h.expect("x sliding_log 1/1s; y 2/1s")
		h.reported("a: refused, 2 rules stay in force: …")
		h.send(0, described(""))
		h.expect("x 1/1s; y 2/1s")
		h.reported("a: in force: 2 rules (1 changed, counts start anew: x)", "a: recovered")
		h.send(0, described("", log))
		h.send(2, described("x fixed_window 7/1s"))
		h.expect("x fixed_window 7/1s; y 2/1s")
	})
}
