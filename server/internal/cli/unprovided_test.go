package cli_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

const (
	loginByUser = "rules: [{name: login-user, match: {path: /login}, key: [user], limit: 3/1h}]\n"
	loginByBody = "rules: [{name: login-user, match: {path: /login}, key: [body.username], limit: sliding_log 3/1h}]\n"
)

// TestKeysThatNoFrontEndKnowsAreNotAccepted: at the start, by a reload, and in weir check.
func TestKeysThatNoFrontEndKnowsAreNotAccepted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	user, body := write(t, dir, "user.yaml", loginByUser), write(t, dir, "body.yaml", loginByBody)
	described := write(t, dir, "described.yaml", "rules: [{name: a, key: [descriptor.a], limit: 3/1h}]\n")
	gateway := []string{"--upstream", "demo", "--gateway", "127.0.0.1:0"}
	for _, test := range []struct {
		args []string
		want string
	}{
		{append([]string{"--config", user}, gateway...), "rule login-user counts by user, which the gateway does not know"},
		{append([]string{"--config", user, "--set", "server.user_header=X-User"}, gateway...), "counts by user"},
		{append([]string{"--config", described}, gateway...), "rule a counts by descriptor.a"},
		{[]string{"--config", body, "--http", "off", "--resp", "127.0.0.1:0"}, "Redis clients do not know bodies"},
	} {
		http := []string{"serve", "--http", "127.0.0.1:0"}
		if slices.Contains(test.args, "--http") {
			http = http[:1]
		}
		if r := (call{}).run(t, append(http, test.args...)...); r.code == 0 || !strings.Contains(r.err, test.want) {
			t.Errorf("%v: want %q:\n%v", test.args, test.want, r)
		}
	}
	for file, want := range map[string]string{user: "rule login-user counts by user", body: "callers of the HTTP API pass them", described: "descriptor.a"} {
		if r := (call{}).run(t, "check", file); !strings.Contains(r.out, "note: "+file+": ") || !strings.Contains(r.out, want) {
			t.Error(r)
		}
	}
	changing := write(t, dir, "changing.yaml", loginByBody)
	p := call{}.serve(t, append([]string{"--config", changing}, gateway...)...)
	login := func(name string) (status int) {
		r, err := http.PostForm(p.at("gateway")+"/login", url.Values{"username": {name}, "password": {"x"}})
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		return r.StatusCode
	}
	for i, want := range []int{200, 200, 200, 429} {
		if got := login("mallory"); got != want {
			t.Errorf("login %d: %d, want %d", i, got, want)
		}
	}
	if got := login("ann"); got != 200 {
		t.Errorf("another user: %d", got)
	}
	write(t, dir, "changing.yaml", loginByUser)
	if got, _, text := post(t, p.at("http")+"/-/reload", ""); got != 422 || !strings.Contains(text, "counts by user") {
		t.Errorf("reload: %d %s", got, text)
	}
	p.end()
}

// TestKeysThatSomethingProvidesFor: by a header, on_missing or match, and without a gateway by callers of the API.
func TestKeysThatSomethingProvidesFor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	user := write(t, dir, "user.yaml", loginByUser)
	skipped := write(t, dir, "skipped.yaml", strings.Replace(loginByUser, "key:", "on_missing: skip, key:", 1))
	matched := write(t, dir, "matched.yaml", strings.Replace(loginByUser, "path: /login", "user: ann", 1))
	gateway := []string{"--upstream", "demo", "--gateway", "127.0.0.1:0"}
	body := write(t, dir, "body.yaml", loginByBody)
	for _, args := range [][]string{{"--config", user}, {"--config", body}, append([]string{"--config", skipped}, gateway...), append([]string{"--config", matched}, gateway...),
		append([]string{"--config", user, "--set", "server.user_header=X-User", "--trusted-proxies", "127.0.0.1"}, gateway...)} {
		call{}.serve(t, args...).end()
	}
}
