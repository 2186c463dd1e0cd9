package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/rules"
)

const spelled = `
rules:
  - {name: login, match: {path: /Login}, limit: 1/1s}
  - {name: api, match: {path: /api/}, limit: 1/1s}
  - {name: user, match: {path: "/Users/{Id}/"}, key: [path.Id], limit: 1/1s, allow: {path.Id: Demo}}
  - {name: escaped, match: {path: /%4C%3A}, limit: 1/1s}
`

// A server brings paths to the form before rules see them; the patterns must have it too.
func TestPatternsHaveTheFormOfPaths(t *testing.T) {
	for _, tt := range []struct{ form, path, want string }{
		{"strict", "/Login", "login"}, {"strict", "/login", ""}, {"strict", "/api/", "api"}, {"strict", "/api", ""}, {"strict", "/L:", "escaped"},
		{"ignore-case", "/Login", "login"}, {"ignore-case", "/login", "login"}, {"ignore-case", "/API/", "api"}, {"ignore-case", "/API", ""},
		{"ignore-case", "/L%3a", "escaped"}, {"ignore-case", "/users/7/", "user"},
		{"drop-trailing-slash", "/Login/", "login"}, {"drop-trailing-slash", "/api/", "api"}, {"drop-trailing-slash", "/api", "api"},
		{"drop-trailing-slash", "/Login/;x", "login"}, {"drop-trailing-slash", "/Users/7", "user"},
		{"ignore-case, drop-trailing-slash", "/LOGIN/", "login"}, {"ignore-case, drop-trailing-slash", "/USERS/DEMO/", "user (allowed)"},
	} {
		set := compiled(t, "server: {path_form: ["+tt.form+"]}"+spelled)
		path, err := set.PathForm().Path(tt.path)
		if err != nil {
			t.Fatal(err)
		}
		request := &rules.Request{Path: path}
		found := set.Match(request, nil)
		got := names(found)
		if len(found) == 1 && found[0].Listed(request) == rules.Allowed {
			got += " (allowed)"
		}
		if got != tt.want {
			t.Errorf("%s: %s is matched by %q, want %q", tt.form, tt.path, got, tt.want)
		}
	}
}

// Servlet containers serve all of these as /login, and the last ones as /users/7/x.
func TestParametersOfPathsAreNotMatched(t *testing.T) {
	set := compiled(t, `
rules:
  - {name: login, match: {path: /login}, limit: 1/1s}
  - {name: user, match: {path: "/users/{id}/*"}, key: [path.id], limit: 1/1s}
  - {name: sign, match: {path: /a%3Bb}, limit: 1/1s}
  - {name: root, match: {path: /}, limit: 1/1s}
`)
	for path, want := range map[string]string{
		"/login;": "login", "/login;a": "login", "/login;a=b;c": "login", "/;/login": "login", "/;x/;y/login;z": "login", "/login;a/": "",
		"/a%3Bb": "sign", "/a%3bb;c": "sign", "/a;b": "", "/;": "root", "/;a": "root",
		"/users/7;x/x": "user 7", "/users;y/;z/7/x;": "user 7", "/users/;7/x": "",
	} {
		formed, err := pathform.Form{}.Path(path)
		if err != nil {
			t.Fatal(err)
		}
		request := &rules.Request{Path: formed}
		found := set.Match(request, nil)
		got := names(found)
		if got == "user" {
			key, _ := found[0].AppendKey(nil, request)
			got += " " + string(key[len("path.id=1:"):])
		}
		if got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestAPathWithParametersIsNoPattern(t *testing.T) {
	_, err := rules.Parse("f", []byte("rules: [{name: a, match: {path: /a;b}, limit: 1/1s}]"))
	if err == nil || !strings.Contains(err.Error(), "%3B") {
		t.Errorf("got %v", err)
	}
}

func TestPathFormWords(t *testing.T) {
	for _, word := range pathform.Words() {
		form, err := pathform.Parse([]string{word})
		if err != nil || form.String() != word || (form == pathform.Form{}) != (word == pathform.Strict) {
			t.Errorf("%s: %v %v", word, form, err)
		}
	}
	for _, text := range []string{"loose", "[strict, ignore-case]", `""`} {
		_, err := rules.Parse("f", fmt.Appendf(nil, "server: {path_form: %s}\nrules: []", text))
		if err == nil || !strings.Contains(err.Error(), "path_form") {
			t.Errorf("%s: %v", text, err)
		}
	}
	form := pathform.Form{RefuseParameters: true}
	for path, good := range map[string]bool{"/a;b": false, "/;": false, "/a%3Bb": true, "/a": true} {
		if _, err := form.Path(path); (err == nil) != good {
			t.Errorf("%s: %v", path, err)
		}
	}
}
