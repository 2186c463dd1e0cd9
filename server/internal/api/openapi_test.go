package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/server/internal/api"
	"github.com/weirproject/weir/server/internal/openapitest"
	"github.com/weirproject/weir/server/internal/web"
)

// A witness has seen the paths of fields too: "Answer.lease.id".
type witness struct {
	*openapitest.Witness
	t testing.TB
}

func newWitness(t testing.TB, next http.Handler) *witness {
	t.Helper()
	w := &witness{openapitest.New(t, next, api.Document(), 404, 405), t}
	w.Note = func(route *routers.Route, answer *httptest.ResponseRecorder) {
		schema := "Problem"
		if route != nil {
			schema = schemaOf(route, answer)
		}
		var value any
		if json.Unmarshal(answer.Body.Bytes(), &value) == nil {
			w.noteValue(schema, value)
		}
	}
	return w
}

// schemaOf is what the answer is one of, by name.
func schemaOf(route *routers.Route, answer *httptest.ResponseRecorder) string {
	if answer.Header().Get("Content-Type") == "application/problem+json" {
		return "Problem"
	}
	schema := route.Operation.Responses.Value("200").Value.Content["application/json"].Schema
	if strings.HasPrefix(answer.Body.String(), `{"answers"`) {
		return "BatchAnswer"
	}
	if len(schema.Value.OneOf) > 0 {
		return "Answer"
	}
	return strings.TrimPrefix(schema.Ref, "#/components/schemas/")
}

func (w *witness) noteValue(at string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			w.See(at + "." + name)
			w.noteValue(at+"."+name, member)
		}
	case []any:
		for _, element := range value {
			w.noteValue(at, element)
		}
	}
}

// TestAnswersMatchOpenAPIDocument brings about every status of every operation, and every field of
// every answer.
func TestAnswersMatchOpenAPIDocument(t *testing.T) {
	w := newWitness(t, handler(t, memstore.New(), someRules))
	everyAnswer(serve(t, w))
	guarded := newWitness(t, handler(t, memstore.New(), someRules, access(t, web.Config{
		Tokens:   []web.Token{{Secret: "read-read-read-read"}, {Secret: "write-write-write", Write: true}},
		Loopback: true,
	})))
	everyRefusal(t, serve(t, guarded))
	broken := newWitness(t, handler(t, &gone{Store: memstore.New()}, someRules))
	everyOutage(serve(t, broken), serve(t, w))
	serve(t, w).post("/v1/decide?answer=http", login).has(t, 200, "response.status", 429)
	for range 2 {
		serve(t, w).post("/v1/decide", `{"claims":[{"name":"again","limit":"5/1m","key":"k"}],"id":"a","for":"1m"}`)
	}
	w.SawAll(guarded.Witness, broken.Witness) // and of deny_status:
	for _, at := range []string{"POST /v1/decide 429", "POST /v1/acquire 599"} {
		if !w.Saw(at) {
			t.Errorf("%s was never answered", at)
		}
	}
	for _, name := range []string{"Answer", "ReserveAnswer", "BatchAnswer", "ResetAnswer", "Settled", "Renewed", "Released", "Problem"} {
		w.everyField(name, w.Doc.Components.Schemas[name])
	}
}

// everyField asks that each property of a schema was answered once.
func (w *witness) everyField(at string, schema *openapi3.SchemaRef) {
	for schema.Value.Items != nil || len(schema.Value.AllOf) > 0 {
		if schema.Value.Items != nil {
			schema = schema.Value.Items
		} else {
			schema = schema.Value.AllOf[0]
		}
	}
	if strings.HasSuffix(at, "BatchAnswer.answers") || at == "ReserveAnswer" { // all but their own fields is Answer
		schema = map[string]*openapi3.SchemaRef{"BatchAnswer.answers": errorAlone(schema),
			"ReserveAnswer": reservationAlone(schema)}[at]
	}
	for name, property := range schema.Value.Properties {
		if at == "Answer" && name == "error" {
			continue // in a batch
		}
		if at == "Problem" && (name == "current" || name == "mistakes" || name == "violated-policies" || name == "instance") {
			continue // in the admin API
		}
		if !w.Saw(at + "." + name) {
			w.t.Errorf("%s.%s is in the document and was never answered", at, name)
		}
		w.everyField(at+"."+name, property)
	}
}

