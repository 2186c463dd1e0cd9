package admin

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
)

// A banAnswer is a ban in force.
type banAnswer struct {
	Rule   string    `json:"rule"`
	Key    string    `json:"key"`
	From   time.Time `json:"from"`  // by the store's clock
	Until  time.Time `json:"until"` // by the store's clock
	Length string    `json:"length"`
	Local  bool      `json:"local,omitzero"` // only on this server: the store did not answer
}

type bansAnswer struct {
	Bans []banAnswer `json:"bans"`
}

func (h *handler) listBans(ctx context.Context, _ *call) (any, error) {
	list, err := h.Gate.Bans(ctx)
	if err != nil {
		return nil, err
	}
	answer := bansAnswer{Bans: make([]banAnswer, len(list))}
	for i, ban := range list {
		answer.Bans[i] = banAnswer{ban.Rule.Name(), readable(ban.Key), ban.From.Time().UTC(),
			ban.Until.Time().UTC(), ban.Length.String(), ban.Local}
	}
	return answer, nil
}

// A liftAnswer is the result of lifting a ban.
type liftAnswer struct {
	Rule   string `json:"rule"`
	Key    string `json:"key"`
	Banned bool   `json:"was_banned"` // false: only the count towards a ban was reset
}

// liftBan ends a ban, and resets the count of earlier ones.
func (h *handler) liftBan(ctx context.Context, c *call) (any, error) {
	name := c.query.Get("rule")
	set := h.Gate.Rules().Rules()
	i := slices.IndexFunc(set, func(r *rules.Rule) bool { return r.Name() == name && r.Bans() != nil })
	if i < 0 {
		return nil, refusef(http.StatusNotFound, "rule is %.130q; allowed: one that is in force and has a ban", name)
	}
	rule := set[i]
	key, _, err := keyOf(c, rule)
	if err != nil {
		return nil, err
	}
	banned, err := h.banned(ctx, rule, key)
	if err == nil {
		err = h.note(ctx, c, "lift ban", name, string(key))
	}
	if err == nil {
		err = h.Gate.Lift(ctx, rule, string(key))
	}
	if err != nil {
		return nil, err
	}
	h.Log.Info("admin: a ban was lifted", "rule", name, "key", string(key), "was_banned", banned > 0,
		"who", c.who, "why", c.by().Why)
	return liftAnswer{Rule: name, Key: readable(string(key)), Banned: banned > 0}, nil
}

// keyOf returns the key of a rule, and its limits: the parameter key is the key as lists of bans
// print it, or its value if it has one component; the parameters value are its values, in order.
func keyOf(c *call, rule *rules.Rule) (key []byte, limits []*weir.Limit, err error) {
	text, values := c.query.Get("key"), c.query["value"]
	switch {
	case text != "" && len(values) > 0:
		return nil, nil, refusef(http.StatusBadRequest,
			"allowed: key, or value for each component of the rule's key; not both")
	case text != "":
		return rule.LookupText(text)
	}
	return rule.Lookup(values)
}

// banned returns the remaining time of a key's ban, without counting anything.
func (h *handler) banned(ctx context.Context, rule *rules.Rule, key []byte) (time.Duration, error) {
	var v gate.Verdict
	claims := []weir.Claim{{Key: string(key), Limit: rule.Bans().Hold}}
	if err := h.Gate.Decide(ctx, nil, gate.Ask{Claims: claims}, &v); err != nil {
		return 0, err
	}
	if v.Err != nil || v.Len() == 0 {
		return 0, v.Err
	}
	return v.At(0).Decision.RetryAfter, nil
}
