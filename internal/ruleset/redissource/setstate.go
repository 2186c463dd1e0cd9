package redissource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

// A setState has the members of all wanted sets. Its mutex is for Complete and Keep, and for the
// reader of the connection, which calls all.
type setState struct {
	lasting
	channel    string
	allowEmpty bool

	mu              sync.Mutex
	entries         map[string]*setEntry // by name; of each wanted set
	announced       map[string]bool      // since the last reading began
	announcedBefore map[string]bool      // before it began: an announced set may be empty
}

// A setEntry is the state of a set.
type setEntry struct {
	read    bool      // it was read once
	members []string  // sorted, of the last accepted reading
	expires time.Time // when its key expires; zero: never
	wrong   string    // why the last reading was not accepted; "": it was
}

func newSetState(channel string, allowEmpty bool) *setState {
	return &setState{channel: channel, allowEmpty: allowEmpty, entries: make(map[string]*setEntry),
		announced: make(map[string]bool), announcedBefore: make(map[string]bool)}
}

// want adds sets, and returns the new ones.
func (s *setState) want(names []string) (fresh []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if s.entries[name] == nil {
			s.entries[name] = new(setEntry)
			fresh = append(fresh, name)
		}
	}
	return fresh
}

// fill gives sets that were never read the members that they had when they were wanted last. Without them, an update
// that is under way would empty the lists of a file that names such a set again.
func (s *setState) fill(names []string, members map[string][]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if e, had := s.entries[name], members[name]; e != nil && !e.read && had != nil {
			e.read, e.members = true, had
		}
	}
}

// keep wants these sets and no others.
func (s *setState) keep(names []string) (fresh []string) {
	fresh = s.want(names)
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.entries, func(name string, _ *setEntry) bool { return !slices.Contains(names, name) })
	return fresh
}

func (s *setState) wanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries) > 0
}

// members returns the members of sets that were read.
func (s *setState) members(names []string) map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := make(map[string][]string)
	for _, name := range names {
		if e := s.entries[name]; e != nil && e.read {
			found[name] = e.members
		}
	}
	return found
}

// all reports whether a message names a wanted set, or is RELOAD_ALL. Other programs may use the
// channel for their sets.
func (s *setState) all(message string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if message = plain(message); s.entries[message] == nil {
		return message == reloadAll
	}
	s.announced[message] = true
	return true
}

func (s *setState) receive(string) bool { return false }

// read implements state.
func (s *setState) read(ctx context.Context, client rueidis.Client) error {
	found, err := readSets(ctx, client, s.begin())
	if err == nil {
		s.take(found)
	}
	return err
}

// begin returns the sets to read. It keeps the announcements before a reading that failed.
func (s *setState) begin() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.announcedBefore, s.announced)
	clear(s.announced)
	return sorted(s.entries)
}

func (s *setState) take(found map[string]setReading) {
	s.put(found)
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.announcedBefore)
}

// put accepts readings, if possible.
func (s *setState) put(found map[string]setReading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	total := 0
	for _, e := range s.entries {
		total += len(e.members)
	}
	for _, name := range sorted(found) {
		e, r := s.entries[name], found[name]
		if e == nil {
			continue
		}
		if e.wrong = s.whyRefused(name, e, &r, total); e.wrong == "" {
			total += len(r.members) - len(e.members)
			e.read, e.members, e.expires = true, r.members, r.expires
		}
	}
}

// whyRefused returns the reason for not accepting a reading, or "". A set without members has no
// key, and neither has a set that was evicted, was lost in a flush or a restart without data, or is
// missing on a replica: an empty set is accepted only if it was announced, or its time to live is
// over.
func (s *setState) whyRefused(name string, e *setEntry, r *setReading, total int) string {
	expired := !e.expires.IsZero() && !time.Now().Before(e.expires)
	switch {
	case r.foreign != "":
		return r.foreign
	case total-len(e.members)+len(r.members) > bounds.AllMembers:
		return fmt.Sprintf("has %d members, and all sets together over %d; that is too much", len(r.members),
			bounds.AllMembers)
	case len(r.members) == 0 && len(e.members) > 0 && !s.announcedBefore[name] && !expired && !s.allowEmpty:
		return fmt.Sprintf("is gone without an announcement; if it was deleted on purpose, announce it: PUBLISH %s %s",
			ruleset.Quoted(s.channel), ruleset.Quoted(name))
	}
	return ""
}

// contents returns the members of all sets that were read, and problems.
func (s *setState) contents() ruleset.Update {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := sha256.New()
	file := &rules.File{Name: "redis sets", Sets: make(map[string][]string)}
	wrong := &ruleset.Error{}
	for _, name := range sorted(s.entries) {
		e := s.entries[name]
		if e.read {
			file.Sets[name] = e.members
			fmt.Fprintf(sum, "%q %d\n", name, len(e.members))
			for _, member := range e.members {
				io.WriteString(sum, member+"\x00")
			}
		}
		if e.wrong != "" {
			wrong.Add(ruleset.Problem{Where: ruleset.Quoted(name), Message: e.wrong, State: e.state()})
		}
	}
	return ruleset.Update{File: file, Revision: hex.EncodeToString(sum.Sum(nil)[:8]), Warning: wrong.OrNil()}
}

// state describes the effect of a problem.
func (e *setEntry) state() string {
	if !e.read {
		return "it is empty"
	}
	return fmt.Sprintf("its last members (%d) stay in force", len(e.members))
}
