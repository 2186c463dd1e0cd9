package api_test

import (
	"fmt"
	"testing"
)

const guess = `{"request":{"path":"/guess","client":"203.0.113.7"}}`

// A ban is answered, listed, and lifted with the key that the list has.
func TestBansAreListedAndLifted(t *testing.T) {
	s := start(t, someRules)
	for range 3 {
		s.post("/v1/decide", guess)
	}
	s.post("/v1/decide?deny_status=429", guess).has(t, 429, "outcome", "refused", "reason", "banned", "rule", "guess", "retry_after", 3600,
		"checks.2.name", "guess.ban")
	s.post("/v1/peek", `{"request":{"path":"/guess","client":"203.0.113.8"}}`).has(t, 200, "reason", "within_limits", "checks.2.name", "guess.candidate")
	list := s.send("GET", "/v1/bans", "")
	list.has(t, 200, "bans.0.rule", "guess", "bans.0.key", "client.ip=11:203.0.113.7", "bans.0.length_us", 3600000000, "bans.1", nil)
	s.post("/v1/lift", fmt.Sprintf(`{"rule":"guess","key":%q}`, list.at("bans.0.key"))).has(t, 200, "lifted", true)
	s.send("GET", "/v1/bans", "").has(t, 200, "bans.0", nil)
	s.post("/v1/peek", guess).has(t, 200, "outcome", "refused", "reason", "limit_exceeded") // the limit is still used up
	s.post("/v1/reset", guess).has(t, 200)
	s.post("/v1/peek", guess).has(t, 200, "outcome", "passed")
}

func TestACandidateIsCompared(t *testing.T) {
	s := start(t, someRules)
	for range 3 {
		s.post("/v1/decide", guess)
	}
	s.send("GET", "/v1/rules/guess/compare", "").has(t, 200, "rule", "guess", "both_grant", 1, "newly_refused", 1, "newly_granted", 0, "both_refuse", 1,
		"refused_keys.0.key", "client.ip=11:203.0.113.7", "refused_keys.0.count", 1, "refused_keys.1", nil, "granted_keys.0", nil)
	s.send("GET", "/v1/rules/login/compare", "").has(t, 404)
}
