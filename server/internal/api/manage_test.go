package api_test

import "testing"

const guess = `{"request":{"path":"/guess","client":"203.0.113.7"}}`

// TestBansAndCandidatesAreInTheChecks of the answers; the admin API manages them.
func TestBansAndCandidatesAreInTheChecks(t *testing.T) {
	s := start(t, someRules)
	for range 3 {
		s.post("/v1/decide", guess)
	}
	s.post("/v1/decide?deny_status=429", guess).has(t, 429, "outcome", "refused", "reason", "banned", "rule", "guess",
		"retry_after", 3600, "checks.2.name", "guess.ban")
	s.post("/v1/peek", `{"request":{"path":"/guess","client":"203.0.113.8"}}`).has(t, 200, "reason", "within_limits",
		"checks.2.name", "guess.candidate")
	for _, path := range []string{"/v1/bans", "/v1/rules/guess/compare"} {
		s.send("GET", path, "").has(t, 404, "detail", "bans and comparisons are in the admin API: "+
			"GET /v1/admin/bans, POST /v1/admin/bans/lift, GET /v1/admin/rules/NAME/compare")
	}
	s.post("/v1/lift", `{"rule":"guess","key":"client.ip=11:203.0.113.7"}`).has(t, 404)
}