func errorAlone(s *openapi3.SchemaRef) *openapi3.SchemaRef       { return alone(s, "error") }
func reservationAlone(s *openapi3.SchemaRef) *openapi3.SchemaRef { return alone(s, "reservation") }

func alone(s *openapi3.SchemaRef, name string) *openapi3.SchemaRef {
	property := s.Value.Properties[name]
	if property == nil {
		return s
	}
	// Its members have their own schemas.
	one := &openapi3.Schema{Properties: openapi3.Schemas{name: openapi3.NewSchemaRef("", &openapi3.Schema{})}}
	return openapi3.NewSchemaRef("", one)
}

const login = `{"request":{"method":"POST","path":"/login","client":"203.0.113.7"}}`

// bodies are one good document for each operation that takes one.
func bodies(s *server) map[string]string {
	reserved := s.post("/v1/reserve", `{"request":{"path":"/x"},"ttl":"1m"}`).at("reservation.token")
	held := s.post("/v1/acquire", `{"request":{"path":"/jobs","user":"u"}}`).at("lease.token")
	return map[string]string{
		"/v1/decide": login, "/v1/peek": login, "/v1/acquire": login, "/v1/reset": login, "/v1/reserve": login,
		"/v1/settle":  fmt.Sprintf(`{"token":%q,"actual":3,"status":200}`, reserved),
		"/v1/renew":   fmt.Sprintf(`{"token":%q}`, held),
		"/v1/release": fmt.Sprintf(`{"token":%q}`, held),
	}
}

func everyAnswer(s *server) {
	good := bodies(s)
	s.send("GET", "/v1/openapi.json", "").has(s.t, 200)
	s.send("GET", "/v1/openapi.json?x=1", "").has(s.t, 400)
	s.send("GET", "/v1/openapi.json", "", "Sec-Fetch-Site", "cross-site").has(s.t, 200) // the page cannot read it
	for _, path := range slices.Backward(slices.Sorted(maps.Keys(good))) {              // settle before reset, renew before release
		if path == "/v1/release" {
			continue
		}
		s.post(path, good[path])
	}
	s.post("/v1/release", good["/v1/release"])
	for _, path := range []string{"/v1/settle", "/v1/release", "/v1/renew"} {
		s.post(path, good[path]) // 409
	}
	for path := range good {
		s.post(path, `{"nonsense":1}`)
		s.post(path, `{`+strings.Repeat(" ", 1<<20)+`}`)
		s.send("POST", path, `{}`, "Content-Type", "text/plain")
	}
	for range 3 {
		s.post("/v1/decide?deny_status=429", login)
	}
	s.post("/v1/acquire?deny_status=599", `{"request":{"path":"/jobs"}}`)
	s.post("/v1/decide", `{"request":{"path":"/export"}}`)
	s.post("/v1/peek", `{"requests":[`+login+`,`+login+`]}`)
	const twice = `{"name":"a","limit":"1/1m","key":"k"}`
	s.post("/v1/decide", `{"requests":[`+login+`,{"claims":[`+twice+`,`+twice+`]}]}`)
	s.post("/v1/decide", `{"claims":[{"name":"later","limit":"1/1m overdraft 5","key":"k","cost":3}]}`)
	s.post("/v1/decide", `{"claims":[{"name":"held","limit":"concurrency 5 ttl 30s","key":"k"}]}`)
	s.send("GET", "/v1/nowhere", "")
	s.send("PUT", "/v1/decide", "")
	for path := range good {
		s.post(path, good[path], "Sec-Fetch-Site", "cross-site")
	}
}

func everyRefusal(t *testing.T, s *server) {
	for path, body := range bodies(s) {
		s.post(path, body)
		if a := s.post(path, body, "Authorization", "Bearer "+
			"nobody-knows-this"); a.status != 401 || !strings.Contains(a.header.Get("WWW-Authenticate"), "invalid_token") {
			t.Errorf("%s with an unknown token: %d %v", path, a.status, a.header)
		}
		s.post(path, body, "Authorization", "Bearer read-read-read-read")
	}
	const path, reader = "/v1/openapi.json", "Bearer read-read-read-read"
	s.send("GET", path, "").has(t, 401)
	s.send("GET", path, "", "Authorization", reader).has(t, 200)
	s.send("GET", path, "", "Authorization", reader, "Host", "evil.example").has(t, 403)
}

