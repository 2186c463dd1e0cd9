package cli_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// An entry is one request of a log.
type entry struct {
	client         netip.Addr
	method, target string
}

// madeTraffic is of a few busy addresses and many that appear once, IPv4 and IPv6.
func madeTraffic() (list []entry) {
	random := rand.New(rand.NewPCG(1, 0))
	crowd, pages := rand.NewZipf(random, 1.1, 4, 2000), rand.NewZipf(random, 1.2, 1, 300)
	for range 10_000 {
		e, n, page := entry{method: "GET"}, crowd.Uint64(), pages.Uint64()
		e.client = netip.AddrFrom4([4]byte{10, 20, byte(n >> 8), byte(n)})
		if n%10 == 9 {
			e.client = netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, byte(n >> 8), byte(n), 15: 1})
		}
		if odd := random.IntN(50); odd < 2 {
			e.method = []string{"POST", "HEAD"}[odd]
		}
		e.target = fmt.Sprintf([]string{"/presentations/%d/images/page.png", "/blog/tags/year%%20%d", "/images/%d.png",
			"/?flav=rss20&n=%d"}[page%4], page)
		list = append(list, e)
	}
	return list
}

const trafficRules = `
server:
  trusted_proxies: [127.0.0.1]
rules:
  - {name: per-ip, key: [client.ip v6/128], limit: fixed_window 20/1d}
  - {name: images, match: {path: /images/**}, key: [client.ip v6/128], limit: sliding_log 4/1d}
  - {name: talks, match: {method: GET, path: /presentations/**}, limit: fixed_window 1500/1d}
  - {name: writes, match: {method: [POST, OPTIONS]}, limit: sliding_log 3/1d}
`

// recount is what the rules say, without any of weir's code: all that matter of a request,
// by name, and how much of each there is.
func recount(e *entry) map[string]int {
	path, _, _ := strings.Cut(e.target, "?")
	limits := map[string]int{"ip " + e.client.String(): 20}
	if path == "/images" || strings.HasPrefix(path, "/images/") {
		limits["images "+e.client.String()] = 4
	}
	// A rule of GET counts HEAD too.
	if (e.method == "GET" || e.method == "HEAD") && (path == "/presentations" || strings.HasPrefix(path, "/presentations/")) {
		limits["talks"] = 1500
	}
	if e.method == "POST" || e.method == "OPTIONS" {
		limits["writes"] = 3
	}
	return limits
}

// TestTraffic sends a day's traffic through the gateway, as a trusted proxy would. The
// refused requests are those that a plain recount refuses.
func TestTraffic(t *testing.T) {
	t.Parallel()
	testTraffic(t, madeTraffic())
}

func testTraffic(t *testing.T, log []entry) {
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
	for i, entry := range log {
		want, limits := http.StatusOK, recount(&entry)
		for name, most := range limits {
			if used[name] >= most {
				want = http.StatusTooManyRequests
			}
		}
		if got := resend(t, gateway, &entry); got != want {
			t.Fatalf("request %d, %s %s of %v: %d, the recount says %d", i+1, entry.method, entry.target, entry.client, got, want)
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
func resend(t *testing.T, gateway *url.URL, e *entry) int {
	t.Helper()
	target := *gateway
	target.Opaque = e.target
	request := (&http.Request{Method: e.method, URL: &target, Host: "example.com", Header: http.Header{
		"X-Forwarded-For": {"198.51.100.1, " + e.client.String()}}}).WithContext(t.Context())
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
