package ruletest_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/internal/ruletest"
)

// run runs the tests of a text, and returns the failures as text.
func run(t *testing.T, text string) string {
	t.Helper()
	file, err := ruletest.Parse("a.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	file.Tested, err = rules.Parse("a.yaml", file.Inline())
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Compile(file.Tested)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for i := range file.Tests {
		result, err := file.Run(t.Context(), set, &file.Tests[i], nil)
		if err != nil {
			return err.Error()
		}
		for j := range result.Failures {
			b.WriteString(result.Failures[j].String(file, result.Test))
		}
	}
	return b.String()
}

const head = `rules:
  - {name: jobs, match: {path: /jobs}, key: [user], limit: concurrency 1 ttl 1m}
  - {name: tokens, match: {path: /chat}, limit: sliding_log 100/1h, cost: {default: 40}, response: {fields: seconds}}
  - {name: queue, match: {path: /queue}, limit: leaky_queue 1/10s queue 5}
  - {name: night, match: {path: /night}, limit: 1/1h, schedule: {hours: "22:00-06:00", zone: UTC}}
  - {name: shadow, match: {path: /chat}, limit: 1/1h, mode: shadow}
  - {name: here, match: {path: /here}, limit: fixed_window 4/1h}
  - {name: open, match: {path: /open}, limit: fixed_window 1/1h, on_store_error: allow}
  - {name: lock, match: {path: /lock}, limit: fixed_window 9/1h, on_store_error: deny}
  - {name: login, match: {path: /login}, key: [client.ip], limit: sliding_log 20/1h, count_if: {status: 401, header: {X-Login: failed}}, ban: {after: 2 counted within 1h, for: 10m}}
  - {name: abroad, match: {path: /abroad, not: {country: CN}}, key: [client.country, client.asn], on_missing: deny, limit: fixed_window 1/1h}
start: 2026-03-01T12:00:00Z
tests:
  - name: a
    requests:
`

// Each step passes as it is, and what it says is compared: with another value it fails.
func TestStepsAreCompared(t *testing.T) {
	for name, tt := range map[string]struct{ steps, wrong, other string }{
		"a lease outlives its time-to-live while it is held": {`
      - {path: /jobs, user: ann, hold: first, expect: {outcome: passed, remaining: 0}}
      - {path: /jobs, user: ann, at: 1h, expect: refused}
      - {path: /jobs, user: bob, at: 1h, expect: passed}
      - {release: first, at: 1h}
      - {path: /jobs, user: ann, at: 1h, repeat: 3, expect: passed}`,
			"user: ann, at: 1h, expect: refused", "user: ann, at: 1h, expect: passed"},
		"a settled cost": {`
      - {path: /chat, settle: 10, expect: {remaining: 60, headers: {x-ratelimit-limit: 100, X-RateLimit-Remaining: 60}}}
      - {path: /chat, cost: 90, expect: {outcome: passed, remaining: 0}}`, "settle: 10", "settle: 11"},
		"a held cost": {`
      - {path: /chat, hold: a, expect: passed}
      - {path: /chat, hold: b, expect: passed}
      - {path: /chat, expect: {outcome: refused, rule: tokens, reason: limit_exceeded, status: 429}}
      - {release: a, settle: 0}
      - {path: /chat, expect: passed}`, "settle: 0", "settle: 30"},
		"a delay": {`
      - {path: /queue, expect: {delay: 0s}}
      - {path: /queue, expect: {delay: 10s}}`, "delay: 10s", "delay: 9s"},
		"a schedule": {`
      - {path: /night, repeat: 2, expect: {reason: no_rule}}
      - {path: /night, at: 10h, repeat: 2, expect: {passed: 1}}`, "at: 10h", "at: 9h"},
		"a path without a form": {`
      - {path: "/a%zz", expect: {outcome: failed, status: 400}}`, "status: 400", "status: 200"},
		"a store that is down, and local counts": {`
      - {path: /here, repeat: 3, expect: passed}
      - {at: 1s, store: down}
      - {path: /here, repeat: 3, expect: {passed: 1}}
      - {path: /open, repeat: 2, expect: {outcome: passed, reason: store_failed}}
      - {path: /lock, expect: {outcome: failed, rule: lock, status: 503}}
      - {store: up}
      - {path: /here, expect: passed}
      - {path: /lock, expect: {outcome: passed, remaining: 8}}`, "passed: 1", "passed: 3"},
		"a lease of a store that is down": {`
      - {path: /jobs, user: ann, hold: first}
      - {store: down, at: 1s}
      - {release: first, at: 90s}
      - {store: up, at: 90s}
      - {path: /jobs, user: ann, at: 90s, expect: passed}`, "at: 90s, expect: passed", "at: 90s, expect: refused"},
		"responses that count": {`
      - {path: /login, repeat: 30, response: {status: 200}, expect: passed}
      - {path: /login, repeat: 30, response: {status: 401}, expect: passed}
      - {path: /login, response: {status: 401, header: {x-login: failed}}, expect: {outcome: passed, remaining: 19}}
      - {path: /login, hold: slow, expect: {remaining: 18}}
      - {release: slow, at: 1m, response: {status: 401, header: {X-Login: failed}}}
      - {path: /login, at: 1m, expect: {outcome: refused, reason: banned, retry_after: 10m}}
      - {path: /login, client: 192.0.2.9, at: 1m, expect: passed}`, "{status: 200}", "{status: 401, header: {x-login: failed}}"},
		"a response that nobody reports counts, and bans nobody": {`
      - {path: /login, repeat: 21, expect: {passed: 20}}
      - {path: /login, expect: {outcome: refused, reason: limit_exceeded}}`, "limit_exceeded", "banned"},
		"country and autonomous system": {`
      - {path: /abroad, country: CN, repeat: 2, expect: {reason: no_rule}}
      - {path: /abroad, country: HK, asn: 64512, repeat: 2, expect: {passed: 1}}
      - {path: /abroad, country: HK, asn: 64513, expect: passed}
      - {path: /abroad, country: HK, expect: {outcome: denied, reason: missing_key}}`, "asn: 64513", "asn: 64512"},
		"a cost beyond the limit": {`
      - {path: /chat, cost: 101, expect: {retry_after: never, headers: {retry-after: ""}}}`, "never", "1h"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := run(t, head+tt.steps); got != "" {
				t.Errorf("the test fails:\n%s", got)
			}
			other := strings.Replace(tt.steps, tt.wrong, tt.other, 1)
			if other == tt.steps || run(t, head+other) == "" {
				t.Errorf("the test passes with %q", tt.other)
			}
		})
	}
}

