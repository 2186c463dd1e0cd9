package redissource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/rueidis"

	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

// A table is the state of the hashes: one hash is one rule. It does no I/O; its scans do.
type table struct {
	lasting
	prefix          string
	most            int
	allowEmpty      bool
	withoutUsers    string            // why no request has a user
	entries         map[string]*entry // by key
	ids             map[string]string // maps the id field of a hash to its key, if the two differ
	messageProblems []ruleset.Problem // of messages that name no rule
	more            int               // the number of problems over the maximum
	order           []*entry          // sorted by key; nil: outdated
	fresh           []*entry          // entries with a new version that is not checked
	compiler        *rules.Compiler
}

// An entry is the state of one hash.
type entry struct {
	key      string
	fields   map[string]string // as read last, with or without mistakes
	foreign  string            // why the key holds no rule
	off      bool              // the fields disable the rule, whatever mistakes they have
	good     *record           // the last good version; nil: there was none
	next     *record           // the last version without known mistakes; nil: it was decided
	inForce  bool              // its rule is in the rules that are compiled
	problems []ruleset.Problem // of the last reading
	ignored  []ruleset.Problem // fields of it that have no effect
}

// current returns the version that counts; nil if there is none.
func (e *entry) current() *record {
	if e.off {
		return nil
	}
	if e.next != nil {
		return e.next
	}
	return e.good
}

// A reading is the value of a key.
type reading struct {
	key     string
	fields  map[string]string // empty: there is no such key
	foreign string            // why the value is no rule; "": it is
	seen    *examined         // result of parsing the fields, if that was done already
}

// examined is the result of examine.
type examined struct {
	rec      record
	problems []ruleset.Problem
	ignored  []ruleset.Problem
}

func newTable(prefix string, most int) *table {
	return &table{compiler: rules.NewCompiler(), prefix: prefix, most: most, entries: make(map[string]*entry),
		ids: make(map[string]string)}
}

func (t *table) sorted() []*entry {
	if t.order == nil {
		t.order = slices.SortedFunc(maps.Values(t.entries),
			func(a, b *entry) int { return strings.Compare(a.key, b.key) })
	}
	return t.order
}

func (t *table) remove(key string) {
	delete(t.entries, key)
	t.order = nil
}

// read implements state.
func (t *table) read(ctx context.Context, client rueidis.Client) error {
	known := make([]string, len(t.entries))
	for i, e := range t.sorted() {
		known[i] = e.key
	}
	found, err := newScan(t.prefix, t.most, known).run(ctx, client)
	if err != nil {
		return err
	}
	return t.take(found)
}

// take accepts a reading.
func (t *table) take(found map[string]reading) error {
	if len(found) == 0 && !t.allowEmpty && len(t.entries) > 0 {
		return refuse("empty", "no key %s* is left: %w; to delete them, send for each: "+
			"{\"id\":…,\"deleted\":true}", ruleset.Quoted(t.prefix), ruleset.ErrEmpty)
	}
	for key := range t.entries {
		if _, there := found[key]; !there {
			t.remove(key)
		}
	}
	if len(t.entries) == 0 {
		t.entries = make(map[string]*entry, len(found))
	}
	for key, r := range found {
		t.put(key, r)
	}
	t.index()
	return nil
}

// index collects the hashes whose id is not the name in their key.
func (t *table) index() {
	clear(t.ids)
	for _, e := range t.sorted() {
		if id, given := e.fields["id"]; given && t.ids[id] == "" && id != strings.TrimPrefix(e.key, t.prefix) {
			t.ids[id] = e.key
		}
	}
}

// called returns the key of the hash with an id: the first of several, or if there is none, the key
// that it would have.
func (t *table) called(id string) string {
	own := t.prefix + id
	key, known := t.ids[id]
	if known && t.entries[key] != nil && (key < own || !t.isCalled(own, id)) {
		return key
	}
	return own
}

func (t *table) isCalled(key, id string) bool {
	e := t.entries[key]
	return e != nil && e.fields["id"] == id
}

