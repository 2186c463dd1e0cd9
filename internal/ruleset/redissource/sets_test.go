//go:build unix

package redissource_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/redissource"
	"github.com/weirproject/weir/rules"
)

// A board is a source of rules that are put on it.
type board struct {
	files chan *rules.File
	next  *rules.File
	n     int
}

func (b *board) Load(context.Context, bool) ruleset.Update {
	if b.next == nil {
		b.next = <-b.files
	}
	return ruleset.Update{File: b.next, Revision: strconv.Itoa(b.n)}
}

func (b *board) Wait(ctx context.Context) {
	select {
	case b.next = <-b.files:
		b.n++
	case <-ctx.Done():
	}
}

func (b *board) Close() {}

// A guard is a node whose lists name sets.
type guard struct {
	*node
	sets  *redissource.Sets
	board *board
	set   atomic.Pointer[rules.Set]
}

// guarded is a file that denies who is in sets.
func guarded(names ...string) *rules.File {
	return &rules.File{Name: "f", Deny: map[string]rules.List{"client.ip": {Sets: names}}}
}

// guardBy runs a node until the test ends, as the wiring does.
func guardBy(t testing.TB, url string, file *rules.File, opts ...redissource.Option) *guard {
	t.Helper()
	sets, err := redissource.NewSets(url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	g := &guard{node: &node{t: t}, sets: sets, board: &board{files: make(chan *rules.File, 1)}}
	g.sets.Keep(file.SetNames())
	g.board.files <- file
	swap := func(set *rules.Set) error {
		g.set.Store(set)
		sets.Keep(set.SetNames())
		return nil
	}
	compile := func(f *rules.File) (*rules.Set, error) { return rules.Compile(sets.Complete(f)) }
	layers := []ruleset.Layer{{Name: "file", Source: g.board}, {Name: "sets", Source: sets, AllowEmpty: true}}
	if g.keeper, err = ruleset.NewManager(layers, swap, ruleset.WithCompile(compile), ruleset.WithEvents(g.tell)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.keeper.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	redistest.Await(t, "the first rules", func() bool { return g.set.Load() != nil })
	return g
}

func (g *guard) denies(address string) bool {
	return g.set.Load().Listed(&rules.Request{Client: netip.MustParseAddr(address)}) == rules.Denied
}

func (g *guard) awaitDenied(address string, want bool) {
	g.t.Helper()
	redistest.Await(g.t, fmt.Sprintf("%s to be denied: %v", address, want), func() bool { return g.denies(address) == want })
}

// holds fails if the address comes to be served before done.
func (g *guard) holds(address string, done func() bool) {
	g.t.Helper()
	redistest.Await(g.t, "the end of what must change nothing", func() bool {
		if !g.denies(address) {
			g.t.Fatalf("%s is not denied any more", address)
		}
		return done()
	})
}

// warned reports whether something is the matter with the sets now, and what.
func (g *guard) warned(text string) func() bool {
	return func() bool {
		for _, y := range g.keeper.Status().Layers {
			if y.Name == "sets" && y.Warning != nil {
				return strings.Contains(y.Warning.Error(), text)
			}
		}
		return false
	}
}

func (g *guard) well() bool { return !g.warned("")() }

// TestEachSetByItself: what is wrong with one keeps no other from changing.
func TestEachSetByItself(t *testing.T) {
	server := redistest.Start(t)
	typed(t, server, "SADD a 192.0.2.1")
	typed(t, server, "SADD b 192.0.2.2")
	typed(t, server, "SET d text")
	g := guardBy(t, server.URL(), guarded("a", "b", "c", "d"), never)
	g.awaitDenied("192.0.2.1", true)
	g.awaitDenied("192.0.2.2", true)
	redistest.Await(t, "a word on d", g.warned("d: is not a set; allowed: a set, such as SADD makes; it is empty"))
	typed(t, server, "DEL a")
	typed(t, server, "HSET a 192.0.2.1 1")
	typed(t, server, "SADD b 192.0.2.3")
	typed(t, server, "SADD c 192.0.2.4")
	typed(t, server, "PUBLISH weir:lists c") // a word on one has all read
	g.awaitDenied("192.0.2.3", true)
	g.awaitDenied("192.0.2.4", true)
	g.holds("192.0.2.1", g.warned("a: is not a set; allowed: a set, such as SADD makes; its last members (1) stay in force"))
	typed(t, server, "DEL a d")
	typed(t, server, "SADD a 192.0.2.9")
	typed(t, server, "PUBLISH weir:lists RELOAD_ALL")
	g.awaitDenied("192.0.2.1", false)
	redistest.Await(t, "all to be well", g.well)
}

// TestMissingSetIsEmptyOnlyIfAllowed: after an announcement, the end of its time to live, or with --allow-empty.
func TestMissingSetIsEmptyOnlyIfAllowed(t *testing.T) {
	server := redistest.Start(t)
	typed(t, server, "SADD a 192.0.2.1")
	g := guardBy(t, server.URL(), guarded("a", "b"), redissource.WithRefresh(100*time.Millisecond))
	g.awaitDenied("192.0.2.1", true)
	typed(t, server, "FLUSHALL")
	g.holds("192.0.2.1", g.warned("a: is gone without an announcement; if it was deleted on purpose, announce it: PUBLISH weir:lists a; its last members (1) stay in force"))
	typed(t, server, "PUBLISH weir:lists RELOAD_ALL") // that says nothing of this set
	typed(t, server, "PUBLISH weir:lists b")          // nor does this
	reads := scards(server)
	g.holds("192.0.2.1", func() bool { return scards(server) > reads+8 })
	typed(t, server, "PUBLISH weir:lists a")
	g.awaitDenied("192.0.2.1", false)
	redistest.Await(t, "all to be well", g.well)

	typed(t, server, "SADD a 192.0.2.1 #") // with a comment it is never gone
	g.awaitDenied("192.0.2.1", true)
	typed(t, server, "SREM a 192.0.2.1")
	g.awaitDenied("192.0.2.1", false)
	if !g.well() {
		t.Error("a set with a comment in it is taken for gone")
	}

	typed(t, server, "SADD b 192.0.2.2") // with a time to live it was told beforehand
	typed(t, server, "PEXPIRE b 1500")
	g.awaitDenied("192.0.2.2", true)
	g.awaitDenied("192.0.2.2", false)

	told := guardBy(t, server.URL(), guarded("a"), redissource.WithRefresh(100*time.Millisecond), redissource.WithAllowEmpty())
	typed(t, server, "SADD a 192.0.2.1")
	told.awaitDenied("192.0.2.1", true)
	typed(t, server, "FLUSHALL")
	told.awaitDenied("192.0.2.1", false)
}

// scards is how often a server was asked how large a set is.
func scards(s *redistest.Server) (n int) { return callsOf(s, "scard") }

func callsOf(s *redistest.Server, command string) (n int) {
	for field := range strings.SplitSeq(s.Info("commandstats")["cmdstat_"+command], ",") {
		if calls, ok := strings.CutPrefix(field, "calls="); ok {
			n, _ = strconv.Atoi(calls)
		}
	}
	return n
}

// TestSetsAreReadOnce however many lists name them; announcements of other keys read nothing.
func TestSetsAreReadOnce(t *testing.T) {
	server := redistest.Start(t)
	typed(t, server, "SADD a 192.0.2.1")
	file := guarded("a")
	for i := range 10 {
		file.Rules = append(file.Rules, rules.Spec{Name: fmt.Sprint("r", i), Limit: []string{"1/1s"}, Deny: guarded("a").Deny, Allow: guarded("a").Deny})
	}
	g := guardBy(t, server.URL(), file, never)
	g.awaitDenied("192.0.2.1", true)
	if n := callsOf(server, "sscan"); n != 1 {
		t.Errorf("%d calls of SSCAN for one set", n)
	}
	for range 100 {
		server.Do("PUBLISH", "weir:lists", "others")
	}
	typed(t, server, "SADD a 192.0.2.2")
	typed(t, server, "PUBLISH weir:lists a")
	g.awaitDenied("192.0.2.2", true)
	if n := callsOf(server, "sscan"); n != 2 {
		t.Errorf("%d calls of SSCAN for two readings", n)
	}
}

func TestManyAnnouncementsShareReadings(t *testing.T) {
	server := redistest.Start(t)
	typed(t, server, "SADD a 192.0.2.1")
	g := guardBy(t, server.URL(), guarded("a"), never)
	g.awaitDenied("192.0.2.1", true)
	began := time.Now()
	for i := range 2000 {
		server.Do("SADD", "a", fmt.Sprintf("10.0.%d.%d", i/256, i%256))
		server.Do("PUBLISH", "weir:lists", "a")
	}
	g.awaitDenied("10.0.7.207", true)
	most := setPasses * 2 * (int(time.Since(began)/(10*time.Millisecond)) + 3)
	if n := scards(server); n > most {
		t.Errorf("asked %d times how large the set is; at most %d", n, most)
	}
}

const setPasses = 3

// TestNamesComeAndGo: what a file comes to name is there when its rules are, and what it names
// no more is not read.
func TestNamesComeAndGo(t *testing.T) {
	server := redistest.Start(t)
	typed(t, server, "SADD a 192.0.2.1")
	typed(t, server, "SADD b 192.0.2.1")
	g := guardBy(t, server.URL(), &rules.File{Name: "f", Deny: map[string]rules.List{"client.ip": {Values: []string{"192.0.2.1"}}}}, never)
	if n := server.Info("clients")["connected_clients"]; n != "1" {
		t.Errorf("%s connections although nothing is named", n)
	}
	if err := g.keeper.Reload(t.Context()); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"a", "b", "a"} {
		g.board.files <- guarded(name)
		g.holds("192.0.2.1", func() bool { return slices.Equal(g.set.Load().SetNames(), []string{name}) })
	}
	typed(t, server, "SREM b 192.0.2.1") // unannounced, but nobody names it
	typed(t, server, "SADD a 192.0.2.2")
	if err := g.keeper.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !g.denies("192.0.2.2") || !g.well() {
		t.Error("after Reload the set is not as it is")
	}
	g.sets.Keep([]string{"a", "b"}) // by whom it is wanted is not asked
	redistest.Await(t, "b to be read", func() bool { _, there := g.keeper.Status().RuleSet.File.Sets["b"]; return there })
	g.sets.Keep([]string{"a"})
	server.Kill()
	if err := g.keeper.Reload(t.Context()); err == nil {
		t.Error("no error without Redis")
	}
	g.board.files <- guarded("a", "new")
	g.holds("192.0.2.2", func() bool { return len(g.set.Load().SetNames()) == 2 })
	if err := g.set.Load().LeftOut(); err == nil || !strings.Contains(err.Error(), `"new" was not read`) {
		t.Error(err)
	}
	server.Restart()
	typed(t, server, "SADD new 192.0.2.7")
	g.awaitToldSets("a: is gone")
	typed(t, server, "PUBLISH weir:lists new")
	g.awaitDenied("192.0.2.7", true)
	g.holds("192.0.2.2", g.warned("a: is gone"))
}

func (g *guard) awaitToldSets(text string) {
	g.t.Helper()
	g.awaitEvent(ruleset.Warned, text)
}

// TestHugeSets: 100,000 networks are in force; what is more, or more than may be in memory, is
// not read, and the last members stay.
func TestHugeSets(t *testing.T) {
	server := redistest.Start(t)
	fill(server, "a", bounds.Listed, func(i int) string { return fmt.Sprintf("%d.%d.%d.0/28", 1+i>>16, i>>8&255, i&255) })
	began := time.Now()
	g := guardBy(t, server.URL(), guarded("a", "b"), never)
	g.awaitDenied("1.0.0.15", true)
	t.Logf("%d networks are in force after %v", bounds.Listed, time.Since(began))
	if !g.denies("2.134.159.1") || g.denies("2.134.160.1") || g.denies("1.0.0.16") {
		t.Error("other networks are in force")
	}
	typed(t, server, "SADD b 192.0.2.2")
	typed(t, server, "PUBLISH weir:lists b")
	redistest.Await(t, "a word on b", g.warned("b: has 1 members, and all sets together over 100000; that is too much; its last members (0) stay in force"))
	typed(t, server, "SADD a 192.0.2.1")
	typed(t, server, "PUBLISH weir:lists a")
	redistest.Await(t, "a word on a", g.warned("a: has 100001 members, which take"))
	if !g.denies("2.134.159.1") || g.denies("192.0.2.1") {
		t.Error("what is too large is in force")
	}
	typed(t, server, "DEL a")
	for i := range 40 {
		server.Do("SADD", "b", fmt.Sprint(i, strings.Repeat("x", 1<<20)))
	}
	typed(t, server, "PUBLISH weir:lists a")
	redistest.Await(t, "a word on b", g.warned("b: has 41 members, which take"))
	g.awaitDenied("1.0.0.15", false)
	typed(t, server, "DEL b")
	for i := range 10 {
		server.Do("SADD", "b", fmt.Sprint(i, strings.Repeat("x", 1<<20)))
	}
	typed(t, server, "PUBLISH weir:lists a")
	redistest.Await(t, "a word on b", g.warned("b: has over 100000 members, or 8388608 bytes of them; that is too much"))
}

// fill adds members to a set, many at once.
func fill(s *redistest.Server, name string, n int, member func(i int) string) {
	for i := 0; i < n; i += 1000 {
		args := []string{"SADD", name}
		for j := i; j < min(i+1000, n); j++ {
			args = append(args, member(j))
		}
		s.Do(args...)
	}
}

// TestReportOfHostileMembersIsBounded, and the other members are in force.
func TestReportOfHostileMembersIsBounded(t *testing.T) {
	server := redistest.Start(t)
	fill(server, "a", 1000, func(i int) string { return fmt.Sprint("\x00\xff'\"\n# ", i) })
	server.Do("SADD", "a", "192.0.2.1\r\n", "", " ", "-", strings.Repeat("9", 5000), "\x1b[31m", "0.0.0.0/00", "192.0.2.7")
	g := guardBy(t, server.URL(), guarded("a"), never)
	g.awaitDenied("192.0.2.1", true)
	g.awaitDenied("192.0.2.7", true)
	err := g.set.Load().LeftOut()
	var list *rules.Error
	if !errors.As(err, &list) || len(list.Problems) != bounds.Problems || list.Omitted == 0 {
		t.Fatal(err)
	}
	if text := err.Error(); strings.ContainsAny(text, "\x00\x1b") || !utf8.ValidString(text) || len(text) > 100_000 {
		t.Errorf("%d bytes are told, such as %.300q", len(text), text)
	}
}

// TestSetsInACluster lie on different masters, and all are read.
func TestSetsInACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	names := []string{"weir:a", "weir:b", "weir:c", "weir:d"} // in slots of three nodes
	client := cluster.Nodes[0]
	owners := make(map[*redistest.Server]bool)
	add := func(name, member string) {
		owner := cluster.Owner(int(client.Do("CLUSTER", "KEYSLOT", name).(int64)))
		owners[owner] = true
		owner.Do("SADD", name, member)
	}
	for i, name := range names {
		add(name, fmt.Sprint("192.0.2.", i))
	}
	if len(owners) < 2 {
		t.Fatal("all sets lie on one node")
	}
	g := guardBy(t, cluster.URL(), guarded(names...), never)
	for i := range names {
		g.awaitDenied(fmt.Sprint("192.0.2.", i), true)
	}
	add("weir:c", "192.0.2.9")
	client.Do("PUBLISH", "weir:lists", "weir:c")
	g.awaitDenied("192.0.2.9", true)
}

