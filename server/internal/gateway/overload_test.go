package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/servermetrics"
)

// blocking is an upstream that answers a request when it gets a value.
func blocking(t *testing.T) (*upstream, chan int) {
	statuses := make(chan int)
	return open(t, func(w http.ResponseWriter, r *http.Request) {
		select {
		case status := <-statuses:
			w.WriteHeader(status)
		case <-r.Context().Done():
		}
	}), statuses
}

func (g *routedGateway) concurrency() *servermetrics.Concurrency { return g.Services()[0].Concurrency }

// until polls until a condition of the limit holds.
func (g *routedGateway) until(t *testing.T, what string, holds func(*servermetrics.Concurrency) bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !holds(g.concurrency()); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not hold: %+v", what, g.concurrency())
		}
	}
}

func limitedService(url, concurrency string) string {
	return fmt.Sprintf(`
services: [{name: search, addresses: %s, concurrency: {adaptive: gradient, %s}}]
routes: [{name: all, service: search}]
rules: []
server: {trusted_proxies: [127.0.0.1]}
`, url, concurrency)
}

// get sends a request in the background, and returns where its response comes.
func (g *routedGateway) get(t *testing.T, header ...string) chan *http.Response {
	t.Helper()
	r, _ := http.NewRequest("GET", g.server.URL+"/", nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answers := make(chan *http.Response, 1)
	go func() {
		response, err := g.server.Client().Do(r)
		if err != nil {
			close(answers)
			return
		}
		answers <- response
	}()
	return answers
}

func TestServiceAtItsLimitRefusesByClass(t *testing.T) {
	for name, by := range map[string]string{"value": "by: header.X-Criticality",
		"match": "match: {critical: {path: /, method: GET, host: 127.0.0.1, header: {X-Criticality: critical}}}"} {
		t.Run(name, func(t *testing.T) {
			refusesByClass(t, "min: 4, max: 4, reserve: {"+by+", classes: {critical: 0%, batch: 50%}}")
		})
	}
}

func refusesByClass(t *testing.T, concurrency string) {
	t.Helper()
	service, statuses := blocking(t)
	g := routed(t, limitedService(service.URL, concurrency), "")
	var answers []chan *http.Response
	for range 2 {
		answers = append(answers, g.get(t, "X-Criticality", "batch"))
	}
	g.until(t, "two in flight", func(c *servermetrics.Concurrency) bool { return c.InFlight == 2 })
	refused := <-g.get(t) // is of the least important class
	body, _ := io.ReadAll(refused.Body)
	if refused.StatusCode != 503 || refused.Header.Get("Retry-After") != "1" ||
		refused.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("refused by %d %v %s, want a problem with 503 and Retry-After", refused.StatusCode, refused.Header, body)
	}
	var problem struct{ Status int }
	if err := json.Unmarshal(body, &problem); err != nil || problem.Status != 503 {
		t.Errorf("problem is %s", body)
	}
	for range 2 {
		answers = append(answers, g.get(t, "X-Criticality", "critical"))
	}
	g.until(t, "four in flight", func(c *servermetrics.Concurrency) bool { return c.InFlight == 4 })
	for range answers {
		statuses <- 200
	}
	for _, answer := range answers {
		if response := <-answer; response == nil || response.StatusCode != 200 {
			t.Errorf("answered %v, want 200", response)
		}
	}
	c := g.concurrency()
	if c.InFlight != 0 || fmt.Sprint(c.Classes) != "[{critical 4 2 0} {batch 2 2 1}]" {
		t.Errorf("%+v", c)
	}
	if r := g.Routes()[0]; r.Forwarded != 4 || r.Refused != 1 {
		t.Errorf("%+v", r)
	}
}

func TestQueuedRequestIsForwardedWhenAnotherEnds(t *testing.T) {
	service, statuses := blocking(t)
	g := routed(t, limitedService(service.URL, "min: 1, max: 1, queue: {for: 1m, most: 2}"), "")
	first := g.get(t)
	g.until(t, "one in flight", func(c *servermetrics.Concurrency) bool { return c.InFlight == 1 })
	second := g.get(t)
	g.until(t, "one waiting", func(c *servermetrics.Concurrency) bool { return c.Waiting == 1 })

	gone, leave := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(gone, "GET", g.server.URL+"/", nil)
	go g.server.Client().Do(r)
	g.until(t, "two waiting", func(c *servermetrics.Concurrency) bool { return c.Waiting == 2 })
	leave()
	g.until(t, "the client that left does not wait", func(c *servermetrics.Concurrency) bool { return c.Waiting == 1 })

	statuses <- 200
	<-first
	statuses <- 200
	if response := <-second; response.StatusCode != 200 {
		t.Errorf("answered %d, want 200", response.StatusCode)
	}
	if c := g.concurrency(); c.Classes[0].Refused != 0 {
		t.Errorf("%+v: a client that leaves is not refused", c)
	}
}