// put sets the rule of a key.
func (t *table) put(key string, r reading) {
	if len(r.fields) == 0 && r.foreign == "" {
		t.remove(key)
		return
	}
	e := t.entries[key]
	if e == nil {
		e = &entry{key: key}
		t.entries[key], t.order = e, nil
	} else if e.foreign == r.foreign && maps.Equal(e.fields, r.fields) {
		return
	}
	e.decide(false)
	e.fields, e.foreign, e.problems, e.ignored = r.fields, r.foreign, nil, nil
	e.off = r.foreign == "" && disabled(r.fields)
	if r.foreign != "" {
		e.problems = []ruleset.Problem{{Where: ruleset.Quoted(key), Message: r.foreign}}
		return
	}
	f := r.seen
	if f == nil {
		f = found(t.prefix, key, r.fields)
	}
	if f.rec.kind == user && f.rec.enabled && t.withoutUsers != "" && len(f.problems) == 0 {
		f.problems = []ruleset.Problem{{Where: ruleset.Quoted(key), Field: "limitType", Message: "is USER, and " +
			t.withoutUsers}}
	}
	e.ignored = f.ignored
	if e.problems = f.problems; len(f.problems) == 0 {
		e.next, t.fresh = &f.rec, append(t.fresh, e)
	}
}

func found(prefix, key string, fields map[string]string) *examined {
	return examine(key, nameOf(strings.TrimPrefix(key, prefix)), fields)
}

// decide makes the next version the good one if it passes the checks, and reports whether it does
// not.
func (e *entry) decide(good bool) (wrong bool) {
	if e.next == nil {
		return false
	}
	if !good {
		e.problems = check(e.key, e.fields, e.next)
	}
	if len(e.problems) == 0 {
		e.good = e.next
	}
	e.next = nil
	return len(e.problems) > 0
}

// alone is the cost of checking a rule by itself, as a multiple of the cost among many.
const alone = 4

// decide checks all next versions, and reports whether one is wrong. Rules that compile together
// compile by themselves too. So if many are new, as at the start, all are compiled together, which
// saves the Manager's compilation; if that fails, each is checked by itself.
func (t *table) decide(file *rules.File) (wrong bool) {
	together := false
	if alone*len(t.fresh) > len(t.entries) {
		_, err := t.compiler.Compile(file)
		together = err == nil
	}
	for _, e := range t.fresh {
		wrong = e.decide(together && e.inForce) || wrong
	}
	t.fresh = nil
	return wrong
}

func (t *table) all(message string) bool { return plain(message) == reloadAll }

// receive implements state: it applies a message with a rule.
func (t *table) receive(text string) bool {
	fields, err := decode(plain(text))
	if err != nil {
		t.reportMessage(text, "", err.Error())
		return false
	}
	id := fields["id"]
	if id == "" || len(id) > MaxValue {
		t.reportMessage(text, "id", "is missing or too long: a message names the rule that it is about")
		return false
	}
	key := t.called(id)
	if deleted, given := fields["deleted"]; given {
		delete(fields, "deleted")
		if deleted != "true" && deleted != "false" {
			t.reportMessage(text, "deleted", fmt.Sprintf("is %.80q; allowed: true, false", deleted))
			return false
		}
		if deleted == "true" {
			t.remove(key)
			return true
		}
	}
	if t.entries[key] == nil && len(t.entries) >= t.most {
		t.reportMessage(text, "id", fmt.Sprintf("is one rule too many; at most %d", t.most))
		return false
	}
	t.put(key, reading{fields: t.completed(key, fields)})
	return true
}

// completed adds the known fields to a message that only enables or disables a rule.
func (t *table) completed(key string, fields map[string]string) map[string]string {
	e := t.entries[key]
	enabled, given := fields["enabled"]
	if e == nil || e.foreign != "" || !given || len(fields) != 2 {
		return fields
	}
	whole := maps.Clone(e.fields)
	whole["enabled"] = enabled
	return whole
}

func (t *table) reportMessage(text, field, message string) {
	if len(t.messageProblems) >= ruleset.MaxProblems {
		t.more++
	} else {
		t.messageProblems = append(t.messageProblems,
			ruleset.Problem{Where: fmt.Sprintf("message %.80q", text), Field: field, Message: message,
				State: "it changes nothing"})
	}
}

