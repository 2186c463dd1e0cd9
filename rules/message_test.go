package rules_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/rules"
)

// TestMessages: placeholders, languages and levels, as a refusal has them.
func TestMessages(t *testing.T) {
	const words = "message: {en: '{rule} {level}: {limit} per {window}, in {retry_after}', zh: '{rule} {level}：每 {window} {limit} 次，{retry_after}后', fr: '{limit}/{window}, {retry_after}'}"
	for _, test := range []struct {
		rule, accept string
		wait         time.Duration
		want, in     string
	}{
		{"limit: 100/1m, " + words, "", 12 * time.Second, "a GLOBAL: 100 per 1 minute, in 12 seconds", "en"},
		{"limit: 100/1m, " + words, "de, zh-CN;q=0.8, en;q=0.5", 90 * time.Second, "a 全局：每 1分钟 100 次，1分钟30秒后", "zh"},
		{"limit: 100/1m, " + words, "zh-TW", 1, "a 全局：每 1分钟 100 次，1秒后", "zh"},
		{"limit: 100/1m, " + words, "fr-CA", time.Hour + time.Microsecond, "100/1 min, 1 h 1 min", "fr"},
		{"limit: 100/1m, " + words, "de", time.Second, "a GLOBAL: 100 per 1 minute, in 1 second", "en"},
		{"limit: 100/1m, " + words, "zh;q=x", time.Second, "a GLOBAL: 100 per 1 minute, in 1 second", "en"},
		{"limit: 100/1m, " + words, "en;q=0, zh;q=0.001", time.Second, "a 全局：每 1分钟 100 次，1秒后", "zh"},
		{"limit: 100/1m, " + words, strings.Repeat("zh,", bounds.Text), time.Second, "a GLOBAL: 100 per 1 minute, in 1 second", "en"},
		{"label: 登录, limit: 10/s burst 50, key: [client.ip], " + words, "zh", 49 * time.Hour, "登录 IP：每 1秒 10 次，2天1小时后", "zh"},
		{"limit: sliding_log 5/36h, key: [user], " + words, "zh", 24*time.Hour - 1, "a 用户：每 1天12小时 5 次，1天后", "zh"},
		{"limit: 5/250ms, match: {path: /pay}, " + words, "", time.Second, "a INTERFACE: 5 per 250 milliseconds, in 1 second", "en"},
		{"limit: calendar 5/month, match: {service: order}, " + words, "zh", time.Second, "a 服务：每 1个月 5 次，1秒后", "zh"},
		{"limit: calendar 5/day, key: [header.X-Id], " + words, "fr", time.Second, "5/1 d, 1 s", "fr"},
		{"limit: 5/1s, key: [header.X-Id], message: '{level} {service}{route} {{limit} }'", "zh", time.Second, "KEY order/pay {limit} }", ""},
		{"limit: 5/1s, message: {zh: 请稍候。, en: wait}", "fr", time.Second, "请稍候。", "zh"},
	} {
		rule := compiled(t, "rules: [{name: a, "+test.rule+"}]").Rules()[0]
		values := rules.MessageValues{Limit: rule.Limits()[0], RetryAfter: test.wait, Service: "order", Route: "/pay"}
		var accept []string
		if test.accept != "" {
			accept = []string{test.accept}
		}
		text, language, ok := rule.Message(&values, accept)
		if text != test.want || language != test.in || !ok {
			t.Errorf("%s in %.40q: %q in %q, %v; want %q in %q", test.rule, test.accept, text, language, ok, test.want, test.in)
		}
	}
}

func TestARuleWithoutMessageHasTheFiles(t *testing.T) {
	set := compiled(t, "message: file\nrules: [{name: a, limit: 1/1s}, {name: b, limit: 1/1s, message: own}]")
	for i, want := range []string{"file", "own"} {
		rule := set.Rules()[i]
		if text, _, ok := rule.Message(&rules.MessageValues{Limit: rule.Limits()[0]}, nil); text != want || !ok {
			t.Errorf("%q, %v; want %q", text, ok, want)
		}
	}
	if _, _, ok := compiled(t, "rules: [{name: a, limit: 1/1s}]").Rules()[0].Message(&rules.MessageValues{}, nil); ok {
		t.Error("a message that nobody wrote")
	}
}

// FuzzMessages: what Compile accepts can be rendered, whatever clients say, and is bounded.
func FuzzMessages(f *testing.F) {
	f.Add("{rule}{limit}{window}{retry_after}{level}{service}{route}", "zh-Hans", "en, zh;q=0.1", int64(1))
	f.Add("{{ } {{{limit}", "en", "*", int64(1<<62))
	f.Fuzz(func(t *testing.T, text, language, accept string, wait int64) {
		spec := rules.Spec{Name: "a", Limit: []string{"1/1s"}, Message: []rules.Translation{{Text: "first"}, {Language: language, Text: text}}}
		set, err := rules.Compile(&rules.File{Rules: []rules.Spec{spec}})
		if err != nil {
			return
		}
		values := rules.MessageValues{Limit: set.Rules()[0].Limits()[0], RetryAfter: time.Duration(wait & (1<<61 - 1))}
		got, in, ok := set.Rules()[0].Message(&values, []string{accept})
		if !ok || in != "" && in != language || !utf8.ValidString(got) || utf8.RuneCountInString(got) > 100*bounds.Message {
			t.Errorf("%q of %q, in %q, %v", got, text, in, ok)
		}
	})
}
