package backtest

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/webvalues"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/internal/accesslog"
)

// A result is the outcome of a request under a set of rules: passed, or undecided, or the rule that refuses it, from 1,
// or minus the number of a rule that denies it.
type result int32

const (
	passed    result = 0
	listed    result = 1 << 30   // denied by the list of the file
	undecided result = 1<<30 + 1 // a front end would answer 400
)

func refusedBy(r *rules.Rule) result { return result(r.Index() + 1) }

// stopped reports whether a limit, a list or a ban keeps the request from its service.
func (r result) stopped() bool { return r != passed && r != undecided }

// denies reports whether a list does.
func (r result) denies() bool { return r == listed || r < 0 }

// rule is the index of the rule; −1: no rule.
func (r result) rule() int {
	switch {
	case r == passed || r >= listed:
		return -1
	case r < 0:
		return int(-r) - 1
	}
	return int(r) - 1
}

// A replayer replays requests through a gate and its own store, by a clock that the requests drive. It is not
// safe for concurrent use.
type replayer struct {
	set    *rules.Set
	now    int64
	store  *memstore.Store
	gate   *gate.Gate
	ends   ends
	kept   int64 // keys after the last sweep of the store
	serial int64 // of leases

	verdict  gate.Verdict
	request  rules.Request
	values   values
	parts    []*part         // of the descriptors of a request
	verdicts []*gate.Verdict // of the last request

	leases  bool   // some rules hold leases
	holding []bool // by rule: its limits depend on the response or its end
	full    int64  // requests that found the store full
}

// values are the named values of a request, and how many requests lacked them.
type values struct {
	webvalues.Request
	missing map[string]int64
}

func (v *values) noted(kind, name, value string) string {
	if value == "" && v.missing != nil {
		v.missing[kind+name]++
	}
	return value
}

// Header is a header field.
func (v *values) Header(name string) string { return v.noted("header.", name, v.Request.Header(name)) }

// Query is a query parameter.
func (v *values) Query(name string) string { return v.noted("query.", name, v.Request.Query(name)) }

// Cookie is a cookie.
func (v *values) Cookie(name string) string { return v.noted("cookie.", name, v.Request.Cookie(name)) }

// Body is empty: logs have no bodies.
func (v *values) Body(name string) string { return v.noted("body.", name, "") }

// Descriptor is empty: logs have no descriptors.
func (*values) Descriptor(string) string { return "" }

func newReplayer(set *rules.Set, c *Config) (*replayer, error) {
	l := &replayer{set: set, holding: make([]bool, len(set.Rules()))}
	l.values.missing = make(map[string]int64)
	clock := memstore.WithClock(func() weir.Instant { return weir.Instant(l.now) })
	l.store = memstore.New(clock, memstore.WithMaxKeys(c.MaxKeys))
	var err error
	l.gate, err = gate.New(l.store, set, gate.WithLocal(l.store), gate.WithGeo(c.Geo),
		gate.WithClock(func() time.Time { return time.UnixMicro(l.now) }))
	for _, rule := range set.Rules() {
		l.holding[rule.Index()] = rule.HasCountIf() || rule.ByPath() || rule.Settle() == inBytes || isHeld(rule)
		l.leases = l.leases || isHeld(rule)
	}
	return l, err
}

// isHeld reports whether a rule has a concurrency limit.
func isHeld(rule *rules.Rule) bool {
	return slices.ContainsFunc(rule.Limits(), (*weir.Limit).Leases)
}

// inBytes is the settle of a rule with a cost that is the length of the response.
const inBytes = "bytes"

// decide is what happens to a request.
func (l *replayer) decide(ctx context.Context, e *event) (result, error) {
	at := e.at
	if len(l.ends) > 0 {
		if err := l.end(ctx, at); err != nil {
			return passed, err
		}
	}
	l.now = at
	if len(e.descriptors) > 0 {
		return l.together(ctx, e)
	}
	l.verdicts = append(l.verdicts[:0], &l.verdict)
	if e.path == "" {
		return undecided, nil
	}
	e.request(&l.request)
	l.values.Request = webvalues.Request{Host: e.host, RawQuery: e.query, Kind: l.set.ServiceKind(),
		Fields: &e.fields}
	l.request.Attributes = &l.values
	if len(l.set.Routes()) > 0 {
		l.set.SetRoute(&l.request)
	}
	if err := l.values.Check(); err != nil {
		return undecided, nil
	}
	v := &l.verdict
	l.serial++
	ask := gate.Once
	if l.leases {
		ask.Lease = strconv.FormatInt(l.serial, 36)
	}
	err := l.gate.Decide(ctx, &l.request, ask, v)
	var input *weir.InputError
	switch {
	case errors.As(err, &input):
		return undecided, nil
	case err != nil:
		return passed, err
	case v.Err != nil:
		l.full++
	}
	if v.Outcome == gate.Failed {
		return undecided, nil
	}
	if v.Granted > 0 && l.holds(v) {
		if err := l.hold(ctx, e, v); err != nil {
			return passed, err
		}
	}
	return resultOf(v), nil
}

