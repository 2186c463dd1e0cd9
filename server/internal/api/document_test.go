package api_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirproject/weir/memstore"
)

// Each mistake, and where and how it is told.
func TestInvalidBodiesAreDescribed(t *testing.T) {
	s := start(t, someRules)
	claim := func(members string) string { return `{"requests":[{"request":{}},{"claims":[{` + members + `}]}]}` }
	for name, test := range map[string]struct{ body, field, value, allowed string }{
		"no claim, no request": {`{}`, "request", "missing", "a request, claims, or both"},
		"none in a batch": {`{"requests":[{"request":{}},{"cost":1}]}`, "requests[1].request", "missing",
			"a request, claims, or both"},
		"an empty batch": {`{"requests":[]}`, "requests", "empty", "1 to 100 requests"},
		"a batch and more": {`{"requests":[{"request":{}}],"cost":1}`, "requests", "not alone",
			"no other member beside it: each request has its own"},
		"an unknown field": {`{"request":{},"costs":1}`, "costs", `"costs"`,
			"request, claims, cost, times, lease, id, for, dry_run, requests"},
		"another case": {`{"Request":{}}`, "Request", `"Request"`,
			"request, claims, cost, times, lease, id, for, dry_run, requests"},
		"a field twice": {`{"request":{"user":"a","user":"b"}}`, "request.user", "a second one",
			"each name once"},
		"an escaped twin": {`{"request":{"user":"a","\u0075ser":"b"}}`, "request.user", "a second one",
			"each name once"},
		"a header twice": {`{"request":{"headers":{"X-A":"1","x-a":"2"}}}`, "request.headers.x-a",
			"a second one", "each name once"},
		"a fraction": {claim(`"name":"a","limit":"5/1m","key":"k","cost":1.5`),
			"requests[1].claims[0].cost", "1.5", "a whole number from 0 to 4503599627370496"},
		"a whole fraction": {`{"request":{},"cost":1.0}`, "cost", "1.0",
			"a whole number from 0 to 4503599627370496"},
		"an exponent": {`{"request":{},"cost":1e3}`, "cost", "1e3",
			"a whole number from 0 to 4503599627370496"},
		"too large": {`{"request":{},"cost":4503599627370497}`, "cost", "4503599627370497",
			"a whole number from 0 to 4503599627370496"},
		"over an int64": {`{"request":{},"cost":18446744073709551617}`, "cost", "18446744073709551617",
			"a whole number from 0 to 4503599627370496"},
		"negative": {`{"request":{},"times":-1}`, "times", "-1",
			"a whole number from 1 to 4503599627370496"},
		"no times": {`{"request":{},"times":0}`, "times", "0", "a whole number from 1 to 4503599627370496"},
		"a number as text": {`{"request":{},"cost":"1"}`, "cost", `"1"`,
			"a whole number from 0 to 4503599627370496"},
		"null":         {`{"request":null}`, "request", "null", "an object"},
		"a list":       {`{"request":{"user":["a"]}}`, "request.user", `["a"]`, "a text"},
		"not a list":   {`{"claims":{}}`, "claims", "{}", "an array"},
		"not true":     {`{"request":{},"dry_run":1}`, "dry_run", "1", "true or false"},
		"many and dry": {`{"request":{},"dry_run":true,"times":2}`, "times", "2", "1 where dry_run is true"},
		"no address": {`{"request":{"client":"localhost"}}`, "request.client", `"localhost"`,
			"an IP address, such as 203.0.113.7 or 2001:db8::1"},
		"an encoded slash": {`{"request":{"path":"/a%2fb"}}`, "request.path", `"/a%2fb"`,
			"a path without encoded slashes (%2F)"},
		"a path with a query": {`{"request":{"path":"/a?b"}}`, "request.path", `"/a?b"`,
			"a path alone, without ? or #"},
		"no name":  {claim(`"limit":"5/1m","key":"k"`), "requests[1].claims[0].name", "missing", "a text"},
		"no limit": {claim(`"name":"a","key":"k"`), "requests[1].claims[0].limit", "missing", "a text"},
		"no key":   {claim(`"name":"a","limit":"5/1m"`), "requests[1].claims[0].key", "missing", "a text"},
		"an empty key": {claim(`"name":"a","limit":"5/1m","key":""`), "requests[1].claims[0].key",
			"0 bytes long", "1 to 65536 bytes"},
		"a name with space": {claim(`"name":"a b","limit":"5/1m","key":"k"`), "requests[1].claims[0].name",
			`"a b"`, "1 to 128 of a-z A-Z 0-9 and . _ -"},
		"our own name": {claim(`"name":"weir.reservation","limit":"5/1m","key":"k"`),
			"requests[1].claims[0].name", `"weir.reservation"`, "names that do not begin with weir."},
		"no period": {claim(`"name":"a","limit":"5","key":"k"`), "requests[1].claims[0].limit", `"5"`,
			"COUNT/PERIOD such as 100/1m or 10/s"},
		"a lease of a window": {`{"claims":[{"name":"a","limit":"concurrency 1 ttl 1m","key":"k"}],"times":2}`,
			"times", "2", "0 or 1 for a concurrency limit: each lease has its own id"},
		"not an object": {`[]`, "the body", "[]", "an object"},
	} {
		t.Run(name, func(t *testing.T) {
			a := s.post("/v1/decide", test.body)
			a.has(t, 400, "field", test.field, "value", test.value, "allowed", test.allowed, "status", 400)
			if offset, ok := a.at("offset").(float64); name != "a lease of a "+
				"window" && (!ok || int(offset) > len(test.body)) {
				t.Errorf("the offset is %v: %s", a.at("offset"), a.text)
			}
		})
	}
}

