package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/review"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// A fileExplains has an example of a request for each rule of a file, and requests that no rule matches.
type fileExplains struct {
	File     string        `json:"file"`
	Examples []ruleExample `json:"examples"`
	Holes    []string      `json:"not_limited"` // requests that no enforced rule matches
}

// A ruleExample is a request that a rule matches, and what decides it, in the order of the file.
type ruleExample struct {
	Rule    string         `json:"rule"`
	Request string         `json:"request,omitempty"` // "": none was found
	Outcome string         `json:"outcome,omitempty"`
	Reason  string         `json:"reason,omitempty"`
	Checks  []exampleCheck `json:"checks,omitempty"`
	Skipped []skip         `json:"skipped,omitempty"`
	Closest string         `json:"closest,omitempty"` // the rule that decides, which has the least left
}

// An exampleCheck is a limit that is charged for an example.
type exampleCheck struct {
	Limit  string `json:"limit"`
	Text   string `json:"text"`
	Key    string `json:"key"`
	Cost   int64  `json:"cost"`
	Shadow bool   `json:"shadow,omitempty"`
}

// explainAll decides an example of each rule by a gate with all counts zero.
func explainAll(ctx context.Context, name string, file *rules.File, set *rules.Set) (fileExplains, error) {
	e := fileExplains{File: name, Examples: []ruleExample{}, Holes: []string{}}
	store := readOnlyStore{memstore.New()}
	defer store.Close()
	g, err := gate.New(store, set, gate.WithLocal(store))
	if err != nil {
		return e, err
	}
	for _, rule := range set.Rules() {
		if !rule.Enabled() {
			continue
		}
		one := ruleExample{Rule: rule.Name()}
		if x := review.ExampleOf(file, set, rule); x != nil {
			if err := one.decide(ctx, g, x); err != nil {
				return e, err
			}
		}
		e.Examples = append(e.Examples, one)
	}
	for _, x := range review.Probes(file) {
		if !enforced(set.Match(&x.Request, nil)) {
			e.Holes = append(e.Holes, x.Of+": "+describe(x))
		}
	}
	return e, nil
}

func enforced(list []*rules.Rule) bool {
	return slices.ContainsFunc(list, func(rule *rules.Rule) bool { return rule.Mode() == rules.Enforce })
}

// decide decides the example.
func (e *ruleExample) decide(ctx context.Context, g *gate.Gate, x *review.Example) error {
	var v gate.Verdict
	e.Request = describe(x)
	if err := g.Decide(ctx, &x.Request, gate.Ask{Times: 1}, &v); err != nil {
		return err
	}
	e.Outcome, e.Reason = v.Outcome.String(), v.Reason.String()
	if v.Rule != nil {
		e.Closest = v.Rule.Name()
	}
	for i := range v.Len() {
		c := v.At(i)
		if c.Aside {
			continue
		}
		e.Checks = append(e.Checks, exampleCheck{c.Claim.Limit.Name(), c.Claim.Limit.String(),
			strings.Clone(c.Claim.Key), c.Claim.Cost, c.Shadow})
	}
	for _, s := range v.Skips() {
		e.Skipped = append(e.Skipped, skip{s.Rule.Name(), s.Why})
	}
	return nil
}

// describe is a request in words: its line, then what else matters.
func describe(x *review.Example) string {
	parts := []string{strings.TrimSpace(x.Method + " " + x.Host + x.Path)}
	for _, one := range [][2]string{{"client", x.Client.String()}, {"user", x.User}, {"service", x.Service},
		{"route", x.Route}} {
		if one[1] != "" {
			parts = append(parts, one[0]+" "+one[1])
		}
	}
	for _, table := range []struct {
		kind   string
		values map[string]string
	}{{"header", x.Headers}, {"query", x.Queries}, {"cookie", x.Cookies}, {"body", x.Bodies},
		{"descriptor", x.Descriptors}} {
		for _, name := range slices.Sorted(maps.Keys(table.values)) {
			parts = append(parts, fmt.Sprintf("%s %s=%s", table.kind, name, table.values[name]))
		}
	}
	return strings.Join(parts, ", ")
}

func (e *fileExplains) print(out io.Writer) {
	fmt.Fprintf(out, "\n%s: a request for each rule, and what it is charged to with all counts zero\n", e.File)
	for i := range e.Examples {
		e.Examples[i].print(out)
	}
	for _, hole := range e.Holes[:min(len(e.Holes), mostHoles)] {
		fmt.Fprintf(out, "  not limited: %s\n", hole)
	}
	if more := len(e.Holes) - mostHoles; more > 0 {
		fmt.Fprintf(out, "  not limited: and %d more, which --format json lists\n", more)
	}
}

// mostHoles are printed as text.
const mostHoles = 20

func (e *ruleExample) print(out io.Writer) {
	if e.Request == "" {
		fmt.Fprintf(out, "  %s: no example was found\n", e.Rule)
		return
	}
	fmt.Fprintf(out, "  %s: %s\n", e.Rule, e.Request)
	for i := range e.Checks {
		c := &e.Checks[i]
		marks := ""
		if c.Cost != 1 {
			marks += fmt.Sprintf(", costs %d", c.Cost)
		}
		if c.Shadow {
			marks += ", shadow"
		}
		fmt.Fprintf(out, "    %s  %s  %s%s\n", c.Limit, c.Text, c.Key, marks)
	}
	for _, s := range e.Skipped {
		fmt.Fprintf(out, "    %s is not checked: %s\n", s.Rule, s.Why)
	}
	fmt.Fprintf(out, "    %s\n", e.decision())
}

// decision says what decides the example.
func (e *ruleExample) decision() string {
	by := ""
	if e.Closest != "" {
		by = " of " + e.Closest
	}
	switch e.Reason {
	case gate.WithinLimits.String():
		return "passes: " + e.Closest + " decides, which has the least left"
	case gate.AllowList.String():
		return "passes: the allow list of the file names it"
	case gate.DenyList.String():
		return "refused: a deny list" + by + " names it"
	case gate.MissingKey.String():
		return "refused: the key" + by + " is missing"
	case gate.NoRule.String():
		return "passes: no limit applies"
	}
	return e.Outcome + ", " + e.Reason + by
}
