package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/rules"
)

// A ruleAnswer is a rule of the server.
type ruleAnswer struct {
	Name     string    `json:"name"`
	Label    string    `json:"label,omitzero"` // what people call it
	From     string    `json:"from"`           // the layer: the ledger's or another
	InForce  bool      `json:"in_force"`       // requests are decided by this version
	Enabled  bool      `json:"enabled"`
	Revision int64     `json:"revision,omitzero"` // in the ledger
	Who      string    `json:"who,omitzero"`
	Why      string    `json:"why,omitzero"`
	When     time.Time `json:"when,omitzero"`
	YAML     string    `json:"yaml,omitzero"`
	// If the rule is in force.
	Limit     []string   `json:"limit,omitzero"`
	Algorithm string     `json:"algorithm,omitzero"`
	Mode      rules.Mode `json:"mode,omitzero"`
}

// with adds the fields of a rule.
func (a ruleAnswer) with(spec *rules.Spec) ruleAnswer {
	a.Label, a.Limit, a.Algorithm, a.Mode = spec.Label, spec.Limit, spec.Algorithm, spec.Mode
	return a
}

func answerOf(d *ledger.Document, layer string) ruleAnswer {
	return ruleAnswer{Name: d.Name, From: layer, Enabled: d.Enabled, Revision: d.Revision, Who: d.Author.Who,
		Why: d.Author.Why, When: d.When}
}

// A ruleView is a snapshot of the rules in force.
type ruleView struct {
	file     *rules.File
	from     []string
	off      []ruleset.Off
	revision int64 // of the ledger
}

// inForce takes a snapshot. A document that is read from the ledger afterwards is in force if it is
// not newer than the snapshot's revision.
func (h *handler) inForce() ruleView {
	status := h.Status()
	view := ruleView{file: new(rules.File)}
	if now := status.RuleSet; now != nil {
		view.file, view.from, view.off = now.File, now.From, now.Off
	}
	for _, layer := range status.Layers {
		if layer.Name == h.Layer {
			view.revision = revisionOf(layer.Revision)
		}
	}
	return view
}

func (v *ruleView) find(name string) int {
	return slices.IndexFunc(v.file.Rules, func(s rules.Spec) bool { return s.Name == name })
}

// disabled returns the disabled rule of this name from another source, or nil.
func (v *ruleView) disabled(name string) *ruleset.Off {
	i := slices.IndexFunc(v.off, func(o ruleset.Off) bool { return o.Rule.Name == name })
	if i < 0 {
		return nil
	}
	return &v.off[i]
}

