package ruleimport_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/ruleimport"
	"github.com/weirproject/weir/rules"
)

// randomHash is a command that writes a valid hash.
func randomHash(r *rand.Rand, i int) string {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	fields := []string{fmt.Sprintf("HSET rate_limit_config:rule-%d", i)}
	set := func(name, value string) { fields = append(fields, name, fmt.Sprintf("%q", value)) }
	kind := pick("GLOBAL", "SERVICE", "INTERFACE", "IP", "USER")
	set("limitType", kind)
	set("limitTarget", map[string]string{"GLOBAL": "*", "SERVICE": pick("*", "pay", "pay b"),
		"INTERFACE": pick("*", "/a/**", "pay:/a/*"), "IP": pick("*", "192.0.2.7", "10.0.0.0/8", "2001:db8::1"),
		"USER": pick("*", "ann")}[kind])
	window := pick("1", "60", "3600", "7")
	strategy := pick("TOKEN_BUCKET", "SLIDING_WINDOW", "FIXED_WINDOW", "LEAKY_BUCKET", "LEAKY_QUEUE", "GCRA",
		"SLIDING_LOG", "SLIDING_COUNTER", "CALENDAR", "CONCURRENCY")
	if strategy == "CALENDAR" {
		window = pick("60", "3600", "86400", "604800")
		if r.IntN(2) == 0 {
			set("zone", "Asia/Shanghai")
		}
	}
	set("strategy", strategy)
	set("timeWindow", window)
	set("limitCount", fmt.Sprint(1+r.IntN(1000)))
	if r.IntN(2) == 0 {
		if field := map[string]string{"TOKEN_BUCKET": "burst", "GCRA": "burst", "LEAKY_BUCKET": "burst",
			"LEAKY_QUEUE": "queue"}[strategy]; field != "" {
			set(field, fmt.Sprint(1+r.IntN(50)))
		}
	}
	set("enabled", pick("true", "false", "1", "True"))
	for field, value := range map[string]string{"mode": pick("ENFORCE", "SHADOW"), "onStoreError": pick("LOCAL", "DENY"),
		"ruleName": "支付 接口", "description": "two\nlines", "message": "no # more", "message.zh": "太多"} {
		if r.IntN(3) == 0 {
			set(field, value)
		}
	}
	return strings.Join(fields, " ") + "\n"
}

// comparable is a rule with its limit as numbers, which may be written in several ways.
func comparable(t *testing.T, spec rules.Spec) (rules.Spec, weir.Spec) {
	t.Helper()
	limit, err := weir.ParseLimit(spec.Limit[0])
	if err != nil {
		t.Fatal(err)
	}
	spec.Limit = nil
	return spec, limit
}

func TestHashesToYAMLAndBack(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 7))
		var source strings.Builder
		for i := range 8 {
			source.WriteString(randomHash(r, i))
		}
		first, yaml := imported(t, "redis-hash", source.String())
		if len(first.Notes) > 0 || len(first.Rules.Rules) != 8 {
			t.Fatalf("%v\n%s", first.Notes, &source)
		}
		again, _ := imported(t, "weir", yaml)
		commands := again.Commands()
		if len(again.Notes) > 0 {
			t.Fatalf("%v\n%s\n%s", again.Notes, &source, yaml)
		}
		last, _ := imported(t, "redis-hash", commands)
		for i := range first.Rules.Rules {
			want, wantLimit := comparable(t, first.Rules.Rules[i])
			got, gotLimit := comparable(t, last.Rules.Rules[i])
			if !reflect.DeepEqual(got, want) || gotLimit != wantLimit {
				t.Fatalf("%+v %+v\nwant %+v %+v\n%s\n%s", got, gotLimit, want, wantLimit, &source, commands)
			}
		}
	}
}

