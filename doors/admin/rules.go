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
	Label    string    `json:"label,omitzero"` // what people call it
	From     string    `json:"from"`           // the layer: the ledger's, or where else it is in force from
	InForce  bool      `json:"in_force"`       // what From says is what requests meet
	Enabled  bool      `json:"enabled"`
	Revision int64     `json:"revision,omitzero"` // in the ledger
	Who      string    `json:"who,omitzero"`
	Why      string    `json:"why,omitzero"`
	When     time.Time `json:"when,omitzero"`
	YAML     string    `json:"yaml,omitzero"`
	// Of a rule that is in force.
	Limit     []string   `json:"limit,omitzero"`
	Algorithm string     `json:"algorithm,omitzero"`
	Mode      rules.Mode `json:"mode,omitzero"`
}

// with is the answer with what a rule says.
func (a ruleAnswer) with(spec *rules.Spec) ruleAnswer {
	a.Label, a.Limit, a.Algorithm, a.Mode = spec.Label, spec.Limit, spec.Algorithm, spec.Mode
	return a
}

func answerOf(d *ledger.Document, layer string) ruleAnswer {
	return ruleAnswer{Name: d.Name, From: layer, Enabled: d.Enabled, Revision: d.Revision, Who: d.Author.Who, Why: d.Author.Why, When: d.When}
}

// A lawView is what is in force at one moment.
type lawView struct {
	file     *rules.File
	from     []string
	off      []source.Off
	revision int64 // of the ledger
}

// law is what is in force. What is read from the ledger afterwards, and is not newer than the
// view's revision, is what is in force; what is newer is not yet.
func (d *door) law() lawView {
	status := d.Status()
	view := lawView{file: new(rules.File)}
	if law := status.Law; law != nil {
		view.file, view.from, view.off = law.File, law.From, law.Off
	}
	for _, layer := range status.Layers {
		if layer.Name == d.Layer {
			view.revision = revisionOf(layer.Revision)
		}
	}
	return view
}

func (v *lawView) find(name string) int {
	return slices.IndexFunc(v.file.Rules, func(s rules.Spec) bool { return s.Name == name })
}

// disabled is the rule of this name from elsewhere that an operator has disabled; nil: none.
func (v *lawView) disabled(name string) *source.Off {
	i := slices.IndexFunc(v.off, func(o source.Off) bool { return o.Rule.Name == name })
	if i < 0 {
		return nil
	}
	return &v.off[i]
}

// describe is what there is to say of a document that was read after the view was taken. The limit
// is that of the document, whatever is in force: with its ETag it is what a change begins with.
func (d *door) describe(document *ledger.Document, law *lawView) ruleAnswer {
	answer := answerOf(document, d.Layer)
	if off := law.disabled(document.Name); document.YAML == "" && off != nil {
		answer.From, answer.Limit, answer.Label = off.From, off.Rule.Limit, off.Rule.Label
		return answer
	}
	at := law.find(document.Name)
	if at >= 0 && law.from[at] == d.Layer && document.Revision <= law.revision {
		answer = answer.with(&law.file.Rules[at])
		answer.InForce = true
	} else if spec, err := ledger.ParseDocument(document.Name, document.YAML); err == nil {
		answer = answer.with(&spec)
	}
	return answer
}

type rulesAnswer struct {
	Revision int64        `json:"revision"` // of the ledger
	Rules    []ruleAnswer `json:"rules"`
}

// listRules tells of what is in force, in its order, and then of what is only in the ledger.
func (d *door) listRules(ctx context.Context, c *call) (any, error) {
	law := d.law() // before the ledger is read
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
	answer := rulesAnswer{Revision: revision, Rules: []ruleAnswer{}}
	for i := range law.file.Rules {
		spec := &law.file.Rules[i]
		one := ruleAnswer{Name: spec.Name, From: law.from[i], InForce: true, Enabled: true}.with(spec)
		if document := held[spec.Name]; document != nil && law.from[i] == d.Layer {
			one = d.describe(document, &law)
			delete(held, spec.Name)
		}
		answer.Rules = append(answer.Rules, one)
	}
	for i := range list {
		if held[list[i].Name] != nil {
			answer.Rules = append(answer.Rules, d.describe(&list[i], &law))
		}
	}
	return answer, nil
}

