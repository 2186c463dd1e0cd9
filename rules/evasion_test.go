package rules_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/rules"
)

// TestNoSpellingEvadesARule escapes what need not be, and puts in segments that go away, as
// a client does that wants the handler and not the limit. Front ends match the form of pathform.
func TestNoSpellingEvadesARule(t *testing.T) {
	const literal, id = "users:log in@1é", "a:b;c"
	set := compiled(t, `
rules:
  - {name: login, limit: 1/1s, match: {path: "/`+literal+`/{id}"}, key: path.id, deny: {path.id: mallory}}
`)
	spelled := func(t *rapid.T, text string) string {
		var b strings.Builder
		for i := range len(text) {
			switch rapid.IntRange(0, 3).Draw(t, "how") {
			case 0:
				fmt.Fprintf(&b, "%%%02x", text[i])
			case 1:
				fmt.Fprintf(&b, "%%%02X", text[i])
			default:
				if text[i] == ';' { // which would begin a parameter
					b.WriteString("%3B")
				} else {
					b.WriteByte(text[i])
				}
			}
		}
		return b.String() + rapid.SampledFrom([]string{"", "", ";", ";x=1;y"}).Draw(t, "parameter")
	}
	nothing := rapid.SampledFrom([]string{"/", "/", "//", "/./", "/x/../", "/%2e/", "/x/%2E%2e/", "/;/", "/;x=1//;/"})
	rapid.Check(t, func(t *rapid.T) {
		prefix, middle := nothing.Draw(t, "prefix"), nothing.Draw(t, "middle")
		for value, listed := range map[string]rules.Listing{id: rules.Unlisted, "mallory": rules.Denied} {
			raw := prefix + spelled(t, literal) + middle + spelled(t, value)
			path, err := pathform.Form{}.Path(raw)
			if err != nil {
				t.Fatal(raw, err)
			}
			r := &rules.Request{Path: path}
			found := set.Match(r, nil)
			if len(found) != 1 {
				t.Fatalf("%s is not matched as %s", raw, path)
			}
			key, _ := found[0].AppendKey(nil, r)
			if want := fmt.Sprintf("path.id=%d:%s", len(value), value); string(key) != want || found[0].Listed(r) != listed {
				t.Fatalf("%s has the key %s, and is %v", raw, key, found[0].Listed(r))
			}
		}
	})
}

// FuzzRequest reads what clients choose: nothing panics, keys stay short, and a cost is
// one that the file allows, or an error.
func FuzzRequest(f *testing.F) {
	f.Add("/v1/p%37/x", "203.0.113.7", "h7.example.com", "Bob", "12", "free")
	f.Add("/v1/%/%zz%4", "fe80::1%eth0", "a.b.example.COM", " \uff22o\xff\u0338", "-1", "")
	f.Add("*", "::ffff:10.0.0.1", ".", strings.Repeat("x", 2000), "99999999999999999999", "free")
	sets := []*rules.Set{compiled(f, everything), compiled(f, good), compiled(f, zoo)}
	f.Fuzz(func(t *testing.T, path, client, host, user, tokens, plan string) {
		address, _ := netip.ParseAddr(client)
		r := &rules.Request{Method: "POST", Path: path, Host: host, User: user, Route: path, Client: address,
			Attributes: attributes{"header X-User": user, "header X-Tokens": tokens, "header X-Plan": plan, "query debug": plan}}
		for _, set := range sets {
			set.Listed(r)
			set.Match(r, nil)
			for _, rule := range set.Rules() {
				rule.Listed(r)
				key, ok := rule.AppendKey(nil, r)
				if len(key) > bounds.PlainKey || ok && len(rule.LimitsFor(r, key)) == 0 {
					t.Fatalf("%s: the key %q, %d limits", rule.Name(), key, len(rule.LimitsFor(r, key)))
				}
				if cost, _, err := rule.CostOf(r); err == nil && (cost < 1 || cost > 50) {
					t.Fatalf("%s: a cost of %d", rule.Name(), cost)
				}
			}
		}
	})
}
