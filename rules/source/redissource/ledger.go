package redissource

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/rules/source"
)

const defaultLedger = "weir:rules"

//go:embed ledger.lua
var changeText string

//go:embed ledgerread.lua
var readText string

// ErrNoRule is (wrapped) the answer to who asks for what the ledger does not have.
var ErrNoRule = errors.New("the ledger does not have it")

// A ConflictError says that a rule is not at the revision that its author has seen: somebody
// else has changed it since. Nothing was changed.
type ConflictError struct {
	Name string
	Seen int64 // 0: there was none
	Is   int64 // 0: there is none
}

// Error says what to do.
func (e *ConflictError) Error() string {
	is := fmt.Sprintf("is at revision %d", e.Is)
	if e.Is == 0 {
		is = "is not there"
	}
	seen := fmt.Sprintf("not at %d", e.Seen)
	if e.Seen == 0 {
		seen = "but was to be a new one"
	}
	return fmt.Sprintf("redissource: rule %q %s, %s: read it again, and decide anew", e.Name, is, seen)
}

// A Ledger is rules that lie in Redis as the YAML that somebody wrote, each with the revision
// that made it what it is, and the history of them all. Whoever changes a rule names the
// revision he has seen, so two people never overwrite each other unawares. Methods are safe
// for concurrent use, by many processes too.
//
// A change whose error leaves open whether it was made (the connection was lost) can be
// repeated as it is: if it was made, the repeat is a *ConflictError.
type Ledger struct {
	url    string
	config config
	client rueidis.Client

	change, read *rueidis.Lua
}

// OpenLedger connects to Redis. The URL is one of redisstore.Open. The prefix and the
// channel are weir:rules where no option says otherwise; a prefix has no braces.
func OpenLedger(ctx context.Context, url string, opts ...Option) (*Ledger, error) {
	s, err := New(url, append([]Option{WithPrefix(defaultLedger), WithChannel(defaultLedger)}, opts...)...)
	if err != nil {
		return nil, err
	}
	if strings.ContainsAny(s.config.prefix, "{}") {
		return nil, &weir.InputError{Field: "prefix", Given: s.config.prefix, Allowed: "without { and }: it is the hash tag of all keys"}
	}
	client, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	return &Ledger{url: url, config: s.config, client: client,
		change: rueidis.NewLuaScript(changeText), read: rueidis.NewLuaScript(readText)}, nil
}

// Close ends the connection. Sources of the ledger have their own.
func (l *Ledger) Close() { l.client.Close() }

// keys lie in one slot of a Cluster.
func (c *config) keys() []string {
	tag := "{" + c.prefix + "}:"
	return []string{tag + "rules", tag + "revision", tag + "history"}
}

// Source is the ledger as a source of rules: those that are enabled. It tells of a change
// as soon as it is made.
func (l *Ledger) Source() *Source {
	return newSource(l.url, l.config, newLedgerShelf(&l.config))
}

// Get is a rule. The error wraps ErrNoRule where there is none.
func (l *Ledger) Get(ctx context.Context, name string) (Document, error) {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	value, err := l.client.Do(ctx, l.client.B().Hget().Key(l.config.keys()[0]).Field(name).Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return Document{}, fmt.Errorf("redissource: rule %.80q: %w", name, ErrNoRule)
	}
	if err != nil {
		return Document{}, fmt.Errorf("redissource: %w", err)
	}
	c, err := decodeChange(name, value)
	return c.Document, err
}

// List is all rules by their names, and the revision of the ledger.
func (l *Ledger) List(ctx context.Context) (list []Document, revision int64, err error) {
	held, err := l.config.readAll(ctx, l.client, l.read)
	if err != nil {
		return nil, 0, fmt.Errorf("redissource: %w", err)
	}
	for name, value := range held.values {
		c, err := decodeChange(name, value)
		if err != nil {
			return nil, 0, err
		}
		list = append(list, c.Document)
	}
	slices.SortFunc(list, func(a, b Document) int { return strings.Compare(a.Name, b.Name) })
	return list, held.revision, nil
}

