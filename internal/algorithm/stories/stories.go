// Package stories runs the stories of the algorithms, the testdata/*.txt of their folders, on a
// store. A story reads without the code, and holds for every store: for the Go twins and the
// Lua twins alike.
//
//	story: a full bucket grants its burst at once
//	limit: 10/1s
//	at 0s: take 10
//	  granted 1 of 1, remaining 0, retry after 1s, reset after 1s
//
// A story begins with its title and ends at the next. A limit line sets the numbers, or
// changes them midway. A step has a time (a duration since the story's midnight, or RFC 3339)
// and an operation; the indented line below is the answer:
//
//	take N [times K]     ask for K requests of N units
//	peek N               ask, and take nothing
//	charge N             take N units without a decision
//	settle N             the same, to correct an earlier charge
//	refund N taken T     give back N units taken at T
//	... delay D          of a grant with the delay D
//	acquire ID N         hold N units as a lease
//	renew ID, release ID
//	... floor F          of a take, peek, acquire or renew: leave F units to others
//	reset                forget the key
//	... by NAME          of a fair limit: the member, perhaps with weight N
//
// Lines that begin with # are comments. After an intended change,
//
//	go test ./memstore -run TestStories -args -rewrite
//
// writes the answers of the Go twins; review them as you would review code.
package stories

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirproject/weir"
)

// NewStore makes a store that is driven by the given clock. It is called once a story;
// stories use different keys, so that the stores may share a server.
type NewStore func(t testing.TB, now func() weir.Instant) weir.Store

// folders are the algorithms that have stories.
func folders(t testing.TB) (names []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(moduleRoot(t), "internal", "algorithm", "*", "testdata"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, path := range paths {
		names = append(names, filepath.Base(filepath.Dir(path)))
	}
	return names
}

// Run runs the stories of the given folders, or of all, on a store, and fails with the
// difference between its answers and the written ones.
func Run(t *testing.T, newStore NewStore, only ...string) {
	t.Helper()
	if len(only) == 0 {
		only = folders(t)
	}
	for _, folder := range only {
		for _, path := range files(t, folder) {
			for _, s := range read(t, path) {
				t.Run(folder+"/"+s.title, func(t *testing.T) { s.check(t, newStore) })
			}
		}
	}
}

// Rewrite writes a store's answers into the stories of all folders. Review them as you
// would review code.
func Rewrite(t *testing.T, newStore NewStore) {
	t.Helper()
	for _, folder := range folders(t) {
		for _, path := range files(t, folder) {
			var text strings.Builder
			for _, s := range read(t, path) {
				text.WriteString(s.play(t, newStore))
			}
			if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// files are a folder's stories. The test may run in any package of the module.
func files(t testing.TB, folder string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(moduleRoot(t), "internal", "algorithm", folder, "testdata", "*.txt"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no stories in %s: %v", folder, err)
	}
	return paths
}

// moduleRoot is the nearest parent directory that has a go.mod.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	t.Fatal("no go.mod above this test: stories are read from the module's source")
	return ""
}

// A story is the lines of a file from one title to the next.
type story struct {
	file  string
	first int // the number of its first line
	title string
	text  string
}

// read splits a file at its titles. Text before the first title belongs to the first story.
func read(t testing.TB, path string) []story {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(filepath.Base(filepath.Dir(filepath.Dir(path))), "testdata", filepath.Base(path))
	var stories []story
	next := story{file: file, first: 1}
	for i, line := range strings.SplitAfter(string(text), "\n") {
		title, begins := strings.CutPrefix(line, "story: ")
		if begins && next.title != "" {
			stories = append(stories, next)
			next = story{file: file, first: i + 1}
		}
		if begins {
			next.title = strings.TrimSpace(title)
		}
		next.text += line
	}
	return append(stories, next)
}

func (s story) check(t *testing.T, newStore NewStore) {
	if got := s.play(t, newStore); got != s.text {
		t.Errorf("%s:%d: the answers differ (- as written, + as the store answers):\n%s",
			s.file, s.first, difference(s.text, got))
	}
}

// difference marks the answers that differ. The lines between them are the same.
func difference(want, got string) string {
	var text strings.Builder
	wants, gots := strings.Split(want, "\n"), strings.Split(got, "\n")
	for len(wants) > 0 || len(gots) > 0 {
		if len(wants) > 0 && len(gots) > 0 && wants[0] == gots[0] {
			text.WriteString("  " + wants[0] + "\n")
			wants, gots = wants[1:], gots[1:]
			continue
		}
		wants = mark(&text, "- ", wants)
		gots = mark(&text, "+ ", gots)
	}
	return text.String()
}

// mark writes the answers that lines begin with, and returns the rest.
func mark(text *strings.Builder, sign string, lines []string) []string {
	for len(lines) > 0 && isAnswer(lines[0]) {
		text.WriteString(sign + lines[0] + "\n")
		lines = lines[1:]
	}
	return lines
}

func isAnswer(line string) bool { return strings.HasPrefix(line, "  ") }
