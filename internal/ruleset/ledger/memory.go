package ledger

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

// Memory is a Backend of one process, for a server without Redis. With a file it survives a restart.
type Memory struct {
	mu      sync.Mutex
	entries map[string]Change
	history []Change // the oldest first
	watch   map[chan struct{}]bool

	path string   // "": no file
	file *os.File // open for appending
	size int64    // expected size of the file
}

// A line is a change in the file.
type line struct {
	Name string `json:"name"`
	Is   string `json:"is"` // as Decode reads it
}

// NewMemory makes a backend. With a path it reads the file there, or creates one, and writes every
// change to it before making it. Only one process at a time may use the file.
func NewMemory(path string) (*Memory, error) {
	m := &Memory{entries: make(map[string]Change), watch: make(map[chan struct{}]bool), path: path}
	if path == "" {
		return m, nil
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	m.file = file
	if err := m.load(); err != nil {
		file.Close()
		return nil, fmt.Errorf("ledger: %s: %w", path, err)
	}
	return m, nil
}

// ReadMemory makes a backend with the entries in the file of another process. Changes are not
// written to the file.
func ReadMemory(path string) (*Memory, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	defer file.Close()
	m := &Memory{entries: make(map[string]Change), watch: make(map[chan struct{}]bool)}
	if _, err := m.read(file); err != nil {
		return nil, fmt.Errorf("ledger: %s: %w", path, err)
	}
	return m, nil
}

// Close closes the file.
func (m *Memory) Close() error {
	if m.file == nil {
		return nil
	}
	return m.file.Close()
}

// load reads the file, and compacts it or removes an incomplete last line.
func (m *Memory) load() error {
	lines, err := m.read(m.file)
	switch {
	case err != nil:
		return err
	case lines > 2*MaxKept:
		return m.compact()
	}
	return m.file.Truncate(m.size)
}

// read reads lines. An incomplete last line is a change that was interrupted, and was not made.
func (m *Memory) read(file io.Reader) (lines int, err error) {
	in := bufio.NewReader(file)
	for ; ; lines++ {
		text, err := in.ReadBytes('\n')
		if err == io.EOF {
			return lines, nil
		}
		if err != nil {
			return lines, err
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return lines, fmt.Errorf("line %d is not what a ledger writes; put it right, or move the file away",
				lines+1)
		}
		c, err := Decode(l.Name, l.Is)
		if err != nil {
			return lines, fmt.Errorf("line %d: %w", lines+1, err)
		}
		m.apply(c)
		m.size += int64(len(text))
	}
}

func (m *Memory) apply(c Change) {
	m.history = append(m.history, c)
	if len(m.history) > 2*MaxKept {
		m.history = slices.Clone(m.history[MaxKept:])
	}
	if c.Deleted {
		delete(m.entries, c.Name)
	} else {
		m.entries[c.Name] = c
	}
}

// compact rewrites the file: first the entries whose changes are dropped from the history.
func (m *Memory) compact() error {
	kept := m.history[max(0, len(m.history)-MaxKept):]
	var out bytes.Buffer
	var old []Change
	for _, c := range m.entries {
		if c.Revision < kept[0].Revision {
			old = append(old, c)
		}
	}
	slices.SortFunc(old, func(a, b Change) int { return cmp.Compare(a.Revision, b.Revision) })
	for i := range old {
		out.Write(lineOf(&old[i]))
	}
	for i := range kept {
		out.Write(lineOf(&kept[i]))
	}
	temporary := filepath.Join(filepath.Dir(m.path), "."+filepath.Base(m.path)+".new")
	if err := writeSynced(temporary, out.Bytes()); err != nil {
		return err
	}
	if err := os.Rename(temporary, m.path); err != nil {
		return err
	}
	m.file.Close()
	file, err := os.OpenFile(m.path, os.O_RDWR|os.O_APPEND, 0o600)
	m.file, m.size = file, int64(out.Len())
	return err
}

// writeSynced writes a file that will be renamed over another: without the sync a machine that loses
// power may come back with the new name and none of the bytes.
func writeSynced(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

func lineOf(c *Change) []byte {
	d := Draft{payload: payload{YAML: c.YAML, Enabled: c.Enabled, Deleted: c.Deleted, What: c.What, Key: c.Key},
		by: c.Author}
	if c.Exception != nil {
		d.Exception = textOf(c.Exception)
	}
	text, err := json.Marshal(line{c.Name, fmt.Sprintf("%d %d %s", c.Revision, c.When.UnixMicro(), d.Text())})
	if err != nil { // two strings always marshal
		panic(err)
	}
	return append(text, '\n')
}

// Read implements Backend.
func (m *Memory) Read(context.Context) (*Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	snapshot := &Snapshot{Revision: m.revision(), Now: time.Now()}
	for _, c := range m.entries {
		snapshot.Entries = append(snapshot.Entries, c)
	}
	return snapshot, nil
}

func (m *Memory) revision() int64 {
	if len(m.history) == 0 {
		return 0
	}
	return m.history[len(m.history)-1].Revision
}

// Get implements Backend.
func (m *Memory) Get(_ context.Context, name string) (Change, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.entries[name]
	if !ok {
		return c, fmt.Errorf("ledger: rule %.80q: %w", name, ErrNoRule)
	}
	return c, nil
}

// Commit implements Backend.
func (m *Memory) Commit(_ context.Context, d Draft) (revision int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	is, snapshot := m.entries[d.Name]
	switch {
	case is.Revision != d.Seen:
		return 0, &ConflictError{Name: d.Name, Seen: d.Seen, Is: is.Revision}
	case !snapshot && !d.Gone() && len(m.entries) >= rules.MaxRules:
		return 0, &weir.InputError{Field: "rules", Given: rules.MaxRules + 1,
			Allowed: fmt.Sprint("at most ", rules.MaxRules)}
	}
	revision = m.revision() + 1
	c, err := Decode(d.Name, fmt.Sprintf("%d %d %s", revision, time.Now().UnixMicro(), d.Text()))
	if err != nil {
		return 0, err
	}
	if err := m.write(&c); err != nil {
		return 0, err
	}
	m.apply(c)
	if !snapshot && d.Gone() { // a note changes no entry
		return revision, nil
	}
	for wake := range m.watch {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	return revision, nil
}

var errTwoWriters = errors.New("somebody else writes it too, and each would lose what the other wrote: one server " +
	"alone may have the file; share a Redis instead")

// write appends a change to the file before it is made.
func (m *Memory) write(c *Change) error {
	if m.file == nil {
		return nil
	}
	info, err := m.file.Stat()
	if err == nil && info.Size() != m.size {
		err = errTwoWriters
	}
	text := lineOf(c)
	if err == nil {
		_, err = m.file.Write(text)
	}
	if err == nil {
		err = m.file.Sync()
	}
	if err != nil {
		if !errors.Is(err, errTwoWriters) {
			_ = m.file.Truncate(m.size) // removes an incomplete line
		}
		return fmt.Errorf("ledger: %s: %w; the change was not made", m.path, err)
	}
	m.size += int64(len(text))
	return nil
}

// Page implements Backend.
func (m *Memory) Page(_ context.Context, from, to int64) (list []Change, more bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range slices.Backward(m.history) {
		if (from == 0 || c.Revision <= from) && c.Revision >= to {
			list = append(list, c)
		}
	}
	return list, false, nil
}

// Source returns a source of the enabled rules and the exceptions.
func (m *Memory) Source() ruleset.Source {
	return &memorySource{memory: m, reloads: ruleset.NewReloadQueue()}
}

type memorySource struct {
	memory  *Memory
	reloads ruleset.ReloadQueue

	rules []rules.Spec // as sent last
}

// Reload implements ruleset.Reloader.
func (s *memorySource) Reload(ctx context.Context) (string, error) { return s.reloads.Reload(ctx) }

// Run implements ruleset.Source.
func (s *memorySource) Run(ctx context.Context, updates chan<- ruleset.Update) error {
	return Expire(ctx, s.run, updates)
}

func (s *memorySource) run(ctx context.Context, updates chan<- ruleset.Update) error {
	wake := make(chan struct{}, 1)
	s.memory.mu.Lock()
	s.memory.watch[wake] = true
	s.memory.mu.Unlock()
	defer func() {
		s.memory.mu.Lock()
		delete(s.memory.watch, wake)
		s.memory.mu.Unlock()
	}()
	updates <- s.update(ctx)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake:
			updates <- s.update(ctx)
		case first := <-s.reloads.Requests():
			n := s.update(ctx)
			n.Done = ruleset.Answer(s.reloads.Drain(first), n.Revision)
			updates <- n
		}
	}
}

func (s *memorySource) update(ctx context.Context) ruleset.Update {
	snapshot, err := s.memory.Read(ctx)
	if err != nil {
		return ruleset.Update{Err: err}
	}
	file := &rules.File{Name: "ledger"}
	var wrong []error
	for _, c := range snapshot.Entries {
		if c.Exception != nil {
			continue
		}
		if !c.Enabled {
			file.Disabled = append(file.Disabled, c.Name)
			continue
		}
		spec, err := ParseDocument(c.Name, c.YAML)
		if err != nil { // Set had accepted it in another version of weir; the others stay in force
			wrong = append(wrong, fmt.Errorf("rule %s is not in force: %w", c.Name, err))
			continue
		}
		file.Rules = append(file.Rules, spec)
	}
	slices.SortFunc(file.Rules, func(a, b rules.Spec) int { return strings.Compare(a.Name, b.Name) })
	// Rules in the same memory are known to be equal: then a change of exceptions compiles nothing.
	if reflect.DeepEqual(s.rules, file.Rules) {
		file.Rules = s.rules
	}
	s.rules = file.Rules
	slices.Sort(file.Disabled)
	file.Exceptions = ExceptionsOf(snapshot.Entries, snapshot.Now, snapshot.Now)
	return ruleset.Update{File: file, Revision: fmt.Sprint(snapshot.Revision), Warning: errors.Join(wrong...)}
}
