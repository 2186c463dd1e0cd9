package backtest

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

// Text writes the report; red is whether warnings are, for a terminal.
func (r *Report) Text(to io.Writer, red bool) error {
	t := &textReport{Report: r}
	warning := "warning"
	if red {
		warning = "\x1b[31mwarning\x1b[0m"
	}
	t.notes(warning, true)
	t.log()
	t.rules()
	t.who()
	t.legitimate()
	t.sweeps()
	t.proposals()
	t.against()
	if len(t.Limits) > 0 {
		t.line("")
	}
	t.notes("note", false)
	_, err := to.Write(t.out.Bytes())
	return err
}

// A textReport is a report that is written as text.
type textReport struct {
	*Report
	out bytes.Buffer
}

func (t *textReport) line(format string, args ...any) { fmt.Fprintf(&t.out, format+"\n", args...) }

// table aligns rows of cells that are separated by tabs.
func (t *textReport) table(rows []string) {
	var aligned bytes.Buffer
	w := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, row)
	}
	w.Flush()
	for line := range strings.Lines(aligned.String()) {
		t.line("%s", strings.TrimRight(line, " \n"))
	}
}

func (t *textReport) log() {
	for i := range t.Log.Files {
		f := &t.Log.Files[i]
		unread := ""
		if f.Unread > 0 {
			unread = fmt.Sprintf(" (%s not read)", plural(int(f.Unread), "line"))
		}
		t.line("%s: %s, %s%s", f.Name, f.Format, plural(int(f.Lines), "line"), unread)
		for _, one := range f.Examples[:min(len(f.Examples), 3)] {
			t.line("  line %d: %s: %q", one.Line, one.Why, shortened(one.Text, 60))
		}
	}
	dropped := ""
	if t.Log.Dropped > 0 {
		dropped = fmt.Sprintf(", %s left out", grouped(t.Log.Dropped))
	}
	if t.Log.Requests == 0 {
		t.line("no request is replayed%s", dropped)
		return
	}
	t.line("%s – %s, %s of %s%s", t.Log.From.Format(time.DateTime), t.Log.To.Format(time.DateTime),
		plural(int(t.Log.Requests), "request"), plural(int(t.Log.Clients), "client"), dropped)
}

func (t *textReport) rules() {
	t.line("")
	rows := []string{"rule\tlimit\twould refuse\tof clients\tat its peak\tfirst\tfailed anyway"}
	for i := range t.ByRule {
		x := &t.ByRule[i]
		name := x.Name
		if x.Shadow {
			name += " (shadow)"
		}
		if x.Stopped() == 0 {
			rows = append(rows, fmt.Sprintf("%s\t%s\tnone of %s\t\t\t\t", name, x.Limit, grouped(x.Requests)))
			continue
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%s/min %s\t%s\t%s", name, x.Limit,
			share(x.Stopped(), x.Requests), share(x.ClientsRefused, x.Clients), grouped(x.Peak.Requests),
			t.clock(x.Peak.Start, "15:04"), t.clock(x.First, time.TimeOnly), percent(x.Failing, x.Stopped())))
	}
	rows = append(rows, fmt.Sprintf("all\t\t%s\t%s\t\t\t", share(t.Total.Stopped(), t.Total.Requests),
		share(t.Total.ClientsRefused, t.Total.Clients)))
	t.table(rows)
}

// share is a part of a number of requests or clients.
func share(part, of int64) string {
	return fmt.Sprintf("%s of %s, %s", grouped(part), grouped(of), percent(part, of))
}

// counted is a number of requests or clients with its share.
func counted(part, of int64) string { return grouped(part) + " " + percent(part, of) }

// clock is a time of the day, with the date if the log has several.
func (t *textReport) clock(at time.Time, layout string) string {
	if t.Log.To.Sub(t.Log.From) > 24*time.Hour {
		return at.Format("01-02 " + layout)
	}
	return at.Format(layout)
}

// evidenceHead are the columns of Evidence about a client or key.
const evidenceHead = "\trefused\tfailed\taddresses\tagents\tnames\tpaths\tUser-Agent"

func (t *textReport) who() {
	if len(t.Clients) > 0 {
		t.line("")
		rows := []string{"who" + evidenceHead}
		for i := range t.Clients {
			rows = append(rows, evidence(t.Clients[i].Client, &t.Clients[i].Evidence))
		}
		t.table(rows)
	}
	for i := range t.ByRule {
		rule := &t.ByRule[i]
		if len(rule.Worst) == 0 {
			continue
		}
		t.line("")
		rows := []string{"keys of " + rule.Name + evidenceHead}
		for j := range rule.Worst {
			rows = append(rows, evidence(shortened(rule.Worst[j].Key, 40), &rule.Worst[j].Evidence))
		}
		t.table(rows)
	}
}

func evidence(name string, x *Evidence) string {
	return fmt.Sprintf("%s\t%s of %s\t%s\t%s\t%s\t%s\t%s\t%s", name, grouped(x.Refused), grouped(x.Requests),
		percent(x.Failing, x.Requests), grouped(x.Addresses), grouped(x.Agents), grouped(x.Names), grouped(x.Paths),
		shortened(x.Agent, 40))
}

