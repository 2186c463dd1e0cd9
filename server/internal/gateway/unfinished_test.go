package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/rules"
)

const (
	countedRule = "{name: c, count_if: {status: [401]}, limit: sliding_log 1/1h}"
	heldRule    = "{name: c, limit: concurrency 1 ttl 1h, hold_until: done}"
)

// An ending is how a request ends whose service works without noticing it.
type ending struct {
	service string // fields of the service
	body    string // of a POST with the Transfer-Encoding chunked
	then    string // is sent once the service works
	cut     bool   // the service closes its connection
	want    int    // the status that the client gets
}

// unseen are endings of which the gateway does not see the response.
var unseen = map[string]ending{
	"a body that breaks off":            {body: "1\r\na\r\n", then: "ZZ\r\n", want: 400},
	"a body that ends after the total":  {body: "1\r\na\r\n", service: ", timeout: {total: 50ms}", want: 504},
	"timeout.total":                     {body: "0\r\n\r\n", service: ", timeout: {total: 50ms}", want: 504},
	"timeout.header":                    {body: "0\r\n\r\n", service: ", timeout: {header: 50ms}", want: 504},
	"a service that closes":             {body: "0\r\n\r\n", cut: true, want: 502},
	"a service that closes, no retries": {body: "1\r\na\r\n0\r\n\r\n", service: ", retries: 0", cut: true, want: 502},
}

// end sends one request that ends so, and returns the gate after the gateway's work for it.
func (e ending) end(t *testing.T, rule string) (g *gate.Gate) {
	t.Helper()
	redistest.Await(t, "a request that its service gets in time", func() bool {
		g = e.try(t, rule)
		return g != nil
	})
	return g
}

// try is end. It returns nil if a timeout was over before the service had the request.
func (e ending) try(t *testing.T, rule string) *gate.Gate {
	t.Helper()
	works, finish := make(chan struct{}, 9), make(chan struct{})
	service := open(t, func(w http.ResponseWriter, r *http.Request) {
		r.Body.Read(make([]byte, 1))
		works <- struct{}{}
		if e.cut {
			panic(http.ErrAbortHandler)
		}
		<-finish
		w.WriteHeader(http.StatusUnauthorized)
	})
	g := routed(t, fmt.Sprintf("services: [{name: s, addresses: %q%s}]\nroutes: [{name: r, service: s}]\nrules: [%s]\n",
		service.URL, e.service, rule), "")
	connection := dial(t, g.server)
	fmt.Fprintf(connection, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n%s", e.body)
	answered := make(chan error, 1)
	status := make([]byte, len("HTTP/1.1 400"))
	go func() {
		_, err := io.ReadFull(connection, status)
		answered <- err
	}()
	if e.then != "" {
		<-works
		works <- struct{}{}
		io.WriteString(connection, e.then)
	}
	if err := <-answered; err != nil || string(status) != fmt.Sprint("HTTP/1.1 ", e.want) {
		t.Errorf("answered %q, %v; want %d", status, err, e.want)
	}
	connection.Close()
	close(finish)
	g.server.Close()
	if len(works) == 0 {
		return nil
	}
	return g.gate
}

// free reports whether the gate grants another request.
func free(t *testing.T, g *gate.Gate) bool {
	t.Helper()
	var v gate.Verdict
	if err := g.Decide(t.Context(), &rules.Request{}, gate.Once, &v); err != nil {
		t.Fatal(err)
	}
	return v.Outcome == gate.Passed
}

// TestUnseenResponsesAreCounted: otherwise a client that breaks off its body, or makes the service slow, is never
// counted, although the service does the work.
func TestUnseenResponsesAreCounted(t *testing.T) {
	for name, ending := range unseen {
		t.Run(name, func(t *testing.T) {
			if free(t, ending.end(t, countedRule)) {
				t.Error("the unit was given back")
			}
		})
	}
}

// TestUnseenRequestsHoldTheirLease: the work of the service may go on.
func TestUnseenRequestsHoldTheirLease(t *testing.T) {
	for name, ending := range unseen {
		t.Run(name, func(t *testing.T) {
			if free(t, ending.end(t, heldRule)) {
				t.Error("the lease was released")
			}
		})
	}
}

// TestResponsesThatBreakOffHoldTheirLease: the end of the work was not seen.
func TestResponsesThatBreakOffHoldTheirLease(t *testing.T) {
	service := open(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "half")
		panic(http.ErrAbortHandler)
	})
	g := routed(t, fmt.Sprintf("services: [{name: s, addresses: %q}]\nroutes: [{name: r, service: s}]\nrules: [%s]\n",
		service.URL, heldRule), "")
	if response, err := http.Get(g.server.URL); err == nil {
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
	g.server.Close()
	if free(t, g.gate) {
		t.Error("the lease was released")
	}
}

// TestRequestsThatWereNotSentAreGivenBack: the service surely did not work.
func TestRequestsThatWereNotSentAreGivenBack(t *testing.T) {
	for _, rule := range []string{countedRule, heldRule} {
		for _, way := range []string{"service", "upstream"} {
			t.Run(way+" "+rule, func(t *testing.T) {
				text, fallback := "rules: ["+rule+"]\n", dead[0]
				if way == "service" {
					text += "services: [{name: s, addresses: [" + strings.Join(dead, ", ") + "]}]\n" +
						"routes: [{name: r, service: s}]\n"
					fallback = ""
				}
				g := routed(t, text, fallback)
				if got := g.ask(t, "GET a /", ""); !strings.HasPrefix(got, "502") {
					t.Errorf("answered %s, want 502", got)
				}
				g.server.Close()
				if !free(t, g.gate) {
					t.Error("the request stays counted")
				}
			})
		}
	}
}