// A limit that refuses a request does its work: the service has not failed.
func TestRefusalsAreNotLoggedAsFailuresOfTheService(t *testing.T) {
	service, statuses := blocking(t)
	witness := newWitness()
	g := routedWithLog(t, limitedService(service.URL, "min: 1, max: 1"), "", witness.lines)
	first := g.get(t)
	g.until(t, "one in flight", func(c *servermetrics.Concurrency) bool { return c.InFlight == 1 })
	if refused := <-g.get(t); refused.StatusCode != 503 {
		t.Errorf("answered %d, want 503", refused.StatusCode)
	}
	statuses <- 200
	<-first
	text := witness.text()
	if strings.Contains(text, "failed") || !strings.Contains(text, "too many requests are in progress") {
		t.Errorf("logged %q, want a line of a refusal", text)
	}
}

// An answer counts with its latency, a 503 as overload, other responses not at all.
func TestResponsesOfAServiceAreSignals(t *testing.T) {
	for status, signal := range map[int]string{200: "latency", 404: "latency", 429: "", 500: "", 503: "overload",
		504: "overload"} {
		service, statuses := blocking(t)
		g := routed(t, limitedService(service.URL, "min: 1, max: 100"), "")
		for range 60 { // a window of the start has 40, after two for each request of the first limit
			answer := g.get(t)
			statuses <- status
			<-answer
		}
		c := g.concurrency()
		if (c.Latency > 0) != (signal == "latency") || c.InFlight != 0 {
			t.Errorf("after %d: %+v, want the signal %q", status, c, signal)
		}
	}
}

func TestStreamsAndWebSocketsHoldNoPlace(t *testing.T) {
	service := open(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		w.Header().Set("Upgrade", "websocket")
		w.Header().Set("Connection", "Upgrade")
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			defer conn.Close()
			io.Copy(io.Discard, conn)
		}
	})
	g := routed(t, limitedService(service.URL, "min: 1, max: 1"), "")
	for range 3 {
		stream := <-g.get(t)
		defer stream.Body.Close()
		socket := <-g.get(t, "Connection", "Upgrade", "Upgrade", "websocket")
		defer socket.Body.Close()
		if stream.StatusCode != 200 || socket.StatusCode != 101 {
			t.Errorf("answered %d and %d, want 200 and 101", stream.StatusCode, socket.StatusCode)
		}
	}
}

// A reload keeps the requests in flight and what was learned.
func TestReloadKeepsTheLimit(t *testing.T) {
	service, statuses := blocking(t)
	g := routed(t, limitedService(service.URL, "min: 7, max: 100"), "")
	answer := g.get(t)
	g.until(t, "one in flight", func(c *servermetrics.Concurrency) bool { return c.InFlight == 1 })
	g.put(t, strings.Replace(limitedService(service.URL, "min: 7, max: 100"), "search, ", "search, retries: 0, ", 1))
	if c := g.concurrency(); c.InFlight != 1 {
		t.Errorf("%+v, want the request in flight", c)
	}
	g.put(t, limitedService(service.URL, "min: 3, max: 100"))
	if c := g.concurrency(); c.Limit != 7 || c.Min != 3 || c.Classes[0].Admitted != 1 || c.InFlight != 1 {
		t.Errorf("%+v, want the limit 7 of before, and the request in flight", c)
	}
	g.put(t, strings.Replace(limitedService(service.URL, "min: 5, max: 100"), "gradient", "aimd", 1))
	if c := g.concurrency(); c.Limit != 5 || c.Classes[0].Admitted != 1 || c.InFlight != 1 {
		t.Errorf("%+v, want the counts of before with another algorithm", c)
	}
	statuses <- 200
	<-answer
	g.put(t, fmt.Sprintf("services: [{name: search, addresses: %s}]\nroutes: [{name: all, service: search}]\nrules: []",
		service.URL))
	if c := g.concurrency(); c != nil {
		t.Errorf("%+v, want none", c)
	}
}

// Clients that send slowly, or stop, do not take the places of others.
func TestSlowUploadsHoldNoPlace(t *testing.T) {
	service := open(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	g := routed(t, limitedService(service.URL, "min: 1, max: 1"), "")
	body, send := io.Pipe()
	defer send.Close()
	slow := make(chan *http.Response, 1)
	go func() {
		response, err := g.server.Client().Post(g.server.URL+"/", "text/plain", body)
		if err != nil {
			t.Error(err)
		}
		slow <- response
	}()
	io.WriteString(send, "hello")
	g.until(t, "the slow request holds no place", func(c *servermetrics.Concurrency) bool {
		return c.Classes[0].Admitted == 1 && c.InFlight == 0
	})
	if quick := <-g.get(t); quick.StatusCode != 200 {
		t.Errorf("answered %d, want 200", quick.StatusCode)
	}
	send.Close()
	response := <-slow
	text, _ := io.ReadAll(response.Body)
	if response.StatusCode != 200 || string(text) != "hello" {
		t.Errorf("answered %d %q, want the body", response.StatusCode, text)
	}
	g.until(t, "none in flight", func(c *servermetrics.Concurrency) bool { return c.InFlight == 0 })
}
