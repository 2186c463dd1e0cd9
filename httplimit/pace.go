package httplimit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
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

	form  form
	cuts  bool   // a rule has overrun: cut
	last  byte   // of what was sent, blanks aside; 0: none
	marks []mark // of the current piece
	sums  []int64
}

type pacedRule struct {
	*rules.Rule
	charged int64 // by steps
}

// A form is how a response has several JSON texts.
type form uint8

const (
	eventForm form = iota // server-sent events
	lineForm
	jsonForm // one JSON text, or a list of them, as its first byte says
	listForm
)

// A mark is a place of a piece at which the response can end: after a JSON text, or at the end of the piece. sums are
// the units of the response up to there, by rule.
type mark struct {
	end  int
	sums []int64
}

// errCut is the error of writing to a response that was cut.
var errCut = errors.New("httplimit: the response is cut: its rule has no units left")

// begins reports whether a response with this head is charged while it is streamed. A JSON text of a known length is
// no stream.
func (p *paced) begins(m *meter, h http.Header, status int) bool {
	contentType := h.Get("Content-Type")
	switch {
	case m.copy == nil || status >= http.StatusBadRequest || len(h["Content-Encoding"]) > 0:
		return false
	case !rules.Streamed(contentType):
		p.form = jsonForm
		return len(h["Content-Length"]) == 0
	case !strings.EqualFold(contentType[:min(4, len(contentType))], "text"):
		p.form = lineForm
	}
	if p.cuts {
		delete(h, "Content-Length") // a cut response has another length
	}
	return true
}

// applies reports whether a piece is charged. A JSON text that is no list is not, with all that follows.
func (p *paced) applies(m *meter, b []byte) bool {
	if p.form != jsonForm {
		return true
	}
	switch begin := bytes.TrimLeft(b, " \t\r\n"); {
	case len(begin) == 0:
		return false
	case begin[0] != '[':
		m.paces = false
		return false
	}
	p.form = listForm
	return true
}

// pass charges the bytes that are about to be sent. An error ends the response: it was cut, and got the events before
// the first one that is not charged, and an event that says so.
func (p *paced) pass(m *meter, b []byte) error {
	p.read(m, b)
	passing, wait := len(p.marks), time.Duration(0)
	var by *rules.Rule
	for i := range p.rules {
		if n, refused := p.charge(i, passing); n < passing {
			passing, wait, by = n, refused, p.rules[i].Rule
		}
	}
	if by != nil {
		return p.cut(m, b, passing, by, wait)
	}
	p.sent(b)
	return nil
}

// read reads a piece, and marks the places at which it may be cut.
func (p *paced) read(m *meter, b []byte) {
	answer := p.served.answer
	p.marks, p.sums = p.marks[:0], p.sums[:0]
	for end := 0; end < len(b); {
		begin, documents := end, answer.Documents
		if end = len(b); p.cuts {
			end = begin + cmp.Or(bytes.IndexByte(b[begin:], '}')+1, len(b)-begin)
		}
		m.copy.Write(b[begin:end])
		if end < len(b) && answer.Documents == documents {
			continue
		}
		answer.Bytes = m.bytes + int64(end)
		for i := range p.rules {
			p.sums = append(p.sums, p.rules[i].Passed(answer))
		}
		p.marks = append(p.marks, mark{end: end})
	}
	for k := range p.marks {
		p.marks[k].sums = p.sums[k*len(p.rules):]
	}
}

// charged is the number of units that a rule was charged by steps. It is 0 for a nil response.
func (p *paced) charged(rule *rules.Rule) int64 {
	if p != nil {
		for i := range p.rules {
			if p.rules[i].Rule == rule {
				return p.rules[i].charged
			}
		}
	}
	return 0
}

// charge charges the piece to a rule up to a mark. n is the number of marks that it grants: if the units of all are not
// left, some may be, which halving finds in a few calls.
func (p *paced) charge(rule, marks int) (n int, wait time.Duration) {
	most := marks
	for next := marks; n < most; next = n + (most-n+1)/2 {
		granted, refused := p.chargeTo(&p.rules[rule], p.marks[next-1].sums[rule])
		if granted {
			n = next
			continue
		}
		most, wait = next-1, refused
	}
	return n, wait
}

// chargeTo charges a rule so many units in all, in steps or, where less than a step is left, without more.
func (p *paced) chargeTo(r *pacedRule, sum int64) (granted bool, wait time.Duration) {
	units, cut, _ := r.Steps()
	missing := sum - r.charged
	if missing <= 0 || p.stopped {
		return true, 0
	}
	steps := (missing + units - 1) / units * units
	for _, n := range []int64{steps, missing} {
		granted, refused, err := p.step(p.served.request.Context(), r.Rule, n, !cut)
		if err != nil {
			p.stopped = true
			p.failed(err)
			return true, 0
		}
		if granted || !cut {
			r.charged += n
			return true, 0
		}
		wait = refused
	}
	return false, wait
}

// cut ends the response after some marks of a piece, and the request of the handler.
func (p *paced) cut(m *meter, b []byte, marks int, rule *rules.Rule, wait time.Duration) error {
	p.served.cut, m.broken = true, true
	if b = b[:0]; marks > 0 {
		b = b[:p.marks[marks-1].end]
	}
	m.ResponseWriter.Write(b)
	m.wrote(int64(len(b)))
	p.sent(b)
	m.ResponseWriter.Write(p.event(rule, wait))
	http.NewResponseController(m.ResponseWriter).Flush()
	p.stop()
	return errCut
}

// event is the error event of the API that the rule names, or one with a problem.
func (p *paced) event(rule *rules.Rule, wait time.Duration) []byte {
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
		text := refusal.Message + wording.Limited(refusal.Language, rule.DisplayName(), nil, rules.Unit{})
		body, _ = json.Marshal(shaped(refusal, text, data))
	}
	return p.framed(body, shape != "openai" && shape != "gemini")
}

// sent notes what was sent.
func (p *paced) sent(b []byte) {
	if b = bytes.TrimRight(b, " \t\r\n"); len(b) > 0 {
		p.last = b[len(b)-1]
	}
}

// framed is a JSON text as the last of a response. A piece may have ended within an event: the text begins a new one.
func (p *paced) framed(body []byte, named bool) []byte {
	before, end := "\n\ndata: ", "\n\n"
	switch {
	case p.form == lineForm:
		before, end = "\n", "\n"
	case p.form == listForm:
		before, end = map[byte]string{0: "[", '}': ","}[p.last], "]\n"
	case named:
		before = "\n\nevent: error\ndata: "
	}
	return slices.Concat([]byte(before), body, []byte(end))
}

// uncompressed asks the service for a response that can be charged while it is streamed.
func (c *call) uncompressed() {
	if r := c.request; r.Header["Accept-Encoding"] != nil {
		c.request = r.WithContext(r.Context())
		c.request.Header = r.Header.Clone()
		c.request.Header.Set("Accept-Encoding", "identity")
	}
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
