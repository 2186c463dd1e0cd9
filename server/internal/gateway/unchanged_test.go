package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/memstore"
)

// bodies are such as a browser, or net/http, takes for something else.
var bodies = map[string]string{
	"html": "<html><body><script>document.title='ran'</script></body></html>", "png": "\x89PNG\x0D\x0A\x1A\x0A",
	"text": "plain", "empty": "",
}

// TestResponsesHaveTheFieldsOfTheService: those and no others. A guessed Content-Type makes a browser run what a
// stranger has uploaded.
func TestResponsesHaveTheFieldsOfTheService(t *testing.T) {
	service := open(t, func(w http.ResponseWriter, r *http.Request) {
		var status int
		q := r.URL.Query()
		fmt.Sscan(q.Get("status"), &status)
		w.Header()["Content-Type"] = nil
		if kind, ok := q["type"]; ok {
			w.Header()["Content-Type"] = kind
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if q.Has("length") {
			w.Header().Set("Content-Length", fmt.Sprint(len(bodies[q.Get("body")])))
		}
		if q.Has("coded") {
			w.Header().Set("Content-Encoding", "br")
		}
		w.WriteHeader(status)
		if r.Method != http.MethodHead {
			io.WriteString(w, bodies[q.Get("body")])
		}
	})
	gateway := front(t, newGateway(t, service.URL, unlimited))
	g := gatetest.New(t, memstore.New(), "rules: [{name: c, count_if: {status: [401]}, limit: sliding_log 99999/1h}]")
	limit, err := httplimit.ByRules(g, nil)
	if err != nil {
		t.Fatal(err)
	}
	limited := httptest.NewServer(limit(service.Config.Handler))
	defer limited.Close()
	n := 0
	for _, status := range []int{200, 201, 204, 206, 301, 304, 401, 404, 500, 503} {
		for body := range bodies {
			for _, query := range []string{"", "&length", "&coded", "&type=", "&type=text/html", "&type=image/png&length"} {
				for _, method := range []string{"GET", "HEAD", "POST"} {
					path := fmt.Sprintf("/upload.dat?status=%d&body=%s%s", status, body, query)
					want := fields(t, method, service.URL+path)
					for _, server := range []string{gateway.URL, limited.URL} {
						n++
						if got := fields(t, method, server+path); !reflect.DeepEqual(got, want) {
							t.Errorf("%s %s: %v, want %v", method, path, got, want)
						}
					}
				}
			}
		}
	}
	if n != 10*4*6*3*2 {
		t.Errorf("%d responses were compared", n)
	}
}

// fields are the header fields of a response but the time, the request id, those that limits add, and those of one connection.
func fields(t *testing.T, method, url string) http.Header {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, response.Body)
	response.Body.Close()
	for _, name := range []string{"Date", "Connection", "X-Request-Id", "Ratelimit", "Ratelimit-Policy"} {
		response.Header.Del(name)
	}
	return response.Header
}