func (t *textReport) legitimate() {
	if t.Good == nil {
		return
	}
	t.line("")
	if t.Good.Clients == 0 {
		t.line("false positives: unknown; no client of the log is good by --good")
		return
	}
	t.line("false positives: %s of %s (%s) would have been refused at least once, in %s of %s requests%s",
		grouped(t.Good.ClientsRefused), plural(int(t.Good.Clients), "good client"),
		percent(t.Good.ClientsRefused, t.Good.Clients), grouped(t.Good.RequestsRefused), grouped(t.Good.Requests),
		examples(t.Good.Examples))
}

func examples(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return ", such as " + strings.Join(list, ", ")
}

// curveWidth is the width of the curve of a sweep.
const curveWidth = 40

func (t *textReport) sweeps() {
	for i := range t.Sweeps {
		x := &t.Sweeps[i]
		t.line("")
		t.line("sweep of %s (the rule alone)", x.Rule)
		head := "limit\trefused\tclients\tpasses at most"
		if t.Good != nil {
			head += "\tfalse positives"
		}
		rows := []string{head + "\t"}
		most := int64(1)
		for j := range x.Points {
			most = max(most, x.Points[j].Stopped())
		}
		for j := range x.Points {
			p := &x.Points[j]
			row := fmt.Sprintf("%s\t%s\t%s\t%s/s", p.Limit, counted(p.Stopped(), p.Requests),
				counted(p.ClientsRefused, p.Clients), grouped(p.Peak))
			if p.Good != nil {
				row += "\t" + counted(p.Good.ClientsRefused, p.Good.Clients)
			}
			rows = append(rows, row+"\t"+strings.Repeat("#", int((p.Stopped()*curveWidth+most-1)/most)))
		}
		t.table(rows)
	}
}

func (t *textReport) proposals() {
	for i := range t.Proposed {
		x := &t.Proposed[i]
		t.line("")
		t.line("limits of %s: %s is proposed; it has %s", x.Rule, cmp.Or(x.Limit, "none"), x.Old)
		t.points(x.Points)
		for _, why := range x.Why {
			t.line("  %s", why.Text)
		}
	}
}

// points are limits side by side.
func (t *textReport) points(points []Point) {
	if len(points) == 0 {
		return
	}
	rows := []string{"  limit\trefused\tfailed anyway\tgood clients hit\tfailing clients hit\ta key can still do"}
	for i := range points {
		p := &points[i]
		good := "not known"
		if p.Good != nil && p.Good.Clients > 0 {
			good = fmt.Sprintf("%s of %s%s", grouped(p.Good.ClientsRefused), grouped(p.Good.Clients),
				examples(p.Good.Examples))
		}
		rows = append(rows, fmt.Sprintf("  %s\t%s, %s\t%s\t%s\t%s of %s\t%s in an hour, %s in a day", p.Limit,
			grouped(p.Stopped()), percent(p.Stopped(), p.Requests), percent(p.Failing, p.Stopped()), good,
			grouped(p.FailsRefused), grouped(p.Fails), grouped(p.Hour), grouped(p.Day)))
	}
	t.table(rows)
}

func (t *textReport) against() {
	x := t.Against
	if x == nil {
		return
	}
	t.line("")
	t.line("against %s: %s newly refused, %s no longer, %s by both", x.Rules, grouped(x.NewlyRefused),
		grouped(x.NoLongerRefused), grouped(x.BothRefused))
	rows := []string{}
	for _, change := range x.ByRule {
		rows = append(rows, fmt.Sprintf("  %s\t%s newly\t%s no longer", change.Rule, grouped(change.NewlyRefused),
			grouped(change.NoLongerRefused)))
	}
	for i := range x.Examples {
		e := &x.Examples[i]
		rows = append(rows, fmt.Sprintf("  %s:%d\t%s\t%s\t%s, before %s", e.File, e.Line, e.Client,
			shortened(e.Target, 50), e.New, e.Old))
	}
	t.table(rows)
}

func (t *textReport) notes(word string, severe bool) {
	for i := range t.Limits {
		if t.Limits[i].Severe == severe {
			t.line("%s: %s", word, t.Limits[i].Text)
		}
	}
}

func percent(part, of int64) string {
	if of == 0 {
		return "-"
	}
	share := 100 * float64(part) / float64(of)
	switch {
	case part == 0:
		return "0 %"
	case share < 0.01:
		return "<0.01 %"
	case share < 1:
		return fmt.Sprintf("%.2g %%", share)
	}
	return fmt.Sprintf("%.1f %%", share)
}

// shortened is a text of a client, printable and of a length.
func shortened(text string, most int) string {
	clean := strings.Map(func(c rune) rune {
		if c < 0x20 || c >= 0x7f && c < 0xa0 || c == utf8.RuneError {
			return '?'
		}
		return c
	}, text)
	if utf8.RuneCountInString(clean) <= most {
		return clean
	}
	return string([]rune(clean)[:most-1]) + "…"
}
