// Command gateway runs in front of services and checks four limits per request, in one
// decision: GLOBAL, SERVICE, INTERFACE and IP. A request that one of them refuses is charged
// to none.
//
//	go run ./examples/gateway
//	curl -i http://127.0.0.1:8080/mail/inbox     (the sixth within ten seconds is refused)
//
// The command weir does the same, with more protocols: see docs/gateway.md.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/server/gateway"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

//go:embed rules.yaml
var law []byte

func main() {
	upstream := flag.String("upstream", "", "URL of the service behind the gateway (default: a built-in one)")
	flag.Parse()
	if *upstream == "" {
		services := httptest.NewServer(http.HandlerFunc(madeUp))
		defer services.Close()
		*upstream = services.URL
	}
	handler, err := before(*upstream, memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("Ask six times: curl -i http://127.0.0.1:8080/mail/inbox")
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", handler))
}

// before is a gateway before an upstream.
func before(upstream string, store weir.Store) (http.Handler, error) {
	target, err := url.Parse(upstream)
	if err != nil {
		return nil, err
	}
	set, err := rules.Load("rules.yaml", law)
	if err != nil {
		return nil, err
	}
	judge, err := gate.New(store, set, gate.WithLocal(memstore.New()))
	if err != nil {
		return nil, err
	}
	limited, err := httplimit.ByRules(judge, httplimit.WithService(service))
	if err != nil {
		return nil, err
	}
	return gateway.New(target, limited)
}

// service is the first segment of the path: /mail/inbox is of mail.
func service(r *http.Request) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	return name
}

func madeUp(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintln(w, "here is", r.Method, r.URL.Path)
}
