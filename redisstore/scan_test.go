package redisstore_test

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/redisstore"
)

// TestScanFindsTheKeysOfNames, all of them and no others, on every master, and beside thousands of other keys.
func TestScanFindsTheKeysOfNames(t *testing.T) {
	specs := []weir.Spec{weir.TokenBucket{Capacity: 9, Refill: 9, Period: time.Hour}, weir.FixedWindow{Limit: 9, Window: time.Hour}, weir.Calendar{Limit: 9, Unit: weir.Day},
		weir.SlidingLog{Limit: 9, Window: time.Hour}, weir.SlidingCounter{Limit: 9, Window: time.Hour, Slices: 6},
		weir.Concurrency{Limit: 9, TTL: time.Hour}}
	keys := []string{"a", "{tag}b", "a}", "{", "*", "ü:x", "c/d"}
	for name, start := range map[string]func(testing.TB) redis{"single": single, "cluster": clustered} {
		t.Run(name, func(t *testing.T) {
			r := start(t)
			store := r.open(t, redisstore.WithPrefix("w[e]*:"), redisstore.WithTimeout(time.Minute))
			wanted := map[string]bool{}
			for _, limit := range []string{"login", "login.2", "log", "login.20", "other"} {
				for i := range specs {
					for _, key := range keys {
						claim := weir.Claim{Key: key, Limit: weir.MustLimit(limit, specs[i]), Cost: 1}
						if claim.Limit.Algorithm() == weir.AlgorithmConcurrency {
							claim.Lease = weir.NewLeaseID()
						}
						d := make([]weir.Decision, 1)
						if granted, err := store.Decide(t.Context(), []weir.Claim{claim}, 1, d); granted != 1 || err != nil {
							t.Fatal(granted, err)
						}
						if limit == "login" || limit == "login.2" {
							wanted[redisstore.KeyOf(store, &claim)] = true
						}
					}
				}
			}
			for _, server := range r.all {
				server.Try("EVAL", "for i = 1, 3000 do redis.call('SET', 'w[e]*:login' .. i, '1') end", "0")
			}
			found := map[string]bool{}
			cursor, calls := "", 0
			for {
				claims, next, err := store.Scan(t.Context(), cursor, "login", "login.2")
				if err != nil {
					t.Fatal(err)
				}
				for i := range claims {
					found[redisstore.KeyOf(store, &claims[i])] = true
				}
				if calls++; next == "" {
					break
				}
				cursor = next
			}
			if !maps.Equal(found, wanted) {
				t.Errorf("found %d keys, of %d:\n%v\n%v", len(found), len(wanted), found, wanted)
			}
			if calls < 3 {
				t.Errorf("%d calls: one looks at too much", calls)
			}
			var input *weir.InputError
			if _, _, err := store.Scan(t.Context(), "10.0.0.1:1 7", "login"); !errors.As(err, &input) {
				t.Errorf("the cursor of a node that is gone: %v", err)
			}
		})
	}
}
