// Command gorilla is a service with a router of gorilla/mux that limits each client by route: 3 requests a minute for
// the pages of all items together.
//
//	go run ./examples/gorilla
//	curl -i http://127.0.0.1:8080/items/[1-4]     (the fourth is refused)
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"github.com/gorilla/mux"

	"github.com/weirproject/weir/engine"
)

func main() {
	limits, err := engine.Open(context.Background(), engine.Config{Rules: "examples/gorilla/rules.yaml"})
	if err != nil {
		log.Fatal(err)
	}
	defer limits.Close()
	limited, err := limits.Middleware(nil)
	if err != nil {
		log.Fatal(err)
	}
	router := newRouter(limited)
	router.HandleFunc("/items/{id}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "item", mux.Vars(r)["id"])
	}).Methods("GET")
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", router))
}

// newRouter makes a router whose requests are limited when their route is known.
func newRouter(limited func(http.Handler) http.Handler) *mux.Router {
	router := mux.NewRouter()
	router.Use(named, limited)
	return router
}

// named names the route of each request.
func named(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Pattern, _ = mux.CurrentRoute(r).GetPathTemplate() // a route without a path has none
		next.ServeHTTP(w, r)
	})
}