func TestRulesThatHashesCannotHoldAreListed(t *testing.T) {
	t.Parallel()
	result, _ := imported(t, "weir", `path_form: drop-trailing-slash
rules:
  - {name: a, limit: [1/1s, 2/1m]}
  - {name: b, key: [header.X], limit: 1/1s}
  - {name: c, limit: 1/100ms}
  - {name: d, limit: calendar 1/month}
  - {name: e, limit: fixed_window 1/1s epoch}
  - {name: f, limit: 5/1s step}
  - {name: good, limit: 5/1m}
`)
	commands := result.Commands()
	if len(result.Notes) != 7 || strings.Count(commands, "HSET") != 1 {
		t.Errorf("%v\n%s", result.Notes, commands)
	}
}

func TestNoRulesAreAFileToo(t *testing.T) {
	t.Parallel()
	_, yaml := imported(t, "nginx", "http {}")
	again, same := imported(t, "weir", yaml)
	if len(again.Rules.Rules) != 0 || strings.Count(same, "rules: []") != 1 {
		t.Errorf("%s\n%s", yaml, same)
	}
}

func TestHashesOfJSONAndProblems(t *testing.T) {
	t.Parallel()
	result, _ := imported(t, "redis-hash", `{
"rate_limit_config:login": {"limitType": "IP", "limitTarget": "*", "limitCount": 5, "timeWindow": 60,
  "strategy": "SLIDING_WINDOW", "enabled": true},
"rate_limit_config:wrong": {"limitType": "IP"}}`)
	if len(result.Rules.Rules) != 1 || result.Rules.Rules[0].Limit[0] != "sliding_log 5/1m" ||
		len(result.Notes) == 0 || result.Notes[0].Line != 4 {
		t.Errorf("%+v %v", result.Rules, result.Notes)
	}
	for source, want := range map[string]string{
		"SADD a b": "source:1: command SADD a b",
		"127.0.0.1:6379> HSET rate_limit_config:a limitType IP": "timeWindow is missing",
		"redis-cli HSET rate_limit_config:a limitType 'IP' x y": "strategy is missing",
	} {
		result, _ := imported(t, "redis-hash", source)
		if len(result.Notes) == 0 || !strings.Contains(fmt.Sprint(result.Notes), want) && result.Notes[0].String() != want &&
			!strings.Contains(result.Notes[0].String(), want) {
			t.Errorf("%s lists %v, want %s", source, result.Notes, want)
		}
	}
}

func TestThrottleCommandsBecomeTokenBuckets(t *testing.T) {
	t.Parallel()
	result, yaml := imported(t, "redis-cell", `# what the program sends
CL.THROTTLE login:ann 15 30 60 1
cl.throttle login:bob 15 30 60
CL.THROTTLE "login:*" 1 2 3
CL.THROTTLE exports 4 5 6 2
GET x
CL.THROTTLE login:bob 9 30 60
CL.THROTTLE login:cleo 15 30 60 3
`)
	rp := newReplay(t, yaml)
	passed := 0
	for range 40 {
		v := rp.decide(t, 1_700_000_000_000_000, &rules.Request{Route: "login", Attributes: descriptors{{"key", "login:dan"}}})
		passed += int(v.Granted)
	}
	if passed != 16 || len(result.Rules.Rules) != 2 || len(result.Notes) != 3 {
		t.Errorf("%d passed; %v\n%s", passed, result.Notes, yaml)
	}
	for source, want := range map[string]string{
		"CL.THROTTLE a 1 2":       "CL.THROTTLE has 3 arguments",
		"CL.THROTTLE a -1 2 3":    `MAX_BURST is "-1"; allowed`,
		"CL.THROTTLE a 1 0 3":     `COUNT is "0"; allowed`,
		"CL.THROTTLE \"a 1 0 3":   `quotes do not end`,
		"\nCL.THROTTLE a 1 2 3 x": `source:2:1: QUANTITY is "x"`,
	} {
		_, err := ruleimport.Import("redis-cell", []ruleimport.Text{{Name: "source", Data: []byte(source)}}, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", source, err, want)
		}
	}
}