func (d *door) getRule(ctx context.Context, c *call) (any, error) {
	law := d.law() // before the ledger is read
	document, err := ledger.Document{}, error(ledger.ErrNoRule)
	if d.Ledger != nil {
		document, err = d.Ledger.Get(ctx, c.name())
	}
	at := law.find(c.name())
	if errors.Is(err, ledger.ErrNoRule) && at >= 0 {
		return ruleAnswer{Name: c.name(), From: law.from[at], InForce: true, Enabled: true}.with(&law.file.Rules[at]), nil
	}
	if err != nil {
		return nil, d.told(err)
	}
	answer := d.describe(&document, &law)
	answer.YAML, c.etag = document.YAML, document.Revision
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

// with is what is in force with another version of one rule.
func (v *lawView) with(spec *rules.Spec) *rules.File {
	file := *v.file
	file.Rules = slices.Clone(file.Rules)
	if at := v.find(spec.Name); at >= 0 {
		file.Rules[at] = *spec
	} else {
		file.Rules = append(file.Rules, *spec)
	}
	return &file
}

// without is what is in force without one rule.
func (v *lawView) without(name string) *rules.File {
	file := *v.file
	file.Rules = slices.DeleteFunc(slices.Clone(file.Rules), func(s rules.Spec) bool { return s.Name == name })
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

// propose tells what other rules would change, and whether they can stand together. Where those in
// force cannot either, that is not their fault.
func (d *door) propose(then *rules.File) ([]source.Change, error) {
	now := d.law().file
	if _, err := d.Compile(then); err != nil {
		if _, before := d.Compile(now); before == nil {
			return nil, err
		}
	}
	return source.Diff(now, then), nil
}

// A writing is a change of a rule that is asked for.
type writing struct {
	what   string
	dry    bool
	then   *rules.File // what is in force afterwards
	again  string      // the layer whose rule of this name is in force again; "": none is
	commit func() (int64, error)
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
	return d.change(ctx, c, &writing{what: "set", dry: dry, then: d.afterSetting(ctx, &spec),
		commit: func() (int64, error) { return d.Ledger.Set(ctx, c.name(), string(text), seen, c.by()) }})
}

// afterSetting is what is in force when a rule is set: one that is disabled stays so.
func (d *door) afterSetting(ctx context.Context, spec *rules.Spec) *rules.File {
	law := d.law()
	if document, err := d.Ledger.Get(ctx, spec.Name); err == nil && !document.Enabled {
		return law.file
	}
	return law.with(spec)
}

// change makes a change of a rule, writes it to the log, and waits until it is in force.
func (d *door) change(ctx context.Context, c *call, w *writing) (any, error) {
	diff, err := d.propose(w.then)
	if err != nil {
		return nil, err
	}
	answer := written{Name: c.name(), Changes: changesOf(diff)}
	if w.again != "" {
		text := fmt.Sprintf("%s: that of %s is in force again", c.name(), w.again)
		answer.Changes = []change{{Rule: c.name(), Kind: "changed", Text: text}}
	}
	if w.dry {
		return answer, nil
	}
	if answer.Revision, err = w.commit(); err != nil {
		return nil, d.told(d.located(c.name(), err))
	}
	c.etag = answer.Revision
	d.Log.Info("admin: a rule was changed", "what", w.what, "rule", c.name(), "revision", answer.Revision,
		"who", c.who, "why", c.by().Why, "changes", source.Summary(diff))
	answer.InForce, answer.Waiting = d.await(ctx, answer.Revision)
	return answer, nil
}

// located says of a rule that the ledger does not have where it is.
func (d *door) located(name string, err error) error {
	law := d.law()
	at := law.find(name)
	if at < 0 || !errors.Is(err, ledger.ErrNoRule) {
		return err
	}
	return refusef(http.StatusNotFound, "rule %q is from %s, and not in the ledger: disable it (weir rules disable %[1]s), "+
		"change it where it is written, or put one of this name into the ledger (weir rules set %[1]s FILE), which goes before it",
		name, law.from[at])
}

func (d *door) deleteRule(ctx context.Context, c *call) (any, error) {
	seen, err := c.seen()
	if err != nil {
		return nil, err
	}
	law := d.law()
	w := &writing{what: "delete", then: law.file, again: d.below(c.name()),
		commit: func() (int64, error) { return d.Ledger.Delete(ctx, c.name(), seen, c.by()) }}
	if at := law.find(c.name()); at >= 0 && law.from[at] == d.Layer {
		w.then = law.without(c.name())
	}
	if off := law.disabled(c.name()); off != nil {
		w.then, w.again = law.with(off.Rule), off.From
	}
	return d.change(ctx, c, w)
}

// disableRule takes a rule out of force, wherever it is from.
func (d *door) disableRule(ctx context.Context, c *call) (any, error) {
	seen, err := c.seen()
	if err != nil {
		return nil, err
	}
	law := d.law()
	return d.change(ctx, c, &writing{what: "disable", then: law.without(c.name()), commit: func() (int64, error) {
		if seen > 0 || law.find(c.name()) < 0 {
			return d.Ledger.Disable(ctx, c.name(), seen, c.by())
		}
		return d.Ledger.Mask(ctx, c.name(), c.by())
	}})
}

func (d *door) enableRule(ctx context.Context, c *call) (any, error) {
	seen, err := c.seen()
	if err != nil {
		return nil, err
	}
	document, err := d.Ledger.Get(ctx, c.name())
	if err != nil {
		return nil, d.told(d.located(c.name(), err))
	}
	law := d.law()
	w := &writing{what: "enable", then: law.file, commit: func() (int64, error) { return d.Ledger.Enable(ctx, c.name(), seen, c.by()) }}
	if off := law.disabled(c.name()); document.YAML == "" && off != nil {
		w.then, w.again = law.with(off.Rule), off.From
	}
	if document.YAML != "" {
		spec, err := ledger.ParseDocument(c.name(), document.YAML)
		if err != nil {
			return nil, err
		}
		w.then = law.with(&spec)
	}
	return d.change(ctx, c, w)
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
	past, err := d.Ledger.At(ctx, c.name(), to)
	if err != nil {
		return nil, d.told(err)
	}
	law := d.law()
	w := &writing{what: fmt.Sprint("rollback to ", to), dry: dry, then: law.without(c.name()),
		commit: func() (int64, error) { return d.Ledger.Rollback(ctx, c.name(), to, seen, c.by()) }}
	switch off := law.disabled(c.name()); {
	case past.Deleted && off != nil:
		w.then, w.again = law.with(off.Rule), off.From
	case past.Deleted:
		w.again = d.below(c.name())
	case past.Enabled:
		spec, err := ledger.ParseDocument(c.name(), past.YAML)
		if err != nil {
			return nil, err
		}
		w.then = law.with(&spec)
	}
	return d.change(ctx, c, w)
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
		law := d.law()
		diff, err := d.propose(law.with(&spec))
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
	file.Exceptions, file.Disabled = now.Exceptions, now.Disabled
	return written{Changes: changesOf(source.Diff(now, file))}, nil
}