func TestMistakesHaveTheirPlaces(t *testing.T) {
	const test = "tests:\n  - {name: a, requests: [{}]}\n"
	for text, want := range map[string]string{
		"":                                              "a.yaml:1:1: the file is empty",
		"[]":                                            "a.yaml:1:1: the file must be fields",
		"a: [":                                          "not YAML",
		"rules: r\n" + test + "---\nb: 1":               "a second document",
		"rules: &a r\n" + test:                          "a.yaml:1:8: anchors",
		test:                                            "rules is missing",
		"rules: r":                                      "tests is missing",
		"rules: r\nstore: memory\n" + test:              `a.yaml:2:1: unknown field "store" beside the name of a file`,
		"rules: r\nrules: s\n" + test:                   `a.yaml:2:1: "rules" occurs twice`,
		"rules: r\nstart: today\n" + test:               `a.yaml:2:8: start is "today"; allowed: a time`,
		"{rules: [], " + "tests: [{name: a}]}":          "each field of the file begins a line of its own",
		"rules: r\ntests: {}":                           "a.yaml:2:8: tests must be a list",
		"rules: r\ntests: [{requests: [{}]}]":           "each test needs a name",
		step("at: 1x"):                                  `at is "1x"; allowed: a duration`,
		step("at: 1ns"):                                 `at is "1ns"; allowed: a duration in whole microseconds`,
		step("at: 99999d"):                              `at is "99999d"`,
		step("path: /a"):                                "a.yaml:3:5: no request of the test has an expect",
		step("every: 1s"):                               "every needs a repeat",
		step("repeat: 10000001"):                        "allowed: a whole number from 1 to 10000000",
		step("repeat: 10000000, every: 36500d"):         "the last repetition is more than",
		step("client: me"):                              `client is "me"; allowed: an address`,
		step(`host: "a b"`):                             "host",
		step("release: x"):                              `release is "x"; allowed: the hold`,
		step("hold: x, repeat: 2"):                      "hold needs a name",
		step("country: cn"):                             `country is "cn"; allowed: a code of ISO 3166`,
		step("asn: 0"):                                  "allowed: a whole number from 1 to 4294967295",
		step("store: away"):                             `store is "away"; allowed: down, up`,
		step("store: down, expect: passed"):             "store is no request",
		step("response: {status: 99}"):                  "allowed: a whole number from 100 to 599",
		step("response: {header: {A: b}}"):              "response has no status",
		step("hold: x, response: {status: 200}"):        "give the response to its release",
		step("header: {A: {b: c}}"):                     "header.A must be one value",
		step("expect: {reason: bored}"):                 `reason is "bored"; allowed:`,
		step("expect: {retry_after: soon}"):             `retry_after is "soon"`,
		step("path: ''"):                                "path must be one value",
		"rules: r\n# " + strings.Repeat("x", 64<<20):    "the file has over",
		"rules: r\ntests: " + strings.Repeat("[", 1000): "not YAML",
	} {
		_, err := ruletest.Parse("a.yaml", []byte(text))
		if len(text) > 1000 {
			text = text[:40]
		}
		var list *rules.Error
		if !errors.As(err, &list) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func step(fields string) string {
	return "rules: r\ntests:\n  - name: a\n    requests:\n      - {" + fields + "}\n"
}

// A request that is held for too long, and a context that ends, are errors and not failures.
func TestErrorsOfARun(t *testing.T) {
	if got := run(t, head+`
      - {path: /jobs, hold: a}
      - {path: /jobs, at: 36500d, expect: passed}`); !strings.Contains(got, `a.yaml:18: test "a": what is held was renewed`) {
		t.Error(got)
	}
	file, err := ruletest.Parse("a.yaml", []byte(head+"      - {path: /chat, expect: passed}\n"))
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Load("a.yaml", file.Inline())
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := file.Run(ended, set, &file.Tests[0], nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head + "      - {path: /chat, at: 1s, expect: {passed: 1}}\n"))
	f.Add([]byte(step("hold: a")))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := ruletest.Parse("a.yaml", text)
		var list *rules.Error
		if err != nil && !errors.As(err, &list) {
			t.Errorf("%v", err)
		}
		if err == nil && len(file.Tests) == 0 {
			t.Error("no tests, and no mistake")
		}
	})
}

