// Command chi is a service with a chi router that limits each client by route: 3 requests a minute for the pages
// of all items together.
//
//	go run ./examples/chi
//	curl -i http://127.0.0.1:8080/items/[1-4]     (the fourth is refused)
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/weirproject/weir/engine"
)

func main() {
	limits, err := engine.Open(context.Background(), engine.Config{Rules: "examples/chi/rules.yaml"})
	if err != nil {
		log.Fatal(err)
	}
	defer limits.Close()
	limited, err := limits.Middleware(nil)
	if err != nil {
		log.Fatal(err)
	}
	router := newRouter(limited)
	router.Get("/items/{id}", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "item", chi.URLParam(r, "id"))
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", router))
}

// newRouter makes a router whose requests are limited before they are routed.
func newRouter(limited func(http.Handler) http.Handler) *chi.Mux {
	router := chi.NewRouter()
	router.Use(named(router), limited)
	return router
}

// named names the route of each request, which chi itself finds behind its middleware.
func named(routes chi.Routes) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Pattern = routes.Find(chi.NewRouteContext(), r.Method, r.URL.Path)
			next.ServeHTTP(w, r)
		})
	}
}
