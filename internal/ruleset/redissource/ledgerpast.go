package redissource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/ledger"
)

// A lastRead is the last accepted reading of a ledger by this process, and the last change that it
// made. Every script receives both, and so finds out whether the ledger in Redis still has all
// changes.
type lastRead struct {
	mu   sync.Mutex
	held *snapshot // nil: nothing was read yet
	made int64
}

func (p *lastRead) accept(held *snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = held
}

func (p *lastRead) wrote(revision int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made = max(p.made, revision)
}

// accepted returns nil before the first reading.
func (p *lastRead) accepted() *snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

// known returns the first arguments of each script: see ledgerstate.lua.
func (c *config) known() []string {
	p := c.lastRead
	p.mu.Lock()
	defer p.mu.Unlock()
	held := p.held
	if held == nil {
		held = new(snapshot)
	}
	seen := held.Revision
	if c.allowEmpty {
		seen = -1
	}
	return []string{strconv.FormatInt(seen, 10), held.mark, strconv.Itoa(len(held.Values)),
		strconv.FormatInt(p.made, 10), string(c.claim)}
}

// foreign converts errors about a ledger that is not this store's, or that the store's user may not
// access.
func (c *config) foreign(err error) error {
	var answer *redisconn.ServerError
	is := errors.As(err, &answer)
	if is && c.claim == Own && strings.HasPrefix(answer.Text, "NOPERM") {
		return fmt.Errorf("%w: the user of this Redis may not keep one: allow it what docs/howto/redis-rules.md says, "+
			"or start the server with --ledger none (%v)", ledger.ErrForeign, err)
	}
	if !is || !strings.HasPrefix(answer.Text, "FOREIGN the ledger") {
		return err
	}
	return fmt.Errorf("%w: %s was there before, and is not marked as this store's: "+
		"start the server with --ledger redis to use it, "+
		"or with another server.ledger.name", ledger.ErrForeign, ruleset.Quoted(c.prefix))
}

// restored is the number of entries that one call writes back.
const restored = 200

// Restore implements ledger.Restorer.
func (b *backend) Restore(ctx context.Context, how ledger.Restoration) (*ledger.Restored, error) {
	client, err := b.connected(ctx)
	if err != nil {
		return nil, err
	}
	c := &b.source.config
	held, err := c.readAll(ctx, client, b.read)
	if err != nil {
		return nil, fmt.Errorf("redissource: %w", err)
	}
	before := c.lastRead.accepted()
	switch {
	case held.lost == 0:
		return nil, &weir.InputError{Field: "ledger", Given: c.prefix,
			Allowed: "one that has lost changes; this one has them all"}
	case how.Forget:
		before = new(snapshot)
	case before == nil || before.Revision <= held.Revision && before.Revision < held.lost:
		return nil, &weir.InputError{Field: "ledger", Given: c.prefix,
			Allowed: "a server that has read what is lost: this one has not; " +
				"ask another one, or give up what is lost (weir rules restore --forget)"}
	}
	names, args := missing(before, held, how.By)
	out := &ledger.Restored{Names: names, Revision: held.Revision, Lost: held.lost}
	if how.DryRun {
		return out, nil
	}
	return out, b.writeBack(ctx, client, args, out)
}

// missing returns the entries that before has and held lacks, or has in an older version, as
// arguments of the script. Entries that only held has are kept.
func missing(before, held *snapshot, by ledger.Author) (names, args []string) {
	for _, name := range slices.Sorted(maps.Keys(before.Values)) {
		had, has := ledger.RevisionOf(before.Values[name]), ledger.RevisionOf(held.Values[name])
		if has >= had {
			continue
		}
		if text, ok := ledger.Again(name, before.Values[name], held.Now, by); ok {
			names, args = append(names, name), append(args, name, strconv.FormatInt(has, 10), text)
		}
	}
	return names, args
}

// writeBack writes entries, some in each call, and ends the loss with the last. After an
// interruption it can be repeated.
func (b *backend) writeBack(ctx context.Context, client redisconn.Client, args []string, out *ledger.Restored) error {
	c := &b.source.config
	for {
		some := args[:min(len(args), 3*restored)]
		args = args[len(some):]
		end := "0"
		if len(args) == 0 {
			end = "1"
		}
		all := append(c.known(), end, strconv.Itoa(ledger.MaxKept), c.channel)
		call, cancel := context.WithTimeout(ctx, replyTimeout)
		revision, err := client.Exec(call, b.restore, c.keys(), append(all, some...)).Int()
		cancel()
		if err != nil {
			return fmt.Errorf("redissource: %w; not all was written back: repeat it", err)
		}
		if out.Revision = revision; end == "1" {
			c.lastRead.wrote(revision)
			return nil
		}
	}
}
