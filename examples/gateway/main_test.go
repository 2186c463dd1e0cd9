package main

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// limited is the middleware of the rules, at one instant.
func limited(t *testing.T) func(http.Handler) http.Handler {
	t.Helper()
	text, err := os.ReadFile("rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Load("rules.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	store := memstore.New(memstore.WithClock(func() weir.Instant { return 1e15 }))
	g, err := gate.New(store, set, gate.WithLocal(store))
	if err != nil {
		t.Fatal(err)
	}
	middleware, err := httplimit.ByRules(g, &httplimit.RuleOptions{Service: service})
	if err != nil {
		t.Fatal(err)
	}
	return middleware
}

func TestRefusedRequestsChargeNoOtherLimit(t *testing.T) {
	var served atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		madeUp(w, r)
	}))
	defer upstream.Close()
	target, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	gateway := httptest.NewServer(limited(t)(proxy(target)))
	defer gateway.Close()
	for i, want := range []string{
		`200 "GLOBAL";r=19999 "SERVICE";r=999 "INTERFACE";r=299 "IP";r=4`,
		`200 "GLOBAL";r=19998 "SERVICE";r=998 "INTERFACE";r=298 "IP";r=3`,
		`200 "GLOBAL";r=19997 "SERVICE";r=999 "INTERFACE";r=299 "IP";r=2`, // another service
		`200 "GLOBAL";r=19996 "SERVICE";r=997 "INTERFACE";r=299 "IP";r=1`, // another interface
		`200 "GLOBAL";r=19995 "SERVICE";r=996 "INTERFACE";r=297 "IP";r=0`, // spelled otherwise
		`429 "GLOBAL";r=19995 "SERVICE";r=996 "INTERFACE";r=297 "IP";r=0`,
		`429 "GLOBAL";r=19995 "SERVICE";r=996 "INTERFACE";r=297 "IP";r=0`,
	} {
		path := []string{"/mail/inbox", "/mail/inbox/7", "/chat/inbox", "/mail/sent", "//mail/./%69nbox/8", "/mail/inbox", "/mail/inbox"}[i]
		response, err := http.Get(gateway.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		got := response.Status[:3]
		for item := range strings.SplitSeq(response.Header.Get("RateLimit"), ", ") {
			item, _, _ = strings.Cut(item, ";t=")
			got += " " + item
		}
		if got != want {
			t.Errorf("request %d, %s:\ngot  %s\nwant %s", i+1, path, got, want)
		}
	}
	if served.Load() != 5 {
		t.Errorf("the upstream served %d", served.Load())
	}
}