// describe returns a document that was read after the snapshot. The limit is that of the document,
// in force or not, because its ETag belongs to that version.
func (h *handler) describe(document *ledger.Document, now *ruleView) ruleAnswer {
	answer := answerOf(document, h.Layer)
	if off := now.disabled(document.Name); document.YAML == "" && off != nil {
		answer.From, answer.Limit, answer.Label = off.From, off.Rule.Limit, off.Rule.Label
		return answer
	}
	at := now.find(document.Name)
	if at >= 0 && now.from[at] == h.Layer && document.Revision <= now.revision {
		answer = answer.with(&now.file.Rules[at])
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

// listRules lists the rules in force, in order, and then the others of the ledger.
func (h *handler) listRules(ctx context.Context, c *call) (any, error) {
	now := h.inForce() // before the ledger is read
	var list []ledger.Document
	var revision int64
	if h.Ledger != nil {
		var err error
		if list, revision, err = h.Ledger.List(ctx); err != nil {
			return nil, h.logged(err)
		}
	}
	held := make(map[string]*ledger.Document)
	for i := range list {
		held[list[i].Name] = &list[i]
	}
	answer := rulesAnswer{Revision: revision, Rules: []ruleAnswer{}}
	for i := range now.file.Rules {
		spec := &now.file.Rules[i]
		one := ruleAnswer{Name: spec.Name, From: now.from[i], InForce: true, Enabled: true}.with(spec)
		if document := held[spec.Name]; document != nil && now.from[i] == h.Layer {
			one = h.describe(document, &now)
			delete(held, spec.Name)
		}
		answer.Rules = append(answer.Rules, one)
	}
	for i := range list {
		if held[list[i].Name] != nil {
			answer.Rules = append(answer.Rules, h.describe(&list[i], &now))
		}
	}
	return answer, nil
}

func (h *handler) getRule(ctx context.Context, c *call) (any, error) {
	now := h.inForce() // before the ledger is read
	document, err := ledger.Document{}, error(ledger.ErrNoRule)
	if h.Ledger != nil {
		document, err = h.Ledger.Get(ctx, c.name())
	}
	at := now.find(c.name())
	if errors.Is(err, ledger.ErrNoRule) && at >= 0 {
		return ruleAnswer{Name: c.name(), From: now.from[at], InForce: true,
			Enabled: true}.with(&now.file.Rules[at]), nil
	}
	if err != nil {
		return nil, h.logged(err)
	}
	answer := h.describe(&document, &now)
	answer.YAML, c.etag = document.YAML, document.Revision
	return answer, nil
}

// A change is a ruleset.Change of one rule.
type change struct {
	Rule   string   `json:"rule"` // "": the fields of the file
	Kind   string   `json:"kind"` // added, removed, renamed or changed
	Fields []string `json:"fields,omitzero"`
	Was    string   `json:"was,omitzero"`
	Counts string   `json:"counts,omitzero"` // kept or anew
	Why    string   `json:"why,omitzero"`    // why its counts start anew
	Text   string   `json:"text"`            // everything as one line
}

func changesOf(diff []ruleset.Change) []change {
	list := []change{}
	for _, c := range diff {
		one := change{Rule: c.Rule, Kind: [...]string{"changed", "added", "removed", "renamed"}[c.Kind],
			Fields: c.Fields, Was: c.Was, Why: c.Anew, Text: c.String()}
		if c.Rule != "" && (c.Kind == ruleset.Changed || c.Kind == ruleset.Renamed) {
			one.Counts = "kept"
			if c.Anew != "" {
				one.Counts = "anew"
			}
		}
		list = append(list, one)
	}
	return list
}

// A written answer is the result of a write.
type written struct {
	Name     string   `json:"name"`
	Revision int64    `json:"revision,omitzero"` // 0: nothing was written
	Changes  []change `json:"changes"`
	InForce  bool     `json:"in_force"`         // on this server
	Waiting  string   `json:"waiting,omitzero"` // why it is not
}

// with returns the rules in force with one replaced or added.
func (v *ruleView) with(spec *rules.Spec) *rules.File {
	file := *v.file
	file.Rules = slices.Clone(file.Rules)
	if at := v.find(spec.Name); at >= 0 {
		file.Rules[at] = *spec
	} else {
		file.Rules = append(file.Rules, *spec)
	}
	return &file
}

// without returns the rules in force without one.
func (v *ruleView) without(name string) *rules.File {
	file := *v.file
	file.Rules = slices.DeleteFunc(slices.Clone(file.Rules), func(s rules.Spec) bool { return s.Name == name })
	return &file
}

// below returns the layer whose rule of this name the ledger's replaces, or "".
func (h *handler) below(name string) string {
	for _, c := range h.Status().Collisions {
		if c.Rule == name && c.Winner == h.Layer {
			return c.Loser
		}
	}
	return ""
}

// propose returns the differences to proposed rules, or an error if they do not compile. If the
// rules in force do not compile either, the proposal is accepted.
func (h *handler) propose(then *rules.File) ([]ruleset.Change, error) {
	now := h.inForce().file
	if _, err := h.Compile(then); err != nil {
		if _, before := h.Compile(now); before == nil {
			return nil, err
		}
	}
	return ruleset.Diff(now, then), nil
}

// A ruleChange is a requested change of a rule.
type ruleChange struct {
	what   string
	dry    bool
	then   *rules.File // the rules in force afterwards
	again  string      // the layer whose rule of this name is in force again; "": none
	commit func() (int64, error)
}

func (h *handler) putRule(ctx context.Context, c *call) (any, error) {
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
	return h.change(ctx, c, &ruleChange{what: "set", dry: dry, then: h.afterSetting(ctx, &spec),
		commit: func() (int64, error) { return h.Ledger.Set(ctx, c.name(), string(text), seen, c.by()) }})
}

// afterSetting returns the rules in force after a rule was set: a disabled one stays disabled.
func (h *handler) afterSetting(ctx context.Context, spec *rules.Spec) *rules.File {
	now := h.inForce()
	if document, err := h.Ledger.Get(ctx, spec.Name); err == nil && !document.Enabled {
		return now.file
	}
	return now.with(spec)
}

// change makes a change of a rule, logs it, and waits until it is in force.
func (h *handler) change(ctx context.Context, c *call, w *ruleChange) (any, error) {
	diff, err := h.propose(w.then)
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
		return nil, h.logged(h.located(c.name(), err))
	}
	c.etag = answer.Revision
	h.Log.Info("admin: a rule was changed", "what", w.what, "rule", c.name(), "revision", answer.Revision,
		"who", c.who, "why", c.by().Why, "changes", ruleset.Summary(diff))
	answer.InForce, answer.Waiting = h.await(ctx, answer.Revision)
	return answer, nil
}

// located adds to ErrNoRule the source of a rule that is not in the ledger.
func (h *handler) located(name string, err error) error {
	now := h.inForce()
	at := now.find(name)
	if at < 0 || !errors.Is(err, ledger.ErrNoRule) {
		return err
	}
	return refusef(http.StatusNotFound, "rule %q is from %s, and not in the ledger: disable it "+
		"(weir rules disable %[1]s), change it where it is written, or put one of this name into the ledger "+
		"(weir rules set %[1]s FILE), which goes before it",
		name, now.from[at])
}

func (h *handler) deleteRule(ctx context.Context, c *call) (any, error) {
	seen, err := c.seen()
	if err != nil {
		return nil, err
	}
	now := h.inForce()
	w := &ruleChange{what: "delete", then: now.file, again: h.below(c.name()),
		commit: func() (int64, error) { return h.Ledger.Delete(ctx, c.name(), seen, c.by()) }}
	if at := now.find(c.name()); at >= 0 && now.from[at] == h.Layer {
		w.then = now.without(c.name())
	}
	if off := now.disabled(c.name()); off != nil {
		w.then, w.again = now.with(off.Rule), off.From
	}
	return h.change(ctx, c, w)
}

// disableRule disables a rule of any source.
func (h *handler) disableRule(ctx context.Context, c *call) (any, error) {
	seen, err := c.seen()
	if err != nil {
		return nil, err
	}
	now := h.inForce()
	return h.change(ctx, c, &ruleChange{what: "disable", then: now.without(c.name()), commit: func() (int64, error) {
		if seen > 0 || now.find(c.name()) < 0 {
			return h.Ledger.Disable(ctx, c.name(), seen, c.by())
		}
		return h.Ledger.Mask(ctx, c.name(), c.by())
	}})
}

func (h *handler) enableRule(ctx context.Context, c *call) (any, error) {
	seen, err := c.seen()
	if err != nil {
		return nil, err
	}
	document, err := h.Ledger.Get(ctx, c.name())
	if err != nil {
		return nil, h.logged(h.located(c.name(), err))
	}
	now := h.inForce()
	w := &ruleChange{what: "enable", then: now.file,
		commit: func() (int64, error) { return h.Ledger.Enable(ctx, c.name(), seen, c.by()) }}
	if off := now.disabled(c.name()); document.YAML == "" && off != nil {
		w.then, w.again = now.with(off.Rule), off.From
	}
	if document.YAML != "" {
		spec, err := ledger.ParseDocument(c.name(), document.YAML)
		if err != nil {
			return nil, err
		}
		w.then = now.with(&spec)
	}
	return h.change(ctx, c, w)
}

func (h *handler) rollback(ctx context.Context, c *call) (any, error) {
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
	past, err := h.Ledger.At(ctx, c.name(), to)
	if err != nil {
		return nil, h.logged(err)
	}
	now := h.inForce()
	w := &ruleChange{what: fmt.Sprint("rollback to ", to), dry: dry, then: now.without(c.name()),
		commit: func() (int64, error) { return h.Ledger.Rollback(ctx, c.name(), to, seen, c.by()) }}
	switch off := now.disabled(c.name()); {
	case past.Deleted && off != nil:
		w.then, w.again = now.with(off.Rule), off.From
	case past.Deleted:
		w.again = h.below(c.name())
	case past.Enabled:
		spec, err := ledger.ParseDocument(c.name(), past.YAML)
		if err != nil {
			return nil, err
		}
		w.then = now.with(&spec)
	}
	return h.change(ctx, c, w)
}

// diff returns the effect of a rule, or of a whole file. Rules that are not in the file count as
// removed.
func (h *handler) diff(_ context.Context, c *call) (any, error) {
	text, err := c.body(rules.MaxFile, yamlKinds...)
	if err != nil {
		return nil, err
	}
	if name := c.query.Get("rule"); name != "" {
		spec, err := ledger.ParseDocument(name, string(text))
		if err != nil {
			return nil, err
		}
		now := h.inForce()
		diff, err := h.propose(now.with(&spec))
		return written{Name: name, Changes: changesOf(diff)}, err
	}
	file, err := rules.Parse("file", text)
	if err == nil {
		_, err = h.Compile(file)
	}
	if err != nil {
		return nil, err
	}
	now := h.inForce().file
	file.Exceptions, file.Disabled = now.Exceptions, now.Disabled
	return written{Changes: changesOf(ruleset.Diff(now, file))}, nil
}
