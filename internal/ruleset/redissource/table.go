package redissource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirproject/weir/internal/redisconn"
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

// An entry is the state of one key.
type entry struct {
	last    *Hash // as read last, with or without mistakes
	good    *Hash // the last good version; nil: there was none
	fresh   bool  // last has no known mistakes, and is not checked
	inForce bool  // its rule is in the rules that are compiled
}

// current returns the version that counts; nil if there is no version.
func (e *entry) current() *Hash {
	switch {
	case e.last.off():
		return nil
	case e.fresh:
		return e.last
	}
	return e.good
}

func newTable(prefix string, most int) *table {
	return &table{compiler: rules.NewCompiler(), prefix: prefix, most: most, entries: make(map[string]*entry),
		ids: make(map[string]string)}
}

func (t *table) sorted() []*entry {
	if t.order == nil {
		t.order = slices.SortedFunc(maps.Values(t.entries),
			func(a, b *entry) int { return strings.Compare(a.last.key, b.last.key) })
	}
	return t.order
}

func (t *table) remove(key string) {
	delete(t.entries, key)
	t.order = nil
}

// read implements state.
func (t *table) read(ctx context.Context, client redisconn.Client) error {
	found, err := newScan(t.prefix, t.most, t.entries).run(ctx, client)
	if err != nil {
		return err
	}
	return t.take(found)
}

// take accepts a reading.
func (t *table) take(found map[string]*Hash) error {
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
	for _, h := range found {
		t.put(h)
	}
	t.index()
	return nil
}

// index collects the hashes with an id that is not the name in their key.
func (t *table) index() {
	clear(t.ids)
	for _, e := range t.sorted() {
		if id, given := e.last.fields["id"]; given && t.ids[id] == "" && t.prefix+id != e.last.key {
			t.ids[id] = e.last.key
		}
	}
}

// called returns the key of the hash with an id: the first of several, or if there is no such hash, the key that it
// would have.
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
	return e != nil && e.last.fields["id"] == id
}

// put sets the value of a key.
func (t *table) put(h *Hash) {
	e := t.entries[h.key]
	if e == nil {
		e = new(entry)
		t.entries[h.key], t.order = e, nil
	} else if e.last.same(h) {
		return
	}
	e.decide(false)
	if h.kind == user && h.Enabled && t.withoutUsers != "" && len(h.Problems) == 0 {
		h.say("limitType", "is USER, and "+t.withoutUsers)
	}
	e.last, e.fresh = h, len(h.Problems) == 0
	if e.fresh {
		t.fresh = append(t.fresh, e)
	}
}

// decide makes a fresh version the good one if it passes the checks, and reports whether it does
// not.
func (e *entry) decide(good bool) (wrong bool) {
	if !e.fresh {
		return false
	}
	e.fresh = false
	if !good {
		e.last.check()
	}
	if len(e.last.Problems) > 0 {
		return true
	}
	e.good = e.last
	return false
}

// alone is the cost of checking a single rule, as a multiple of the cost among many.
const alone = 4

// decide checks all next versions, and reports whether one is wrong. Rules that compile together compile separately
// too. So if many are new, as at the start, all are compiled together, which saves the Manager's compilation; if that
// fails, each is checked separately.
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
	t.put(parse(t.prefix, key, t.completed(key, fields)))
	return true
}

// completed adds the known fields to a message that only enables or disables a rule.
func (t *table) completed(key string, fields map[string]string) map[string]string {
	e := t.entries[key]
	enabled, given := fields["enabled"]
	if e == nil || e.last.foreign != "" || !given || len(fields) != 2 {
		return fields
	}
	whole := maps.Clone(e.last.fields)
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

// isRenamed reports whether a rule has another name than its key.
func (t *table) isRenamed(e *entry) bool {
	h := e.current()
	return h != nil && h.Rule.Name != strings.TrimPrefix(h.key, t.prefix)
}

// collect returns the current version of each enabled rule. The names of the others are off in earlier sources too.
func (t *table) collect() ruleset.Update {
	all := t.sorted()
	g := collection{file: &rules.File{Name: "redis " + ruleset.Quoted(t.prefix) + "*"},
		wrong: ruleset.Error{Omitted: t.more}, targets: make(map[duplicateKey]string, len(all))}
	if slices.ContainsFunc(all, t.isRenamed) {
		g.names = make(map[string]string, len(all))
	}
	g.file.Rules = make([]rules.Spec, 0, len(all))
	g.wrong.Add(t.messageProblems...)
	sum, buffer := sha256.New(), []byte(nil)
	for _, e := range all {
		if e.last.off() {
			name := nameOf(strings.TrimPrefix(e.last.key, t.prefix))
			g.file.Disabled = append(g.file.Disabled, name)
			sum.Write(append(buffer[:0], "off "+name+"\n"...))
		}
		h := e.current()
		if e.inForce = h != nil && h.Enabled && g.take(h); e.inForce {
			buffer = h.appendTo(buffer[:0])
			sum.Write(buffer)
		} else if h != nil && h.Enabled {
			g.leftOut++
			continue
		}
		g.report(e)
	}
	return ruleset.Update{File: g.file, Revision: hex.EncodeToString(sum.Sum(nil)[:8]), Warning: g.wrong.OrNil(),
		LeftOut: g.leftOut}
}

// report adds the problems of the last reading, and their effect.
func (g *collection) report(e *entry) {
	if len(e.last.Problems) == 0 {
		if e.inForce {
			g.wrong.Add(e.last.Ignored...)
		}
		return
	}
	state := ruleset.AbsentState
	switch {
	case e.last.off():
		state = ruleset.OffState
	case e.good != nil:
		state = ruleset.KeptState
	}
	if state != ruleset.OffState {
		g.leftOut++
	}
	for _, p := range e.last.Problems {
		p.State = state
		g.wrong.Add(p)
	}
}

// take adds a rule, unless its name is in use.
func (g *collection) take(h *Hash) bool {
	if first, taken := g.names[h.Rule.Name]; taken {
		message := "is called " + h.Rule.Name + " like " + ruleset.Quoted(first) + "; give one of them another key"
		g.wrong.Add(ruleset.Problem{Where: ruleset.Quoted(h.key), Message: message, State: ruleset.AbsentState})
		return false
	}
	if g.names != nil {
		g.names[h.Rule.Name] = h.key
	}
	g.file.Rules = append(g.file.Rules, *h.Rule)
	h.Rule = &g.file.Rules[len(g.file.Rules)-1] // releases the second copy
	g.checkDuplicate(h)
	return true
}

// checkDuplicate reports a rule without effect, because another one has the same target.
func (g *collection) checkDuplicate(h *Hash) {
	if h.kind == global {
		return
	}
	what := duplicateKey{h.kind, h.target, h.Rule.Mode}
	first, taken := g.targets[what]
	if !taken {
		g.targets[what] = h.key
		return
	}
	g.wrong.Add(ruleset.Problem{Where: ruleset.Quoted(h.key), Field: "limitTarget",
		Message: fmt.Sprintf("is %.80q, as that of %s: of one limitType only one rule applies to a request",
			h.target, ruleset.Quoted(first)),
		State: "of the two it is that of " + ruleset.Quoted(first)})
}
