package redissource

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

const prefix = "rate_limit_config:"

// hashes are rules of the usual kind with some fields of their own.
func hashes(texts map[string]string) map[string]*Hash {
	found := make(map[string]*Hash)
	for name, text := range texts {
		found[prefix+name] = parse(prefix, prefix+name, usual(text))
	}
	return found
}

// read is a reading that found this.
func read(t *table, found map[string]*Hash) error {
	return t.take(found)
}

// state is which rules are in force, and what is wrong.
func stateOf(t *table) (inForce, wrong string) {
	set := t.contents()
	var list []string
	for _, spec := range set.File.Rules {
		list = append(list, spec.Name+" "+strings.TrimPrefix(spec.Limit[0], "token_bucket "))
	}
	if set.Warning != nil {
		wrong = set.Warning.Error()
	}
	return strings.Join(list, ", "), wrong
}

func expect(t *testing.T, table *table, inForce, wrong string) {
	t.Helper()
	got, problems := stateOf(table)
	if got != inForce || (wrong == "") != (problems == "") || !strings.Contains(problems, wrong) {
		t.Errorf("in force: %s\nwant      %s\nwrong: %s\nwant   %s", got, inForce, problems, wrong)
	}
}

// TestRulesOfUsersNeedUsers: a rule that no request would meet is a mistake, and the others are in force.
func TestRulesOfUsersNeedUsers(t *testing.T) {
	table := newTable(prefix, 10)
	table.withoutUsers = "the gateway knows no users"
	all := map[string]string{"a": "", "u": "limitType=USER limitTarget=* limitCount=5"}
	read(table, hashes(all))
	expect(t, table, "a 100/1m", "rate_limit_config:u: limitType is USER, and the gateway knows no users; this rule is not in force")
	all["u"] += " enabled=false"
	read(table, hashes(all))
	expect(t, table, "a 100/1m", "")
	table.receive(`{"id":"u","enabled":true}`)
	expect(t, table, "a 100/1m", "limitType is USER")
}

func TestOneBadRuleIsOneBadRule(t *testing.T) {
	table := newTable(prefix, 10)
	read(table, hashes(map[string]string{"a": "", "b": "limitCount=5"}))
	expect(t, table, "a 100/1m, b 5/1m", "")

	read(table, hashes(map[string]string{"a": "limitCount=101", "b": "limitCount=-1", "c": "timeWindow=60s"}))
	expect(t, table, "a 101/1m, b 5/1m", "rate_limit_config:b: limitCount is \"-1\"; allowed: a whole number from 0 to 4503599627370496 (2^52), in digits alone; the last good version of this rule stays in force\n"+
		"rate_limit_config:c: timeWindow is \"60s\"; allowed: whole seconds from 1 to 4503599627, in digits alone, such as 60 for a minute; this rule is not in force")

	read(table, hashes(map[string]string{"a": "enabled=false", "b": "limitCount=6"}))
	expect(t, table, "b 6/1m", "")
}

func TestKeysThatAreNotHashes(t *testing.T) {
	table := newTable(prefix, 10)
	read(table, hashes(map[string]string{"a": ""}))
	read(table, map[string]*Hash{prefix + "a": foreign(prefix+"a", "is no hash"), prefix + "\x00": foreign(prefix+"\x00", "takes 1000000 bytes")})
	expect(t, table, "a 100/1m", "\"rate_limit_config:\\x00\": takes 1000000 bytes; this rule is not in force\nrate_limit_config:a: is no hash; the last good version of this rule stays in force")
}

