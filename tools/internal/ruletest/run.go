package ruletest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/keytext"
	"github.com/weirproject/weir/internal/ratefields"
	"github.com/weirproject/weir/rules"
)

// A Result is the result of a test.
type Result struct {
	Test     *Test
	Requests int64
	Failures []Failure
	Took     time.Duration
}

// A Failure is a request that was decided otherwise than expected.
type Failure struct {
	Step *Step
	// Nth is the repetition, from 1; 0 is all of them.
	Nth         int
	At          time.Duration
	Differences []Difference
	Decision    string // what decided, in words
}

// A Difference is a field of the answer.
type Difference struct{ Field, Got, Want string }

// A run is a test that runs.
type run struct {
	file *File
	set  *rules.Set
	now  atomic.Int64 // of the store, in microseconds
	gate *gate.Gate
	held map[string]*held
	down *bool // the store does not answer
	// renewals are counted: the time of a test is free, but for these.
	renewals int
	form     func(raw string) (string, error)
	clients  *clientaddr.Extractor
	asked    rules.Request // the last one
}

// A held request has leases, which are renewed as a server does, each third of their time-to-live.
type held struct {
	receipt gate.Receipt
	every   time.Duration
	renewed time.Duration
}

// Run runs a test. Progress, if not nil, is called after each request. The error is the context's, or one of the test
// itself, such as a cost that no limit takes.
func (f *File) Run(ctx context.Context, set *rules.Set, t *Test, progress func()) (*Result, error) {
	began := time.Now()
	if err := f.names(set, t); err != nil {
		return nil, err
	}
	r := &run{file: f, set: set, held: make(map[string]*held), form: set.PathForm().Path}
	var err error
	if r.clients, err = clientaddr.New(set.TrustedProxies(), clientaddr.WithHeader(r.header())); err != nil {
		return nil, err
	}
	if err := r.open(t); err != nil {
		return nil, err
	}
	r.now.Store(f.Start.UnixMicro())
	result := &Result{Test: t}
	for i := range t.Steps {
		failures, err := r.step(ctx, &t.Steps[i], progress)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: test %q: %w", f.Name, t.Steps[i].Line, t.Name, err)
		}
		result.Failures = append(result.Failures, failures...)
	}
	result.Requests, result.Took = t.requests(), time.Since(began)
	return result, nil
}

// header is the field with the client's address.
func (r *run) header() string { return cmp.Or(r.set.Server().ClientHeader, "X-Forwarded-For") }

// names reports an expected rule that is not in the set, which is a mistake of the file.
func (f *File) names(set *rules.Set, t *Test) error {
	known := make(map[string]bool)
	for _, rule := range set.Rules() {
		known[rule.Name()] = true
	}
	for i := range t.Steps {
		s := &t.Steps[i]
		if s.Expect == nil {
			continue
		}
		for _, name := range append(sorted(s.Expect.Shadow), s.Expect.Rule) {
			if name != "" && !known[name] {
				return &rules.Error{Problems: []rules.Problem{{File: f.Name, Line: s.Line, Column: s.Column,
					Message: fmt.Sprintf("expect has the rule %.80q, which the rules do not have; %s", name,
						oneOf(name, known)), Source: f.lines[s.Line-1]}}}
			}
		}
	}
	return nil
}

// step runs a step, and returns its first failure.
func (r *run) step(ctx context.Context, s *Step, progress func()) (failures []Failure, err error) {
	switch {
	case s.Release != "":
		return nil, r.release(ctx, s)
	case s.Store != "":
		err := r.advance(ctx, s.At)
		*r.down = s.Store == storeDown
		return nil, err
	}
	passed := 0
	var last *answer
	var v gate.Verdict
	for n := range s.Repeat {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		at := s.At + time.Duration(n)*s.Every
		if err := r.advance(ctx, at); err != nil {
			return nil, err
		}
		answered, err := r.request(ctx, s, &v)
		if err != nil {
			return nil, err
		}
		if answered.outcome == "passed" {
			passed++
		}
		last = answered
		r.cover(&v, n == 0)
		if s.Expect != nil && len(failures) == 0 {
			if differences := s.Expect.compare(answered); len(differences) > 0 {
				failures = []Failure{{s, n + 1, at, differences, r.explained(answered, &v)}}
			}
		}
		if progress != nil {
			progress()
		}
	}
	if e := s.Expect; e != nil && e.Passed != nil && *e.Passed != passed {
		failures = append(failures, Failure{Step: s, At: s.At, Decision: r.explained(last, &v),
			Differences: []Difference{{"passed", fmt.Sprint(passed), fmt.Sprint(*e.Passed)}}})
	}
	return failures, nil
}

