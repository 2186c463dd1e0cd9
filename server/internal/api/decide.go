package api

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/wording"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/web"
)

// decide decides one ask, or the asks of a batch together: asks with the same key under one limit are
// granted in their order.
func (a *api) decide(ctx context.Context, c *call) error {
	if !c.batch {
		return a.decideOne(ctx, c)
	}
	a.gate.DecideBatch(ctx, c.batchQuestions())
	if ctx.Err() != nil { // nobody reads the answers
		for i := range c.questions {
			a.gate.Abandon(ctx, c.questions[i].Verdict)
		}
		return ctx.Err()
	}
	c.out = append(c.out, `{"answers":[`...)
	for i := range c.questions {
		if i > 0 {
			c.out = append(c.out, ',')
		}
		c.verdict = c.questions[i].Verdict
		c.appendAnswer(&extras{ask: &c.asks[i], err: c.asks[i].unread(c.questions[i].Err)})
	}
	c.out = append(c.out, "]}\n"...)
	return nil
}

// acquire decides one ask. Its cost is the number of slots that it holds.
func (a *api) acquire(ctx context.Context, c *call) error {
	c.last().holds = true
	return a.decideOne(ctx, c)
}

func (a *api) decideOne(ctx context.Context, c *call) error {
	if err := c.complete(); err != nil {
		return err
	}
	ask := c.last()
	if err := a.ask(ctx, c, ask, nil); err != nil {
		return err
	}
	c.answer(&extras{ask: ask})
	return nil
}

// batchQuestions are the asks of a batch, for the gate.
func (c *call) batchQuestions() []gate.Question {
	own := c.own[:0]
	for i := range c.asks[:c.n] {
		if i == len(c.verdicts) {
			c.verdicts = append(c.verdicts, new(gate.Verdict))
		}
		ask, from := &c.asks[i], len(own)
		g := ask.gateAsk(own)
		own = g.Claims
		g.Claims = own[from:len(own):len(own)]
		c.questions = append(c.questions, gate.Question{Request: ask.rulesRequest(), Ask: g, Verdict: c.verdicts[i]})
	}
	c.own = own
	return c.questions
}

// ask decides an ask into c.verdict.
func (a *api) ask(ctx context.Context, c *call, ask *ask, aside []weir.Claim) error {
	g := ask.gateAsk(c.own[:0])
	g.Aside = aside
	c.own = g.Claims
	err := a.gate.Decide(ctx, ask.rulesRequest(), g, c.verdict)
	if err == nil && ctx.Err() != nil { // nobody reads the answer
		a.gate.Abandon(ctx, c.verdict)
		err = ctx.Err()
	}
	return ask.unread(err)
}

func (a *api) peek(ctx context.Context, c *call) error {
	for i := range c.asks[:c.n] {
		c.asks[i].times = 0
	}
	return a.decide(ctx, c)
}

// reset resets the counts of an ask. Peeking makes its claims; an allowed or denied request has no claims.
func (a *api) reset(ctx context.Context, c *call) error {
	if err := c.complete(); err != nil {
		return err
	}
	ask := c.last()
	ask.times = 0
	if err := a.ask(ctx, c, ask, nil); err != nil {
		return err
	}
	if err := a.gate.Reset(ctx, c.verdict); err != nil {
		return err
	}
	c.out = append(c.out, `{"reset":[`...)
	for i := range c.verdict.Len() {
		check := c.verdict.At(i)
		if i > 0 {
			c.out = append(c.out, ',')
		}
		c.out = append(c.out, '{')
		c.appendKeyed(&check, true)
		c.out = append(c.out, '}')
	}
	c.out = append(c.out, "]}\n"...)
	return nil
}

// extras are the parts of an answer besides the verdict.
type extras struct {
	ask         *ask
	err         error
	reservation *token
}

// answer renders the verdict as the whole answer, with its status.
func (c *call) answer(e *extras) {
	v := c.verdict
	switch v.Outcome {
	case gate.Failed:
		c.status = http.StatusServiceUnavailable
	case gate.Refused, gate.Denied:
		c.status = c.deny
		if wait := v.RetryAfter(); c.deny != http.StatusOK && waits(wait) {
			c.retry = strconv.FormatInt(seconds(wait), 10)
		}
	}
	c.appendAnswer(e)
	c.out = append(c.out, '\n')
}

// appendAnswer renders the verdict.
func (c *call) appendAnswer(e *extras) {
	v := c.verdict
	b := append(append(append(c.out, `{"outcome":"`...), v.Outcome.String()...), '"')
	b = append(append(append(b, `,"reason":"`...), v.Reason.String()...), '"')
	b = strconv.AppendBool(append(b, `,"allowed":`...), v.Outcome == gate.Passed)
	b = appendNumber(b, `,"granted":`, v.Granted)
	if v.Degraded() {
		b = append(b, `,"degraded":true`...)
	}
	if v.Found {
		b = append(b, `,"repeated":true`...)
	}
	if v.Rule != nil {
		b = append(append(append(b, `,"rule":"`...), v.Rule.Name()...), '"')
	}
	if worst, decided := v.Worst(); decided {
		b = c.api.limits.append(append(b, ','), worst.Claim.Limit)
		b = appendNumber(b, `,"retry_after":`, seconds(v.RetryAfter()))
		b = appendState(b, worst.Decision)
		b = appendNumber(b, `,"delay_us":`, micros(v.Delay))
	}
	c.out = b
	c.appendMessage(e.ask)
	c.appendRequestID(e.ask)
	c.appendChecks(e.ask.times == 0)
	c.appendSkipped()
	c.appendHeld(e)
	c.appendResponse(e)
	if e.err != nil {
		c.out = append(append(c.out, `,"error":`...), problemOf(e.err).JSON()...)
	}
	c.out = append(c.out, '}')
}

