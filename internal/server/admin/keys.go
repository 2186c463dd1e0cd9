package admin

import (
	"context"
	"net/http"
	"slices"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
)

// A keyAnswer is the state of a key under a rule.
type keyAnswer struct {
	Rule       string        `json:"rule"`
	Key        string        `json:"key"`        // as lists of bans print it
	Components []string      `json:"components"` // of the rule's key
	Values     []string      `json:"values"`     // empty if the query has the key instead
	Limits     []limitAnswer `json:"limits"`
	BannedFor  float64       `json:"banned_for,omitzero"` // seconds, whatever remains of the limits
}

type limitAnswer struct {
	Limit      string   `json:"limit"`
	Remaining  int64    `json:"remaining"`
	RetryAfter *float64 `json:"retry_after"` // seconds; null: never
	ResetAfter float64  `json:"reset_after"` // seconds
}

func (h *handler) getKey(ctx context.Context, c *call) (any, error) {
	answer, _, err := h.look(ctx, c)
	return answer, err
}

// look reads the state of a key from the store.
func (h *handler) look(ctx context.Context, c *call) (*keyAnswer, *gate.Verdict, error) {
	set, name := h.Gate.Rules(), c.query.Get("rule")
	i := slices.IndexFunc(set.Rules(), func(r *rules.Rule) bool { return r.Name() == name })
	if i < 0 {
		return nil, nil, refusef(http.StatusNotFound, "rule is %.80q; allowed: one that is in force", name)
	}
	rule := set.Rules()[i]
	key, limits, err := keyOf(c, rule)
	if err != nil {
		return nil, nil, err
	}
	var v gate.Verdict
	err = h.Gate.Decide(ctx, nil, gate.Ask{Claims: h.Gate.ClaimsOf(rule, key, limits)}, &v)
	if err == nil {
		err = v.Err
	}
	if err != nil {
		return nil, nil, err
	}
	answer := &keyAnswer{Rule: name, Key: readable(string(key)), Components: orEmpty(rule.Components()),
		Values: []string{}}
	values := c.query["value"]
	if text := c.query.Get("key"); text != "" && !rule.IsKey(text) {
		values = []string{text}
	}
	for _, value := range values {
		answer.Values = append(answer.Values, readable(value))
	}
	for i := range v.Len() {
		check := v.At(i)
		answer.Limits = append(answer.Limits, limitOf(check.Claim.Limit, check.Decision))
	}
	if rule.Bans() != nil {
		wait, err := h.banned(ctx, rule, key)
		if err != nil {
			return nil, nil, err
		}
		answer.BannedFor = wait.Seconds()
	}
	return answer, &v, nil
}

func orEmpty(list []string) []string { return append([]string{}, list...) }

func limitOf(limit *weir.Limit, decision *weir.Decision) limitAnswer {
	a := limitAnswer{Limit: limit.String(), Remaining: decision.Remaining, ResetAfter: decision.ResetAfter.Seconds()}
	if decision.RetryAfter != weir.Never {
		seconds := decision.RetryAfter.Seconds()
		a.RetryAfter = &seconds
	}
	return a
}

// resetKey resets a key, and returns its new state.
func (h *handler) resetKey(ctx context.Context, c *call) (any, error) {
	_, v, err := h.look(ctx, c)
	if err == nil {
		err = h.note(ctx, c, "reset", c.query.Get("rule"), v.At(0).Claim.Key)
	}
	if err == nil {
		err = h.Gate.Reset(ctx, v)
	}
	if err != nil {
		return nil, err
	}
	h.Log.Info("admin: a key was reset", "rule", c.query.Get("rule"), "key", v.At(0).Claim.Key, "who", c.who,
		"why", c.by().Why)
	answer, _, err := h.look(ctx, c)
	return answer, err
}
