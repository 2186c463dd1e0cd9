package backtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/keytext"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/internal/accesslog"
)

// report is the report of the replay.
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
	x.Clients = s.clientCounts.top(c.Top, func(i int) string { return s.set.Rules()[i].Name() })
	for _, sweep := range r.sweeps {
		x.Sweeps = append(x.Sweeps, sweep.result(s, good))
	}
	if r.against != nil {
		x.Against = r.against.result(s, x.Log.Files)
	}
	x.Limits = r.limits(&x.Log, counts)
	return x
}

// log describes the requests that were read.
func (r *replay) log() Log {
	counts := &r.reader.counts
	x := Log{Dropped: counts.requests - counts.replayed, Requests: r.stats.total.Requests, Refused: counts.refused,
		Clients: int64(len(r.stats.clientCounts.table.items)) * r.stats.clientCounts.table.weight(),
		Spread:  r.config.Spread.String()}
	x.files(r.files)
	if r.stats.total.Requests > 0 {
		x.From, x.To = time.UnixMicro(counts.first).UTC(), time.UnixMicro(counts.last).UTC()
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
	x.Worst = r.worstKeys()
	return x
}

// worstShown is the number of a rule's keys in the report.
const worstShown = 10

// worstKeys are the keys that are refused most.
func (r *ruleStats) worstKeys() (list []Key) {
	if r.worst == nil {
		return nil
	}
	worst := r.worst.worst()
	for _, d := range worst[:min(len(worst), worstShown)] {
		list = append(list, Key{keytext.Plain(d.key), d.evidence()})
	}
	return list
}

// unitsInWindow are the units of a limit that a key has at once: the units of a window, or a bucket's burst if it is
// more than its refill.
func unitsInWindow(limit *weir.Limit) int64 {
	return max(limit.Units(), limit.Most())
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
	table := s.clientCounts.table
	weight := table.weight()
	for j := range table.items {
		c := &table.items[j].v
		if c.refused > 0 {
			x.Total.ClientsRefused += weight
		}
		name := func() string { return nameOf(table.items[j].id) }
		addGood(x.Good, c.good, c.refused > 0, weight, name)
		for i := range x.ByRule {
			if !c.has(s.replayers + 2*i) {
				continue
			}
			rule := &x.ByRule[i]
			refused := c.has(s.replayers + 2*i + 1)
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

// limits are notes on the limits of the figures.
func (r *replay) limits(x *Log, n *readCounts) []Note {
	list := &noteList{of: n.replayed}
	r.limitsOfLog(x, n, list)
	r.limitsOfRules(n, list)
	for _, service := range r.config.Set.Services() {
		if service.Concurrency != nil {
			list.add("adaptive", "service", service.Name)
		}
	}
	r.unmatched.notes(n, list)
	list.counted(r.main.full, "full", "most", fmt.Sprint(r.config.MaxKeys))
	list.counted(r.main.store.Stats().Overflow, "overflow", "most", fmt.Sprint(r.config.MaxKeys))
	clients := r.stats.clientCounts.table
	if weight := clients.weight(); weight > 1 {
		list.add("clients_estimated", "most", grouped(int64(clients.max)), "weight", fmt.Sprint(weight))
	}
	for i := range r.stats.rules {
		if keys := r.stats.rules[i].keys; keys != nil && keys.table.weight() > 1 {
			list.add("keys_estimated", "rule", r.stats.rules[i].rule.Name(), "weight", fmt.Sprint(keys.table.weight()))
		}
	}
	return list.notes
}

// A noteList is notes on so many requests.
type noteList struct {
	notes []Note
	of    int64
}

func (l *noteList) add(code string, pairs ...string) { l.notes = append(l.notes, note(code, pairs...)) }

// counted adds a note on a number of the requests, unless it is 0.
func (l *noteList) counted(count int64, code string, pairs ...string) {
	if count > 0 {
		l.add(code, append([]string{"count", grouped(count), "of", grouped(l.of)}, pairs...)...)
	}
}

// tooMany is the share of late requests, or of unread lines, that makes a report unreliable.
const (
	tooLate   = 0.001
	tooUnread = 0.05
)

func (r *replay) limitsOfLog(x *Log, n *readCounts, list *noteList) {
	for i := range r.files {
		x.Late += r.files[i].Late
	}
	list.counted(x.Late, "late", "share", percent(x.Late, n.replayed))
	if x.Late > 0 {
		list.notes[0].Severe = float64(x.Late) > tooLate*float64(n.replayed)
	}
	if float64(x.Unread) > tooUnread*float64(x.Lines) {
		list.add("unread", "count", grouped(x.Unread), "of", grouped(x.Lines), "share", percent(x.Unread, x.Lines))
		list.notes[len(list.notes)-1].Severe = true
	}
	if code, known := map[string]string{"start": "time_start", "end": "time_end", "start or end": "time_either",
		"mixed": "time_mixed", string(accesslog.Order): "time_order"}[x.TimeIs]; known {
		list.add(code, "resolution", x.Resolution)
		if x.TimeIs != string(accesslog.Order) {
			list.add("spread_" + r.config.Spread.String())
		}
	}
	if !r.config.DropRetries {
		list.counted(n.refused, "repeated")
	}
	list.counted(n.unformed, "unformed")
	list.counted(n.noClient, "no_client")
	if r.config.Good != nil && r.config.Good.failing > 0 {
		list.add("good_failing", "count", grouped(r.config.Good.failing))
	}
}

// limitsOfRules are notes on rules that need values that the log lacks.
func (r *replay) limitsOfRules(n *readCounts, list *noteList) {
	for i := range r.stats.rules {
		rule := r.stats.rules[i].rule
		if !rule.Enabled() || r.stats.rules[i].count.Requests == 0 {
			continue
		}
		name := rule.Name()
		if isHeld(rule) {
			list.counted(n.noDuration, "no_duration", "rule", name)
		}
		if rule.HasCountIf() {
			list.counted(n.noStatus, "no_status", "rule", name)
		}
		if settle := rule.Settle(); settle != "" && settle != inBytes {
			list.add("no_settle", "what", settle, "rule", name)
		}
		for _, component := range rule.Components() {
			word, _, _ := strings.Cut(component, " ")
			missing := r.main.values.missing[word]
			if word == "user" {
				missing = n.noUser
			} else if word == "host" {
				missing = n.noHost
			}
			list.counted(missing, "no_component", "what", word, "rule", name, "missing", string(rule.OnMissing()))
		}
	}
}

// grouped is a number with commas.
func grouped(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
