package webvalues_test

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"testing"

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

// TestParametersAsPHPReadsThem: a key that PHP reads as the victim's is counted as the victim's, or refused.
func TestParametersAsPHPReadsThem(t *testing.T) {
	var pairs []string
	separators := []string{"_", ".", "+", "%20", "[", "%5b", "%5f", "%2e", "-", "%00", "]"}
	affixes := []string{"", "+", "%20", ".", "_", "[", "[]", "[a]", "%00", "%00x", "%09", "%0a", "]"}
	for _, separator := range separators {
		for _, before := range affixes {
			for _, after := range affixes {
				pairs = append(pairs, before+"user"+separator+"id"+after+"=victim")
			}
		}
	}
	texts := around(pairs, "&", "user_id=other")
	const program = `$r = []; foreach (json_decode(stream_get_contents(STDIN)) as $q) { parse_str($q, $v);
		$v = $v["user_id"] ?? ""; while (is_array($v)) $v = reset($v); $r[] = (string)$v; } echo json_encode($r);`
	for i, value := range read(t, texts, "php-cli", "php", "-d", "max_input_vars=10", "-r", program) {
		r := webvalues.Request{RawQuery: texts[i]}
		if value == "victim" && r.Query("user_id") != value && !r.Doubtful("query", "user_id") {
			t.Errorf("PHP reads the victim in %q, and weir %q", texts[i], r.Query("user_id"))
		}
	}
}

// TestCookiesAsPythonReadsThem: likewise of http.cookies, which Bottle, web.py and others use.
func TestCookiesAsPythonReadsThem(t *testing.T) {
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
	for i, value := range read(t, texts, "python3", "python3", "-c", program) {
		r := webvalues.Request{Fields: http.Header{"Cookie": {texts[i]}}}
		if value == "victim" && r.Cookie("sid") != value && !r.Doubtful("cookie", "sid") {
			t.Errorf("Python reads the victim in %q, and weir %q", texts[i], r.Cookie("sid"))
		}
	}
}
