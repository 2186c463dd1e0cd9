package cli_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/accesslog"
)

// publicLog is a real access log that lies beside the project where its authors work. It
// belongs to others and is not part of it.
const publicLog = "../../../shared/data/apache-combined-2015.log"

// traffic reads a log.
func traffic(t *testing.T, text []byte) (list []accesslog.Entry) {
	t.Helper()
	for entry, err := range accesslog.Read(bytes.NewReader(text)) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, entry)
	}
	return list
}

const trafficRules = `
trusted_proxies: [127.0.0.1]
rules:
  - {name: per-ip, key: [client.ip v6/128], limit: fixed_window 20/1d}
  - {name: images, match: {path: /images/**}, key: [client.ip v6/128], limit: sliding_log 4/1d}
  - {name: talks, match: {method: GET, path: /presentations/**}, limit: fixed_window 1500/1d}
  - {name: writes, match: {method: [POST, OPTIONS]}, limit: sliding_log 3/1d}
`

// recount is what the rules say, without any of weir's code: all that matter of a request,
// by name, and how much of each there is.
func recount(e *accesslog.Entry) map[string]int {
	path, _, _ := strings.Cut(e.Target, "?")
	limits := map[string]int{"ip " + e.Client.String(): 20}
	if path == "/images" || strings.HasPrefix(path, "/images/") {
		limits["images "+e.Client.String()] = 4
	}
	// A rule of GET counts HEAD too. The public log has no HEAD of a talk.
	if (e.Method == "GET" || e.Method == "HEAD") && (path == "/presentations" || strings.HasPrefix(path, "/presentations/")) {
		limits["talks"] = 1500
	}
	if e.Method == "POST" || e.Method == "OPTIONS" {
		limits["writes"] = 3
	}
	return limits
}

// TestTraffic sends a day's traffic through the gateway, as a trusted proxy would. What
// is refused is what a plain recount refuses, request by request.
func TestTraffic(t *testing.T) {
	t.Parallel()
	t.Run("generated", func(t *testing.T) {
		t.Parallel()
		var text bytes.Buffer
		if err := accesslog.Generate(&text, 1, 10_000); err != nil {
			t.Fatal(err)
		}
		testTraffic(t, text.Bytes())
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		text, err := os.ReadFile(publicLog)
		if os.IsNotExist(err) {
			t.Skip("the log is not here")
		}
		if err != nil {
			t.Fatal(err)
		}
		testTraffic(t, text)
	})
}

func testTraffic(t *testing.T, text []byte) {
	served := 0
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	defer upstream.Close()
	dir := t.TempDir()
	p := call{dir: dir}.serve(t, "--config", write(t, dir, "rules.yaml", trafficRules), "--gateway", "127.0.0.1:0", "--upstream", upstream.URL)
	gateway, err := url.Parse(p.at("gateway"))
	if err != nil {
		t.Fatal(err)
	}
	used, passed, refused := make(map[string]int), 0, 0
	for i, entry := range traffic(t, text) {
		want, limits := http.StatusOK, recount(&entry)
		for name, most := range limits {
			if used[name] >= most {
				want = http.StatusTooManyRequests
			}
		}
		if got := resend(t, gateway, &entry); got != want {
			t.Fatalf("request %d, %s %s of %v: %d, the recount says %d", i+1, entry.Method, entry.Target, entry.Client, got, want)
		}
		if want != http.StatusOK {
			refused++
			continue
		}
		passed++
		for name := range limits {
			used[name]++
		}
	}
	t.Logf("%d passed, %d were refused", passed, refused)
	if passed < 1000 || refused < 1000 || served != passed {
		t.Errorf("%d passed, %d were refused, the upstream served %d", passed, refused, served)
	}
	p.end()
}

// resend sends a request of the log: the target to the letter, the client in the header of
// a proxy, and left of it an address that the client made up.
func resend(t *testing.T, gateway *url.URL, e *accesslog.Entry) int {
	t.Helper()
	target := *gateway
	target.Opaque = e.Target
	request := (&http.Request{Method: e.Method, URL: &target, Host: "example.com", Header: http.Header{
		"X-Forwarded-For": {"198.51.100.1, " + e.Client.String()}, "User-Agent": {e.Agent}}}).WithContext(t.Context())
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode
}