func TestMessages(t *testing.T) {
	const rule = `"limitType":"GLOBAL","limitCount":7,"timeWindow":"60","strategy":"TOKEN_BUCKET","enabled":true`
	for _, test := range []struct{ message, inForce, wrong string }{
		{`{"id":"b",` + rule + `}`, "a 100/1m, b 7/1m, named 9/1m", ""},
		{`{"id":"a",` + rule + `}`, "a 7/1m, named 9/1m", ""},
		{`{"id":17,` + rule + `}`, "a 100/1m, named 7/1m", ""}, // the hash named has this id
		{`{"id":"a","deleted":true}`, "named 9/1m", ""},
		{`{"id":"17","deleted":true}`, "a 100/1m", ""},
		{`{"id":"nobody","deleted":true}`, "a 100/1m, named 9/1m", ""},
		{`{"id":"a","deleted":false,` + rule + `}`, "a 7/1m, named 9/1m", ""},
		{`{"id":"a","enabled":false}`, "named 9/1m", ""},
		{`{"id":"17","enabled":0}`, "a 100/1m", ""},
		{`{"id":"a","enabled":"1"}`, "a 100/1m, named 9/1m", ""},
		{`{"id":"x","enabled":true}`, "a 100/1m, named 9/1m", "rate_limit_config:x: limitType is missing"},
		{`{"id":"a","limitCount":5}`, "a 100/1m, named 9/1m", "rate_limit_config:a: timeWindow is missing; needed: limitType, limitTarget, limitCount, timeWindow, strategy, enabled; the last good version"},
		{`{"id":"a",` + rule + `,"limitCount":8}`, "a 100/1m, named 9/1m", `field "limitCount" is given twice; it changes nothing`},
		{`{"id":"a","limitCount":null}`, "a 100/1m, named 9/1m", `field "limitCount" is not a string, number, true or false`},
		{`{"id":"a","x":[1]}`, "a 100/1m, named 9/1m", `field "x" is not a string`},
		{`{"id":"a","deleted":"maybe"}`, "a 100/1m, named 9/1m", `deleted is "maybe"; allowed: true, false`},
		{`{"limitCount":5}`, "a 100/1m, named 9/1m", `id is missing`},
		{`{"id":"a"`, "a 100/1m, named 9/1m", "allowed: RELOAD_ALL, or one rule as a JSON object"},
		{`["id","a","deleted",true]`, "a 100/1m, named 9/1m", "allowed: RELOAD_ALL, or one rule as a JSON object"},
		{`{"id":"a",}`, "a 100/1m, named 9/1m", "allowed: RELOAD_ALL"},
		{`{"id":"a"} x`, "a 100/1m, named 9/1m", "something follows the object"},
		{`[{"id":"a"}]`, "a 100/1m, named 9/1m", "allowed: RELOAD_ALL"},
		{`reload_all`, "a 100/1m, named 9/1m", `message "reload_all": allowed: RELOAD_ALL`},
		{"", "a 100/1m, named 9/1m", "allowed: RELOAD_ALL"},
		{"{\"id\":\"a\xff\"}", "a 100/1m, named 9/1m", "allowed: RELOAD_ALL"},
		{`{"id":"one-too-many",` + rule + `}`, "a 100/1m, named 9/1m", ""},
	} {
		table := newTable(prefix, 3)
		read(table, hashes(map[string]string{"a": "", "named": "id=17 limitCount=9"}))
		if strings.Contains(test.message, "one-too-many") {
			table.most = 2
			test.wrong = "id is one rule too many; at most 2"
		}
		table.receive(test.message)
		expect(t, table, test.inForce, test.wrong)
		if len(table.messageProblems) > 0 {
			t.Errorf("%s: what is wrong with a message is told twice", test.message)
		}
		read(table, hashes(map[string]string{"a": "", "named": "id=17 limitCount=9"}))
		expect(t, table, "a 100/1m, named 9/1m", "") // the hashes are the truth
	}
}

func TestRivals(t *testing.T) {
	table := newTable(prefix, 10)
	read(table, hashes(map[string]string{"a": "limitType=IP", "b": "limitType=IP limitCount=5", "c": "limitType=IP limitTarget=10.0.0.0/8",
		"tried": "limitType=IP mode=SHADOW", "g1": "", "g2": ""}))
	expect(t, table, "a 100/1m, b 5/1m, c 100/1m, g1 100/1m, g2 100/1m, tried 100/1m",
		`rate_limit_config:b: limitTarget is "*", as that of rate_limit_config:a: of one limitType only one rule applies to a request; of the two it is that of rate_limit_config:a`)
}

func TestTwoKeysOfOneName(t *testing.T) {
	taken := nameOf("a b")
	table := newTable(prefix, 10)
	read(table, map[string]*Hash{prefix + "a b": parse(prefix, prefix+"a b", usual("")), prefix + taken: parse(prefix, prefix+taken, usual("limitCount=5"))})
	inForce, wrong := stateOf(table)
	if inForce != taken+" 100/1m" || !strings.Contains(wrong, "is called "+taken) {
		t.Errorf("%s; %s", inForce, wrong)
	}
}

func TestProblemsAreBounded(t *testing.T) {
	table, found := newTable(prefix, 1000), make(map[string]*Hash)
	for i := range 300 {
		key := fmt.Sprint(prefix, i)
		found[key] = parse(prefix, key, usual("limitCount=-1"))
	}
	read(table, found)
	for range 300 {
		table.receive("x")
	}
	err := table.contents().Warning
	if list, ok := err.(*ruleset.Error); !ok || len(list.Problems) != ruleset.MaxProblems || list.Omitted != 500 {
		t.Errorf("got %.100v", err)
	}
}

