package httplimit

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/mcp"
	"github.com/weirproject/weir/internal/ratefields"
	"github.com/weirproject/weir/internal/requestid"
	"github.com/weirproject/weir/internal/wording"
	"github.com/weirproject/weir/rules"
)

// A stepper charges units of a rule, also beyond the limit if beyond is set. wait is how long a refused one must wait.
type stepper func(ctx context.Context, rule *rules.Rule, units int64, beyond bool) (
	granted bool, wait time.Duration, err error)

// A paced response is charged while it is streamed, by the rules with charge: as_it_streams.
type paced struct {
	served  *served
	rules   []pacedRule
	step    stepper
	stop    context.CancelFunc // of the request of the handler
	failed  func(error)
	stopped bool // the store failed: the end of the response settles the cost
}

type pacedRule struct {
	*rules.Rule
	charged int64 // by steps
}

// errCut is the error of writing to a response that was cut.
var errCut = errors.New("httplimit: the response is cut: its rule has no units left")

// pass charges the bytes that are about to be sent. An error ends the response: it was cut, with an event that says so.
func (p *paced) pass(m *meter, b []byte) error {
	m.copy.Write(b)
	p.served.answer.Bytes = m.bytes + int64(len(b))
	for i := range p.rules {
		r := &p.rules[i]
		units, cut, _ := r.Steps()
		missing := r.Passed(p.served.answer) - r.charged
		if missing <= 0 || p.stopped {
			continue
		}
		steps := (missing + units - 1) / units * units
		for _, n := range []int64{steps, missing} {
			granted, wait, err := p.step(p.served.request.Context(), r.Rule, n, !cut)
			switch {
			case err != nil:
				p.stopped = true
				p.failed(err)
			case granted || !cut:
				r.charged += n
			case n > missing: // less than a step may be left
				continue
			default:
				return p.cut(m, r.Rule, wait)
			}
			break
		}
	}
	return nil
}

// cut ends the response, and the request of the handler.
func (p *paced) cut(m *meter, rule *rules.Rule, wait time.Duration) error {
	p.served.cut, m.broken = true, true
	m.ResponseWriter.Write(p.event(m, rule, wait))
	http.NewResponseController(m.ResponseWriter).Flush()
	p.stop()
	return errCut
}

// event is the error event of the API that the rule names, or one with a problem.
func (p *paced) event(m *meter, rule *rules.Rule, wait time.Duration) []byte {
	header := p.served.request.Header
	refusal := &Refusal{Status: rule.Response().Status, Exceeded: true, Rule: rule.Name(), Label: rule.Label(),
		RetryAfter: -1, RequestID: requestid.For(header)}
	if wait != weir.Never {
		refusal.RetryAfter = max(1, ratefields.Seconds(wait))
	}
	refusal.Message, refusal.Language = wording.Exceeded(wait)(header["Accept-Language"])
	_, body := Problem(nil, refusal)
	shape := rule.Response().Shape
	if shaped := modelErrors[shape]; shaped != nil {
		data := mcp.Data{Rule: rule.Name(), RetryAfter: max(0, refusal.RetryAfter)}
		text := refusal.Message + wording.Limited(refusal.Language, rule.DisplayName(), nil)
		body, _ = json.Marshal(shaped(refusal, text, data))
	}
	event := "\n"
	if m.lines { // JSON lines
		return append([]byte(event), append(body, '\n')...)
	}
	if event += "\n"; shape != "openai" && shape != "gemini" {
		event += "event: error\n"
	}
	return append(append([]byte(event+"data: "), body...), "\n\n"...)
}

// uncompressed asks the service for a response that can be charged while it is streamed.
func (c *call) uncompressed() {
	if r := c.request; r.Header["Accept-Encoding"] != nil {
		c.request = r.WithContext(r.Context())
		c.request.Header = r.Header.Clone()
		c.request.Header.Set("Accept-Encoding", "identity")
	}
}

// begins reports whether a response with this head is charged while it is streamed.
func (p *paced) begins(m *meter, h http.Header, status int) bool {
	contentType := h.Get("Content-Type")
	if m.copy == nil || status >= http.StatusBadRequest || len(h["Content-Encoding"]) > 0 ||
		!rules.Streamed(contentType) {
		return false
	}
	m.lines = contentType[:min(4, len(contentType))] != "text"
	return true
}

// run calls the handler. One that was stopped, because the response was cut, may have aborted it.
func (s *served) run(next http.Handler, w http.ResponseWriter, r *http.Request) {
	defer func() {
		if !s.cut {
			return
		}
		if panicked := recover(); panicked != nil && panicked != http.ErrAbortHandler {
			panic(panicked)
		}
	}()
	s.ran = true
	next.ServeHTTP(w, r)
	s.returned = true
}