// Set makes a rule what the YAML says. It is checked first, by itself and beside the others
// that are enabled: the error is then a *rules.Error or a *weir.InputError. A new rule
// (seen is 0) is enabled; one that was disabled stays so. It returns the new revision.
func (l *Ledger) Set(ctx context.Context, name, yaml string, seen int64, by Author) (revision int64, err error) {
	list, _, err := l.List(ctx)
	if err != nil {
		return 0, err
	}
	enabled := true
	if i := slices.IndexFunc(list, func(d Document) bool { return d.Name == name }); i >= 0 {
		enabled = list[i].Enabled
	}
	if err := fits(list, name, yaml); err != nil {
		return 0, err
	}
	return l.commit(ctx, name, seen, payload{YAML: yaml, Enabled: enabled, What: "set"}, by)
}

// fits checks a rule, and whether all can stand together. Where they could not without it,
// either, that is not its fault.
func fits(list []Document, name, yaml string) error {
	spec, err := ParseDocument(name, yaml)
	if err != nil {
		return err
	}
	var others rules.File
	for _, d := range list {
		if d.Name == name || !d.Enabled {
			continue
		}
		if other, err := ParseDocument(d.Name, d.YAML); err == nil {
			others.Rules = append(others.Rules, other)
		}
	}
	all := rules.File{Name: name, Rules: append(slices.Clip(others.Rules), spec)}
	if _, err := rules.Compile(&all); err != nil {
		if _, before := rules.Compile(&others); before == nil {
			return err
		}
	}
	return nil
}

// Delete takes a rule out. Its history stays, and Rollback brings it back.
func (l *Ledger) Delete(ctx context.Context, name string, seen int64, by Author) (revision int64, err error) {
	return l.commit(ctx, name, seen, payload{Deleted: true, What: "delete"}, by)
}

// Enable puts a rule in force that is in the ledger.
func (l *Ledger) Enable(ctx context.Context, name string, seen int64, by Author) (revision int64, err error) {
	return l.turn(ctx, name, seen, payload{Enabled: true, What: "enable"}, by)
}

// Disable takes a rule out of force, and leaves it in the ledger.
func (l *Ledger) Disable(ctx context.Context, name string, seen int64, by Author) (revision int64, err error) {
	return l.turn(ctx, name, seen, payload{What: "disable"}, by)
}

func (l *Ledger) turn(ctx context.Context, name string, seen int64, p payload, by Author) (revision int64, err error) {
	d, err := l.Get(ctx, name)
	if err != nil {
		return 0, err
	}
	if d.Revision != seen { // what is written back is what was seen
		return 0, &ConflictError{Name: name, Seen: seen, Is: d.Revision}
	}
	p.YAML = d.YAML
	return l.commit(ctx, name, seen, p, by)
}

// Rollback makes a rule what it was at a revision of its history, also deleted or disabled.
func (l *Ledger) Rollback(ctx context.Context, name string, to, seen int64, by Author) (revision int64, err error) {
	then, err := l.at(ctx, name, to)
	if err != nil {
		return 0, err
	}
	if !then.Deleted {
		list, _, err := l.List(ctx)
		if err == nil {
			err = fits(list, name, then.YAML)
		}
		if err != nil {
			return 0, err
		}
	}
	return l.commit(ctx, name, seen, payload{YAML: then.YAML, Enabled: then.Enabled, Deleted: then.Deleted, What: fmt.Sprint("rollback to ", to)}, by)
}

// commit makes a change, if the rule is at the revision that was seen.
func (l *Ledger) commit(ctx context.Context, name string, seen int64, p payload, by Author) (revision int64, err error) {
	if err := by.check(); err != nil {
		return 0, err
	}
	if seen < 0 {
		return 0, &weir.InputError{Field: "revision seen", Given: seen, Allowed: "that of the rule, or 0 for a new one"}
	}
	deleted := "0"
	if p.Deleted {
		deleted = "1"
		if seen == 0 { // there is nothing to delete, or it was not seen
			d, err := l.Get(ctx, name)
			return 0, cmp.Or(err, error(&ConflictError{Name: name, Is: d.Revision}))
		}
	}
	p.Who, p.Why = by.Who, by.Why
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	reply, err := l.change.Exec(ctx, l.client, l.config.keys(), []string{name, strconv.FormatInt(seen, 10), p.text(), deleted,
		strconv.Itoa(l.config.most), strconv.Itoa(MaxKept), l.config.channel}).ToArray()
	if err != nil {
		return 0, fmt.Errorf("redissource: %w; unless this is an answer of Redis, it is unknown whether the change was made", err)
	}
	if len(reply) != 2 {
		return 0, errors.New("redissource: the script's reply is not understood")
	}
	made, errMade := reply[0].AsInt64()
	revision, errRevision := reply[1].AsInt64()
	switch {
	case errMade != nil || errRevision != nil:
		return 0, errors.Join(errMade, errRevision)
	case made == 0:
		return 0, &ConflictError{Name: name, Seen: seen, Is: revision}
	case made < 0:
		return 0, &weir.InputError{Field: "rules", Given: l.config.most + 1, Allowed: fmt.Sprint("at most ", l.config.most)}
	}
	return revision, nil
}

