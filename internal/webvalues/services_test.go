package webvalues_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/servicekind"
	"github.com/weirproject/weir/internal/webvalues"
)

// read runs a program that reads a JSON array of texts, and writes the value that it finds in each.
func read(t *testing.T, texts []string, debian, name string, args ...string) (values []string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is not here; install it: apt-get install %s", name, debian)
	}
	input, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), path, args...)
	command.Stdin = strings.NewReader(string(input))
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if err := json.Unmarshal(output, &values); err != nil || len(values) != len(texts) {
		t.Fatalf("%v: %d values of %d: %.500s", err, len(values), len(texts), output)
	}
	return values
}

// around puts pairs beside each other.
func around(pairs []string, by, plain string) (texts []string) {
	for _, pair := range pairs {
		texts = append(texts, pair, plain+by+pair, pair+by+plain, "a=b"+by+pair)
	}
	return texts
}

// pairsOfNames are parameters with the victim, by names that services may read as user_id.
func pairsOfNames() (pairs []string) {
	separators := []string{"_", ".", "+", "%20", "[", "%5b", "%5f", "%2e", "-", "%00", "]"}
	affixes := []string{"", "+", "%20", ".", "_", "[", "[]", "[a]", "%00", "%00x", "%09", "%0a", "]"}
	for _, separator := range separators {
		for _, before := range affixes {
			for _, after := range affixes {
				pairs = append(pairs, before+"user"+separator+"id"+after+"=victim")
			}
		}
	}
	return pairs
}

// TestParametersAsPHPReadsThem: a key that PHP reads as the victim's is counted as the victim's, or refused.
func TestParametersAsPHPReadsThem(t *testing.T) {
	texts := around(pairsOfNames(), "&", "user_id=other")
	const program = `$r = []; foreach (json_decode(stream_get_contents(STDIN)) as $q) { parse_str($q, $v);
		$v = $v["user_id"] ?? ""; while (is_array($v)) $v = reset($v); $r[] = (string)$v; } echo json_encode($r);`
	notEvadedByQuery(t, "php", texts, read(t, texts, "php-cli", "php", "-d", "max_input_vars=10", "-r", program))
}

// notEvadedByQuery fails the test where a service of the kind reads the victim, and weir another value.
func notEvadedByQuery(t *testing.T, kind string, texts, values []string) {
	t.Helper()
	victims := 0
	for i, value := range values {
		if value != "victim" {
			continue
		}
		victims++
		for _, kind := range []string{"", kind} {
			r := webvalues.Request{RawQuery: texts[i], Kind: kind}
			if r.Query("user_id") != value && !r.Doubtful("query", "user_id") {
				t.Errorf("the service reads the victim in %q, and weir (%q) %q", texts[i], kind, r.Query("user_id"))
			}
		}
	}
	if victims == 0 {
		t.Errorf("the service reads no victim in %d texts", len(texts))
	}
}

// TestParametersAsOthersReadThem: likewise of the standard libraries of Python, Node and Go.
func TestParametersAsOthersReadThem(t *testing.T) {
	texts := around(pairsOfNames(), "&", "user_id=other")
	const python = `
import json, sys, urllib.parse
def value(text):
    return urllib.parse.parse_qs(text, encoding="latin-1").get("user_id", [""])[-1]
print(json.dumps([value(text) for text in json.load(sys.stdin)]))`
	notEvadedByQuery(t, "python", texts, read(t, texts, "python3", "python3", "-c", python))
	const node = `const last = (text) => new URLSearchParams(text).getAll("user_id").pop() ?? "";
		console.log(JSON.stringify(JSON.parse(require("fs").readFileSync(0)).map(last)))`
	notEvadedByQuery(t, "node", texts, read(t, texts, "nodejs", "node", "-e", node))
	var values []string
	for _, text := range texts {
		all, _ := url.ParseQuery(text) // Query ignores the error too
		last := ""
		if list := all["user_id"]; len(list) > 0 {
			last = list[len(list)-1]
		}
		values = append(values, last)
	}
	notEvadedByQuery(t, "go", texts, values)
}

