package review_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/internal/review"
)

// A sent is a request that a test sends. Its attributes are by kind and name, such as "header X-Plan".
type sent struct {
	method, path, user, route, client string
	attributes                        map[string]string
}

func (s *sent) Header(name string) string     { return s.attributes["header "+name] }
func (s *sent) Query(name string) string      { return s.attributes["query "+name] }
func (s *sent) Cookie(name string) string     { return s.attributes["cookie "+name] }
func (s *sent) Descriptor(name string) string { return s.attributes["descriptor "+name] }

// request is the request in the form in which front ends match it.
func (s *sent) request(t *testing.T, form pathform.Form) *rules.Request {
	t.Helper()
	r := &rules.Request{Method: "GET", Path: "/", User: s.user, Route: s.route, Client: netip.MustParseAddr("192.0.2.1"), Attributes: s}
	if s.method != "" {
		r.Method = s.method
	}
	if s.client != "" {
		r.Client = netip.MustParseAddr(s.client)
	}
	if s.path != "" {
		var err error
		if r.Path, err = form.Path(s.path); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// requests sends ten of what a function makes, and returns how many pass.
func requests(t *testing.T, set *rules.Set, make func(i int) sent) (passed int) {
	t.Helper()
	server := serve(t, set)
	for i := range 10 {
		one := make(i)
		if server.passes(one.request(t, set.PathForm())) {
			passed++
		}
	}
	return passed
}

func with(name, value string) map[string]string { return map[string]string{name: value} }

// TestAvoidableRules has for each note rules that get it, an honest client that the rule refuses, a client that avoids
// it by what the note says, and rules without the note, by which both are refused.
func TestAvoidableRules(t *testing.T) {
	perIP := ", {name: ip, key: client.ip, limit: 3/1h}"
	for name, test := range map[string]struct {
		rules, note, mended string
		honest              sent
		avoiding            func(i int) sent
	}{
		"a header as key": {
			rules: "{name: a, key: [client.ip, header.X-Key], limit: 3/1h}", mended: "{name: a, key: [client.ip, header.X-Key], limit: 3/1h}" + perIP,
			note: "rule a: a client that changes header.X-Key with each request has a new key each time", honest: sent{attributes: with("header X-Key", "k")},
			avoiding: func(i int) sent { return sent{attributes: with("header X-Key", fmt.Sprint(i))} },
		},
		"a cookie as key": {
			rules: "{name: a, key: cookie.sid, limit: 3/1h}", mended: "{name: a, key: cookie.sid, limit: 3/1h}" + perIP,
			note: "changes cookie.sid", honest: sent{},
			avoiding: func(i int) sent { return sent{attributes: with("cookie sid", fmt.Sprint(i))} },
		},
		"a phone number": {
			rules: "{name: sms, key: query.phone, match: {path: /sms/**}, limit: 3/1h}", mended: "{name: sms, key: query.phone, match: {path: /sms/**}, limit: 3/1h}" + perIP,
			note: "changes query.phone", honest: sent{path: "/sms/1"},
			avoiding: func(i int) sent { return sent{path: "/sms/1", attributes: with("query phone", fmt.Sprint(i))} },
		},
		"a segment of the path": {
			rules: "{name: a, key: path.id, match: {path: '/x/{id}'}, limit: 3/1h}", mended: "{name: a, key: path.id, match: {path: '/x/{id}'}, limit: 3/1h}" + perIP,
			note: "changes path.id", honest: sent{path: "/x/1"},
			avoiding: func(i int) sent { return sent{path: fmt.Sprint("/x/", i)} },
		},
		"an invented method": {
			rules: "{name: a, key: method, limit: 3/1h}", mended: "{name: a, key: method, match: {method: [GET, POST]}, limit: 3/1h}, {name: ip, key: client.ip, limit: 3/1h}",
			note: "changes method", honest: sent{},
			avoiding: func(i int) sent { return sent{method: fmt.Sprint("M", i)} },
		},
		"no header, which is skipped": {
			rules: "{name: a, key: user, on_missing: skip, limit: 3/1h}", mended: "{name: a, key: user, on_missing: anonymous, limit: 3/1h}",
			note: "a request without user is not counted, because of on_missing: skip", honest: sent{user: "ann"},
			avoiding: func(int) sent { return sent{} },
		},
		"addresses of a /64": {
			rules: "{name: a, key: client.ip v6/128, limit: 3/1h}", mended: "{name: a, key: client.ip, limit: 3/1h}",
			note: "a client with IPv6 has at least a /64, which is 2^64 keys", honest: sent{client: "2001:db8::1"},
			avoiding: func(i int) sent { return sent{client: fmt.Sprintf("2001:db8::%x", i+1)} },
		},
		"another header": {
			rules: "{name: a, key: client.ip, match: {header: {X-Plan: free}}, limit: 3/1h}", mended: "{name: a, key: client.ip, match: {header: {X-Plan: free}}, limit: 3/1h}" + perIP,
			note: "leaves out or changes header X-Plan", honest: sent{attributes: with("header X-Plan", "free")},
			avoiding: func(int) sent { return sent{} },
		},
		"another case of the user agent": {
			rules:  `{name: a, key: client.ip, match: {regex: {header: {User-Agent: ".*curl.*"}}}, limit: 3/1h}`,
			mended: `{name: a, key: client.ip, match: {regex: {header: {User-Agent: "(?i).*curl.*"}}}, limit: 3/1h}` + perIP,
			note:   "leaves out or changes header User-Agent", honest: sent{attributes: with("header User-Agent", "curl/8")},
			avoiding: func(int) sent { return sent{attributes: with("header User-Agent", "CURL/8")} },
		},
		"a parameter": {
			rules: "{name: a, key: client.ip, match: {query: {format: '*'}}, limit: 3/1h}", mended: "{name: a, key: client.ip, match: {query: {format: '*'}}, limit: 3/1h}" + perIP,
			note: "leaves out or changes query format", honest: sent{attributes: with("query format", "csv")},
			avoiding: func(int) sent { return sent{} },
		},
		"a header below not": {
			rules: `{name: a, key: client.ip, match: {not: {header: {X-Internal: "1"}}}, limit: 3/1h}`, mended: `{name: a, key: client.ip, match: {not: {header: {X-Internal: "1"}}}, limit: 3/1h}` + perIP,
			note: "sends the headers or parameters below not", honest: sent{},
			avoiding: func(int) sent { return sent{attributes: with("header X-Internal", "1")} },
		},
		"a key that only a shadow rule is behind": {
			rules:  "{name: a, key: header.X-Key, limit: 3/1h}, {name: ip, key: client.ip, mode: shadow, limit: 3/1h}",
			mended: "{name: a, key: header.X-Key, limit: 3/1h}" + perIP,
			note:   "changes header.X-Key", honest: sent{},
			avoiding: func(i int) sent { return sent{attributes: with("header X-Key", fmt.Sprint(i))} },
		},
		"a key that only a rule for another path is behind": {
			rules:  "{name: a, key: header.X-Key, limit: 3/1h}, {name: ip, key: client.ip, match: {path: /b}, limit: 3/1h}",
			mended: "{name: a, key: header.X-Key, limit: 3/1h}" + perIP,
			note:   "changes header.X-Key", honest: sent{},
			avoiding: func(i int) sent { return sent{attributes: with("header X-Key", fmt.Sprint(i))} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			file, set := compiled(t, "server: {path_form: strict}\nrules: ["+test.rules+"]")
			if got := notes(review.Of("weir.yaml", file, set)); !strings.Contains(got, test.note) {
				t.Errorf("the notes are %q, not %q", got, test.note)
			}
			honest := func(int) sent { return test.honest }
			if passed := requests(t, set, honest); passed != 3 {
				t.Errorf("%d honest requests pass", passed)
			}
			if passed := requests(t, set, test.avoiding); passed != 10 {
				t.Errorf("%d requests that avoid the rule pass", passed)
			}
			file, set = compiled(t, "server: {path_form: strict}\nrules: ["+test.mended+"]")
			if got := notes(review.Of("weir.yaml", file, set)); got != "" {
				t.Errorf("the mended rules have notes: %s", got)
			}
			if passed := requests(t, set, test.avoiding); passed != 3 {
				t.Errorf("by the mended rules %d pass", passed)
			}
		})
	}
}

// TestMistakesThatHurtMost has for each note rules that get it, and the same rules without the mistake.
func TestMistakesThatHurtMost(t *testing.T) {
	const ip = "\nrules: [{name: ip, key: client.ip, limit: 3/1h}"
	for note, files := range map[string][2]string{
		"rule : client_header is X-Real-IP, and trusted_proxies is empty": {"server: {path_form: strict, client_header: X-Real-IP}" + ip + "]",
			"server: {path_form: strict, client_header: X-Real-IP, trusted_proxies: [10.0.0.0/8]}" + ip + "]"},
		"rule : deny has client.ip: 0.0.0.0/0": {"deny: {client.ip: [0.0.0.0/0]}" + ip + "]",
			"deny: {client.ip: [192.0.2.0/24]}" + ip + "]"},
		"rule : allow has user: *": {"allow: {user: ['*']}" + ip + "]", "allow: {user: [ann]}" + ip + "]"},
		"rule a: allow has client.ip: ::/0": {"rules: [{name: a, key: client.ip, allow: {client.ip: ['::/0']}, limit: 3/1h}]",
			"rules: [{name: a, key: client.ip, allow: {client.ip: ['2001:db8::/32']}, limit: 3/1h}]"},
		"rule a: a client has the limit once for each of its endpoints, up to 1,001 that exist": {
			"rules: [{name: a, key: [client.ip, endpoint], limit: 3/1h}]",
			"rules: [{name: a, key: [client.ip, endpoint], limit: 3/1h}, {name: ip, key: client.ip, limit: 9/1h}]"},
		"rule b: a client that changes host with each request": {
			"rules: [{name: a, key: [client.ip, endpoint], limit: 3/1h}, {name: b, key: [client.ip, host], limit: 3/1h}]",
			"rules: [{name: b, key: [client.ip, host], limit: 3/1h}, {name: ip, key: client.ip, limit: 9/1h}]"},
		"rule a: a client that sends header X-A is of class a, which is refused later than others": {
			"rules: [{name: a, limit: 30/1h, reserve: {classes: {a: 0%, b: 50%}, match: {a: {path: /a, header: {X-A: b}}}}}]",
			"rules: [{name: a, limit: 30/1h, reserve: {classes: {a: 0%, b: 50%}, match: {a: {path: /a}, b: {query: {x: y}}}}}]"},
		"rule a: a client that sends many values as header.X-Tenant counts as many members, with the share of each": {
			"rules: [{name: a, limit: fixed_window 30/1h, fair: {by: [user, header.X-Tenant]}}]",
			"rules: [{name: a, limit: fixed_window 30/1h, fair: {by: [user]}}]"},
		"rule a: a client that sends a as header.X-Class is of class a, which is refused last": {
			"rules: [{name: a, limit: 30/1h, reserve: {by: header.X-Class, classes: {a: 0%, b: 50%}}}]",
			"rules: [{name: a, limit: 30/1h, reserve: {by: user, classes: {a: 0%, b: 50%}}}]"},
		"rule a: its ban is of header.X-Key": {
			"rules: [{name: a, key: header.X-Key, limit: 3/1h, ban: {after: 3 refusals within 1h, for: 1d}}, {name: ip, key: client.ip, limit: 9/1h}]",
			"rules: [{name: a, key: [client.ip, header.X-Key], limit: 3/1h, ban: {after: 3 refusals within 1h, for: 1d}}, {name: ip, key: client.ip, limit: 9/1h}]"},
	} {
		file, set := compiled(t, strictly(files[0]))
		if got := notes(review.Of("weir.yaml", file, set)); !strings.Contains(got, note) {
			t.Errorf("the notes are %q, not %q", got, note)
		}
		if file, set = compiled(t, strictly(files[1])); notes(review.Of("weir.yaml", file, set)) != "" {
			t.Errorf("without the mistake the notes are %q", notes(review.Of("weir.yaml", file, set)))
		}
	}
}

func notes(r *review.Report) string {
	var list []string
	for _, n := range r.Notes {
		list = append(list, "rule "+n.Rule+": "+n.Message)
	}
	return strings.Join(list, "\n")
}

// TestNotesAreTrue makes rules by chance. Of a rule of which a note says that no other rule counts all of its requests
// by another key, none does: each other rule is compared by all requests of a small world.
func TestNotesAreTrue(t *testing.T) {
	var world []*rules.Request
	for _, method := range []string{"GET", "HEAD", "POST"} {
		for _, path := range []string{"/", "/a", "/a/", "/a/x", "/a/y", "/a/y/z", "/A/x", "/b"} {
			for _, plan := range []string{"", "free", "paid"} {
				s := &sent{attributes: map[string]string{"header X-Plan": plan, "header X-Key": "k"}}
				world = append(world, &rules.Request{Method: method, Path: path, Client: netip.MustParseAddr("192.0.2.1"), Attributes: s})
			}
		}
	}
	noted := 0
	for seed := range uint64(1500) {
		random := rand.New(rand.NewPCG(seed, 13))
		pick := func(values ...string) string { return values[random.IntN(len(values))] }
		text := "server: {path_form: " + pick("strict", "strict", "ignore-case", "drop-trailing-slash") + "}\nrules:\n"
		for i := range 3 {
			text += fmt.Sprintf("- {name: r%d, limit: 1/1s, key: [%s], match: {path: %s, method: [%s], %s}}\n", i,
				pick("header.X-Key", "header.X-Key", "client.ip"), pick("/**", "/a", "/a/**", "/a/*", "/A/x", "/a/"),
				pick("GET, POST", "GET, POST", "HEAD", "GET", "POST, HEAD, GET"),
				pick("", "", "header: {X-Plan: free}", "header: {X-Plan: '*'}", "not: {path: /b}", "any: [{path: /a/x}, {header: {X-Plan: free}}]"))
		}
		file, set := compiled(t, text)
		// The forms of paths are those of front ends.
		matches := func(rule *rules.Rule, r *rules.Request) bool {
			formed := *r
			formed.Path, _ = set.PathForm().Path(r.Path)
			return slices.Contains(set.Match(&formed, nil), rule)
		}
		for _, n := range review.Of("weir.yaml", file, set).Notes {
			if !strings.Contains(n.Message, "has a new key each time") {
				continue
			}
			noted++
			i := slices.IndexFunc(set.Rules(), func(r *rules.Rule) bool { return r.Name() == n.Rule })
			for _, other := range set.Rules() {
				if other.Components()[0] != "client.ip" {
					continue
				}
				if !slices.ContainsFunc(world, func(r *rules.Request) bool { return matches(set.Rules()[i], r) && !matches(other, r) }) {
					t.Fatalf("%s\n%s counts all that %s counts, of which is said: %s", text, other.Name(), n.Rule, n.Message)
				}
			}
		}
	}
	if noted < 200 {
		t.Errorf("only %d notes", noted)
	}
}

// TestSpellingsOfAPath decides the spellings of a path: those that escape a rule have a note or a warning, and the
// others are counted.
func TestSpellingsOfAPath(t *testing.T) {
	rule := "{name: a, key: client.ip, match: {path: /login}, limit: 3/1h}"
	for spelling, form := range map[string]string{"/login": "", "//login": "", "/./login": "", "/x/../login": "", "/%6cogin": "", "/login;x=1": "",
		"/LOGIN": "ignore-case", "/login/": "drop-trailing-slash"} {
		_, set := compiled(t, "rules: ["+rule+"]")
		passed := requests(t, set, func(int) sent { return sent{path: spelling} })
		if counted := passed == 3; counted != (form == "") {
			t.Errorf("%s: %d pass", spelling, passed)
		}
		if form == "" {
			continue
		}
		file, set := compiled(t, "server: {path_form: "+form+"}\nrules: ["+rule+"]")
		if passed := requests(t, set, func(int) sent { return sent{path: spelling} }); passed != 3 {
			t.Errorf("%s, with %s: %d pass", spelling, form, passed)
		}
		if got := notes(review.Of("weir.yaml", file, set)); strings.Contains(got, "/LOGIN is not counted") != (form != "ignore-case") {
			t.Errorf("with %s: %s", form, got)
		}
	}
}

func TestOtherNotes(t *testing.T) {
	for text, want := range map[string]string{
		"server: {trusted_proxies: [10.0.0.0/8, 128.0.0.0/1]}\nrules: []":                                                                   "trusted_proxies has 128.0.0.0/1",
		"server: {trusted_proxies: [10.0.0.0/8, 'fc00::/7', 203.0.113.0/24]}\nrules: []":                                                    "",
		"services: [{name: s, addresses: http://s}]\nroutes: [{name: r, service: s}]\nrules: [{name: a, match: {route: q}, limit: 1/1s}]":   "match.route is q, which is no route of the file",
		"services: [{name: s, addresses: http://s}]\nroutes: [{name: r, service: s}]\nrules: [{name: a, match: {service: z}, limit: 1/1s}]": "match.service is z, which is no service of the file",
		"services: [{name: s, addresses: http://s}]\nroutes: [{name: r, service: s}]\nrules: [{name: a, match: {route: r}, limit: 1/1s}]":   "",
		"rules: [{name: a, match: {route: q}, limit: 1/1s}]":                                                                                "",
		"rules: [{name: a, key: header.A, limit: 1/1s}, {name: b, key: header.A, limit: 9/1m}]":                                             "(likewise for b)",
		// The condition is another rule's of the group.
		"rules: [{name: a, group: g, match: {header: {X: y}}, key: client.ip, limit: 9/1s}, {name: b, group: g, key: client.ip, limit: 9/1m}]": "",
		// Descriptors, users and routes are of the front end.
		"rules: [{name: a, key: descriptor.user, limit: 1/1s}, {name: b, key: [user, route], limit: 1/1s}]":    "",
		"rules: [{name: a, key: header.X, match: {header: {X: [p, q]}}, limit: 1/1s}, {name: b, limit: 1/1s}]": "",
		"rules: [{name: a, key: header.X, mode: shadow, limit: 1/1s}]":                                         "",
	} {
		if got := notes(reviewed(t, strictly(text))); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestNotesAboutAdaptiveLimits(t *testing.T) {
	const classes = "reserve: {by: user, classes: {a: 0%, b: 20%}, otherwise: b}"
	service := func(fields, concurrency string) string {
		return "services: [{name: s, addresses: http://s, " + fields + "concurrency: {" + concurrency + "}}]\n" +
			"routes: [{name: r, service: s}]\nrules: "
	}
	for text, want := range map[string]string{
		service("", "adaptive: gradient, "+classes) + "[]":                                                            "",
		service("", "adaptive: gradient") + "[]":                                                                      "refused alike",
		service("", "adaptive: gradient, min: 9, max: 9, "+classes) + "[]":                                            "does not follow",
		service("", "adaptive: gradient, max: 10001, "+classes) + "[]":                                                "forwards 10000 requests",
		service("", "adaptive: aimd, "+classes) + "[]":                                                                "there is no timeout",
		service("timeout: {header: 1s}, ", "adaptive: aimd, "+classes) + "[]":                                         "",
		service("timeout: {header: 1s, total: 9s}, ", "adaptive: gradient, queue: {for: 2s}, "+classes) + "[]":        "2s in the queue, and 1s",
		service("timeout: {total: 9s}, ", "adaptive: gradient, queue: {for: 2s}, "+classes) + "[]":                    "",
		service("", "adaptive: gradient, reserve: {by: header.X-C, classes: {a: 0%, b: 20%}, otherwise: b}") + "[]":   "sends a as header.X-C",
		service("", "adaptive: gradient, reserve: {classes: {a: 0%, b: 20%}, match: {a: {header: {X-C: a}}}}") + "[]": "sends header X-C is of class a",
		service("", "adaptive: gradient, reserve: {classes: {a: 0%, b: 20%}, match: {a: {path: /a}}}") + "[]":         "",
		service("", "adaptive: gradient, "+classes) + "[{name: h, limit: concurrency 5 ttl 1m}]":                      "rule h limits",
		service("", "adaptive: gradient, "+classes) + "[{name: h, match: {service: s}, limit: concurrency 5 ttl 1m}]": "rule h limits",
		service("", "adaptive: gradient, "+classes) + "[{name: h, key: client.ip, limit: concurrency 5 ttl 1m}]":      "",
		service("", "adaptive: gradient, "+classes) + "[{name: h, limit: 5/1m}]":                                      "",
	} {
		if got := notes(reviewed(t, strictly(text))); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// strictly adds the strict form of paths to rules.
func strictly(text string) string {
	if fields, ok := strings.CutPrefix(text, "server: {"); ok {
		return "server: {path_form: strict, " + strings.TrimPrefix(fields, "path_form: strict, ")
	}
	return "server: {path_form: strict}\n" + text
}
