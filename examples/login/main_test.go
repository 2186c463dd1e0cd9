package main

import (
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
		form := url.Values{"user": {test.user}, "password": {test.password}}
		r := httptest.NewRequest("POST", "/login", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.RemoteAddr = test.from + ":1000"
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
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
