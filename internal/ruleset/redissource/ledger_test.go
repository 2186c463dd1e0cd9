//go:build unix

package redissource_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/internal/ruleset/redissource"
	"github.com/weirproject/weir/internal/ruleset/rulesettest"
	"github.com/weirproject/weir/rules"
)

func openLedger(t testing.TB, url string, opts ...redissource.Option) *redissource.Ledger {
	t.Helper()
	l, err := redissource.OpenLedger(url, append([]redissource.Option{never}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

var ann = ledger.Author{Who: "ann", Why: "brute force"}

func yaml(name, limit string) string {
	return fmt.Sprintf("# of %s\nname: %s\nmatch: {path: /login}\nkey: [client.ip]\nlimit: %s\n", name, name, limit)
}

func TestTheLedger(t *testing.T) {
	l, ctx := openLedger(t, redistest.Start(t).URL()), t.Context()
	rulesettest.Done(t, 1)(l.Set(ctx, "login", yaml("login", "5/1m"), 0, ann))
	rulesettest.Done(t, 2)(l.Set(ctx, "other", yaml("other", "9/1m"), 0, ann))
	rulesettest.Conflict(t, 1)(l.Set(ctx, "login", yaml("login", "6/1m"), 0, ann)) // it is not new
	rulesettest.Conflict(t, 1)(l.Set(ctx, "login", yaml("login", "6/1m"), 2, ann))
	rulesettest.Conflict(t, 0)(l.Set(ctx, "nobody", yaml("nobody", "6/1m"), 2, ann))
	rulesettest.Done(t, 3)(l.Set(ctx, "login", yaml("login", "6/1m"), 1, ledger.Author{Who: "bob"}))
	rulesettest.Conflict(t, 3)(l.Disable(ctx, "login", 1, ann))
	rulesettest.Done(t, 4)(l.Disable(ctx, "login", 3, ann))
	rulesettest.Done(t, 5)(l.Set(ctx, "login", yaml("login", "7/1m"), 4, ann)) // it stays disabled
	if d, err := l.Get(ctx, "login"); err != nil || d.Enabled || d.YAML != yaml("login", "7/1m") || d.Revision != 5 || d.Author != ann || d.When.Year() < 2020 {
		t.Errorf("%+v %v", d, err)
	}
	rulesettest.Done(t, 6)(l.Enable(ctx, "login", 5, ann))
	rulesettest.Done(t, 7)(l.Rollback(ctx, "login", 1, 6, ann))
	rulesettest.Conflict(t, 7)(l.Delete(ctx, "login", 6, ann))
	rulesettest.Done(t, 8)(l.Delete(ctx, "login", 7, ann))
	if _, err := l.Get(ctx, "login"); !errors.Is(err, ledger.ErrNoRule) {
		t.Error(err)
	}
	rulesettest.Conflict(t, 0)(l.Delete(ctx, "login", 7, ann))
	rulesettest.Done(t, 9)(l.Rollback(ctx, "login", 3, 0, ann)) // back from the dead
	rulesettest.Conflict(t, 9)(l.Rollback(ctx, "login", 8, 0, ann))
	rulesettest.Done(t, 10)(l.Rollback(ctx, "login", 8, 9, ann)) // and as dead as it was
	list, revision, err := l.List(ctx)
	if err != nil || revision != 10 || len(list) != 1 || list[0].Name != "other" || !list[0].Enabled {
		t.Errorf("%+v at %d, %v", list, revision, err)
	}
	if _, err := l.Rollback(ctx, "login", 2, 0, ann); !errors.Is(err, ledger.ErrNoRule) { // that was of the other
		t.Error(err)
	}
	history(t, l)
}

// history looks at what TestTheLedger did.
func history(t *testing.T, l *redissource.Ledger) {
	all, err := l.History(t.Context(), "login", 100)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, c := range all {
		var diff []string
		for _, d := range c.Diff {
			diff = append(diff, d.String())
		}
		lines = append(lines, fmt.Sprintf("%d %s by %s: %s", c.Revision, c.What, c.Author.Who, strings.Join(diff, ", ")))
	}
	want := `10 rollback to 8 by ann: login: removed
9 rollback to 3 by ann: login: added
8 delete by ann: login: removed
7 rollback to 1 by ann: login: limit 7/1m -> 5/1m; counts are kept
6 enable by ann: 
5 set by ann: login: limit 6/1m -> 7/1m; counts are kept
4 disable by ann: 
3 set by bob: login: limit 5/1m -> 6/1m; counts are kept
1 set by ann: login: added`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	two, err := l.History(t.Context(), "", 2)
	if err != nil || len(two) != 2 || two[1].Revision != 9 || two[1].Diff == nil {
		t.Errorf("%+v %v", two, err)
	}
}

func TestTheLedgerAcceptsValidRules(t *testing.T) {
	server := redistest.Start(t)
	l, ctx := openLedger(t, server.URL(), redissource.WithMaxRules(2)), t.Context()
	rulesettest.Done(t, 1)(l.Set(ctx, "a", "{name: a, limit: [5/1m, 20/1h]}", 0, ann))
	for _, test := range []struct{ name, yaml, want string }{
		{"b", "name: b\nlimt: 5/1m", "b:2:1: unknown field \"limt\"; did you mean \"limit\"?"},
		{"b", "name: b\nlimit: 5/60", "b:2:8: limit is \"5/60\"; allowed: a period with its unit, such as 1s, 500ms, 1m30s, 1h, 1d or 1w; \"60\" is not one\n    limit: 5/60\n           ^"},
		{"b", "name: c\nlimit: 5/1m", `name is "c"; allowed: the name under which it is kept, b`},
		{"b", "name: b\nlimit: 5/1m\n---\nname: c", "b:"},
		{"b", "name: b\r- {name: c, limit: 5/1m}", "b:"},
		{"b", "{name: b, limit: 5/1m}\r- {name: c, limit: 5/1m}", `what the YAML says is "more than a rule"; allowed: the fields of one rule`},
		{"b", "{name: b, limit: 5/1m}\rdeny: {user: x}", `what the YAML says is "more than a rule"; allowed: the fields of one rule`},
		{"b", "", "b:"},
		{"b", strings.Repeat("#", ledger.MaxDocument+1), "bytes of YAML is 65537; allowed: at most 65536"},
		{"a.2", "{name: a.2, limit: 5/1m}", `name "a.2" is taken by a limit of rules[0]`},
		{"a b", "{name: a b, limit: 5/1m}", `name is "a b"; allowed: 1 to 128 of a-z A-Z 0-9 and . _ -`},
	} {
		if _, err := l.Set(ctx, test.name, test.yaml, 0, ann); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.80s: got\n%v\nwant %s", test.yaml, err, test.want)
		}
	}
	for want, by := range map[string]ledger.Author{"who is \"\"": {}, "who is \"xxx": {Who: strings.Repeat("x", 257)}, "bytes of why is 1025": {Who: "x", Why: strings.Repeat("x", 1025)}} {
		var input *weir.InputError
		if _, err := l.Set(ctx, "b", yaml("b", "1/1s"), 0, by); !errors.As(err, &input) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	rulesettest.Done(t, 2)(l.Set(ctx, "b", yaml("b", "1/1s"), 0, ann))
	if _, err := l.Set(ctx, "c", yaml("c", "1/1s"), 0, ann); err == nil || !strings.Contains(err.Error(), "rules is 3; allowed: at most 2") {
		t.Error(err)
	}
	small := openLedger(t, server.URL(), redissource.WithMaxRules(1))
	if _, _, err := small.List(ctx); err == nil || !strings.Contains(err.Error(), "over 1 rules, or over 64 MiB: it has 2") {
		t.Error(err)
	}
	if _, err := redissource.OpenLedger(server.URL(), redissource.WithPrefix("{x}")); err == nil || !strings.Contains(err.Error(), "without { and }") {
		t.Error(err)
	}
	if _, err := l.History(ctx, "", 0); err == nil {
		t.Error("no error")
	}
}

// TestUnreadChangesAreNotOverwritten: several operators raise a limit by one, as often as they can.
func TestUnreadChangesAreNotOverwritten(t *testing.T) {
	url, ctx := redistest.Start(t).URL(), t.Context()
	first := openLedger(t, url)
	rulesettest.Done(t, 1)(first.Set(ctx, "a", "{name: a, limit: 1/1m}", 0, ann))
	var made, refused atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		l := openLedger(t, url)
		all.Go(func() {
			for range 25 {
				d, err := l.Get(ctx, "a")
				var n int64
				if _, scan := fmt.Sscanf(d.YAML, "{name: a, limit: %d/1m}", &n); err != nil || scan != nil {
					t.Error(err, scan)
				}
				_, err = l.Set(ctx, "a", fmt.Sprintf("{name: a, limit: %d/1m}", n+1), d.Revision, ann)
				var c *ledger.ConflictError
				switch {
				case errors.As(err, &c):
					refused.Add(1)
				case err != nil:
					t.Error(err)
				default:
					made.Add(1)
				}
			}
		})
	}
	all.Wait()
	d, err := first.Get(ctx, "a")
	if want := fmt.Sprintf("{name: a, limit: %d/1m}", 1+made.Load()); err != nil || d.YAML != want || d.Revision != 1+made.Load() || refused.Load() == 0 {
		t.Errorf("%s at %d, %v; want %s; %d were refused", d.YAML, d.Revision, err, want, refused.Load())
	}
}

func TestTheLedgerAsASource(t *testing.T) {
	server := redistest.Start(t)
	l, ctx := openLedger(t, server.URL()), t.Context()
	n := startFrom(t, l.Source())
	redistest.Await(t, "a subscription", func() bool { return server.Do("PUBSUB", "NUMSUB", "weir:rules").([]any)[1] == int64(1) })
	rulesettest.Done(t, 1)(l.Set(ctx, "login", "{name: login, limit: 5/1m}", 0, ann))
	n.await("login 5/1m")
	rulesettest.Done(t, 2)(l.Set(ctx, "login", "{name: login, limit: 6/1m}", 1, ann))
	n.await("login 6/1m")
	rulesettest.Done(t, 3)(l.Disable(ctx, "login", 2, ann))
	n.await("")
	rulesettest.Done(t, 4)(l.Enable(ctx, "login", 3, ann))
	n.await("login 6/1m")
	rulesettest.Done(t, 5)(l.Delete(ctx, "login", 4, ann)) // the last one: this is believed
	n.await("")
	rulesettest.Done(t, 6)(l.Rollback(ctx, "login", 1, 0, ann))
	n.await("login 5/1m")

	server.Do("HSET", "{weir:rules}:rules", "login", "whatever", "x", `7 1 {"yaml":"{name: x, limit: 1/1s}","enabled":true,"newer":1}`)
	server.Do("PUBLISH", "weir:rules", "")
	n.awaitEvent(ruleset.Warned, `login: rule "login": it is not what a Ledger writes; a newer weir may have written it; the last good version of this rule stays in force`)
	n.awaitEvent(ruleset.Warned, `x: rule "x": it is not what a Ledger writes; a newer weir may have written it; this rule is not in force`)
	n.await("login 5/1m")
	if _, err := l.Set(ctx, "login", "{name: login, limit: 7/1m}", 6, ann); err == nil { // what is foreign is not overwritten
		t.Error("no error")
	}

	server.Do("FLUSHALL")
	server.Do("PUBLISH", "weir:rules", "")
	n.awaitEvent(ruleset.Refused, "ledger: weir:rules has lost changes up to revision 6; ")
	n.await("login 5/1m")
}

// TestEvictedLedgerHashIsALoss is what a Redis that evicts keys leaves of a ledger: so many rules would have
// taken more changes to delete.
func TestEvictedLedgerHashIsALoss(t *testing.T) {
	server := redistest.Start(t)
	l, ctx := openLedger(t, server.URL()), t.Context()
	n := startFrom(t, l.Source())
	redistest.Await(t, "a subscription", func() bool { return server.Do("PUBSUB", "NUMSUB", "weir:rules").([]any)[1] == int64(1) })
	rulesettest.Done(t, 1)(l.Set(ctx, "login", "{name: login, limit: 5/1m}", 0, ann))
	rulesettest.Done(t, 2)(l.Set(ctx, "more", "{name: more, limit: 9/1m}", 0, ann))
	n.await("login 5/1m, more 9/1m")
	server.Do("DEL", "{weir:rules}:rules")
	server.Do("PUBLISH", "weir:rules", "")
	n.awaitEvent(ruleset.Refused, "ledger: weir:rules has lost changes up to revision 2 (it is at 2); ")
	n.await("login 5/1m, more 9/1m")
	lost(t)(l.Note(ctx, "reset", ledger.Key{Rule: "login", Key: "all"}, ann))
	lost(t)(l.Set(ctx, "other", "{name: other, limit: 6/1m}", 0, ann))
	n.await("login 5/1m, more 9/1m")
}

// lost fails the test unless a change was refused because the ledger has lost others.
func lost(t testing.TB) func(int64, error) {
	t.Helper()
	return func(got int64, err error) {
		t.Helper()
		var e *ledger.LostError
		if !errors.As(err, &e) || got != 0 || !strings.Contains(err.Error(), "weir rules restore") {
			t.Fatalf("revision %d, %v; want that changes were lost", got, err)
		}
	}
}

// watched is a ledger that a node listens to.
func watched(t testing.TB, url string) (*redissource.Ledger, *node) {
	t.Helper()
	l := openLedger(t, url)
	return l, startFrom(t, l.Source())
}

// awaitRules waits until rules are in force, and an address is blocked or not.
func (n *node) awaitRules(list, address string, blocked bool) {
	n.t.Helper()
	n.await(list)
	redistest.Await(n.t, fmt.Sprintf("%s blocked: %v", address, blocked), func() bool {
		return (n.gate.Rules().Listed(login(address)) == rules.Denied) == blocked
	})
}

// TestALostLedgerTakesNoChangeUntilItIsRestored: a change after the loss would be all that there
// is, and whatever was in force before would be gone without a word, blocks included.
func TestALostLedgerTakesNoChangeUntilItIsRestored(t *testing.T) {
	server, ctx := redistest.Start(t), t.Context()
	a, one := watched(t, server.URL())
	b, two := watched(t, server.URL())
	rulesettest.Done(t, 1)(a.Set(ctx, "login", "{name: login, limit: 5/1m}", 0, ann))
	rulesettest.Done(t, 2)(b.Set(ctx, "more", "{name: more, limit: 9/1m}", 0, ann))
	if _, _, err := a.Except(ctx, blockOf("203.0.113.99"), time.Hour, 0, ann); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*node{one, two} {
		n.awaitRules("login 5/1m, more 9/1m", "203.0.113.99", true)
	}
	server.Do("DEL", "{weir:rules}:rules", "{weir:rules}:revision", "{weir:rules}:history", "{weir:rules}:notes")
	lost(t)(b.Set(ctx, "other", "{name: other, limit: 6/1m}", 0, ann))
	for _, n := range []*node{one, two} {
		if err := n.keeper.Reload(ctx); err == nil || !strings.Contains(err.Error(), "has lost changes up to revision 3") {
			t.Errorf("a reload says %v", err)
		}
		if y := n.keeper.Status().Layers[0]; y.Err == nil || y.Down {
			t.Errorf("the status is %+v", y)
		}
		n.awaitRules("login 5/1m, more 9/1m", "203.0.113.99", true)
	}

	c, three := watched(t, server.URL()) // a server that starts now has read nothing before
	three.awaitEvent(ruleset.Warned, "has lost changes up to revision 3")
	lost(t)(c.Set(ctx, "other", "{name: other, limit: 6/1m}", 0, ann))
	how := ledger.Restoration{By: ledger.Author{Who: "bob"}}
	if _, err := c.Restore(ctx, how); err == nil || !strings.Contains(err.Error(), "a server that has read what is lost") {
		t.Errorf("a server that knows nothing restores: %v", err)
	}
	dry := how
	dry.DryRun = true
	for _, how := range []ledger.Restoration{dry, how} {
		got, err := a.Restore(ctx, how)
		if err != nil || len(got.Names) != 3 || got.Lost != 3 {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	for _, n := range []*node{one, two, three} {
		n.awaitRules("login 5/1m, more 9/1m", "203.0.113.99", true)
		redistest.Await(t, "a status that is well again", func() bool { return n.keeper.Status().Err() == nil })
	}
	if list, err := a.History(ctx, "login", 9); err != nil || len(list) != 1 || list[0].What != "restore" || list[0].Author != (ledger.Author{Who: "bob", Why: ann.Why}) {
		t.Errorf("%+v, %v", list, err)
	}
	revision, err := c.Set(ctx, "other", "{name: other, limit: 6/1m}", 0, ann)
	if err != nil || revision <= 6 {
		t.Errorf("revision %d, %v", revision, err)
	}
	for _, n := range []*node{one, two, three} {
		n.awaitRules("login 5/1m, more 9/1m, other 6/1m", "203.0.113.99", true)
	}
	if _, err := a.Restore(ctx, how); err == nil {
		t.Error("what is whole was restored")
	}
}

func blockOf(address string) rules.Exception {
	return rules.Exception{Kind: rules.Blocked, Values: []string{address}}
}

// TestALossCanBeGivenUp: then what the ledger has is all there is, on every node.
func TestALossCanBeGivenUp(t *testing.T) {
	server, ctx := redistest.Start(t), t.Context()
	a, one := watched(t, server.URL())
	_, two := watched(t, server.URL())
	rulesettest.Done(t, 1)(a.Set(ctx, "login", "{name: login, limit: 5/1m}", 0, ann))
	one.await("login 5/1m")
	two.await("login 5/1m")
	server.Do("FLUSHALL")
	lost(t)(a.Set(ctx, "other", "{name: other, limit: 6/1m}", 0, ann))
	if _, err := a.Restore(ctx, ledger.Restoration{By: ann, Forget: true}); err != nil {
		t.Fatal(err)
	}
	one.await("")
	two.await("")
	if revision, err := a.Set(ctx, "other", "{name: other, limit: 6/1m}", 0, ann); err != nil || revision <= 2 {
		t.Errorf("revision %d, %v", revision, err)
	}
	one.await("other 6/1m")
	two.await("other 6/1m")
}

// TestAFailoverThatLosesTheNewestChange has a replica take over that has never received it. Its
// number is not given again.
func TestAFailoverThatLosesTheNewestChange(t *testing.T) {
	s, ctx := redistest.StartSentinel(t), t.Context()
	l, n := watched(t, s.URL())
	rulesettest.Done(t, 1)(l.Set(ctx, "login", "{name: login, limit: 5/1m}", 0, ann))
	master, replica := s.Servers[0], s.Servers[1]
	redistest.Await(t, "the first change at the replica", func() bool { return replica.Do("GET", "{weir:rules}:revision") == "1" })
	replica.Stop()
	master.Do("CLIENT", "KILL", "TYPE", "replica") // nothing more is on its way
	rulesettest.Done(t, 2)(l.Set(ctx, "login", "{name: login, limit: 6/1m}", 1, ann))
	n.await("login 6/1m")
	master.Kill()
	replica.Cont()
	redistest.Await(t, "the replica to be the master", func() bool { return s.Master() == replica && replica.Role() == "master" })
	n.awaitEvent(ruleset.Refused, "has lost changes up to revision 2 (it is at 1)")
	n.await("login 6/1m")
	var e *ledger.LostError
	redistest.Await(t, "the refusal of a change", func() bool {
		revision, err := l.Set(ctx, "login", "{name: login, limit: 7/1m}", 1, ann)
		if err == nil {
			t.Fatalf("it was made as revision %d", revision)
		}
		return errors.As(err, &e)
	})
	got, err := l.Restore(ctx, ledger.Restoration{By: ann})
	if err != nil || len(got.Names) != 1 || got.Revision <= 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	redistest.Await(t, "a status that is well again", func() bool { return n.keeper.Status().Err() == nil })
	n.await("login 6/1m")
}

// TestANumberThatWasGivenTwice: a node that has read nothing before may give the number of a lost
// change again. Those that have read that one see that it is another.
func TestANumberThatWasGivenTwice(t *testing.T) {
	server, ctx := redistest.Start(t), t.Context()
	a, n := watched(t, server.URL())
	rulesettest.Done(t, 1)(a.Set(ctx, "login", "{name: login, limit: 5/1m}", 0, ann))
	keys := []string{"{weir:rules}:rules", "{weir:rules}:revision", "{weir:rules}:history"}
	dumps := make(map[string]string)
	for _, key := range keys {
		dumps[key] = server.Do("DUMP", key).(string)
	}
	rulesettest.Done(t, 2)(a.Set(ctx, "login", "{name: login, limit: 6/1m}", 1, ann))
	n.await("login 6/1m")
	restore := func() {
		for key, text := range dumps {
			server.Do("RESTORE", key, "0", text, "REPLACE")
		}
	}
	restore()
	fresh := openLedger(t, server.URL())
	rulesettest.Done(t, 2)(fresh.Set(ctx, "login", "{name: login, limit: 7/1m}", 1, ann))
	n.awaitEvent(ruleset.Refused, "has lost changes up to revision 2")
	n.await("login 6/1m")
	lost(t)(fresh.Set(ctx, "login", "{name: login, limit: 8/1m}", 2, ann))
	lost(t)(a.Set(ctx, "login", "{name: login, limit: 8/1m}", 2, ann))
}

// TestNotesInRedis: they are in the history, are no updates, and fit where no further rule does.
func TestNotesInRedis(t *testing.T) {
	server := redistest.Start(t)
	l, ctx := openLedger(t, server.URL(), redissource.WithMaxRules(1)), t.Context()
	n := startFrom(t, l.Source())
	redistest.Await(t, "a subscription", func() bool { return server.Do("PUBSUB", "NUMSUB", "weir:rules").([]any)[1] == int64(1) })
	rulesettest.Done(t, 1)(l.Set(ctx, "login", "{name: login, limit: 5/1m}", 0, ann))
	n.await("login 5/1m")
	key := ledger.Key{Rule: "login", Key: "all"}
	rulesettest.Done(t, 2)(l.Note(ctx, "reset", key, ann))
	if list, err := l.History(ctx, "login", 9); err != nil || len(list) != 2 || list[0].Key == nil || *list[0].Key != key || list[0].What != "reset" || list[0].Author != ann {
		t.Errorf("%+v %v", list, err)
	}
	if stats := fmt.Sprint(server.Do("INFO", "commandstats")); !strings.Contains(stats, "cmdstat_publish:calls=1,") {
		t.Errorf("a note is announced, or the rule was not:\n%s", stats)
	}
	rulesettest.Done(t, 3)(l.Set(ctx, "login", "{name: login, limit: 6/1m}", 1, ann)) // the rule is where it was
	n.await("login 6/1m")
}

// TestALostCounter: revisions go on above the newest of the history.
func TestALostCounter(t *testing.T) {
	server := redistest.Start(t)
	l, ctx := openLedger(t, server.URL()), t.Context()
	for i := range 3 {
		rulesettest.Done(t, int64(i+1))(l.Set(ctx, fmt.Sprint("r", i), yaml(fmt.Sprint("r", i), "1/1s"), 0, ann))
	}
	server.Do("DEL", "{weir:rules}:revision")
	rulesettest.Done(t, 4)(l.Set(ctx, "r0", yaml("r0", "2/1s"), 1, ann))
	rulesettest.Done(t, 5)(l.Set(ctx, "r0", yaml("r0", "3/1s"), 4, ann))
}

// clusterLedger keeps all keys of a ledger in one slot.
func clusterLedger(t *testing.T, cluster *redistest.Cluster) {
	t.Helper()
	setUser, url := user(t, "weir-ledger", cluster.URL())
	for _, server := range cluster.Nodes {
		server.Do(setUser...)
	}
	l, ctx := openLedger(t, url), t.Context()
	n := startFrom(t, l.Source())
	rulesettest.Done(t, 1)(l.Set(ctx, "login", "{name: login, limit: 5/1m}", 0, ann))
	rulesettest.Done(t, 2)(l.Set(ctx, "login", "{name: login, limit: 6/1m}", 1, ann))
	if err := n.keeper.Reload(ctx); err != nil {
		t.Fatal(err)
	}
	n.await("login 6/1m")
	if all, err := l.History(ctx, "login", 5); err != nil || len(all) != 2 {
		t.Errorf("%v %v", all, err)
	}
}

func FuzzDocument(f *testing.F) {
	f.Add("name: a\nlimit: 5/1m")
	f.Add("{name: a, limit: [5/1m], match: {path: '/x'}}")
	f.Add("name: a\r- name: b")
	f.Add("name: a\nlimit: |\n  5/1m\n")
	f.Add("\u2028- name: a")
	f.Fuzz(func(t *testing.T, yaml string) {
		spec, err := ledger.ParseDocument("a", yaml)
		if err != nil {
			if err.Error() == "" {
				t.Fatal("an error without words")
			}
			return
		}
		if spec.Name != "a" {
			t.Fatalf("it is called %q", spec.Name)
		}
		if _, err := rules.Compile(&rules.File{Rules: []rules.Spec{spec}}); err != nil {
			t.Fatalf("what was taken cannot be compiled: %v", err)
		}
	})
}
