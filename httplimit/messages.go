package httplimit

import (
	"net/http"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/mcp"
	"github.com/weirproject/weir/internal/webvalues"
	"github.com/weirproject/weir/internal/wording"
	"github.com/weirproject/weir/rules"
)

// MCP is a part of the first message of the body.
func (a *attributes) MCP(part string) string {
	if a.messages == nil {
		return ""
	}
	return a.messages.Messages[0].Part(part)
}

// oneMessage is a request with one of the messages of its body.
type oneMessage struct {
	*attributes
	message *mcp.Message
}

// MCP is a part of the message.
func (m *oneMessage) MCP(part string) string { return m.message.Part(part) }

// readMessages reads the body as messages.
func (a *attributes) readMessages() *mcp.Problem {
	r := a.request
	switch {
	case r.ContentLength > mcp.MaxBody:
		return mcp.TooLarge()
	case webvalues.Encoded(r.Header):
		return mcp.Unreadable()
	}
	text, whole := a.readTo(mcp.MaxBody)
	switch {
	case a.replayed.broken:
		return mcp.Unreadable()
	case !whole:
		return mcp.TooLarge()
	}
	messages, problem := mcp.Read(text)
	if problem == nil {
		problem = messages.CheckHeader(r.Header)
	}
	a.messages = messages
	return problem
}

// readMessages reads the messages of a request that rules expect to have them. A request that has none is refused: ok
// is false.
func (d *byRules) readMessages(c *call) (ok bool) {
	set := c.rules
	if set == nil {
		set = d.gate.Rules()
	}
	r := c.attributes.request
	if !strings.EqualFold(r.Method, http.MethodPost) || r.Body == nil || !set.ExpectsMessages(&c.view) {
		return true
	}
	c.rules = set // which are to decide
	problem := c.attributes.readMessages()
	c.request = c.attributes.request
	if problem == nil {
		return true
	}
	err := &weir.InputError{Field: "body", Given: problem.Text, Allowed: "messages of the Model Context Protocol"}
	c.event = Event{Outcome: Failed, Err: err}
	c.refuse(problem.Status, wording.Invalid(err), func(*http.Request, *Refusal) (string, []byte) {
		return "application/json", problem.Body()
	})
	return false
}

// decideBatch decides the messages of a batch as one request: all pass, or none is charged. The verdict of the call is
// the one that refuses or, of a batch that passes, the one with the longest delay or the most limits.
func (d *byRules) decideBatch(c *call, ask gate.Ask) error {
	all := c.attributes.messages.Messages
	questions, views := make([]gate.Question, len(all)), make([]rules.Request, len(all))
	for i := range all {
		views[i] = c.view
		views[i].Attributes = &oneMessage{&c.attributes, &all[i]}
		questions[i] = gate.Question{Request: &views[i], Ask: ask, Verdict: new(gate.Verdict)}
	}
	err := d.gate.DecideTogether(c.request.Context(), questions)
	chosen := &questions[0]
	for i := range questions {
		if q := &questions[i]; worse(q.Verdict, chosen.Verdict) {
			chosen = q
		}
	}
	c.verdict, c.batch = *chosen.Verdict, questions
	return err
}

// several reports whether the body is a batch of messages.
func (a *attributes) several() bool { return a.messages != nil && len(a.messages.Messages) > 1 }

// followBatch is the follow-up of a batch. Costs stay as charged: the response does not say the cost of each message.
func (d *byRules) followBatch(c *call) *followUp {
	counted, holds, detached := false, false, time.Duration(0)
	for i := range c.batch {
		v := c.batch[i].Verdict
		holds, detached = holds || v.Holds(), max(detached, detachedTime(v))
		for k := range v.Len() {
			check := v.At(k)
			counted = counted || check.Decided && check.Rule != nil && check.Granted > 0 &&
				(check.Rule.HasCountIf() || check.Rule.ByPath())
		}
	}
	if !counted && !holds && !d.sends {
		return nil
	}
	f := newFollowUp(d.gate, gate.ReceiptOf(c.batch), nil, counted)
	f.measured, f.detached, f.toEnd = counted, detached, holds
	return f
}

// answerMessages is the body of a refusal of messages: an answer to each.
func (c *call) answerMessages(rule *rules.Rule, v *gate.Verdict) Body {
	data, limited := c.refusedBy(rule, v)
	messages, results, status := c.attributes.messages, false, http.StatusOK
	if rule != nil {
		results, status = rule.Response().As == "result", rule.MessageStatus()
	}
	return func(_ *http.Request, refusal *Refusal) (string, []byte) {
		if refusal.sent = status; !messages.Expects() {
			refusal.sent = refusal.Status
		}
		data.RetryAfter = max(0, refusal.RetryAfter)
		text := refusal.Message + limited(refusal.Language)
		return "application/json", messages.Refuse(&mcp.Refusal{Code: refusal.Status, Message: text, Data: data,
			Results: results})
	}
}

// worse reports whether a verdict of a batch says more of why it does not pass or, if all pass, of how it does.
func worse(v, than *gate.Verdict) bool {
	rank := func(v *gate.Verdict) int {
		switch {
		case v.Outcome == gate.Passed:
			return 0
		case v.Reason == gate.OtherRefused:
			return 1
		}
		return 2
	}
	switch a, b := rank(v), rank(than); {
	case a != b:
		return a > b
	case a == 0:
		return v.Delay > than.Delay || v.Delay == than.Delay && v.Len() > than.Len()
	case v.Outcome == gate.Refused && than.Outcome == gate.Refused: // others have no decisions to compare
		return v.RetryAfter() > than.RetryAfter()
	}
	return false
}
