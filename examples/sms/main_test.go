package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// TestCodes: a user asks for as many codes as possible during a day.
func TestCodes(t *testing.T) {
	var now atomic.Int64
	midnight := time.Date(2026, 3, 1, 16, 0, 0, 0, time.UTC) // in Shanghai
	now.Store(midnight.UnixMicro())
	sent := 0
	handler, err := codes(memstore.New(memstore.WithClock(func() weir.Instant { return weir.Instant(now.Load()) })),
		func(context.Context, string) (string, error) { sent++; return "message", nil })
	if err != nil {
		t.Fatal(err)
	}
	ask := func(phone string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/code", strings.NewReader(url.Values{"phone": {phone}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		handler.ServeHTTP(w, r)
		return w
	}
	for second := range 24 * 3600 / 10 {
		now.Store(midnight.Add(time.Duration(second) * 10 * time.Second).UnixMicro())
		ask("+86 10 5555-0100")
	}
	if sent != 10 {
		t.Errorf("%d codes in a day, want 10", sent)
	}
	now.Store(midnight.Add(24 * time.Hour).UnixMicro())
	for i, want := range []string{"200 ", "429 60", "429 60"} {
		w := ask([]string{"+861055550100", "+86(10)55550100", "+86 1055550100"}[i])
		if got := strings.TrimSpace(w.Result().Status[:3]) + " " + w.Header().Get("Retry-After"); got != want {
			t.Errorf("request %d: %s, want %s", i, got, want)
		}
	}
	// Nobody is charged for the refused: a minute later the next is sent.
	now.Add(time.Minute.Microseconds())
	if w := ask("+861055550100"); w.Code != 200 {
		t.Errorf("a minute later: %d", w.Code)
	}
	if w := ask("12"); w.Code != 400 {
		t.Errorf("no phone: %d", w.Code)
	}
	if w := ask("+49 30 5555 0100"); w.Code != 200 {
		t.Errorf("another phone: %d", w.Code)
	}
}

func TestFiveAnHour(t *testing.T) {
	var now atomic.Int64
	now.Store(1e15)
	sent := 0
	handler, err := codes(memstore.New(memstore.WithClock(func() weir.Instant { return weir.Instant(now.Load()) })),
		func(context.Context, string) (string, error) { sent++; return "", nil })
	if err != nil {
		t.Fatal(err)
	}
	for range 60 {
		r := httptest.NewRequest("POST", "/code?phone=%2B861055550100", nil)
		handler.ServeHTTP(httptest.NewRecorder(), r)
		now.Add(time.Minute.Microseconds() - 1)
	}
	if sent != 0 {
		t.Fatalf("%d codes for a phone in the query: only the form counts", sent)
	}
	for range 60 {
		r := httptest.NewRequest("POST", "/code", strings.NewReader("phone=%2B861055550100"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		handler.ServeHTTP(httptest.NewRecorder(), r)
		now.Add(30_000_000)
	}
	if sent != 5 {
		t.Errorf("%d codes in half an hour, want 5", sent)
	}
}

// The command in the package comment is the one that the program prints. It is followed as curl follows it:
// --data-urlencode escapes the value, in which a bare + would be a space (as with --data), and sends a POST.
func TestTheCurlCommandSendsOneCode(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`curl -i --data-urlencode (\w+)=(\S+) http://127\.0\.0\.1:8080(/\w+)`).FindAllSubmatch(source, -1)
	if len(commands) != 2 || string(commands[0][0]) != string(commands[1][0]) {
		t.Fatalf("commands in main.go: %q, want one command twice", commands)
	}
	name, value, path := string(commands[0][1]), string(commands[0][2]), string(commands[0][3])
	handler, err := codes(memstore.New(), func(_ context.Context, phone string) (string, error) { return "code to " + phone, nil })
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"200 code to +861055550100\n", "429 The next code can be sent in 60 s.\n"} {
		r := httptest.NewRequest("POST", path, strings.NewReader(name+"="+url.QueryEscape(value)))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if got := fmt.Sprint(w.Code, " ", w.Body); got != want {
			t.Errorf("request %d: %q, want %q", i, got, want)
		}
	}
}
