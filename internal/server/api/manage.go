package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
)

// comparePath has the name of a rule in the place of the braces.
const comparePath = "/v1/rules/{name}/compare"

// find is the operation of a path, and the rule that it names.
func (a *api) find(path string) (op *operation, rule string) {
	if op := a.operations[path]; op != nil && path != comparePath {
		return op, ""
	}
	before, after, _ := strings.Cut(comparePath, "{name}")
	if rest, ok := strings.CutPrefix(path, before); ok {
		if name, ok := strings.CutSuffix(rest, after); ok && name != "" && !strings.Contains(name, "/") {
			return a.operations[comparePath], name
		}
	}
	return nil, ""
}

// The answers are of structs, and not written by hand like those of decisions: nobody asks
// for them thousands of times a second.
type (
	comparison struct {
		Rule         string    `json:"rule"`
		Since        time.Time `json:"since"`
		BothGrant    int64     `json:"both_grant"`
		NewlyRefused int64     `json:"newly_refused"`
		NewlyGranted int64     `json:"newly_granted"`
		BothRefuse   int64     `json:"both_refuse"`
		RefusedKeys  []changed `json:"refused_keys"`
		GrantedKeys  []changed `json:"granted_keys"`
	}
	changed struct {
		Key   string `json:"key"`
		Count int64  `json:"count"`
		Over  int64  `json:"over"`
	}
	banned struct {
		Rule   string    `json:"rule"`
		Key    string    `json:"key"`
		From   time.Time `json:"from"`
		Until  time.Time `json:"until"`
		Length int64     `json:"length_us"`
		Local  bool      `json:"local,omitempty"`
	}
)

func (c *call) encode(value any) error {
	text, err := json.Marshal(value)
	c.out = append(append(c.out, text...), '\n')
	return err
}

// compare tells what the candidate of a rule would change.
func (a *api) compare(_ context.Context, c *call) error {
	found, ok := a.gate.Compare(c.rule)
	if !ok {
		return &problem{status: http.StatusNotFound, detail: fmt.Sprintf("there is no rule %.130q in force that has a candidate", c.rule), offset: -1}
	}
	return c.encode(comparison{Rule: found.Rule.Name(), Since: found.Since.UTC(), BothGrant: found.BothGrant, NewlyRefused: found.NewlyRefused,
		NewlyGranted: found.NewlyGranted, BothRefuse: found.BothRefuse, RefusedKeys: changes(found.Refused), GrantedKeys: changes(found.Granted)})
}

func changes(list []gate.Changed) []changed {
	out := make([]changed, len(list))
	for i, one := range list {
		out[i] = changed(one)
	}
	return out
}

// bans lists the bans that hold.
func (a *api) bans(ctx context.Context, c *call) error {
	list, err := a.gate.Bans(ctx)
	if err != nil {
		return err
	}
	out := make([]banned, len(list))
	for i, ban := range list {
		out[i] = banned{ban.Rule.Name(), ban.Key, ban.From.Time(), ban.Until.Time(), ban.Length.Microseconds(), ban.Local}
	}
	return c.encode(map[string]any{"bans": out})
}

// lift ends a ban, and forgets those before.
func (a *api) lift(ctx context.Context, c *call) error {
	if c.rule == "" || c.key == "" {
		return invalid("the body", "without rule or key", "both: the rule's name, and the key as /v1/bans and /v1/peek show it", -1)
	}
	for _, rule := range a.gate.Rules().Rules() {
		if rule.Name() == c.rule && rule.Bans() != nil {
			return a.liftBy(ctx, c, rule)
		}
	}
	return &problem{status: http.StatusNotFound, detail: fmt.Sprintf("there is no rule %.130q in force that has a ban", c.rule), offset: -1}
}

func (a *api) liftBy(ctx context.Context, c *call, rule *rules.Rule) error {
	key, _, err := rule.LookupText(c.key)
	if err != nil {
		return err
	}
	if err := a.gate.Lift(ctx, rule, string(key)); err != nil {
		return err
	}
	return c.encode(map[string]any{"lifted": true})
}

func liftFields() []field {
	return []field{
		{"rule", func(c *call) (err error) { c.rule, err = c.text(1, 128); return err }},
		{"key", func(c *call) (err error) { c.key, err = c.text(1, weir.MaxKey); return err }},
	}
}
