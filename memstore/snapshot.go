package memstore

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"github.com/weirproject/weir"
)

// A snapshot is lines of JSON: a head, then limits before the first key that uses them,
// keys, and a foot with the SHA-256 of all that stands before it.
const (
	snapshotFormat  = "weir memstore snapshot"
	snapshotVersion = 2
)

type head struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Keyer   keyer  `json:"keyer"` // with which keys are hashed
}

type foot struct {
	Keys   int64  `json:"keys"`
	SHA256 string `json:"sha256"`
}

// line is a limit (Name, Spec) or a key under the limit with that number.
type line struct {
	Name  string   `json:"name,omitempty"`
	Spec  string   `json:"spec,omitempty"`
	Limit int      `json:"limit,omitempty"`
	Hash  uint64   `json:"hash,omitempty"` // of the key
	Tag   uint32   `json:"tag,omitempty"`
	State []int64  `json:"state,omitempty"`
	IDs   [][]byte `json:"ids,omitempty"`
}

// Save writes all keys with a state to a file, so that a quota survives a restart. The file appears whole or not at
// all. Decisions go on meanwhile; each key is saved as it is at one moment between begin and end.
func (s *Store) Save(path string) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return fmt.Errorf("memstore: save: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("memstore: save: %w", err), file.Close(), os.Remove(file.Name()))
		}
	}()
	if err := s.writeAll(file); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

func (s *Store) writeAll(file io.Writer) error {
	out := &snapshotWriter{
		out:    bufio.NewWriterSize(file, 1<<20),
		hash:   sha256.New(),
		limits: make(map[*weir.Limit]int),
	}
	out.line(head{snapshotFormat, snapshotVersion, s.keyer})
	now := s.now()
	for i := range s.shards {
		s.saveShard(&s.shards[i], out, now)
	}
	sum := hex.EncodeToString(out.hash.Sum(nil))
	out.line(foot{out.keys, sum})
	if out.err != nil {
		return out.err
	}
	return out.out.Flush()
}

func (s *Store) saveShard(sh *shard, out *snapshotWriter, now moment) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for e := range sh.table.Load().all {
		e.lock()
		if e.expires(now) > now.at {
			out.entry(e, onWall(e.owner.Load().limit, e.read(), now.grid))
		}
		e.unlock()
	}
}

type snapshotWriter struct {
	out    *bufio.Writer
	hash   hash.Hash
	limits map[*weir.Limit]int
	keys   int64
	err    error
}

func (w *snapshotWriter) line(v any) {
	text, err := json.Marshal(v)
	if w.err != nil || err != nil {
		w.err = errors.Join(w.err, err)
		return
	}
	text = append(text, '\n')
	w.hash.Write(text)
	_, w.err = w.out.Write(text)
}

func (w *snapshotWriter) entry(e *entry, st state) {
	limit := e.owner.Load().limit
	number, known := w.limits[limit]
	if !known {
		number = len(w.limits) + 1
		w.limits[limit] = number
		w.line(line{Name: limit.Name(), Spec: limit.String()})
	}
	one := line{Limit: number, Hash: e.hash, Tag: e.tag}
	one.State, one.IDs = kindOf(limit).numbers(st)
	w.line(one)
	w.keys++
}

// onWall is the state with a window that begins later by so much: in a file it begins by the wall clock.
func onWall(l *weir.Limit, s state, by int64) state {
	if l.Windowed() && l.Anchor() == weir.Epoch {
		s.a += by
		if s.large != nil {
			w := *s.large.fairWindow()
			w.Whole.Start += by
			return fairState(l, s, w)
		}
	}
	return s
}

// Load reads what Save wrote into a store that is still empty, without expired
// keys. The limits may have other numbers by now. A file that is damaged, of
// another program or of another version is an error, and no key of it is loaded.
func (s *Store) Load(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("memstore: load: %w", err)
	}
	if s.keys.Load() != 0 {
		return errors.New("memstore: load: the store is in use; load into a new one")
	}
	if err := s.readAll(text); err != nil {
		return fmt.Errorf("memstore: load %s: %w", path, err)
	}
	return nil
}