// TestKindsOfServices: a spelling is refused where the kind reads it otherwise, and nowhere else.
func TestKindsOfServices(t *testing.T) {
	for _, c := range []struct{ what, name, text, refused string }{
		{"query", "user_id", "user_id=a&user.id=b", "|php"},
		{"query", "user_id", "user_id=a&+user_id=b", "|php"},
		{"query", "user_id", "user_id=a&user_id%00=b", "|php"},
		{"query", "user_id", "user_id=a&User_ID=b", "|aspnet"},
		{"query", "user_id", "user_id=a&user_id[]=b", "|php|aspnet|node"},
		{"query", "user_id", "user_id=a&user_id=b", "|php|python|servlet|aspnet|node|go"},
		{"query", "user_id", "user_id=a&user-id=b", ""},
		{"cookie", "s_id", "s_id=a b=1", "|python|servlet|aspnet"},
		{"cookie", "s_id", "x=1, s_id=a", "|python|servlet|aspnet"},
		{"cookie", "s_id", "s_id=a; s.id=b", "|php"},
		{"cookie", "s_id", "s_id=a; S_ID=b", "|aspnet"},
		{"cookie", "s_id", "s_id=a; s_id=b", "|php|python|servlet|aspnet|node|go"},
		{"cookie", "s_id", "s_id=a; other=b", ""},
	} {
		for _, kind := range servicekind.Names() {
			r := webvalues.Request{RawQuery: c.text, Fields: http.Header{"Cookie": {c.text}}, Kind: kind}
			want := strings.Contains(c.refused+"|", "|"+kind+"|") || kind == "" && c.refused != ""
			if got := r.Doubtful(c.what, c.name); got != want {
				t.Errorf("%q: %s %q is doubtful: %v, want %v", kind, c.what, c.text, got, want)
			}
		}
	}
}

// notEvadedByCookie is notEvadedByQuery for cookies.
func notEvadedByCookie(t *testing.T, kind string, texts, values []string) {
	t.Helper()
	for i, value := range values {
		for _, kind := range []string{"", kind} {
			r := webvalues.Request{Fields: http.Header{"Cookie": {texts[i]}}, Kind: kind}
			if value == "victim" && r.Cookie("sid") != value && !r.Doubtful("cookie", "sid") {
				t.Errorf("the service reads the victim in %q, and weir (%q) %q", texts[i], kind, r.Cookie("sid"))
			}
		}
	}
}

// TestCookiesAsServicesReadThem: likewise of http.cookies, which Bottle, web.py and others use, and of net/http.
func TestCookiesAsServicesReadThem(t *testing.T) {
	var pairs []string
	bytes := []string{"", " ", ",", "\t", "\"", ";", "=", ":", "\\", "$", "/", "[", "%00"}
	for _, before := range bytes {
		for _, after := range bytes {
			for _, rest := range []string{"", "y", "y=1", "sid=other", "\""} {
				pairs = append(pairs, before+"sid=victim"+after+rest, "a=b"+before+"sid=victim"+after+rest, "sid"+before+"=victim"+after+rest)
			}
		}
	}
	texts := around(pairs, "; ", "sid=other")
	const program = `
import http.cookies, json, sys
def value(text):
    jar = http.cookies.SimpleCookie()
    try: jar.load(text)
    except http.cookies.CookieError: return ""
    return jar["sid"].value if "sid" in jar else ""
print(json.dumps([value(text) for text in json.load(sys.stdin)]))`
	notEvadedByCookie(t, "python", texts, read(t, texts, "python3", "python3", "-c", program))
	var values []string
	for _, text := range texts {
		r := http.Request{Header: http.Header{"Cookie": {text}}}
		last := ""
		for _, cookie := range r.CookiesNamed("sid") {
			last = cookie.Value
		}
		values = append(values, last)
	}
	notEvadedByCookie(t, "go", texts, values)
}
