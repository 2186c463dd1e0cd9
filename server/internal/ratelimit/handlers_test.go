package ratelimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/server/internal/ratelimit"
	"github.com/weirproject/weir/server/internal/rls"
)

const edge = `rules: [{name: a, match: {service: edge, descriptor_keys: a}, key: [descriptor.a], limit: fixed_window 1/1h epoch}]`

func serviceOf(t testing.TB, text string, options rls.Options) service.RateLimitServiceServer {
	t.Helper()
	return ratelimit.NewService(rls.New(gatetest.New(t, memstore.New(), text), options), nil, nil)
}

func post(handler http.Handler, body string) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest("POST", "/json", strings.NewReader(body)))
	return answer
}

// A failing service answers an error.
type failing struct {
	service.UnimplementedRateLimitServiceServer
	err error
}

func (f failing) ShouldRateLimit(context.Context, *service.RateLimitRequest) (*service.RateLimitResponse, error) {
	return nil, f.err
}

// TestJSON has the status of each answer.
func TestJSON(t *testing.T) {
	handler := ratelimit.JSON(serviceOf(t, edge, rls.Options{Ratelimit: &rls.Ratelimit{}}))
	const one = `{"domain": "edge", "descriptors": [{"entries": [{"key": "a", "value": "x"}]}]}`
	for i, test := range []struct {
		body string
		want int
		text string
	}{
		{one, 200, `"overallCode":"OK"`},
		{one, 429, `"overallCode":"OVER_LIMIT"`},
		{`{"domain": "edge"}`, 400, "Bad Request"},
		{`{"domain": "edge", "more": 1}`, 400, "Bad Request"},
		{`[]`, 400, "Bad Request"},
		{``, 400, "Bad Request"},
		{`{"domain": "` + strings.Repeat("x", 1<<20) + `"}`, 413, "Request Entity Too Large"},
	} {
		answer := post(handler, test.body)
		text := strings.ReplaceAll(answer.Body.String(), " \"", "\"")
		if answer.Code != test.want || !strings.Contains(strings.ReplaceAll(text, ": ", ":"), test.text) && !strings.Contains(text, test.text) {
			t.Errorf("%d: %d %s, want %d %s", i, answer.Code, answer.Body, test.want, test.text)
		}
	}
	for code, want := range map[codes.Code]int{codes.Unavailable: 500, codes.Internal: 500, codes.Canceled: 500, codes.Unknown: 400,
		codes.InvalidArgument: 400} {
		if got := post(ratelimit.JSON(failing{err: status.Error(code, "")}), one).Code; got != want {
			t.Errorf("%v: %d, want %d", code, got, want)
		}
	}
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest("GET", "/json", nil))
	if answer.Code != 405 || answer.Header().Get("Allow") != "POST" {
		t.Errorf("GET: %d %v", answer.Code, answer.Header())
	}
}

func TestHealthcheck(t *testing.T) {
	for healthy, want := range map[bool]string{true: "200 OK", false: "500 "} {
		answer := httptest.NewRecorder()
		ratelimit.Healthcheck(func() bool { return healthy }).ServeHTTP(answer, httptest.NewRequest("GET", "/healthcheck", nil))
		if got := fmt.Sprint(answer.Code, " ", answer.Body); got != want {
			t.Errorf("%v: %q, want %q", healthy, got, want)
		}
	}
}

// FuzzJSON posts bodies of any kind: the answer is a RateLimitResponse, or the text of a status.
func FuzzJSON(f *testing.F) {
	for _, body := range []string{
		`{"domain": "edge", "descriptors": [{"entries": [{"key": "a", "value": "x"}]}]}`,
		`{"domain": "edge", "hitsAddend": 4294967295, "descriptors": [{"entries": [{"key": "a"}], "hitsAddend": "18446744073709551615"}]}`,
		`{"domain":"edge","descriptors":[{"limit":{"requestsPerUnit":0,"unit":"MONTH"},"entries":[]}, {}]}`,
		`{"domain":"edge","descriptors":[{"limit":{"unit":99}}, null]}`, `{"descriptors": {}}`, "\x00", `{"domain":"\ud800"}`,
	} {
		f.Add(body)
	}
	handler := ratelimit.JSON(serviceOf(f, edge, rls.Options{Ratelimit: &rls.Ratelimit{Metadata: true, Headers: [3]string{"a", "b", "c"}}}))
	f.Fuzz(func(t *testing.T, body string) {
		switch answer := post(handler, body); answer.Code {
		case 200, 429:
			if err := protojson.Unmarshal(answer.Body.Bytes(), new(service.RateLimitResponse)); err != nil {
				t.Errorf("%q: %v", answer.Body, err)
			}
		case 400, 413:
		default:
			t.Errorf("%q: %d %s", body, answer.Code, answer.Body)
		}
	})
}
