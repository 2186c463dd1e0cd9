package rls

import (
	"context"
	"encoding/json"
	"strings"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
)

// An Explanation is how a call would be decided.
type Explanation struct {
	Code        string // OK or OVER_LIMIT
	Descriptors []ExplainedDescriptor
	Lead        int // index of the descriptor that decides
}

// An ExplainedDescriptor is how one descriptor of a call would be decided.
type ExplainedDescriptor struct {
	Text, Code  string
	Explanation *gate.Explanation
}

// Explain explains a RateLimitRequest in proto3 JSON, or a recorded line that has one as its field request. It reads
// the call and makes the answer as the service does, and charges nothing: descriptors that charge or give back are
// looked at like the others. The rules are those of the file. The error is about the text, or the context's.
func Explain(ctx context.Context, g *gate.Gate, set *rules.Set, file *rules.File, options Options, text []byte) (
	*Explanation, error) {
	r, err := parse(text)
	if err != nil {
		return nil, &weir.InputError{Field: "RateLimitRequest", Given: shortened(strings.TrimSpace(string(text))),
			Allowed: "one in proto3 JSON, such as " + example + ": " + strings.ReplaceAll(err.Error(), "\u00a0", " ")}
	}
	if options.Ratelimit != nil {
		uncounted := *options.Ratelimit
		uncounted.Count, options.Ratelimit = nil, &uncounted
	}
	s, c := &service{Options: options, gate: g}, new(call)
	if err := c.read(r); err != nil {
		return nil, err
	}
	s.adapt(r, c)
	for i := range c.questions {
		q := &c.questions[i]
		if q.Ask.Times, q.Ask.Spent, q.Ask.Rules = 0, false, set; q.Act != gate.Quota {
			q.Act = gate.Decided
		}
	}
	if err := g.DecideTogether(ctx, c.questions); err != nil {
		return nil, err
	}
	answer := s.answer
	if s.Ratelimit != nil {
		answer = func(c *call) *ratelimit.RateLimitResponse { return s.likeTheirs(ctx, r, c) }
	}
	return c.explained(r, file, answer(c)), nil
}

const example = `{"domain":"edge","descriptors":[{"entries":[{"key":"plan","value":"free"}]}]}`

func parse(text []byte) (*ratelimit.RateLimitRequest, error) {
	var line struct {
		Request json.RawMessage `json:"request"`
	}
	if json.Unmarshal(text, &line) == nil && line.Request != nil {
		text = line.Request
	}
	r := new(ratelimit.RateLimitRequest)
	return r, protojson.Unmarshal(text, r)
}

// explained is the explanation of a decided call.
func (c *call) explained(r *ratelimit.RateLimitRequest, file *rules.File,
	answer *ratelimit.RateLimitResponse) *Explanation {
	e := &Explanation{Code: answer.GetOverallCode().String()}
	for i := range c.questions {
		p := c.parts[i]
		if leads(p, c.parts[e.Lead]) {
			e.Lead = i
		}
		entries := make([]string, len(p.entries))
		for j, one := range p.entries {
			entries[j] = one.GetKey() + "=" + one.GetValue()
		}
		e.Descriptors = append(e.Descriptors, ExplainedDescriptor{
			Text:        r.GetDomain() + ": " + strings.Join(entries, ", "),
			Code:        answer.GetStatuses()[i].GetCode().String(),
			Explanation: p.verdict.Explain(file, &p.request)})
	}
	return e
}
