package filesource

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
	"pgregory.net/rapid"
)

// A stand is a Manager on a real file system, with the watches of the real one. It reads
// again by itself only once a day: what it finds, it was sent of.
type stand struct {
	t      testing.TB
	keeper *ruleset.Manager
	force  chan string
	mu     sync.Mutex
	events []string
}

func newStand(t testing.TB, path string, opts ...Option) *stand {
	s, err := New(path, append([]Option{WithPoll(24 * time.Hour)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	st := &stand{t: t, force: make(chan string, 1000)}
	swap := func(set *rules.Set) error {
		text := ""
		for _, r := range set.Rules() {
			text += r.Name() + " " + r.Limits()[0].String() + "; "
		}
		st.force <- strings.TrimSuffix(text, "; ")
		return nil
	}
	tell := func(e ruleset.Event) {
		st.mu.Lock()
		defer st.mu.Unlock()
		st.events = append(st.events, e.String())
	}
	if st.keeper, err = ruleset.NewManager([]ruleset.Layer{{Name: "file", Source: s}}, swap, ruleset.WithEvents(tell)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- st.keeper.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return st
}

// expect waits until these rules are in force.
func (st *stand) expect(want string) {
	st.t.Helper()
	for got := ""; got != want; {
		select {
		case got = <-st.force:
		case <-time.After(time.Minute):
			st.mu.Lock()
			defer st.mu.Unlock()
			st.t.Fatalf("in force is %q, not %q; sent was %q", got, want, st.events)
		}
	}
}

// sent waits for an event that contains a text.
func (st *stand) sent(want string) {
	st.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		st.mu.Lock()
		events := slices.Clone(st.events)
		st.mu.Unlock()
		if slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, want) }) {
			return
		}
		if time.Now().After(deadline) {
			st.t.Fatalf("sent was %q, and nothing of %q", events, want)
		}
	}
}

// A change is made to a directory with rules, of which path names those that are read.
type change struct {
	name   string
	before func(t *testing.T, dir string)
	path   string
	after  func(t *testing.T, dir string, st *stand)
}

func in(dir string, parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }

func mkdir(t *testing.T, path string) { t.Helper(); do(t, os.MkdirAll(path, 0o700)) }

// plain is a file, and one that can be renamed over it.
func plain(t *testing.T, dir string) {
	write(t, in(dir, "weir.yaml"), set("1/1s"))
	write(t, in(dir, "new"), set("2/1s"))
}

// folder has the rules in conf/, and others in next/.
func folder(t *testing.T, dir string) {
	mkdir(t, in(dir, "conf"))
	mkdir(t, in(dir, "next"))
	write(t, in(dir, "conf", "weir.yaml"), set("1/1s"))
	write(t, in(dir, "next", "weir.yaml"), set("2/1s"))
}

// configMap is what Kubernetes mounts: files are links through ..data, which is one too.
func configMap(t *testing.T, dir string) {
	mkdir(t, in(dir, "..one"))
	write(t, in(dir, "..one", "weir.yaml"), set("1/1s"))
	do(t, os.Symlink("..one", in(dir, "..data")))
	do(t, os.Symlink(in("..data", "weir.yaml"), in(dir, "weir.yaml")))
}

// swapConfigMap does what the kubelet does on each update.
func swapConfigMap(t *testing.T, dir string, st *stand) {
	for i := 2; i < 5; i++ { // every time, not only the first
		old, err := os.Readlink(in(dir, "..data"))
		do(t, err)
		mkdir(t, in(dir, fmt.Sprint("..", i)))
		write(t, in(dir, fmt.Sprint("..", i), "weir.yaml"), set(fmt.Sprint(i, "/1s")))
		do(t, os.Symlink(fmt.Sprint("..", i), in(dir, "..data_tmp")))
		do(t, os.Rename(in(dir, "..data_tmp"), in(dir, "..data")))
		do(t, os.RemoveAll(in(dir, old)))
		st.expect(fmt.Sprintf("x %d/1s", i))
	}
}