// TestTheRevisionIsThatOfTheRules: it changes with them, and with nothing else.
func TestTheRevisionIsThatOfTheRules(t *testing.T) {
	revision := func(texts map[string]string) string {
		table := newTable(prefix, 10)
		read(table, hashes(texts))
		return table.contents().Revision
	}
	one := revision(map[string]string{"a": ""})
	if revision(map[string]string{"a": "id=5 remark=x", "c": "limitCount=-1"}) != one {
		t.Error("the rules are the same, the revision is another")
	}
	if revision(map[string]string{"a": "limitCount=99"}) == one || revision(map[string]string{"a": "", "b": "enabled=false"}) == one ||
		revision(map[string]string{}) == one {
		t.Error("the rules are others, the revision is the same")
	}
}

func FuzzMessage(f *testing.F) {
	f.Add(`{"id":"a","deleted":true}`)
	f.Add(`{"id":"a","enabled":false}`)
	f.Add(`{"id":"b","limitType":"IP","limitTarget":"10.0.0.0/8","limitCount":7,"timeWindow":"60","strategy":"GCRA","enabled":true}`)
	f.Add(`{"id":"c\u0000/","limitType":"INTERFACE","limitTarget":"a:/b/**","limitCount":1e400,"timeWindow":-0,"strategy":"","enabled":null}`)
	f.Add(`RELOAD_ALL`)
	f.Add("{\"id\":\"\\ud800\"}\x00")
	f.Fuzz(func(t *testing.T, text string) {
		table := newTable(prefix, 3)
		read(table, hashes(map[string]string{"a": "", "b": "limitType=USER"}))
		before := table.contents()
		changed := table.receive(text)
		after := table.contents()
		if _, bad := rules.Compile(after.File); bad != nil {
			t.Fatalf("what was taken cannot be compiled: %v", bad)
		}
		if !changed && (after.Warning == nil || before.Revision != after.Revision) {
			t.Fatalf("it changed nothing, but: %v", after.Warning)
		}
		for key := range table.entries {
			if !strings.HasPrefix(key, prefix) {
				t.Fatalf("it changed %q", key)
			}
		}
		read(table, hashes(map[string]string{"a": "", "b": "limitType=USER"}))
		if again := table.contents(); again.Warning != nil || before.Revision != again.Revision {
			t.Fatalf("the hashes are not the truth: %v", again.Warning)
		}
	})
}

// many are n rules of users, and those that the test says.
func many(n int, texts map[string]string) map[string]*Hash {
	all := make(map[string]string)
	for i := range n {
		all[fmt.Sprintf("u%03d", i)] = fmt.Sprint("limitType=USER limitTarget=u", i)
	}
	maps.Copy(all, texts)
	return hashes(all)
}

// TestRulesAreCheckedTogether, and one by one where that finds something wrong: the fields of
// both kinds of mistakes are right, each by itself.
func TestRulesAreCheckedTogether(t *testing.T) {
	const mistake, other = "strategy=SLIDING_COUNTER slices=7", "limitType=INTERFACE limitTarget=/a/**/b"
	names := func(table *table) (n int, some string) {
		set := table.contents()
		for _, spec := range set.File.Rules {
			if spec.Name[0] != 'u' {
				some += spec.Name + " " + spec.Limit[0] + ", "
			}
		}
		if set.Warning != nil {
			some += set.Warning.Error()
		}
		return len(set.File.Rules), some
	}
	for _, few := range []bool{false, true} {
		table := newTable(prefix, 1000)
		read(table, many(100, map[string]string{"a": "", "b": ""}))
		if n, some := names(table); n != 102 || some != "a token_bucket 100/1m, b token_bucket 100/1m, " {
			t.Fatalf("%d rules: %s", n, some)
		}
		if few {
			for name, text := range map[string]string{"a": mistake, "b": "limitCount=7", "c": other, "d": mistake + " enabled=false", "e": "limitCount=8"} {
				table.put(parse(prefix, prefix+name, usual(text)))
			}
		} else {
			next := many(100, map[string]string{"a": mistake, "b": "limitCount=7", "c": other, "d": mistake + " enabled=false", "e": "limitCount=8"})
			for i := range 100 {
				next[fmt.Sprintf("%su%03d", prefix, i)].fields["limitCount"] = "55"
			}
			read(table, next)
		}
		n, some := names(table)
		want := []string{"a token_bucket 100/1m, b token_bucket 7/1m, e token_bucket 8/1m, rate_limit_config:a: limitCount, timeWindow cannot be used: ",
			"; the last good version of this rule stays in force\n", "rate_limit_config:c: limitTarget is \"/a/**/b\": ", "; this rule is not in force\nrate_limit_config:d: limitCount, timeWindow cannot be used: "}
		for _, part := range want {
			if n != 103 || !strings.Contains(some, part) {
				t.Errorf("few %v: %d rules: %s\nwithout %s", few, n, some, part)
			}
		}
		if again, same := names(table); again != n || same != some {
			t.Errorf("few %v: told again it is %d rules: %s", few, again, same)
		}
	}
}

