package cli_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

func TestVerifyProxySaysWhatPasses(t *testing.T) {
	t.Parallel()
	var served atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if served.Add(1) > 2 && r.Method != "PURGE" {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--methods " + server.URL, 1, "PASSED with 200: method PURGE\n"},
		{server.URL, 0, "requests passed beyond the limit"},
		{"--timeout 1ns " + server.URL, 1, "--timeout of 1ns"},
		{"--key sid " + server.URL, 2, "cookie.NAME"},
		{"ftp://127.0.0.1/", 2, "no URL of a proxy"},
		{"", 2, "name the URL"},
	} {
		r := call{}.run(t, append([]string{"verify-proxy"}, strings.Fields(c.args)...)...)
		if r.code != c.code || !strings.Contains(r.out+r.err, c.want) {
			t.Errorf("%q: %d %s%s, want %d %s", c.args, r.code, r.out, r.err, c.code, c.want)
		}
	}
}
