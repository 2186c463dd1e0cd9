package admin

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/weirproject/weir/internal/ruleset/ledger"
)

// defaultHistory is the default number of changes.
const defaultHistory = 50

// A past is one change of the history.
type past struct {
	Revision  int64            `json:"revision"`
	Name      string           `json:"name"` // of the rule, also for an operation on a key; of an exception its ID
	What      string           `json:"what"`
	Who       string           `json:"who"`
	Why       string           `json:"why,omitzero"`
	When      time.Time        `json:"when"`
	Changes   []change         `json:"changes"`
	YAML      string           `json:"yaml,omitzero"`      // the rule at that time
	Exception *exceptionAnswer `json:"exception,omitzero"` // the exception at that time
	Key       string           `json:"key,omitzero"`       // of an operation on a key
}

type historyAnswer struct {
	History []past `json:"history"` // the newest first
}

func (h *handler) history(ctx context.Context, c *call) (any, error) {
	most, err := c.number("most", defaultHistory)
	if err != nil {
		return nil, err
	}
	list, err := h.Ledger.History(ctx, c.query.Get("name"), int(min(most, 1<<20)))
	if err != nil {
		return nil, h.logged(err)
	}
	answer := historyAnswer{History: []past{}}
	for i := range list {
		one := &list[i]
		p := past{Revision: one.Revision, Name: one.Name, What: one.What, Who: one.Author.Who,
			Why: one.Author.Why, When: one.When,
			Changes: changesOf(one.Diff), YAML: one.YAML}
		if e := one.Exception; e != nil {
			then := exceptionAnswer{ID: e.ID, Kind: e.Kind, Rule: e.Rule, By: e.Component, Values: e.Values,
				Limit: e.Limit, Until: e.Until,
				Left: e.For.String(), Revision: e.Revision, Who: e.Author.Who, Why: e.Author.Why, When: e.When}
			p.Name, p.Exception = e.ID, &then
		}
		if one.Key != nil {
			p.Name, p.Key = one.Key.Rule, one.Key.Key
		}
		answer.History = append(answer.History, p)
	}
	return answer, nil
}

// A restoredAnswer lists the entries that were written back.
type restoredAnswer struct {
	Restored []string `json:"restored"` // names of rules, and IDs of exceptions
	Revision int64    `json:"revision"` // of the ledger
	Lost     int64    `json:"lost"`     // the last revision that was lost
}

// restore writes back entries that the ledger has lost and this server has read.
func (h *handler) restore(ctx context.Context, c *call) (any, error) {
	dry, err := c.flag("dry_run")
	forget, errForget := c.flag("forget")
	if err := errors.Join(err, errForget); err != nil {
		return nil, err
	}
	got, err := h.Ledger.Restore(ctx, ledger.Restoration{By: c.by(), Forget: forget, DryRun: dry})
	if err != nil {
		return nil, h.logged(err)
	}
	answer := restoredAnswer{Restored: []string{}, Revision: got.Revision, Lost: got.Lost}
	for _, name := range got.Names {
		answer.Restored = append(answer.Restored, strings.TrimPrefix(name, "exception:"))
	}
	if !dry {
		h.Log.Warn("admin: the ledger was restored", "written_back", len(got.Names), "forget", forget,
			"lost", got.Lost, "revision", got.Revision, "who", c.who, "why", c.by().Why)
		h.await(ctx, got.Revision)
	}
	return answer, nil
}

// note records an operation on a key before it is done, so that nothing is done without a record; if
// the operation then fails, the record stays. A server without a ledger has the log alone.
func (h *handler) note(ctx context.Context, c *call, what, rule, key string) error {
	if h.Ledger == nil {
		return nil
	}
	if _, err := h.Ledger.Note(ctx, what, ledger.Key{Rule: rule, Key: key}, c.by()); err != nil {
		return h.logged(err)
	}
	return nil
}
