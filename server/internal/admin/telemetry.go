package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/server/internal/web"
)

// Nodes are the servers that share a store.
type Nodes struct {
	Nodes []telemetry.Node `json:"nodes"`
}

// Marks are changes and incidents.
type Marks struct {
	Marks []telemetry.Mark `json:"marks"`
}

// Samples are decisions of one server.
type Samples struct {
	Samples []telemetry.Sample `json:"samples"`
}

// Defaults and maxima of the parameter most.
const (
	defaultRules, maxRules     = 200, 1000
	defaultKeys, maxKeys       = 50, 200
	defaultMarks, maxMarks     = 200, 1000
	defaultSamples, maxSamples = 100, 1000
)

// A rendered answer is JSON. The types of telemetry are encoded by encoding/json, which knows durations.
type rendered struct{ plain, zipped []byte }

func render(answer any, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(answer)
	text = append(text, '\n')
	return &rendered{text, web.Gzip(text)}, err
}

// Bounds of the reports that are remembered: many consoles ask for the same. One that was slow to make lasts longer, so
// that consoles take at most a tenth of a core.
const (
	reportLasts = 2 * time.Second
	slowLasts   = 10 // times as long as it took
	maxReports  = 32
)

// reports are the last answers, by path and query.
type reports struct {
	mu   sync.Mutex
	list map[string]*report
}

// A report is made once.
type report struct {
	until  time.Time
	once   sync.Once
	answer any
	err    error
}

// of returns the answer to a call, and makes it if necessary. It is made without the deadline of the call, because
// other calls wait for it too.
func (r *reports) of(ctx context.Context, c *call, answer func(context.Context) (any, error)) (any, error) {
	key, now := c.request.URL.Path+"?"+c.request.URL.RawQuery, time.Now()
	r.mu.Lock()
	one := r.list[key]
	if one == nil || now.After(one.until) {
		if r.list == nil || len(r.list) >= maxReports {
			r.list = make(map[string]*report)
		}
		one = &report{until: now.Add(reportLasts)}
		r.list[key] = one
	}
	r.mu.Unlock()
	one.once.Do(func() {
		one.answer, one.err = answer(context.WithoutCancel(ctx))
		took := time.Since(now)
		r.mu.Lock()
		defer r.mu.Unlock()
		one.until = now.Add(max(reportLasts, slowLasts*took))
	})
	return one.answer, one.err
}

// interval reads the query of a report.
func (c *call) interval(otherwise, most int64) (q telemetry.Query, err error) {
	now := time.Now()
	if q.From, err = c.moment("from", now); err != nil {
		return q, err
	}
	if q.To, err = c.moment("until", now); err != nil {
		return q, err
	}
	end := q.To
	if end.IsZero() {
		end = now
	}
	if !q.From.IsZero() && !q.From.Before(end) {
		return q, web.Refuse(http.StatusBadRequest, "from is %s; allowed: a time before %s",
			q.From.Format(time.RFC3339), end.Format(time.RFC3339))
	}
	q.Node = c.query.Get("node")
	q.Most, err = c.most(otherwise, most)
	return q, err
}

func (c *call) most(otherwise, most int64) (int, error) {
	n := c.number("most", otherwise)
	if n > most {
		return 0, web.Refuse(http.StatusBadRequest, "most is %d; allowed: 1 to %d", n, most)
	}
	return int(n), nil
}

// moment reads a time, or a duration before now; the zero time if the parameter is missing.
func (c *call) moment(name string, now time.Time) (time.Time, error) {
	text := c.query.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	if before, ok := parseDuration(text); ok && before >= 0 {
		return now.Add(-before), nil
	}
	return time.Time{}, web.Refuse(http.StatusBadRequest,
		"%s is %.80q; allowed: a time such as 2026-11-22T17:00:00Z, or a duration before now such as 15m", name, text)
}

func (h *handler) overview(ctx context.Context, c *call) (any, error) {
	q, err := c.interval(defaultRules, maxRules)
	if err != nil {
		return nil, err
	}
	return h.reports.of(ctx, c, func(ctx context.Context) (any, error) { return render(h.Telemetry.Overview(ctx, q)) })
}

func (h *handler) ruleReport(ctx context.Context, c *call) (any, error) {
	q, err := c.interval(defaultKeys, maxKeys)
	if err != nil {
		return nil, err
	}
	return h.reports.of(ctx, c, func(ctx context.Context) (any, error) {
		report, err := h.Telemetry.Rule(ctx, c.name(), q)
		if err == nil && report == nil {
			return nil, web.Refuse(missing, "rule is %.130q; allowed: one that is in force, or had requests "+
				"in the last 24h", c.name())
		}
		return render(report, err)
	})
}

func (h *handler) keyHistory(ctx context.Context, c *call) (any, error) {
	q, err := c.interval(defaultKeys, maxKeys)
	if err != nil {
		return nil, err
	}
	key := c.query.Get("key")
	if key == "" || len(key) > maxText {
		return nil, web.Refuse(http.StatusBadRequest, "key has %d bytes; allowed: 1 to %d", len(key), maxText)
	}
	return h.reports.of(ctx, c, func(ctx context.Context) (any, error) { return render(h.Telemetry.Key(ctx, key, q)) })
}

func (h *handler) nodes(ctx context.Context, _ *call) (any, error) {
	list, err := h.Telemetry.Nodes(ctx)
	return render(Nodes{append([]telemetry.Node{}, list...)}, err)
}

func (h *handler) marks(ctx context.Context, c *call) (any, error) {
	q, err := c.interval(defaultMarks, maxMarks)
	if err != nil {
		return nil, err
	}
	list, err := h.Telemetry.Marks(ctx, q)
	return render(Marks{append([]telemetry.Mark{}, list...)}, err)
}

// filter reads the parameters that select samples.
func (c *call) filter() (f telemetry.Filter, err error) {
	f = telemetry.Filter{Rule: c.query.Get("rule"), Key: c.query.Get("key"), Outcome: c.query.Get("outcome")}
	switch f.Outcome {
	case "", "passed", "refused", "denied", "failed":
		return f, nil
	}
	return f, web.Refuse(http.StatusBadRequest, "outcome is %.80q; allowed: passed, refused, denied or failed",
		f.Outcome)
}

func (h *handler) recent(_ context.Context, c *call) (any, error) {
	f, err := c.filter()
	if err != nil {
		return nil, err
	}
	most, err := c.most(defaultSamples, maxSamples)
	if err != nil {
		return nil, err
	}
	id := c.query.Get("request")
	if id == "" {
		return render(Samples{append([]telemetry.Sample{}, h.Telemetry.Recent(f, most)...)}, nil)
	}
	return render(Samples{h.samplesOf(f, id, most)}, nil)
}

// samplesOf returns the samples of a request ID.
func (h *handler) samplesOf(f telemetry.Filter, id string, most int) []telemetry.Sample {
	list := []telemetry.Sample{}
	for _, s := range h.Telemetry.Recent(f, maxSamples) {
		if s.RequestID == id && len(list) < most {
			list = append(list, s)
		}
	}
	return list
}
