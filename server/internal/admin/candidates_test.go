package admin_test

import (
	"strings"
	"testing"

	"github.com/weirproject/weir"
)

// candidates is the life of a candidate: compared, promoted, gone.
func candidates(w *world, c *client) {
	c.ask("GET rules/guess/compare", "").has(404, "candidate: {limit: 60/1m}")
	first := c.ask("PUT rules/guess", guessed, isNew, "*").has(200).header.Get("ETag")
	w.guess(3)
	c.ask("GET rules/guess/compare", "").has(200, `"fixed_window 2/1h"`, `"fixed_window 1/1h"`, `"both_grant": 1`,
		`"newly_refused": 1`, `"newly_granted": 0`,
		`"both_refuse": 1`, `"key": "client.ip=11:203.0.113.7"`, `"granted_keys": []`)
	bans(c)
	c.ask("POST rules/guess/promote?dry_run=true", "").has(200, "guess: limit fixed_window 2/1h -> fixed_window 1/1h; candidate changed; counts are kept",
		`"in_force": false`)
	c.ask("POST rules/guess/promote", "").has(428)
	c.ask("POST rules/guess/promote", "", match, `"99"`).has(412, `"current":`)
	c.ask("POST rules/guess/promote", "", isNew, "*").has(412)
	second := c.ask("POST rules/guess/promote?why=quiet", "", match, first).has(200, `"in_force": true`,
		"counts are kept").header.Get("ETag")
	c.ask("GET rules/guess", "").has(200, `limit: fixed_window 1/1h\n`)
	c.ask("GET history?name=guess&most=1", "").has(200, `"what": "promote"`, `"why": "quiet"`, "counts are kept")
	c.ask("GET rules/guess/compare", "").has(404)
	c.ask("POST rules/guess/promote", "", match, second).has(422, "one that has a candidate")
	c.ask("POST rules/per-ip/promote", "", match, `"1"`).has(409,
		"is from config, and not in the ledger: promote it where it is written", "weir rules set per-ip FILE")
	c.ask("POST rules/nobody/promote", "", match, `"1"`).has(404)
}

// bans is the end of one.
func bans(c *client) {
	c.ask("GET bans", "").has(200, `"rule": "guess"`, `"key": "client.ip=11:203.0.113.7"`, `"length": "1h0m0s"`)
	const lift = "POST bans/lift?rule=guess&"
	c.ask(lift+"key=x&value=y", "").has(400, "not both")
	c.ask(lift+"key="+strings.Repeat("x", weir.MaxKey+1), "").has(422)
	c.ask(lift+"value=nobody", "").has(422)
	c.ask(lift+"key=client.ip%3D11%3A203.0.113.8", "").has(200, `"was_banned": false`)
	c.ask(lift+"key=client.ip%3D11%3A203.0.113.7&why=ours", "").has(200, `"was_banned": true`)
	c.ask("GET bans", "").has(200, `"bans": []`)
	c.ask(lift+"value=203.0.113.7", "").has(200, `"was_banned": false`)
}

// TestLiftBanByKeyValues, which operators know better than keys.
func TestLiftBanByKeyValues(t *testing.T) {
	w := memory(t)
	c := w.start()
	c.ask("PUT rules/guess", guessed, isNew, "*").has(200)
	w.guess(3)
	c.ask("POST bans/lift?rule=guess&value=203.0.113.7&why=ours", "").has(200, `"was_banned": true`)
	c.ask("GET bans", "").has(200, `"bans": []`)
	c.ask("GET history?name=guess&most=1", "").has(200, `"what": "lift ban"`, `"key": "client.ip=11:203.0.113.7"`,
		`"why": "ours"`)
	if log := w.log.String(); !strings.Contains(log, "a ban was lifted") || !strings.Contains(log, "why=ours") {
		t.Errorf("the log is\n%s", log)
	}
}

// TestPromoteCandidateWithAnotherKey: what starts anew is said before.
func TestPromoteCandidateWithAnotherKey(t *testing.T) {
	c := memory(t).start()
	c.ask("PUT rules/guess", "{name: guess, key: [client.ip], limit: 5/1h, candidate: {limit: 9/1h, key: [user]}}",
		isNew, "*").has(200)
	c.ask("GET rules/guess/compare", "").has(200, `"candidate_key": [`, `"user"`)
	c.ask("POST rules/guess/promote?dry_run=true", "").has(200, `"counts": "anew"`, "its key is another")
	c.ask("POST rules/guess/disable", "", match, `"1"`).has(200)
	c.ask("POST rules/guess/promote", "", match, `"2"`).has(200, `"changes": []`) // it stays disabled
	c.ask("GET rules/guess", "").has(200, `"enabled": false`, "key: [user]")
}