func (s *Store) readAll(text []byte) error {
	body, keyer, err := checked(text)
	if err != nil {
		return err
	}
	r := snapshotReader{now: s.now()}
	for number, rest := 2, body; len(rest) > 0; number++ {
		var one []byte
		one, rest, _ = bytes.Cut(rest, []byte("\n"))
		if err := r.line(one); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
	if int64(len(r.keys)) > s.maxKeys {
		return fmt.Errorf("it holds %d keys, the store has room for %d; raise WithMaxKeys (server.max_keys)",
			len(r.keys), s.maxKeys)
	}
	bytes := int64(len(r.keys)) * keyBytes
	for i := range r.keys {
		if k := &r.keys[i]; k.state.large != nil {
			bytes += k.state.large.size()
		}
	}
	if bytes > s.maxBytes {
		return fmt.Errorf("its keys take %d bytes, the store has room for %d; "+
			"raise WithMaxBytes (weir serve: server.max_bytes)", bytes, s.maxBytes)
	}
	s.keyer = keyer
	for i := range r.keys {
		s.adopt(&r.keys[i])
	}
	return nil
}

// adopt puts a loaded key into its place.
func (s *Store) adopt(k *loaded) {
	sh := s.shard(k.id.hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.table.Load().find(k.id, k.limit) != nil {
		return // the file names it twice
	}
	s.reserve(sh, 1)
	own, part := sh.owner(k.limit), form(k.limit, k.state)
	if k.state.large != nil {
		own = s.lock(k.state.large)
	}
	e := sh.table.Load().put(k.id, own, 0, part)
	e.write(k.state)
	if !e.shared() {
		s.keys.Add(1)
	}
	e.unlock()
}

// checked is the lines between head and foot of a snapshot that is whole.
func checked(text []byte) ([]byte, keyer, error) {
	first, rest, _ := bytes.Cut(text, []byte("\n"))
	var h head
	if err := json.Unmarshal(first, &h); err != nil || h.Format != snapshotFormat {
		return nil, h.Keyer, fmt.Errorf("%w: not a snapshot of a memstore", weir.ErrForeignState)
	}
	if h.Version != snapshotVersion {
		return nil, h.Keyer, fmt.Errorf("%w: version %d, this program reads %d", weir.ErrForeignState, h.Version,
			snapshotVersion)
	}
	end := bytes.LastIndexByte(bytes.TrimSuffix(text, []byte("\n")), '\n') + 1
	var f foot
	if err := json.Unmarshal(text[end:], &f); err != nil || f.SHA256 == "" {
		return nil, h.Keyer, fmt.Errorf("%w: it is cut short", weir.ErrForeignState)
	}
	if sum := sha256.Sum256(text[:end]); hex.EncodeToString(sum[:]) != f.SHA256 {
		return nil, h.Keyer, fmt.Errorf("%w: it is damaged: the checksum differs", weir.ErrForeignState)
	}
	return rest[:len(rest)-(len(text)-end)], h.Keyer, nil
}

type snapshotReader struct {
	now    moment
	limits []*weir.Limit
	keys   []loaded
}

// loaded is a key of a snapshot.
type loaded struct {
	id    id
	limit *weir.Limit
	state state
}

func (r *snapshotReader) line(text []byte) error {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return fmt.Errorf("%w: %w", weir.ErrForeignState, err)
	}
	if l.Limit == 0 {
		spec, err := weir.ParseLimit(l.Spec)
		if err != nil {
			return err
		}
		limit, err := weir.NewLimit(l.Name, spec)
		r.limits = append(r.limits, limit)
		return err
	}
	if l.Limit < 0 || l.Limit > len(r.limits) {
		return fmt.Errorf("%w: limit %d of %d", weir.ErrForeignState, l.Limit, len(r.limits))
	}
	limit := r.limits[l.Limit-1]
	s, ok := restore(limit, l.State, l.IDs)
	if !ok {
		return fmt.Errorf("%w: no state of %s", weir.ErrForeignState, limit.Algorithm())
	}
	s = onWall(limit, s, -r.now.grid)
	if kindOf(limit).decision(limit, s, 0, 0, r.now).ResetAfter > 0 {
		r.keys = append(r.keys, loaded{id{l.Hash, l.Tag}, limit, s})
	}
	return nil
}

// restore is the state that has the numbers.
func restore(l *weir.Limit, list []int64, ids [][]byte) (s state, ok bool) {
	for _, n := range list {
		if n < -weir.MaxUnits || n > 2*weir.MaxUnits {
			return s, false
		}
	}
	if isLarge[l.Algorithm()] {
		s.large = newLarge(l)
	}
	return kindOf(l).restore(l, s, list, ids)
}
