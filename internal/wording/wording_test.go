package wording_test

import (
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/wording"
)

// TestLimitedNamesTheLimit: in both languages, of windows, leases and limits that are not shown.
func TestLimitedNamesTheLimit(t *testing.T) {
	limit := func(text string) *weir.Limit {
		spec, err := weir.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		return weir.MustLimit("a", spec)
	}
	for _, c := range []struct {
		limit  *weir.Limit
		en, zh string
	}{
		{limit("60/1m"), " The limit is 60 in 1 minute (rule a).", "限额：每1分钟 60（规则：a）。"},
		{limit("calendar 1000/day"), " The limit is 1000 in 1 day (rule a).", "限额：每1天 1000（规则：a）。"},
		{limit("concurrency 5 ttl 1m"), " The limit is 5 at once (rule a).", "限额：同时 5（规则：a）。"},
		{nil, " The rule is a.", "规则：a。"},
	} {
		if en, zh := wording.Limited("en", "a", c.limit), wording.Limited("zh", "a", c.limit); en != c.en || zh != c.zh {
			t.Errorf("%v: %s %s", c.limit, en, zh)
		}
	}
}