func (a *Author) check() error {
	switch {
	case a.Who == "" || len(a.Who) > MaxWho:
		return &weir.InputError{Field: "who", Given: a.Who[:min(len(a.Who), 80)], Allowed: fmt.Sprintf("1 to %d bytes", MaxWho)}
	case len(a.Why) > MaxWhy:
		return &weir.InputError{Field: "bytes of why", Given: len(a.Why), Allowed: fmt.Sprintf("at most %d", MaxWhy)}
	}
	return nil
}

// at is what a rule was at a revision.
func (l *Ledger) at(ctx context.Context, name string, revision int64) (Change, error) {
	id := strconv.FormatInt(revision, 10) + "-0"
	page, _, err := l.page(ctx, id, id)
	if err != nil {
		return Change{}, err
	}
	if len(page) != 1 || page[0].Name != name {
		return Change{}, fmt.Errorf("redissource: rule %.80q at revision %d: %w, or no longer: that was a change of another rule, or is forgotten", name, revision, ErrNoRule)
	}
	return page[0], nil
}

// History is the last changes of a rule, or with "" of all, the newest first: at most most,
// from 1 to 1000.
func (l *Ledger) History(ctx context.Context, name string, most int) (list []Change, err error) {
	if most < 1 || most > 1000 {
		return nil, &weir.InputError{Field: "most changes", Given: most, Allowed: "1 to 1000"}
	}
	oldest := int64(0)
	for last := "+"; last != "" && len(list) <= most; { // one more, to compare with
		var page []Change
		if page, last, err = l.page(ctx, last, "-"); err != nil {
			return nil, err
		}
		for _, c := range page {
			if oldest = c.Revision; name == "" || c.Name == name {
				list = append(list, c)
			}
		}
	}
	compare(list, oldest == 1)
	return list[:min(len(list), most)], nil
}

// compare says what each change did to its rule. Of all that ever was, the first change of
// a rule made it.
func compare(list []Change, ever bool) {
	before := make(map[string]*Change)
	for i := len(list) - 1; i >= 0; i-- {
		c := &list[i]
		if old := before[c.Name]; old != nil || ever {
			c.Diff = source.Diff(fileOf(old), fileOf(c))
		}
		before[c.Name] = c
	}
}

// fileOf is the rule of a change, or none.
func fileOf(c *Change) *rules.File {
	var file rules.File
	if c == nil || c.Deleted {
		return &file
	}
	if spec, err := ParseDocument(c.Name, c.YAML); err == nil {
		file.Rules = []rules.Spec{spec}
	}
	return &file
}

// historyPage is how many changes are read in one call.
const historyPage = 200

// page reads changes downwards from an entry. next is where to go on, or "".
func (l *Ledger) page(ctx context.Context, from, to string) (list []Change, next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	command := l.client.B().Xrevrange().Key(l.config.keys()[2]).End(from).Start(to).Count(historyPage).Build()
	entries, err := l.client.Do(ctx, command).AsXRange()
	if err != nil {
		return nil, "", fmt.Errorf("redissource: %w", err)
	}
	for _, e := range entries {
		c, err := decodeChange(e.FieldValues["name"], e.FieldValues["is"])
		if err != nil {
			return nil, "", err
		}
		list = append(list, c)
	}
	if len(entries) < historyPage {
		return list, "", nil
	}
	return list, "(" + entries[len(entries)-1].ID, nil
}
