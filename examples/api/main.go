// Command api is an API with limits by address, by user, by endpoint and for the whole site,
// all of a request in one decision.
//
//	go run ./examples/api
//	curl -i -H 'X-API-Key: secret-of-ann' http://127.0.0.1:8080/users/7
package main

import (
	_ "embed"
	"fmt"
	"log"
	"net/http"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

//go:embed rules.yaml
var ruleFile []byte

func main() {
	handler, err := api(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("Ask: curl -i -H 'X-API-Key: secret-of-ann' http://127.0.0.1:8080/users/7")
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", handler))
}

func api(store weir.Store) (http.Handler, error) {
	set, err := rules.Load("rules.yaml", ruleFile)
	if err != nil {
		return nil, err
	}
	g, err := gate.New(store, set, gate.WithLocal(memstore.New()))
	if err != nil {
		return nil, err
	}
	limited, err := httplimit.ByRules(g, &httplimit.RuleOptions{User: user})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	// Behind the mux, so that it has chosen the route: r.Pattern.
	mux.Handle("GET /users/{id}", limited(http.HandlerFunc(show)))
	mux.Handle("GET /users/{id}/export", limited(http.HandlerFunc(export)))
	return mux, nil
}

// user is the owner of the API key of a request; "" for an unknown key. If unknown keys were counted
// separately, a client could send a new one with each request.
func user(r *http.Request) string {
	return map[string]string{"secret-of-ann": "ann", "secret-of-acme": "partner-acme"}[r.Header.Get("X-API-Key")]
}

func show(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "user", r.PathValue("id")) }

func export(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintln(w, "all that is known of user", r.PathValue("id"))
}
