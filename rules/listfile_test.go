package rules_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/rules"
)

// filesOf are files by their names.
func filesOf(texts map[string]string) rules.Option {
	files := fstest.MapFS{}
	for name, text := range texts {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return rules.WithFiles(func(name string) ([]byte, error) { return fs.ReadFile(files, name) })
}

func TestListsInFiles(t *testing.T) {
	const text = `
deny: {client.ip: {file: lists/blocked.txt, values: 198.51.100.7}}
allow: {user lower: {file: friends.txt}}
rules:
- {name: a, limit: 5/1m, deny: {user: {file: friends.txt}}, allow: {user: {file: nobody.txt}}}
`
	_, err := rules.Load("etc/weir.yaml", []byte(text), filesOf(map[string]string{
		"lists/blocked.txt": "\uFEFF# blocked\r\n192.0.2.1\r\n\r\n  10.0.0.0/8\t# a network\r\n2001:db8::/32#no comment",
		"friends.txt":       "ann\nbot-*\n#x\na#b\nann # again\n\\*",
		"nobody.txt":        "# nobody",
	}))
	if err == nil || !strings.HasPrefix(err.Error(), "etc/lists/blocked.txt:5:1: deny.client.ip has \"2001:db8::/32#no comment\"") {
		t.Fatal(err)
	}
	set, err := rules.Load("etc/weir.yaml", []byte(text), filesOf(map[string]string{
		"lists/blocked.txt": "\uFEFF# blocked\r\n192.0.2.1\r\n\r\n  10.0.0.0/8\t# a network\r\n2001:db8::/32 \n192.0.2.1/32\n198.51.100.7",
		"friends.txt":       "ann\nbot-*\n#x\na#b\nann # again\n\\*",
		"nobody.txt":        "# nobody",
	}))
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]rules.Listing{"192.0.2.1": rules.Denied, "10.1.2.3": rules.Denied, "2001:db8::1": rules.Denied,
		"198.51.100.7": rules.Denied, "192.0.2.2": rules.Unlisted} {
		if got := set.Listed(&rules.Request{Client: netip.MustParseAddr(address)}); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
	for user, want := range map[string]rules.Listing{"ann": rules.Denied, "bot-7": rules.Denied, "a#b": rules.Denied, "*": rules.Denied,
		"again": rules.Unlisted, "# nobody": rules.Unlisted} {
		if got := set.Rules()[0].Listed(&rules.Request{User: user}); got != want {
			t.Errorf("%s: %v", user, got)
		}
	}
}

// TestMistakesOfListsInFiles: they are reported in the list file, or where the list is named.
func TestMistakesOfListsInFiles(t *testing.T) {
	files := map[string]string{
		"bad.txt":    "10.0.0.1\n 10.0.0.300 # no\n10.0.0.1/8\n",
		"empty.txt":  " \n",
		"latin.txt":  "ann\nb\xe9a\n",
		"star.txt":   "a*b\n" + strings.Repeat("x", bounds.Text+1),
		"secret.txt": "10.0.0.1\nredis://user:pass@host\n",
		"large.txt":  strings.Repeat("#\n", bounds.ListFile/2+1),
		"many.txt":   manyValues(bounds.Listed + 1),
		"half.txt":   manyValues(bounds.Listed/2 + 1),
		"other.txt":  manyValues(bounds.Listed/2 + 1),
		"good.txt":   "10.0.0.1",
	}
	for text, want := range map[string][]string{
		"deny: {client.ip: {file: bad.txt}}":                               {"d/bad.txt:2:2: deny.client.ip has \"10.0.0.300\"", "\n     10.0.0.300 # no\n     ^\n", "d/bad.txt:3:1: "},
		"deny: {client.ip: {file: bad.txt}, user: {file: no.txt}}":         {"d/weir.yaml:1:49: deny.user.file is \"no.txt\"; it cannot be read: file does not exist", "d/bad.txt:2:2: "},
		"deny: {client.ip: {file: empty.txt}}":                             {"d/weir.yaml:1:26: ", "it is empty; a list that is empty on purpose has a comment"},
		"deny: {user: {file: latin.txt}}":                                  {"d/latin.txt:2:1: this line is not UTF-8"},
		"deny: {user: {file: star.txt}}":                                   {"d/star.txt:1:1: ", "d/star.txt:2:1: ", "1 to 1024 bytes"},
		"deny: {user: {file: large.txt}}":                                  {"it has over 8388608 bytes"},
		"deny: {user: {file: many.txt}}":                                   {"d/many.txt:100001:1: here begins value 100001; at most 100000"},
		"deny: {user: {file: half.txt}, host: {file: half.txt}}":           {"the files of lists have over 100000 values"},
		"deny: {user: {file: half.txt}}\nallow: {user: {file: other.txt}}": {"the files of lists have over 100000 values"},
		"deny: {client.ip: {file: secret.txt}}":                            {"d/secret.txt:2:1: "},
		"deny: {client.ip: {file: good.txt, values: [10.0.0.2, x]}}":       {"d/weir.yaml:1:55: deny.client.ip has \"x\""},
		"deny: {user: {file: ../good.txt}}":                                {"d/weir.yaml:1:21: deny.user.file is \"../good.txt\"; allowed: a file beside the rules or below"},
		"deny: {user: {file: /good.txt}}":                                  {"allowed: a file beside"},
		"deny: {user: {file: a/../good.txt}}":                              {"allowed: a file beside"},
		"deny: {user: {file: ./good.txt}}":                                 {"allowed: a file beside"},
		"deny: {user: {file: .}}":                                          {"allowed: a file beside"},
		`deny: {user: {file: '..\good.txt'}}`:                              {"allowed: a file beside"},
		`deny: {user: {file: 'C:good.txt'}}`:                               {"allowed: a file beside"},
		tooManyFiles():                                                     {"name 64 files; at most that many"},
	} {
		if !strings.Contains(text, "rules:") {
			text += "\nrules: []\n"
		}
		_, err := rules.Parse("d/weir.yaml", []byte(text), filesOf(files))
		var list *rules.Error
		if !errors.As(err, &list) {
			t.Errorf("%.60s: %v", text, err)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%.60s: %.400s\nwithout %s", text, err, part)
			}
		}
		if strings.Contains(err.Error(), ":pass@") {
			t.Errorf("a password is shown: %v", err)
		}
	}
}

