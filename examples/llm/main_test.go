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
	body := fmt.Sprintf(`{"messages":[{"content":"two words"}],"stream":true,"max_tokens":%d}`, most)
	r, err := http.NewRequestWithContext(ctx, "POST", d.url+"/v1/chat/completions", strings.NewReader(body))
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

// awaits polls, because a stream is settled a moment after its client sees the end.
func (d *fixture) awaits(what string, ok func() bool) {
	d.t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(deadline) {
			d.t.Fatal("waited in vain until ", what)
		}
	}
}

// prompt is the estimate of the prompt: a quarter of the bytes of the body.
const prompt = 18

func TestReportedUsageIsCharged(t *testing.T) {
	d := open(t, madeUp)
	response := d.ask(t.Context(), "ann", 10000-prompt)
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 200 || strings.Count(string(text), "data: ") != 21 {
		t.Fatalf("%d, %v: %s", response.StatusCode, err, text)
	}
	// 2 for the prompt and 19 for the words; the estimate was all there is.
	d.awaits("9979 are left", func() bool { return d.ask(t.Context(), "ann", 9979-prompt).StatusCode == 200 })
}

func TestAnEstimateIsHeldWhileItStreams(t *testing.T) {
	d := open(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {}\n\n")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	response := d.ask(ctx, "ann", 6000)
	if _, err := bufio.NewReader(response.Body).ReadString('d'); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"beside it", "after its reader has left"} { // the model may have done the work
		refused := d.ask(t.Context(), "ann", 5000)
		text, _ := io.ReadAll(refused.Body)
		if refused.StatusCode != 429 || refused.Header.Get("Retry-After") == "" || !strings.Contains(string(text), "rate_limit_exceeded") {
			t.Errorf("%s: %d %s", when, refused.StatusCode, text)
		}
		leave()
	}
}

func TestRefusals(t *testing.T) {
	d := open(t, madeUp)
	if got := d.ask(t.Context(), "", 10).StatusCode; got != http.StatusForbidden {
		t.Errorf("without a key: %d", got)
	}
	for i := range 61 {
		response := d.ask(t.Context(), "bob", 3)
		io.Copy(io.Discard, response.Body)
		if want := []int{200, 429}[i/60]; response.StatusCode != want {
			t.Fatalf("request %d of a minute: %d, want %d", i+1, response.StatusCode, want)
		}
	}
}
