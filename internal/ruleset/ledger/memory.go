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
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

// Memory is a Backend of one process, for a server without Redis. With a file it survives a restart.
type Memory struct {
	mu      sync.Mutex
	values  map[string]string // by name, as Decode reads them
	history []line            // the oldest first
	changed chan struct{}     // closed when an entry changes
	ledger  *Ledger           // that sources write with; nil: none was made

	path string   // "": no file
	file *os.File // open for appending
	size int64    // expected size of the file
}

// A line is a change in the history, and in the file.
type line struct {
	Name string `json:"name"`
	Is   string `json:"is"` // as Decode reads it
}

// NewMemory makes a backend. With a path it reads the file there, or creates one, and writes every
// change to it before making it. Only one process at a time may use the file.
func NewMemory(path string) (*Memory, error) {
	m := &Memory{values: make(map[string]string), changed: make(chan struct{}), path: path}
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
	m := &Memory{values: make(map[string]string), changed: make(chan struct{})}
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
		m.apply(l, c.Deleted)
		m.size += int64(len(text))
	}
}

func (m *Memory) apply(l line, deleted bool) {
	m.history = append(m.history, l)
	if len(m.history) > 2*MaxKept {
		m.history = slices.Clone(m.history[MaxKept:])
	}
	if deleted {
		delete(m.values, l.Name)
	} else {
		m.values[l.Name] = l.Is
	}
}

// compact rewrites the file: first the entries that lose their changes in the history.
func (m *Memory) compact() error {
	kept := m.history[max(0, len(m.history)-MaxKept):]
	var old []line
	for name, value := range m.values {
		if RevisionOf(value) < RevisionOf(kept[0].Is) {
			old = append(old, line{name, value})
		}
	}
	slices.SortFunc(old, func(a, b line) int { return cmp.Compare(RevisionOf(a.Is), RevisionOf(b.Is)) })
	var out bytes.Buffer
	for _, l := range append(old, kept...) {
		out.Write(l.text())
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

// writeSynced writes a file that will be renamed over another: without the sync a machine that loses power may come
// back with the new name and without the bytes.
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

func (l line) text() []byte {
	text, err := json.Marshal(l)
	if err != nil { // two strings always marshal
		panic(err)
	}
	return append(text, '\n')
}

// Read implements Backend.
func (m *Memory) Read(context.Context) (*Snapshot, error) {
	snapshot, _ := m.snapshot()
	return snapshot, nil
}

// snapshot also returns a channel that is closed when the entries change.
func (m *Memory) snapshot() (*Snapshot, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	return &Snapshot{Revision: m.revision(), Now: now, Read: now, Values: maps.Clone(m.values)}, m.changed
}

func (m *Memory) revision() int64 {
	if len(m.history) == 0 {
		return 0
	}
	return RevisionOf(m.history[len(m.history)-1].Is)
}

// Get implements Backend.
func (m *Memory) Get(_ context.Context, name string) (Change, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok := m.values[name]
	if !ok {
		return Change{}, fmt.Errorf("ledger: rule %.80q: %w", name, ErrNoRule)
	}
	return Decode(name, value)
}

// Commit implements Backend.
func (m *Memory) Commit(_ context.Context, c Change, seen int64) (revision int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, held := m.values[c.Name]
	switch is := RevisionOf(value); {
	case is != seen:
		return 0, &ConflictError{Name: c.Name, Seen: seen, Is: is}
	case !held && !c.Deleted && len(m.values) >= rules.MaxRules:
		return 0, &weir.InputError{Field: "rules", Given: rules.MaxRules + 1,
			Allowed: fmt.Sprint("at most ", rules.MaxRules)}
	}
	revision = m.revision() + 1
	l := line{c.Name, fmt.Sprintf("%d %d %s", revision, time.Now().UnixMicro(), c.Text())}
	if _, err := Decode(l.Name, l.Is); err != nil {
		return 0, err
	}
	if err := m.write(l); err != nil {
		return 0, err
	}
	m.apply(l, c.Deleted)
	if held || !c.Deleted { // a note changes no entry
		close(m.changed)
		m.changed = make(chan struct{})
	}
	return revision, nil
}

var errTwoWriters = errors.New("another process writes it too, and each would lose what the other wrote: one server " +
	"alone may have the file; share a Redis instead")

// ErrReplaced means that another file is at the path of the ledger: changes would be lost at the next start.
var ErrReplaced = errors.New("another file is at this path, or none: an editor, a copy or a restore replaced it, and " +
	"the next start would not have the change; restart the server to use what is there, or move its own file back")

// writable checks that the next start reads the file that is open.
func (m *Memory) writable() error {
	info, err := m.file.Stat()
	if err != nil {
		return err
	}
	if at, err := os.Stat(m.path); err != nil || !os.SameFile(info, at) {
		return ErrReplaced
	}
	if info.Size() != m.size {
		return errTwoWriters
	}
	return nil
}

// write appends a change to the file before it is made.
func (m *Memory) write(l line) error {
	if m.file == nil {
		return nil
	}
	if err := m.writable(); err != nil {
		return fmt.Errorf("ledger: %s: %w; the change was not made", m.path, err)
	}
	text := l.text()
	_, err := m.file.Write(text)
	if err == nil {
		err = m.file.Sync()
	}
	if err != nil {
		_ = m.file.Truncate(m.size) // removes an incomplete line
		return fmt.Errorf("ledger: %s: %w; the change was not made", m.path, err)
	}
	m.size += int64(len(text))
	return nil
}

// Page implements Backend.
func (m *Memory) Page(_ context.Context, from, to int64) (list []Change, more bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range slices.Backward(m.history) {
		revision := RevisionOf(l.Is)
		if from > 0 && revision > from || revision < to {
			continue
		}
		if len(list) == HistoryPage {
			return list, true, nil
		}
		c, err := Decode(l.Name, l.Is)
		if err != nil {
			return nil, false, err
		}
		list = append(list, c)
	}
	return list, false, nil
}

// Source returns a source of the enabled rules and the exceptions.
func (m *Memory) Source() ruleset.Source { return &memorySource{memory: m, view: NewView("ledger")} }

type memorySource struct {
	memory  *Memory
	view    *View
	changed <-chan struct{} // since the last Load
}

// Load implements ruleset.Source.
func (s *memorySource) Load(ctx context.Context, _ bool) (n ruleset.Update) {
	var snapshot *Snapshot
	snapshot, s.changed = s.memory.snapshot()
	n = s.view.Update(snapshot)
	if s.view.Reverted() {
		if err := cmp.Or(s.memory.ledger, &Ledger{backend: s.memory}).Settle(ctx); err != nil {
			n.Warning = errors.Join(n.Warning, err)
		}
	}
	return n
}

// Wait implements ruleset.Source.
func (s *memorySource) Wait(ctx context.Context) {
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	if ends := s.view.Ends(); !ends.IsZero() {
		timer.Reset(time.Until(ends))
	}
	select {
	case <-s.changed:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// maxWait is the longest time without a look whether a change has reverted.
const maxWait = time.Hour

// Close implements ruleset.Source.
func (s *memorySource) Close() {}
