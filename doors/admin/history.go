package admin

import (
	"context"
	"time"
)

// mostHistory is how many changes are told without being asked for more.
const mostHistory = 50

// A past answer is one change of the history.
type past struct {
	Revision  int64            `json:"revision"`
	Name      string           `json:"name"` // of the rule; of an exception its ID
	What      string           `json:"what"`
	Who       string           `json:"who"`
	Why       string           `json:"why,omitzero"`
	When      time.Time        `json:"when"`
	Changes   []change         `json:"changes"`
	YAML      string           `json:"yaml,omitzero"`      // what the rule was then
	Exception *exceptionAnswer `json:"exception,omitzero"` // what the exception was then
}

type historyAnswer struct {
	History []past `json:"history"` // the newest first
}

func (d *door) history(ctx context.Context, c *call) (any, error) {
	most, err := c.number("most", mostHistory)
	if err != nil {
		return nil, err
	}
	list, err := d.Ledger.History(ctx, c.query.Get("name"), int(min(most, 1<<20)))
	if err != nil {
		return nil, d.told(err)
	}
	answer := historyAnswer{History: []past{}}
	for i := range list {
		one := &list[i]
		p := past{Revision: one.Revision, Name: one.Name, What: one.What, Who: one.Author.Who, Why: one.Author.Why, When: one.When,
			Changes: changesOf(one.Diff), YAML: one.YAML}
		if e := one.Exception; e != nil {
			then := exceptionAnswer{ID: e.ID, Kind: e.Kind, Rule: e.Rule, By: e.Component, Values: e.Values, Limit: e.Limit, Until: e.Until,
				Left: e.For.String(), Revision: e.Revision, Who: e.Author.Who, Why: e.Author.Why, When: e.When}
			p.Name, p.Exception = e.ID, &then
		}
		answer.History = append(answer.History, p)
	}
	return answer, nil
}
