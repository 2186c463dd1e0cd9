package rules_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// TestWarnings has one rule, or two, for each thing that may be right and makes no sense;
// want are the places and parts of what is said, one each.
func TestWarnings(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"a member by the key":      {"rules: [{name: a, key: [service, user], limit: fixed_window 9/1s, fair: {by: [user]}}]", []string{"1:78: each key has one member, which shares with nobody, as user is in key"}},
		"members beyond the key":   {"rules: [{name: a, key: [service], limit: fixed_window 9/1s, fair: {by: [service, user]}}]", nil},
		"one member":               {"rules: [{name: a, limit: fixed_window 9/1s, fair: {by: [user], max_keys: 1}}]", []string{"1:74: one member alone is told apart"}},
		"fewer members than named": {"rules: [{name: a, limit: fixed_window 9/1s, fair: {by: [user], max_keys: 2, weights: {a: 2, b: 3, c: 4}}}]", []string{"1:74: 2 members are told apart, and weights has 3"}},
		"fewer members than plans": {"rules: [{name: a, limit: fixed_window 9/1s, fair: {by: [user], max_keys: 2, weights: {a: 2, b: 3, c: 4}, weight_by: service}}]", nil},
		"a class by its header":    {"rules: [{name: a, limit: 100/1s, reserve: {classes: {a: 0%, b: 50%}, match: {a: {path: /a, header: {X-A: b}}}}}]", []string{"1:81: each client can choose its class, as it sends header.X-A itself"}},
		"the last class by it":     {"rules: [{name: a, limit: 100/1s, reserve: {classes: {a: 0%, b: 50%}, match: {a: {path: /a}, b: {header: {X-A: b}}}}}]", nil},
		"a class of its own":       {"rules: [{name: a, limit: 100/1s, reserve: {by: header.X-Class, classes: {a: 0%, b: 50%}}}]", []string{"1:48: each client can choose its class, as it sends header.X-Class itself"}},
		"a class without units":    {"rules: [{name: a, limit: 10/1s, cost: 6, reserve: {by: user, classes: {a: 0%, b: 50%}}}]", []string{"requests of class b are never granted: 50% of 10/1s is 5, and a request costs 6"}},
		"an encoded slash":         {"rules: [{name: a, limit: 1/1s, match: {path: /a%2fb}}]", []string{`1:46: segment "a%2fb" never occurs`}},
		"a denied client":          {"deny: {client.ip: 10.0.0.0/8}\nrules: [{name: a, limit: 1/1s, match: {client: [10.1.0.0/16, 10.0.0.1]}}]", []string{"2:39: the rule never applies: the file's"}},
		"a named client":           {"allow: {client.ip: 10.0.0.0/8}\ndeny: {client.ip: 11.0.0.0/8}\nrules: [{name: a, limit: 1/1s, match: {client: [10.1.0.0/16, 11.0.0.0/8]}}]", []string{"the rule never applies"}},
		"a header":                 {"allow: {header.X-Plan lower: [internal]}\nrules: [{name: a, limit: 1/1s, match: {header: {x-plan: Internal}}}]", []string{"the rule never applies"}},
		"a host":                   {"deny: {host: evil.example.com}\nrules: [{name: a, limit: 1/1s, match: {host: Evil.Example.com}}]", []string{"the rule never applies"}},
		"any method":               {"deny: {method: '*'}\nrules: [{name: a, limit: 1/1s, match: {method: GET}}]", []string{"the rule never applies"}},
		"its own allow":            {"rules: [{name: a, limit: 1/1s, match: {client: 10.0.0.1}, allow: {client.ip: 10.0.0.0/8}}]", []string{"its own allow names all"}},
		"not of all":               {"rules: [{name: a, limit: 1/1s, match: {path: /a/b, not: [{method: PUT}, {path: /a/**}]}}]", []string{"1:39: the rule never applies: its not names all"}},
		"any of nothing":           {"rules: [{name: a, limit: 1/1s, match: {method: POST, any: [{method: PUT}, {method: [DELETE], path: /x}]}}]", []string{"the rule never applies: no alternative of any"}},
		"allow in deny":            {"allow: {client.ip: [10.1.0.0/16, 12.0.0.0/8], user: [ann, bob]}\ndeny: {client.ip: 10.0.0.0/8, user: a*}\nrules: []", []string{`1:21: "10.1.0.0/16" has no effect`, `1:54: "ann" has no effect`}},
		"a rule's lists":           {"allow: {user: root}\ndeny: {user: x*}\nrules: [{name: a, limit: 1/1s, allow: {user: [xy, z]}, deny: {user: [root, y]}}]", []string{`"xy" has no effect`, `"root" has no effect`}},
		"a list's capitals":        {"deny: {user lower: [Ann, bob], host: Example.com}\nrules: []", []string{`"Ann" matches nothing: values are normalised first; did you mean "ann"?`, `"Example.com" matches nothing`}},
		"a list's blanks":          {"deny: {user trim: [' ann', ' a*', 'a *']}\nrules: []", []string{`" ann" matches nothing`, `" a*" matches nothing`}},
		"a candidate unasked":      {"rules: [{name: a, limit: 1/1s, mode: shadow, candidate: {limit: 2/1s}}]", []string{"the candidate is never used"}},
		"a ban in shadow":          {"rules: [{name: a, key: user, limit: 1/1s, mode: shadow, ban: {after: 5 refusals within 1m, for: 10m}}]", []string{"the rule never bans: it is in shadow"}},
		"a ban of everybody":       {"rules: [{name: a, limit: 1/1s, ban: {after: 5 refusals within 1m, for: 10m}}]", []string{"all requests are banned together"}},
		"a ban that shrinks":       {"rules: [{name: a, key: user, limit: 1/1s, ban: {after: 5 refusals within 1m, for: 10m, then: [1h, 30m]}}]", []string{"the ban of 30m0s is shorter than the one before it, of 1h0m0s"}},
		"a useless limit":          {"rules: [{name: a, limit: [10/1m, 100/1m]}]", []string{"1:34: 100/1m never decides: 10/1m always refuses first"}},
		"a useless first":          {"rules: [{name: a, limit: [100/1m, 50/50m]}]", []string{"1:27: 100/1m never decides"}},
		"equal limits":             {"rules: [{name: a, algorithm: sliding_log, limit: [5/1m, 5/60s]}]", []string{"1:57: sliding_log 5/1m never decides"}},
		"equal duplicates":         {"rules:\n- {name: a, limit: 5/1m, key: user, match: {path: /a, method: [GET, POST]}}\n- {name: b, limit: 5/1m, key: user, match: {path: /a, method: [POST, GET]}}", []string{"3:10: the rule never decides: rules[0] (a)"}},
		"a laxer duplicate":        {"rules:\n- {name: a, limit: [5/1m, 9/50m], key: user}\n- {name: b, limit: 4/1m, key: user}\n- {name: c, limit: 3/1h, key: user}", []string{"2:10: the rule changes nothing: rules[2]", "3:10: the rule changes nothing: rules[2] (c)"}},
		"a group's equals":         {"rules:\n- {name: a, limit: 5/1m, group: g, match: {user: [x, y]}}\n- {name: b, limit: 4/1m, group: g, match: {user: [y, x]}}", []string{"3:33: the rule never applies: rules[0] (a) of its group"}},
		"beside a group":           {"rules:\n- {name: a, limit: 5/1m, group: g, key: user}\n- {name: b, limit: 4/1m, key: user}", []string{"2:10: the rule changes nothing: rules[1] (b)"}},
		"an idle override":         {"rules: [{name: a, limit: 5/1m, key: user, overrides: [{key: ann, limit: 5/1m}]}]", []string{"1:61: the override changes nothing"}},
		"override capitals":        {"rules: [{name: a, limit: 5/1m, key: user lower, overrides: [{key: Ann, limit: 6/1m}, {key: B*, limit: 7/1m}]}]", []string{`1:67: the override never applies: no request has "Ann" here`, `no request has "B*" here`}},
		"override constants":       {"rules: [{name: a, limit: 5/1m, key: [user, constant.x], overrides: [{key: [ann, y], limit: 6/1m}]}]", []string{`always "x"`}},
		"buckets as quotas":        {"rules: [{name: a, limit: [1/1m, 5/1h, 10/1d]}]", []string{"1:33: 5/1h is a token bucket, which grants up to 9 in any 1 h", "up to 19 in any 24 h; for at most 10 write algorithm: sliding_log"}},
		"a stricter rule for more": {"rules:\n- {name: all, key: client.ip, limit: 5/1m}\n- {name: login, match: {path: /login}, key: client.ip, limit: 100/1m}", []string{"3:10: the rule never decides: rules[0] (all) counts its requests and others"}},
		"a stricter rule below":    {"rules:\n- {name: login, match: {path: /api/login, method: POST}, key: [client.ip, user], limit: sliding_log 9/1m}\n- {name: api, match: {path: /api/**, method: [GET, POST]}, key: user, limit: sliding_log 9/1m}", []string{"2:10: the rule changes nothing: rules[1] (api)"}},
		"equal and as wide":        {"rules:\n- {name: a, match: {path: /**}, key: user, limit: 5/1m}\n- {name: b, key: user, limit: 5/1m}", []string{"3:10: the rule never decides: rules[0] (a)"}},
		"a stricter rule always":   {"rules:\n- {name: all, key: client.ip, limit: 5/1m}\n- {name: night, key: client.ip, limit: 6/1m, schedule: {hours: 22:00-06:00}, allow: {user: root}}", []string{"3:10: the rule never decides: rules[0] (all)"}},
		"a service without routes": {"services: [{name: a, addresses: http://a}, {name: b, addresses: http://b}]\nroutes: [{name: r, service: a}]\nrules: []", []string{`1:51: no route is to service "b"`}},
		"services alone":           {"services: [{name: a, addresses: http://a}]\nrules: []", []string{`no route is to service "a"`}},
		"unknown plans":            {"rules:\n- {name: a, limit: 5/1m, key: user, match: {header: {X-Plan: free}}}\n- {name: b, limit: 9/1m, key: user, match: {header: {x-plan: [pro, team]}}}", []string{"2:44: rules name the values free, pro, team of header.X-Plan; a request with another value meets no rule"}},
		"unknown plans of a path":  {"rules:\n- {name: all, limit: 5/1m, key: user, match: {path: /b/**}}\n- {name: a, limit: 5/1m, group: g, key: user, match: {path: /a/**, descriptor: {plan: free}}}\n- {name: b, limit: 9/1m, group: g, key: user, match: {path: /a/**, descriptor: {plan: pro}}}", []string{"of descriptor.plan; a request"}},
		"a misspelt body":          {"response: {body: jsn}\nrules: [{name: a, limit: 1/1s, response: {body: Problem}}]", []string{"did you mean json?", "did you mean problem?"}},
		"an overlay of no rule":    {"rules: [{name: a, match: {service: edge, descriptor_keys: [a]}, limit: 5/1m}]\noverlay:\n- {domain: edge, mode: shadow}\n- {domain: web, mode: shadow}\n", []string{"f:4:3: overlay[1] has no effect: no rule has this domain and descriptor"}},
	} {
		_, warnings, err := rules.Lint("f", []byte(test.text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for i := range warnings {
			if aboutSlashes(&warnings[i]) {
				continue
			}
			got = append(got, warnings[i].String())
		}
		ok := len(got) == len(test.want)
		for i := range got {
			ok = ok && strings.Contains(got[i], test.want[i])
		}
		if !ok {
			t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
	}
}

// TestNoWarnings: files like those of TestWarnings that are sensible.
func TestNoWarnings(t *testing.T) {
	for name, text := range map[string]string{
		"every field":             good,
		"other bursts":            "rules: [{name: a, limit: [10/1m burst 20, 100/30m]}]",
		"other algorithms":        "rules: [{name: a, limit: [5/1m, sliding_log 5/1m, fixed_window 5/1m, fixed_window 5/1m epoch]}]",
		"steps":                   "rules: [{name: a, limit: [5/1m step, 10/1m step]}]",
		"usual lists":             "rules: [{name: a, algorithm: sliding_log, limit: [1/1m, 5/1h, 10/1d]}]",
		"a laxer rule for more":   "rules: [{name: all, key: client.ip, limit: 100/1m}, {name: login, match: {path: /login}, key: client.ip, limit: 5/1m}]",
		"another part":            "rules: [{name: a, match: {path: /a/**}, limit: 5/1m}, {name: b, match: {path: /ab}, limit: 100/1m}]",
		"another key":             "rules: [{name: all, key: [client.ip, user], limit: 5/1m}, {name: login, match: {path: /login}, key: client.ip, limit: 100/1m}]",
		"a window of its own":     "rules: [{name: all, key: client.ip, limit: fixed_window 5/1m}, {name: login, match: {path: /login}, key: client.ip, limit: fixed_window 100/1m}]",
		"a bucket alone":          "rules: [{name: a, limit: 10/1d}, {name: b, limit: [5/1s, 100/1m]}]",
		"other keys":              "rules: [{name: a, limit: 5/1m, key: user}, {name: b, limit: 5/1m, key: client.ip}]",
		"other matches":           "rules: [{name: a, limit: 5/1m, match: {path: /a}}, {name: b, limit: 5/1m, match: {path: /b}}]",
		"other schedules":         "rules: [{name: a, limit: 5/1m, schedule: {days: mon}}, {name: b, limit: 6/1m}]",
		"other costs":             "rules: [{name: a, limit: 5/1m, cost: 2}, {name: b, limit: 5/1m}]",
		"a rule tried out":        "rules: [{name: a, limit: 5/1m}, {name: b, limit: 5/1m, mode: shadow}]",
		"other failures":          "rules: [{name: a, limit: 5/1m}, {name: b, limit: 6/1m, on_store_error: deny}]",
		"other lists":             "rules: [{name: a, limit: 5/1m, allow: {user: x}}, {name: b, limit: 6/1m}]",
		"overrides differ":        "rules: [{name: a, limit: 5/1m, key: user, overrides: [{key: x, limit: 9/1m}]}, {name: b, limit: 6/1m, key: user}]",
		"back to the default":     "rules: [{name: a, limit: 5/1m, key: user, overrides: [{key: 'a*', limit: 9/1m}, {key: ann, limit: 5/1m}]}]",
		"denied to all":           "rules: [{name: a, limit: 5/1m, match: {path: /admin}, deny: {client.ip: '*'}}]",
		"partly denied":           "deny: {client.ip: 10.1.0.0/16}\nrules: [{name: a, limit: 5/1m, match: {client: [10.0.0.0/8, 10.1.0.0/16]}}]",
		"an escape":               "rules: [{name: a, limit: 5/1m, match: {path: /users%3Alogin/%6c/100%25}}]",
		"a text":                  "rules: [{name: a, limit: 5/1m, response: {body: 'no'}}]",
		"any of something":        "rules: [{name: a, limit: 1/1s, match: {method: HEAD, any: [{method: GET}]}}, {name: b, limit: 1/1s, match: {user: ann, any: [{user: '*'}, {user: bob}]}}]",
		"not of a part":           "rules: [{name: a, limit: 1/1s, match: {path: /a/**, not: {path: /a/b}}}]",
		"a window at night":       "rules: [{name: a, limit: fixed_window 5/1m}, {name: b, limit: fixed_window 5/1m, schedule: {hours: 22:00-06:00}}]",
		"held for longer":         "rules: [{name: a, limit: concurrency 5 ttl 1m}, {name: b, limit: concurrency 6 ttl 1m, hold_until: done}]",
		"a ceiling":               "rules: [{name: a, limit: 5/1m}, {name: b, limit: 6/1m, local_ceiling: 1}]",
		"denied without a key":    "rules: [{name: a, key: client.ip, limit: 5/1m, on_missing: deny}, {name: b, key: [client.ip, user], limit: 6/1m, on_missing: deny}]",
		"a list of its own":       "rules: [{name: a, key: client.ip, limit: 5/1m}, {name: b, key: client.ip, limit: 6/1m, deny: {user: bob}}]",
		"in a group":              "rules: [{name: a, limit: 5/1m, group: g}, {name: b, limit: 6/1m}, {name: c, limit: 6/1m, group: g, match: {path: /x}}]",
		"tried in a group":        "rules: [{name: a, limit: 5/1m, group: g}, {name: b, limit: 6/1m, group: g, mode: shadow}]",
		"other headers":           "deny: {header.A: x}\nrules: [{name: a, limit: 5/1m, match: {header: {B: x}, query: {A: x}}}]",
		"one plan":                "rules: [{name: a, limit: 5/1m, key: user, match: {header: {X-Plan: free}}}]",
		"plans and the others":    "rules: [{name: a, limit: 5/1m, group: g, key: user, match: {header: {X-Plan: free}}}, {name: b, limit: 9/1m, group: g, key: user, match: {header: {X-Plan: pro}}}, {name: c, limit: 1/1m, group: g, key: client.ip}]",
		"plans, and any known":    "rules: [{name: a, limit: 5/1m, group: g, key: user, match: {query: {plan: free}}}, {name: b, limit: 9/1m, group: g, key: user, match: {query: {plan: pro}}}, {name: c, limit: 1/1m, group: g, key: user, match: {query: {plan: '*'}}}]",
		"values without a key":    "rules: [{name: a, limit: 5/1m, match: {descriptor: {generic_key: search}}}, {name: b, limit: 9/1m, match: {descriptor: {generic_key: pay}}}]",
		"other plans, other keys": "rules: [{name: a, limit: 5/1m, key: user, match: {header: {X-Plan: free}}}, {name: b, limit: 9/1m, key: client.ip, match: {header: {X-Plan: pro}}}]",
		"a prefix with blanks":    "deny: {user trim lower: ['ann m*', 'x *']}\nrules: []",
	} {
		set, warnings, err := rules.Lint("f", []byte(text))
		warnings = slices.DeleteFunc(warnings, func(p rules.Problem) bool { return aboutSlashes(&p) })
		if err != nil || set == nil || len(warnings) > 0 {
			t.Errorf("%s: %v %v", name, warnings, err)
		}
	}
	if _, _, err := rules.Lint("f", []byte("rules: [{}]")); err == nil {
		t.Error("a file with mistakes has no warnings, but an error")
	}
}

// TestUselessLimitsNeverDecide charges pairs of limits by chance: where Lint says of one
// that it never decides, a store agrees.
func TestUselessLimitsNeverDecide(t *testing.T) {
	warned := 0
	text := rapid.Custom(func(t *rapid.T) string {
		form := rapid.SampledFrom([]string{"%d/%ds", "%d/%ds burst 5", "%d/%ds overdraft 2", "%d/%ds step", "fixed_window %d/%ds", "sliding_log %d/%ds", "sliding_counter %d/%ds slices 2"}).Draw(t, "form")
		return fmt.Sprintf(form, rapid.IntRange(3, 6).Draw(t, "n"), rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "period"))
	})
	rapid.Check(t, func(t *rapid.T) {
		pair := []string{text.Draw(t, "a"), text.Draw(t, "b")}
		set, warnings, err := rules.Lint("f", []byte(fmt.Sprintf("rules: [{name: a, limit: [%s, %s]}]", pair[0], pair[1])))
		if err != nil || len(warnings) == 0 {
			return
		}
		warned++
		useless := 0
		if warnings[0].Field == "rules[0].limit[1]" {
			useless = 1
		}
		clock := weir.Instant(1e15)
		store := memstore.New(memstore.WithClock(func() weir.Instant { return clock }))
		defer store.Close()
		limits := set.Rules()[0].Limits()
		for range 30 {
			clock += weir.Instant(rapid.Int64Range(0, 1e6).Draw(t, "wait"))
			cost := rapid.Int64Range(1, 3).Draw(t, "cost")
			claims := []weir.Claim{{Key: "k", Limit: limits[0], Cost: cost}, {Key: "k", Limit: limits[1], Cost: cost}}
			decisions := make([]weir.Decision, 2)
			if _, err := store.Decide(t.Context(), claims, 1, decisions); err != nil {
				t.Fatal(err)
			}
			if decisions[useless].RetryAfter != 0 && decisions[1-useless].RetryAfter == 0 {
				t.Fatalf("%v refused, %v did not", limits[useless], limits[1-useless])
			}
		}
	})
	if warned < 2 && !testing.Short() { // -short draws a fifth
		t.Errorf("only %d pairs were warned of", warned)
	}
}

// aboutSlashes is told of one rule of nearly every file.
func aboutSlashes(p *rules.Problem) bool { return strings.Contains(p.Message, "path_form: strict") }

func TestLintWarnsOfPathsThatMatchLittle(t *testing.T) {
	for text, want := range map[string]string{
		"{name: a, limit: 1/1s, match: {path: /login}}":                                         "/login/ is not limited by this rule: if your service takes it for /login, write path_form: drop-trailing-slash",
		"{name: a, limit: 1/1s, match: {path: /api/}}":                                          "path /api/ is only that very path; write /api/** for all below it",
		"{name: a, limit: 1/1s, match: {path: /api/**}}":                                        "",
		"{name: a, limit: 1/1s, match: {path: /}}":                                              "",
		"{name: a, limit: 1/1s, match: {path: /a}}, {name: b, limit: 1/1s, match: {path: /b}}":  "(likewise for 1 more)",
		"{name: a, limit: 1/1s, match: {path: /a}}, {name: b, limit: 1/1s, match: {path: /a/}}": "",
	} {
		for form, told := range map[string]bool{"": true, "server: {path_form: strict}\n": strings.Contains(want, "/api/"), "server: {path_form: drop-trailing-slash}\n": false} {
			_, warnings, err := rules.Lint("f", []byte(form+"rules: ["+text+"]"))
			if err != nil {
				t.Fatal(err)
			}
			if !told && len(warnings) > 0 || told && want != "" && (len(warnings) != 1 || !strings.Contains(warnings[0].Message, want)) {
				t.Errorf("%s%s: %v", form, text, warnings)
			}
		}
	}
}
