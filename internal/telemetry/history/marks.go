package history

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/internal/telemetry"
)

const defaultMarks = 200

// Marks implements telemetry.Reader: changes of the ledger, which all nodes share, and the incidents of each node.
func (h *History) Marks(ctx context.Context, q telemetry.Query) ([]telemetry.Mark, error) {
	s := h.spanOf(q, h.now())
	sum, _ := h.collect(ctx, s)
	list := slices.Clone(sum.marks)
	h.mu.Lock()
	if s.node == "" || s.node == h.Name {
		list = append(list, h.pending...)
	}
	h.mu.Unlock()
	most := cmp.Or(q.Most, defaultMarks)
	if h.Ledger != nil && s.node == "" {
		changes, err := h.Ledger.History(ctx, "", min(most, ledger.MaxHistory))
		if err != nil {
			list = append(list, telemetry.Mark{At: s.end(), Kind: "degraded", Node: h.Name,
				Text: "the ledger did not answer: its changes are not shown"})
			h.failed("the history of the ledger could not be read", err)
		}
		for i := range changes {
			list = append(list, markOf(&changes[i]))
		}
	}
	list = slices.DeleteFunc(list, func(m telemetry.Mark) bool { return m.At.Before(s.from) || m.At.After(s.end()) })
	slices.SortStableFunc(list, func(a, b telemetry.Mark) int { return b.At.Compare(a.At) })
	return list[:min(len(list), most)], nil
}

// markOf is the mark of a change of the ledger.
func markOf(c *ledger.Change) telemetry.Mark {
	m := telemetry.Mark{At: c.When.UTC(), Kind: "rules", Rule: c.Name, Actor: c.Author.Who, Reason: c.Author.Why,
		Change: strconv.FormatInt(c.Revision, 10)}
	switch {
	case c.Key != nil:
		m.Kind, m.Rule, m.Text = "lift", c.Key.Rule, c.What+" "+c.Key.Key
		if c.What == "reset" {
			m.Kind = "reset"
		}
	case c.Exception != nil:
		e := c.Exception
		m.Kind, m.Rule, m.Text = string(e.Kind), e.Rule, strings.Join(e.Values, ", ")
		if len(e.Limit) > 0 {
			m.Text += ": " + strings.Join(e.Limit, ", ")
		}
		if c.Deleted {
			m.Kind, m.Text = "lift", fmt.Sprintf("%s of %s ended", e.Kind, m.Text)
		}
	default:
		m.Text = c.Name + ": " + c.What
		for i := range c.Diff {
			m.Text += "; " + c.Diff[i].String()
		}
	}
	m.Text = strings.ToValidUTF8(m.Text[:min(len(m.Text), maxWord)], "\uFFFD")
	return m
}
