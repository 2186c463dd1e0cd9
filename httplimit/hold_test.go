package httplimit_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/weirproject/weir/httplimit"
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
	d.Server = httptest.NewServer(byRules(t, memstore.New(), rule, nil)(work))
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

// TestUnfinishedNeedsNoRules: a program's proxy may call it for each of its responses.
func TestUnfinishedNeedsNoRules(t *testing.T) {
	httplimit.Unfinished(nil)
	httplimit.Unfinished(httptest.NewRecorder())
}

// TestUnfinishedRequestsStayCharged: the cost that rules would settle, the count, and the lease stay.
func TestUnfinishedRequestsStayCharged(t *testing.T) {
	for rule, wrapped := range map[string]bool{
		"{name: c, cost: {default: 10, settle: bytes}, limit: 10/1h}":         false,
		"{name: c, count_if: {status: [401]}, limit: sliding_log 1/1h}":       true,
		"{name: c, limit: concurrency 1 ttl 1h, hold_until: done}":            true,
		"{name: c, limit: [concurrency 1 ttl 1h, 9/1h], hold_until: done}":    false,
		"{name: c, count_if: {header: {X-A: [b]}}, limit: fixed_window 1/1h}": false,
	} {
		handler := byRules(t, memstore.New(), " - "+rule, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if wrapped {
				w = &wrapper{w}
			}
			httplimit.Unfinished(w)
			w.WriteHeader(http.StatusGatewayTimeout)
		}))
		for _, want := range []int{504, 429, 429} {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			if w.Code != want {
				t.Errorf("%s: %d, want %d", rule, w.Code, want)
			}
		}
	}
}

// A wrapper is a middleware's ResponseWriter.
type wrapper struct{ http.ResponseWriter }

// Unwrap supports http.ResponseController.
func (w *wrapper) Unwrap() http.ResponseWriter { return w.ResponseWriter }
