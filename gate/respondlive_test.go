package gate_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/rules"
)

// TestRuleIsRemovedWhileRequestsAreUnderWay: their units come back, or stay, as if it were in force. When the rule is
// back, its count is exactly that of the responses that counted.
func TestRuleIsRemovedWhileRequestsAreUnderWay(t *testing.T) {
	const rule = "rules: [{name: login, key: [user], count_if: {status: 401}, limit: sliding_log 300/1h}]"
	g := open(t, memstore.New(), rule)
	var receipts []gate.Receipt
	for range 200 {
		receipts = append(receipts, begin(t, g, "ann"))
	}
	var ending sync.WaitGroup
	end := func(list []gate.Receipt) {
		for i, receipt := range list {
			ending.Go(func() {
				if _, err := g.Respond(t.Context(), receipt, gate.Response{Status: 200 + 201*(i%4/3)}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	end(receipts[:100])
	for _, text := range []string{"rules: []", rule, "rules: []"} {
		if err := g.Swap(compiled(t, text)); err != nil {
			t.Fatal(err)
		}
	}
	end(receipts[100:])
	ending.Wait()
	if err := g.Swap(compiled(t, rule)); err != nil {
		t.Fatal(err)
	}
	if left := remaining(t, g, "ann"); left != 300-50 {
		t.Errorf("%d left, want 250", left)
	}
}

// TestCountIfOnARedisCluster: reservations, units that come back, and bans are exact where keys lie in several slots.
func TestCountIfOnARedisCluster(t *testing.T) {
	store, err := redisstore.Open(t.Context(), redistest.StartCluster(t, 3, 0).URL(), redisstore.WithTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	g := open(t, store, failedLogins+"  - {name: site, count_if: {status: 401}, limit: sliding_log 1000/1h}\n",
		gate.WithBudget(time.Minute))
	var users sync.WaitGroup
	for u := range 8 {
		users.Go(func() {
			user := fmt.Sprint("user-", u)
			for i := range 16 { // four of them fail
				status := 200
				if i%4 == 3 {
					status = 401
				}
				respond(t, g, begin(t, g, user), status)
			}
			if left := remaining(t, g, user); left != 20-4 {
				t.Errorf("%s has %d left, want 16", user, left)
			}
			respond(t, g, begin(t, g, user), 401)
			var v gate.Verdict
			if err := g.Decide(t.Context(), &rules.Request{User: user}, gate.Once, &v); err != nil || v.Reason != gate.Banned {
				t.Errorf("%s: %v %v %v", user, v.Outcome, v.Reason, err)
			}
		})
	}
	users.Wait()
	var v gate.Verdict
	if err := g.Decide(t.Context(), &rules.Request{User: "someone"}, gate.Ask{}, &v); err != nil {
		t.Fatal(err)
	}
	for i := range v.Len() {
		if c := v.At(i); c.Rule.Name() == "site" && !c.Aside && c.Decision.Remaining != 1000-8*5 {
			t.Errorf("the site has %d left, want 960", c.Decision.Remaining)
		}
	}
}