var changes = []change{
	{"written in place", plain, "weir.yaml", func(t *testing.T, dir string, st *stand) {
		write(t, in(dir, "weir.yaml"), set("2/1s"))
		st.expect("x 2/1s")
	}},
	{"renamed over", plain, "weir.yaml", func(t *testing.T, dir string, st *stand) {
		do(t, os.Rename(in(dir, "new"), in(dir, "weir.yaml")))
		st.expect("x 2/1s")
		write(t, in(dir, "weir.yaml"), set("3/1s")) // the new file is watched as the old one was
		st.expect("x 3/1s")
	}},
	{"moved away by an editor and written anew", plain, "weir.yaml", func(t *testing.T, dir string, st *stand) {
		do(t, os.Rename(in(dir, "weir.yaml"), in(dir, "weir.yaml~")))
		write(t, in(dir, "weir.yaml"), set("2/1s"))
		st.expect("x 2/1s")
	}},
	{"cut off, then written", plain, "weir.yaml", func(t *testing.T, dir string, st *stand) {
		do(t, os.Truncate(in(dir, "weir.yaml"), 0))
		st.sent("refused")
		write(t, in(dir, "weir.yaml"), set("2/1s"))
		st.expect("x 2/1s")
	}},
	{"deleted, and there again", plain, "weir.yaml", func(t *testing.T, dir string, st *stand) {
		do(t, os.Remove(in(dir, "weir.yaml")))
		st.sent("down, 1 rules stay in force")
		do(t, os.Rename(in(dir, "new"), in(dir, "weir.yaml")))
		st.expect("x 2/1s")
	}},
	{"not there at first", func(*testing.T, string) {}, "a/b/weir.yaml", func(t *testing.T, dir string, st *stand) {
		st.sent("down")
		mkdir(t, in(dir, "a", "b"))
		write(t, in(dir, "a", "b", "weir.yaml"), set("2/1s"))
		st.expect("x 2/1s")
	}},
	{"a link that leads elsewhere", func(t *testing.T, dir string) {
		plain(t, dir)
		do(t, os.Symlink("weir.yaml", in(dir, "link")))
	}, "link", func(t *testing.T, dir string, st *stand) {
		do(t, os.Symlink("new", in(dir, "link2")))
		do(t, os.Rename(in(dir, "link2"), in(dir, "link")))
		st.expect("x 2/1s")
		write(t, in(dir, "new"), set("3/1s"))
		st.expect("x 3/1s")
	}},
	{"the target of a link in another directory", func(t *testing.T, dir string) {
		folder(t, dir)
		do(t, os.Symlink(in(dir, "conf", "weir.yaml"), in(dir, "link")))
	}, "link", func(t *testing.T, dir string, st *stand) {
		do(t, os.Rename(in(dir, "next", "weir.yaml"), in(dir, "conf", "weir.yaml")))
		st.expect("x 2/1s")
	}},
	{"a ConfigMap's file", configMap, "weir.yaml", swapConfigMap},
	{"a ConfigMap's directory", configMap, ".", swapConfigMap},
	{"the directory deleted and made again", folder, "conf/weir.yaml", func(t *testing.T, dir string, st *stand) {
		for i := 2; i < 5; i++ {
			do(t, os.RemoveAll(in(dir, "conf")))
			st.sent("down")
			mkdir(t, in(dir, "conf"))
			write(t, in(dir, "conf", "weir.yaml"), set(fmt.Sprint(i, "/1s")))
			st.expect(fmt.Sprintf("x %d/1s", i))
		}
	}},
	{"another directory in its place", folder, "conf", func(t *testing.T, dir string, st *stand) {
		do(t, os.Rename(in(dir, "conf"), in(dir, "old")))
		do(t, os.Rename(in(dir, "next"), in(dir, "conf")))
		st.expect("x 2/1s")
		write(t, in(dir, "conf", "weir.yaml"), set("3/1s"))
		st.expect("x 3/1s")
	}},
	{"another directory in the place of one above", func(t *testing.T, dir string) {
		for _, limit := range []string{"1", "2"} {
			mkdir(t, in(dir, limit, "conf"))
			write(t, in(dir, limit, "conf", "weir.yaml"), set(limit+"/1s"))
		}
	}, "1/conf/weir.yaml", func(t *testing.T, dir string, st *stand) {
		do(t, os.Rename(in(dir, "1"), in(dir, "old")))
		do(t, os.Rename(in(dir, "2"), in(dir, "1")))
		st.expect("x 2/1s")
		write(t, in(dir, "1", "conf", "weir.yaml"), set("3/1s"))
		st.expect("x 3/1s")
	}},
	{"a directory above that is a link", func(t *testing.T, dir string) {
		folder(t, dir)
		do(t, os.Symlink("conf", in(dir, "current")))
	}, "current/weir.yaml", func(t *testing.T, dir string, st *stand) {
		do(t, os.Symlink("next", in(dir, "current2")))
		do(t, os.Rename(in(dir, "current2"), in(dir, "current")))
		st.expect("x 2/1s")
	}},
	{"a file more, and one less", folder, "conf", func(t *testing.T, dir string, st *stand) {
		write(t, in(dir, "conf", "more.yml"), "rules: [{name: y, limit: 1/1s}]")
		st.expect("y 1/1s; x 1/1s")
		do(t, os.Remove(in(dir, "conf", "weir.yaml")))
		st.expect("y 1/1s")
		do(t, os.Remove(in(dir, "conf", "more.yml")))
		st.sent("no files of rules")
	}},
}

func TestChangesAreSeen(t *testing.T) {
	for _, test := range changes {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			test.before(t, dir)
			st := newStand(t, in(dir, filepath.FromSlash(test.path)))
			if err := st.keeper.Wait(t.Context()); err == nil {
				st.expect("x 1/1s")
			}
			test.after(t, dir, st)
		})
	}
}