// TestRulesOutOfForceAreCheckedToo: the rule set says nothing of a rule that is switched off.
func TestRulesOutOfForceAreCheckedToo(t *testing.T) {
	table := newTable(prefix, 1000)
	read(table, hashes(map[string]string{"a": "", "b": "", "c": ""}))
	expect(t, table, "a 100/1m, b 100/1m, c 100/1m", "")
	const off = "strategy=SLIDING_COUNTER slices=7 enabled=false"
	read(table, hashes(map[string]string{"a": off, "b": "limitCount=5", "c": "", "d": off}))
	expect(t, table, "b 5/1m, c 100/1m", "; this rule is disabled\nrate_limit_config:d: ")
}

// TestTwoSpellingsOfOneTarget: they are reported, and only the first has an effect.
func TestTwoSpellingsOfOneTarget(t *testing.T) {
	for _, two := range [][2]string{{"192.0.2.7", "192.0.2.7/32"}, {"192.0.2.7", "::ffff:192.0.2.7"}, {"2001:db8::1", "2001:DB8:0::1"}} {
		table := newTable(prefix, 10)
		read(table, hashes(map[string]string{"a": "limitType=IP limitTarget=" + two[0], "b": "limitType=IP limitTarget=" + two[1]}))
		expect(t, table, "a 100/1m, b 100/1m", "of one limitType only one rule applies to a request; of the two it is that of rate_limit_config:a")
	}
}

// TestDisabledHashIsOffDespiteMistakes, whatever else is wrong with the hash: somebody wants it to end. When it
// is switched on again it is what it was.
func TestDisabledHashIsOffDespiteMistakes(t *testing.T) {
	const count = "rate_limit_config:a: limitCount is \"many\""
	table := newTable(prefix, 10)
	read(table, hashes(map[string]string{"a": "", "b": ""}))
	for _, test := range []struct{ fields, inForce, wrong string }{
		{"limitCount=many", "a 100/1m, b 100/1m", "the last good version of this rule stays in force"},
		{"limitCount=many enabled=false", "b 100/1m", count},
		{"limitCount=many enabled=0", "b 100/1m", "this rule is disabled"},
		{"limitCount=many enabled=no", "a 100/1m, b 100/1m", count},
		{"version=2 enabled=false", "a 100/1m, b 100/1m", "version is \"2\""},
		{"limitCount=many", "a 100/1m, b 100/1m", "the last good version of this rule stays in force"},
		{"limitCount=7 enabled=false", "b 100/1m", ""},
		{"limitCount=7", "a 7/1m, b 100/1m", ""},
	} {
		read(table, hashes(map[string]string{"a": test.fields, "b": ""}))
		expect(t, table, test.inForce, test.wrong)
	}
	read(table, hashes(map[string]string{"a": "limitCount=many", "b": ""}))
	table.receive(`{"id":"a","enabled":false}`)
	expect(t, table, "b 100/1m", count)
	read(table, map[string]*Hash{prefix + "a": foreign(prefix+"a", "is no hash"), prefix + "b": parse(prefix, prefix+"b", usual(""))})
	expect(t, table, "a 7/1m, b 100/1m", "is no hash")
}