// TestAListIsReadOnce, also if the list that names it has a mistake.
func TestAListIsReadOnce(t *testing.T) {
	for _, rest := range []string{"", "x", "deny: {user: {file: a.txt}}\n"} {
		reads := 0
		read := rules.WithFiles(func(string) ([]byte, error) { reads++; return []byte("10.0.0.1\n"), nil })
		text := rest + "rules:\n- {name: a, limit: 1/1s, deny: {client.ip: {file: a.txt}}}\n- {name: b, limit: 1/1s, deny: {client.ip: {file: a.txt}}}\n"
		_, err := rules.Parse("f", []byte(text), read)
		if reads > 1 || err != nil && rest == "" {
			t.Errorf("%q: %d times, %v", rest, reads, err)
		}
	}
}

// manyValues are so many values, each in a line.
func manyValues(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "u%d\n", i)
	}
	return b.String()
}

func tooManyFiles() string {
	var b strings.Builder
	b.WriteString("rules:\n")
	for i := range bounds.ListFiles + 1 {
		fmt.Fprintf(&b, "- {name: r%d, limit: 1/1s, deny: {user: {file: f%d.txt}}}\n", i, i)
	}
	return b.String()
}

// TestListFileIsReadOnce however many lists name it; an invalid name is never opened.
func TestListFileIsReadOnce(t *testing.T) {
	var read []string
	option := rules.WithFiles(func(name string) ([]byte, error) {
		read = append(read, name)
		return []byte("ann"), nil
	})
	_, err := rules.Parse("f", []byte("deny: {user: {file: a}, host: {file: a}, route: {file: ../a}}\nrules: []"), option)
	if err == nil || len(read) != 1 || read[0] != "a" {
		t.Errorf("%v %v", read, err)
	}
}

// TestManyNetworksInAFile: 100,000 of them are in force.
func TestManyNetworksInAFile(t *testing.T) {
	var b strings.Builder
	for i := range bounds.Listed {
		fmt.Fprintf(&b, "%d.%d.%d.0/28\n", 1+i>>16, i>>8&255, i&255)
	}
	set, warnings, err := rules.Lint("f", []byte("deny: {client.ip: {file: n.txt}}\nrules: []"), filesOf(map[string]string{"n.txt": b.String()}))
	if err != nil || len(warnings) > 0 {
		t.Fatal(warnings, err)
	}
	for address, want := range map[string]rules.Listing{"1.0.0.15": rules.Denied, "1.0.0.16": rules.Unlisted, "2.134.159.1": rules.Denied, "2.134.160.1": rules.Unlisted} {
		if got := set.Listed(&rules.Request{Client: netip.MustParseAddr(address)}); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}

// TestLintWarnsOfListsInFiles, with their lines.
func TestLintWarnsOfListsInFiles(t *testing.T) {
	_, warnings, err := rules.Lint("d/f", []byte("deny: {user: {file: a.txt}}\nallow: {user: [x, bob]}\nrules: []"), filesOf(map[string]string{"a.txt": "ann\n# some\nbob"}))
	if err != nil || len(warnings) != 1 || warnings[0].File != "d/f" || warnings[0].Line != 2 {
		t.Errorf("%v %v", warnings, err)
	}
	_, warnings, err = rules.Lint("d/f", []byte("deny: {user: bob}\nallow: {user: {file: a.txt}}\nrules: []"), filesOf(map[string]string{"a.txt": "ann\n# some\nbob"}))
	if err != nil || len(warnings) != 1 || warnings[0].File != "d/a.txt" || warnings[0].Line != 3 || warnings[0].Source != "bob" {
		t.Errorf("%v %v", warnings, err)
	}
}

// FuzzListFile: any list either compiles or has its mistakes reported.
func FuzzListFile(f *testing.F) {
	for _, text := range []string{"", "# nobody", "192.0.2.1\n10.0.0.0/8 # x\r\n", "\uFEFFann\nbot-*\n*", "a*b\n\\*\n\xff", "::ffff:1.2.3.4/100\n1.2.3.4\n1.2.3.4/32"} {
		f.Add([]byte(text), true)
		f.Add([]byte(text), false)
	}
	f.Fuzz(func(t *testing.T, text []byte, addresses bool) {
		shown := "deny: {user: {file: l}}\nrules: []"
		if addresses {
			shown = "deny: {client.ip: {file: l}}\nrules: []"
		}
		option := rules.WithFiles(func(string) ([]byte, error) { return text, nil })
		set, _, err := rules.Lint("f", []byte(shown), option)
		var list *rules.Error
		if errors.As(err, &list) {
			lines := strings.Count(string(text), "\n") + 1
			for _, p := range list.Problems {
				if p.File == "f" && p.Line != 1 || p.File == "l" && (p.Line < 1 || p.Line > lines) || p.Column < 1 {
					t.Fatalf("%+v", p)
				}
			}
			_ = list.Error()
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		file, err := rules.Parse("f", []byte(shown), option)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rules.Compile(file); err != nil {
			t.Fatalf("Parse took what Compile refuses: %v", err)
		}
		set.Listed(&rules.Request{User: "ann", Client: netip.MustParseAddr("192.0.2.1")})
	})
}
