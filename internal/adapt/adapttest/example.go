package adapttest

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/adapt"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// Limited is middleware for the examples of adapters: each route passes one request a minute.
func Limited() adapt.Middleware {
	set, err := rules.Load("rules.yaml", []byte("rules: [{name: routes, key: [route], limit: sliding_log 1/1m}]"))
	if err != nil {
		panic(err)
	}
	g, err := gate.New(memstore.New(), set)
	if err != nil {
		panic(err)
	}
	limited, err := httplimit.ByRules(g, nil)
	if err != nil {
		panic(err)
	}
	return limited
}

// Show prints the statuses of two requests with a handler.
func Show(handler http.Handler, paths ...string) {
	for _, path := range paths {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		fmt.Println(path, w.Code)
	}
}
