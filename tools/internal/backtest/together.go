package backtest

import (
	"context"
	"errors"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/internal/accesslog"
)

// A part is a descriptor of a RateLimitRequest.
type part struct {
	request rules.Request
	verdict gate.Verdict
	hits    int64
}

// together decides the descriptors of a RateLimitRequest as one, as the server does. Its result is that of the first
// descriptor that is refused.
func (l *replayer) together(ctx context.Context, e *event) (result, error) {
	questions := make([]gate.Question, len(e.descriptors))
	l.verdicts = l.verdicts[:0]
	for i := range questions {
		if i == len(l.parts) {
			l.parts = append(l.parts, new(part))
		}
		p := l.parts[i]
		e.describe(&p.request, i)
		questions[i] = gate.Question{Request: &p.request, Ask: gate.Once, Verdict: &p.verdict}
		p.cost(e, i, &questions[i].Ask)
		l.verdicts = append(l.verdicts, &p.verdict)
	}
	err := l.gate.DecideTogether(ctx, questions)
	var input *weir.InputError
	if errors.As(err, &input) {
		return undecided, nil
	} else if err != nil {
		return passed, err
	}
	r := passed
	for _, v := range l.verdicts {
		if v.Holds() { // the end of a request is not reported
			if err := l.gate.Release(ctx, v.Receipt()); err != nil && !errors.Is(err, weir.ErrLeaseGone) {
				return passed, err
			}
		}
		if v.Err != nil {
			l.full++
		}
		if v.Outcome == gate.Failed {
			return undecided, nil
		}
		if r == passed && v.Reason != gate.OtherRefused {
			r = resultOf(v)
		}
	}
	return r, nil
}

// cost sets the hits: the descriptor's, else the request's, else what the rules say. A request of none looks.
func (p *part) cost(e *event, i int, ask *gate.Ask) {
	switch own := e.descriptors[i].Hits; {
	case own != accesslog.Unknown:
		p.hits = own
	case e.hits > 0:
		p.hits = e.hits
	default:
		return
	}
	if ask.Cost = &p.hits; p.hits == 0 {
		ask.Times, p.hits = 0, 1
	}
}
