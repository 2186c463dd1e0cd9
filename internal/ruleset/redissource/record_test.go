package redissource

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

// fields reads "limitType=IP limitTarget=*": what a test says of a hash. Blanks in values
// are written _.
func fields(text string) map[string]string {
	m := make(map[string]string)
	for word := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(word, "=")
		m[name] = strings.ReplaceAll(value, "_", " ")
		if name == "strategy" || name == "limitType" {
			m[name] = value
		}
	}
	return m
}

// usual is a rule without what the test says itself.
func usual(text string) map[string]string {
	m := fields("limitType=GLOBAL limitTarget=* limitCount=100 timeWindow=60 strategy=TOKEN_BUCKET enabled=true")
	maps.Copy(m, fields(text))
	return m
}

// shown is what a rule says, without what is empty.
func shown(s *rules.Spec) string {
	text := strings.Join(s.Limit, ", ")
	show := func(name string, values ...string) {
		if len(values) > 0 && values[0] != "" {
			text += "; " + name + " " + strings.Join(values, ", ")
		}
	}
	show("service", s.Match.Service...)
	show("user", s.Match.User...)
	show("path", s.Match.Path)
	show("client", s.Match.Client...)
	show("by", s.Key...)
	show("missing", string(s.OnMissing))
	show("of", s.Group)
	show("mode", string(s.Mode))
	show("else", string(s.OnStoreError))
	return text
}

func TestFields(t *testing.T) {
	for _, test := range []struct{ fields, want string }{
		// Strategies.
		{"", "token_bucket 100/1m"},
		{"burst=200", "token_bucket 100/1m burst 200"},
		{"strategy=GCRA burst=1", "gcra 100/1m burst 1"},
		{"strategy=LEAKY_BUCKET", "leaky_bucket 100/1m"},
		{"strategy=LEAKY_QUEUE queue=0", "leaky_queue 100/1m"},
		{"strategy=LEAKY_QUEUE queue=20", "leaky_queue 100/1m queue 20"},
		{"strategy=FIXED_WINDOW", "fixed_window 100/1m first"},
		{"strategy=SLIDING_WINDOW", "sliding_log 100/1m"},
		{"strategy=SLIDING_LOG", "sliding_log 100/1m"},
		{"strategy=SLIDING_COUNTER", "sliding_counter 100/1m"},
		{"strategy=SLIDING_COUNTER slices=60", "sliding_counter 100/1m slices 60"},
		{"strategy=CALENDAR", "calendar 100/minute"},
		{"strategy=CALENDAR timeWindow=3600", "calendar 100/hour"},
		{"strategy=CALENDAR timeWindow=86400 zone=Asia/Shanghai", "calendar 100/day in Asia/Shanghai"},
		{"strategy=CALENDAR timeWindow=604800", "calendar 100/week"},
		{"strategy=CONCURRENCY timeWindow=30", "concurrency 100 ttl 30s"},
		{"strategy=SLIDING_WINDOW limitCount=0", "none"},
		{"limitCount=0 burst=5", "none"},
		// Targets.
		{"limitType=SERVICE limitTarget=orders", "token_bucket 100/1m; service orders; of redis-service"},
		{"limitType=SERVICE", "token_bucket 100/1m; service *; by service; of redis-service"},
		{"limitType=INTERFACE limitTarget=orders:/v1/*/items", "token_bucket 100/1m; service orders; path /v1/*/items; of redis-interface"},
		{"limitType=INTERFACE limitTarget=a:b:/v1", "token_bucket 100/1m; service a:b; path /v1; of redis-interface"},
		{"limitType=INTERFACE limitTarget=/v1:/x", "token_bucket 100/1m; path /v1:/x; of redis-interface"},
		{"limitType=INTERFACE limitTarget=/api/**", "token_bucket 100/1m; path /api/**; of redis-interface"},
		{"limitType=INTERFACE", "token_bucket 100/1m; by service, endpoint; of redis-interface"},
		{"limitType=IP limitTarget=192.0.2.7", "token_bucket 100/1m; client 192.0.2.7/32; by client.ip; missing skip; of redis-ip"},
		{"limitType=IP limitTarget=::ffff:192.0.2.7", "token_bucket 100/1m; client 192.0.2.7/32; by client.ip; missing skip; of redis-ip"},
		{"limitType=IP limitTarget=10.0.0.0/8", "token_bucket 100/1m; client 10.0.0.0/8; by client.ip; missing skip; of redis-ip"},
		{"limitType=IP limitTarget=2001:db8::/32", "token_bucket 100/1m; client 2001:db8::/32; by client.ip; missing skip; of redis-ip"},
		{"limitType=IP limitTarget=2001:db8::1", "token_bucket 100/1m; client 2001:db8::1/128; by client.ip v6/128; missing skip; of redis-ip"},
		{"limitType=IP", "token_bucket 100/1m; by client.ip; missing skip; of redis-ip"},
		{"limitType=USER limitTarget=ann@example.com", "token_bucket 100/1m; user ann@example.com; by user; missing skip; of redis-user"},
		{"limitType=USER", "token_bucket 100/1m; user *; by user; missing skip; of redis-user"},
		// The rest.
		{"mode=SHADOW onStoreError=DENY", "token_bucket 100/1m; mode shadow; else deny"},
		{"mode=ENFORCE onStoreError=LOCAL", "token_bucket 100/1m; mode enforce; else local"},
		{"id=7 ruleName=all version=1 description=x createTime=2026", "token_bucket 100/1m"},
	} {
		rec, problems := checked("name", usual(test.fields))
		if got := shown(rec.Rule); got != test.want || len(problems) > 0 || !rec.Enabled || rec.Rule.Name != "name" {
			t.Errorf("%s: %s %v\nwant %s", test.fields, got, problems, test.want)
		}
	}
}

