package filesource

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

// Maxima of a directory. Those of a file are in package rules.
const (
	MaxFiles   = 1000               // files of rules
	MaxEntries = 10_000             // files and folders of any kind
	MaxBytes   = 16 * rules.MaxFile // of all files of rules together
)

// errChanging is the reason for dropping a reading: a part of it may be old and a part new.
var errChanging = errors.New("it changes while it is read")

// A disk reads texts. open is os.Open, or a replacement in tests.
type disk struct {
	name   string // of the path, in errors
	format format
	open   func(string) (*os.File, error)
}

// A format says which files of a directory count. The zero format is that of rules.
type format struct {
	named func(name string) bool // of files and folders
	parse func([]Text) (*rules.File, error)
}

func (f *format) isFile(name string) bool {
	if f.named == nil {
		return isRules(name)
	}
	return f.named(name)
}

func (f *format) files(dir string) ([]string, error) {
	if f.named == nil {
		return Files(dir)
	}
	return within(dir, f.named)
}

// A text is the content of a file.
type text struct {
	path string
	name string // in errors
	body []byte
	info os.FileInfo
}

// read returns the file's text, or all texts of a directory at one time.
func (d *disk) read(path string) ([]text, error) {
	paths, err := d.list(path)
	if err != nil {
		return nil, err
	}
	var texts []text
	size := 0
	for _, p := range paths {
		t, err := d.file(p)
		if err != nil {
			return nil, err
		}
		if t.name = d.name; p != path {
			t.name = filepath.Join(d.name, strings.TrimPrefix(p, path))
		}
		if size += len(t.body); size > MaxBytes {
			return nil, fmt.Errorf("the files of %s have over %d bytes together; that is too much", d.name, MaxBytes)
		}
		texts = append(texts, t)
	}
	if err := unchangedTexts(texts); err != nil {
		return nil, err
	}
	if now, err := d.list(path); err != nil || !slices.Equal(now, paths) {
		return nil, fmt.Errorf("%s: %w", d.name, errChanging)
	}
	return texts, nil
}

// unchangedTexts checks that the files have not changed since they were read.
func unchangedTexts(texts []text) error {
	for _, t := range texts {
		info, err := os.Stat(t.path)
		if err != nil || !same(info, t.info) {
			return fmt.Errorf("%s: %w", t.name, errChanging)
		}
	}
	return nil
}

// same reports whether a file is the same one, and was not written since.
func same(now, then os.FileInfo) bool {
	return os.SameFile(now, then) && now.Size() == then.Size() && now.ModTime().Equal(then.ModTime())
}

// list returns the path, or the files of rules in it, in order.
func (d *disk) list(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	paths, err := d.format.files(path)
	switch {
	case err != nil || len(paths) > 0:
		return paths, err
	case d.format.parse != nil:
		return nil, fmt.Errorf("%s has no files", d.name)
	}
	return nil, fmt.Errorf("%s has no files of rules: none that ends in .yaml or .yml; "+
		"for no rules, write rules: [] into one", d.name)
}

// Files returns the paths of a directory's files of rules, in order.
func Files(path string) (paths []string, err error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	all, err := dir.Readdirnames(MaxEntries + 1)
	if err != nil && err != io.EOF {
		return nil, err
	}
	for _, name := range all {
		if isRules(name) {
			paths = append(paths, filepath.Join(path, name))
		}
	}
	if len(all) > MaxEntries || len(paths) > MaxFiles {
		return nil, fmt.Errorf("%s has too many files: at most %d of rules, and %d of any kind", path, MaxFiles,
			MaxEntries)
	}
	slices.Sort(paths)
	return paths, nil
}

// within returns the paths of the files in a directory and in its folders whose names are so, in order.
func within(path string, named func(string) bool) (paths []string, err error) {
	entries, root := 0, path+string(filepath.Separator) // which is followed if it is a link
	err = filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		if entries++; entries > MaxEntries || len(paths) > MaxFiles {
			return fmt.Errorf("%s has too many files: at most %d, and %d of any kind", path, MaxFiles, MaxEntries)
		}
		switch {
		case err != nil || at == root:
			return err
		case !named(d.Name()) && d.IsDir():
			return fs.SkipDir
		case named(d.Name()) && !d.IsDir() && !leadsToDir(at):
			paths = append(paths, at)
		}
		return nil
	})
	return paths, err
}

// leadsToDir reports whether a link is one to a directory. Links in a circle would have no end.
func leadsToDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// isRules excludes names that begin with a dot: links that editors lock files with, and the
// directories behind a mounted ConfigMap. Files of weir test may lie beside the rules.
func isRules(name string) bool {
	stem, isYAML := strings.CutSuffix(name, ".yaml")
	if !isYAML {
		stem, isYAML = strings.CutSuffix(name, ".yml")
	}
	return isYAML && !strings.HasPrefix(name, ".") && !strings.HasSuffix(stem, ".test")
}

