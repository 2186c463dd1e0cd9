package httplimit_test

import (
	"net/http"
	"testing"
)

// All spellings of a session cookie that frameworks accept give one key; if frameworks differ in the
// value, the request is refused.
func TestCookieSpellingsShareOneKey(t *testing.T) {
	const text = "  - {name: session, key: [cookie.sid], limit: sliding_log 1/1m}"
	for cookie, want := range map[string]int{
		"sid=victim": 429, "sid=  victim": 429, "sid=\tvictim\t": 429, "a=b; sid =victim ; c=d": 429, `sid="victim"`: 429, "sid=%76ictim": 429,
		`sid="%76ictim"`: 429, "sid=victim; sid=victim": 429, "sid=victim; sid=%76ictim": 429,
		"sid=junk; sid=victim": 400, "sid=; sid=victim": 400, "sid=victim; sid=": 400, `sid="\166ictim"`: 400, "sid=vic\xe9tim": 400,
		"sid=victim y=1": 400, "sid=victim,y=1": 400, "sid=x, sid=victim": 400, "a=b sid=victim": 400, `a="b" sid = victim`: 400,
		"a=b c": 200, "a=bsid=victim": 200,
		"sid=another": 200, "sid=%2576ictim": 200, "Sid=victim": 400, "x=1": 200,
	} {
		s := byRules(t, newClock().store(), text, nil)(hello)
		if first := ask(s, "GET", "/", header("Cookie", "sid=victim")); first.Code != 200 {
			t.Fatal(first.Code, first.Body)
		}
		if r := ask(s, "GET", "/", header("Cookie", cookie)); r.Code != want {
			t.Errorf("%q: %d %s, want %d", cookie, r.Code, r.Body, want)
		}
	}
}

func TestDuplicateValuesGiveNoKey(t *testing.T) {
	for text, requests := range map[string]map[string]int{
		"  - {name: a, key: [header.X-Api-Key], limit: 9/1m}":                                             {"header": 400, "same": 200, "query": 200},
		"  - {name: a, key: [query.phone], limit: 9/1m}":                                                  {"header": 200, "same": 200, "query": 400},
		"  - {name: a, key: [header.X-Api-Key first, query.phone first], limit: 9/1m}":                    {"header": 200, "same": 200, "query": 200},
		"  - {name: a, cost: {from: header.X-Api-Key, max: 5}, limit: 9/1m}":                              {"header": 400, "same": 200},
		"  - {name: a, allow: {header.X-Api-Key: x}, limit: 9/1m}":                                        {"header": 400, "same": 200},
		"  - {name: a, match: {path: /other}, key: [header.X-Api-Key], limit: 9/1m}":                      {"header": 200, "query": 200},
		"  - {name: a, key: [client.ip], candidate: {limit: 1/1m, key: [header.X-Api-Key]}, limit: 9/1m}": {"header": 400, "query": 200},
	} {
		s := byRules(t, newClock().store(), text, nil)(hello)
		for what, want := range requests {
			target, second := "/", "2"
			switch what {
			case "same":
				second = "1"
			case "query":
				target = "/?phone=1&phone=2"
			}
			add := func(r *http.Request) {
				if what != "query" {
					r.Header["X-Api-Key"] = []string{"1", second}
				}
			}
			if r := ask(s, "GET", target, add); r.Code != want {
				t.Errorf("%s, %s: %d %s, want %d", text, what, r.Code, r.Body, want)
			}
		}
	}
}

// TestSpellingsForAKindOfService: a service that is known to read names to the letter gets what another would misread.
func TestSpellingsForAKindOfService(t *testing.T) {
	for kind, want := range map[string]int{"": 400, "php": 400, "go": 200} {
		text := "  - {name: a, key: [query.user_id], limit: sliding_log 1/1m}"
		if kind != "" {
			text += "\nservice_kind: " + kind
		}
		s := byRules(t, newClock().store(), text, nil)(hello)
		if r := ask(s, "GET", "/?user_id=w&user.id=v", func(*http.Request) {}); r.Code != want {
			t.Errorf("%q: %d %s, want %d", kind, r.Code, r.Body, want)
		}
	}
}

// PHP and ASP.NET read other names as that of the parameter.
func TestParameterSpellingsGiveNoKey(t *testing.T) {
	const text = "  - {name: a, key: [query.user_id], limit: sliding_log 1/1m}"
	for query, want := range map[string]int{
		"user_id=v": 429, "user%5fid=v": 429, "user_id=v&user.id=v": 429, "user_id=w": 200, "other=v": 200, "user_ids=v": 200, "user-id=v": 200,
		"user_id=w&+user_id=v": 400, "user_id=w&%20user_id=v": 400, "user_id=w&user_id%00=v": 400, "user_id=w&user_id%00x=v": 400,
		"user_id=w&user.id=v": 400, "user_id=w&user+id=v": 400, "user_id=w&user[id=v": 400, "user_id[]=v": 400, "user_id[a]=v": 400,
		"user_id=w&User_Id=v": 400, "user.id=v": 400, "+user.id=v": 400, "user_id=v%00": 400,
	} {
		s := byRules(t, newClock().store(), text, nil)(hello)
		if first := ask(s, "GET", "/?user_id=v"); first.Code != 200 {
			t.Fatal(first.Code, first.Body)
		}
		if r := ask(s, "GET", "/?"+query); r.Code != want {
			t.Errorf("%q: %d %s, want %d", query, r.Code, r.Body, want)
		}
	}
}

// net/http keeps the blank of a folded line.
func TestBlanksRoundAHeaderAreNoPartOfAKey(t *testing.T) {
	s := byRules(t, newClock().store(), "  - {name: a, key: [header.X-Key], limit: sliding_log 1/1m}", nil)(hello)
	for _, c := range []struct {
		value string
		want  int
	}{{"v", 200}, {"v ", 429}, {"\tv", 429}, {"w", 200}} {
		if r := ask(s, "GET", "/", header("X-Key", c.value)); r.Code != c.want {
			t.Errorf("%q: %d, want %d", c.value, r.Code, c.want)
		}
	}
}
