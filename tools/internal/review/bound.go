package review

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// times are the times of bounds: a minute, an hour, a day.
var times = [...]time.Duration{time.Minute, time.Hour, 24 * time.Hour}

// bounds are the most units of a limit in each of times, by its text: many rules have the same limit.
type bounds map[string][len(times)]int64

// fill computes the maximum for a key of the rule.
func (b bounds) fill(r *Rule, rule *rules.Rule, s *rules.Spec) {
	most, rated := b.least(rule.Limits())
	for _, limit := range rule.Limits() {
		r.Limits = append(r.Limits, limit.String())
		if limit.Leases() && (r.AtOnce == 0 || limit.Most() < r.AtOnce) {
			r.AtOnce = limit.Most()
		}
	}
	r.Remarks = b.remarks(rule, s)
	if !rated || !mayRefuse(rule) {
		return
	}
	r.Minute, r.Hour, r.Day = &most[0], &most[1], &most[2]
}

// mayRefuse reports whether the rule is enforced for some keys, and refuses requests whatever others its call has.
func mayRefuse(rule *rules.Rule) bool {
	return rule.Mode() == rules.Enforce && rule.EnforcePercent() > 0 && !rule.Unlimited() && !rule.Quota()
}

// least is the least of the limits' bounds. It is not rated if all limits are of concurrency, which have no rate.
func (b bounds) least(limits []*weir.Limit) (most [len(times)]int64, rated bool) {
	for _, limit := range limits {
		if limit.Leases() {
			continue
		}
		of := b.of(limit)
		for i := range most {
			if !rated || of[i] < most[i] {
				most[i] = of[i]
			}
		}
		rated = true
	}
	return most, rated
}

func (b bounds) of(limit *weir.Limit) (most [len(times)]int64) {
	text := limit.String()
	most, known := b[text]
	if known {
		return most
	}
	for i, t := range times {
		most[i] = limit.MostIn(t)
	}
	b[text] = most
	return most
}

// remarks are where more passes than the bounds say, and where they are of something else than requests.
func (b bounds) remarks(rule *rules.Rule, s *rules.Spec) (list []string) {
	percent := rule.EnforcePercent()
	for _, remark := range []struct {
		is   bool
		text string
	}{
		{rule.Mode() == rules.Shadow, "a shadow rule refuses nothing"},
		{percent > 0 && percent < 100, fmt.Sprintf("enforced for %d%% of the keys; the others have no bound", percent)},
		{percent == 0, "enforced for no key"},
		{len(s.Schedule) > 0, "no bound outside of its schedule"},
		{len(s.Allow) > 0, "no bound for requests that its allow names"},
		{rule.Group() != "", "only for requests of which it is the best match in group " + rule.Group()},
		{rule.FixedCost() && rule.Cost() > 1, fmt.Sprintf("units: a request takes %d", rule.Cost())},
		{s.Cost.From != "", fmt.Sprintf("units: a request takes 1 to %d", s.Cost.Max)},
		{rule.ChargesFull(), "each time that units run out, the cost of a request may exceed them"},
		{rule.Settle() != "", "units are charged by the response, which may exceed them"},
		{len(rule.Classes()) > 0, "of all classes together: " + leaves(rule.Classes())},
		{rule.HasCountIf(), "of requests that count_if counts; the others have no bound"},
		{len(rule.Components()) > 0 && rule.OnMissing() == rules.Skip, "no bound for requests without " +
			strings.Join(rule.Components(), ", ")},
		{rule.OnStoreError() == rules.AllowAll, "no bound while the store does not answer"},
	} {
		if remark.is {
			list = append(list, remark.text)
		}
	}
	if text := b.raised(s, rule); text != "" {
		list = append(list, text)
	}
	return list
}

// leaves are the classes with the parts of the limits that they leave to others.
func leaves(classes []rules.Class) string {
	var parts []string
	for _, class := range classes {
		parts = append(parts, fmt.Sprintf("%s leaves %d%%", class.Name, class.Share))
	}
	return strings.Join(parts, ", ")
}

// raised describes the override that grants most in a day, if that is more than the rule grants; "" without one.
func (b bounds) raised(s *rules.Spec, rule *rules.Rule) string {
	own, rated := b.least(rule.Limits())
	most, at := own[len(own)-1], -1
	for i := range s.Overrides {
		var limits []*weir.Limit
		for _, text := range s.Overrides[i].Limit {
			spec, err := weir.ParseLimit(strings.TrimSpace(s.Algorithm + " " + text))
			if err != nil {
				return "" // the set was compiled, so this does not happen
			}
			limits = append(limits, weir.MustLimit("override", spec))
		}
		of, bound := b.least(limits)
		if !bound && rated {
			return fmt.Sprintf("no bound for the key %s, which has an override", strings.Join(s.Overrides[i].Key, " "))
		}
		if day := of[len(of)-1]; rated && day > most {
			most, at = day, i
		}
	}
	if at < 0 {
		return ""
	}
	return fmt.Sprintf("up to %d in a day for the key %s, by an override", most, strings.Join(s.Overrides[at].Key, " "))
}
