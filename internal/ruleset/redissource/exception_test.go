//go:build unix

package redissource_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/internal/ruleset/redissource"
	"github.com/weirproject/weir/internal/ruleset/rulesettest"
	"github.com/weirproject/weir/rules"
)

func blocked(value string) rules.Exception {
	return rules.Exception{Kind: rules.Blocked, Values: []string{value}}
}

// TestExceptionsInRedis: two processes see the same, neither takes the other's word away,
// and what is over is over for both.
func TestExceptionsInRedis(t *testing.T) {
	server := redistest.Start(t)
	one, two, ctx := openLedger(t, server.URL()), openLedger(t, server.URL()), t.Context()
	n := startFrom(t, two.Source())
	id, revision, err := one.Except(ctx, blocked("10.0.0.1"), time.Hour, 0, ann)
	rulesettest.Done(t, 1)(revision, err)
	_, revision, err = two.Except(ctx, blocked("10.0.0.1"), 2*time.Hour, 0, ann)
	rulesettest.Conflict(t, 1)(revision, err)
	redistest.Await(t, "the block", func() bool { return exceptions(n) == "[10.0.0.1]" })
	e, left, err := two.Exception(ctx, id)
	if err != nil || left <= 59*time.Minute || left > time.Hour || e.Author != ann {
		t.Errorf("%+v %v %v", e, left, err)
	}
	rulesettest.Done(t, 2)(one.Set(ctx, "login", "{name: login, limit: 5/1m}", 0, ann))
	if list, _, err := two.List(ctx); err != nil || len(list) != 1 { // an exception is no rule
		t.Errorf("%+v %v", list, err)
	}
	rulesettest.Done(t, 3)(two.Lift(ctx, id, 1, ann))
	redistest.Await(t, "no block", func() bool { return exceptions(n) == "[]" })
	if _, err := one.Lift(ctx, id, 1, ann); !errors.Is(err, ledger.ErrNoException) {
		t.Error(err)
	}
	all, err := one.History(ctx, "", 10)
	if err != nil || len(all) != 3 || all[0].What != "delete" || all[0].Exception == nil || all[1].Diff[0].String() != "login: added" {
		t.Errorf("%+v %v", all, err)
	}
}

// TestAnExceptionEndsWithoutRedis, while Redis is down.
func TestAnExceptionEndsWithoutRedis(t *testing.T) {
	server := redistest.Start(t)
	l := openLedger(t, server.URL())
	n := startFrom(t, l.Source())
	for i, last := range []time.Duration{1500 * time.Millisecond, time.Hour} {
		if _, _, err := l.Except(t.Context(), blocked(fmt.Sprint("10.0.0.", i)), last, 0, ann); err != nil {
			t.Fatal(err)
		}
	}
	redistest.Await(t, "the blocks", func() bool { return exceptions(n) == "[10.0.0.0 10.0.0.1]" })
	server.Kill()
	redistest.Await(t, "the end of one", func() bool { return exceptions(n) == "[10.0.0.1]" })
}

// exceptions are the values of those in force.
func exceptions(n *node) string {
	values, set := []string{}, n.keeper.Status().RuleSet
	if set == nil {
		return "no rules"
	}
	for _, e := range set.File.Exceptions {
		values = append(values, e.Values...)
	}
	return fmt.Sprint(values)
}

// TestALedgerConnectsOnFirstUse, so a Redis that starts later is found.
func TestALedgerConnectsOnFirstUse(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	l, err := redissource.OpenLedger(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, _, err := l.List(t.Context()); err == nil {
		t.Error("no error")
	}
	server.Restart()
	rulesettest.Done(t, 1)(l.Set(t.Context(), "a", "{name: a, limit: 1/1s}", 0, ann))
	l.Close()
	if _, _, err := l.List(t.Context()); err == nil {
		t.Error("no error from what is closed")
	}
}

// TestUnconfirmedChangesRevertOnAllNodes at their time, also while Redis is down.
func TestUnconfirmedChangesRevertOnAllNodes(t *testing.T) {
	server := redistest.Start(t)
	one, two, ctx := openLedger(t, server.URL()), openLedger(t, server.URL()), t.Context()
	nodes := []*node{startFrom(t, one.Source()), startFrom(t, two.Source())}
	everywhere := func(limit string) {
		t.Helper()
		redistest.Await(t, limit, func() bool {
			for _, n := range nodes {
				if set := n.keeper.Status().RuleSet; set == nil || len(set.File.Rules) != 1 || set.File.Rules[0].Limit[0] != limit {
					return false
				}
			}
			return true
		})
	}
	rulesettest.Done(t, 1)(one.Set(ctx, "a", "{name: a, limit: 10/1m}", 0, ann))
	rulesettest.Done(t, 2)(one.SetWith(ctx, "a", "{name: a, limit: 20/1m}", 1, ann, ledger.Extra{Reverts: time.Second}))
	everywhere("10/1m")
	redistest.Await(t, "the change that says so", func() bool { d, err := two.Get(ctx, "a"); return err == nil && d.Revision == 3 })
	rulesettest.Done(t, 4)(two.SetWith(ctx, "a", "{name: a, limit: 30/1m}", 3, ann, ledger.Extra{Reverts: 2 * time.Second}))
	everywhere("30/1m")
	server.Kill()
	everywhere("10/1m")
	if _, err := one.Confirm(ctx, "a", 4, ann); err == nil {
		t.Error("confirmed without Redis")
	}
}