// contents returns the rules in force, in the order of their keys, and problems. It reports problems
// of messages once.
func (t *table) contents() ruleset.Update {
	l := t.collect()
	if t.decide(l.File) {
		l = t.collect()
	}
	t.messageProblems, t.more = nil, 0
	return l
}

// A collection builds contents.
type collection struct {
	file    *rules.File
	wrong   ruleset.Error
	leftOut int                     // rules that are not in force as they were read last
	names   map[string]string       // maps names to keys; nil: each rule is named after its key
	targets map[duplicateKey]string // maps targets to their first keys
}

// Of two rules with equal duplicateKeys only one applies.
type duplicateKey struct {
	kind, target string
	mode         rules.Mode
}

// collect returns the current version of each enabled rule. The names of the others are off in earlier sources too.
func (t *table) collect() ruleset.Update {
	all := t.sorted()
	g := collection{file: &rules.File{Name: "redis " + ruleset.Quoted(t.prefix) + "*"},
		wrong:   ruleset.Error{Omitted: t.more},
		targets: make(map[duplicateKey]string, len(all))}
	g.file.Rules = make([]rules.Spec, 0, len(all))
	g.wrong.Add(t.messageProblems...)
	sum, buffer := sha256.New(), []byte(nil)
	for _, e := range all {
		if rec := e.current(); rec != nil &&
			rec.spec.Name != strings.TrimPrefix(e.key, t.prefix) {
			g.names = make(map[string]string, len(all))
			break
		}
	}
	for _, e := range all {
		e.inForce = false
		if e.off {
			name := nameOf(strings.TrimPrefix(e.key, t.prefix))
			g.file.Disabled = append(g.file.Disabled, name)
			sum.Write(append(buffer[:0], "off "+name+"\n"...))
		}
		if rec := e.current(); rec != nil && rec.enabled {
			if !g.take(e.key, rec) {
				g.leftOut++
				continue
			}
			e.inForce = true
			buffer = rec.appendTo(buffer[:0])
			sum.Write(buffer)
			if len(e.problems) == 0 {
				g.wrong.Add(e.ignored...)
			}
		}
		if len(e.problems) > 0 && !e.off {
			g.leftOut++
		}
		for _, p := range e.problems {
			p.State = ruleset.AbsentState
			switch {
			case e.off:
				p.State = ruleset.OffState
			case e.good != nil:
				p.State = ruleset.KeptState
			}
			g.wrong.Add(p)
		}
	}
	return ruleset.Update{File: g.file, Revision: hex.EncodeToString(sum.Sum(nil)[:8]), Warning: g.wrong.OrNil(),
		LeftOut: g.leftOut}
}

// take adds a rule, unless its name is in use.
func (g *collection) take(key string, rec *record) bool {
	if first, taken := g.names[rec.spec.Name]; taken {
		message := "is called " + rec.spec.Name + " like " + ruleset.Quoted(first) + "; give one of them another key"
		g.wrong.Add(ruleset.Problem{Where: ruleset.Quoted(key), Message: message, State: ruleset.AbsentState})
		return false
	}
	if g.names != nil {
		g.names[rec.spec.Name] = key
	}
	g.file.Rules = append(g.file.Rules, *rec.spec)
	rec.spec = &g.file.Rules[len(g.file.Rules)-1] // releases the second copy
	g.checkDuplicate(key, rec)
	return true
}

// checkDuplicate reports a rule without effect, because another one has the same target.
func (g *collection) checkDuplicate(key string, rec *record) {
	if rec.kind == global {
		return
	}
	what := duplicateKey{rec.kind, rec.target, rec.spec.Mode}
	first, taken := g.targets[what]
	if !taken {
		g.targets[what] = key
		return
	}
	g.wrong.Add(ruleset.Problem{Where: ruleset.Quoted(key), Field: "limitTarget",
		Message: fmt.Sprintf("is %.80q, as that of %s: of one limitType only one rule applies to a request",
			rec.target, ruleset.Quoted(first)),
		State: "of the two it is that of " + ruleset.Quoted(first)})
}
