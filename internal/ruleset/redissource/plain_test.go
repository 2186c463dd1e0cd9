package redissource_test

import (
	"testing"

	"github.com/weirproject/weir/internal/ruleset/redissource"
)

// TestHashesAsSpringWritesThem: RedisTemplate<String, Object> with Jackson puts quotes round texts and types beside numbers.
func TestHashesAsSpringWritesThem(t *testing.T) {
	for _, quoted := range []bool{false, true} {
		fields := map[string]string{`limitType`: `"IP"`, `limitTarget`: `"*"`, `limitCount`: `["java.lang.Long",5]`,
			`timeWindow`: `["java.lang.Long","60"]`, `strategy`: `"SLIDING_WINDOW"`, `enabled`: `true`, `ruleName`: `"登录 \"x\""`}
		if quoted {
			all := make(map[string]string)
			for name, value := range fields {
				all[`"`+name+`"`] = value
			}
			fields = all
		}
		h := redissource.ReadHash("c:", "c:login", fields)
		if len(h.Problems)+len(h.Ignored) > 0 || h.Rule == nil || h.Rule.Limit[0] != "sliding_log 5/1m" || h.Rule.Label != `登录 "x"` || !h.Enabled {
			t.Errorf("names in quotes %t: %+v", quoted, h)
		}
	}
	// Quotes are removed once, and what is no such text stays.
	for text, want := range map[string]string{`"a"`: "a", `"\"a\""`: `"a"`, `"a`: `"a`, `"a"b"`: `"a"b"`, `a`: "a", `"`: `"`, `["x",5]`: `["x",5]`,
		`["java.lang.Long",5,6]`: `["java.lang.Long",5,6]`, `["java.util.List",[1]]`: `["java.util.List",[1]]`, `""`: ""} {
		if got := redissource.Plain(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
