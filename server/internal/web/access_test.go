package web_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirproject/weir/server/internal/web"
)

func TestLoopbackNames(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost:8080": true, "LOCALHOST": true, "localhost.": true, "127.0.0.1:1": true, "127.0.0.2": true,
		"[::1]:8080": true, "[::1]": true, "[::ffff:127.0.0.1]:80": true,
		"evil.example": false, "": false, "localhost.evil.example": false, "127.0.0.1.nip.io:80": false,
		"192.0.2.1": false,
	} {
		if web.IsLoopback(host) != want {
			t.Errorf("%q: want %v", host, want)
		}
	}
}

func TestInvalidTokensAreRefused(t *testing.T) {
	for _, bad := range []web.Token{
		{Secret: ""}, {Secret: "short"}, {Secret: strings.Repeat("x", 15)}, {Secret: "a token that has spaces"},
		{Name: "a\nb", Secret: "a-token-that-writes"}, {Name: strings.Repeat("a", 101), Secret: "a-token-that-writes"},
	} {
		if _, err := web.NewAccess(web.Config{Tokens: []web.Token{bad}}); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

func TestTokensIdentifyCallers(t *testing.T) {
	unknown := 0
	access, err := web.NewAccess(web.Config{Tokens: []web.Token{
		{Name: "reader", Secret: "the-first-of-tokens"}, {Name: "writer", Secret: "the-second-of-tokens", Write: true},
	}, Unknown: func(peer string) {
		if unknown++; peer != "192.0.2.1:1234" { // httptest's
			t.Errorf("the peer is %q", peer)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		authorization, caller string
		writes                bool
		status                int
	}{
		{"Bearer the-first-of-tokens", "reader", false, 0},
		{"bearer  the-second-of-tokens", "writer", true, 0},
		{"Bearer the-first-of-tokens", "", true, 403},
		{"Bearer the-second-of-token", "", false, 401},
		{"Basic the-second-of-tokens", "", false, 401},
		{"Bearer ", "", false, 401},
		{"", "", false, 401},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", test.authorization)
		caller, err := access.Identify(r, test.writes)
		status := 0
		if p, ok := err.(*web.Problem); ok {
			status = p.Status
		}
		if caller != test.caller || status != test.status {
			t.Errorf("%q, writes %v: %q %v, want %q %d", test.authorization, test.writes, caller, err, test.caller,
				test.status)
		}
	}
	if unknown != 2 {
		t.Errorf("%d tokens were not known, want 2", unknown)
	}
	_, err = access.Identify(httptest.NewRequest(http.MethodGet, "/", nil), false)
	if p, ok := err.(*web.Problem); !ok || !strings.HasPrefix(p.Detail, "this needs a token:") {
		t.Errorf("without a token: %v", err)
	}
}
