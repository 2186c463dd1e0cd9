package wording_test

import (
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/wording"
	"github.com/weirproject/weir/rules"
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
	tokens, _ := rules.ParseUnit("tokens")
	dollars, _ := rules.ParseUnit("USD/1000000")
	for _, c := range []struct {
		limit  *weir.Limit
		unit   rules.Unit
		en, zh string
	}{
		{limit("60/1m"), rules.Unit{}, " The limit is 60 in 1 minute (rule a).", "限额：每1分钟 60（规则：a）。"},
		{limit("60/1m"), tokens, " The limit is 60 tokens in 1 minute (rule a).", "限额：每1分钟 60 tokens（规则：a）。"},
		{limit("calendar 2500000/month"), dollars, " The limit is 2.5 USD in 1 month (rule a).", "限额：每1个月 2.5 USD（规则：a）。"},
		{limit("calendar 1000/day"), rules.Unit{}, " The limit is 1000 in 1 day (rule a).", "限额：每1天 1000（规则：a）。"},
		{limit("concurrency 5 ttl 1m"), rules.Unit{}, " The limit is 5 at once (rule a).", "限额：同时 5（规则：a）。"},
		{nil, tokens, " The rule is a.", "规则：a。"},
	} {
		en, zh := wording.Limited("en", "a", c.limit, c.unit), wording.Limited("zh", "a", c.limit, c.unit)
		if en != c.en || zh != c.zh {
			t.Errorf("%v: %s %s", c.limit, en, zh)
		}
	}
}
