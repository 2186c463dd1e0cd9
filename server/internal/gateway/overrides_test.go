package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/weirproject/weir/server/internal/gateway"
)

var overrideFields = []string{"X-Original-URL", "X-Original-URI", "X-Original-Method", "X-Rewrite-URL", "x_rewrite_url",
	"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X_Http_Method-Override"}

// A service that obeys these fields serves a path or method that no rule matched.
func TestOverrideHeadersAreDropped(t *testing.T) {
	address, heads := bare(t)
	matchedRequests := make(chan *http.Request, 1)
	for name, config := range map[string]gateway.Config{
		"by default":         {},
		"of a trusted proxy": {Clients: extractor(t, "127.0.0.0/8")},
		"kept":               {Overrides: true},
	} {
		server := front(t, newGateway(t, "http://"+address, seen(matchedRequests), config))
		raw(t, server, "GET / HTTP/1.1\r\nHost: h\r\nX-Originality: 1\r\n"+strings.Join(overrideFields, ": /admin\r\n")+": /admin\r\n\r\n")
		head, matched := <-heads, <-matchedRequests
		for _, field := range overrideFields {
			field = http.CanonicalHeaderKey(field)
			if got := header(head, field); (got != "") != (name == "kept") {
				t.Errorf("%s: %s is %q at the upstream", name, field, got)
			}
			if got := matched.Header.Get(field); !strings.Contains(field, "_") && (got != "") != (name == "kept") {
				t.Errorf("%s: %s is %q to the limit", name, field, got)
			}
		}
		if header(head, "X-Originality") != "1" {
			t.Errorf("%s: another field was dropped", name)
		}
	}
}

func TestIdentityTrailersAreDropped(t *testing.T) {
	trailers := make(chan string, 1)
	up := open(t, func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		var names []string
		for name, values := range r.Trailer {
			names = append(names, fmt.Sprint(name, values))
		}
		slices.Sort(names)
		trailers <- strings.Join(names, " ")
	})
	server := front(t, newGateway(t, up.URL, unlimited))
	for _, announced := range []string{"X-Sum, X-Forwarded-For, Cookie, X-Api-Key, Authorization, X-Rewrite-Url", "X-Sum"} {
		raw(t, server, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: "+announced+"\r\n\r\n1\r\nx\r\n0\r\n"+
			"X-Sum: 1\r\nX-Forwarded-For: 9.9.9.9\r\nCookie: a=b\r\nX-Api-Key: k\r\nAuthorization: x\r\nX-Rewrite-Url: /admin\r\nX-Unannounced: 1\r\n\r\n")
		if got := <-trailers; got != "X-Sum[1]" {
			t.Errorf("%s: the upstream got the trailers %s", announced, got)
		}
	}
}

// TestSessionOfTheConsoleIsNotForwarded: browsers send cookies to all ports of a host.
func TestSessionOfTheConsoleIsNotForwarded(t *testing.T) {
	up := open(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%q", r.Header["Cookie"]) })
	server := front(t, newGateway(t, up.URL, unlimited))
	for sent, want := range map[string]string{
		"Cookie: weir_session=x":                                    `[]`,
		"Cookie: a=1; weir_session=x; b=2":                          `["a=1; b=2"]`,
		"Cookie: a=1;weir_session=x":                                `["a=1"]`,
		"Cookie: weir_session = x;b=2\r\nCookie: weir_session":      `["b=2"]`,
		"Cookie: a=weir_session; weir_session2=1; Weir_session=2;;": `["a=weir_session; weir_session2=1; Weir_session=2;;"]`,
	} {
		if _, got := raw(t, server, "GET /v1/admin/x HTTP/1.1\r\nHost: a\r\n"+sent+"\r\n\r\n"); got != want {
			t.Errorf("%s: the service gets %s, want %s", sent, got, want)
		}
	}
}