// holds reports whether the response, or the end of the request, matters to a limit.
func (l *replayer) holds(v *gate.Verdict) bool {
	for _, rule := range v.Matched() {
		if l.holding[rule.Index()] {
			return true
		}
	}
	return false
}

func resultOf(v *gate.Verdict) result {
	switch {
	case v.Outcome == gate.Refused:
		return refusedBy(v.Rule)
	case v.Outcome == gate.Denied && v.Rule != nil:
		return -refusedBy(v.Rule)
	case v.Outcome == gate.Denied:
		return listed
	}
	return passed
}

// An ending is the end of a request that passed.
type ending struct {
	at      int64 // when its leases are renewed, or it ends
	end     int64
	renew   int64 // time between renewals; 0: it has no leases
	serial  int64
	receipt gate.Receipt
	status  int
	bytes   int64
}

// hold keeps the units of a request that passed until it ends.
func (l *replayer) hold(ctx context.Context, e *event, v *gate.Verdict) error {
	receipt := v.Receipt()
	if len(receipt) == 0 {
		return nil
	}
	x := ending{at: e.at, serial: l.serial, receipt: receipt, status: int(e.status), bytes: e.bytes}
	if e.took <= 0 {
		return l.finish(ctx, &x)
	}
	x.end = x.at + e.took
	for i := range receipt {
		if c := &receipt[i].Claim; c.Lease != "" && (x.renew == 0 || c.Limit.Period()/3 < x.renew) {
			x.renew = max(second/1000, c.Limit.Period()/3)
		}
	}
	x.schedule()
	heap.Push(&l.ends, x)
	return nil
}

// schedule sets when the request ends, or its leases are renewed before.
func (x *ending) schedule() {
	next := x.at + x.renew
	if x.at = x.end; x.renew > 0 {
		x.at = min(next, x.end)
	}
}

// end ends the requests that are over at an instant.
func (l *replayer) end(ctx context.Context, at int64) error {
	for len(l.ends) > 0 && l.ends[0].at <= at {
		x := heap.Pop(&l.ends).(ending)
		l.now = max(l.now, x.at)
		if x.at < x.end {
			if err := l.gate.Renew(ctx, x.receipt); err != nil && !errors.Is(err, weir.ErrLeaseGone) {
				return err
			}
			x.schedule()
			heap.Push(&l.ends, x)
			continue
		}
		if err := l.finish(ctx, &x); err != nil {
			return err
		}
	}
	return nil
}

// finish counts or settles a request by its response, and releases its leases. A lease that has expired is gone, as in
// production.
func (l *replayer) finish(ctx context.Context, x *ending) error {
	rest, err := l.gate.Respond(ctx, x.receipt, gate.Response{Status: x.status})
	if err == nil && x.bytes != accesslog.Unknown {
		err = l.gate.SettleEach(ctx, rest, func(c *gate.Charged) (int64, bool, error) {
			return x.bytes, c.Rule != nil && c.Rule.Settle() == inBytes, nil
		})
	}
	if gone := l.gate.Release(ctx, rest); gone != nil && !errors.Is(gone, weir.ErrLeaseGone) {
		err = errors.Join(err, gone)
	}
	return err
}

// sweep drops keys in their initial state, once they may be half of all: a store would keep them up to its maximum.
func (l *replayer) sweep() {
	if keys := l.store.Stats().Keys; keys > 2*l.kept+1<<16 {
		l.store.Sweep()
		l.kept = l.store.Stats().Keys
	}
}

// ends is a heap of endings. Those at one instant come in the order of their requests.
type ends []ending

func (h ends) Len() int { return len(h) }
func (h ends) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].serial < h[j].serial
}
func (h ends) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *ends) Push(x any) { *h = append(*h, x.(ending)) }

// Pop implements heap.Interface.
func (h *ends) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = ending{}
	*h = old[:len(old)-1]
	return last
}