// TestPermissionsToReadSets grants what docs/redis-rules.md says, and nothing else.
func TestPermissionsToReadSets(t *testing.T) {
	server := redistest.Start(t)
	setUser, url := user(t, "weir-lists", server.URL())
	server.Do(setUser...)
	typed(t, server, "SADD weir:blocked 192.0.2.1")
	g := guardBy(t, url, guarded("weir:blocked", "others"), never)
	g.awaitDenied("192.0.2.1", true)
	redistest.Await(t, "a word on others", g.warned("others: may not be read: NOPERM"))
	typed(t, server, "SADD weir:blocked 192.0.2.2")
	typed(t, server, "PUBLISH weir:lists weir:blocked")
	g.awaitDenied("192.0.2.2", true)
	server.Do(append(setUser, "-sscan")...)
	typed(t, server, "PUBLISH weir:lists weir:blocked")
	redistest.Await(t, "a word on weir:blocked", g.warned("weir:blocked: may not be read: NOPERM"))
	if !g.denies("192.0.2.2") {
		t.Error("what may not be read any more is forgotten")
	}
}

func TestBadOptionsOfSets(t *testing.T) {
	var input *weir.InputError
	if _, err := redissource.NewSets("redis://127.0.0.1:1", redissource.WithChannel("")); !errors.As(err, &input) {
		t.Error(err)
	}
	sets, err := redissource.NewSets("http://example.com")
	if err != nil {
		t.Fatal(err)
	}
	sets.Keep([]string{"a"})
	if n := sets.Load(t.Context(), false); !errors.As(n.Err, &input) {
		t.Errorf("a URL that cannot be used: %v", n.Err)
	}
}

func TestRunOfSetsLeavesNoGoroutine(t *testing.T) {
	server := redistest.Start(t)
	for _, names := range [][]string{nil, {"a"}} {
		sets, err := redissource.NewSets(server.URL(), never)
		if err != nil {
			t.Fatal(err)
		}
		sets.Keep(names)
		n := sets.Load(t.Context(), false)
		if n.Err != nil || n.File == nil || len(n.File.Sets) != len(names) || n.Revision == "" {
			t.Errorf("the first update is %+v", n)
		}
		sets.Close()
		redistest.Await(t, "all connections to end", func() bool { return server.Info("clients")["connected_clients"] == "1" })
	}
}
