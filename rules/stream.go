package rules

import (
	"cmp"
	"math/big"
	"slices"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/jsonvalues"
)

// A Stream is how responses that are streams are counted.
type Stream struct {
	AskUsage *bool // add to requests for a stream what makes the API state its usage; nil: false

	// Count is the units of the part of a response that has passed, a sum. "" is a quarter of its bytes with
	// ChargeStreaming, else none: a stream that breaks off, or does not state its cost, costs at least as much.
	Count string

	// With ChargeStreaming:
	Step    int64  // units that are charged at once; 0: 100
	Overrun string // when they are not left: "finish", as also "", or "cut", the response ends
}

// The words of overrun.
const (
	overrunFinish = "finish"
	overrunCut    = "cut"
)

var overruns = []string{overrunFinish, overrunCut}

// defaultStep is the number of units of a step.
const defaultStep = 100

// A stream is a checked Stream of a rule with ChargeStreaming.
type stream struct {
	step int64
	cut  bool
}

// Steps reports how a rule with ChargeStreaming charges a response while it is streamed: in steps of units, and whether
// the response is cut when they are not left. ok is false for other rules.
func (r *Rule) Steps() (units int64, cut, ok bool) {
	if r.stream == nil {
		return 0, false, false
	}
	return r.stream.step, r.stream.cut, true
}

// Passed is the number of units of the part of a response that has passed, of a rule with stream.count; 0 for others.
func (r *Rule) Passed(a *Answer) int64 {
	units, known := r.passed.units(a.number)
	if !known {
		return 0
	}
	return min(units, weir.MaxUnits)
}

// streams reads how a rule counts responses that are streams.
func (b *builder) streams(i int, s *Spec, rule *Rule) {
	rule.stream, rule.passed = b.stream(i, s), b.passed(i, s)
	rule.asksUsage = s.Stream.AskUsage != nil && *s.Stream.AskUsage
}

// stream checks a Stream; nil without ChargeStreaming.
func (b *builder) stream(i int, s *Spec) *stream {
	given := &s.Stream
	c := &stream{step: cmp.Or(given.Step, defaultStep),
		cut: word(b, at(i, "stream.overrun"), given.Overrun, overruns) == overrunCut}
	b.units(at(i, "stream.step"), given.Step)
	streams := s.Charge == ChargeStreaming
	for _, other := range []struct {
		field string
		is    bool
		why   string
	}{
		{"count_if", s.CountIf.stated(), "the units of a request are those of its response"},
		{"a fixed cost", s.Cost.Units != 0, "a response does not change it"},
		{"candidate", len(s.Candidate.Limit) > 0, "a request that only the candidate grants has no response"},
		{"lease_percent", s.LeasePercent != 0, "units that were prefetched are not those that come back"},
	} {
		if streams && other.is {
			b.add(at(i, "charge"), "charge: as_it_streams does not go with %s: %s", other.field, other.why)
		}
	}
	if !streams && (given.Step != 0 || given.Overrun != "") {
		b.add(at(i, "stream"), "step and overrun are for charge: as_it_streams")
	}
	if !streams {
		return nil
	}
	return c
}

// passed reads what counts the part of a response that has passed.
func (b *builder) passed(i int, s *Spec) sum {
	text := s.Stream.Count
	switch {
	case s.Charge == ChargeStreaming:
		text = cmp.Or(text, "0.25 * bytes")
	case text != "" && s.Cost.Settle == "":
		b.add(at(i, "stream.count"), "stream.count is for rules with cost.settle or charge: as_it_streams")
	}
	return b.sum(at(i, "stream.count"), text, nil, "")
}

// AsksUsage reports whether the rule adds to requests what makes the API state its usage.
func (r *Rule) AsksUsage() bool { return r.asksUsage }

// Asking is the body of a request for a stream with what makes the API state its usage, for a rule that AsksUsage; nil
// if the body stays. A request that declines the usage is changed too: its cost would be a guess.
func (r *Rule) Asking(body *JSON) []byte {
	if body == nil {
		return nil
	}
	document, ok := body.values.(*jsonvalues.Document)
	if !ok {
		return nil
	}
	stream, options, usage := body.at(streamPath), body.at(optionsPath), body.at(usagePath)
	const member = `"include_usage":true`
	switch {
	case !isTrue(&stream):
	case options.Kind == jsonvalues.Missing:
		return document.WithMember(nil, `"`+optionsPath+`":{`+member+`}`)
	case options.Kind == jsonvalues.Null:
		return document.With(&options, `{`+member+`}`)
	case options.Kind == jsonvalues.Object && usage.Kind == jsonvalues.Missing:
		return document.WithMember(&options, member)
	case options.Kind == jsonvalues.Object && (usage.Kind != jsonvalues.Bool || string(usage.Text) != "true"):
		return document.With(&usage, "true")
	}
	return nil
}

// isTrue reports whether a service may read a value as true, as some read 1 and words.
func isTrue(v *jsonvalues.Value) bool {
	switch v.Kind {
	case jsonvalues.Bool, jsonvalues.Text:
		return slices.Contains([]string{"true", "t", "1", "on", "yes", "y"}, strings.ToLower(string(v.Text)))
	case jsonvalues.Number:
		n, ok := numberOf(string(v.Text))
		return ok && n.Cmp(big.NewRat(1, 1)) == 0
	}
	return false
}

// Paths of OpenAI's API.
const (
	streamPath  = "stream"
	optionsPath = "stream_options"
	usagePath   = "stream_options.include_usage"
)
