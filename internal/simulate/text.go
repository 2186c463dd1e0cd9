package simulate

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// A Report is a Config and what came of its variants.
type Report struct {
	Config  *Config
	Results []*Result
}

// Text writes the report for people.
func (p *Report) Text(w io.Writer) error {
	var b strings.Builder
	p.head(&b)
	p.table(&b)
	p.worst(&b)
	p.chart(&b)
	p.unmet(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (p *Report) head(b *strings.Builder) {
	c := p.Config
	fmt.Fprintf(b, "%s requests in %v; one exact limiter admits %s of them.\n\n",
		grouped(p.Results[0].Requests), c.Duration, grouped(p.Results[0].Exact))
}

// columns of the table.
var columns = []struct {
	name  string
	value func(*Result) string
}{
	{"admitted", func(r *Result) string { return grouped(r.Admitted) }},
	{"beyond limits", func(r *Result) string { return grouped(r.OverAdmitted) }},
	{"refused", func(r *Result) string { return grouped(r.Refused) }},
	{"wrongly", func(r *Result) string { return grouped(r.WronglyRefused) }},
	{"failed", func(r *Result) string { return grouped(r.Failed) }},
	{"denied", func(r *Result) string { return grouped(r.Denied) }},
	{"p50", func(r *Result) string { return micros(r.Latency.P50) }},
	{"p99", func(r *Result) string { return micros(r.Latency.P99) }},
	{"max", func(r *Result) string { return micros(r.Latency.Max) }},
	{"calls/request", func(r *Result) string { return fmt.Sprintf("%.2f", r.callsPerRequest()) }},
}

func (r *Result) callsPerRequest() float64 {
	return float64(r.StoreCalls) / float64(max(1, r.Requests))
}

// table has a row for each result. A column of zeros is left out, if nobody looks for it.
func (p *Report) table(b *strings.Builder) {
	rows := [][]string{{""}}
	for _, r := range p.Results {
		rows = append(rows, []string{r.Label})
	}
	for _, c := range columns {
		if c.name == "denied" && !slices.ContainsFunc(p.Results, func(r *Result) bool { return r.Denied > 0 }) {
			continue
		}
		rows[0] = append(rows[0], c.name)
		for i, r := range p.Results {
			rows[i+1] = append(rows[i+1], c.value(r))
		}
	}
	writeTable(b, rows)
}

// writeTable aligns the first column left, and the others right.
func writeTable(b *strings.Builder, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		line := fmt.Sprintf("%-*s", widths[0], row[0])
		for i, cell := range row[1:] {
			line += fmt.Sprintf("  %*s", widths[i+1], cell)
		}
		if widths[0] == 0 {
			line = line[2:]
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
}

// worst says which key exceeded its limit most.
func (p *Report) worst(b *strings.Builder) {
	between := "\n"
	for _, r := range p.Results {
		for _, rule := range r.Rules {
			if rule.Worst.Units > 0 {
				fmt.Fprintf(b, "%s%sat worst %s units beyond %s: rule %s, %s, at %v\n", between, prefixed(r.Label),
					grouped(rule.Worst.Units), rule.Worst.Limit, rule.Name, rule.Worst.Key,
					rule.Worst.At.Round(time.Millisecond))
				between = ""
			}
		}
	}
}

func prefixed(label string) string {
	if label == "" {
		return ""
	}
	return label + ": "
}

// width is the most columns of the chart.
const width = 60

// bars are the heights of a column, from nothing.
var bars = []rune(" ▁▂▃▄▅▆▇█")

// chart draws requests a second: offered, what an exact limiter admits, and what was admitted.
func (p *Report) chart(b *strings.Builder) {
	seconds := p.Results[0].Seconds
	each := (len(seconds) + width - 1) / width
	lines := [][]int64{sums(seconds, each, func(s *Second) int64 { return s.Offered }),
		sums(seconds, each, func(s *Second) int64 { return s.Exact })}
	names := []string{"offered", "exact limiter"}
	for _, r := range p.Results {
		name := "admitted"
		if r.Label != "" {
			name = r.Label
		}
		names = append(names, name)
		lines = append(lines, sums(r.Seconds, each, func(s *Second) int64 { return s.Admitted }))
	}
	top := int64(1)
	for _, line := range lines {
		top = max(top, slices.Max(line))
	}
	margin := 0
	for _, name := range names {
		margin = max(margin, utf8.RuneCountInString(name))
	}
	fmt.Fprintf(b, "\nRequests in each %v, █ = %s\n", time.Duration(each)*time.Second, grouped(top))
	for i, line := range lines {
		fmt.Fprintf(b, "%-*s  %s\n", margin, names[i], strings.TrimRight(drawn(line, top), " "))
	}
	for i := range p.Config.Faults {
		f := &p.Config.Faults[i]
		fmt.Fprintf(b, "%-*s  %s\n", margin, f.Kind, f.drawn(each))
	}
}

func sums(seconds []Second, each int, of func(*Second) int64) (list []int64) {
	for i := range seconds {
		if i%each == 0 {
			list = append(list, 0)
		}
		list[len(list)-1] += of(&seconds[i])
	}
	return list
}

func drawn(line []int64, top int64) string {
	var b strings.Builder
	for _, n := range line {
		height := (n*int64(len(bars)-1) + top - 1) / top // what is not zero is seen
		b.WriteRune(bars[height])
	}
	return b.String()
}

// drawn marks the time of a fault.
func (f *Fault) drawn(each int) string {
	column := time.Duration(each) * time.Second
	from, to := int(f.From/column), int((f.To+column-1)/column)
	return strings.Repeat(" ", from) + strings.Repeat("─", to-from) + fmt.Sprintf(" %v..%v", f.From, f.To)
}

// unmet names rules that decided nothing.
func (p *Report) unmet(b *strings.Builder) {
	for _, rule := range p.Results[0].Rules {
		if !rule.Matched {
			fmt.Fprintf(b, "\nNo request met rule %s: add a --load for it.\n", rule.Name)
		}
	}
}

func micros(n int64) string {
	d := time.Duration(n) * time.Microsecond
	switch {
	case d == 0:
		return "0"
	case d < time.Millisecond:
		return d.String()
	}
	return d.Round(100 * time.Microsecond).String()
}

// grouped is a number with commas.
func grouped(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
