package filesource

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/rules/source"
)

// Ceilings of a directory. A file's own are those of package rules.
const (
	MaxFiles   = 1000               // files of rules
	MaxEntries = 10_000             // files and folders of any kind
	MaxBytes   = 16 * rules.MaxFile // of all files of rules together
)

// errChanging is why a reading is not believed: a part of it may be old and a part new.
var errChanging = errors.New("it changes while it is read")

// A disk reads texts. open is os.Open, unless a test replaces it.
type disk struct {
	name string // what errors call the path
	open func(string) (*os.File, error)
}

// A text is the content of a file, and the file that had it.
type text struct {
	path string
	name string // what errors call it
	body []byte
	info os.FileInfo
}

// read is the file's text, or all texts of a directory, all of one time.
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
			t.name = filepath.Join(d.name, filepath.Base(p))
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

// unchangedTexts checks that the texts are still those that were read.
func unchangedTexts(texts []text) error {
	for _, t := range texts {
		info, err := os.Stat(t.path)
		if err != nil || !same(info, t.info) {
			return fmt.Errorf("%s: %w", t.name, errChanging)
		}
	}
	return nil
}

// same reports whether a file is one that was looked at before, and was not written since.
func same(now, then os.FileInfo) bool {
	return os.SameFile(now, then) && now.Size() == then.Size() && now.ModTime().Equal(then.ModTime())
}

// list is the path, or the files of rules in it, in order.
func (d *disk) list(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	names, err := ruleFiles(path)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s has no files of rules: none that ends in .yaml or .yml; for no rules, write rules: [] into one", d.name)
	}
	for i, name := range names {
		names[i] = filepath.Join(path, name)
	}
	return names, nil
}

// Files are the paths of a directory's files of rules, in order; none of what is no
// directory, or cannot be read.
func Files(dir string) (paths []string) {
	names, err := ruleFiles(dir)
	if err != nil {
		return nil
	}
	for _, name := range names {
		paths = append(paths, filepath.Join(dir, name))
	}
	return paths
}

// ruleFiles are the names of a directory that are files of rules.
func ruleFiles(path string) (names []string, err error) {
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
			names = append(names, name)
		}
	}
	if len(all) > MaxEntries || len(names) > MaxFiles {
		return nil, fmt.Errorf("%s has too many files: at most %d of rules, and %d of any kind", path, MaxFiles, MaxEntries)
	}
	slices.Sort(names)
	return names, nil
}

// isRules leaves alone what begins with a dot: links that editors lock files with, and
// the directories behind a mounted ConfigMap.
func isRules(name string) bool {
	return !strings.HasPrefix(name, ".") && (strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml"))
}

// file reads one file, or a byte more than it may have, which Parse reports.
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

// revisionOf is a hash of the content, of that of the lists, and in a directory of the names.
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

// A cache keeps what was parsed, so that a change of one file of many costs no more than
// that file does. It is for one goroutine.
type cache map[string]parsed

// parsed is what came of a text.
type parsed struct {
	sum   [sha256.Size]byte
	lists lists
	file  *rules.File
	err   error
}

// fill parses those texts that are not on the cache yet, and drops all others: the first time
// as many at once as there are processors, later one after the other, so that one processor
// is left to what goes on meanwhile.
func (s cache) fill(texts []text, compiler *rules.Compiler, opts ...rules.Option) {
	parse, atOnce := rules.Parse, runtime.GOMAXPROCS(0)
	if len(s) > 0 || len(texts) == 1 { // one text is the law, and will be compiled as it is
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
				file, err := parse(t.name, t.body, append(opts[:len(opts):len(opts)], rules.WithFiles(found.recording(t.path)))...)
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

// lists are those that the texts on the cache name.
func (s cache) lists() lists {
	all := make(lists)
	for _, p := range s {
		maps.Copy(all, p.lists)
	}
	return all
}

// parse makes one law of the texts on the cache, or lists the mistakes of all of them.
func (s cache) parse(name string, texts []text, compiler *rules.Compiler) (*rules.File, error) {
	var parts []source.Part
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
		parts = append(parts, source.Part{Name: t.name, File: file})
	}
	if len(mistakes.Problems) > 0 {
		return nil, mistakes
	}
	if len(parts) == 1 {
		return parts[0].File, nil
	}
	merged := source.Merge(parts...)
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

// note lists problems, as many as are listed.
func note(list *rules.Error, problems ...rules.Problem) {
	room := rules.MaxProblems - len(list.Problems)
	if len(problems) > room {
		list.Omitted += len(problems) - room
		problems = problems[:room]
	}
	list.Problems = append(list.Problems, problems...)
}

// twice is the mistake that two files of one directory say the same.
func duplicate(c source.Collision) rules.Problem {
	what, help := fmt.Sprintf("rule %q", c.Rule), "rename one of them, because state lies under the name"
	if c.Field != "" {
		what, help = c.Field, "leave it to one of them"
	}
	return rules.Problem{File: c.Winner, Field: what, Message: fmt.Sprintf("it stands in %s too; %s", c.Loser, help)}
}