// TestDisabledHashSwitchesOffEarlierSources: the rule of its name, until it is enabled or gone.
func TestDisabledHashSwitchesOffEarlierSources(t *testing.T) {
	config := &rules.File{Name: "config", Rules: []rules.Spec{{Name: "a", Limit: []string{"1/1s"}}, {Name: "b", Limit: []string{"1/1s"}}}}
	table := newTable(prefix, 10)
	var revisions []string
	for _, test := range []struct {
		hashes map[string]string
		want   string
	}{
		{map[string]string{"c": ""}, "a 1/1s, b 1/1s, c token_bucket 100/1m"},
		{map[string]string{"c": "", "a": "enabled=false"}, "b 1/1s, c token_bucket 100/1m"},
		{map[string]string{"c": "", "a": "enabled=false limitCount=many"}, "b 1/1s, c token_bucket 100/1m"},
		{map[string]string{"c": "", "a": "enabled=true"}, "a token_bucket 100/1m, b 1/1s, c token_bucket 100/1m"},
		{map[string]string{"c": "enabled=false", "none": "enabled=false"}, "a 1/1s, b 1/1s"},
	} {
		read(table, hashes(test.hashes))
		n := table.contents()
		revisions = append(revisions, n.Revision)
		var got []string
		for _, s := range ruleset.Merge(ruleset.Part{Name: "config", File: config}, ruleset.Part{Name: "redis", File: n.File}).File.Rules {
			got = append(got, s.Name+" "+s.Limit[0])
		}
		if text := strings.Join(got, ", "); text != test.want {
			t.Errorf("%v: %s, want %s", test.hashes, text, test.want)
		}
	}
	if revisions[0] == revisions[1] {
		t.Error("the revision is that without the disabled hash")
	}
}

// TestAHashThatIsGoneIsCalledNoMore: its id is free for another one.
func TestAHashThatIsGoneIsCalledNoMore(t *testing.T) {
	table := newTable(prefix, 10)
	read(table, hashes(map[string]string{"a": "id=m"}))
	table.receive(`{"id":"m","deleted":true}`)
	table.receive(`{"id":"m","limitType":"GLOBAL","limitCount":7,"timeWindow":60,"strategy":"TOKEN_BUCKET","enabled":true}`)
	expect(t, table, "m 7/1m", "")
}

// TestRulesAreCompiledOnce: the compiler that checked the rules of a table remembers them.
func TestRulesAreCompiledOnce(t *testing.T) {
	compiler := rules.NewCompiler()
	table := newTable(prefix, 1000)
	table.compiler = compiler
	read(table, many(10, map[string]string{"off": "enabled=false"}))
	set := table.contents()
	set.File.Rules[0].Limit = nil // a mistake if it is compiled again
	if set, err := compiler.Compile(set.File); err != nil || len(set.Rules()) != 10 {
		t.Errorf("the rule set was compiled again: %v", err)
	}
}

func TestLastGoodVersionOutlivesABadOne(t *testing.T) {
	table := newTable(prefix, 10)
	read(table, hashes(map[string]string{"a": ""}))
	table.put(parse(prefix, prefix+"a", usual("limitCount=7")))
	table.put(parse(prefix, prefix+"a", usual("limitCount=x")))
	expect(t, table, "a 7/1m", "the last good version")
}

// TestMessagesFindHashesByID: of several hashes the first by its key, and the one whose key it
// is only if it does not call itself otherwise.
func TestMessagesFindHashesByID(t *testing.T) {
	for _, test := range []struct{ a, m, z, want string }{
		{"", "", "", "m"},
		{"id=m", "", "", "a"},
		{"id=m", "id=m", "", "a"},
		{"", "id=m", "id=m", "m"},
		{"", "", "id=m", "z"},
		{"", "id=a", "", "m"},
		{"", "id=a", "id=m", "z"},
	} {
		table := newTable(prefix, 10)
		read(table, hashes(map[string]string{"a": test.a, "m": test.m, "z": test.z}))
		if got := table.called("m"); got != prefix+test.want {
			t.Errorf("%+v: m is %s", test, got)
		}
	}
	if got := newTable(prefix, 10).called("m"); got != prefix+"m" {
		t.Errorf("without hashes m is %s", got)
	}
}

// TestEachFieldIsInTheRevision if it changes the rule.
func TestEachFieldIsInTheRevision(t *testing.T) {
	seen := make(map[string]string)
	for _, text := range []string{"", "limitCount=7", "timeWindow=7", "strategy=GCRA", "burst=7", "mode=SHADOW", "onStoreError=DENY",
		"limitType=USER", "limitType=IP", "limitType=SERVICE", "limitType=INTERFACE", "limitType=USER limitTarget=a", "limitType=SERVICE limitTarget=a"} {
		table := newTable(prefix, 10)
		read(table, hashes(map[string]string{"a": text}))
		revision := table.contents().Revision
		if other, twice := seen[revision]; twice {
			t.Errorf("%q and %q have one revision", text, other)
		}
		seen[revision] = text
	}
}
