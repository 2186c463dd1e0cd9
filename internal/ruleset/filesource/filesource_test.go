package filesource

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/weirproject/weir/internal/ruleset/rulesettest"
)

// oneRule is a file of one rule with this limit.
func set(limit string) string { return "rules:\n- name: x\n  limit: " + limit + "\n" }

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A rig is a source in a bubble whose changes are sent by the test, or by nobody.
type rig struct {
	*rulesettest.Followed
	path   string
	source *Source
	events chan fsnotify.Event
	lost   chan error
}

func newRig(t *testing.T, change func(*Source), opts ...Option) *rig {
	r := &rig{path: filepath.Join(t.TempDir(), "weir.yaml"), events: make(chan fsnotify.Event), lost: make(chan error)}
	write(t, r.path, set("1/1s"))
	s, err := New(r.path, opts...)
	do(t, err)
	nothing := func(string) error { return nil }
	s.notify = func() (*notifier, error) {
		return &notifier{add: nothing, remove: nothing, close: func() error { return nil }, events: r.events, lost: r.lost}, nil
	}
	if change != nil {
		change(s)
	}
	r.source, r.Followed = s, rulesettest.Follow(t, s)
	return r
}

// touched has the watch say that the file changed.
func (r *rig) touched() { r.events <- fsnotify.Event{Name: r.path, Op: fsnotify.Write} }

func TestAChangeIsSentWhenItIsFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.End()
		r.Sent("1/1s")
		write(t, r.path, set("2/1s"))
		for range 5 {
			r.touched()
			time.Sleep(15 * time.Millisecond)
		}
		r.Sent()
		time.Sleep(10 * time.Millisecond)
		r.Sent("2/1s")
	})
}

func TestAFileThatIsNeverQuietIsReadAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.End()
		r.Sent("1/1s")
		write(t, r.path, set("2/1s"))
		for range 22 {
			r.touched()
			time.Sleep(10 * time.Millisecond)
		}
		r.Sent("2/1s")
	})
}

func TestOnlyTheContentCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.End()
		r.Sent("1/1s")
		info, err := os.Stat(r.path)
		do(t, err)
		do(t, os.Chtimes(r.path, time.Now(), time.Now()))
		r.touched()
		time.Sleep(time.Minute)
		r.Sent()
		write(t, r.path, set("2/1s")) // as long as before, and as old
		do(t, os.Chtimes(r.path, info.ModTime(), info.ModTime()))
		time.Sleep(31 * time.Second)
		r.Sent("2/1s")
	})
}

// A network's disk tells nothing of what other machines write.
func TestUnwatchedChangesAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, WithPoll(time.Minute))
		defer r.End()
		r.Sent("1/1s")
		write(t, r.path, set("2/1s"))
		time.Sleep(59 * time.Second)
		r.Sent()
		time.Sleep(2 * time.Second)
		r.Sent("2/1s")
	})
}

func TestEventsThatWereLostMayHaveBeenOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.End()
		r.Sent("1/1s")
		write(t, r.path, set("2/1s"))
		r.lost <- fsnotify.ErrEventOverflow
		time.Sleep(time.Second)
		r.Sent("2/1s")
	})
}

func TestHalfWrittenFilesAreLookedAtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.End()
		r.Sent("1/1s")
		for _, half := range []string{"", "rules:\n- name: x\n  lim", "rules:\n- na"} {
			write(t, r.path, half)
			r.touched()
			time.Sleep(60 * time.Millisecond) // it is looked at
			write(t, r.path, set("1/1s"))
			time.Sleep(time.Second)
			r.Sent()
		}
		write(t, r.path, "rules:\n- name: x\n  lim")
		r.touched()
		time.Sleep(60 * time.Millisecond)
		r.Sent()
		time.Sleep(100 * time.Millisecond)
		r.Sent("bad: not YAML")
		r.touched()
		time.Sleep(time.Minute) // and said once
		r.Sent()
		write(t, r.path, set("1/1s"))
		r.touched()
		time.Sleep(time.Second)
		r.Sent("1/1s")
	})
}

func TestAFileThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		locked := false
		r := newRig(t, func(s *Source) {
			s.disk.open = func(path string) (*os.File, error) {
				mu.Lock()
				defer mu.Unlock()
				if locked {
					return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
				}
				return os.Open(path)
			}
		})
		defer r.End()
		lock := func(is bool) {
			mu.Lock()
			defer mu.Unlock()
			locked = is
			r.touched()
		}
		r.Sent("1/1s")
		lock(true)
		time.Sleep(5 * time.Minute)
		r.Sent("bad: permission denied")
		lock(false)
		time.Sleep(time.Second)
		r.Sent("1/1s") // so that who listens knows that it is back
		do(t, os.Remove(r.path))
		time.Sleep(5 * time.Minute)
		r.Sent("bad: no such file")
		do(t, os.Mkdir(r.path, 0o700))
		time.Sleep(5 * time.Minute)
		r.Sent() // another reason not to be read is not worth telling
		do(t, os.Remove(r.path))
		write(t, r.path, set("3/1s"))
		r.touched()
		time.Sleep(time.Second)
		r.Sent("3/1s")
	})
}

func TestUnwatchableFilesArePolledWithAWarning(t *testing.T) {
	for name, change := range map[string]func(*Source){
		"no watch at all": func(s *Source) {
			s.notify = func() (*notifier, error) { return nil, errors.New("too many open files") }
		},
		"not this directory": func(s *Source) {
			full := func(dir string) error {
				if dir == filepath.Dir(s.path) {
					return errors.New("too many open files")
				}
				return nil
			}
			s.notify = func() (*notifier, error) {
				return &notifier{add: full, remove: full, close: func() error { return nil }}, nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, change)
				defer r.End()
				if w := r.Updates()[0].Warning; w == nil || !strings.Contains(w.Error(), "every 30s") || !strings.Contains(w.Error(), "too many open files") {
					t.Errorf("the warning is %v", w)
				}
				r.Sent("1/1s")
				write(t, r.path, set("2/1s"))
				time.Sleep(31 * time.Second)
				if w := r.Updates()[0].Warning; w == nil {
					t.Error("it is watched now")
				}
				r.Sent("2/1s")
			})
		})
	}
}

func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.End()
		synctest.Wait()
		for _, limit := range []string{"1/1s", "2/1s"} {
			write(t, r.path, set(limit))
			do(t, r.Reload(t.Context()))
		}
		list := r.Updates()
		if first := list[0].Revision; len(first) != 24 || list[1].Revision != first || list[2].Revision == first {
			t.Errorf("revisions of %+v", list)
		}
		r.Sent("1/1s", "1/1s", "2/1s")
		write(t, r.path, set("1/60"))
		for range 2 { // the answer is the same as long as the file is, and comes at once
			began := time.Now()
			if err := r.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "1/60") || time.Since(began) != 0 {
				t.Errorf("reloading a mistake: %v after %v", err, time.Since(began))
			}
		}
		do(t, os.Remove(r.path))
		if err := r.Reload(t.Context()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("reloading no file: %v", err)
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	if _, err := New(""); err == nil {
		t.Error("a source of no file is made")
	}
	for _, d := range []time.Duration{-1, 0, time.Millisecond, 25 * time.Hour} {
		if _, err := New("weir.yaml", WithPoll(d)); err == nil {
			t.Errorf("a source that polls every %v is made", d)
		}
	}
}

func TestDirectories(t *testing.T) {
	rule := func(name string) string { return fmt.Sprintf("rules: [{name: %s, limit: 1/1s}]", name) }
	tests := []struct {
		name  string
		files map[string]string
		want  string // names of rules, or a part of the error
	}{
		{"in the order of their names", map[string]string{"b.yaml": rule("b"), "a.yml": rule("z"), "c.yaml": rule("a")}, "z b a"},
		{"others are left alone", map[string]string{"a.yaml": rule("a"), "README.md": "?", "a.yaml.bak": "?", ".#a.yaml": "?", ".a.yaml.swp": "?", "a.test.yaml": "?", "b.test.yml": "?"}, "a"},
		{"none", map[string]string{"README.md": "?"}, "no files of rules"},
		{"one of them without rules", map[string]string{"a.yaml": rule("a"), "b.yaml": "rules: []"}, "a"},
		{"a name twice", map[string]string{"a.yaml": rule("x"), "b.yaml": rule("x")}, `rules.d/b.yaml: rule "x": rules.d/a.yaml has it too; rename one of them`},
		{"mistakes in two", map[string]string{"a.yaml": "rules: 1", "b.yaml": "rulez: 1"}, "rules.d/a.yaml:1:8: rules must be a list"},
		{"limits of one name", map[string]string{"a.yaml": "rules: [{name: x, limit: [1/1s, 9/1m]}]", "b.yaml": rule("x.2")}, `rule "x" of rules.d/a.yaml`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range test.files {
				write(t, filepath.Join(dir, name), text)
			}
			texts, err := (&disk{name: "rules.d"}).read(dir)
			got := ""
			if err == nil {
				file, parseErr := make(cache).whole("rules.d", texts)
				if err = parseErr; err == nil {
					for _, s := range file.Rules {
						got += " " + s.Name
					}
				}
			}
			if err != nil {
				got = err.Error()
			}
			if got = strings.TrimSpace(got); got != test.want && (err == nil || !strings.Contains(filepath.ToSlash(got), test.want)) {
				t.Errorf("it is %q, not %q", got, test.want)
			}
		})
	}
}

