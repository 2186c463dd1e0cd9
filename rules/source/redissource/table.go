package redissource

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/rules/source"
)

// A table is what is known of the hashes: the shelf of the layout that one hash is one
// rule. It does no I/O; its scans do.
type table struct {
	prefix     string
	most       int
	allowEmpty bool
	entries    map[string]*entry // by key
	ids        map[string]string // the key of an id that a hash gives itself
	touched    map[string]bool   // keys that messages changed since the last reading began
	loose      []Problem         // of messages that are no rule's
	more       int               // that have no room there
}

// An entry is what is known of one hash.
type entry struct {
	fields   map[string]string // as they were read last, good or not
	foreign  string            // the key holds no rule: why
	good     *record           // the last good version; nil: there was none
	problems []Problem         // of what was read last
}

// A reading is what stood under a key.
type reading struct {
	fields  map[string]string // none: nothing stands there
	foreign string            // something that is no rule: why
}

func newTable(prefix string, most int) *table {
	return &table{prefix: prefix, most: most, entries: make(map[string]*entry), ids: make(map[string]string), touched: make(map[string]bool)}
}

func (t *table) keys() []string { return sorted(t.entries) }

func (t *table) begin() look {
	clear(t.touched)
	return &scan{prefix: t.prefix, most: t.most, known: t.keys(), found: make(map[string]reading)}
}

// take has the table agree with what was read, but for keys that messages have changed
// since the reading began.
func (t *table) take(l look) error {
	found := l.(*scan).found
	if len(found) == 0 && !t.allowEmpty && t.untouched() > 0 {
		return refuse("empty", "no key %s* is left: %w", quoted(t.prefix), source.ErrEmpty)
	}
	for key := range t.entries {
		if _, there := found[key]; !there && !t.touched[key] {
			delete(t.entries, key)
		}
	}
	for _, key := range sorted(found) {
		if !t.touched[key] {
			t.put(key, found[key])
		}
	}
	t.index()
	return nil
}

// index finds the hashes that messages call otherwise than their keys do. Of two with one
// id messages change the first.
func (t *table) index() {
	clear(t.ids)
	for _, key := range t.keys() {
		if id, given := t.entries[key].fields["id"]; given && t.ids[id] == "" {
			t.ids[id] = key
		}
	}
}

// untouched is how many entries no message has changed.
func (t *table) untouched() (n int) {
	for key := range t.entries {
		if !t.touched[key] {
			n++
		}
	}
	return n
}

// put makes what was read the rule of its key, if it is one.
func (t *table) put(key string, r reading) {
	if len(r.fields) == 0 && r.foreign == "" {
		delete(t.entries, key)
		return
	}
	e := t.entries[key]
	if e == nil {
		e = new(entry)
		t.entries[key] = e
	} else if e.foreign == r.foreign && maps.Equal(e.fields, r.fields) {
		return
	}
	e.fields, e.foreign, e.problems = r.fields, r.foreign, nil
	if r.foreign != "" {
		e.problems = []Problem{{Where: quoted(key), Message: r.foreign}}
		return
	}
	rec, problems := parse(quoted(key), nameOf(strings.TrimPrefix(key, t.prefix)), r.fields)
	if e.problems = problems; len(problems) > 0 {
		return
	}
	rec.digest = digest(&rec.spec)
	e.good = &rec
}

// quoted is a key as messages show it: as it is, if that can be shown.
func quoted(key string) string {
	if q := fmt.Sprintf("%.200q", key); q[1:len(q)-1] != key {
		return q
	}
	return key
}

func (t *table) all(message string) bool { return message == reloadAll }

// hear applies a message that is a rule.
func (t *table) hear(text string) bool {
	key, changed := t.apply(text)
	if changed {
		t.touched[key] = true
	}
	return changed
}

// apply says which key it changed.
func (t *table) apply(text string) (key string, changed bool) {
	fields, err := decode(text)
	if err != nil {
		t.complain(text, "", err.Error())
		return "", false
	}
	id := fields["id"]
	if id == "" || len(id) > MaxValue {
		t.complain(text, "id", "is missing or too long: a message names the rule that it is about")
		return "", false
	}
	key, known := t.ids[id]
	if !known || t.entries[key] == nil {
		key = t.prefix + id
	}
	if deleted, given := fields["deleted"]; given {
		delete(fields, "deleted")
		if deleted != "true" && deleted != "false" {
			t.complain(text, "deleted", fmt.Sprintf("is %.80q; allowed: true, false", deleted))
			return "", false
		}
		if deleted == "true" {
			delete(t.entries, key)
			return key, true
		}
	}
	if t.entries[key] == nil && len(t.entries) >= t.most {
		t.complain(text, "id", fmt.Sprintf("is one rule too many; at most %d", t.most))
		return "", false
	}
	t.put(key, reading{fields: t.completed(key, fields)})
	return key, true
}

// completed lets a message switch a known rule on or off without repeating it.
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

func (t *table) complain(text, field, message string) {
	if len(t.loose) >= MaxProblems {
		t.more++
	} else {
		t.loose = append(t.loose, Problem{Where: fmt.Sprintf("message %.80q", text), Field: field, Message: message, State: "it changes nothing"})
	}
}

// law is the rules that are in force, in the order of their keys, and what is wrong.
// Problems of messages are told once.
func (t *table) law() law {
	sum := sha256.New()
	file := &rules.File{Name: "redis " + quoted(t.prefix) + "*"}
	wrong := &Error{Omitted: t.more}
	wrong.add(t.loose...)
	t.loose, t.more = nil, 0
	names, targets := make(map[string]string), make(map[string]string)
	for _, key := range t.keys() {
		e := t.entries[key]
		if e.good != nil && e.good.enabled {
			if first, taken := names[e.good.spec.Name]; taken {
				wrong.add(Problem{Where: quoted(key), Message: "is called " + e.good.spec.Name + " like " + first + "; give one of them another key", State: absentState})
				continue
			}
			names[e.good.spec.Name] = quoted(key)
			file.Rules = append(file.Rules, e.good.spec)
			sum.Write(e.good.digest[:])
			wrong.add(e.rivals(key, targets)...)
		}
		for _, p := range e.problems {
			p.State = absentState
			if e.good != nil {
				p.State = keptState
			}
			wrong.add(p)
		}
	}
	return law{file, hex.EncodeToString(sum.Sum(nil)[:8]), wrong.orNil()}
}

// rivals says that a rule has no effect because another is for the very same requests.
func (e *entry) rivals(key string, targets map[string]string) []Problem {
	if e.good.kind == global {
		return nil
	}
	what := e.good.kind + " " + e.good.target + " " + string(e.good.spec.Mode)
	first, taken := targets[what]
	if !taken {
		targets[what] = quoted(key)
		return nil
	}
	return []Problem{{Where: quoted(key), Field: "limitTarget",
		Message: fmt.Sprintf("is %.80q, as that of %s: of one limitType only one rule applies to a request", e.good.target, first),
		State:   "of the two it is that of " + first}}
}

// digest is equal for equal rules.
func digest(spec *rules.Spec) [sha256.Size]byte {
	text, err := json.Marshal(spec)
	if err != nil { // it is plain data
		panic(err)
	}
	return sha256.Sum256(text)
}
