package resp_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/server/internal/resp"
)

// verdict is the answer of WEIR.DECIDE as a map.
func (l *line) verdict(words ...string) verdict {
	l.t.Helper()
	l.words(words...)
	text := l.reply()
	if !strings.HasPrefix(text, "[granted ") {
		l.t.Fatalf("%q: %s", words, text)
	}
	fields := w(strings.Trim(text, "[]"))
	v := verdict{}
	for i := 0; i+1 < len(fields); i += 2 {
		v[fields[i]] = fields[i+1]
	}
	return v
}

type verdict map[string]string

// are compares some of the fields: "granted 1 outcome passed".
func (v verdict) are(t testing.TB, about, want string) {
	t.Helper()
	fields := w(want)
	for i := 0; i+1 < len(fields); i += 2 {
		if v[fields[i]] != fields[i+1] {
			t.Errorf("%s: %s is %s, want %s (%v)", about, fields[i], v[fields[i]], fields[i+1], v)
		}
	}
}

// TestRefusalsHaveTheMessageOfTheRule: one field more, in the language of the question.
func TestRefusalsHaveTheMessageOfTheRule(t *testing.T) {
	h := openWith(t, "rules: [{name: r, limit: fixed_window 1/1h, message: {en: 'wait {window}', zh: 请等待}}]")
	c := h.dial()
	if _, said := c.verdict(w("WEIR.DECIDE RULES path /")...)["message"]; said {
		t.Error("a granted request has a message")
	}
	c.verdict(w("WEIR.DECIDE RULES path / header.Accept-Language zh")...).are(t, "in Chinese", "outcome refused message 请等待")
	c.verdict("WEIR.DECIDE", "LIMIT", "own", "1/1h", "k", "RULES", "path", "/").are(t, "in English", "outcome refused limit r")
}

func TestDecideLimits(t *testing.T) {
	h := open(t)
	c := h.dial()
	c.want("[granted 1 outcome passed reason within_limits rule nil limit sms remaining 0 retry_after_us 60000000 reset_after_us 60000000 delay_us 0 lease nil at_us 1800000000000000 degraded 0]",
		"WEIR.DECIDE", "LIMIT", "sms", "1/1m", "u")
	c.verdict(w("weir.decide limit sms 1/1m u")...).are(t, "refused", "granted 0 outcome refused reason limit_exceeded limit sms remaining 0 retry_after_us 60000000")
	c.verdict(w("WEIR.PEEK LIMIT sms 1/1m u")...).are(t, "a look at it", "granted 0 outcome refused")
	c.verdict(w("WEIR.PEEK LIMIT sms 1/1m other")...).are(t, "a look at another", "granted 0 outcome passed remaining 1")

	// All claims are one decision: what one refuses, none is charged for.
	c.verdict("WEIR.DECIDE", "LIMIT", "day", "10/1d", "u", "LIMIT", "sms", "1/1m", "u").are(t, "two limits", "granted 0 outcome refused limit sms")
	c.verdict(w("WEIR.PEEK LIMIT day 10/1d u")...).are(t, "what was refused", "remaining 10")
	c.verdict("WEIR.DECIDE", "LIMIT", "requests", "5/1h", "u", "LIMIT", "tokens", "sliding_log 1000/1h", "u", "COST", "800").are(t, "costs", "granted 1 limit tokens remaining 200")
	c.verdict("WEIR.DECIDE", "TIMES", "9", "LIMIT", "many", "4/1h", "u").are(t, "times", "granted 4 outcome passed remaining 0")
	c.verdict(w("WEIR.DECIDE LIMIT small 5/1h u COST 6")...).are(t, "never", "granted 0 retry_after_us -1")
	c.verdict("WEIR.DECIDE", "LIMIT", "queue", "leaky_queue 1/1s queue 3", "u").are(t, "a queue", "granted 1 delay_us 0")
	c.verdict("WEIR.DECIDE", "LIMIT", "queue", "leaky_queue 1/1s queue 3", "u").are(t, "a queue", "granted 1 delay_us 1000000")

	// LIMIT's three words may be any, also the words of the grammar.
	c.verdict("WEIR.DECIDE", "LIMIT", "limit", "5/1h", "COST").are(t, "a key called COST", "granted 1 limit limit remaining 4")
	c.verdict("WEIR.DECIDE", "LIMIT", "raw", "5/1h", "\x00\r\n\xff").are(t, "a key of any bytes", "granted 1")
}

