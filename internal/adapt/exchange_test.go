package adapt_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/adapt"
)

// A fake is a framework that reuses its bytes.
type fake struct {
	body     string
	replaced map[string]string
	response http.Header
	status   int
	refusal  string
}

func (f *fake) Next(context.Context) (status int) { return 0 }

func (f *fake) Body() []byte { return []byte(f.body) }

func (f *fake) Replace(name, value string) { f.replaced[name] = value }

func (f *fake) Fields(each func(name, value []byte)) {
	for name, values := range f.response {
		for _, value := range values {
			each([]byte(strings.ToLower(name)), []byte(value))
		}
	}
}

func (f *fake) Add(name, value string) { f.response.Add(name, value) }

func (f *fake) Response() (status int, body []byte, whole bool) { return 200, []byte("served"), true }

func (f *fake) Refuse(status int, body []byte) { f.status, f.refusal = status, string(body) }

func (f *fake) Later(*adapt.Exchange, func()) bool { return false }

func serveFake(f *fake, target string, limited adapt.Middleware) (passed bool) {
	f.replaced, f.response = make(map[string]string), make(http.Header)
	path, query, _ := strings.Cut(target, "?")
	buffer := []byte(path)
	x := adapt.Begin(f, &adapt.Head{Method: []byte("POST"), Host: []byte("a.example"), Path: buffer, Query: []byte(query),
		Route: "/x/:id", Remote: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 7}, Length: int64(len(f.body))})
	name, value := []byte("x-key"), []byte("one")
	x.Field(name, value)
	copy(value, "two")
	x.Field([]byte("X-Key"), value)
	x.Field([]byte("host"), []byte("other.example"))
	copy(value, "###")
	copy(buffer, "####")
	return x.Serve(context.Background(), limited)
}

// TestExchangeIsReadAsByNetHTTP: fields in canonical form with all their values, Host apart, escapes of the path kept,
// in text of its own.
func TestExchangeIsReadAsByNetHTTP(t *testing.T) {
	var seen http.Request
	var header http.Header
	limited := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen, header = *r, maps.Clone(r.Header)
			url := *r.URL
			seen.URL = &url
			next.ServeHTTP(w, r)
		})
	}
	for target, path := range map[string]string{"/a/b?c=d": "/a/b", "/a%2Fb?c=d": "/a/b", "/%zz?c=d": "/%zz"} {
		if !serveFake(new(fake), target, limited) {
			t.Fatal("refused")
		}
		if seen.Method != "POST" || seen.Host != "a.example" || seen.RemoteAddr != "192.0.2.1:7" || seen.Pattern != "/x/:id" ||
			seen.URL.Path != path || seen.URL.RawQuery != "c=d" {
			t.Errorf("%s is read as %+v", target, seen)
		}
		if escaped := seen.URL.EscapedPath(); path != "/%zz" && escaped+"?c=d" != target {
			t.Errorf("the path of %s is escaped as %s", target, escaped)
		}
		if got := header["X-Key"]; len(header) != 1 || len(got) != 2 || got[0] != "one" || got[1] != "two" {
			t.Errorf("the header is %v", header)
		}
	}
}

// TestChangesReachTheFramework: what the middleware changes of a request, and the response that it writes.
func TestChangesReachTheFramework(t *testing.T) {
	f := &fake{body: "a body"}
	serveFake(f, "/", func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body)
			again := r.Clone(r.Context())
			again.Header.Set("Accept-Encoding", "identity")
			again.Body = io.NopCloser(bytes.NewReader(append(text, " and more"...)))
			w.Header().Set("X-Limit", "1")
			next.ServeHTTP(w, again)
		})
	})
	if f.replaced[""] != "a body and more" || f.replaced["Accept-Encoding"] != "identity" || f.response.Get("X-Limit") != "1" {
		t.Errorf("the request was changed by %v, the response has %v", f.replaced, f.response)
	}
	passed := serveFake(f, "/", func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "no", http.StatusTooManyRequests)
		})
	})
	if passed || f.status != 429 || f.refusal != "no\n" || len(f.replaced) != 0 {
		t.Errorf("a refusal: %v %d %q", passed, f.status, f.refusal)
	}
}
