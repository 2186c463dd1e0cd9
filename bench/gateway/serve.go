package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/weirproject/weir/bench/process"
)

// serve serves a role in this process.
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
	process.Serve(listener.Addr().String())
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
	case "models":
		return http.HandlerFunc(models), nil
	case "bare":
		return bare(to), nil
	case "pooled":
		p := bare(to)
		p.BufferPool = &pool{}
		return p, nil
	case "null":
		body := []byte(`{"allowed":true}`)
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(body) }), nil
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
		Transport: transport(),
	}
}

// transport has the settings of the gateway's.
func transport() *http.Transport {
	t := &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		MaxIdleConnsPerHost:    512,
		IdleConnTimeout:        4 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 1 << 20,
		DisableCompression:     true,
		Protocols:              new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	t.Protocols.SetHTTP2(true)
	return t
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

// A program is weir serve for a role.
type program struct {
	listener, rules string
	flags           []string
}

// programOf is the weir serve of a role; ok is false for the others.
func programOf(role, upstream string) (p program, ok bool) {
	switch role {
	case "gateway":
		return program{"gateway", lenient, []string{"--http", "off", "--gateway", "127.0.0.1:0", "--upstream", upstream}}, true
	case "tokens":
		return program{"gateway", lenient + tokens + "}\n", []string{"--http", "off", "--gateway", "127.0.0.1:0", "--upstream", upstream}}, true
	case "steps":
		return program{"gateway", lenient + tokens + ", " + steps, []string{"--http", "off", "--gateway", "127.0.0.1:0", "--upstream", upstream}}, true
	case "routes":
		return program{"gateway", routed(upstream), []string{"--http", "off", "--gateway", "127.0.0.1:0"}}, true
	case "decide":
		return program{"http", lenient, []string{"--http", "127.0.0.1:0"}}, true
	}
	return program{}, false
}

// lenient are rules by which more passes than can be asked.
const lenient = `
rules:
  - {name: site, limit: 1000000/1s}
  - {name: login, match: {method: POST, path: /login}, key: [client.ip], limit: 5/1m}
  - {name: orders, match: {path: "/orders/{id}"}, key: [client.ip], limit: 1000000/1s}
`

// tokens is a rule of tokens by which more passes than can be asked, and steps charges streams by it.
const (
	tokens = "  - {name: tokens, preset: openai, match: {path: /v1/**}, key: [header.Authorization], limit: 1000000000/1s"
	steps  = "charge: as_it_streams, stream: {step: 50, overrun: cut}}\n"
)

// routed has 50 routes, of which one matches, and 4 rules that match.
func routed(upstream string) string {
	text := "services: [{name: order, addresses: " + upstream + "}, {name: other, addresses: http://127.0.0.1:1}]\n" +
		"routes:\n  - {name: orders, path: \"/orders/{id}\", method: GET, service: order}\n"
	for i := range 49 {
		text += fmt.Sprintf("  - {name: r%[1]d, host: [shop.example, \"*.r%[1]d.example\"], path: /r%[1]d/**, service: other}\n", i)
	}
	return text + `
rules:
  - {name: site, limit: 1000000/1s}
  - {name: service, match: {service: order}, limit: 1000000/1s}
  - {name: interface, match: {route: orders}, limit: 1000000/1s}
  - {name: per-ip, key: [client.ip], limit: 1000000/1s}
`
}