func TestDecideRules(t *testing.T) {
	h := open(t)
	c := h.dial()
	login := w("WEIR.DECIDE RULES method POST path /login client.ip 203.0.113.7 header.x-device phone")
	c.verdict(login...).are(t, "login", "granted 1 outcome passed rule login limit login remaining 1")
	c.verdict(login...).are(t, "login", "granted 1 rule login remaining 0")
	c.verdict(login...).are(t, "login", "granted 0 outcome refused rule login retry_after_us 60000000")
	c.verdict(w("WEIR.DECIDE RULES path //./%6cogin method POST client.ip ::ffff:203.0.113.7 header.X-DEVICE phone")...).are(t, "written otherwise", "granted 0 rule login")
	c.verdict(w("WEIR.DECIDE RULES method POST path /login client.ip 203.0.113.8 header.x-device phone")...).are(t, "somebody else", "granted 1")
	c.verdict(w("WEIR.DECIDE RULES")...).are(t, "no field at all", "granted 1 rule whole-site remaining 996")
	c.verdict(w("WEIR.DECIDE RULES path /closed descriptor.plan free")...).are(t, "without what it is counted by", "granted 0 outcome denied reason missing_key rule closed limit nil")
	c.verdict(w("WEIR.DECIDE RULES TIMES 2 query.a b cookie.c d route /r service s")...).are(t, "twice", "granted 2 rule whole-site remaining 994")
	c.verdict(w("WEIR.PEEK RULES method POST path /login client.ip 203.0.113.7 header.x-device phone")...).are(t, "a look", "granted 0 outcome refused rule login")
	// A claim of the caller's own stands beside the rules.
	c.verdict(w("WEIR.DECIDE RULES method GET LIMIT mine 1/1h u")...).are(t, "beside", "granted 1 limit mine remaining 0")
	c.verdict(w("WEIR.DECIDE RULES method GET LIMIT mine 1/1h u")...).are(t, "beside", "granted 0 limit mine rule nil")
}

func TestLeases(t *testing.T) {
	h := open(t)
	c := h.dial()
	v := c.verdict(w("WEIR.DECIDE RULES path /exports host EXAMPLE.com.:443 user alice")...)
	v.are(t, "an export", "granted 1 rule exports")
	if len(v["lease"]) < 22 {
		t.Fatalf("no lease: %v", v)
	}
	ask := w("WEIR.DECIDE RULES path /exports host example.com user alice")
	c.verdict(ask...).are(t, "another meanwhile", "granted 0 rule exports lease nil")
	c.want("0", w("WEIR.RELEASE nobodys RULES path /exports host example.com user alice")...)
	c.verdict(ask...).are(t, "what was not released", "granted 0")
	c.want("1", append([]string{"WEIR.RELEASE", v["lease"]}, ask[1:]...)...)
	c.want("0", append([]string{"WEIR.RELEASE", v["lease"]}, ask[1:]...)...)
	c.verdict(append(ask, "LEASE", "mine")...).are(t, "after it was released", "granted 1 lease mine")
	c.verdict(append(ask, "LEASE", "mine")...).are(t, "the same again", "granted 1 lease mine")

	held := []string{"LIMIT", "jobs", "concurrency 1 ttl 30s", "u"}
	c.verdict(append(w("WEIR.DECIDE LEASE a"), held...)...).are(t, "a job", "granted 1 lease a")
	c.verdict(append(w("WEIR.DECIDE LEASE b"), held...)...).are(t, "a second", "granted 0")
	c.want("1", append(w("WEIR.RELEASE a"), held...)...)
	c.verdict(append(w("WEIR.DECIDE LEASE b"), held...)...).are(t, "a second", "granted 1")
	h.pass(30 * time.Second)
	c.want("0", append(w("WEIR.RELEASE b"), held...)...)
	c.want("-ERR the question has no concurrency limit: only those have leases", w("WEIR.RELEASE a LIMIT a 1/1s u")...)
}

