package rules_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/rules"
)

// TestUnchangedRulesAreNotCompiledAgain: neither the same file, nor one whose rules are the
// same by place, whatever it is called.
func TestUnchangedRulesAreNotCompiledAgain(t *testing.T) {
	c := rules.NewCompiler()
	file := crowd(10)
	set, err := c.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	again := *file
	again.Name = "called otherwise"
	for _, same := range []*rules.File{file, &again} {
		if other, err := c.Compile(same); err != nil || other != set {
			t.Errorf("%s was compiled again: %v", same.Name, err)
		}
	}
	rewritten, longer := *file, *file
	rewritten.Rules = slices.Clone(file.Rules)
	longer.Rules = file.Rules[:9]
	denying, answering := *file, *file
	denying.Deny = map[string][]string{"user": {"mallory"}}
	answering.Response.Status = 503
	for _, other := range []*rules.File{&rewritten, &longer, &denying, &answering} {
		set, _ := c.Compile(file)
		if now, err := c.Compile(other); err != nil || now == set || len(now.Rules()) != len(other.Rules) {
			t.Errorf("another file has the same set: %v", err)
		}
	}
	if now, _ := c.Compile(&answering); now.Rules()[0].Response().Status != 503 {
		t.Error("the set is not the file's")
	}
}

// TestAMistakeLeavesTheLastSet: what was refused is not remembered.
func TestAMistakeLeavesTheLastSet(t *testing.T) {
	c := rules.NewCompiler()
	good, bad := crowd(10), crowd(10)
	bad.Rules[3].Limit = []string{"x"}
	set, _ := c.Compile(good)
	if _, err := c.Compile(bad); err == nil {
		t.Fatal("no mistake")
	}
	if again, err := c.Compile(good); again != set || err != nil {
		t.Error("the last good file was forgotten", err)
	}
	if _, err := c.Compile(bad); err == nil {
		t.Error("the second time there is no mistake")
	}
}

// TestCompilerParsesLikeParse: it uses the options of the compiler, and remembers the compiled rules.
func TestCompilerParsesLikeParse(t *testing.T) {
	c := rules.NewCompiler(rules.WithHashKey([]byte("secret")))
	file, err := c.Parse("f", yamlOf(crowd(10)))
	if err != nil {
		t.Fatal(err)
	}
	file.Rules[0].Limit = nil // a mistake if it is compiled again
	set, err := c.Compile(file)
	if err != nil || len(set.Rules()) != 10 {
		t.Error("it was compiled again", err)
	}
	long := &rules.Request{User: strings.Repeat("x", bounds.PlainKey)}
	file, err = c.Parse("f", []byte("rules: [{name: a, key: [user], limit: 1/1s}]"))
	if err != nil {
		t.Fatal(err)
	}
	own, _ := c.Compile(file)
	plain, _ := rules.Compile(file)
	keyed, _ := rules.Compile(file, rules.WithHashKey([]byte("secret")))
	keyOf := func(set *rules.Set) string { key, _ := set.Rules()[0].AppendKey(nil, long); return string(key) }
	if keyOf(own) != keyOf(keyed) || keyOf(own) == keyOf(plain) {
		t.Error("the compiler's hash key is another")
	}
	if _, err := c.Parse("f", []byte("rules: [{name: a, limit: x}]")); err == nil || !strings.HasPrefix(err.Error(), "f:1:26: ") {
		t.Errorf("a mistake without its place: %v", err)
	}
}

// TestOneCompilerForMany: each caller has the set of its own file.
func TestOneCompilerForMany(t *testing.T) {
	c := rules.NewCompiler()
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			for range 20 {
				set, err := c.Compile(crowd(n + 1))
				if err != nil || len(set.Rules()) != n+1 {
					t.Errorf("%d rules for %d, %v", len(set.Rules()), n+1, err)
				}
			}
		})
	}
	all.Wait()
}

func TestInvalidValueIsNotReportedAsMissing(t *testing.T) {
	for text, want := range map[string]string{
		"rules: 5": "rules must be a list",
		"rules: [{name: a, limit: 1/1s, key: user, overrides: [{key: [], limit: 2/1s}]}]":     "key has 0 values",
		"rules: [{name: a, limit: 1/1s, key: user, overrides: [{key: {x: y}, limit: 2/1s}]}]": "key must be one value",
		"rules: [{name: a, limit: 1/1s, deny: {user: {file: {x: y}}}}]":                       "file must be one value",
		"{? [a] : 1, '': 2, rules: []}":                                                       "unknown field",
	} {
		_, err := rules.Parse("f", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "missing") || strings.Contains(err.Error(), "twice") || strings.Contains(err.Error(), "names no file") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestAKeyIsOfItsRule: the same words mean another segment in another path, and none where
// there is none.
func TestAKeyIsOfItsRule(t *testing.T) {
	text := "rules:\n- {name: a, match: {path: '/{id}/**'}, key: path.id, limit: 1/1s}\n- {name: b, match: {path: '/x/{id}'}, key: path.id, limit: 1/1s}\n"
	set, err := rules.Load("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"path.id=1:x", "path.id=2:17"} {
		if key, _ := set.Rules()[i].AppendKey(nil, &rules.Request{Path: "/x/17"}); string(key) != want {
			t.Errorf("rule %d counts by %s, not by %s", i, key, want)
		}
	}
	if _, err := rules.Load("f", []byte(text+"- {name: c, key: path.id, limit: 1/1s}\n")); err == nil || !strings.HasPrefix(err.Error(), "f:4:18: ") {
		t.Errorf("a path without that segment: %v", err)
	}
}

// TestNamesAreThoseOfLimits, and a mistake in one is reported at its place.
func TestNamesAreThoseOfLimits(t *testing.T) {
	for _, name := range []string{strings.Repeat("x", 129), "a:b", "a/b", "a@", "a[", "a`", "a~", "a{", "a\u00e9", "-_ ."} {
		_, err := rules.Parse("f", fmt.Appendf(nil, "rules:\n- limit: 1/1s\n  name: %q\n", name))
		if err == nil || !strings.HasPrefix(err.Error(), "f:3:9: name is ") {
			t.Errorf("%.20q: %v", name, err)
		}
	}
	if _, err := rules.Parse("f", []byte("rules: [{name: "+strings.Repeat("aZ09._-x", 16)+", limit: 1/1s}]")); err != nil {
		t.Error(err)
	}
}

// TestManyFields: of two equal fields the second is a mistake, among few and among many.
func TestManyFields(t *testing.T) {
	for _, n := range []int{3, 24, 25, 60} {
		var b strings.Builder
		b.WriteString("rules:\n- name: a\n  limit: 1/1s\n  match:\n    header:\n")
		for i := range n {
			fmt.Fprintf(&b, "      h%d: x\n", i)
		}
		b.WriteString("      h1: y\n")
		_, err := rules.Parse("f", []byte(b.String()))
		want := fmt.Sprintf("f:%d:7: \"h1\" occurs twice; the first is in line 7", 6+n)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d fields: %v\nwithout %s", n, err, want)
		}
	}
}
