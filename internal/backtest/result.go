package backtest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/accesslog"
	"github.com/weirproject/weir/rules"
)

// report is what the replay found.
func (r *replay) report() *Report {
	c, s, counts := r.config, r.stats, &r.reader.counts
	x := &Report{Rules: c.Name, Log: r.log(), Total: s.total}
	good := c.Good != nil
	if good {
		x.Good = &Good{Requests: s.good.requests, RequestsRefused: s.good.refused}
	}
	x.Total.Clients, x.Total.ClientsRefused = x.Log.Clients, 0
	length := s.series.length()
	x.ByRule = make([]Rule, len(s.rules))
	for i := range s.rules {
		x.ByRule[i] = s.rule(i, length, good)
	}
	s.clients(x)
	if length > 0 {
		x.Timeline = Timeline{Start: time.Unix(s.series.start, 0).UTC(), Step: s.series.stepText(),
			Passed: s.series.row(rowPassed, length), Refused: s.series.row(rowRefused, length)}
	}
	x.Clients = s.census.top(c.Top, func(i int) string { return s.set.Rules()[i].Name() })
	for _, sweep := range r.sweeps {
		x.Sweeps = append(x.Sweeps, sweep.result(s, good))
	}
	if r.against != nil {
		x.Against = r.against.result(s, x.Log.Files)
	}
	x.Limits = r.limits(&x.Log, counts)
	return x
}

// log describes what was read.
func (r *replay) log() Log {
	counts := &r.reader.counts
	x := Log{Dropped: counts.requests - counts.replayed, Requests: r.stats.total.Requests, Refused: counts.refused,
		Clients: int64(len(r.stats.census.table.items)) * r.stats.census.table.weight(),
		Spread:  r.config.Spread.String()}
	x.files(r.files)
	if r.stats.total.Requests > 0 {
		x.From, x.To = time.UnixMicro(counts.first).UTC(), time.UnixMicro(counts.last).UTC()
	}
	if len(r.spreads) == 0 {
		return x
	}
	if r.spread.Requests == 0 {
		r.endSpreads()
	}
	x.SpreadOf, x.SpreadMatters = r.spread.Requests, make(map[string]int64)
	for _, o := range r.spreads {
		x.SpreadMatters[o.spread.String()] = o.count.Refused + o.count.Denied - r.spread.Refused - r.spread.Denied
	}
	return x
}

// files describes the files. Of several, the coarsest time counts.
func (x *Log) files(files []accesslog.File) {
	var coarsest time.Duration
	for i := range files {
		f := &files[i]
		file := File{Name: f.Name, Format: f.Format, Lines: f.Lines, Unread: f.Unread}
		for _, line := range f.Examples {
			file.Examples = append(file.Examples, Unread(line))
		}
		x.Files = append(x.Files, file)
		x.Lines += f.Lines
		x.Unread += f.Unread
		coarsest = max(coarsest, f.Resolution)
		switch is := string(f.TimeIs); {
		case f.Lines == 0:
		case x.TimeIs == "":
			x.TimeIs = is
		case x.TimeIs != is:
			x.TimeIs = "mixed"
		}
	}
	x.Resolution = coarsest.String()
}

// rule is a rule in the report.
func (s *stats) rule(i, length int, good bool) Rule {
	r := &s.rules[i]
	x := Rule{Name: r.rule.Name(), Description: r.rule.Label(), Limit: limitText(r.rule), Count: r.count,
		Shadow: r.rule.Mode() == rules.Shadow, Failing: r.failing, First: timeOf(r.first),
		Series: s.series.row(rowRules+i, length), Peaks: []Bar{}}
	if r.first >= 0 {
		x.Last = timeOf(r.last)
		x.Peak = Peak{Start: timeOf(r.minute.peakUnit * minute), Requests: r.minute.peak}
	}
	if good {
		x.Good = &Good{Requests: r.good.requests, RequestsRefused: r.good.refused}
	}
	if r.keys != nil {
		limit := windowed(r.rule)
		x.Keys = int64(len(r.keys.table.items)) * r.keys.table.weight()
		x.Window, x.Units = (time.Duration(r.keys.window) * time.Microsecond).String(), unitsInWindow(limit)
		x.Peaks = bars(r.keys.peaks(false), r.keys.table.weight(), x.Units)
	}
	return x
}

// unitsInWindow are the units of a limit that a key has at once: those of a window, or a bucket's burst if it is more
// than what is refilled.
func unitsInWindow(limit *weir.Limit) int64 {
	if limit.Algorithm() == weir.AlgorithmTokenBucket {
		return max(limit.Refill(), limit.Most())
	}
	return limit.Capacity()
}

func limitText(rule *rules.Rule) string {
	var texts []string
	for _, limit := range rule.Limits() {
		texts = append(texts, limit.String())
	}
	return strings.Join(texts, ", ")
}

