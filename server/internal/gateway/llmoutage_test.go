package gateway_test

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir/engine"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/gateway"
)

// An outage is a Redis that stops while clients spend tokens before two gateways, and comes back.
type outage struct {
	*testing.T
	tokens  int64
	server  *redistest.Server
	models  *models
	fronts  []*httptest.Server
	engines []*engine.Engine
	failed  atomic.Int64 // requests that Redis did not decide
	unsure  [4]atomic.Int64
}

// newOutage are gateways that decide nothing without Redis.
func newOutage(t *testing.T, tokens int) *outage {
	o := &outage{T: t, tokens: int64(tokens), server: redistest.Start(t), models: new(models)}
	service := open(t, o.models.ServeHTTP)
	text := strings.ReplaceAll(modelRules(tokens), "key:", "on_store_error: deny, key:")
	for range 2 {
		e := engineWithin(t, o.server.URL(), text, time.Second)
		limit, err := e.Middleware(&httplimit.RuleOptions{Decoders: gateway.Decoders(), Observe: o.observe})
		if err != nil {
			t.Fatal(err)
		}
		o.fronts = append(o.fronts, front(t, newGateway(t, service.URL, limit)))
		o.engines = append(o.engines, e)
	}
	return o
}

// observe notes requests whose units may be charged without an answer that costs them: Redis may do what it was asked
// when it comes back, and what it did not do is not done later.
func (o *outage) observe(r *http.Request, e httplimit.Event) {
	if e.Outcome != httplimit.Failed && e.Outcome != httplimit.Unsettled {
		return
	}
	api, _ := strconv.Atoi(r.Header.Get("X-Api"))
	estimate, _ := strconv.ParseInt(r.Header.Get("X-Estimate"), 10, 64)
	o.unsure[api].Add(estimate)
	o.failed.Add(1)
}

// client sends prompts until so many are decided. One that Redis does not decide is sent again when it is back.
func (o *outage) client(number, prompts int) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	random := rand.New(rand.NewPCG(17, uint64(number)))
	for i := range prompts {
		p := chosen(random)
		for again := true; again; {
			status, _ := p.send(o.T, transport, o.fronts[(number+i)%len(o.fronts)].URL)
			if again = status == http.StatusServiceUnavailable; again {
				redistest.Await(o, "Redis", func() bool { return o.stored(0) >= 0 })
			}
		}
	}
}

// stored is what Redis has charged; -1 while it does not answer.
func (o *outage) stored(api int) int64 {
	r := &rules.Request{Method: "POST", Path: modelPaths[api], Attributes: team{}}
	var v gate.Verdict
	if err := o.engines[0].Decide(o.Context(), r, gate.Ask{}, &v); err != nil || v.Degraded() || v.Len() == 0 {
		return -1
	}
	return o.tokens - v.At(0).Decision.Remaining
}

// TestTokensDuringAnOutage: while Redis stops and comes back, clients leave and services break off, no more than the
// budget is used, no token that was used is missing in Redis, and nothing more is charged than the estimates of the
// requests that Redis did not answer.
func TestTokensDuringAnOutage(t *testing.T) {
	for name, tokens := range map[string]int{"ample": 1_000_000_000, "scarce": 60_000} {
		t.Run(name, func(t *testing.T) {
			o := newOutage(t, tokens)
			var group sync.WaitGroup
			for client := range 64 {
				group.Go(func() { o.client(client, 20) })
			}
			redistest.Await(t, "answers before the outage", func() bool { return o.models.whole.Load() > 50 })
			o.server.Stop()
			redistest.Await(t, "requests that Redis does not answer", func() bool { return o.failed.Load() > 20 })
			o.server.Cont()
			group.Wait()
			for _, f := range o.fronts {
				f.Close() // after the last request is settled
			}
			for api, path := range modelPaths {
				stored := int64(-1)
				redistest.Await(t, "the cost of "+path, func() bool { stored = o.stored(api); return stored >= 0 })
				used, expected, unsure := o.models.used[api].Load(), o.models.expected[api].Load(), o.unsure[api].Load()
				if used > int64(tokens) || stored < expected || stored > expected+unsure {
					t.Errorf("%s: %d of %d tokens are used, and %d charged, of which %d to %d should be", path, used,
						tokens, stored, expected, expected+unsure)
				}
			}
			t.Logf("%d answers, %d broken, %d that Redis did not decide or settle", o.models.whole.Load(),
				o.models.broken.Load(), o.failed.Load())
		})
	}
}
