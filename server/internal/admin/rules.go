package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/web"
)

// with adds the fields of a rule.
func (a Rule) with(spec *rules.Spec) Rule {
	a.Label, a.Limit, a.Algorithm, a.Mode = spec.Label, spec.Limit, spec.Algorithm, spec.Mode
	a.Description, a.Labels, a.Enabled = spec.Description, spec.Labels, a.Enabled && spec.IsEnabled()
	return a
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

// disabledHere returns the rule of another source that the ledger alone disables, or nil.
func (h *handler) disabledHere(now *ruleView, name string) *ruleset.Off {
	if off := now.disabled(name); off != nil && off.By == h.Layer {
		return off
	}
	return nil
}

// describe returns a document that was read after the snapshot. The limit is the document's,
// in force or not, because its ETag belongs to that version.
func (h *handler) describe(document *ledger.Document, now *ruleView) Rule {
	answer := Rule{Name: document.Name, From: h.Layer, Enabled: document.Enabled, Revision: document.Revision,
		Who: document.Author.Who, Why: document.Author.Why, When: document.When, Reverts: document.Reverts}
	if off := now.disabled(document.Name); document.YAML == "" && off != nil {
		answer.From = off.From
		return answer.with(off.Rule)
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

// listRules lists the rules in force, in order, and then the others of the ledger.
func (h *handler) listRules(ctx context.Context, c *call) (any, error) {
	now := h.inForce() // before the ledger is read
	var list []ledger.Document
	var revision int64
	if h.Ledger != nil {
		var err error
		if list, revision, err = h.Ledger.List(ctx); err != nil {
			return nil, err
		}
	}
	held := make(map[string]*ledger.Document)
	for i := range list {
		held[list[i].Name] = &list[i]
	}
	answer := Rules{Revision: revision}
	for i := range now.file.Rules {
		spec := &now.file.Rules[i]
		one := Rule{Name: spec.Name, From: now.from[i], InForce: true, Enabled: true}.with(spec)
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
	for i := range now.off {
		if off := &now.off[i]; off.By != h.Layer && held[off.Rule.Name] == nil {
			answer.Rules = append(answer.Rules, Rule{Name: off.Rule.Name, From: off.From}.with(off.Rule))
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
		spec := &now.file.Rules[at]
		return Rule{Name: c.name(), From: now.from[at], InForce: true, Enabled: true,
			YAML: ledger.TextOf(spec)}.with(spec), nil
	}
	if err != nil {
		return nil, err
	}
	answer := h.describe(&document, &now)
	answer.YAML, c.etag = document.YAML, document.Revision
	return answer, nil
}

func changesOf(diff []ruleset.Change) []Change {
	list := []Change{}
	for _, c := range diff {
		one := Change{Rule: c.Rule, Kind: [...]string{"changed", "added", "removed", "renamed"}[c.Kind],
			Fields: c.Fields, Values: c.Values, Was: c.Was, Why: c.Anew, Text: c.String()}
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

// below returns the layer with a rule of this name that the ledger's replaces, or "".
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
	then   *rules.File // the rules in force afterwards
	again  string      // the layer whose rule of this name is in force again; "": none
	commit func() (int64, error)
}

// restore puts a disabled rule of another source in force again.
func (w *ruleChange) restore(now *ruleView, off *ruleset.Off) {
	w.then, w.again = now.with(off.Rule), off.From
}

func (h *handler) putRule(ctx context.Context, c *call) (any, error) {
	text, err := c.rule(ledger.MaxDocument)
	if err != nil {
		return nil, err
	}
	what, reverts := "set", time.Duration(0)
	if after := c.query.Get("revert_after"); after != "" {
		var ok bool
		if reverts, ok = parseDuration(after); !ok || reverts <= 0 {
			return nil, web.Refuse(http.StatusBadRequest,
				"revert_after is %.80q; allowed: a time with its unit, such as 30m, 2h or 7d", after)
		}
		what = "set, to revert in " + after
	}
	return h.setRule(ctx, c, what, string(text), func() (int64, error) {
		return h.Ledger.SetWith(ctx, c.name(), string(text), c.seen, c.by(),
			ledger.Extra{Over: h.original(c.name()), Reverts: reverts})
	})
}

// confirmRule keeps a change that would revert.
func (h *handler) confirmRule(ctx context.Context, c *call) (any, error) {
	return h.change(ctx, c, &ruleChange{what: "confirm", then: h.inForce().file, commit: func() (int64, error) {
		return h.Ledger.Confirm(ctx, c.name(), c.seen, c.by())
	}})
}

// original is the rule of another source that is in force; nil: no such rule.
func (h *handler) original(name string) *ledger.Original {
	now := h.inForce()
	at := now.find(name)
	if at < 0 || now.from[at] == h.Layer {
		return nil
	}
	return &ledger.Original{From: now.from[at], YAML: ledger.TextOf(&now.file.Rules[at])}
}

// setRule sets a rule to a text. A disabled one stays disabled.
func (h *handler) setRule(ctx context.Context, c *call, what, text string, commit func() (int64, error)) (any, error) {
	spec, err := ledger.ParseDocument(c.name(), text)
	if err != nil {
		return nil, err
	}
	now := h.inForce()
	w := &ruleChange{what: what, then: now.file, commit: commit}
	if document, err := h.Ledger.Get(ctx, c.name()); err != nil || document.Enabled {
		w.then = now.with(&spec)
	}
	return h.change(ctx, c, w)
}

// change makes a change of a rule, logs it, and waits until it is in force.
func (h *handler) change(ctx context.Context, c *call, w *ruleChange) (any, error) {
	diff, err := h.propose(w.then)
	if err != nil {
		return nil, err
	}
	answer := Written{Name: c.name(), Changes: changesOf(diff)}
	if w.again != "" {
		answer.Changes = []Change{h.changeBack(ctx, c.name(), w.again)}
	}
	if c.flag("dry_run") {
		return answer, nil
	}
	if answer.Revision, err = w.commit(); err != nil {
		return nil, h.located(c.name(), err)
	}
	c.etag = answer.Revision
	h.Log.Info("admin: a rule was changed", "what", w.what, "rule", c.name(), "revision", answer.Revision,
		"who", c.who, "why", c.by().Why, "changes", ruleset.Summary(diff))
	h.Mark(telemetry.Mark{Kind: "rules", Rule: c.name(), Text: w.what + ": " + ruleset.Summary(diff), Actor: c.who,
		Reason: c.by().Why, Change: fmt.Sprint(answer.Revision)})
	answer.InForce, answer.Waiting = h.await(ctx, answer.Revision)
	if c.query.Get("revert_after") != "" {
		document, err := h.Ledger.Get(ctx, c.name())
		if err == nil && document.Revision == answer.Revision {
			answer.Reverts = document.Reverts
		}
	}
	return answer, nil
}

// changeBack is the change to the rule of another layer, as far as it is known.
func (h *handler) changeBack(ctx context.Context, name, layer string) Change {
	change := Change{Rule: name, Kind: "changed", Text: fmt.Sprintf("%s: that of %s is in force again", name, layer)}
	list, err := h.Ledger.History(ctx, name, ledger.MaxHistory)
	at := slices.IndexFunc(list, func(c ledger.Change) bool { return c.Revision == 0 })
	if err != nil || at < 0 {
		return change
	}
	then, err := ledger.ParseDocument(name, list[at].YAML)
	if err != nil {
		return change
	}
	now := h.inForce()
	for _, one := range changesOf(ruleset.Diff(now.file, now.with(&then))) {
		one.Text = change.Text + ": " + strings.TrimPrefix(one.Text, name+": ")
		return one
	}
	return change
}

// located adds to ErrNoRule the source of a rule that is not in the ledger.
func (h *handler) located(name string, err error) error {
	now := h.inForce()
	at := now.find(name)
	if at < 0 || !errors.Is(err, ledger.ErrNoRule) {
		return err
	}
	return web.Refuse(missing, "rule %q is from %s, and not in the ledger: disable it "+
		"(weir rules disable %[1]s), change it where it is written, or put one of this name into the ledger "+
		"(weir rules set %[1]s FILE), which goes before it",
		name, now.from[at])
}

func (h *handler) deleteRule(ctx context.Context, c *call) (any, error) {
	now := h.inForce()
	w := &ruleChange{what: "delete", then: now.file, again: h.below(c.name()),
		commit: func() (int64, error) { return h.Ledger.Delete(ctx, c.name(), c.seen, c.by()) }}
	if at := now.find(c.name()); at >= 0 && now.from[at] == h.Layer {
		w.then = now.without(c.name())
	}
	if off := h.disabledHere(&now, c.name()); off != nil {
		w.restore(&now, off)
	}
	return h.change(ctx, c, w)
}

// disableRule disables a rule of any source.
func (h *handler) disableRule(ctx context.Context, c *call) (any, error) {
	now := h.inForce()
	return h.change(ctx, c, &ruleChange{what: "disable", then: now.without(c.name()), commit: func() (int64, error) {
		if c.seen > 0 || now.find(c.name()) < 0 {
			return h.Ledger.Disable(ctx, c.name(), c.seen, c.by())
		}
		return h.Ledger.Mask(ctx, c.name(), c.by())
	}})
}

func (h *handler) enableRule(ctx context.Context, c *call) (any, error) {
	document, err := h.Ledger.Get(ctx, c.name())
	if err != nil {
		return nil, h.located(c.name(), err)
	}
	now := h.inForce()
	w := &ruleChange{what: "enable", then: now.file,
		commit: func() (int64, error) { return h.Ledger.Enable(ctx, c.name(), c.seen, c.by()) }}
	if off := h.disabledHere(&now, c.name()); document.YAML == "" && off != nil {
		w.restore(&now, off)
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
	to := c.number("to", 0)
	switch c.query.Get("to") {
	case "":
		return nil, web.Refuse(http.StatusBadRequest, "say to which revision of the history: ?to=REVISION")
	case "0":
		return h.deleteRule(ctx, c)
	}
	past, err := h.Ledger.At(ctx, c.name(), to)
	if err != nil {
		return nil, err
	}
	now := h.inForce()
	w := &ruleChange{what: fmt.Sprint("rollback to ", to), then: now.without(c.name()),
		commit: func() (int64, error) { return h.Ledger.Rollback(ctx, c.name(), to, c.seen, c.by()) }}
	switch off := h.disabledHere(&now, c.name()); {
	case past.Deleted && off != nil:
		w.restore(&now, off)
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

// promote makes a rule's candidate its limit. A rule that is not in the ledger is not copied there,
// because later changes in its own source would then have no effect.
func (h *handler) promote(ctx context.Context, c *call) (any, error) {
	document, err := h.Ledger.Get(ctx, c.name())
	now := h.inForce()
	if at := now.find(c.name()); errors.Is(err, ledger.ErrNoRule) && at >= 0 {
		return nil, web.Refuse(conflict, "rule %q is from %s, and not in the ledger: promote it where it is "+
			"written: make the fields of its candidate the rule's, and delete candidate. Or put it into the "+
			"ledger first (weir rules set %[1]s FILE), which goes before %[2]s from then on", c.name(), now.from[at])
	}
	if err != nil {
		return nil, err
	}
	text, err := ledger.Promoted(c.name(), document.YAML)
	if err != nil {
		return nil, err
	}
	return h.setRule(ctx, c, "promote", text, func() (int64, error) {
		return h.Ledger.Promote(ctx, c.name(), c.seen, c.by())
	})
}

// compare returns the effect that the candidate of a rule would have had.
func (h *handler) compare(_ context.Context, c *call) (any, error) {
	found, ok := h.Gate.Compare(c.name())
	if !ok {
		return nil, web.Refuse(missing, "there is no rule %.130q in force that has a candidate; "+
			"write one into the rule, such as candidate: {limit: 60/1m}", c.name())
	}
	candidate := found.Rule.Candidate()
	return Comparison{Rule: found.Rule.Name(), Limit: texts(found.Rule.Limits()),
		Candidate: texts(candidate.Limits()), CandidateKey: candidate.Components(),
		Since: found.Since.UTC(), BothGrant: found.BothGrant,
		NewlyRefused: found.NewlyRefused, NewlyGranted: found.NewlyGranted, BothRefuse: found.BothRefuse,
		RefusedKeys: changedKeys(found.Refused), GrantedKeys: changedKeys(found.Granted)}, nil
}

func texts(limits []*weir.Limit) (list []string) {
	for _, limit := range limits {
		list = append(list, limit.String())
	}
	return list
}

func changedKeys(list []gate.Changed) []ChangedKey {
	out := make([]ChangedKey, len(list))
	for i, one := range list {
		out[i] = ChangedKey{readable(one.Key), one.Count, one.Over}
	}
	return out
}

// diff returns the effect of a rule, or of a whole file. Rules that are not in the file count as
// removed.
func (h *handler) diff(_ context.Context, c *call) (any, error) {
	text, err := c.rule(rules.MaxFile)
	if err != nil {
		return nil, err
	}
	now, name := h.inForce(), c.query.Get("rule")
	if name != "" {
		spec, err := ledger.ParseDocument(name, string(text))
		if err != nil {
			return nil, err
		}
		diff, err := h.propose(now.with(&spec))
		return Written{Name: name, Changes: changesOf(diff)}, err
	}
	file, err := rules.Parse("file", text)
	if err == nil {
		_, err = h.Compile(file)
	}
	if err != nil {
		return nil, err
	}
	file.Exceptions, file.Disabled = now.file.Exceptions, now.file.Disabled
	return Written{Changes: changesOf(ruleset.Diff(now.file, file))}, nil
}
