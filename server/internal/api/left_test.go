package api_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// left is a store whose caller leaves as it decides.
type left struct {
	weir.Store
	leave context.CancelFunc
}

func (l *left) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	granted, err := l.Store.Decide(ctx, claims, times, d)
	l.leave()
	return granted, err
}

// TestCallerThatLeftHoldsNothing: a caller that left before the answer does not know the lease, and so cannot release
// it. A caller that chose its id can.
func TestCallerThatLeftHoldsNothing(t *testing.T) {
	const one = `{"claims":[{"name":"jobs","limit":"concurrency 1 ttl 1h","key":"partner"}]`
	for _, c := range []struct {
		what, path, body string
		held             bool
	}{
		{"a lease", "/v1/acquire", one + "}", false},
		{"a lease of a decision", "/v1/decide", one + "}", false},
		{"a lease of a batch", "/v1/decide", `{"requests":[` + one + `},{"claims":[{"limit":"5/1m","key":"k"}]}]}`, false},
		{"a lease with its caller's id", "/v1/acquire", one + `,"lease":"id-of-the-caller"}`, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			store := &left{memstore.New(), leave}
			h := handler(t, store, "rules: []")
			r := httptest.NewRequestWithContext(ctx, "POST", c.path, strings.NewReader(c.body))
			r.Header.Set("Content-Type", "application/json")
			h.ServeHTTP(httptest.NewRecorder(), r)
			want := 1.0
			if c.held {
				want = 0
			}
			if got := serve(t, h).post("/v1/peek", one+"}").at("checks.0.remaining"); got != want {
				t.Errorf("%v slots are free, want %v", got, want)
			}
		})
	}
}

// TestLeaseOfTheCallerStays: the text of a request lies in a buffer that the next request uses, and the store keeps the
// lease.
func TestLeaseOfTheCallerStays(t *testing.T) {
	s := serve(t, handler(t, memstore.New(), "rules: []"))
	held := s.post("/v1/acquire", `{"claims":[{"name":"jobs","limit":"concurrency 1 ttl 1h","key":"partner"}],`+
		`"lease":"id-of-the-caller"}`).at("lease.token")
	for range 20 {
		s.post("/v1/acquire", `{"claims":[{"name":"jobs","limit":"concurrency 1 ttl 1h","key":"another"}],`+
			`"lease":"another-id-of-another-caller"}`)
	}
	if got := s.post("/v1/renew", fmt.Sprintf(`{"token":%q}`, held)).at("renewed"); got != true {
		t.Errorf("renewed is %v", got)
	}
}