// TestFloorsOfLimits: a claim leaves its floor, and CL.THROTTLE's bucket can be asked with one.
func TestFloorsOfLimits(t *testing.T) {
	c := open(t).dial()
	c.verdict(w("WEIR.DECIDE LIMIT a 10/1h u COST 5 FLOOR 6")...).are(t, "too much", "granted 0 remaining 4 retry_after_us -1")
	c.verdict(w("WEIR.DECIDE LIMIT a 10/1h u FLOOR 2 COST 5")...).are(t, "it fits", "granted 1 remaining 3")
	c.verdict(w("WEIR.PEEK LIMIT a 10/1h u FLOOR 5")...).are(t, "a look", "outcome refused remaining 0")
	c.verdict(w("WEIR.DECIDE TIMES 9 LIMIT a 10/1h u FLOOR 2")...).are(t, "several", "granted 3 remaining 0")
	c.verdict(w("WEIR.PEEK LIMIT a 10/1h u")...).are(t, "without a floor", "remaining 2")
	c.want("[0 16 15 -1 2]", w("CL.THROTTLE user:42 15 30 60")...)
	c.verdict("WEIR.DECIDE", "LIMIT", "cl.throttle", "30/1m burst 16", "user:42", "FLOOR", "15").are(t, "the same bucket", "granted 0 remaining 0")
}

// TestMembersOfLimits: MEMBER says whose units a decision takes, a refund gives back and a release ends.
func TestMembersOfLimits(t *testing.T) {
	c := open(t).dial()
	ask := func(command, limit, rest string) verdict {
		return c.verdict(append(append(w(command), "LIMIT", "all", limit, "k"), w(rest)...)...)
	}
	const window, held = "fair_fixed_window 100/1h above 0", "fair_concurrency 10 ttl 1h above 0"
	first := ask("WEIR.DECIDE", window, "MEMBER plain COST 25")
	ask("WEIR.DECIDE", window, "member gold weight 3 cost 60").are(t, "gold", "granted 1 remaining 15")
	ask("WEIR.DECIDE", window, "MEMBER plain").are(t, "beyond its share", "granted 0 remaining 0")
	c.want("1", append(append(w("WEIR.REFUND"), first["at_us"], "LIMIT", "all", window, "k"), w("MEMBER plain COST 20")...)...)
	ask("WEIR.PEEK", window, "MEMBER plain").are(t, "after a refund", "remaining 20")
	ask("WEIR.DECIDE", held, "MEMBER plain LEASE a COST 2").are(t, "held", "granted 1")
	c.want("0", "WEIR.RELEASE", "a", "LIMIT", "all", held, "k", "MEMBER", "gold")
	c.want("1", "WEIR.RELEASE", "a", "LIMIT", "all", held, "k", "MEMBER", "plain")
	c.want("1", "WEIR.RESET", "LIMIT", "all", window, "k")
	ask("WEIR.PEEK", window, "").are(t, "nobody by name", "remaining 100")
}

func TestRepeatedDecisionIsChargedOnce(t *testing.T) {
	h := open(t)
	c := h.dial()
	sms := w("WEIR.DECIDE LIMIT sms 2/1h u")
	c.verdict(append(sms, "ID", "a", "FOR", "1m")...).are(t, "a message", "granted 1 remaining 1")
	c.verdict(append(sms, "ID", "a", "FOR", "1m")...).are(t, "again", "granted 1 remaining 1 repeated 1")
	c.verdict(append(sms, "COST", "2", "ID", "a")...).are(t, "at another cost", "granted 0 remaining 1")
	h.pass(time.Minute)
	c.verdict(append(sms, "ID", "a", "FOR", "1m")...).are(t, "the id has ended", "granted 1 remaining 0")
	c.want("-ERR ID needs an id of 1 to 256 bytes", append(sms, "ID")...)
	c.want("-ERR FOR needs a time from 1s to 24h, such as 10m", append(sms, "ID", "a", "FOR", "1x")...)
	c.want("-ERR FOR needs an ID, which is kept for that time", append(sms, "FOR", "1m")...)
	c.want(`-ERR weir: for is 48h0m0s; allowed: 1s to 24h: how long an id is kept`, append(sms, "ID", "a", "FOR", "2d")...)
	c.want(`-ERR weir: times is 2; allowed: 0 or 1 with an id`, append(sms, "ID", "a", "TIMES", "2")...)
}

