package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/rules"
)

// TestNoSpellingEvadesARule escapes what need not be, and puts in segments that go away, as
// somebody does who wants the handler and not the limit. Doors match what pathform makes of it.
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
				b.WriteByte(text[i])
			}
		}
		return b.String()
	}
	nothing := rapid.SampledFrom([]string{"/", "/", "//", "/./", "/x/../", "/%2e/", "/x/%2E%2e/"})
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
