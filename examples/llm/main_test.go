package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// A fixture is a gateway before a model, on a clock that stands still.
type fixture struct {
	t   *testing.T
	url string
	now *atomic.Int64
}

func open(t *testing.T, model http.HandlerFunc) *fixture {
	d := &fixture{t: t, now: new(atomic.Int64)}
	d.now.Store(1e15)
	upstream := httptest.NewServer(model)
	t.Cleanup(upstream.Close)
	handler, err := chat(memstore.New(memstore.WithClock(func() weir.Instant { return weir.Instant(d.now.Load()) })), upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	d.url = server.URL
	return d
}

func (d *fixture) ask(ctx context.Context, key string, most int) *http.Response {
	d.t.Helper()
	r, err := http.NewRequestWithContext(ctx, "POST", d.url+"/v1/chat", strings.NewReader(fmt.Sprintf(`{"prompt":"12345678","max_tokens":%d}`, most)))
	if err != nil {
		d.t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { response.Body.Close() })
	return response
}

// fits reports whether a request of so many tokens, its prompt of 2 included, passes. The model of
// the tests answers it without usage and without a stream.
func (d *fixture) fits(key string, total int) bool {
	d.t.Helper()
	response := d.ask(d.t.Context(), key, total-2)
	io.Copy(io.Discard, response.Body)
	return response.StatusCode == http.StatusOK
}

// awaits polls, because a stream is settled a moment after its client sees the end.
func (d *fixture) awaits(what string, ok func() bool) {
	d.t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(deadline) {
			d.t.Fatal("waited in vain until ", what)
		}
	}
}

func TestReportedUsageIsCharged(t *testing.T) {
	d := open(t, madeUp)
	response := d.ask(t.Context(), "ann", 9998)
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 200 || strings.Count(string(text), "data: ") != 20 {
		t.Fatalf("%d, %v: %s", response.StatusCode, err, text)
	}
	// 2 for the prompt and 19 for the words; the estimate was all there is.
	d.awaits("9979 are left", func() bool { return d.ask(t.Context(), "ann", 9977).StatusCode == 200 })
}

func TestAnEstimateIsHeldWhileItStreams(t *testing.T) {
	finish := make(chan bool)
	d := open(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "data: {\"text\":\"a\"}\n\ndata: {\"text\":\"b\"}\n\n")
		http.NewResponseController(w).Flush()
		select {
		case <-finish:
		case <-r.Context().Done():
		}
	})
	defer close(finish)
	ctx, leave := context.WithCancel(t.Context())
	response := d.ask(ctx, "ann", 6000)
	if _, err := bufio.NewReader(response.Body).ReadString('b'); err != nil {
		t.Fatal(err)
	}
	refused := d.ask(t.Context(), "ann", 5000)
	if refused.StatusCode != http.StatusTooManyRequests || refused.Header.Get("Retry-After") == "" {
		t.Errorf("beside it: %d", refused.StatusCode)
	}
	leave()
	// The reader left: 2 for the prompt and 2 that were streamed are charged, 6000 came back.
	d.awaits("9996 are left", func() bool { return d.refuses("ann", 9994) == "" })
}

// refuses returns the text of the refusal of a request of so many tokens; "" if it passes.
func (d *fixture) refuses(key string, most int) string {
	ctx, cancel := context.WithCancel(d.t.Context())
	defer cancel()
	response := d.ask(ctx, key, most)
	if response.StatusCode == http.StatusOK {
		return ""
	}
	text, _ := io.ReadAll(response.Body)
	return string(text)
}

func TestRefusals(t *testing.T) {
	d := open(t, func(http.ResponseWriter, *http.Request) {})
	if got := d.ask(t.Context(), "", 10).StatusCode; got != http.StatusUnauthorized {
		t.Errorf("without a key: %d", got)
	}
	if got := d.ask(t.Context(), "ann", 0).StatusCode; got != http.StatusBadRequest {
		t.Errorf("no tokens: %d", got)
	}
	if got := d.refuses("ann", 9999); !strings.Contains(got, "larger than the limit") {
		t.Errorf("more than a minute's tokens: %q", got)
	}
	for i := range 61 {
		if got := d.fits("bob", 3); got != (i < 60) {
			t.Fatalf("request %d of a minute: %v", i+1, got)
		}
	}
	if got := d.refuses("bob", 1); !strings.Contains(got, "requests") {
		t.Errorf("the 62nd of a minute: %q", got)
	}
}
