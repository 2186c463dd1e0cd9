package gateway_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/server/internal/gateway"
)

// A transport answers as a service that is infinitely fast.
type transport struct{}

func (transport) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 204, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody,
		Request: r}, nil
}

// A sink is a ResponseWriter that costs nothing.
type sink struct{ header http.Header }

func (w sink) Header() http.Header         { return w.header }
func (w sink) Write(b []byte) (int, error) { return len(b), nil }
func (w sink) WriteHeader(int)             {}

// BenchmarkGateway is a request that passes one rule, from a client behind a trusted proxy.
func BenchmarkGateway(b *testing.B) {
	set := load(b, "rules: [{name: ip, key: [client.ip], limit: fixed_window 1000000000000/1m}]")
	g, err := gate.New(memstore.New(), set)
	if err != nil {
		b.Fatal(err)
	}
	clients := extractor(b, "10.0.0.0/8")
	limit, err := httplimit.ByRules(g, &httplimit.RuleOptions{Clients: clients, Read: gateway.Read,
		Service: gateway.ServiceOf, RegisteredMethods: true, Observe: gateway.Decided})
	if err != nil {
		b.Fatal(err)
	}
	upstreams := gateway.NewUpstreams(0, nil)
	use, err := upstreams.Prepare(set)
	if err != nil {
		b.Fatal(err)
	}
	use()
	h, err := gateway.New(&url.URL{Scheme: "http", Host: "127.0.0.1:1"}, limit,
		gateway.Config{Clients: clients, Upstreams: upstreams, Transport: transport{}})
	if err != nil {
		b.Fatal(err)
	}
	base := httptest.NewRequest("GET", "/items/a%20b?q=1", nil)
	base.RemoteAddr = "10.0.0.1:4711"
	b.ReportAllocs()
	for b.Loop() {
		r := base.WithContext(b.Context())
		r.Header = http.Header{"X-Forwarded-For": {"203.0.113.7"}, "X-Request-Id": {"r-1"}}
		h.ServeHTTP(sink{make(http.Header, 8)}, r)
	}
}

// BenchmarkModelAnswer is an answer of 1 MiB over sockets, with a rule that reads its usage, and with one that does not.
func BenchmarkModelAnswer(b *testing.B) {
	answer := `{"choices":[{"message":{"content":"` + strings.Repeat("some words, ", 1<<20/12) + `"}}],"usage":{"total_tokens":9}}`
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, answer)
	}))
	b.Cleanup(service.Close)
	upstream, err := url.Parse(service.URL)
	if err != nil {
		b.Fatal(err)
	}
	const limits = "match: {path: /v1/**}, key: [client.ip], limit: fixed_window 1000000000000/1m"
	for name, rule := range map[string]string{"read": "preset: openai, " + limits, "not read": limits} {
		b.Run(name, func(b *testing.B) {
			g, err := gate.New(memstore.New(), load(b, "rules: [{name: a, "+rule+"}]"))
			if err != nil {
				b.Fatal(err)
			}
			limit, err := httplimit.ByRules(g, &httplimit.RuleOptions{Decoders: gateway.Decoders()})
			if err != nil {
				b.Fatal(err)
			}
			h, err := gateway.New(upstream, limit, gateway.Config{})
			if err != nil {
				b.Fatal(err)
			}
			front := httptest.NewServer(h)
			defer front.Close()
			b.SetBytes(int64(len(answer)))
			for b.Loop() {
				response, err := http.Post(front.URL+"/v1/chat", "application/json", strings.NewReader(`{"messages":[]}`))
				if err != nil {
					b.Fatal(err)
				}
				io.Copy(io.Discard, response.Body)
				response.Body.Close()
			}
		})
	}
}
