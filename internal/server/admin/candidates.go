package admin

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/ruleset/ledger"
)

// A comparisonAnswer is the effect that the candidate of a rule would have had on the requests of
// this process.
type comparisonAnswer struct {
	Rule         string          `json:"rule"`
	Limit        []string        `json:"limit"`
	Candidate    []string        `json:"candidate"`
	Key          []string        `json:"candidate_key,omitzero"` // if it differs from the rule's
	Since        time.Time       `json:"since"`
	BothGrant    int64           `json:"both_grant"`
	NewlyRefused int64           `json:"newly_refused"`
	NewlyGranted int64           `json:"newly_granted"`
	BothRefuse   int64           `json:"both_refuse"`
	RefusedKeys  []changedAnswer `json:"refused_keys"`
	GrantedKeys  []changedAnswer `json:"granted_keys"`
}

type changedAnswer struct {
	Key   string `json:"key"`
	Count int64  `json:"count"`
	Over  int64  `json:"over"` // the maximum error of Count
}

func (h *handler) compare(_ context.Context, c *call) (any, error) {
	found, ok := h.Gate.Compare(c.name())
	if !ok {
		return nil, refusef(http.StatusNotFound, "there is no rule %.130q in force that has a candidate; "+
			"write one into the rule, such as candidate: {limit: 60/1m}", c.name())
	}
	candidate := found.Rule.Candidate()
	return comparisonAnswer{Rule: found.Rule.Name(), Limit: texts(found.Rule.Limits()),
		Candidate: texts(candidate.Limits()), Key: candidate.Components(),
		Since: found.Since.UTC(), BothGrant: found.BothGrant,
		NewlyRefused: found.NewlyRefused, NewlyGranted: found.NewlyGranted, BothRefuse: found.BothRefuse,
		RefusedKeys: changedOf(found.Refused), GrantedKeys: changedOf(found.Granted)}, nil
}

func texts(limits []*weir.Limit) (list []string) {
	for _, limit := range limits {
		list = append(list, limit.String())
	}
	return list
}

func changedOf(list []gate.Changed) []changedAnswer {
	out := make([]changedAnswer, len(list))
	for i, one := range list {
		out[i] = changedAnswer{readable(one.Key), one.Count, one.Over}
	}
	return out
}

// readable returns a key as valid UTF-8, which a header's value need not be.
func readable(key string) string { return strings.ToValidUTF8(key, "\uFFFD") }

// promote makes a rule's candidate its limit.
func (h *handler) promote(ctx context.Context, c *call) (any, error) {
	dry, seen, err := c.intent()
	if err != nil {
		return nil, err
	}
	document, err := h.Ledger.Get(ctx, c.name())
	if errors.Is(err, ledger.ErrNoRule) {
		return nil, h.elsewhere(c.name(), err)
	}
	if err != nil {
		return nil, h.logged(err)
	}
	text, err := ledger.Promoted(c.name(), document.YAML)
	if err != nil {
		return nil, err
	}
	spec, err := ledger.ParseDocument(c.name(), text)
	if err != nil {
		return nil, err
	}
	return h.change(ctx, c, &ruleChange{what: "promote", dry: dry, then: h.afterSetting(ctx, &spec),
		commit: func() (int64, error) { return h.Ledger.Promote(ctx, c.name(), seen, c.by()) }})
}

// elsewhere refuses to promote a rule that is not in the ledger. It is not copied there, because
// later changes in its own source would then have no effect.
func (h *handler) elsewhere(name string, missing error) error {
	now := h.inForce()
	at := now.find(name)
	if at < 0 {
		return missing
	}
	return refusef(http.StatusConflict, "rule %q is from %s, and not in the ledger: promote it where it is written: "+
		"make the fields of its candidate the rule's, and delete candidate. "+
		"Or put it into the ledger first (weir rules set %s FILE), which goes before %s from then on",
		name, now.from[at], name, now.from[at])
}