// A failure says why, and tests see what rules see in production.
func TestFailuresAreExplained(t *testing.T) {
	const text = `server: {trusted_proxies: [10.0.0.0/8]}
rules:
  - {name: tree, match: {descriptor_keys: [wild]}, key: [descriptor.wild], limit: fixed_window 2/1h}
  - {name: login, match: {method: POST, path: /login}, key: [client.ip], limit: fixed_window 5/1m, ban: {after: 2 refusals within 1h, for: 10m}}
  - {name: watch, match: {path: /login}, key: [client.ip], limit: fixed_window 1/1h, mode: shadow}
  - {name: never, match: {host: [a.example], path: /b}, limit: 1/1s}
  - {name: mail, match: {path: /mail}, limit: fixed_window 9/1h, candidate: {limit: fixed_window 1/1h}}
tests:
  - name: a
    requests:
`
	for steps, want := range map[string]string{
		"      - {descriptor: {wild: foo}, repeat: 3, expect: {passed: 2}}":                                  "",
		"      - {method: GET, path: /login, repeat: 6, expect: {passed: 5}}":                                "login does not match: method is GET, not POST",
		"      - {method: POST, path: /login, repeat: 9, every: 1s, expect: {passed: 9}}":                    "decided: rule login: banned until 10m",
		"      - {path: /login, expect: passed}\n      - {path: /login, expect: {shadow: {watch: refused}}}": "",
		"      - {path: /login, expect: {shadow: {watch: refused}}}":                                         "shadow.watch  refused",
		"      - {path: /mail}\n      - {path: /mail, expect: {shadow: {mail: refused}}}":                    "",
		"      - {path: /mail, expect: {shadow: {mail: refused}}}":                                           "shadow.mail  refused",
		"      - {path: /, expect: {rule: logon}}":                                                           `a.yaml:11:9: expect has the rule "logon"`,
		`      - {method: POST, path: /login, client: 10.0.0.1, header: {X-Forwarded-For: 192.0.2.1}, repeat: 5}
      - {method: POST, path: /login, client: 10.0.0.1, header: {X-Forwarded-For: 192.0.2.2}, expect: passed}
      - {method: POST, path: /login, client: 192.0.2.1, expect: refused}
      - {method: POST, path: /login, client: 198.51.100.1, header: {X-Forwarded-For: 192.0.2.1}, expect: passed}`: "",
	} {
		if got := run(t, text+steps); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s\nsays %q, want %q", steps, got, want)
		}
	}
}

func TestCoverageNamesWhatNoTestMeets(t *testing.T) {
	file, err := ruletest.Parse("a.yaml", []byte(`rules:
  - {name: hit, match: {path: /a}, limit: fixed_window 1/1h}
  - {name: loose, match: {path: /a}, limit: fixed_window 9/1h}
  - {name: missed, match: {method: POST, path: /b}, limit: 1/1s}
tests:
  - {name: a, requests: [{path: /a, repeat: 2, expect: {passed: 1}}, {path: /b}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	if file.Tested, err = rules.Parse("a.yaml", file.Inline()); err != nil {
		t.Fatal(err)
	}
	set, err := rules.Compile(file.Tested)
	if err != nil {
		t.Fatal(err)
	}
	file.Cover = true
	if _, err := file.Run(t.Context(), set, &file.Tests[0], nil); err != nil {
		t.Fatal(err)
	}
	want := "rule loose: no test is refused by it\nrule missed: no test matches it; no request has method = POST"
	if got := strings.Join(file.Untested(), "\n"); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
}
