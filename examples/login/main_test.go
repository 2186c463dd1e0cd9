package main

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

func TestLogin(t *testing.T) {
	handler, err := page(memstore.New(memstore.WithClock(func() weir.Instant { return weir.Instant(time.Minute.Microseconds() * 1e6) })))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ who, from, user, password, want string }{
		{"she mistypes", "192.0.2.1", "ann", "x", "401"},
		{"she mistypes again", "192.0.2.1", "ann", "y", "401"},
		{"she gets it right", "192.0.2.1", "ann", "correct horse", "200"},
		{"somebody guesses on", "198.51.100.7", " ANN", "a", "429 login-user"},
		{"in other letters", "198.51.100.7", "ａｎｎ", "a", "429 login-user"},
		{"the refused did not count for the address", "198.51.100.7", "bob", "a", "401"},
		{"two", "198.51.100.7", "carl", "a", "401"},
		{"three", "198.51.100.7", "dora", "a", "401"},
		{"four", "198.51.100.7", "emil", "a", "401"},
		{"five", "198.51.100.7", "fred", "a", "401"},
		{"six users from one address", "198.51.100.7", "gus", "a", "429 login-ip"},
		{"another address", "203.0.113.9", "gus", "a", "401"},
		{"a form without a user", "203.0.113.9", "", "a", "401"},
	} {
		w := attempt(handler, test.from, test.user, test.password)
		got := strconv.Itoa(w.Code)
		if w.Code == 429 {
			for item := range strings.SplitSeq(w.Header().Get("RateLimit"), ", ") {
				if strings.Contains(item, ";t=60") {
					got += " " + strings.Trim(item[:strings.Index(item, ";")], `"`)
				}
			}
			if body := w.Body.String(); w.Header().Get("Retry-After") != "60" || !strings.HasPrefix(body, `{"code":429,"message":`) {
				t.Errorf("%s: Retry-After is %s, the body %s", test.who, w.Header().Get("Retry-After"), body)
			}
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.who, got, test.want)
		}
	}
}

func attempt(handler http.Handler, from, user, password string) *httptest.ResponseRecorder {
	form := url.Values{"user": {user}, "password": {password}}
	r := httptest.NewRequest("POST", "/login", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.RemoteAddr = from + ":1000"
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

// TestGuessing: a machine that guesses passwords of many users, one each second, and waits as
// Retry-After says, is banned for longer and longer after each five guesses.
func TestGuessing(t *testing.T) {
	now := time.Minute.Microseconds() * 1e6
	handler, err := page(memstore.New(memstore.WithClock(func() weir.Instant { return weir.Instant(now) })))
	if err != nil {
		t.Fatal(err)
	}
	guesses := 0
	for i, want := range []struct{ wait, guesses int }{{900, 5}, {3600, 5}, {86400, 5}, {86400, 5}} {
		kept := 0
		for kept < 800 {
			w := attempt(handler, "198.51.100.7", "user-"+strconv.Itoa(guesses), "123456")
			switch w.Code {
			case http.StatusUnauthorized:
				guesses++
			case http.StatusTooManyRequests:
				kept, _ = strconv.Atoi(w.Header().Get("Retry-After"))
			default:
				t.Fatal(w.Code, w.Body)
			}
			now += 1e6
		}
		if kept != want.wait || guesses != want.guesses*(i+1) { // it is told with the refusal that causes it
			t.Errorf("ban %d: kept out for %d s after %d guesses; want %+v", i+1, kept, guesses, want)
		}
		if w := attempt(handler, "203.0.113.9", "ann", "correct horse"); w.Code != http.StatusOK {
			t.Errorf("ban %d: ann, from elsewhere, is answered %d", i+1, w.Code)
		}
		now += int64(kept) * 1e6
	}
}