// Where the directory above cannot be watched, the directory itself tells that it is gone.
func TestEventsThatConcernTheRules(t *testing.T) {
	dir := t.TempDir()
	folder(t, dir)
	w := &watch{notifier: &notifier{remove: func(string) error { return nil }, add: func(path string) error {
		if path == dir {
			return os.ErrPermission
		}
		return nil
	}}}
	do(t, w.follow(in(dir, "conf")))
	for name, want := range map[string]bool{
		in(dir, "conf"): true, in(dir, "conf", "weir.yaml"): true, in(dir, "conf", "new.yml"): true, dir: true,
		in(dir, "next"): false, in(dir, "conf", "weir.yaml~"): false, in(dir, "conf", ".weir.yaml.swp"): false, in(dir, "other", "weir.yaml"): false,
	} {
		if w.concerns(fsnotify.Event{Name: name}) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}

// A directory in the place of another is watched, and the other one no longer: or each
// swap would use up one of the machine's watches.
func TestOldWatchesAreTakenOff(t *testing.T) {
	dir := t.TempDir()
	folder(t, dir)
	var calls []string
	note := func(what string) func(string) error {
		return func(path string) error {
			if path == in(dir, "conf") {
				calls = append(calls, what)
			}
			return nil
		}
	}
	w := &watch{notifier: &notifier{add: note("add"), remove: note("remove")}}
	do(t, w.follow(in(dir, "conf")))
	do(t, os.Rename(in(dir, "conf"), in(dir, "old")))
	do(t, os.Rename(in(dir, "next"), in(dir, "conf")))
	do(t, w.follow(in(dir, "conf")))
	do(t, os.Rename(in(dir, "conf"), in(dir, "older")))
	do(t, w.follow(in(dir, "conf")))
	if got := strings.Join(calls, " "); got != "add remove add remove" {
		t.Errorf("the calls were %s", got)
	}
}

// A path of links that leads in a circle ends, and is an error.
func TestLinksInACircle(t *testing.T) {
	dir := t.TempDir()
	do(t, os.Symlink("b", in(dir, "a")))
	do(t, os.Symlink("a", in(dir, "b")))
	st := newStand(t, in(dir, "a"))
	st.sent("too many levels of symbolic links")
	write(t, in(dir, "c"), set("2/1s"))
	do(t, os.Rename(in(dir, "c"), in(dir, "b")))
	st.expect("x 2/1s")
}

// Reloads from many sides while the file changes: what is there in the end is in force,
// and each caller was sent of what it saw.
func TestReloadsWhileTheFileChanges(t *testing.T) {
	dir := t.TempDir()
	plain(t, dir)
	st := newStand(t, in(dir, "weir.yaml"))
	do(t, st.keeper.Wait(t.Context()))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				if err := st.keeper.Reload(t.Context()); err != nil && !strings.Contains(err.Error(), "while it is read") {
					t.Error(err)
				}
			}
		})
	}
	for i := range 50 {
		write(t, in(dir, "new"), set(fmt.Sprint(i+1, "/1s")))
		do(t, os.Rename(in(dir, "new"), in(dir, "weir.yaml")))
	}
	all.Wait()
	do(t, st.keeper.Reload(t.Context()))
	if got := st.keeper.Status().RuleSet.File.Rules[0].Limit[0]; got != "50/1s" {
		t.Errorf("in force is %s", got)
	}
}

// After any sequence of operations on a file its last good content is in force.
func TestTheLastGoodFileIsInForce(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		deeds := rapid.SliceOfN(rapid.SampledFrom([]string{set("1/1s"), set("2/1s"), set("3/1s"), "", "rules: []", "rules: [", set("1/60"), "delete", "pause", "pause"}), 1, 30).Draw(r, "deeds")
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t, nil, WithPoll(time.Second))
			g.End()
			force := ""
			swap := func(set *rules.Set) error { force = set.Rules()[0].Limits()[0].String(); return nil }
			k, err := ruleset.NewManager([]ruleset.Layer{{Name: "file", Source: g.source}}, swap)
			do(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- k.Run(ctx) }()
			synctest.Wait()
			want := "1/1s"
			for _, deed := range deeds {
				switch deed {
				case "delete":
					os.Remove(g.path)
				case "pause":
					time.Sleep(2 * time.Second)
					continue
				default:
					write(t, g.path, deed)
				}
				if strings.Contains(deed, "name: x") && !strings.Contains(deed, "/60") {
					time.Sleep(2 * time.Second) // long enough that it was seen
					want = strings.Fields(deed)[5]
				}
			}
			time.Sleep(2 * time.Second)
			cancel()
			do(t, <-ended)
			if force != want {
				t.Errorf("in force is %s, not %s", force, want)
			}
		})
		if t.Failed() {
			r.Fatalf("deeds %q", deeds)
		}
	})
}
