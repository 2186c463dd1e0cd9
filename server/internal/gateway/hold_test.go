package gateway_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/memstore"
)

// With hold_until: done, clients that disconnect at once do not evade the concurrency limit of a
// service that ignores disconnects.
func TestDisconnectedClientsStayCounted(t *testing.T) {
	g := gatetest.New(t, memstore.New(), "rules: [{name: c, limit: concurrency 2 ttl 1h, hold_until: done}]")
	limit, err := httplimit.ByRules(g, nil)
	if err != nil {
		t.Fatal(err)
	}
	begun, finish := make(chan struct{}, 99), make(chan struct{})
	up := open(t, func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-finish
		w.Write(make([]byte, 1<<20))
		if r.Context().Err() != nil {
			t.Error("the gateway hung up on the service")
		}
	})
	server := front(t, newGateway(t, up.URL, limit))
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			request, _ := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
			if response, err := http.DefaultTransport.RoundTrip(request); err == nil {
				response.Body.Close()
			}
		}()
		<-begun
		cancel()
		<-gone
	}
	const head = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
	for range 50 {
		if r, _ := raw(t, server, head); r.StatusCode != 429 {
			t.Fatalf("while both are worked on: %d", r.StatusCode)
		}
	}
	close(finish)
	for deadline := time.Now().Add(time.Minute); ; {
		if r, _ := raw(t, server, head); r.StatusCode == 200 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no unit is free again")
		}
	}
}
