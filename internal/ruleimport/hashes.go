package ruleimport

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/ruleset/redissource"
	"github.com/weirproject/weir/rules"
)

// weir reads a file of rules, to be written as something else.
func (j *job) weir() {
	if len(j.texts) != 1 {
		j.wrong(j.texts[0].Name, 1, "%d files of rules; name one", len(j.texts))
		return
	}
	file, err := rules.Parse(j.texts[0].Name, j.texts[0].Data)
	if err == nil {
		_, err = rules.Compile(file)
	}
	if list, ok := err.(*rules.Error); ok {
		j.problems = list.Problems
		return
	}
	j.result.Rules = file
}

// Commands are the rules as hashes: commands of redis-cli, each in a line. Rules that hashes cannot hold are added to
// the notes.
func (r *Result) Commands() string {
	var b strings.Builder
	for i := range r.Rules.Rules {
		spec := &r.Rules.Rules[i]
		fields, ok := hashOf(spec)
		if !ok {
			r.Notes = append(r.Notes, Note{File: r.Files[0], Line: 1, What: "rule " + spec.Name + " in a hash",
				Instead: "keep it in a file of rules, or in the ledger"})
			continue
		}
		fmt.Fprintf(&b, "HSET %s%s", redissource.DefaultPrefix, spec.Name)
		for _, word := range fields {
			b.WriteString(" " + word.name + " " + quotedWord(word.value))
		}
		b.WriteByte('\n')
	}
	for _, part := range []struct {
		what  string
		count int
	}{{"services", len(r.Rules.Services)}, {"routes", len(r.Rules.Routes)}} {
		if part.count > 0 {
			r.Notes = append(r.Notes, Note{File: r.Files[0], Line: 1, Instead: "keep them in a file of rules",
				What: fmt.Sprintf("%d %s in hashes", part.count, part.what)})
		}
	}
	rest := *r.Rules
	rest.Name, rest.Rules, rest.Services, rest.Routes = "", nil, nil, nil
	if !reflect.DeepEqual(rest, rules.File{}) {
		r.Notes = append(r.Notes, Note{File: r.Files[0], Line: 1, What: "fields of the file beside rules in hashes",
			Instead: "keep them in a file of rules"})
	}
	b.WriteString("PUBLISH rate_limit_config RELOAD_ALL\n")
	return b.String()
}

func quotedWord(text string) string {
	if text != "" && !strings.ContainsAny(text, " \"'\\\t\n#*") && strconv.Quote(text) == `"`+text+`"` {
		return text
	}
	return strconv.Quote(text)
}

// A hashField is a field of a hash.
type hashField struct{ name, value string }

// hashOf are the fields of a rule. It is ok if they are read as the same rule again.
func hashOf(spec *rules.Spec) (fields []hashField, ok bool) {
	if len(spec.Limit) != 1 {
		return nil, false
	}
	text := spec.Limit[0]
	if spec.Algorithm != "" {
		text = spec.Algorithm + " " + text
	}
	limit, err := weir.ParseLimit(text)
	if err != nil {
		return nil, false
	}
	kind, target := kindOf(spec)
	fields = []hashField{{"limitType", kind}, {"limitTarget", target}}
	numbers, ok := numbersOf(limit)
	if !ok {
		return nil, false
	}
	fields = append(fields, numbers...)
	fields = append(fields, hashField{"enabled", strconv.FormatBool(spec.IsEnabled())})
	for _, optional := range []hashField{{"ruleName", spec.Label}, {"description", spec.Description},
		{"mode", strings.ToUpper(string(spec.Mode))}, {"onStoreError", strings.ToUpper(string(spec.OnStoreError))}} {
		if optional.value != "" {
			fields = append(fields, optional)
		}
	}
	for _, one := range spec.Message {
		name := strings.TrimSuffix("message."+one.Language, ".")
		fields = append(fields, hashField{name, one.Text})
	}
	return fields, isSame(spec, limit, fields)
}

// isSame reads the fields, and compares the rule.
func isSame(spec *rules.Spec, limit weir.Spec, fields []hashField) bool {
	table := make(map[string]string, len(fields))
	for _, f := range fields {
		table[f.name] = f.value
	}
	h := redissource.ReadHash(redissource.DefaultPrefix, redissource.DefaultPrefix+spec.Name, table)
	if h.Rule == nil || len(h.Ignored) > 0 {
		return false
	}
	again, err := weir.ParseLimit(h.Rule.Limit[0])
	read, want := *h.Rule, *spec
	for _, one := range []*rules.Spec{&read, &want} {
		one.Limit, one.Algorithm, one.Enabled = nil, "", nil
	}
	return err == nil && again == limit && h.Enabled == spec.IsEnabled() && reflect.DeepEqual(read, want)
}

// kindOf is the limitType and limitTarget that a rule probably has.
func kindOf(spec *rules.Spec) (kind, target string) {
	first := func(list []string) string {
		if len(list) == 0 {
			return "*"
		}
		return list[0]
	}
	switch m := &spec.Match; spec.Group {
	case "redis-service":
		return "SERVICE", first(m.Service)
	case "redis-ip":
		return "IP", first(m.Client)
	case "redis-user":
		return "USER", first(m.User)
	case "redis-interface":
		if m.Path == "" {
			return "INTERFACE", "*"
		}
		if len(m.Service) > 0 {
			return "INTERFACE", m.Service[0] + ":" + m.Path
		}
		return "INTERFACE", m.Path
	}
	return "GLOBAL", "*"
}

// calendarSeconds are the periods of calendars in hashes.
var calendarSeconds = map[weir.CalendarUnit]int64{weir.Minute: 60, weir.Hour: 3600, weir.Day: 86400, weir.Week: 604800}

// numbersOf are the strategy of a limit and its numbers.
func numbersOf(limit weir.Spec) (fields []hashField, ok bool) {
	of := func(strategy string, count int64, period time.Duration, more ...hashField) ([]hashField, bool) {
		number := func(n int64) string { return strconv.FormatInt(n, 10) }
		return append([]hashField{{"limitCount", number(count)}, {"timeWindow", number(int64(period / time.Second))},
			{"strategy", strategy}}, more...), period%time.Second == 0
	}
	with := func(name string, n int64) hashField { return hashField{name, strconv.FormatInt(n, 10)} }
	switch l := limit.(type) {
	case weir.TokenBucket:
		if l.Overdraft > 0 || l.Capacity == 1 && l.Refill > 1 {
			return of("LEAKY_QUEUE", l.Refill, l.Period, with("queue", l.Overdraft))
		}
		return of("TOKEN_BUCKET", l.Refill, l.Period, with("burst", l.Capacity))
	case weir.FixedWindow:
		return of("FIXED_WINDOW", l.Limit, l.Window)
	case weir.SlidingLog:
		return of("SLIDING_LOG", l.Limit, l.Window)
	case weir.SlidingCounter:
		return of("SLIDING_COUNTER", l.Limit, l.Window, with("slices", l.Slices))
	case weir.Concurrency:
		return of("CONCURRENCY", l.Limit, l.TTL)
	case weir.Calendar:
		period := time.Duration(calendarSeconds[l.Unit]) * time.Second
		if l.Zone != "" && l.Zone != "UTC" {
			return of("CALENDAR", l.Limit, period, hashField{"zone", l.Zone})
		}
		return of("CALENDAR", l.Limit, period)
	}
	return nil, false
}
