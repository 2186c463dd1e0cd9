package redissource

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/internal/ruleset/ledger"
)

const defaultLedger = "weir:rules"

// The scripts of a ledger. Each begins with ledgerstate.lua, which detects lost changes.
var (
	//go:embed ledgerstate.lua
	stateText string
	//go:embed ledger.lua
	changeText string
	//go:embed ledgerread.lua
	readText string
	//go:embed ledgerrestore.lua
	restoreText string
)

func ledgerScript(text string) *redisconn.Script { return redisconn.ScriptOf(stateText + text) }

// A Ledger is a ledger.Ledger in Redis, which any number of processes may share: each change is one
// script call, and is announced at once.
type Ledger struct {
	*ledger.Ledger
	backend *backend
}

// A backend is a ledger.Backend in Redis.
type backend struct {
	source *Source // has the connection settings

	mu     sync.Mutex
	client redisconn.Client // nil: not connected yet
	closed bool

	change, read, restore *redisconn.Script
}

// OpenLedger makes a ledger. The first call of a method connects, and each later one while that
// fails. The URL is one of redisstore.Open. The default prefix and channel are weir:rules; a prefix
// has no braces.
func OpenLedger(url string, opts ...Option) (*Ledger, error) {
	s, err := New(url, append([]Option{WithPrefix(defaultLedger), WithChannel(defaultLedger)}, opts...)...)
	if err != nil {
		return nil, err
	}
	if strings.ContainsAny(s.config.prefix, "{}") {
		return nil, &weir.InputError{Field: "prefix", Given: s.config.prefix,
			Allowed: "without { and }: it is the hash tag of all keys"}
	}
	s.config.lastRead = new(lastRead)
	b := &backend{source: s, change: ledgerScript(changeText), read: ledgerScript(readText),
		restore: ledgerScript(restoreText)}
	return &Ledger{ledger.New(b), b}, nil
}

// connected returns the connection, and connects if there is no connection.
func (b *backend) connected(ctx context.Context) (redisconn.Client, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errors.New("redissource: the ledger is closed")
	}
	if b.client == nil {
		client, err := b.source.connect(ctx)
		if err != nil {
			return nil, fmt.Errorf("redissource: %w", err)
		}
		b.client = client
	}
	return b.client, nil
}

// Close closes the connection. Sources of the ledger have their own.
func (l *Ledger) Close() {
	l.backend.mu.Lock()
	defer l.backend.mu.Unlock()
	if l.backend.client != nil && !l.backend.closed {
		l.backend.client.Close()
	}
	l.backend.closed = true
}

// keys returns the keys of the ledger, which are in one slot of a Cluster.
func (c *config) keys() []string {
	tag := "{" + c.prefix + "}:"
	return []string{tag + "rules", tag + "revision", tag + "history", tag + "notes"}
}

// Source returns a source of the enabled rules and the exceptions, which sends each change at once.
// It is a source.Reloader too.
func (l *Ledger) Source() *Source {
	return newSource(l.backend.source.url, l.backend.source.config, newLedgerState(&l.backend.source.config, l.Settle))
}

// Get implements ledger.Backend.
func (b *backend) Get(ctx context.Context, name string) (ledger.Change, error) {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	client, err := b.connected(ctx)
	if err != nil {
		return ledger.Change{}, err
	}
	value, err := client.Do(ctx, redisconn.Command{Name: "HGET", Keys: b.source.config.keys()[:1],
		Args: []string{name}}).Text()
	if err == redisconn.ErrNil {
		return ledger.Change{}, fmt.Errorf("ledger: rule %.80q: %w", name, ledger.ErrNoRule)
	}
	if err != nil {
		return ledger.Change{}, fmt.Errorf("redissource: %w", err)
	}
	return ledger.Decode(name, value)
}

// Read implements ledger.Backend.
func (b *backend) Read(ctx context.Context) (*ledger.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	client, err := b.connected(ctx)
	if err != nil {
		return nil, err
	}
	held, err := b.source.config.readAll(ctx, client, b.read)
	if err != nil {
		return nil, fmt.Errorf("redissource: %w", err)
	}
	return &held.Snapshot, nil
}

// Commit implements ledger.Backend.
func (b *backend) Commit(ctx context.Context, change ledger.Change, seen int64) (revision int64, err error) {
	deleted := "0"
	if change.Deleted {
		deleted = "1"
	}
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	client, err := b.connected(ctx)
	if err != nil {
		return 0, err
	}
	c := &b.source.config
	args := append(c.known(), change.Name, strconv.FormatInt(seen, 10), change.Text(), deleted,
		strconv.Itoa(c.most), strconv.Itoa(ledger.MaxKept), c.channel)
	reply, err := client.Exec(ctx, b.change, c.keys(), args).List()
	if err != nil {
		return 0, fmt.Errorf("redissource: %w; unless this is an answer of Redis, "+
			"it is unknown whether the change was made", c.foreign(err))
	}
	if len(reply) != 2 {
		return 0, fmt.Errorf("redissource: %w", errReply)
	}
	made, errMade := reply[0].Int()
	revision, errRevision := reply[1].Int()
	switch {
	case errMade != nil || errRevision != nil:
		return 0, errors.Join(errMade, errRevision)
	case made == 0:
		return 0, &ledger.ConflictError{Name: change.Name, Seen: seen, Is: revision}
	case made == -2:
		return 0, &ledger.LostError{Ledger: c.prefix, Seen: revision}
	case made < 0:
		return 0, &weir.InputError{Field: "rules", Given: c.most + 1, Allowed: fmt.Sprint("at most ", c.most)}
	}
	c.lastRead.wrote(revision)
	return revision, nil
}

// Page implements ledger.Backend.
func (b *backend) Page(ctx context.Context, from, to int64) (list []ledger.Change, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	client, err := b.connected(ctx)
	if err != nil {
		return nil, false, err
	}
	newest, oldest := "+", "-"
	if from > 0 {
		newest = strconv.FormatInt(from, 10) + "-0"
	}
	if to > 0 {
		oldest = strconv.FormatInt(to, 10) + "-0"
	}
	entries, err := client.Do(ctx, redisconn.Command{Name: "XREVRANGE", Keys: b.source.config.keys()[2:3],
		Args: []string{newest, oldest, "COUNT", strconv.Itoa(ledger.HistoryPage)}}).List()
	if err != nil {
		return nil, false, fmt.Errorf("redissource: %w", err)
	}
	for _, e := range entries {
		c, err := changeOf(e)
		if err != nil {
			return nil, false, err
		}
		list = append(list, c)
	}
	return list, len(entries) == ledger.HistoryPage && list[len(list)-1].Revision > max(1, to), nil
}

// changeOf is the change in an entry of the history: an id, and names and values.
func changeOf(entry redisconn.Reply) (c ledger.Change, err error) {
	parts, err := entry.List()
	if err == nil && len(parts) != 2 {
		err = errReply
	}
	if err != nil {
		return c, err
	}
	fields, err := parts[1].Map()
	if err != nil {
		return c, err
	}
	return ledger.Decode(fields["name"], fields["is"])
}