func TestRefundAndReset(t *testing.T) {
	h := open(t)
	c := h.dial()
	v := c.verdict(w("WEIR.DECIDE LIMIT tokens 1000/1h u COST 800 LIMIT requests 3/1h u")...)
	c.want("2", append([]string{"WEIR.REFUND", v["at_us"]}, w("LIMIT tokens 1000/1h u COST 300 LIMIT requests 3/1h u")...)...)
	c.verdict(w("WEIR.PEEK LIMIT tokens 1000/1h u")...).are(t, "what was given back", "remaining 500")
	c.verdict(w("WEIR.PEEK LIMIT requests 3/1h u")...).are(t, "what was given back", "remaining 3")
	c.want("1", w("WEIR.RESET LIMIT tokens 1000/1h u")...)
	c.verdict(w("WEIR.PEEK LIMIT tokens 1000/1h u")...).are(t, "what was forgotten", "remaining 1000")

	login := w("RULES method POST path /login client.ip 203.0.113.7")
	v = c.verdict(append([]string{"WEIR.DECIDE"}, login...)...)
	c.verdict(append([]string{"WEIR.DECIDE"}, login...)...).are(t, "a second", "remaining 0")
	c.want("2", append([]string{"WEIR.REFUND", v["at_us"]}, login...)...)
	c.verdict(append([]string{"WEIR.PEEK"}, login...)...).are(t, "one of two", "remaining 1 outcome passed")
	c.want("2", append([]string{"WEIR.RESET"}, login...)...)
	c.verdict(append([]string{"WEIR.PEEK"}, login...)...).are(t, "none", "remaining 2")
	c.want("-ERR at_us is not an integer: give the at_us that WEIR.DECIDE answered", w("WEIR.REFUND now LIMIT a 1/1s u")...)
}