func TestGlobalNeedsNoTarget(t *testing.T) {
	f := usual("enabled=0")
	delete(f, "limitTarget")
	if rec, problems := checked("name", f); len(problems) > 0 || rec.Enabled || rec.target != "*" {
		t.Error(rec, problems)
	}
}

func TestMistakesInFields(t *testing.T) {
	for _, test := range []struct{ fields, want string }{
		{"timeWindow=60s", `k:name: timeWindow is "60s"; allowed: whole seconds from 1 to 4503599627, in digits alone, such as 60 for a minute`},
		{"timeWindow=0", `timeWindow is "0"`},
		{"timeWindow=4503599628", `timeWindow is "4503599628"`},
		{"timeWindow=060", `timeWindow is "060"`},
		{"timeWindow=1.5", `timeWindow is "1.5"`},
		{"limitCount=00", `k:name: limitCount is "00"; allowed: a whole number from 0 to 4503599627370496 (2^52), in digits alone`},
		{"limitCount=-1", `limitCount is "-1"`},
		{"limitCount=1e3", `limitCount is "1e3"`},
		{"limitCount=4503599627370497", `limitCount is "4503599627370497"`},
		{"limitCount=99999999999999999999", `limitCount is "99999999999999999999"`},
		{"limitCount=", `limitCount is ""`},
		{"enabled=yes", `k:name: enabled is "yes"; allowed: true, false, 1, 0`},
		{"strategy=RANDOM", `strategy is "RANDOM"`},
		{"burst=5 strategy=SLIDING_LOG", `k:name: burst does not go with strategy SLIDING_LOG; leave it out`},
		{"burst=0", `burst is "0"`},
		{"slices=7 strategy=SLIDING_COUNTER", `limitCount, timeWindow cannot be used: `},
		{"timeWindow=61 strategy=CALENDAR", `k:name: timeWindow is "61"; allowed: with strategy CALENDAR 60 (a minute), 3600 (an hour), 86400 (a day) or 604800 (a week)`},
		{"zone=Mars strategy=CALENDAR", `limitCount, timeWindow cannot be used: `},
		{"version=2", `k:name: version is "2"; allowed: 1, or no such field; a newer one takes a newer weir`},
		{"limitTarget=a", `k:name: limitTarget is "a"; allowed: with limitType GLOBAL *, GLOBAL or no such field`},
		{"limitTarget=a:b limitType=INTERFACE", `k:name: limitTarget is "a:b"; allowed: with limitType INTERFACE service:/path, /path or *`},
		{"limitTarget=:/b limitType=INTERFACE", `limitTarget is ":/b"`},
		{"limitTarget=/a/**/b limitType=INTERFACE", `k:name: limitTarget is "/a/**/b": path is "/a/**/b": segment "**" may only be the last`},
		{"limitTarget=10.0.0.1/8 limitType=IP", `k:name: limitTarget is "10.0.0.1/8"; allowed: with limitType IP an address`},
		{"limitTarget=10.0.0 limitType=IP", `limitTarget is "10.0.0"`},
		{"limitTarget=fe80::1%eth0 limitType=IP", `limitTarget is "fe80::1%eth0"`},
		{"limitTarget=::ffff:10.0.0.0/104 limitType=IP", `limitTarget is "::ffff:10.0.0.0/104"`},
		{"mode=TRY", `k:name: mode is "TRY"; allowed: ENFORCE, SHADOW`},
		{"limitTarget=\x01 limitType=USER", `limitTarget is "\x01"`},
		{"limitTarget=\xff limitType=USER", `limitTarget is "\xff"`},
		{"limitCount=9000000000000 timeWindow=4503599627 strategy=SLIDING_COUNTER", `limitCount, timeWindow`},
	} {
		_, problems := checked("name", usual(test.fields))
		wrong := ruleset.Error{Problems: problems}
		if !strings.Contains(wrong.Error(), test.want) {
			t.Errorf("%s: got\n%v\nwant %s", test.fields, &wrong, test.want)
		}
	}
}