// advance sets the clock, and renews held units on the way.
func (r *run) advance(ctx context.Context, to time.Duration) error {
	for {
		var next *held
		for _, h := range r.held {
			if due := h.renewed + h.every; h.every > 0 && due <= to && (next == nil || due < next.renewed+next.every) {
				next = h
			}
		}
		if next == nil {
			break
		}
		if r.renewals++; r.renewals > maxRenewals {
			return fmt.Errorf("what is held was renewed %d times, which is the most: release it earlier", maxRenewals)
		}
		next.renewed += next.every
		r.setClock(next.renewed)
		err := r.gate.Renew(ctx, next.receipt)
		if *r.down && errors.Is(err, weir.ErrUnavailable) {
			err = nil
		}
		if err = errors.Join(ctx.Err(), err); err != nil {
			return err
		}
	}
	r.setClock(to)
	return nil
}

func (r *run) setClock(at time.Duration) { r.now.Store(r.file.Start.Add(at).UnixMicro()) }

// request decides one request, and ends it unless it is held.
func (r *run) request(ctx context.Context, s *Step, v *gate.Verdict) (*answer, error) {
	request := s.Request
	request.Attributes = attributes{s}
	path, err := r.form(request.Path)
	if err != nil { // as a front end answers
		return &answer{outcome: "failed", reason: "bad_input", status: 400, decision: err.Error()}, nil
	}
	request.Path = path
	if line := s.Header[r.header()]; line != "" {
		client, ok := r.clients.From(request.Client.String(), []string{line})
		if !ok {
			return &answer{outcome: "failed", reason: "bad_input", status: 400, decision: "no client's address"}, nil
		}
		request.Client = client
	}
	err = r.gate.Decide(ctx, &request, gate.Ask{Times: 1, Cost: s.Cost}, v)
	var input *weir.InputError
	if err != nil && !errors.As(err, &input) {
		return nil, err
	}
	a := answerOf(v)
	r.asked = request
	if s.Expect != nil && s.Expect.Shadow != nil {
		a.shadow = shadowsOf(v)
	}
	receipt := v.Receipt()
	if s.Hold != "" {
		r.hold(s, receipt)
		return a, nil
	}
	return a, r.end(ctx, receipt, s)
}

func (r *run) hold(s *Step, receipt gate.Receipt) {
	h := &held{receipt: receipt, renewed: s.At}
	for i := range receipt {
		if c := &receipt[i].Claim; c.Lease != "" {
			third := time.Duration(c.Limit.Period()) * time.Microsecond / 3
			if h.every == 0 || third < h.every {
				h.every = max(third, time.Millisecond)
			}
		}
	}
	r.held[s.Hold] = h
}

func (r *run) release(ctx context.Context, s *Step) error {
	if err := r.advance(ctx, s.At); err != nil {
		return err
	}
	h := r.held[s.Release]
	delete(r.held, s.Release)
	return r.end(ctx, h.receipt, s)
}

// end ends a request: it reports the response, settles the cost, and releases the leases. Units and leases of a store
// that is down stay charged and held, as in a server.
func (r *run) end(ctx context.Context, receipt gate.Receipt, s *Step) (err error) {
	if s.Response != nil {
		receipt, err = r.gate.Respond(ctx, receipt, *s.Response)
	}
	if s.Settle != nil && err == nil {
		err = r.gate.Settle(ctx, receipt, *s.Settle)
	}
	if err = errors.Join(err, r.gate.Release(ctx, receipt)); *r.down && errors.Is(err, weir.ErrUnavailable) {
		return nil
	}
	return err
}

// An answer has the values to compare.
type answer struct {
	outcome, reason, rule string
	retryAfter, delay     time.Duration
	remaining             int64
	status                int
	headers               map[string]string
	shadow                map[string]string
	decision              string
}

