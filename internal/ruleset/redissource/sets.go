package redissource

import (
	"context"
	"maps"
	"time"

	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

// defaultLists is the channel of announcements.
const defaultLists = "weir:lists"

// firstWithin is how long Complete waits for sets that are named for the first time.
const firstWithin = 2 * time.Second

// Sets reads the sets in a Redis that lists of rules name (rules.WithSets). It is a layer beside
// those with the rules; its updates have rules.File.Sets. Operators change a set and announce its
// key: see docs/redis-rules.md.
//
// Complete and Keep determine which sets are read. Without any, nothing connects. The methods are
// safe for concurrent use.
type Sets struct {
	*Source
	state *setState
}

// NewSets makes the source. The URL is one of redisstore.Open; the default channel is weir:lists.
// WithAllowEmpty accepts that a set is gone without an announcement.
func NewSets(url string, opts ...Option) (*Sets, error) {
	s, err := New(url, append([]Option{WithChannel(defaultLists)}, opts...)...)
	if err != nil {
		return nil, err
	}
	state := newSetState(s.config.channel, s.config.allowEmpty)
	return &Sets{newSource(url, s.config, state), state}, nil
}

// Load implements ruleset.Source.
func (s *Sets) Load(ctx context.Context, reload bool) ruleset.Update {
	if s.client == nil && !s.state.wanted() {
		s.due = time.Now().Add(s.config.refresh)
		return s.state.contents()
	}
	return s.Source.Load(ctx, reload)
}

// Complete starts to read the sets that the lists of a file name, and returns the file with those that its Sets lack.
// For sets that the rules in force do not name it waits until they are read, but at most 2 seconds; a set that cannot
// be read keeps its members in the file, or is missing. Call it before compiling a file, so that a set that was not
// read yet is not taken for empty. The file is not changed.
func (s *Sets) Complete(file *rules.File) *rules.File {
	names := file.SetNames()
	wanted := s.state.want(names)
	if len(wanted) > 0 {
		s.fetch(wanted)
		s.state.fill(wanted, file.Sets)
		s.inbox.refetch()
	}
	for _, name := range names {
		if _, there := file.Sets[name]; !there {
			wanted = append(wanted, name)
		}
	}
	if len(wanted) == 0 {
		return file
	}
	whole := *file
	whole.Sets = maps.Clone(file.Sets)
	if whole.Sets == nil {
		whole.Sets = make(map[string][]string)
	}
	maps.Copy(whole.Sets, s.state.members(wanted))
	return &whole
}

// Keep ends the reading of all other sets than these, which the rules in force name.
func (s *Sets) Keep(names []string) {
	if len(s.state.keep(names)) > 0 {
		s.inbox.refetch()
	}
}

// fetch reads sets once, on a connection of its own. It ignores connection errors: Run finds and
// reports them.
func (s *Sets) fetch(names []string) {
	ctx, cancel := context.WithTimeout(context.Background(), firstWithin)
	defer cancel()
	client, err := s.connect(ctx)
	if err != nil {
		return
	}
	defer client.Close()
	if found, err := readSets(ctx, client, names); err == nil {
		s.state.put(found)
	}
}
