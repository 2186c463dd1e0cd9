package ruletest

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/keytext"
	"github.com/weirproject/weir/rules"
)

// shadowsOf is what shadow rules would do, and rules with their candidates in force.
func shadowsOf(v *gate.Verdict) map[string]string {
	list := make(map[string]string)
	for i := range v.Len() {
		c := v.At(i)
		if !c.Shadow || c.Candidate || !c.Decided {
			continue
		}
		if name := c.Rule.Name(); c.Granted == 0 {
			list[name] = "refused"
		} else if list[name] == "" {
			list[name] = "passed"
		}
	}
	for _, d := range v.Differences() {
		list[d.Rule.Name()] = "passed"
		if d.Candidate == 0 {
			list[d.Rule.Name()] = "refused"
		}
	}
	return list
}

// explained is what decided the last request, in words: also until when a ban is in force, and why rules do not match
// that may be expected to.
func (r *run) explained(a *answer, v *gate.Verdict) string {
	text := a.decision
	if a.reason == "bad_input" {
		return text // v is that of a request before
	}
	if worst, ok := v.Worst(); ok && worst.Ban && a.retryAfter != weir.Never {
		now := time.UnixMicro(r.now.Load()).Sub(r.file.Start)
		text = fmt.Sprintf("rule %s: banned until %v, key %q", a.rule, now+a.retryAfter,
			keytext.Described(worst.Claim.Key))
	}
	if v.Outcome == gate.Passed {
		for _, miss := range v.Explain(r.file.Tested, &r.asked).NotMatched {
			text += fmt.Sprintf("; %s does not match: %s", miss.Rule, strings.Join(miss.Why, ", "))
		}
	}
	return text
}

// A covered is what tests meet of a rule.
type covered struct {
	matched, refused bool
	met              map[string]bool // conditions
}

// cover notes the conditions that the last request meets. They are the same for each repetition, so the first one
// tells.
func (r *run) cover(v *gate.Verdict, first bool) {
	f := r.file
	if !f.Cover || f.Tested == nil {
		return
	}
	if f.covered == nil {
		f.covered = make(map[string]*covered)
	}
	for i := range f.Tested.Rules {
		spec := &f.Tested.Rules[i]
		c := f.covered[spec.Name]
		if c == nil {
			c = &covered{met: make(map[string]bool)}
			f.covered[spec.Name] = c
		}
		if c.matched || !first {
			continue
		}
		for _, condition := range spec.Match.Conditions() {
			if !c.met[condition.Name] {
				c.met[condition.Name] = condition.Match.Meets(f.Tested.PathForm, &r.asked)
			}
		}
	}
	for _, rule := range v.Matched() {
		f.covered[rule.Name()].matched = true
	}
	for i := range v.Len() {
		c := v.At(i)
		refuses := c.Shadow && c.Granted == 0 || v.Outcome == gate.Refused && c.Decision.RetryAfter != 0
		if c.Decided && refuses && !c.Candidate && !c.Aside {
			f.covered[c.Rule.Name()].refused = true
		}
	}
	if v.Rule != nil && v.Outcome != gate.Passed {
		f.covered[v.Rule.Name()].matched, f.covered[v.Rule.Name()].refused = true, true
	}
}

// Untested are the rules, and their conditions, that no test meets, in words.
func (f *File) Untested() (list []string) {
	if f.Tested == nil {
		return nil
	}
	for i := range f.Tested.Rules {
		spec := &f.Tested.Rules[i]
		c := f.covered[spec.Name]
		switch {
		case !spec.IsEnabled() || c != nil && c.refused:
		case c != nil && c.matched:
			list = append(list, fmt.Sprintf("rule %s: no test is refused by it", spec.Name))
		default:
			list = append(list, fmt.Sprintf("rule %s: no test matches it%s", spec.Name, c.unmet(spec)))
		}
	}
	return list
}

// unmet names the conditions that no request meets.
func (c *covered) unmet(spec *rules.Spec) string {
	var names []string
	for _, condition := range spec.Match.Conditions() {
		if c == nil || !c.met[condition.Name] {
			names = append(names, condition.Name+" = "+condition.Want)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "; no request has " + strings.Join(names, ", ")
}