func TestMalformedJSONIsRefused(t *testing.T) {
	s := start(t, someRules)
	for _, body := range []string{
		``, ` `, `{`, `{"request":{}`, `{"request":{}}x`, `{"request":{}}{}`, `{"request":{},}`, `{'request':{}}`,
		`{"request":{"user":"` + "\xff" + `"}}`,
		`{"request":{"user":"\ud800"}}`, `{"request":{"user":"` + "\x01" + `"}}`, "\ufeff{}", `{"cost":01}`,
		`{"cost":NaN}`, `{"cost":+1}`, `{"request":{}} // so`,
		strings.Repeat("[", 1<<19), strings.Repeat(`{"request":`, 1<<16), `{"claims":` + strings.Repeat("[", 1<<19),
	} {
		a := s.post("/v1/decide", body)
		a.has(t, 400, "title", "Bad Request")
		if len(a.text) > 2000 {
			t.Errorf("%.60q is answered with %d bytes", body, len(a.text))
		}
	}
	s.post("/v1/decide", `{"request":{`+strings.Repeat(" ", 1<<20)+`}}`).has(t, 413)
	s.post("/v1/decide", `{"request":{"headers":{`+manyNames(64)+`}}}`).has(t, 200)
	s.post("/v1/decide", `{"request":{"headers":{`+manyNames(65)+`}}}`).has(t, 400, "allowed", "at most 64 names")
}

func manyNames(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(`,"h` + string(rune('a'+i/26)) + string(rune('a'+i%26)) + `":""`)
	}
	return b.String()[1:]
}

// ask is a request without a socket.
func ask(t testing.TB, h http.Handler, path, body string) (status int) {
	t.Helper()
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if !json.Valid(w.Body.Bytes()) {
		t.Errorf("%s %q is answered with %q", path, body, w.Body)
	}
	return w.Code
}

// A document that the standard library refuses is refused here, and none panics.
func FuzzDocument(f *testing.F) {
	for _, body := range []string{
		login, byRule, byClaim, `{"requests":[{"request":{}},{"claims":[{"name":"a","limit":"concurrency 1 ttl ` +
			`1s","key":"k","cost":1}],"lease":"x"}]}`,
		`{"request":{"host":"[::1]:8","path":"/%41//../b","query":{"a":"\u0000"},"cookies":{"":""},"descriptors":{"a":"b"}},"times":9,"dry_run":false}`,
		`{"request":{},"ttl":"1h"}`, `{"claims":[{"name":"a","limit":"calendar 1/day in ` +
			`Asia/Shanghai","key":"k","fixed":true}]}`,
		`{"claims":[{"name":"a","limit":"fair_concurrency 9 ttl 1m above 0 keys 1","key":"k","member":"","weight":1000,"floor":4503599627370496}]}`,
		`{"claims":[{"weight":3,"member":"m","floor":0,"cost":0,"name":"a","limit":"fair_calendar 5/day","key":"k","fixed":true}]}`,
	} {
		f.Add(body)
	}
	h := handler(f, memstore.New(), someRules)
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range []string{"/v1/decide", "/v1/peek", "/v1/reserve", "/v1/acquire", "/v1/reset",
			"/v1/settle"} {
			switch status := ask(t, h, path, body); {
			case status != 200 && status != 400 && status != 413:
				t.Errorf("%s %q: %d", path, body, status)
			case status == 200 && !json.Valid([]byte(body)):
				t.Errorf("%s takes %q, which is no JSON", path, body)
			}
		}
	})
}
