// Package openapitest compares what a handler answers with its OpenAPI document. It is for tests.
package openapitest

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// A Witness is a handler with its document beside it: each answer must be one that the document has.
type Witness struct {
	Doc *openapi3.T
	// Note, if non-nil, is called with each answer, and with the route of its operation, if there is one.
	Note func(route *routers.Route, answer *httptest.ResponseRecorder)

	t       testing.TB
	next    http.Handler
	router  routers.Router
	outside []int

	mu   sync.Mutex
	seen map[string]bool
}

// New is a witness of a handler. Requests of no operation are answered with one of the statuses outside.
func New(t testing.TB, next http.Handler, document []byte, outside ...int) *Witness {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(document)
	if err == nil {
		err = doc.Validate(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	return &Witness{Doc: doc, t: t, next: next, router: router, outside: outside, seen: make(map[string]bool)}
}

// ServeHTTP implements http.Handler.
func (w *Witness) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	recorder := httptest.NewRecorder()
	r.Header.Del("Accept-Encoding") // schemas are of plain answers
	w.next.ServeHTTP(recorder, r)
	route := w.check(r, recorder)
	if w.Note != nil {
		w.Note(route, recorder)
	}
	maps.Copy(out.Header(), recorder.Header())
	out.WriteHeader(recorder.Code)
	out.Write(recorder.Body.Bytes())
}

func (w *Witness) check(r *http.Request, answer *httptest.ResponseRecorder) *routers.Route {
	route, parameters, err := w.router.FindRoute(r)
	if err != nil {
		if !slices.Contains(w.outside, answer.Code) {
			w.t.Errorf("%s %s answers %d and is not in the document: %v", r.Method, r.URL.Path, answer.Code, err)
		}
		return nil
	}
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: r, PathParams: parameters, Route: route},
		Status: answer.Code, Header: answer.Header(),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	}
	input.SetBodyBytes(answer.Body.Bytes())
	if err := openapi3filter.ValidateResponse(r.Context(), input); err != nil {
		w.t.Errorf("%s %s answers %d %s, which is not what the document says: %v", r.Method, r.URL.Path,
			answer.Code, answer.Body, err)
	}
	w.See(fmt.Sprint(r.Method, " ", route.Path, " ", answer.Code))
	return route
}

// Valid reports whether the document takes a request. The body is read.
func (w *Witness) Valid(r *http.Request) bool {
	w.t.Helper()
	route, parameters, err := w.router.FindRoute(r)
	if err != nil {
		w.t.Fatal(err)
	}
	err = openapi3filter.ValidateRequest(r.Context(), &openapi3filter.RequestValidationInput{
		Request: r, PathParams: parameters, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
	})
	var shape *openapi3filter.RequestError
	if err != nil && !errors.As(err, &shape) {
		w.t.Fatal(err)
	}
	return err == nil
}

// See marks something as seen, besides statuses of operations such as "POST /v1/decide 200".
func (w *Witness) See(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen[what] = true
}

// Saw reports whether something was seen.
func (w *Witness) Saw(what string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen[what]
}

// SawAll adds what others have seen, and checks that every status of every operation was; not 4XX and the like.
func (w *Witness) SawAll(others ...*Witness) {
	w.t.Helper()
	for _, other := range others { // a handler may still run whose client has left
		other.mu.Lock()
		seen := maps.Clone(other.seen)
		other.mu.Unlock()
		for what := range seen {
			w.See(what)
		}
	}
	for path, item := range w.Doc.Paths.Map() {
		for method, operation := range item.Operations() {
			for status := range operation.Responses.Map() {
				at := method + " " + path + " " + status
				if !strings.HasSuffix(status, "XX") && !w.Saw(at) {
					w.t.Errorf("%s is in the document and was never answered", at)
				}
			}
		}
	}
}