// appendMessage appends the message of the rule that refuses, if it has one.
func (c *call) appendMessage(ask *ask) {
	if text, language, ok := wording.OwnOf(c.verdict, ask.rulesRequest()); ok {
		c.out = appendString(append(c.out, `,"message":`...), text)
		if language != "" {
			c.out = appendString(append(c.out, `,"language":`...), language)
		}
	}
}

// appendRequestID appends the id that the audit log has for a request that did not pass.
func (c *call) appendRequestID(ask *ask) {
	if !ask.requested || ask.times == 0 || c.verdict.Outcome == gate.Passed {
		return
	}
	c.out = appendString(append(c.out, `,"request_id":`...), ask.attributes.id())
}

// appendResponse appends the whole response to the client of the request.
func (c *call) appendResponse(e *extras) {
	if !c.responds || e.err != nil {
		return
	}
	r := web.NewResponse()
	httplimit.Respond(r, e.ask.rulesRequest(), c.verdict, e.ask.attributes.id())
	r.End()
	text, _ := json.Marshal(r, json.Deterministic(true), jsontext.AllowInvalidUTF8(true)) // nothing else can fail
	c.out = append(append(c.out, `,"response":`...), text...)
}

func appendState(b []byte, d *weir.Decision) []byte {
	b = appendNumber(b, `,"remaining":`, d.Remaining)
	b = appendNumber(b, `,"retry_after_us":`, micros(d.RetryAfter))
	return appendNumber(b, `,"reset_after_us":`, micros(d.ResetAfter))
}

func (c *call) appendChecks(keys bool) {
	opening := `,"checks":[{`
	for i := range c.verdict.Len() {
		check := c.verdict.At(i)
		if check.Aside || !check.Decided {
			continue
		}
		c.out = append(c.out, opening...)
		opening = `,{`
		c.appendKeyed(&check, keys)
		b := appendState(appendNumber(c.out, `,"cost":`, check.Claim.Cost), check.Decision)
		if check.Shadow {
			b = strconv.AppendBool(append(b, `,"refused":`...), c.wouldRefuse(&check))
		}
		if check.Local {
			b = append(b, `,"local":true`...)
		}
		c.out = append(b, '}')
	}
	if opening != `,{` {
		c.out = append(c.out, `,"checks":[`...)
	}
	c.out = append(c.out, ']')
}

// wouldRefuse reports whether a shadow rule would have refused.
func (c *call) wouldRefuse(check *gate.Check) bool {
	if c.verdict.Times == 0 {
		return check.Decision.RetryAfter != 0
	}
	return check.Granted == 0
}

// appendKeyed appends the limit of a check, and its key.
func (c *call) appendKeyed(check *gate.Check, keys bool) {
	b := c.out
	if check.Rule != nil {
		b = append(append(append(b, `"rule":"`...), check.Rule.Name()...), `",`...)
	}
	b = c.api.limits.append(b, check.Claim.Limit)
	if keys {
		b = appendString(append(b, `,"key":`...), check.Claim.Key)
	}
	if check.Shadow {
		b = append(b, `,"shadow":true`...)
	}
	c.out = b
}

// appendSkipped lists the rules that matched and were not checked, and the ones without an answer of a store.
func (c *call) appendSkipped() {
	opening := `,"skipped":[{"rule":"`
	skip := func(rule *rules.Rule, why string) {
		b := append(append(c.out, opening...), rule.Name()...)
		c.out = append(append(append(b, `","why":"`...), why...), `"}`...)
		opening = `,{"rule":"`
	}
	for _, skipped := range c.verdict.Skips() {
		skip(skipped.Rule, skipped.Why)
	}
	for i := range c.verdict.Len() {
		check := c.verdict.At(i)
		again := i > 0 && c.verdict.At(i-1).Rule == check.Rule
		if check.Rule != nil && !check.Decided && !again {
			skip(check.Rule, gate.Unasked)
		}
	}
	if opening[1] == '{' {
		c.out = append(c.out, ']')
	}
}

// appendHeld appends the token of a reservation or a lease.
func (c *call) appendHeld(e *extras) {
	if e.reservation != nil {
		c.out = append(c.out, `,"reservation":{"token":"`...)
		c.out = append(c.out, e.reservation.text()...)
		c.out = appendNumber(c.out, `","ttl_us":`, e.reservation.lifetime)
		c.out = append(c.out, '}')
		return
	}
	if !c.verdict.Holds() {
		return
	}
	held := leases(c.verdict.Receipt())
	if len(held.Charged) == 0 { // the failure policy granted it without a store
		return
	}
	c.out = appendString(append(c.out, `,"lease":{"id":`...), c.verdict.Lease())
	c.out = append(append(c.out, `,"token":"`...), held.text()...)
	c.out = appendNumber(c.out, `","ttl_us":`, held.lifetime)
	c.out = append(c.out, '}')
}

func appendNumber(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(b, name...), n, 10)
}

// waits reports whether a refused request could be granted later.
func waits(retryAfter time.Duration) bool { return retryAfter > 0 && retryAfter != weir.Never }

// micros is a duration in microseconds; −1 is never.
func micros(d time.Duration) int64 {
	if d == weir.Never {
		return -1
	}
	return d.Microseconds()
}

// seconds is a duration rounded up, so that a wait is never too short; −1 is never.
func seconds(d time.Duration) int64 {
	if d == weir.Never {
		return -1
	}
	return int64((d + time.Second - 1) / time.Second)
}
