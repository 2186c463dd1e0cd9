package httplimit_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/weirproject/weir/memstore"
)

// A service that ignores disconnects: each request works until it is released.
type deaf struct {
	*httptest.Server
	begun, finish, calledOff chan struct{}
}

func newDeaf(t *testing.T, rule string) *deaf {
	d := &deaf{begun: make(chan struct{}, 9), finish: make(chan struct{}), calledOff: make(chan struct{}, 9)}
	work := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.begun <- struct{}{}
		select {
		case <-d.finish:
		case <-r.Context().Done():
			d.calledOff <- struct{}{}
			return
		}
		for range 64 { // more than what fits into buffers
			if _, err := w.Write(bytes.Repeat([]byte("x"), 1<<16)); err != nil {
				t.Errorf("the answer broke off: %v", err)
			}
		}
	})
	d.Server = httptest.NewServer(byRules(t, memstore.New(), rule)(work))
	t.Cleanup(d.Close)
	return d
}

// leave sends a request and disconnects while it is being served.
func (d *deaf) leave(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		request, _ := http.NewRequestWithContext(ctx, "GET", d.URL, nil)
		if response, err := d.Client().Do(request); err == nil {
			response.Body.Close()
		}
	}()
	<-d.begun
	cancel()
	<-gone
}

// status sends a request and returns its status; a granted one is served at once.
func (d *deaf) status(t *testing.T) int {
	t.Helper()
	response, err := d.Client().Get(d.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

func TestHoldUntilDoneOutlivesTheClient(t *testing.T) {
	d := newDeaf(t, " - {name: c, limit: concurrency 1 ttl 1h, hold_until: done}")
	d.leave(t)
	for range 20 {
		if got := d.status(t); got != 429 {
			t.Fatalf("while the work of a client that left goes on: %d, want 429", got)
		}
	}
	d.finish <- struct{}{}
	close(d.finish)
	deadline := time.Now().Add(time.Minute)
	for d.status(t) != 200 {
		if time.Now().After(deadline) {
			t.Fatal("the unit is never free again")
		}
	}
	if len(d.calledOff) != 0 {
		t.Error("the work was called off")
	}
}

func TestHoldUntilDoneEndsATimeToLiveAfterTheClient(t *testing.T) {
	d := newDeaf(t, " - {name: c, limit: concurrency 1 ttl 50ms, hold_until: done}")
	d.leave(t)
	<-d.calledOff
}

func TestDisconnectReleasesConcurrencyByDefault(t *testing.T) {
	d := newDeaf(t, " - {name: c, limit: concurrency 1 ttl 1h}")
	d.leave(t)
	<-d.calledOff
	close(d.finish)
	deadline := time.Now().Add(time.Minute)
	for d.status(t) != 200 {
		if time.Now().After(deadline) {
			t.Fatal("the unit is never free again")
		}
	}
}
