package admin

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/web"
)

// A lookup is the key of a rule that a query names.
type lookup struct {
	rule   *rules.Rule
	key    string
	limits []*weir.Limit
	values []string
}

// lookup finds the rule and the key of a query: the parameter key is the key as lists of bans print it,
// or its value if it has one component; the parameters value are its values, in order.
func (h *handler) lookup(c *call, suits func(*rules.Rule) bool, allowed string) (*lookup, error) {
	name := c.query.Get("rule")
	for _, rule := range h.Gate.Rules().Rules() {
		if rule.Name() != name || !suits(rule) {
			continue
		}
		l := &lookup{rule: rule, values: c.query["value"]}
		text := c.query.Get("key")
		var key []byte
		var err error
		switch {
		case text != "" && len(l.values) > 0:
			return nil, web.Refuse(http.StatusBadRequest,
				"allowed: key, or value for each component of the rule's key; not both")
		case text == "":
			key, l.limits, err = rule.Lookup(l.values)
		default:
			key, l.limits, err = rule.LookupText(text)
			if !rule.IsKey(text) {
				l.values = []string{text}
			}
		}
		l.key = string(key)
		return l, err
	}
	return nil, web.Refuse(missing, "rule is %.130q; allowed: %s", name, allowed)
}

// decide reads the state of claims without counting anything.
func (h *handler) decide(ctx context.Context, claims []weir.Claim) (*gate.Verdict, error) {
	v := new(gate.Verdict)
	if err := h.Gate.Decide(ctx, nil, gate.Ask{Claims: claims}, v); err != nil {
		return nil, err
	}
	return v, v.Err
}

// banned returns the remaining time of a key's ban.
func (h *handler) banned(ctx context.Context, l *lookup) (time.Duration, error) {
	v, err := h.decide(ctx, []weir.Claim{{Key: l.key, Limit: l.rule.Bans().Hold}})
	if err != nil || v.Len() == 0 {
		return 0, err
	}
	return v.At(0).Decision.RetryAfter, nil
}

func (h *handler) getKey(ctx context.Context, c *call) (any, error) {
	l, err := h.lookup(c, func(*rules.Rule) bool { return true }, "one that is in force")
	if err != nil {
		return nil, err
	}
	return h.state(ctx, l)
}

// state reads the state of a key from the store.
func (h *handler) state(ctx context.Context, l *lookup) (*gate.ExplainedRule, error) {
	e, err := h.Gate.ExplainKey(ctx, l.rule, l.key, l.limits)
	for _, value := range l.values {
		e.Values = append(e.Values, readable(value))
	}
	return &e, err
}

// readable returns a key as valid UTF-8, which a header's value need not be.
func readable(key string) string { return strings.ToValidUTF8(key, "\uFFFD") }

// resetKey resets a key, and returns its new state.
func (h *handler) resetKey(ctx context.Context, c *call) (any, error) {
	l, err := h.lookup(c, func(*rules.Rule) bool { return true }, "one that is in force")
	if err != nil {
		return nil, err
	}
	v, err := h.decide(ctx, h.Gate.ClaimsOf(l.rule, []byte(l.key), l.limits))
	if err != nil {
		return nil, err
	}
	rule, key := l.rule.Name(), v.At(0).Claim.Key
	if err := h.note(ctx, c, "reset", rule, key); err != nil {
		return nil, err
	}
	if err := h.Gate.Reset(ctx, v); err != nil {
		return nil, err
	}
	h.Log.Info("admin: a key was reset", "rule", rule, "key", key, "who", c.who, "why", c.by().Why)
	h.Mark(telemetry.Mark{Kind: "reset", Rule: rule, Key: key, Text: "key reset", Actor: c.who,
		Reason: c.by().Why})
	return h.state(ctx, l)
}

// resetRule resets keys of a rule. The ledger has it once, with the first of them; the log has each request, as a
// client may begin anywhere.
func (h *handler) resetRule(ctx context.Context, c *call) (any, error) {
	list := h.Gate.Rules().Rules()
	at := slices.IndexFunc(list, func(rule *rules.Rule) bool { return rule.Name() == c.name() })
	if at < 0 {
		return nil, web.Refuse(missing, "rule is %.130q; allowed: one that is in force", c.name())
	}
	cursor := c.query.Get("cursor")
	if cursor == "" {
		if err := h.note(ctx, c, "reset all keys", c.name(), ""); err != nil {
			return nil, err
		}
		h.Mark(telemetry.Mark{Kind: "reset", Rule: c.name(), Text: "all keys reset", Actor: c.who, Reason: c.by().Why})
	}
	keys, next, err := h.ResetRule(ctx, list[at], cursor)
	h.Log.Info("admin: keys of a rule were reset", "rule", c.name(), "keys", keys, "more", next != "", "who", c.who,
		"why", c.by().Why)
	return RuleReset{Rule: c.name(), Keys: keys, Next: next}, err
}

func (h *handler) listBans(ctx context.Context, _ *call) (any, error) {
	list, err := h.Gate.Bans(ctx)
	answer := Bans{Bans: make([]Ban, len(list))}
	for i, ban := range list {
		answer.Bans[i] = Ban{ban.Rule.Name(), readable(ban.Key), ban.From.Time().UTC(), ban.Until.Time().UTC(),
			ban.Length.String(), ban.Local}
	}
	return answer, err
}

// liftBan ends a ban, and resets the count of earlier ones.
func (h *handler) liftBan(ctx context.Context, c *call) (any, error) {
	bans := func(rule *rules.Rule) bool { return rule.Bans() != nil }
	l, err := h.lookup(c, bans, "one that is in force and has a ban")
	if err != nil {
		return nil, err
	}
	left, err := h.banned(ctx, l)
	if err == nil {
		err = h.note(ctx, c, "lift ban", l.rule.Name(), l.key)
	}
	if err == nil {
		err = h.Gate.Lift(ctx, l.rule, l.key)
	}
	if err != nil {
		return nil, err
	}
	h.Log.Info("admin: a ban was lifted", "rule", l.rule.Name(), "key", l.key, "was_banned", left > 0,
		"who", c.who, "why", c.by().Why)
	h.Mark(telemetry.Mark{Kind: "lift", Rule: l.rule.Name(), Key: l.key, Text: "ban lifted", Actor: c.who,
		Reason: c.by().Why})
	return Lifted{Rule: l.rule.Name(), Key: readable(l.key), Banned: left > 0}, nil
}

// note records an operation on a key before it is done, so that each operation has a record; if
// the operation then fails, the record stays. A server without a ledger has the log alone.
func (h *handler) note(ctx context.Context, c *call, what, rule, key string) error {
	if h.Ledger == nil {
		return nil
	}
	_, err := h.Ledger.Note(ctx, what, ledger.Key{Rule: rule, Key: key}, c.by())
	return err
}