// clients counts the clients of the report and of its rules.
func (s *stats) clients(x *Report) {
	table := s.census.table
	weight := table.weight()
	for j := range table.items {
		c := &table.items[j].v
		if c.refused > 0 {
			x.Total.ClientsRefused += weight
		}
		name := func() string { return nameOf(table.items[j].id) }
		addGood(x.Good, c.good, c.refused > 0, weight, name)
		for i := range x.ByRule {
			if !c.has(s.lanes + 2*i) {
				continue
			}
			rule := &x.ByRule[i]
			refused := c.has(s.lanes + 2*i + 1)
			rule.Count.Clients += weight
			if refused {
				rule.ClientsRefused += weight
			}
			addGood(rule.Good, c.good, refused, weight, name)
		}
	}
}

// addGood counts a client that is good.
func addGood(to *Good, good, refused bool, weight int64, name func() string) {
	if to == nil || !good {
		return
	}
	to.Clients += weight
	if !refused {
		return
	}
	to.ClientsRefused += weight
	if len(to.Examples) < maxExamples {
		to.Examples = append(to.Examples, name())
	}
}

// limits are sentences on what the figures cannot say.
func (r *replay) limits(x *Log, n *readCounts) (list []string) {
	say := func(condition bool, format string, args ...any) {
		if condition {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	of := func(count int64) string { return grouped(count) + " of " + grouped(n.replayed) + " requests" }
	timeIs := map[string]string{"start": "when requests began", "end": "when requests ended",
		"start or end": "when requests began (Apache) or ended (nginx)",
		"mixed":        "when requests began in some formats, and when they ended in others"}[x.TimeIs]
	say(timeIs != "", "The log states %s, to %s; the requests of one such unit are spread: %s.", timeIs,
		x.Resolution, map[Spread]string{Even: "evenly, in the order of the log", First: "all at its begin",
			Last: "all at its end"}[r.config.Spread])
	var late int64
	for i := range r.files {
		late += r.files[i].Late
	}
	say(late > 0, "%s stand more than 10 s too late in the log, and are decided at the time of the request before "+
		"them.", of(late))
	say(n.refused > 0 && !r.config.DropRetries, "The log says that %s were answered 429 or 503; clients may have "+
		"repeated them, so that they would not all have come under these rules (--retries drop leaves them out).",
		of(n.refused))
	say(n.unformed > 0, "%s have a method, host or path that a server would refuse before the rules; they are not "+
		"decided.", of(n.unformed))
	say(n.noClient > 0, "%s name no client; those are counted as one.", of(n.noClient))
	r.limitsOfRules(n, say, of)
	say(r.main.full > 0, "%s found the store full of keys (--max-keys %d), as on a server.", of(r.main.full),
		r.config.MaxKeys)
	overflow := r.main.store.Stats().Overflow
	say(overflow > 0, "%d decisions were made on keys that share a count, since the store was full (--max-keys %d), "+
		"as on a server.", overflow, r.config.MaxKeys)
	weight := r.stats.census.table.weight()
	say(weight > 1, "There are more than %s clients: their numbers are estimated from 1 of %d. Requests are counted "+
		"exactly.", grouped(int64(r.stats.census.table.max)), weight)
	for i := range r.stats.rules {
		if keys := r.stats.rules[i].keys; keys != nil && keys.table.weight() > 1 {
			list = append(list, fmt.Sprintf("The keys of the rule %s and their peaks are estimated from 1 of %d.",
				r.stats.rules[i].rule.Name(), keys.table.weight()))
		}
	}
	return list
}

// limitsOfRules are those of rules that need what the log does not have.
func (r *replay) limitsOfRules(n *readCounts, say func(bool, string, ...any), of func(int64) string) {
	for i := range r.stats.rules {
		rule := r.stats.rules[i].rule
		if !rule.Enabled() || r.stats.rules[i].count.Requests == 0 {
			continue
		}
		name := rule.Name()
		say(isHeld(rule) && n.noDuration > 0, "%s have no duration: the concurrency limit of the rule %s does not see "+
			"them overlap.", of(n.noDuration), name)
		say(rule.HasCountIf() && n.noStatus > 0, "%s have no status: they count for the rule %s.", of(n.noStatus), name)
		settle := rule.Settle()
		say(settle != "" && settle != inBytes, "The log does not have the %s of responses: costs of the rule %s stay "+
			"as estimated.", settle, name)
		for _, component := range rule.Components() {
			word, _, _ := strings.Cut(component, " ")
			missing := r.main.values.missing[word]
			if word == "user" {
				missing = n.noUser
			} else if word == "host" {
				missing = n.noHost
			}
			say(missing > 0, "%s have no %s, by which the rule %s counts (on_missing: %s).", of(missing), word, name,
				rule.OnMissing())
		}
	}
	say(n.noHost == n.replayed && n.replayed > 0 && r.asksHost(), "The log has no hosts: rules that match by host are "+
		"met by no request.")
	say(n.noUser == n.replayed && n.replayed > 0 && r.asksUser(), "The log has no users: rules that match by user are "+
		"met by no request.")
}

func (r *replay) asksHost() bool {
	return slices.ContainsFunc(r.config.File.Rules, func(s rules.Spec) bool { return len(s.Match.Host) > 0 })
}

func (r *replay) asksUser() bool {
	return slices.ContainsFunc(r.config.File.Rules, func(s rules.Spec) bool { return len(s.Match.User) > 0 })
}

// grouped is a number with commas.
func grouped(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