// TestFieldsAsPeopleWriteThem: small letters, hyphens, True, GLOBAL of GLOBAL, a name, and fields that
// nobody here knows.
func TestFieldsAsPeopleWriteThem(t *testing.T) {
	f := usual("strategy=sliding-window limitType=global limitTarget=GLOBAL enabled=True mode=shadow onStoreError=Deny ruleName=登录限流 priority=7 burts=5")
	got := parse("", "2", f)
	if len(got.Problems) > 0 || !got.Enabled {
		t.Fatalf("%+v", got)
	}
	want := rules.Spec{Name: "2", Label: "登录限流", Limit: []string{"sliding_log 100/1m"}, Mode: "shadow", OnStoreError: "deny"}
	if !reflect.DeepEqual(*got.Rule, want) {
		t.Errorf("%+v", *got.Rule)
	}
	text := (&ruleset.Error{Problems: got.Ignored}).Error()
	if text != `2: "burts" is no field that this weir knows, and is ignored; did you mean burst?; the rule is in force`+"\n"+
		`2: "priority" is no field that this weir knows, and is ignored; the rule is in force` {
		t.Errorf("ignored are\n%s", text)
	}
	for text, off := range map[string]bool{"False": true, "false": true, "0": true, "TRUE": false} {
		if (&Hash{fields: usual("enabled=" + text)}).off() != off {
			t.Errorf("enabled %s is disabled: %v", text, !off)
		}
	}
	long := parse("", "2", usual("ruleName="+strings.Repeat("名", bounds.Label+1)))
	if len(long.Problems) > 0 || long.Rule.Label != "" || len(long.Ignored) != 1 {
		t.Errorf("%+v", long)
	}
}

// TestMessagesOfHashes: a message may have languages, of which the one without a name is the default. One with a mistake
// is ignored, and the rule is in force.
func TestMessagesOfHashes(t *testing.T) {
	f := usual("")
	f["message.zh"], f["message.en"], f["message"] = "请在 {retry_after}后重试。", "Wait {retry_after}.", "{rule}"
	f["message.fr"], f["message.x"] = "Attendez {wait}", "a"
	got := parse("", "2", f)
	want := []rules.Translation{{Text: "{rule}"}, {Language: "en", Text: "Wait {retry_after}."}, {Language: "zh", Text: "请在 {retry_after}后重试。"}}
	if !reflect.DeepEqual(got.Rule.Message, want) || len(got.Problems) > 0 {
		t.Errorf("%+v, %v", got.Rule.Message, got.Problems)
	}
	text := (&ruleset.Error{Problems: got.Ignored}).Error()
	for _, part := range []string{`message.fr is not used: message has the unknown placeholder {wait}`, `message.x is not used: message has the language "x"`} {
		if !strings.Contains(text, part) {
			t.Errorf("ignored are\n%s\nwithout %s", text, part)
		}
	}
	before := got.appendTo(nil)
	f["message.zh"] = "请稍候。"
	if after := parse("", "2", f); bytes.Equal(before, after.appendTo(nil)) {
		t.Error("another message is the same rule")
	}
}

