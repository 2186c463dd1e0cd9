package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// A request inside the body of another one, which the two sides frame differently, would be
// forwarded without being counted (RFC 9112, section 11.2).
func TestSmuggledRequestsAreNotForwarded(t *testing.T) {
	var mu sync.Mutex
	counted := map[string]int{} // and not yet arrived
	up := open(t, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if counted[r.URL.Path]--; counted[r.URL.Path] < 0 {
			t.Errorf("%s arrived, and was not counted", r.URL.Path)
		}
	})
	counting := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			counted[r.URL.Path]++
			mu.Unlock()
			next.ServeHTTP(w, r)
		})
	}
	server := front(t, newGateway(t, up.URL, counting))
	const hidden = "GET /hidden-NAME HTTP/1.1\r\nHost: h\r\n\r\n"
	for name, request := range map[string]string{
		"both lengths":           "Content-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"another coding":         "Transfer-Encoding: xchunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n" + hidden,
		"two codings":            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + hidden,
		"a coding with a tab":    "Transfer-Encoding:\tchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + hidden,
		"a space before":         "Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + hidden,
		"two lengths":            "Content-Length: 0\r\nContent-Length: 33\r\n\r\n" + hidden,
		"lengths in a list":      "Content-Length: 0, 33\r\n\r\n" + hidden,
		"a length with a sign":   "Content-Length: +0\r\n\r\n" + hidden,
		"folded lines":           "X: 1\r\n Content-Length: 33\r\n\r\n" + hidden,
		"line feeds alone":       "X: 1\n\n" + hidden,
		"carriage return alone":  "X: 1\rTransfer-Encoding: chunked\r\n\r\n" + hidden,
		"a length that is named": "Connection: Content-Length\r\nContent-Length: 33\r\n\r\n" + hidden,
		"a coding that is named": "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"extensions of chunks":   "Transfer-Encoding: chunked\r\n\r\n0;a=\"\n\"\r\n\r\n" + hidden,
		"an underscore":          "Content_Length: 33\r\n\r\n" + hidden,
		"a body of a GET":        "Content-Length: 33\r\n\r\n" + hidden,
	} {
		for _, method := range []string{"POST", "GET"} {
			text := method + " /seen-NAME HTTP/1.1\r\nHost: h\r\n" + request + "GET /last-NAME HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
			connection := dial(t, server)
			io.WriteString(connection, strings.ReplaceAll(text, "NAME", strings.ReplaceAll(name, " ", "-")))
			io.Copy(io.Discard, connection)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if _, seen := counted["/seen-a-body-of-a-GET"]; !seen {
		t.Error("nothing was counted")
	}
}
