package api_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
)

// onStores runs a test on a server with counts in memory, and on one with counts in Redis.
func onStores(t *testing.T, rules string, test func(*testing.T, *server)) {
	t.Run("memory", func(t *testing.T) { test(t, start(t, rules)) })
	t.Run("Redis", func(t *testing.T) {
		store, err := redisstore.Open(context.Background(), redistest.Start(t).URL(),
			redisstore.WithTimeout(10*time.Second)) // tests share a busy machine
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		test(t, serve(t, newWitness(t, handler(t, store, rules))))
	})
}

// TestClaimsLeaveTheirFloor: under each algorithm, a claim is granted only if its floor fits besides its cost.
func TestClaimsLeaveTheirFloor(t *testing.T) {
	onStores(t, "rules: []", func(t *testing.T, s *server) {
		for _, limit := range []string{"10/1h", "leaky_queue 10/1h queue 9", "fixed_window 10/1h", "calendar 10/year", "sliding_log 10/1h",
			"sliding_counter 10/1h", "concurrency 10 ttl 1h", "fair_fixed_window 10/1h above 100"} {
			claim := func(cost, floor int) string {
				return fmt.Sprintf(`{"claims":[{"name":"all","limit":%q,"key":"k","cost":%d,"floor":%d}]}`, limit, cost, floor)
			}
			s.post("/v1/decide", claim(5, 6)).has(t, 200, "allowed", false, "remaining", 4, "retry_after", -1)
			s.post("/v1/decide", claim(5, 5)).has(t, 200, "allowed", true, "remaining", 0)
			s.post("/v1/peek", claim(1, 5)).has(t, 200, "allowed", false, "remaining", 0)
			s.post("/v1/acquire", claim(3, 2)).has(t, 200, "allowed", true, "remaining", 0)
			s.post("/v1/peek", claim(2, 0)).has(t, 200, "allowed", true, "remaining", 2)
			s.post("/v1/reset", claim(0, 0)).has(t, 400, "field", "claims[0].floor")
			s.post("/v1/reset", fmt.Sprintf(`{"claims":[{"name":"all","limit":%q,"key":"k"}]}`, limit)).has(t, 200)
			reserved := s.post("/v1/reserve", claim(4, 6))
			reserved.has(t, 200, "allowed", true, "remaining", 0)
			s.post("/v1/settle", settle(reserved.at("reservation.token"), 0)).has(t, 200)
			s.post("/v1/peek", claim(1, 0)).has(t, 200, "remaining", 10)
			s.post("/v1/decide", claim(1, weir.MaxUnits)).has(t, 200, "allowed", false, "retry_after", -1)
		}
	})
}

// TestMembersShareALimit: a claim of a fair limit is its member's, from the decision to the settling and the release.
func TestMembersShareALimit(t *testing.T) {
	onStores(t, "rules: []", func(t *testing.T, s *server) {
		claim := func(limit, member string, cost int) string {
			return fmt.Sprintf(`{"claims":[{"name":"all","limit":%q,"key":"k","cost":%d%s}]}`, limit, cost, member)
		}
		const gold, plain, nobody = `,"member":"gold","weight":3`, `,"member":"plain"`, ``
		const window = "fair_fixed_window 100/1h above 0"
		s.post("/v1/decide", claim(window, plain, 25)).has(t, 200, "allowed", true, "limit", window+" keys 10000")
		s.post("/v1/decide", claim(window, gold, 60)).has(t, 200, "allowed", true, "remaining", 15)
		s.post("/v1/decide", claim(window, plain, 1)).has(t, 200, "allowed", false, "remaining", 0)
		s.post("/v1/decide", claim(window, nobody, 15)).has(t, 200, "allowed", true)

		const held = "fair_concurrency 10 ttl 1h above 0"
		first := s.post("/v1/acquire", claim(held, plain, 2))
		s.post("/v1/acquire", claim(held, gold, 7)).has(t, 200, "allowed", true)
		s.post("/v1/acquire", claim(held, plain, 1)).has(t, 200, "allowed", false)
		s.post("/v1/renew", tokenOf(first.at("lease.token"))).has(t, 200)
		s.post("/v1/release", tokenOf(first.at("lease.token"))).has(t, 200)
		s.post("/v1/acquire", claim(held, plain, 2)).has(t, 200, "allowed", true)

		s.post("/v1/reset", claim(window, nobody, 0)).has(t, 200)
		s.post("/v1/decide", claim(window, gold, 75)).has(t, 200, "allowed", true)
		reserved := s.post("/v1/reserve", claim(window, plain, 25))
		s.post("/v1/settle", settle(reserved.at("reservation.token"), 5)).has(t, 200)
		s.post("/v1/peek", claim(window, plain, 1)).has(t, 200, "remaining", 20)
		s.post("/v1/peek", claim(window, gold, 1)).has(t, 200, "remaining", 0)
	})
}

// TestErrorsOfFairClaims: an error names the field, its value and what is allowed, and nothing is charged.
func TestErrorsOfFairClaims(t *testing.T) {
	s := serve(t, newWitness(t, handler(t, memstore.New(), "rules: []")))
	const good = `{"name":"a","limit":"fair_fixed_window 9/1h above 0","key":"k"`
	for more, want := range map[string][3]string{
		`,"floor":-1`:               {"floor", "-1", "a whole number from 0 to 4503599627370496"},
		`,"floor":4503599627370497`: {"floor", "4503599627370497", "a whole number from 0 to 4503599627370496"},
		`,"floor":"20%"`:            {"floor", `"20%"`, "a whole number from 0 to 4503599627370496"},
		`,"floor":NaN`:              {},
		`,"floor":1e2`:              {"floor", "1e2", "a whole number from 0 to 4503599627370496"},
		`,"floor":1,"floor":2`:      {"floor", "a second one", "each name once"},
		`,"member":7`:               {"member", "7", "a text"},
		`,"weight":0`:               {"weight", "0", "a whole number from 1 to 1000"},
		`,"weight":1001`:            {"weight", "1001", "a whole number from 1 to 1000"},
		`},{"limit":"9/1h","member":"m","name":"b","key":"k"`: {"[1].member", `"m"`,
			"only for a fair limit, such as fair_fixed_window 100/1h above 50"},
		`},{"weight":2,"limit":"9/1h","name":"b","key":"k"`: {"[1].weight", "2",
			"only for a fair limit, such as fair_fixed_window 100/1h above 50"},
		`},{"limit":"fair_sliding_log 9/1h","name":"b","key":"k"`: {"[1].limit", `"fair_sliding_log 9/1h"`, ""},
	} {
		for _, path := range []string{"/v1/decide", "/v1/reserve", "/v1/acquire", "/v1/peek"} {
			answer := s.post(path, `{"claims":[`+good+more+`}]}`)
			field := "claims[0]." + want[0]
			if want[0] != "" && want[0][0] == '[' {
				field = "claims" + want[0]
			}
			if answer.has(t, 400); want[0] != "" {
				answer.has(t, 400, "field", field, "value", want[1])
			}
			if want[2] != "" {
				answer.has(t, 400, "allowed", want[2])
			}
		}
	}
	if left := s.left("a", "fair_fixed_window 9/1h above 0", "k"); left != 9 {
		t.Errorf("%d are left: a mistake was charged", left)
	}
}