// TestHalfWrittenHashesAreInvalid: each required field is left out once, as in a hash that is being written.
func TestHalfWrittenHashesAreInvalid(t *testing.T) {
	for _, field := range needed {
		f := usual("limitType=IP")
		delete(f, field)
		_, problems := checked("name", f)
		if len(problems) != 1 || problems[0].Field != field || !strings.HasPrefix(problems[0].Message, "is missing; needed: limitType, ") {
			t.Errorf("without %s: %v", field, problems)
		}
	}
	if _, problems := checked("name", fields("limitCount=x")); len(problems) != len(needed) {
		t.Errorf("all mistakes at once: %v", problems)
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("x", 200)
	for suffix, want := range map[string]string{
		"login":     "login",
		"A.b_c-9":   "A.b_c-9",
		long[:128]:  long[:128],
		"":          "-HASH",
		"a b":       "a_b-HASH",
		"\xff\x00":  "__-HASH",
		"登录":        "__-HASH",
		long:        long[:111] + "-HASH",
		long + "/y": long[:111] + "-HASH",
	} {
		sum := sha256.Sum256([]byte(suffix))
		want = strings.Replace(want, "HASH", hex.EncodeToString(sum[:8]), 1)
		if got := nameOf(suffix); got != want || len(got) > maxNameLength {
			t.Errorf("%q is called %q, want %q", suffix, got, want)
		}
	}
}

func FuzzHash(f *testing.F) {
	f.Add("IP", "10.0.0.0/8", "100", "60", "GCRA", "true", "burst", "5")
	f.Add("INTERFACE", "orders:/a/*/**", "1", "86400", "CALENDAR", "0", "zone", "Asia/Shanghai")
	f.Add("USER", "*", "4503599627370496", "4503599627", "SLIDING_COUNTER", "1", "slices", "60")
	f.Add("SERVICE", "\xff", "-1", "60s", "\"GCRA\"", "TRUE", "version", "2")
	f.Fuzz(func(t *testing.T, kind, target, count, window, strategy, enabled, name, value string) {
		hash := map[string]string{"limitType": kind, "limitTarget": target, "limitCount": count, "timeWindow": window,
			"strategy": strategy, "enabled": enabled}
		hash[name] = value
		key := "rate_limit_config:" + value
		table := newTable("rate_limit_config:", 3)
		read(table, map[string]*Hash{key: parse("rate_limit_config:", key, hash)})
		set := table.contents()
		file, err := set.File, set.Warning
		if err != nil && err.Error() == "" {
			t.Fatal("an error without words")
		}
		if _, bad := rules.Compile(file); bad != nil {
			t.Fatalf("what was taken cannot be compiled: %v", bad)
		}
		known := slices.Contains(slices.Concat(needed, optional, notes), name) // an unknown field warns, and voids no rule
		if len(file.Rules) > 1 || len(file.Rules) == 1 && err != nil && known {
			t.Fatalf("%d rules, %v", len(file.Rules), err)
		}
	})
}

var strategyRow = regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\| `([^`]+)`")

// TestThePagesStrategies reads the table of docs/reference/redis-hashes.md.
func TestThePagesStrategies(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/redis-hashes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| strategy |")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strategyRow.FindAllStringSubmatch(table, -1)
	if len(rows) != len(strategies) {
		t.Errorf("%d rows, %d strategies", len(rows), len(strategies))
	}
	for _, row := range rows {
		rec, problems := checked("name", usual("strategy="+row[1]))
		if len(problems) > 0 || rec.Rule.Limit[0] != row[2] {
			t.Errorf("%s is %v, the page says %s; %v", row[1], rec.Rule.Limit, row[2], problems)
		}
	}
}

// TestThePageKnowsAllFields: what is allowed is written down.
func TestThePageKnowsAllFields(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/redis-hashes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range slices.Concat(needed, optional, notes) {
		if !strings.Contains(string(page), "`"+field+"`") {
			t.Errorf("the page does not know %s", field)
		}
	}
}

// checked checks the fields of a rule with this name.
func checked(name string, fields map[string]string) (*Hash, []ruleset.Problem) {
	h := parse("k:", "k:"+name, fields)
	if len(h.Problems) == 0 {
		h.check()
	}
	return h, h.Problems
}

// TestDescriptionsAreShown: one that cannot be shown is ignored, and voids no rule.
func TestDescriptionsAreShown(t *testing.T) {
	for text, want := range map[string]string{"two\nlines": "two\nlines", "a\x00b": "", "a\tb": ""} {
		f := usual("")
		f["description"] = text
		got := parse("", "name", f)
		if len(got.Problems) > 0 || got.Rule.Description != want || (want == "") != (len(got.Ignored) == 1) {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
