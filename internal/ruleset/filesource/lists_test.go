package filesource

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

// whole fills the cache and parses.
func (s cache) whole(name string, texts []text) (*rules.File, error) {
	s.fill(texts, rules.NewCompiler())
	return s.parse(name, texts, rules.NewCompiler())
}

const blocking = "deny: {client.ip: {file: blocked.txt}}\nrules: []\n"

// A guard is a source of rules on a real disk, whose rules decide.
type guard struct {
	t      *testing.T
	keeper *ruleset.Manager
	set    chan *rules.Set
	events chan string
	now    *rules.Set
}

func newGuard(t *testing.T, path string) *guard {
	s, err := New(path, WithPoll(24*time.Hour)) // what is found is found by watches
	do(t, err)
	g := &guard{t: t, set: make(chan *rules.Set, 100), events: make(chan string, 1000)}
	swap := func(set *rules.Set) error { g.set <- set; return nil }
	tell := func(e ruleset.Event) { g.events <- e.String() }
	g.keeper, err = ruleset.NewManager([]ruleset.Layer{{Name: "file", Source: s, AllowEmpty: true}}, swap, ruleset.WithEvents(tell))
	do(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- g.keeper.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return g
}

func (g *guard) denies(address string) bool {
	return g.now != nil && g.now.Listed(&rules.Request{Client: netip.MustParseAddr(address)}) == rules.Denied
}

// until waits for a rule set that denies an address, or does not.
func (g *guard) until(address string, denied bool) {
	g.t.Helper()
	deadline := time.After(time.Minute)
	for g.now == nil || g.denies(address) != denied {
		select {
		case g.now = <-g.set:
		case <-deadline:
			g.t.Fatalf("%s: denied is not %v", address, denied)
		}
	}
}

// sent waits for an event with all these texts.
func (g *guard) sent(texts ...string) {
	g.t.Helper()
	deadline := time.After(time.Minute)
	for {
		select {
		case e := <-g.events:
			missing := 0
			for _, text := range texts {
				if !strings.Contains(e, text) {
					missing++
				}
			}
			if missing == 0 {
				return
			}
		case <-deadline:
			g.t.Fatalf("nothing was sent of %q", texts)
		}
	}
}

// TestListsAreWatched: a change of a list is a change of the rules, and a bad one is bad updates.
func TestListsAreWatched(t *testing.T) {
	dir := t.TempDir()
	write(t, in(dir, "weir.yaml"), blocking)
	write(t, in(dir, "blocked.txt"), "192.0.2.1\n")
	g := newGuard(t, in(dir, "weir.yaml"))
	g.until("192.0.2.1", true)
	write(t, in(dir, "blocked.txt"), "192.0.2.1\n192.0.2.2 # in place\n")
	g.until("192.0.2.2", true)
	write(t, in(dir, ".new"), "192.0.2.3\n")
	do(t, os.Rename(in(dir, ".new"), in(dir, "blocked.txt")))
	g.until("192.0.2.1", false)
	g.until("192.0.2.3", true)

	write(t, in(dir, "blocked.txt"), "192.0.2.3\n192.0.2.300\n")
	g.sent("blocked.txt:2:1", "192.0.2.300")
	do(t, os.Remove(in(dir, "blocked.txt")))
	g.sent("weir.yaml:1:26", "no such file")
	if g.until("192.0.2.3", true); len(g.set) > 0 {
		t.Error("a bad list changed the rules")
	}
	write(t, in(dir, "blocked.txt"), "192.0.2.4\n")
	g.until("192.0.2.4", true)
}

// TestAListThatIsNamedLaterIsWatched, also in a directory that is created later.
func TestAListThatIsNamedLaterIsWatched(t *testing.T) {
	dir := t.TempDir()
	write(t, in(dir, "weir.yaml"), "deny: {client.ip: 192.0.2.1}\nrules: []\n")
	g := newGuard(t, in(dir, "weir.yaml"))
	g.until("192.0.2.1", true)
	write(t, in(dir, "weir.yaml"), "deny: {client.ip: {file: lists/of/bots.txt}}\nrules: []\n")
	g.sent("bots.txt", "no such file")
	mkdir(t, in(dir, "lists", "of"))
	write(t, in(dir, "lists", "of", "bots.txt"), "192.0.2.2\n")
	g.until("192.0.2.2", true)
	write(t, in(dir, "lists", "of", "bots.txt"), "192.0.2.3\n")
	g.until("192.0.2.3", true)
}

// TestListsOfADirectory lie beside its files, and may be links as in a ConfigMap.
func TestListsOfADirectory(t *testing.T) {
	dir := t.TempDir()
	for data, address := range map[string]string{"..1": "192.0.2.1", "..2": "192.0.2.2"} {
		mkdir(t, in(dir, data))
		write(t, in(dir, data, "a.yaml"), blocking)
		write(t, in(dir, data, "blocked.txt"), address)
	}
	do(t, os.Symlink("..1", in(dir, "..data")))
	do(t, os.Symlink("..data/a.yaml", in(dir, "a.yaml")))
	do(t, os.Symlink("..data/blocked.txt", in(dir, "blocked.txt")))
	write(t, in(dir, "b.yaml"), set("1/1s"))
	g := newGuard(t, dir)
	g.until("192.0.2.1", true)
	do(t, os.Symlink("..2", in(dir, "..new")))
	do(t, os.Rename(in(dir, "..new"), in(dir, "..data")))
	g.until("192.0.2.2", true)
	if g.denies("192.0.2.1") {
		t.Error("a mixture is in force")
	}
}

func TestListsOutsideTheDirectoryAreRefused(t *testing.T) {
	base := t.TempDir()
	dir := in(base, "rules")
	mkdir(t, in(dir, "folder"))
	mkdir(t, in(base, "out"))
	write(t, in(base, "secret"), "192.0.2.1")
	write(t, in(base, "out", "secret"), "192.0.2.1")
	do(t, os.Symlink("../secret", in(dir, "link")))
	do(t, os.Symlink(in(base, "secret"), in(dir, "absolute")))
	do(t, os.Symlink("../out", in(dir, "away")))
	do(t, os.Symlink("circle", in(dir, "circle")))
	socket, err := net.Listen("unix", in(dir, "socket"))
	do(t, err)
	defer socket.Close()
	want := map[string]string{
		"../secret": "allowed: a file beside", in(base, "secret"): "allowed: a file beside", "folder/../../secret": "allowed: a file beside",
		"link": "escapes", "absolute": "escapes", "away/secret": "escapes",
		"circle": "cannot be read", "folder": "it is no file", "socket": "it is no file", "none": "no such file", "/dev/zero": "allowed: a file beside",
	}
	for name, complaint := range want {
		text := "deny: {user: {file: " + name + "}}\nrules: []\n"
		_, err := rules.Parse(in(dir, "weir.yaml"), []byte(text), rules.WithFiles(Lists(in(dir, "weir.yaml"))))
		var list *rules.Error
		if !errors.As(err, &list) || !strings.Contains(err.Error(), complaint) || strings.Contains(err.Error(), "192.0.2.1") {
			t.Errorf("%s: %v", name, err)
		}
		body, err := Lists(in(dir, "weir.yaml"))(name) // even if its name was not looked at
		if err == nil {
			t.Errorf("%s: %q was read", name, body)
		}
	}
}

// TestOnlyListsThatChangedAreParsedAgain, and lists are part of the revision.
func TestOnlyListsThatChangedAreParsedAgain(t *testing.T) {
	dir := t.TempDir()
	path := in(dir, "weir.yaml")
	write(t, path, blocking)
	write(t, in(dir, "blocked.txt"), "192.0.2.1")
	texts, err := (&disk{name: "weir.yaml"}).read(path)
	do(t, err)
	s := make(cache)
	look := func() (file *rules.File, revision string) {
		file, err := s.whole("weir.yaml", texts)
		if err != nil {
			return nil, revisionOf(texts, s.lists())
		}
		return file, revisionOf(texts, s.lists())
	}
	first, one := look()
	if again, same := look(); again != first || same != one {
		t.Error("what is the same was parsed again")
	}
	write(t, in(dir, "blocked.txt"), "192.0.2.2")
	second, two := look()
	if second == first || two == one || second.Deny["client.ip"][0] != "192.0.2.2" {
		t.Errorf("%v %s, after %s", second.Deny, two, one)
	}
	do(t, os.Remove(in(dir, "blocked.txt")))
	if third, three := look(); third != nil || three == two || three == one {
		t.Errorf("%v %s", third, three)
	}
	if without, with := revisionOf(texts, nil), one; without == with {
		t.Error("the revision does not cover the list")
	}
}

// TestRulesAreCompiledOnce: the compiler that checked the rules of a file or a directory remembers them.
func TestRulesAreCompiledOnce(t *testing.T) {
	text := func(name string) string {
		var b strings.Builder
		b.WriteString("rules:\n")
		for i := range 3 {
			fmt.Fprintf(&b, "- {name: %s%d, match: {path: /%[1]s%[2]d}, limit: 1/1s}\n", name, i)
		}
		return b.String()
	}
	dir := t.TempDir()
	write(t, dir+"/a.yaml", text("a"))
	write(t, dir+"/b.yaml", text("b"))
	for path, n := range map[string]int{dir + "/a.yaml": 3, dir: 6} {
		compiler := rules.NewCompiler()
		s, err := New(path, WithCompiler(compiler))
		do(t, err)
		first := s.Load(t.Context(), false)
		s.Close()
		first.File.Rules[0].Limit = nil // a mistake if it is compiled again
		if set, err := compiler.Compile(first.File); err != nil || len(set.Rules()) != n {
			t.Errorf("%s was compiled again: %v", path, err)
		}
	}
}