// gone is a store that does not answer.
type gone struct{ weir.Store }

var errGone = fmt.Errorf("%w: dial tcp 10.1.2.3:6379: refused", weir.ErrUnavailable)

func (*gone) Decide(context.Context, []weir.Claim, int64, []weir.Decision) (int64, error) {
	return 0, errGone
}

func (*gone) Refund(context.Context, []weir.Claim, weir.Instant, []weir.Decision) error {
	return errGone
}
func (*gone) Charge(context.Context, []weir.Claim, []weir.Decision) error { return errGone }
func (*gone) Reset(context.Context, []weir.Claim) error                   { return errGone }

func everyOutage(s, healthy *server) {
	const denied = `{"request":{"path":"/export","user":"u"}}`
	tokens := bodies(healthy)
	s.post("/v1/decide", login).has(s.t, 200, "degraded", true)
	for _, path := range []string{"/v1/decide", "/v1/peek", "/v1/acquire", "/v1/reset", "/v1/reserve"} {
		s.post(path, denied).has(s.t, 503)
		if path != "/v1/reset" {
			s.post(path, login).has(s.t, 200)
		}
	}
	for _, path := range []string{"/v1/settle", "/v1/renew", "/v1/release"} {
		a := s.post(path, tokens[path])
		a.has(s.t, 503)
		if strings.Contains(a.text, "10.1.2.3") {
			s.t.Errorf("%s tells where the store is: %s", path, a.text)
		}
	}
}

// TestRequestsMatchOpenAPIDocument: what the document calls right, the server takes, and
// what the server takes the document calls right.
func TestRequestsMatchOpenAPIDocument(t *testing.T) {
	served := handler(t, memstore.New(), someRules)
	w := newWitness(t, served)
	for _, test := range []struct{ path, body string }{
		{"/v1/decide", login},
		{"/v1/decide", `{"claims":[{"name":"a","limit":"5/1m","key":"k","cost":0}],"times":3,"cost":2,"dry_run":false}`},
		{"/v1/decide", `{"requests":[` + login + `]}`},
		{"/v1/decide", `{"request":{"headers":{"A":"b"},"query":{"a":"b"},"cookies":{},"descriptors":{"x":""}},"lease":"l"}`},
		{"/v1/decide", `{}`},
		{"/v1/decide", `{"requests":[]}`},
		{"/v1/decide", `{"request":{},"times":0}`},
		{"/v1/decide", `{"request":{},"cost":-1}`},
		{"/v1/decide", `{"request":{},"cost":1.5}`},
		{"/v1/decide", `{"request":{},"ttl":"1h"}`},
		{"/v1/decide", `{"request":{"headers":{"A":["b"]}}}`},
		{"/v1/decide", `{"claims":[{"name":"a b","limit":"5/1m","key":"k"}]}`},
		{"/v1/decide", `{"claims":[{"name":"a","limit":"5/1m"}]}`},
		{"/v1/decide", `{"claims":[{"name":"a","limit":"5/1m","key":""}]}`},
		{"/v1/peek", `{"request":{},"times":1}`},
		{"/v1/reserve", `{"claims":[{"name":"a","limit":"5/1m","key":"k","fixed":true}],"ttl":"1h"}`},
		{"/v1/acquire", `{"claims":[{"name":"a","limit":"5/1m","key":"k","fixed":true}]}`},
		{"/v1/reset", `{"request":{},"cost":1}`},
		{"/v1/settle", `{"token":"","actual":1}`},
		{"/v1/settle", `{"token":"x"}`},
	} {
		r := httptest.NewRequest("POST", test.path, strings.NewReader(test.body))
		r.Header.Set("Content-Type", "application/json")
		valid := w.Valid(r)
		recorder := httptest.NewRecorder()
		r = httptest.NewRequest("POST", test.path, strings.NewReader(test.body))
		r.Header.Set("Content-Type", "application/json")
		served.ServeHTTP(recorder, r)
		if taken := recorder.Code == 200; taken != valid {
			t.Errorf("%s %s: the server answers %d %s; valid by the document: %v", test.path, test.body, recorder.Code,
				recorder.Body, valid)
		}
	}
}
