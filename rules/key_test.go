package rules_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/rules"
)

func ruleOf(t testing.TB, spec rules.Spec, opts ...rules.Option) *rules.Rule {
	t.Helper()
	spec.Name, spec.Limit = "r", []string{"1/1s"}
	set, err := rules.Compile(&rules.File{Name: "f", Rules: []rules.Spec{spec}}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return set.Rules()[0]
}

func TestKeys(t *testing.T) {
	request := &rules.Request{Method: "GET", Host: "Example.COM", Path: "/users/7/", Route: "/users/{id}", User: "ann", Service: "mail",
		Client: netip.MustParseAddr("203.0.113.7"),
		Attributes: attributes{"header X-User": " Bob\u0130 ", "query phone": "+86", "cookie sid": "c", "descriptor tenant": "t",
			"header Blank": "  ", "header Wide": "\u3000\uff22ob", "header Mark": "\u0338x", "header Grow": "\u023a", "header Space": "\u00a8", "header Bytes": "\xff\xfeA"}}
	for key, want := range map[string]string{
		"":                              "all",
		"client.ip":                     "client.ip=11:203.0.113.7",
		"client.ip v4/24":               "client.ip=14:203.0.113.0/24",
		"client.ip v6/128":              "client.ip=11:203.0.113.7",
		"header.x-user":                 "header.X-User=7: Bob\u0130 ",
		"header.X-User trim":            "header.X-User=5:Bob\u0130",
		"header.X-User lower trim":      "header.X-User=4:bobi",
		"header.Bytes lower":            "header.Bytes=3:\xff\xfea",
		"header.Wide nfkc":              "header.Wide=4: Bob",
		"header.Wide lower nfkc trim":   "header.Wide=3:bob",
		"header.Bytes nfkc":             "header.Bytes=3:\xff\xfeA",
		"header.Mark nfkc":              "header.Mark=3:\u0338x",
		"header.Grow lower":             "header.Grow=3:\u2c65",
		"header.Space trim nfkc":        "header.Space=3: \u0308",
		"host trim":                     "host=11:example.com",
		"header.Blank trim":             "header.Blank=-",
		"header.None":                   "header.None=-",
		"query.phone":                   "query.phone=3:+86",
		"cookie.sid":                    "cookie.sid=1:c",
		"path.id":                       "path.id=1:7",
		"path.odd":                      "path.odd=-",
		"path.more":                     "path.more=-",
		"descriptor.tenant":             "descriptor.tenant=1:t",
		"constant.GLOBAL":               "constant.GLOBAL=6:GLOBAL",
		"method, route, host":           "method=3:GET route=11:/users/{id} host=11:example.com",
		"user, header.None, service":    "user=3:ann header.None=- service=4:mail",
		"query.phone lower, cookie.sid": "query.phone=3:+86 cookie.sid=1:c",
	} {
		spec := rules.Spec{Match: rules.Match{Path: "/users/{id}/{more}/{odd}"}}
		if key != "" {
			spec.Key = strings.Split(key, ", ")
		}
		got, ok := ruleOf(t, spec).AppendKey([]byte("before "), request)
		if string(got) != "before "+want || !ok {
			t.Errorf("%q: got %q, %v; want %q", key, got, ok, want)
		}
	}
}

func TestAddressesAreOneEach(t *testing.T) {
	rule := ruleOf(t, rules.Spec{Key: []string{"client.ip"}})
	for address, want := range map[string]string{
		"::ffff:203.0.113.7":       "client.ip=11:203.0.113.7",
		"2001:db8:1:2:3::4":        "client.ip=17:2001:db8:1:2::/64",
		"2001:db8:1:2:ffff::":      "client.ip=17:2001:db8:1:2::/64",
		"fe80::1%eth0":             "client.ip=9:fe80::/64",
		"::ffff:203.0.113.8%zone1": "client.ip=11:203.0.113.8",
	} {
		got, ok := rule.AppendKey(nil, &rules.Request{Client: netip.MustParseAddr(address)})
		if string(got) != want || !ok {
			t.Errorf("%s: got %s, %v; want %s", address, got, ok, want)
		}
	}
	whole := ruleOf(t, rules.Spec{Key: []string{"client.ip v6/128"}})
	got, _ := whole.AppendKey(nil, &rules.Request{Client: netip.MustParseAddr("fe80::1%eth0")})
	if want := "client.ip=7:fe80::1"; string(got) != want {
		t.Errorf("with a zone: got %s, want %s", got, want)
	}
}

// TestOnePathHasOneKey: an escape that need not be there is no second identity.
func TestOnePathHasOneKey(t *testing.T) {
	rule := ruleOf(t, rules.Spec{Match: rules.Match{Path: "/users/{id}"}, Key: []string{"path.id lower"}})
	for path, want := range map[string]string{"/users/a:b": "a:b", "/users/A%3ab": "a:b", "/users/%61%3Ab": "a:b", "/users/a%253Ab": "a%3ab",
		"/users/%C3%A9": "\u00e9", "/users/a%2Fb": "a/b", "/users/%": "%", "/users/%4": "%4", "/users/%zz": "%zz"} {
		got, _ := rule.AppendKey(nil, &rules.Request{Path: path})
		if string(got) != fmt.Sprintf("path.id=%d:%s", len(want), want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestMissingKeys(t *testing.T) {
	for how, want := range map[rules.OnMissing]string{"": "x client.ip=- user=3:ann", rules.Anonymous: "x client.ip=- user=3:ann", rules.Skip: "x ", rules.Deny: "x "} {
		rule := ruleOf(t, rules.Spec{Key: []string{"client.ip", "user"}, OnMissing: how})
		got, ok := rule.AppendKey([]byte("x "), &rules.Request{User: "ann"})
		if string(got) != want || ok != (len(want) > 2) {
			t.Errorf("%q: got %q, %v", how, got, ok)
		}
	}
}

func TestLongKeysAreHashed(t *testing.T) {
	for _, secret := range []string{"", "secret", strings.Repeat("k", 100)} {
		rule := ruleOf(t, rules.Spec{Key: []string{"user"}}, rules.WithHashKey([]byte(secret)))
		short, _ := rule.AppendKey(nil, &rules.Request{User: strings.Repeat("u", 247)})
		if want := "user=247:" + strings.Repeat("u", 247); string(short) != want {
			t.Errorf("256 bytes became %q", short)
		}
		long, _ := rule.AppendKey([]byte("before "), &rules.Request{User: strings.Repeat("u", 248)})
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte("user=248:" + strings.Repeat("u", 248)))
		if want := "before hmac-sha256:" + hex.EncodeToString(mac.Sum(nil)); string(long) != want {
			t.Errorf("got %s, want %s", long, want)
		}
		hashed := strings.TrimPrefix(string(long), "before ")
		if !rule.IsKey(hashed) || rule.IsKey(hashed[:len(hashed)-2]) || rule.IsKey(hashed[:len(hashed)-2]+"xx") {
			t.Errorf("%s or a key that is no hash is misread", hashed)
		}
	}
}

// TestNoTwoIdentitiesShareAKey draws values out of what keys are made of, so that a
// separator that can be forged would be.
func TestNoTwoIdentitiesShareAKey(t *testing.T) {
	components := [][]string{{"user", "header.A"}, {"user", "header.A", "query.b"}, {"header.A", "user"}, {"user"}, {"query.b", "constant.1"}, {"cookie.b"}}
	var list []*rules.Rule
	for _, key := range components {
		list = append(list, ruleOf(t, rules.Spec{Key: key}))
	}
	value := rapid.OneOf(
		rapid.StringMatching(`([:=\- 12a]|user=|header.A=1:| |query.b=-){0,6}`),
		rapid.Map(rapid.StringN(0, 8, 8), func(s string) string { return strings.Repeat(s, 40) }),
	)
	identity := func(key []string, r *rules.Request) string {
		values := map[string]string{"user": r.User, "header.A": r.Attributes.Header("A"), "query.b": r.Attributes.Query("b"),
			"cookie.b": r.Attributes.Cookie("b"), "constant.1": "1"}
		text := ""
		for _, c := range key {
			text += c + "\x00" + hex.EncodeToString([]byte(values[c])) + "\x00"
		}
		return text
	}
	rapid.Check(t, func(t *rapid.T) {
		owner := map[string]string{}
		for range 6 {
			r := &rules.Request{User: value.Draw(t, "user"), Attributes: attributes{"header A": value.Draw(t, "header"), "query b": value.Draw(t, "query"), "cookie b": value.Draw(t, "cookie")}}
			for i, rule := range list {
				key, ok := rule.AppendKey(nil, r)
				who := identity(components[i], r)
				if before, taken := owner[string(key)]; !ok || len(key) > bounds.PlainKey || taken && before != who {
					t.Fatalf("%q is the key of %q and %q", key, before, who)
				}
				owner[string(key)] = who
			}
		}
	})
}

// Rules have the same key only where each request has.
func TestSameKey(t *testing.T) {
	keys := []string{"[method]", "[client.ip]", "[client.ip v4/24]", "[client.ip v6/48]", "[header.X-User]",
		"[header.X-User lower]", "[header.X-Name]", "[client.ip, header.X-User]", "[header.X-User, client.ip]"}
	text := "rules:\n"
	for i, key := range keys {
		for j, missing := range []string{"skip", "deny", "anonymous"} {
			text += fmt.Sprintf("  - {name: r%d-%d, key: %s, on_missing: %s, limit: 1/1s}\n", i, j, key, missing)
		}
	}
	set, err := load(t, text)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range set.Rules() {
		for j, b := range set.Rules() {
			if want := i/3 == j/3 && (i%3 == 2) == (j%3 == 2); a.SameKey(b) != want {
				t.Errorf("%s and %s: %v", a.Name(), b.Name(), !want)
			}
		}
	}
}
