package admin

import (
	"context"
	"fmt"
	"strings"

	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/internal/telemetry"
)

// defaultHistory is the default number of changes.
const defaultHistory = 50

func (h *handler) history(ctx context.Context, c *call) (any, error) {
	most := c.number("most", defaultHistory)
	list, err := h.Ledger.History(ctx, c.query.Get("name"), int(min(most, 1<<20)))
	if err != nil {
		return nil, err
	}
	var answer History
	for i := range list {
		one := &list[i]
		p := Entry{Revision: one.Revision, Name: one.Name, What: one.What, Who: one.Author.Who,
			Why: one.Author.Why, When: one.When, Changes: changesOf(one.Diff), YAML: one.YAML,
			Reverts: one.Reverts}
		if e := one.Exception; e != nil {
			then := written(e, e.For)
			p.Name, p.Exception = e.ID, &then
		}
		if one.Key != nil {
			p.Name, p.Key = one.Key.Rule, one.Key.Key
		}
		answer.History = append(answer.History, p)
	}
	return answer, nil
}

// restore writes back entries that the ledger has lost and this server has read.
func (h *handler) restore(ctx context.Context, c *call) (any, error) {
	dry, forget := c.flag("dry_run"), c.flag("forget")
	got, err := h.Ledger.Restore(ctx, ledger.Restoration{By: c.by(), Forget: forget, DryRun: dry})
	if err != nil {
		return nil, err
	}
	answer := Restored{Revision: got.Revision, Lost: got.Lost}
	for _, name := range got.Names {
		answer.Restored = append(answer.Restored, strings.TrimPrefix(name, "exception:"))
	}
	if !dry {
		h.Log.Warn("admin: the ledger was restored", "written_back", len(got.Names), "forget", forget,
			"lost", got.Lost, "revision", got.Revision, "who", c.who, "why", c.by().Why)
		h.Mark(telemetry.Mark{Kind: "rules", Text: fmt.Sprintf("ledger restored, %d written back", len(got.Names)),
			Actor: c.who, Reason: c.by().Why, Change: fmt.Sprint(got.Revision)})
		h.await(ctx, got.Revision)
	}
	return answer, nil
}