func answerOf(v *gate.Verdict) *answer {
	a := &answer{outcome: v.Outcome.String(), reason: v.Reason.String(), delay: v.Delay, status: statusOf(v)}
	if v.Rule != nil {
		a.rule = v.Rule.Name()
	}
	var checks []ratefields.Check
	for i := range v.Len() {
		if c := v.At(i); c.Decided && !c.Shadow && !c.Aside {
			style := ratefields.StyleOf(c.Rule.Response().Fields)
			one := ratefields.Check{Limit: c.Claim.Limit, Decision: c.Decision, Style: style, Ban: c.Ban,
				Unit: c.Rule.Unit().String()}
			checks = append(checks, one)
		}
	}
	a.headers = ratefields.Describe(checks, v.Outcome == gate.Passed)
	worst, ok := v.Worst()
	if !ok {
		a.decision = a.reason
		return a
	}
	a.remaining, a.retryAfter = worst.Decision.Remaining, worst.Decision.RetryAfter
	if v.Outcome == gate.Refused && v.Reason != gate.Repeated && a.retryAfter != weir.Never {
		a.headers["retry-after"] = fmt.Sprint(max(1, ratefields.Seconds(a.retryAfter)))
	}
	a.decision = fmt.Sprintf("rule %s: %s, key %q, remaining %d", a.rule, worst.Claim.Limit,
		keytext.Described(worst.Claim.Key),
		a.remaining)
	if v.Outcome == gate.Passed {
		a.retryAfter = 0 // what the next request would wait is no answer to this one
	}
	return a
}

// statusOf is the HTTP status of a verdict.
func statusOf(v *gate.Verdict) int {
	switch {
	case v.Reason == gate.Repeated:
		return 409
	case v.Outcome == gate.Refused:
		return v.Rule.Response().Status
	case v.Outcome == gate.Denied:
		return 403
	case v.Outcome == gate.Failed && v.Reason == gate.BadInput:
		return 400
	case v.Outcome == gate.Failed:
		return 503
	}
	return 200
}

func (e *Expect) compare(a *answer) (list []Difference) {
	differ := func(field, got, want string, expected bool) {
		if expected && got != want {
			list = append(list, Difference{field, got, want})
		}
	}
	differ("outcome", a.outcome, e.Outcome, e.Outcome != "")
	differ("reason", a.reason, e.Reason, e.Reason != "")
	differ("rule", a.rule, e.Rule, e.Rule != "")
	differ("status", fmt.Sprint(a.status), fmt.Sprint(e.Status), e.Status != 0)
	if e.RetryAfter != nil {
		differ("retry_after", wait(a.retryAfter), wait(*e.RetryAfter), true)
	}
	if e.Delay != nil {
		differ("delay", wait(a.delay), wait(*e.Delay), true)
	}
	if e.Remaining != nil {
		differ("remaining", fmt.Sprint(a.remaining), fmt.Sprint(*e.Remaining), true)
	}
	for _, name := range sorted(e.Shadow) {
		differ("shadow."+name, a.shadow[name], e.Shadow[name], true)
	}
	for _, name := range sorted(e.Headers) {
		differ("headers."+name, a.headers[name], e.Headers[name], true)
	}
	return list
}

func wait(d time.Duration) string {
	if d == weir.Never {
		return "never"
	}
	return d.String()
}

// String is the failure as lines: the place in the file, and what differs.
func (f *Failure) String(file *File, t *Test) string {
	repeat := ""
	if f.Step.Repeat > 1 && f.Nth > 0 {
		repeat = fmt.Sprintf(", request %d of %d", f.Nth, f.Step.Repeat)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: %s: at %v%s\n", file.Name, f.Step.Line, f.Step.Column, t.Name, f.At, repeat)
	fmt.Fprintf(&b, "    %s\n", strings.TrimSpace(file.lines[f.Step.Line-1]))
	width := 0
	for _, d := range f.Differences {
		width = max(width, len(d.Field))
	}
	for _, d := range f.Differences {
		fmt.Fprintf(&b, "  - %-*s  %s\n  + %-*s  %s\n", width, d.Field, quoted(d.Want), width, "", quoted(d.Got))
	}
	if f.Decision != "" {
		fmt.Fprintf(&b, "  decided: %s\n", f.Decision)
	}
	return b.String()
}

func quoted(text string) string {
	if text == "" {
		return "(none)"
	}
	return text
}
