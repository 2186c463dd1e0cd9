package proxycheck_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirproject/weir/server/internal/proxycheck"
)

// proxy serves three requests, and after that those that leak.
func proxy(t *testing.T, leaks func(*http.Request) bool) *httptest.Server {
	t.Helper()
	var served atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if served.Add(1) > 3 && !leaks(r) {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

func check(t *testing.T, server *httptest.Server, keys ...[]string) (*proxycheck.Report, error) {
	t.Helper()
	target, err := url.Parse(server.URL + "/a")
	if err != nil {
		t.Fatal(err)
	}
	return proxycheck.Run(t.Context(), proxycheck.Config{URL: target, Method: "GET", Methods: true, Keys: keys, Most: 10})
}

func TestWhatPassesIsNamed(t *testing.T) {
	leaks := map[string]func(*http.Request) bool{
		"a field of 8100 bytes": func(r *http.Request) bool { return len(r.Header.Get("X-A")) == 8100 },
		"98 fields":             func(r *http.Request) bool { return len(r.Header) == 100 },
		"a host of 8200 bytes":  func(r *http.Request) bool { return len(r.Host) == 8200 },
		"method PROPFIND":       func(r *http.Request) bool { return r.Method == "PROPFIND" },
		`target "/./a"`:         func(r *http.Request) bool { return strings.HasPrefix(r.RequestURI, "/./a") },
		"byte 0xff in a cookie": func(r *http.Request) bool {
			return strings.HasSuffix(strings.Join(r.Header["Cookie"], ","), ",a=\xff")
		},
		`field "X-Forwarded-For: 203.0.113.9"`: func(r *http.Request) bool {
			return r.Header.Get("X-Forwarded-For") == "203.0.113.9"
		},
		`query "a_b=x&a.b=verify" (PHP reads dots, blanks and brackets as underscores)`: func(r *http.Request) bool {
			return r.URL.Query().Has("a.b")
		},
		`cookie "sid=verify y=1" (Python's http.cookies ends a value at a blank)`: func(r *http.Request) bool {
			return strings.Contains(r.Header.Get("Cookie"), " y=1")
		},
	}
	report, err := check(t, proxy(t, func(r *http.Request) bool {
		for _, leak := range leaks {
			if leak(r) {
				return true
			}
		}
		return false
	}), []string{"cookie.sid"}, []string{"query.a_b"})
	if err != nil {
		t.Fatal(err)
	}
	var passed []string
	for _, one := range report.Passed {
		passed = append(passed, one.Name)
	}
	slices.Sort(passed)
	if want := slices.Sorted(maps.Keys(leaks)); !slices.Equal(passed, want) {
		t.Errorf("%q pass, want %q", passed, want)
	}
	if report.Plain != 3 || report.Served != 200 || report.Refused != 429 || report.Sent < 2000 {
		t.Errorf("%+v", report)
	}
}

func TestNothingPassesAnHonestProxy(t *testing.T) {
	report, err := check(t, proxy(t, func(*http.Request) bool { return false }), []string{"header.X-Key"})
	if err != nil || len(report.Passed) > 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestSpellingsStandAlone: a limit by another key that is used up would refuse the spellings too.
func TestSpellingsStandAlone(t *testing.T) {
	counts := make(map[string]*atomic.Int64)
	for _, key := range []string{"verify", "verify y=1"} {
		counts[key] = new(atomic.Int64)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sid, _ := strings.CutPrefix(r.Header.Get("Cookie"), "sid=")
		if strings.Contains(r.URL.RawQuery, "user=verify") || counts[sid] == nil || counts[sid].Add(1) > 3 {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	t.Cleanup(server.Close)
	report, err := check(t, server, []string{"cookie.sid"}, []string{"query.user"})
	if err != nil || len(report.Passed) != 1 || !strings.HasPrefix(report.Passed[0].Name, `cookie "sid=verify y=1"`) {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestNoReportWithoutALimit(t *testing.T) {
	if _, err := check(t, proxy(t, func(*http.Request) bool { return true })); err == nil || !strings.Contains(err.Error(), "small limit") {
		t.Error(err)
	}
}

// TestAProxyThatEndsIsNamed: HAProxy 2.6 did at 97 fields.
func TestAProxyThatEndsIsNamed(t *testing.T) {
	t.Parallel()
	var server *httptest.Server
	server = proxy(t, func(r *http.Request) bool {
		if len(r.Header) > 96 {
			server.Listener.Close()
		}
		return false
	})
	report, err := check(t, server)
	if err == nil || !strings.Contains(err.Error(), "does not accept connections") {
		t.Errorf("%+v, %v", report, err)
	}
}
