package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/rules/ledger"
	"github.com/weirproject/weir/rules/source"
)

// A ruleAnswer is a rule as the server has it.
type ruleAnswer struct {
	Name     string    `json:"name"`
	From     string    `json:"from"`     // the layer: the ledger's, or where else it is in force from
	InForce  bool      `json:"in_force"` // what From says is what requests meet
	Enabled  bool      `json:"enabled"`
	Revision int64     `json:"revision,omitzero"` // in the ledger
	Who      string    `json:"who,omitzero"`
	Why      string    `json:"why,omitzero"`
	When     time.Time `json:"when,omitzero"`
	YAML     string    `json:"yaml,omitzero"`
	Limit    []string  `json:"limit,omitzero"` // of a rule that is in force
}

func answerOf(d *ledger.Document, layer string) ruleAnswer {
	return ruleAnswer{Name: d.Name, From: layer, Enabled: d.Enabled, Revision: d.Revision, Who: d.Author.Who, Why: d.Author.Why, When: d.When}
}

// A lawView is what is in force.
type lawView struct {
	file *rules.File
	from []string
}

func (d *door) law() lawView {
	if law := d.Status().Law; law != nil {
		return lawView{law.File, law.From}
	}
	return lawView{file: new(rules.File)}
}

func (v *lawView) find(name string) int {
	return slices.IndexFunc(v.file.Rules, func(s rules.Spec) bool { return s.Name == name })
}

type rulesAnswer struct {
	Revision int64        `json:"revision"` // of the ledger
	Rules    []ruleAnswer `json:"rules"`
}

// listRules tells of what is in force, in its order, and then of what is only in the ledger.
func (d *door) listRules(ctx context.Context, c *call) (any, error) {
	var list []ledger.Document
	var revision int64
	if d.Ledger != nil {
		var err error
		if list, revision, err = d.Ledger.List(ctx); err != nil {
			return nil, d.told(err)
		}
	}
	held := make(map[string]*ledger.Document)
	for i := range list {
		held[list[i].Name] = &list[i]
	}
	answer, law := rulesAnswer{Revision: revision, Rules: []ruleAnswer{}}, d.law()
	for i := range law.file.Rules {
		spec := &law.file.Rules[i]
		one := ruleAnswer{Name: spec.Name, From: law.from[i], Enabled: true}
		if document := held[spec.Name]; document != nil && law.from[i] == d.Layer {
			one = answerOf(document, d.Layer)
			delete(held, spec.Name)
		}
		one.InForce, one.Limit = true, spec.Limit
		answer.Rules = append(answer.Rules, one)
	}
	for _, document := range list {
		if held[document.Name] != nil {
			answer.Rules = append(answer.Rules, answerOf(&document, d.Layer))
		}
	}
	return answer, nil
}

func (d *door) getRule(ctx context.Context, c *call) (any, error) {
	document, err := ledger.Document{}, error(ledger.ErrNoRule)
	if d.Ledger != nil {
		document, err = d.Ledger.Get(ctx, c.name())
	}
	law := d.law()
	at := law.find(c.name())
	if errors.Is(err, ledger.ErrNoRule) && at >= 0 {
		return ruleAnswer{Name: c.name(), From: law.from[at], InForce: true, Enabled: true, Limit: law.file.Rules[at].Limit}, nil
	}
	if err != nil {
		return nil, d.told(err)
	}
	answer := answerOf(&document, d.Layer)
	answer.YAML, c.etag = document.YAML, document.Revision
	if at >= 0 && law.from[at] == d.Layer {
		answer.InForce, answer.Limit = true, law.file.Rules[at].Limit
	}
	return answer, nil
}

// A change is what a diff says of one rule.
type change struct {
	Rule   string   `json:"rule"` // "" are the fields of the file
	Kind   string   `json:"kind"` // added, removed, renamed or changed
	Fields []string `json:"fields,omitzero"`
	Was    string   `json:"was,omitzero"`
	Counts string   `json:"counts,omitzero"` // kept or anew
	Why    string   `json:"why,omitzero"`    // its counts start anew
	Text   string   `json:"text"`            // all of it in a line
}

func changesOf(diff []source.Change) []change {
	list := []change{}
	for _, c := range diff {
		one := change{Rule: c.Rule, Kind: [...]string{"changed", "added", "removed", "renamed"}[c.Kind], Fields: c.Fields, Was: c.Was, Why: c.Anew, Text: c.String()}
		if c.Rule != "" && (c.Kind == source.Changed || c.Kind == source.Renamed) {
			one.Counts = "kept"
			if c.Anew != "" {
				one.Counts = "anew"
			}
		}
		list = append(list, one)
	}
	return list
}

// A written answer tells what came of a write.
type written struct {
	Name     string   `json:"name"`
	Revision int64    `json:"revision,omitzero"` // 0: nothing was written
	Changes  []change `json:"changes"`
	InForce  bool     `json:"in_force"`         // on this server, by now
	Waiting  string   `json:"waiting,omitzero"` // why it is not
}

// with is what is in force with another version of one rule; nil takes the ledger's out.
func (d *door) with(name string, spec *rules.Spec) *rules.File {
	law := d.law()
	file := *law.file
	file.Rules = slices.Clone(file.Rules)
	at := law.find(name)
	switch {
	case spec != nil && at >= 0:
		file.Rules[at] = *spec
	case spec != nil:
		file.Rules = append(file.Rules, *spec)
	case at >= 0 && law.from[at] == d.Layer:
		file.Rules = slices.Delete(file.Rules, at, at+1)
	}
	return &file
}

// below is the layer whose rule the ledger's one of this name replaces, or "".
func (d *door) below(name string) string {
	for _, c := range d.Status().Collisions {
		if c.Rule == name && c.Winner == d.Layer {
			return c.Loser
		}
	}
	return ""
}

