package filesource

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// A notifier reports changes in directories: fsnotify, or a fake in tests.
type notifier struct {
	add, remove func(dir string) error
	close       func() error
	events      <-chan fsnotify.Event
	lost        <-chan error
}

func newNotifier() (*notifier, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	return &notifier{add: w.Add, remove: w.Remove, close: w.Close, events: w.Events, lost: w.Errors}, nil
}

// A watch covers all directories on a path.
type watch struct {
	*notifier
	format format
	dirs   map[string]*watched
}

// A watched directory, and the names in it that matter.
type watched struct {
	info  os.FileInfo // nil: it is not watched yet
	err   error       // why it cannot be watched
	names map[string]bool
	rules bool // all files of rules matter
}

// concerns reports whether an event can concern the rules. Events of a directory itself matter in
// its parent.
func (w *watch) concerns(e fsnotify.Event) bool {
	dir := w.dirs[filepath.Dir(e.Name)]
	name := filepath.Base(e.Name)
	return dir != nil && (dir.names[name] || dir.rules && w.format.isFile(name))
}

// follow watches the directories on the current path of the rules and lists, and no others. The
// error is the one of the last directory, which has the rules: without the others only the
// replacement of a whole directory is noticed later.
func (w *watch) follow(path string, lists ...string) error {
	before := w.dirs
	w.dirs = make(map[string]*watched)
	end, err := w.walk(path, before)
	if info, statErr := os.Stat(end); statErr == nil && info.IsDir() {
		dir := w.visit(end, before)
		dir.rules = true
		err = dir.err
		paths, _ := w.format.files(end) // reading reports errors
		for _, path := range paths {
			w.visit(filepath.Dir(path), before).rules = true
			if _, entryErr := w.walk(path, before); entryErr != nil {
				err = entryErr
			}
		}
	}
	for _, list := range lists {
		if _, listErr := w.walk(list, before); listErr != nil && !errors.Is(listErr, os.ErrNotExist) {
			err = listErr
		}
	}
	for path := range before {
		if w.dirs[path] == nil {
			w.remove(path) // an error means that it is gone already
		}
	}
	return err
}

// maxLinks is the number of links on a path, as for the kernel.
const maxLinks = 40

// walk watches each directory on a path before it looks at the next element, so that no change is
// missed. It returns the end of the path, as far as it exists.
func (w *watch) walk(path string, before map[string]*watched) (end string, err error) {
	root := filepath.VolumeName(path) + string(filepath.Separator)
	end, rest := root, parts(path)
	for links := 0; len(rest) > 0; {
		dir := w.visit(end, before)
		dir.names[rest[0]] = true
		err = dir.err
		next := filepath.Join(end, rest[0])
		info, statErr := os.Lstat(next)
		if statErr != nil {
			return next, err
		}
		rest = rest[1:]
		if info.Mode()&os.ModeSymlink == 0 {
			end = next
			continue
		}
		target, linkErr := os.Readlink(next)
		if links++; linkErr != nil || links > maxLinks {
			return next, errors.Join(err, linkErr)
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(end, target)
		}
		end, rest = root, append(parts(filepath.Clean(target)), rest...)
	}
	return end, err
}

func parts(path string) []string {
	return strings.FieldsFunc(strings.TrimPrefix(path, filepath.VolumeName(path)),
		func(c rune) bool { return os.IsPathSeparator(uint8(c)) })
}

// visit makes sure that the current directory of that name is watched, not one that had the name
// before.
func (w *watch) visit(path string, before map[string]*watched) *watched {
	if dir := w.dirs[path]; dir != nil {
		return dir
	}
	dir := &watched{names: make(map[string]bool)}
	w.dirs[path] = dir
	if dir.info, dir.err = os.Stat(path); dir.err != nil {
		return dir
	}
	if old := before[path]; old != nil && old.info != nil && !os.SameFile(old.info, dir.info) {
		w.remove(path)
	}
	dir.err = w.add(path)
	return dir
}