// Mistakes of all files are sent at once, but no more than can be read.
func TestMistakesOfManyFilesAreBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range 30 {
		write(t, filepath.Join(dir, fmt.Sprintf("%02d.yaml", i)), "rules:\n"+strings.Repeat("- {}\n", 4))
	}
	texts, err := (&disk{name: "d"}).read(dir)
	do(t, err)
	_, err = make(cache).whole("d", texts)
	text := fmt.Sprint(err)
	if !strings.Contains(text, "00.yaml") || !strings.Contains(text, "11.yaml") || !strings.HasSuffix(text, "and 140 more") {
		t.Errorf("the error is %s", text)
	}
}

func TestNonRegularFilesAreNotRead(t *testing.T) {
	dir := t.TempDir()
	do(t, os.Mkdir(filepath.Join(dir, "a.yaml"), 0o700))
	if _, err := (&disk{name: "d"}).read(dir); err == nil || !strings.Contains(err.Error(), "is no file") {
		t.Errorf("a directory in the directory: %v", err)
	}
	if _, err := (&disk{name: "null"}).read(os.DevNull); err == nil || !strings.Contains(err.Error(), "is no file") {
		t.Errorf("a device: %v", err)
	}
}

func TestDirectoriesAreBounded(t *testing.T) {
	dir := t.TempDir()
	for i := range MaxFiles + 1 {
		write(t, filepath.Join(dir, fmt.Sprint(i, ".yaml")), "")
	}
	if _, err := (&disk{name: "d"}).read(dir); err == nil || !strings.Contains(err.Error(), "too many files") {
		t.Errorf("%d files: %v", MaxFiles+1, err)
	}
}

// A file that is larger than files may be is read no further than to know it.
func TestFilesAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	write(t, path, "")
	do(t, os.Truncate(path, 1<<40)) // it has holes, and takes no room
	texts, err := (&disk{name: "d"}).read(path)
	do(t, err)
	if _, err := make(cache).whole("d", texts); err == nil || !strings.Contains(err.Error(), "over 8388608 bytes") {
		t.Errorf("a file of 1 TiB: %v", err)
	}
}

// A file that is replaced while it is read is read again: half of it may be older.
func TestATornReadingIsNotAccepted(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), set("1/1s"))
	write(t, filepath.Join(dir, "b.yaml"), "rules: []")
	reads := 0
	d := &disk{name: "d", open: func(path string) (*os.File, error) {
		if reads++; reads == 2 {
			do(t, os.Remove(filepath.Join(dir, "a.yaml")))
			write(t, filepath.Join(dir, "a.yaml"), set("100/1s"))
		}
		return os.Open(path)
	}}
	if _, err := d.read(dir); !errors.Is(err, errChanging) {
		t.Errorf("a reading of two times: %v", err)
	}
	reads = 3
	if _, err := d.read(dir); err != nil {
		t.Errorf("a reading of one time: %v", err)
	}
}

// TestOnlyChangedFilesAreParsed: a text that is as it was is the same file as before, and one
// that is gone is forgotten.
func TestOnlyChangedFilesAreParsed(t *testing.T) {
	s := make(cache)
	texts := []text{{name: "a", body: []byte("rules: [{name: a, limit: 1/1m}]")}, {name: "b", body: []byte("rules: [{name: b, limit: 1/1m}]")}}
	if _, err := s.whole("d", texts); err != nil {
		t.Fatal(err)
	}
	a, b := s["a"].file, s["b"].file
	texts[1].body = []byte("rules: [{name: b, limit: 2/1m}]")
	set, err := s.whole("d", texts)
	if err != nil || s["a"].file != a || s["b"].file == b || set.Rules[1].Limit[0] != "2/1m" {
		t.Errorf("%v %v", set, err)
	}
	if _, err := s.whole("d", texts[:1]); err != nil || len(s) != 1 {
		t.Errorf("%v; %d files are kept", err, len(s))
	}
	texts[0].body = []byte("rules: [{name: a}]")
	for range 2 {
		if _, err := s.whole("d", texts[:1]); err == nil {
			t.Error("a mistake is forgotten")
		}
	}
}