// propose tells what another version of a rule would change, and whether the rules can
// stand together then. Where they cannot as it is, that is not its fault.
func (d *door) propose(name string, spec *rules.Spec) ([]source.Change, error) {
	now, then := d.law().file, d.with(name, spec)
	if _, err := d.Compile(then); err != nil {
		if _, before := d.Compile(now); before == nil {
			return nil, err
		}
	}
	return source.Diff(now, then), nil
}

func (d *door) putRule(ctx context.Context, c *call) (any, error) {
	dry, seen, err := c.intent()
	if err != nil {
		return nil, err
	}
	text, err := c.body(ledger.MaxDocument, yamlKinds...)
	if err != nil {
		return nil, err
	}
	spec, err := ledger.ParseDocument(c.name(), string(text))
	if err != nil {
		return nil, err
	}
	return d.change(ctx, c, dry, &spec, "set", func() (int64, error) { return d.Ledger.Set(ctx, c.name(), string(text), seen, c.by()) })
}

// change makes a change of a rule, tells the log, and waits until it is in force.
func (d *door) change(ctx context.Context, c *call, dry bool, spec *rules.Spec, what string, commit func() (int64, error)) (any, error) {
	if spec != nil {
		if document, err := d.Ledger.Get(ctx, c.name()); err == nil && !document.Enabled && (what == "set" || what == "promote") {
			spec = nil // it stays disabled
		}
	}
	diff, err := d.propose(c.name(), spec)
	if err != nil {
		return nil, err
	}
	answer := written{Name: c.name(), Changes: changesOf(diff)}
	if below := d.below(c.name()); spec == nil && below != "" {
		answer.Changes = []change{{Rule: c.name(), Kind: "changed", Text: fmt.Sprintf("%s: that of %s is in force again", c.name(), below)}}
	}
	if dry {
		return answer, nil
	}
	answer.Revision, err = commit()
	if law := d.law(); errors.Is(err, ledger.ErrNoRule) && law.find(c.name()) >= 0 {
		from := law.from[law.find(c.name())]
		return nil, refusef(http.StatusNotFound, "rule %q is from %s, and not in the ledger: change it where it is written, or put one of this name into the ledger (weir rules set %s FILE), which goes before it",
			c.name(), from, c.name())
	}
	if err != nil {
		return nil, d.told(err)
	}
	c.etag = answer.Revision
	d.Log.Info("admin: a rule was changed", "what", what, "rule", c.name(), "revision", answer.Revision, "who", c.who, "why", c.by().Why, "changes", source.Summary(diff))
	answer.InForce, answer.Waiting = d.await(ctx, answer.Revision)
	return answer, nil
}

func (d *door) deleteRule(ctx context.Context, c *call) (any, error) {
	seen, err := c.seen()
	if err != nil {
		return nil, err
	}
	return d.change(ctx, c, false, nil, "delete", func() (int64, error) { return d.Ledger.Delete(ctx, c.name(), seen, c.by()) })
}

func (d *door) disableRule(ctx context.Context, c *call) (any, error) {
	seen, err := c.seen()
	if err != nil {
		return nil, err
	}
	return d.change(ctx, c, false, nil, "disable", func() (int64, error) { return d.Ledger.Disable(ctx, c.name(), seen, c.by()) })
}

func (d *door) enableRule(ctx context.Context, c *call) (any, error) {
	seen, err := c.seen()
	if err != nil {
		return nil, err
	}
	document, err := d.Ledger.Get(ctx, c.name())
	if err != nil {
		return nil, d.told(err)
	}
	spec, err := ledger.ParseDocument(c.name(), document.YAML)
	if err != nil {
		return nil, err
	}
	return d.change(ctx, c, false, &spec, "enable", func() (int64, error) { return d.Ledger.Enable(ctx, c.name(), seen, c.by()) })
}

func (d *door) rollback(ctx context.Context, c *call) (any, error) {
	to, err := c.number("to", 0)
	if err == nil && to == 0 {
		err = refusef(http.StatusBadRequest, "say to which revision of the history: ?to=REVISION")
	}
	dry, errDry := c.flag("dry_run")
	if err = errors.Join(err, errDry); err != nil {
		return nil, err
	}
	var seen int64
	if !dry {
		if seen, err = c.seen(); err != nil {
			return nil, err
		}
	}
	then, err := d.Ledger.At(ctx, c.name(), to)
	if err != nil {
		return nil, d.told(err)
	}
	var spec *rules.Spec
	if !then.Deleted && then.Enabled {
		one, err := ledger.ParseDocument(c.name(), then.YAML)
		if err != nil {
			return nil, err
		}
		spec = &one
	}
	return d.change(ctx, c, dry, spec, fmt.Sprint("rollback to ", to), func() (int64, error) {
		return d.Ledger.Rollback(ctx, c.name(), to, seen, c.by())
	})
}

// diff tells what a rule, or a whole file, would change. What a file leaves out is removed.
func (d *door) diff(_ context.Context, c *call) (any, error) {
	text, err := c.body(rules.MaxFile, yamlKinds...)
	if err != nil {
		return nil, err
	}
	if name := c.query.Get("rule"); name != "" {
		spec, err := ledger.ParseDocument(name, string(text))
		if err != nil {
			return nil, err
		}
		diff, err := d.propose(name, &spec)
		return written{Name: name, Changes: changesOf(diff)}, err
	}
	file, err := rules.Parse("file", text)
	if err == nil {
		_, err = d.Compile(file)
	}
	if err != nil {
		return nil, err
	}
	now := d.law().file
	file.Exceptions = now.Exceptions
	return written{Changes: changesOf(source.Diff(now, file))}, nil
}
