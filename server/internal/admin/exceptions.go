package admin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/web"
)

// written is an exception as it was written.
func written(e *ledger.Exception, left time.Duration) Exception {
	return Exception{ID: e.ID, Kind: e.Kind, Rule: e.Rule, By: e.Component, Values: e.Values, Limit: e.Limit,
		Until: e.Until, Left: left.String(), Revision: e.Revision,
		Who: e.Author.Who, Why: e.Author.Why, When: e.When}
}

func (h *handler) exceptionOf(e *ledger.Exception, left time.Duration) Exception {
	a := written(e, left.Round(time.Second))
	a.InForce, a.Waiting = h.reached(e.Revision)
	for _, unfit := range h.Gate.Rules().Unfit() {
		if a.InForce && unfit.Field == e.ID {
			a.InForce, a.Waiting = false, unfit.Message
		}
	}
	return a
}

func (h *handler) listExceptions(ctx context.Context, _ *call) (any, error) {
	list, now, err := h.Ledger.Exceptions(ctx)
	if err != nil {
		return nil, err
	}
	var answer Exceptions
	for i := range list {
		answer.Exceptions = append(answer.Exceptions, h.exceptionOf(&list[i], list[i].Until.Sub(now)))
	}
	return answer, nil
}

func (h *handler) getException(ctx context.Context, c *call) (any, error) {
	e, left, err := h.Ledger.Exception(ctx, c.request.PathValue("id"))
	if err != nil {
		return nil, err
	}
	c.etag = e.Revision
	return h.exceptionOf(&e, left), nil
}

func (h *handler) postException(ctx context.Context, c *call) (any, error) {
	var b NewException
	if err := c.document(&b); err != nil {
		return nil, err
	}
	last, ok := parseDuration(b.For)
	if !ok {
		return nil, web.Refuse(invalid, "for is %.80q; allowed: a time with its unit, such as 30m, 2h or 7d", b.For)
	}
	e := rules.Exception{Kind: b.Kind, Rule: b.Rule, Component: b.By, Values: b.Values, Limit: b.Limit}
	if err := h.fits(e); err != nil {
		return nil, err
	}
	id, revision, err := h.Ledger.Except(ctx, e, last, c.seen, ledger.Author{Who: c.who, Why: b.Why})
	if err != nil {
		return nil, err
	}
	h.Log.Info("admin: an exception was made", "id", id, "kind", string(e.Kind), "rule", e.Rule,
		"by", e.Component, "values", e.Values, "limit", e.Limit, "for", last,
		"revision", revision, "who", c.who, "why", b.Why)
	h.Mark(telemetry.Mark{Kind: string(e.Kind), Rule: e.Rule, Key: strings.Join(e.Values, " "), Actor: c.who,
		Text:   strings.TrimSpace(strings.Join(e.Limit, ", ") + " for " + b.For),
		Reason: b.Why, Change: fmt.Sprint(revision)})
	h.await(ctx, revision)
	now, left, err := h.Ledger.Exception(ctx, id)
	if err != nil {
		return nil, err
	}
	c.etag = revision
	return h.exceptionOf(&now, left), nil
}

// parseDuration parses a duration in the units of limits.
func parseDuration(text string) (time.Duration, bool) {
	for unit, hours := range map[string]int64{"d": 24, "w": 7 * 24} {
		if number, ok := strings.CutSuffix(text, unit); ok {
			n, err := strconv.ParseInt(number, 10, 64)
			most := int64(ledger.MostFor / time.Hour)
			return time.Duration(min(n, most)*hours) * time.Hour, err == nil && n > 0
		}
	}
	last, err := time.ParseDuration(text)
	return last, err == nil
}

// fits refuses an exception that would have no effect on the rules in force.
func (h *handler) fits(e rules.Exception) error {
	now := h.Status().RuleSet
	if now == nil {
		return web.Refuse(http.StatusServiceUnavailable,
			"no rules are in force yet; try again when /readyz says that the server is ready")
	}
	if e.Rule != "" && !slices.ContainsFunc(now.File.Rules, func(s rules.Spec) bool { return s.Name == e.Rule }) {
		return web.Refuse(invalid, "rule is %.80q; allowed: one that is in force", e.Rule)
	}
	if why := now.Set.Misfit(now.File, &e); why != "" {
		return &weir.InputError{Field: "exception", Given: e.Values, Allowed: "one that fits: " + why}
	}
	return nil
}

func (h *handler) deleteException(ctx context.Context, c *call) (any, error) {
	id := c.request.PathValue("id")
	revision, err := h.Ledger.Lift(ctx, id, c.seen, c.by())
	if err != nil {
		return nil, err
	}
	h.Log.Info("admin: an exception was ended", "id", id, "revision", revision, "who", c.who, "why", c.by().Why)
	kind, _, _ := strings.Cut(id, "-")
	h.Mark(telemetry.Mark{Kind: kind, Text: id + " ended", Actor: c.who, Reason: c.by().Why,
		Change: fmt.Sprint(revision)})
	answer := Written{Name: id, Revision: revision, Changes: []Change{}}
	answer.InForce, answer.Waiting = h.await(ctx, revision)
	c.etag = revision
	return answer, nil
}
