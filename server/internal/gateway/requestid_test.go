package gateway_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// TestRequestsHaveAnID: the service and the client read the same id, whatever the client sent and whoever answers.
func TestRequestsHaveAnID(t *testing.T) {
	const traced = "4bf92f3577b34da6a3ce929d0e0e4736"
	up := open(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["X-Got"] = r.Header["X-Request-Id"]
		if r.URL.Path == "/own" {
			w.Header().Set("X-Request-Id", "of the service")
		}
	})
	matched := make(chan *http.Request, 1)
	server := front(t, newGateway(t, up.URL, seen(matched)))
	away := front(t, newGateway(t, dead[0], unlimited))
	is32 := regexp.MustCompile("^[0-9a-f]{32}$")
	for _, c := range []struct{ sent, want string }{
		{"", ""},
		{"X-Request-Id: req-7\r\n", "req-7"},
		{"X-Request-Id: req-7\r\nX-Request-Id: req-8\r\n", "req-7"},
		{"Traceparent: 00-" + traced + "-00f067aa0ba902b7-01\r\n", traced},
		{"X-Request-Id: two words\r\n", ""},
		{"X-Request-Id: \xff\r\n", ""},
		{"X-Request-Id: " + strings.Repeat("a", 129) + "\r\n", ""},
		{"X-Request-Id: req-7\r\nConnection: X-Request-Id\r\n", ""},
	} {
		response, _ := raw(t, server, "GET /x HTTP/1.1\r\nHost: a\r\n"+c.sent+"\r\n")
		id, got, limited := response.Header["X-Request-Id"], response.Header["X-Got"], (<-matched).Header["X-Request-Id"]
		if len(id) != 1 || id[0] != c.want && (c.want != "" || !is32.MatchString(id[0])) {
			t.Errorf("%q: the response has the ids %q", c.sent, id)
		}
		if len(id) != 1 || strings.Join(got, " | ") != id[0] || strings.Join(limited, " | ") != id[0] {
			t.Errorf("%q: the service got %q, the limit %q, the client %q", c.sent, got, limited, id)
		}
		for _, bad := range []string{"GET /x HTTP/1.1", "TRACE /x HTTP/1.1", "GET /%00 HTTP/1.1"} {
			response, body := raw(t, away, bad+"\r\nHost: a\r\n"+c.sent+"\r\n")
			id := response.Header.Get("X-Request-Id")
			if response.StatusCode < 400 || id == "" || !strings.Contains(body, `"instance":"urn:weir:request:`+id+`"`) {
				t.Errorf("%s, %q: %d with the id %q: %s", bad, c.sent, response.StatusCode, id, body)
			}
		}
	}
	response, _ := raw(t, server, "GET /own HTTP/1.1\r\nHost: a\r\n\r\n")
	if id := response.Header["X-Request-Id"]; len(id) != 1 || id[0] != "of the service" {
		t.Errorf("a service that states an id: the client gets %q", id)
	}
}