// file reads one file, and at most one byte more than allowed, which Parse reports.
func (d *disk) file(path string) (t text, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return t, err
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait for its writer
		return t, fmt.Errorf("%s is no file", path)
	}
	open := d.open
	if open == nil {
		open = os.Open
	}
	f, err := open(path)
	if err != nil {
		return t, err
	}
	defer f.Close()
	t.path = path
	if t.info, err = f.Stat(); err != nil {
		return t, err
	}
	t.body, err = io.ReadAll(io.LimitReader(f, rules.MaxFile+1))
	return t, err
}

// revisionOf returns a hash of the texts, of the lists, and in a directory of the names.
func revisionOf(texts []text, lists lists) string {
	h := sha256.New()
	for _, t := range texts {
		if len(texts) > 1 {
			fmt.Fprintf(h, "%q %d\n", filepath.Base(t.path), len(t.body))
		}
		h.Write(t.body)
	}
	for _, path := range slices.Sorted(maps.Keys(lists)) {
		fmt.Fprintf(h, "\n%q %x", filepath.Base(path), lists[path])
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// A cache keeps parsed texts, so that a change of one file of many parses that file only. It is for
// one goroutine.
type cache map[string]parsed

// parsed is the result of a text.
type parsed struct {
	sum   [sha256.Size]byte
	lists lists
	file  *rules.File
	err   error
}

// fill parses the texts that are not cached, and drops all others: the first time as many at once as
// there are processors, later sequentially, so that one processor is left to decisions.
func (s cache) fill(texts []text, compiler *rules.Compiler) {
	parse, atOnce := rules.Parse, runtime.GOMAXPROCS(0)
	if len(s) > 0 || len(texts) == 1 { // a single text is the rule set, and will be compiled as it is
		parse, atOnce = compiler.Parse, 1
	}
	results := make([]parsed, len(texts))
	var all sync.WaitGroup
	room := make(chan bool, atOnce)
	for i, t := range texts {
		results[i] = s[t.name]
		if sum := sha256.Sum256(t.body); results[i].sum != sum || !results[i].lists.unchanged(filepath.Dir(t.path)) {
			room <- true
			all.Go(func() {
				found := make(lists)
				file, err := parse(t.name, t.body, rules.WithFiles(found.recording(t.path)))
				results[i] = parsed{sum, found, file, err}
				<-room
			})
		}
	}
	all.Wait()
	clear(s)
	for i, t := range texts {
		s[t.name] = results[i]
	}
}

// lists returns the lists that the cached texts name.
func (s cache) lists() lists {
	all := make(lists)
	for _, p := range s {
		maps.Copy(all, p.lists)
	}
	return all
}

// parse merges the cached texts, or lists the mistakes of all of them.
func (s cache) parse(name string, texts []text, compiler *rules.Compiler) (*rules.File, error) {
	var parts []ruleset.Part
	mistakes := new(rules.Error)
	for _, t := range texts {
		file, err := s[t.name].file, s[t.name].err
		var list *rules.Error
		switch {
		case errors.As(err, &list):
			note(mistakes, list.Problems...)
			mistakes.Omitted += list.Omitted
		case err != nil:
			return nil, err
		}
		parts = append(parts, ruleset.Part{Name: t.name, File: file})
	}
	if len(mistakes.Problems) > 0 {
		return nil, mistakes
	}
	if len(parts) == 1 {
		return parts[0].File, nil
	}
	merged := ruleset.Merge(parts...)
	for _, c := range merged.Collisions {
		note(mistakes, duplicate(c))
	}
	if len(mistakes.Problems) > 0 {
		return nil, mistakes
	}
	merged.File.Name = name
	if _, err := compiler.Compile(merged.File); err != nil {
		return nil, merged.Locate(err)
	}
	return merged.File, nil
}

// note appends problems up to the maximum.
func note(list *rules.Error, problems ...rules.Problem) {
	room := bounds.Problems - len(list.Problems)
	if len(problems) > room {
		list.Omitted += len(problems) - room
		problems = problems[:room]
	}
	list.Problems = append(list.Problems, problems...)
}

// duplicate is the mistake that two files of one directory have the same rule or field.
func duplicate(c ruleset.Collision) rules.Problem {
	what, help := fmt.Sprintf("rule %q", c.Rule), "rename one of them, because state is stored under the name"
	if c.Field != "" {
		what, help = c.Field, "leave it to one of them"
	}
	return rules.Problem{File: c.Winner, Field: what, Message: fmt.Sprintf("%s has it too; %s", c.Loser, help)}
}
