package redissource

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirproject/weir/internal/bounds"
)

const (
	memberPage  = 1000             // members that one SSCAN examines
	setPasses   = 3                // readings of a set that changes meanwhile
	setWithin   = 30 * time.Second // time limit for all sets
	maxSetBytes = 32 << 20         // memory of a set in Redis; bounds.ListFile bounds what is read of it
)

// A setScan reads sets once.
type setScan struct {
	names []string
	found map[string]setReading
}

// A setReading is the result of reading a set.
type setReading struct {
	members []string // sorted; empty: there is no such key
	expires time.Time
	foreign string // why the key is not a readable set; "": it is
}

func newSetScan(names []string) *setScan {
	return &setScan{names: names, found: make(map[string]setReading)}
}

// run reads all sets concurrently. A set that changes meanwhile is read again: one that is deleted
// and refilled would come out with half of each.
func (s *setScan) run(ctx context.Context, client rueidis.Client) error {
	ctx, cancel := context.WithTimeout(ctx, setWithin)
	defer cancel()
	names := s.names
	for range setPasses {
		pass := &setPass{client: client, found: s.found, open: make(map[string]*openSet)}
		moved, err := pass.read(ctx, names)
		if err != nil || len(moved) == 0 {
			return err
		}
		names = moved
	}
	return nil
}

// A setPass reads sets page by page.
type setPass struct {
	client rueidis.Client
	found  map[string]setReading
	open   map[string]*openSet
}

// An openSet is not completely read.
type openSet struct {
	cursor  uint64
	members []string // may have duplicates
	bytes   int
	expires time.Time
}

// read returns the sets that changed while they were read.
func (p *setPass) read(ctx context.Context, names []string) (moved []string, err error) {
	if err := p.begin(ctx, names); err != nil {
		return nil, err
	}
	for len(p.open) > 0 {
		if err := p.page(ctx); err != nil {
			return nil, err
		}
	}
	return p.moved(ctx, slices.Clone(names))
}

// ask sends commands for each name, and calls each with the replies. An error of one key is
// recorded; other errors are of the connection, and returned.
func (p *setPass) ask(ctx context.Context, names []string, commands func(name string) rueidis.Commands,
	each func(name string, r []rueidis.RedisResult) error) error {
	if len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	var all rueidis.Commands
	for _, name := range names {
		all = append(all, commands(name)...)
	}
	results := p.client.DoMulti(ctx, all...)
	n := len(results) / len(names)
	for i, name := range names {
		err := each(name, results[i*n:(i+1)*n])
		if foreign := ofTheKey(err); foreign != "" {
			p.refuse(name, foreign)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// ofTheKey returns the message of an error that concerns one key; "" for other errors.
func ofTheKey(err error) string {
	answer, ok := rueidis.IsRedisErr(err)
	switch {
	case !ok:
		return ""
	case strings.HasPrefix(answer.Error(), "WRONGTYPE"):
		return "is no set; allowed: a set, such as SADD makes"
	case strings.HasPrefix(answer.Error(), "NOPERM"):
		return fmt.Sprintf("may not be read: %.200s", answer.Error())
	}
	return ""
}

// refuse records why a set cannot be read.
func (p *setPass) refuse(name, why string) {
	delete(p.open, name)
	p.found[name] = setReading{foreign: why}
}

// begin opens the sets that are not too large.
func (p *setPass) begin(ctx context.Context, names []string) error {
	return p.ask(ctx, names, func(name string) rueidis.Commands {
		b := p.client.B()
		return rueidis.Commands{b.Scard().Key(name).Build(), b.MemoryUsage().Key(name).Samples(samples).Build(),
			b.Pttl().Key(name).Build()}
	}, func(name string, r []rueidis.RedisResult) error {
		count, err := r[0].AsInt64()
		bytes, errBytes := r[1].AsInt64()
		left, errLeft := r[2].AsInt64()
		if rueidis.IsRedisNil(errBytes) { // there is no such key
			errBytes = nil
		}
		if err := cmp.Or(err, errBytes, errLeft); err != nil {
			return err
		}
		if count > bounds.Listed || bytes > maxSetBytes {
			p.refuse(name, fmt.Sprintf("has %d members, which take some %d bytes; at most %d, and %d bytes",
				count, bytes, bounds.Listed, maxSetBytes))
			return nil
		}
		open := &openSet{members: make([]string, 0, count)}
		if left >= 0 {
			open.expires = time.Now().Add(time.Duration(left) * time.Millisecond)
		}
		p.open[name] = open
		return nil
	})
}

// page reads a page of each set that is open.
func (p *setPass) page(ctx context.Context) error {
	return p.ask(ctx, sorted(p.open), func(name string) rueidis.Commands {
		return rueidis.Commands{p.client.B().Sscan().Key(name).Cursor(p.open[name].cursor).Count(memberPage).Build()}
	}, func(name string, r []rueidis.RedisResult) error {
		page, err := r[0].AsScanEntry()
		if err != nil {
			return err
		}
		open := p.open[name]
		open.cursor = page.Cursor
		open.members = append(open.members, page.Elements...)
		for _, member := range page.Elements {
			open.bytes += len(member)
		}
		switch {
		case len(open.members) > 2*bounds.Listed || open.bytes > bounds.ListFile: // it grows while it is read
			p.refuse(name, fmt.Sprintf("has over %d members, or %d bytes of them; that is too much",
				bounds.Listed, bounds.ListFile))
		case page.Cursor == 0:
			slices.Sort(open.members)
			p.found[name] = setReading{members: slices.Compact(open.members), expires: open.expires}
			delete(p.open, name)
		}
		return nil
	})
}

// moved returns the sets whose number of members has changed.
func (p *setPass) moved(ctx context.Context, names []string) (moved []string, err error) {
	names = slices.DeleteFunc(names, func(name string) bool { return p.found[name].foreign != "" })
	err = p.ask(ctx, names, func(name string) rueidis.Commands {
		return rueidis.Commands{p.client.B().Scard().Key(name).Build()}
	}, func(name string, r []rueidis.RedisResult) error {
		n, err := r[0].AsInt64()
		if err == nil && n != int64(len(p.found[name].members)) {
			moved = append(moved, name)
		}
		return err
	})
	return moved, err
}