func TestInvalidQuestionsAreErrors(t *testing.T) {
	h := open(t)
	c := h.dial()
	for _, test := range []struct{ words, want string }{
		{"WEIR.DECIDE", "-ERR wrong number of arguments for 'weir.decide' command"},
		{"WEIR.REFUND 1", "-ERR wrong number of arguments for 'weir.refund' command"},
		{"WEIR.DECIDE TIMES 1", "-ERR the question is empty: give LIMIT name limit key, or RULES and the fields of a request"},
		{"WEIR.DECIDE sms 1/1m u", `-ERR syntax error: "sms" is not LIMIT, RULES, COST, FLOOR, MEMBER, WEIGHT, TIMES, LEASE, ID or FOR`},
		{"WEIR.PEEK TIMES 2 LIMIT a 1/1s u", `-ERR syntax error: "TIMES" is not LIMIT, RULES, COST, FLOOR, MEMBER or WEIGHT`},
		{"WEIR.RESET LIMIT a 1/1s u COST 1", `-ERR syntax error: "COST" is not LIMIT, RULES`},
		{"WEIR.DECIDE LIMIT a 1/1s", "-ERR LIMIT needs a name, a limit and a key, such as LIMIT sms 5/1h user:42"},
		{"WEIR.DECIDE LIMIT a 1/60 u", `-ERR weir: limit is "1/60"; allowed: a period with its unit, such as 1s, 500ms, 1m30s, 1h, 1d or 1w; "60" is not one`},
		{"WEIR.DECIDE LIMIT a/b 1/1s u", `-ERR weir: name is "a/b"; allowed: 1 to 128 of a-z A-Z 0-9 and . _ -`},
		{"WEIR.DECIDE LIMIT a 1/1s u COST -1", "-ERR weir: cost is -1; allowed: 0 to 4503599627370496 (2^52)"},
		{"WEIR.DECIDE LIMIT a 1/1s u COST x", `-ERR weir: cost is "x"; allowed: a whole number`},
		{"WEIR.DECIDE LIMIT a 1/1s u COST", "-ERR COST needs a number"},
		{"WEIR.DECIDE LIMIT a 1/1s u COST 1 COST 1", "-ERR COST occurs twice for one limit"},
		{"WEIR.DECIDE COST 1 LIMIT a 1/1s u", "-ERR COST has no limit before it: give it after LIMIT name limit key, or after RULES"},
		{"WEIR.DECIDE LIMIT a 1/1s u FLOOR", "-ERR FLOOR needs a number"},
		{"WEIR.DECIDE LIMIT a 1/1s u FLOOR 20%", `-ERR weir: floor is "20%"; allowed: a whole number`},
		{"WEIR.DECIDE LIMIT a 1/1s u FLOOR -1", "-ERR weir: floor is -1; allowed: 0 to 4503599627370496 (2^52)"},
		{"WEIR.DECIDE LIMIT a 1/1s u FLOOR 1 COST 1 FLOOR 1", "-ERR FLOOR occurs twice for one limit"},
		{"WEIR.DECIDE FLOOR 1 LIMIT a 1/1s u", "-ERR FLOOR has no limit before it: give it after LIMIT name limit key"},
		{"WEIR.DECIDE LIMIT a 1/1s u RULES FLOOR 1", "-ERR FLOOR has no limit before it: give it after LIMIT name limit key"},
		{"WEIR.DECIDE LIMIT a 1/1s u MEMBER m", `-ERR weir: member is "m"; allowed: only for a fair limit, such as fair_fixed_window 100/1h above 50`},
		{"WEIR.DECIDE LIMIT a 1/1s u WEIGHT 2", `-ERR weir: weight is 2; allowed: only for a fair limit, such as fair_fixed_window 100/1h above 50`},
		{"WEIR.DECIDE LIMIT a 1/1s u WEIGHT 0", `-ERR weir: weight is 0; allowed: 1 to 1000`},
		{"WEIR.DECIDE LIMIT a 1/1s u WEIGHT 1001", `-ERR weir: weight is 1001; allowed: 1 to 1000`},
		{"WEIR.DECIDE LIMIT a 1/1s u MEMBER", "-ERR MEMBER needs a name: the member of the fair limit"},
		{"WEIR.RESET LIMIT a 1/1s u MEMBER m", `-ERR syntax error: "MEMBER" is not LIMIT, RULES`},
		{"WEIR.RELEASE x LIMIT a 1/1s u FLOOR 1", `-ERR syntax error: "FLOOR" is not LIMIT, RULES or MEMBER`},
		{"WEIR.DECIDE LIMIT a 1/1s u TIMES -1", "-ERR weir: times is -1; allowed: 0 to 4503599627370496 (2^52)"},
		{"WEIR.DECIDE LIMIT a 1/1s u LEASE", "-ERR LEASE needs an id of 1 to 256 bytes"},
		{"WEIR.DECIDE LIMIT a 1/1s u LIMIT a 1/1s u", `-ERR weir: claims is "a u"; allowed: one claim for each key and limit`},
		{"WEIR.DECIDE LIMIT a 1/1s u" + strings.Repeat(" LIMIT a 1/1s u", 32), "-ERR weir: claims is 33; allowed: 1 to 32 of one decision"},
		{"WEIR.DECIDE RULES RULES", "-ERR RULES occurs twice"},
		{"WEIR.DECIDE RULES method", `-ERR the field "method" has no value; leave out fields that a request lacks`},
		{"WEIR.DECIDE RULES method GET method POST", `-ERR the field "method" occurs twice`},
		{"WEIR.DECIDE RULES header.x a header.X b", `-ERR the field "header.X" occurs twice`},
		{"WEIR.DECIDE RULES client.ip 10.0.0.1 client.ip 10.0.0.2", `-ERR the field "client.ip" occurs twice`},
		{"WEIR.DECIDE RULES client.ip 10.0.0.1:80", `-ERR client.ip is "10.0.0.1:80"; allowed: an IPv4 or IPv6 address without a port`},
		{"WEIR.DECIDE RULES ip 10.0.0.1", `-ERR there is no field "ip"; allowed: method, host, path, route, user, service, client.ip, header.NAME, query.NAME, cookie.NAME or descriptor.NAME, and LIMIT, RULES, COST, TIMES, LEASE, ID, FOR`},
		{"WEIR.DECIDE RULES path.id 1", `-ERR there is no field "path.id"; allowed: method, host, path, route, user, service, client.ip, header.NAME, query.NAME, cookie.NAME or descriptor.NAME, and LIMIT, RULES, COST, TIMES, LEASE, ID, FOR`},
	} {
		c.want(test.want, w(test.words)...)
	}
	c.words(w("WEIR.DECIDE RULES path /a%2fb")...)
	if got := c.reply(); !strings.HasPrefix(got, "-ERR weir: path is ") {
		t.Errorf("a path that servers read differently: %s", got)
	}
	c.verdict(w("WEIR.PEEK LIMIT a 1/1s u")...).are(t, "after all that", "remaining 1")
	c.verdict(w("WEIR.PEEK RULES")...).are(t, "after all that", "remaining 1000")
}

