package main

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/server/api"
	"github.com/weirproject/weir/internal/server/gateway"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/observe"
	"github.com/weirproject/weir/rules"
)

// serve is a process of its own: it says where it listens, then, for each line that it is
// sent, how much CPU it has used. It ends when nobody sends any more.
func serve(role, upstream string) error {
	handler, err := handlerOf(role, upstream)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.Serve(listener, handler)
	fmt.Println(listener.Addr())
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var used syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
			return err
		}
		fmt.Println(used.Utime.Nano() + used.Stime.Nano())
	}
	return nil
}

// handlerOf is what a role serves.
func handlerOf(role, upstream string) (http.Handler, error) {
	to, err := url.Parse(upstream)
	if err != nil {
		return nil, err
	}
	switch role {
	case "upstream":
		body := []byte(strings.Repeat("0123456789abcdef", 64))
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(body) }), nil
	case "bare":
		return bare(to), nil
	case "pooled":
		p := bare(to)
		p.BufferPool = &pool{}
		return p, nil
	case "gateway":
		return limitedProxy(to)
	case "routes":
		return routedProxy(upstream)
	case "null":
		body := []byte(`{"allowed":true}`)
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(body) }), nil
	case "decide":
		g, err := newGate()
		if err != nil {
			return nil, err
		}
		return api.New(g, api.Config{})
	}
	return nil, fmt.Errorf("there is no role %q", role)
}

// bare is what the standard library's documentation shows, with the gateway's transport.
func bare(upstream *url.URL) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(upstream)
			r.SetXForwarded()
		},
		Transport: gateway.NewTransport(upstream),
	}
}

// A pool is what the documentation of ReverseProxy.BufferPool suggests.
type pool struct{ sync.Pool }

func (p *pool) Get() []byte {
	if b, ok := p.Pool.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 32<<10)
}

func (p *pool) Put(b []byte) { p.Pool.Put(&b) }

// gateway limits by the rules of newGate.
func limitedProxy(upstream *url.URL) (http.Handler, error) {
	g, err := newGate()
	if err != nil {
		return nil, err
	}
	limit, err := httplimit.ByRules(g)
	if err != nil {
		return nil, err
	}
	return gateway.New(upstream, limit, gateway.Config{})
}

// routedProxy has 50 routes, of which one matches, and 4 rules that match.
func routedProxy(upstream string) (http.Handler, error) {
	text := "services: [{name: order, addresses: " + upstream + "}, {name: other, addresses: http://127.0.0.1:1}]\n" +
		"routes:\n  - {name: orders, path: \"/orders/{id}\", method: GET, service: order}\n"
	for i := range 49 {
		text += fmt.Sprintf("  - {name: r%[1]d, host: [shop.example, \"*.r%[1]d.example\"], path: /r%[1]d/**, service: other}\n", i)
	}
	set, err := rules.Load("rules.yaml", []byte(text+`
rules:
  - {name: site, limit: 1000000/1s}
  - {name: service, match: {service: order}, limit: 1000000/1s}
  - {name: interface, match: {route: orders}, limit: 1000000/1s}
  - {name: per-ip, key: [client.ip], limit: 1000000/1s}
`))
	if err != nil {
		return nil, err
	}
	g, err := gateOf(set)
	if err != nil {
		return nil, err
	}
	limit, err := httplimit.ByRules(g, httplimit.WithRules(gateway.RulesOf), httplimit.WithService(gateway.ServiceOf))
	if err != nil {
		return nil, err
	}
	upstreams := gateway.NewUpstreams(0, slog.Default())
	use, err := upstreams.Prepare(set)
	if err != nil {
		return nil, err
	}
	use()
	return gateway.New(nil, limit, gateway.Config{Upstreams: upstreams})
}

// lenient are rules by which more passes than can be asked.
const lenient = `
rules:
  - {name: site, limit: 1000000/1s}
  - {name: login, match: {method: POST, path: /login}, key: [client.ip], limit: 5/1m}
  - {name: orders, match: {path: "/orders/{id}"}, key: [client.ip], limit: 1000000/1s}
`

// newGate decides by them in the process, and counts as weir serve does.
func newGate() (*gate.Gate, error) {
	set, err := rules.Load("rules.yaml", []byte(lenient))
	if err != nil {
		return nil, err
	}
	return gateOf(set)
}

func gateOf(set *rules.Set) (*gate.Gate, error) {
	metrics := observe.New("bench")
	metrics.Rules(set, time.Now())
	store := memstore.New()
	return gate.New(metrics.Store(store), set, gate.WithLocal(store), gate.WithObserver(metrics.Verdict))
}
