package redissource

import (
	"context"
	"time"

	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/rules/source"
)

// defaultLists is where changes of sets are announced.
const defaultLists = "weir:lists"

// firstWithin is how long Complete waits for sets that nobody has named before.
const firstWithin = 2 * time.Second

// Sets are the sets in a Redis that lists of rules name (rules.WithSets), as a layer beside
// those that have the rules: what it says is rules.File.Sets. Operators change a set, and
// announce that by its name; docs/redis-rules.md has the rest.
//
// Which sets are read is lastSent with Complete and Keep. As long as there are none, nothing
// connects. The methods are safe for concurrent use.
type Sets struct {
	*Source
	state *setState
}

// NewSets makes the source. The URL is one of redisstore.Open; the channel is weir:lists
// where no option says otherwise. WithAllowEmpty believes each key that is gone.
func NewSets(url string, opts ...Option) (*Sets, error) {
	s, err := New(url, append([]Option{WithChannel(defaultLists)}, opts...)...)
	if err != nil {
		return nil, err
	}
	state := newSetState(s.config.channel, s.config.allowEmpty)
	s = newSource(url, s.config, state)
	s.namesChanged = make(chan struct{}, 1)
	return &Sets{s, state}, nil
}

// Run implements source.Source.
func (s *Sets) Run(ctx context.Context, updates chan<- source.Update) error {
	s.lastSent = ""
	for !s.state.wanted() {
		none := s.state.contents()
		if !s.send(ctx, updates, source.Update{File: none.file, Revision: none.revision}) {
			return ctx.Err()
		}
		select {
		case <-s.namesChanged:
		case w := <-s.reloads:
			w <- outcome{revision: none.revision}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	select {
	case <-s.namesChanged: // the first reading is of all
	default:
	}
	return s.Source.Run(ctx, updates)
}

// Complete has the sets read from now on that the lists of a file name, and returns the file
// with those that its Sets do not have yet. For sets that were never named before it waits
// until they were read, but at most 2 seconds; one that cannot be read is missing. It is to
// be called before a file is compiled, so that no set is taken for empty that only was not
// read yet. The file is not changed.
func (s *Sets) Complete(file *rules.File) *rules.File {
	var missing []string
	for _, name := range file.SetNames() {
		if _, there := file.Sets[name]; !there {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return file
	}
	if fresh := s.state.want(missing); len(fresh) > 0 {
		s.fetch(fresh)
		s.wake()
	}
	whole := *file
	whole.Sets = s.state.members(missing)
	for name, members := range file.Sets {
		whole.Sets[name] = members
	}
	return &whole
}

// Keep has no other sets read any more than those that rules in force name.
func (s *Sets) Keep(names []string) {
	if len(s.state.keep(names)) > 0 {
		s.wake()
	}
}

func (s *Sets) wake() {
	select {
	case s.namesChanged <- struct{}{}:
	default:
	}
}

// fetch reads sets once, on a connection of its own. What is wrong with that connection the
// source finds out, and tells.
func (s *Sets) fetch(names []string) {
	ctx, cancel := context.WithTimeout(context.Background(), firstWithin)
	defer cancel()
	client, err := s.connect(ctx)
	if err != nil {
		return
	}
	defer client.Close()
	scan := newSetScan(names)
	if scan.run(ctx, client) == nil {
		s.state.put(scan.found)
	}
}
