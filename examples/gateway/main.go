// Command gateway runs in front of services and checks four limits per request, in one
// decision: GLOBAL, SERVICE, INTERFACE and IP. A request that one of them refuses is charged
// to none.
//
//	go run ./examples/gateway
//	curl -i http://127.0.0.1:8080/mail/inbox     (the sixth within ten seconds is refused)
//
// The rules are reloaded when their file changes; with -store redis://host:6379 several gateways share the counts.
// The command weir serve does the same, with more protocols: see docs/howto/gateway.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"

	"github.com/weirproject/weir/engine"
	"github.com/weirproject/weir/httplimit"
)

func main() {
	upstream := flag.String("upstream", "", "URL of the service behind the gateway (default: a built-in one)")
	rules := flag.String("rules", "examples/gateway/rules.yaml", "rule file")
	store := flag.String("store", "memory", "store of the counts: memory, or the URL of a Redis")
	flag.Parse()
	if *upstream == "" {
		services := httptest.NewServer(http.HandlerFunc(madeUp))
		defer services.Close()
		*upstream = services.URL
	}
	target, err := url.Parse(*upstream)
	if err != nil {
		log.Fatal(err)
	}
	limits, err := engine.Open(context.Background(), engine.Config{Rules: *rules, Store: *store})
	if err != nil {
		log.Fatal(err)
	}
	defer limits.Close()
	limited, err := limits.Middleware(&httplimit.RuleOptions{Service: service})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("Ask six times: curl -i http://127.0.0.1:8080/mail/inbox")
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", limited(proxy(target))))
}

// proxy forwards requests. The middleware gives it the path in the form in which rules matched it.
func proxy(target *url.URL) http.Handler {
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.SetXForwarded()
	}}
}

// service is the first segment of the path: /mail/inbox is of mail.
func service(r *http.Request) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	return name
}

func madeUp(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintln(w, "here is", r.Method, r.URL.Path)
}
