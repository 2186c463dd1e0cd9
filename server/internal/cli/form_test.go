package cli_test

import (
	"net/http"
	"strings"
	"testing"
)

// statuses are those of requests for paths, one after the other.
func statuses(t *testing.T, base string, method string, paths ...string) (list []int) {
	t.Helper()
	for _, path := range paths {
		request, err := http.NewRequestWithContext(t.Context(), method, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		list = append(list, response.StatusCode)
	}
	return list
}

func TestTheFormOfPathsDisablesNoRule(t *testing.T) {
	t.Parallel()
	const text = "rules: [{name: login, match: {path: /Login}, limit: fixed_window 2/1h}, {name: api, match: {path: /api/}, limit: fixed_window 1/1h}]\n"
	for name, tt := range map[string]struct{ text, flag string }{
		"in the file": {"server: {path_form: [ignore-case, drop-trailing-slash]}\n" + text, ""},
		"by the flag": {text, "ignore-case,drop-trailing-slash"},
		"by both":     {"server: {path_form: [ignore-case, drop-trailing-slash]}\n" + text, "drop-trailing-slash,ignore-case"},
	} {
		file := write(t, t.TempDir(), "weir.yaml", tt.text)
		arguments := []string{"--config", file}
		if tt.flag != "" {
			arguments = append(arguments, "--set", "server.path_form="+tt.flag)
		}
		p := gatewayBy(t, arguments...)
		got := statuses(t, p.at("gateway"), "GET", "/Login", "/login/", "/LOGIN;x", "/api/", "/api")
		if want := []int{200, 200, 429, 200, 429}; !equalInts(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		// A change of the form takes effect at the next start: until then patterns keep it as well.
		if tt.flag == "" {
			replace(t, file, strings.Replace(tt.text, "ignore-case, ", "", 1))
			p.logged("path_form changed: takes effect at the next start")
			if got := statuses(t, p.at("gateway"), "GET", "/LOGIN", "/login"); !equalInts(got, []int{429, 429}) {
				t.Errorf("%s: after the change %v", name, got)
			}
		}
		p.end()
	}
	file := write(t, t.TempDir(), "weir.yaml", "server: {path_form: ignore-case}\n"+text)
	r := call{}.run(t, "explain", "--config", file, "--set", "server.path_form=strict", "--path", "/")
	if r.code != 0 {
		t.Error(r)
	}
}

func equalInts(a, b []int) bool {
	for i := range a {
		if len(a) != len(b) || a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

func TestMethodsThatAreNotRegisteredAreRefusedAtTheGateway(t *testing.T) {
	t.Parallel()
	const text = "rules: [{name: login, match: {method: POST}, limit: fixed_window 1/1h}]\n"
	file := write(t, t.TempDir(), "weir.yaml", text)
	for _, tt := range []struct {
		arguments []string
		want      []int
	}{{nil, []int{400, 400, 400}}, {[]string{"--set", "server.any_method=true"}, []int{200, 429, 200}}} {
		p := gatewayBy(t, append([]string{"--config", file}, tt.arguments...)...)
		var got []int
		for _, method := range []string{"post", "pOST", "BREW"} {
			got = append(got, statuses(t, p.at("gateway"), method, "/")...)
		}
		if !equalInts(got, tt.want) {
			t.Errorf("%v: %v, want %v", tt.arguments, got, tt.want)
		}
		p.end()
	}
}

func TestExplainSaysWhichSpellingsARuleSees(t *testing.T) {
	t.Parallel()
	file := write(t, t.TempDir(), "weir.yaml", "server: {path_form: strict}\nrules: [{name: login, match: {path: /login}, limit: fixed_window 2/1h}]\n")
	for path, want := range map[string]string{
		"/login;x": "the upstream gets its parameters (;); rules see /login\n",
		"/login/":  "path is /login/, not /login; they are equal with path_form: drop-trailing-slash",
		"/Login":   "path is /Login, not /login; they are equal with path_form: ignore-case",
		"/login":   "fixed_window 2/1h  up to 3 in any 1 h  2 left",
	} {
		if r := (call{}).run(t, "explain", "--config", file, "--path", path); !strings.Contains(r.out, want) {
			t.Errorf("%s: %s", path, r.out)
		}
	}
}

func TestCheckOfADirectoryWarnsAcrossItsFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "a.yaml", "rules: [{name: all, key: [client.ip], limit: 5/1m}]\n")
	write(t, dir, "b.yaml", "rules: [{name: api, match: {path: /api/**}, key: [client.ip], limit: 100/1m}, {name: twice, key: [user], limit: [5/1m, 9/1m]}]\n")
	r := call{}.run(t, "check", dir)
	want := "warning: " + dir + ": rule api.name: the rule never decides: rule (all) counts its requests and others"
	if r.code != 3 || strings.Count(r.out, "warning:") != 2 || !strings.Contains(r.out, want) {
		t.Error(r)
	}
}

func TestRulesListTellsTheModeAndTheAlgorithm(t *testing.T) {
	t.Parallel()
	file := write(t, t.TempDir(), "weir.yaml", "rules: [{name: tried, algorithm: sliding_log, limit: [5/1m, 20/1h], mode: shadow}]\n")
	p := call{}.serve(t, "--http", "127.0.0.1:0", "--gateway", "off", "--config", file)
	r := call{}.run(t, "rules", "list", "--server", p.at("http"))
	if !strings.Contains(r.out, "tried  sliding_log 5/1m, 20/1h  shadow ") {
		t.Error(r)
	}
	p.end()
}
