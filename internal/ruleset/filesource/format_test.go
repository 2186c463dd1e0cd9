package filesource

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirproject/weir/rules"
)

// limitsOf makes a rule of each file: its name is the file's, its limit the file's text.
func limitsOf(texts []Text) (*rules.File, error) {
	file := new(rules.File)
	for _, t := range texts {
		if strings.TrimSpace(string(t.Body)) == "bad" {
			return nil, fmt.Errorf("%s is bad", t.Name)
		}
		file.Rules = append(file.Rules, rules.Spec{Name: filepath.Base(t.Name), Limit: []string{string(t.Body)}})
	}
	return file, nil
}

// TestFormatReadsFolders of a directory, in the order of paths, and sees each change in them.
func TestFormatReadsFolders(t *testing.T) {
	t.Parallel()
	dir := in(t.TempDir(), "config")
	mkdir(t, in(dir, "deep"))
	mkdir(t, in(dir, ".git"))
	write(t, in(dir, "b.conf"), "2/1s")
	write(t, in(dir, ".hidden"), "bad")
	write(t, in(dir, ".git", "config"), "bad")
	write(t, in(dir, "deep", "a"), "1/1s")
	st := newStand(t, dir, WithFormat(false, limitsOf))
	st.expect("b.conf 2/1s; a 1/1s")
	write(t, in(dir, "deep", "a"), "3/1s")
	st.expect("b.conf 2/1s; a 3/1s")
	write(t, in(dir, "deep", "new"), "4/1s")
	st.expect("b.conf 2/1s; a 3/1s; new 4/1s")
	mkdir(t, in(dir, "other"))
	write(t, in(dir, "deep", "new"), "bad")
	st.sent("new is bad")
	write(t, in(dir, "other", "z"), "5/1s")
	do(t, os.Remove(in(dir, "deep", "new")))
	st.expect("b.conf 2/1s; a 3/1s; z 5/1s")
}

// TestFormatReadsDotFiles where it is told to, but never those behind a ConfigMap, which it would read twice.
func TestFormatReadsDotFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	configMap(t, dir)
	write(t, in(dir, "..one", "weir.yaml"), "1/1s")
	write(t, in(dir, ".more"), "9/1s")
	st := newStand(t, dir, WithFormat(true, limitsOf))
	st.expect(".more 9/1s; weir.yaml 1/1s")
	mkdir(t, in(dir, "..two"))
	write(t, in(dir, "..two", "weir.yaml"), "2/1s")
	do(t, os.Symlink("..two", in(dir, "..data_tmp")))
	do(t, os.Rename(in(dir, "..data_tmp"), in(dir, "..data")))
	do(t, os.RemoveAll(in(dir, "..one")))
	st.expect(".more 9/1s; weir.yaml 2/1s")
}

// TestFormatFollowsTheRoot where it is a link that is replaced, as releases are.
func TestFormatFollowsTheRoot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i, release := range []string{"one", "two"} {
		mkdir(t, in(dir, release, "app"))
		write(t, in(dir, release, "app", "x"), fmt.Sprint(i+1, "/1s"))
	}
	do(t, os.Symlink("one", in(dir, "current")))
	st := newStand(t, in(dir, "current", "app"), WithFormat(false, limitsOf))
	st.expect("x 1/1s")
	do(t, os.Symlink("two", in(dir, "next")))
	do(t, os.Rename(in(dir, "next"), in(dir, "current")))
	st.expect("x 2/1s")
	link := in(dir, "link")
	do(t, os.Symlink(in("current", "app"), link))
	newStand(t, link, WithFormat(false, limitsOf)).expect("x 2/1s")
}

// TestFormatWithoutFiles: no advice about files of rules, which the format has not.
func TestFormatWithoutFiles(t *testing.T) {
	t.Parallel()
	dir := in(t.TempDir(), "config")
	mkdir(t, dir)
	source, err := New(dir, WithFormat(false, limitsOf))
	do(t, err)
	t.Cleanup(source.Close)
	if n := source.Load(t.Context(), true); n.Err == nil || !strings.HasSuffix(n.Err.Error(), "config has no files") {
		t.Error(n.Err)
	}
}
