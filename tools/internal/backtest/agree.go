package backtest

import (
	"context"
	"slices"
	"strings"

	"github.com/weirproject/weir/tools/internal/accesslog"
)

// An Agreement is how far rules decide as the limiter did that wrote the log.
type Agreement struct {
	Requests  int64 // decided
	Refused   int64 // by the log
	Both      int64 // by the log and the rules
	OnlyLog   int64 // refused by the log alone
	OnlyRules int64 // by the rules alone
	Examples  []Different
}

// Differs is the number of requests that are decided otherwise.
func (a *Agreement) Differs() int64 { return a.OnlyLog + a.OnlyRules }

// limitStatus are the fields of accesslog with nginx's outcome of its limits.
var limitStatus = []string{"Limit-Req-Status", "Limit-Conn-Status"}

// Agree replays a log of another limiter, and compares the rules' decisions with its answers: if byLimit by
// nginx's $limit_req_status and $limit_conn_status, else by the status.
func Agree(ctx context.Context, c *Config, byLimit bool) (*Agreement, error) {
	source, err := c.Open(1, 1)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	replayer, err := newReplayer(c.Set, c)
	if err != nil {
		return nil, err
	}
	statuses := []int{429, 503}
	for _, rule := range c.Set.Rules() {
		statuses = append(statuses, rule.Response().Status)
	}
	a, names := new(Agreement), source.Files()
	err = newReader(c).each(ctx, source, func(e *event) error {
		result, err := replayer.decide(ctx, e)
		then, now := slices.Contains(statuses, int(e.status)), result.stopped()
		if byLimit {
			then, now = e.rejected(), now || replayer.shadowRefuses() // a dry run
		}
		if err == nil && result != undecided && a.count(then, now) {
			a.example(e, names[e.file].Name, nameIn(c.Set, result))
		}
		return err
	})
	return a, err
}

// rejected reports whether a limit of nginx refused the request, if only for a dry run.
func (e *event) rejected() bool {
	return slices.ContainsFunc(e.fields, func(f accesslog.Field) bool {
		return slices.Contains(limitStatus, f.Name) && strings.HasPrefix(f.Value, "REJECTED")
	})
}

// count counts a request, and reports whether then and now differ.
func (a *Agreement) count(then, now bool) bool {
	a.Requests++
	if then {
		a.Refused++
	}
	switch {
	case then && now:
		a.Both++
	case then:
		a.OnlyLog++
	case now:
		a.OnlyRules++
	}
	return then != now
}

func (a *Agreement) example(e *event, file, now string) {
	if len(a.Examples) < maxExamples {
		a.Examples = append(a.Examples, Different{File: file, Line: e.line, Time: timeOf(e.time), Client: nameOf(e.id),
			Target: e.raw[:min(len(e.raw), 200)], New: now})
	}
}

// shadowRefuses reports whether a shadow rule refuses the request that was decided last.
func (l *replayer) shadowRefuses() bool {
	for i := range l.verdict.Len() {
		if c := l.verdict.At(i); c.Shadow && c.Decided && c.Granted == 0 {
			return true
		}
	}
	return false
}