func TestDecideWhileTheStoreDoesNotAnswer(t *testing.T) {
	const unanswered = "-ERR the store did not answer; whether this was charged is not known"
	h := openOn(t, broken{memstore.New(), errGone})
	c := h.dial()
	c.want(unanswered, w("WEIR.DECIDE LIMIT a 1/1s u")...)
	c.want(unanswered, w("WEIR.RESET LIMIT a 1/1s u")...)
	c.want(unanswered, w("WEIR.REFUND 1 LIMIT a 1/1s u")...)
	c.want(unanswered, w("WEIR.REFUND 1 RULES method GET")...)
	c.want(unanswered, "WEIR.RELEASE", "x", "LIMIT", "a", "concurrency 1 ttl 1s", "u")
	// Rules say themselves what then: these count in the process.
	c.verdict(w("WEIR.DECIDE RULES method GET")...).are(t, "rules", "granted 1 outcome passed rule whole-site remaining 999")

	c = openOn(t, broken{memstore.New(), errGone}, resp.WithFailOpen()).dial()
	c.verdict(w("WEIR.DECIDE LIMIT a 1/1s u TIMES 3")...).are(t, "open", "granted 3 outcome passed reason store_failed limit nil")
	c.want(unanswered, w("WEIR.RESET LIMIT a 1/1s u")...)

	c = openOn(t, broken{memstore.New(), fmt.Errorf("found: %w", weir.ErrForeignState)}, resp.WithFailOpen()).dial()
	c.want("-WRONGTYPE the state under this key is not weir's", w("WEIR.DECIDE LIMIT a 1/1s u")...)
	c.want("-WRONGTYPE the state under this key is not weir's", w("WEIR.RESET LIMIT a 1/1s u")...)
}

// TestBodiesAreNotKnown: a question that meets a rule by a JSON body is a mistake, not one without a limit.
func TestBodiesAreNotKnown(t *testing.T) {
	c := openWith(t, "rules: [{name: a, match: {path: /a, json: {model: large}}, limit: 1/1h}]").dial()
	c.words(w("WEIR.DECIDE RULES path /a")...)
	if got := c.reply(); !strings.HasPrefix(got, "-ERR") || !strings.Contains(got, "json.model") {
		t.Error(got)
	}

	c = openWith(t, "rules: [{name: tool, preset: mcp, match: {path: /mcp}, key: [mcp.tool], limit: 1/1h}]").dial()
	for _, command := range []string{"WEIR.DECIDE", "WEIR.PEEK"} {
		c.want("-ERR a rule reads a message of the Model Context Protocol from this request, and a question has no body: "+
			"ask POST /v1/decide of the HTTP API", w(command+" RULES path /mcp method POST")...)
	}
	c.verdict(w("WEIR.DECIDE RULES path /mcp method GET")...).are(t, "a stream of events", "granted 1")
	c.verdict(w("WEIR.DECIDE RULES path /other method POST")...).are(t, "another place", "granted 1")
}
