package top

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/color"

	"github.com/weirproject/weir/internal/keytext"
	"github.com/weirproject/weir/internal/telemetry"
)

// The styles differ by attributes too, for terminals without colours.
var (
	plain   = tcell.StyleDefault
	bold    = plain.Bold(true)
	dim     = plain.Dim(true)
	warning = plain.Foreground(color.Yellow)
	bad     = plain.Foreground(color.Red).Bold(true)
	chosen  = plain.Reverse(true)
)

const maxProblems = 3 // lines

// draw shows everything anew; the screen sends only the difference.
func (v *view) draw() {
	v.screen.Clear()
	v.screen.HideCursor()
	v.title()
	v.tiles()
	line := v.problems(2) + 1
	_, height := v.screen.Size()
	v.body = max(0, height-line-2)
	if v.rule != "" {
		v.drawRule(line)
	} else {
		v.drawRules(line)
	}
	v.footer(height - 1)
	v.screen.Show()
}

func (v *view) title() {
	width, _ := v.screen.Size()
	state := fmt.Sprintf("last %s  %s", period(v.last), v.overview.To.UTC().Format(zulu))
	if v.paused {
		state = "paused  " + state
	}
	nodes := fmt.Sprintf("%d nodes", len(v.overview.Nodes))
	if len(v.overview.Nodes) == 1 {
		nodes = "1 node"
	}
	v.put(0, 0, width-len(state)-1, fmt.Sprintf("weir  %s  %s", v.server, nodes), bold)
	v.put(max(0, width-len(state)), 0, len(state), state, plain)
}

// tiles are the figures of the last minute.
func (v *view) tiles() {
	last := recent(v.overview)
	requests := last.Passed + last.Refused + last.Denied + last.Failed
	tiles := []struct {
		text   string
		style  tcell.Style
		hidden bool // nothing to say
	}{
		{short(float64(requests)/last.seconds) + "/s", bold, false},
		{"refused " + Percent(last.Refused, requests), alarm(part(last.Refused, requests)), false},
		{"denied " + Percent(last.Denied, requests), plain, false},
		{"p99 " + latency(last.P99), plain, false},
		{"store p99 " + latency(storeP99(v.overview.Nodes)), plain, false},
		{"failed " + Percent(last.Failed, requests), bad, last.Failed == 0},
		{"degraded " + Percent(last.Degraded, requests), bad, last.Degraded == 0},
	}
	width, _ := v.screen.Size()
	x := 0
	for _, tile := range tiles {
		if tile.hidden {
			continue
		}
		v.put(x, 1, width-x, tile.text, tile.style)
		x += len([]rune(tile.text)) + 3
	}
}

// problems shows what needs attention, from a line on, and returns the line after it.
func (v *view) problems(line int) int {
	width, _ := v.screen.Size()
	var list []string
	if v.err != nil {
		list = append(list, "reading failed; shown is the last report: "+v.err.Error())
	}
	list = append(list, Problems(v.overview)...)
	for i, text := range list {
		if i == maxProblems-1 && len(list) > maxProblems {
			text = fmt.Sprintf("and %d more", len(list)-i)
		}
		v.put(0, line, width, "! "+text, bad)
		if line++; i == maxProblems-1 {
			break
		}
	}
	return line
}

// Problems are the alerts that are firing, and what is wrong with nodes, in sentences.
func Problems(o *telemetry.Overview) (list []string) {
	for i := range o.Alerts {
		a := &o.Alerts[i]
		list = append(list, fmt.Sprintf("%s, since %s", a.Text, a.Since.UTC().Format(zulu)))
	}
	for i := range o.Nodes {
		n := &o.Nodes[i]
		if !n.StoreUp {
			list = append(list, n.Name+": the store is not responding")
		}
		for _, problem := range n.Problems {
			list = append(list, n.Name+": "+problem)
		}
	}
	differs := func(n telemetry.Node) bool { return n.Revision != o.Nodes[0].Revision }
	if slices.ContainsFunc(o.Nodes, differs) {
		list = append(list, "nodes have different rules in force")
	}
	return list
}

// A column is part of a row. grow shares out the cells beyond 80.
type column struct {
	title       string
	width, grow int
}

var ofRules = []column{{"RULE", 16, 2}, {"LIMIT", 10, 1}, {"REQUESTS", -8, 0}, {"REFUSED", -8, 0}, {"SHARE", -7, 0},
	{"TREND", 10, 2}, {"WORST KEY", 15, 3}}

var ofKeys = []column{{"KEY", 32, 6}, {"REFUSED", -8, 0}, {"SHARE", -7, 0}, {"PASSED", -8, 0},
	{"OF THE REFUSED", 21, 2}}

// row shows cells in columns; those of negative width are aligned to the right.
func (v *view) row(y int, columns []column, style func(i int) tcell.Style, cells func(i, width int) string) {
	screen, _ := v.screen.Size()
	grow := 0
	for _, c := range columns {
		grow += c.grow
	}
	x := 0
	for i, c := range columns {
		width := max(c.width, -c.width) + max(0, screen-80)*c.grow/grow
		text := cells(i, width)
		if c.width < 0 {
			text = fmt.Sprintf("%*s", width, text)
		}
		v.put(x, y, min(width, screen-x), text, style(i))
		x += width + 1
	}
}

func (v *view) heading(y int, columns []column) {
	style := func(int) tcell.Style { return dim.Bold(true) }
	v.row(y, columns, style, func(i, _ int) string { return columns[i].title })
}

func (v *view) drawRules(line int) {
	rows := v.rows()
	v.heading(line, ofRules)
	v.first = scrolled(v.first, v.index(rows), v.body, len(rows))
	for i := v.first; i < len(rows) && i < v.first+v.body; i++ {
		v.drawSummary(line+1+i-v.first, rows[i])
	}
	if len(rows) == 0 {
		v.put(0, line+1, 60, "no rule is shown; Esc ends the filter", dim)
	}
	if below := line + 1 + len(rows) - v.first; v.overview.More > 0 && len(rows)-v.first < v.body {
		v.put(0, below, 60, fmt.Sprintf("and %d rules with fewer refusals", v.overview.More), dim)
	}
}

// zulu is a time of day in UTC, as weir stats and weir audit have it.
const zulu = time.TimeOnly + "Z"

// scrolled is the first row on the screen, so that the selected one is on it.
func scrolled(first, selected, fit, all int) int {
	first = min(first, max(0, selected))
	first = max(first, selected-fit+1)
	return max(0, min(first, all-fit))
}

func (v *view) drawSummary(y int, r *telemetry.RuleSummary) {
	name, worst := r.Name+Incomplete(r), ""
	if isShadow(r) {
		name += " (shadow)"
	}
	if r.Removed {
		name += " (removed)"
	}
	if r.WorstKey != nil && r.WorstKey.Refused > 0 {
		worst = fmt.Sprintf("%.0f%% %s", 100*r.WorstKey.Share, keytext.Plain(r.WorstKey.Key))
	} else if r.Unwatched {
		worst = NotWatched
	}
	limits := ""
	if len(r.Limits) > 0 {
		limits = r.Limits[0]
	}
	if len(r.Limits) > 1 {
		limits += fmt.Sprintf(" +%d", len(r.Limits)-1)
	}
	cells := []string{name, limits, short(float64(requests(r))),
		short(float64(refused(r, &r.Counts))), percent(share(r)), "", worst}
	v.row(y, ofRules, func(i int) tcell.Style {
		switch {
		case r.Name == v.selected:
			return chosen
		case ofRules[i].title == "SHARE":
			return alarm(share(r))
		}
		return plain
	}, func(i, width int) string {
		if ofRules[i].title == "TREND" {
			return v.sparkline(r, width)
		}
		return cells[i]
	})
}

// levels of a sparkline; the second is for terminals without UTF-8.
var levels, asciiLevels = []rune(" ▁▂▃▄▅▆▇█"), []rune(" .:-=+*#@")

// sparkline draws a rule's refusals over time, its highest interval at full height.
func (v *view) sparkline(r *telemetry.RuleSummary, width int) string {
	sums := make([]uint64, width)
	span := v.overview.To.Sub(v.overview.From)
	for i := range r.Series {
		p := &r.Series[i]
		at := int(int64(width) * int64(p.At.Sub(v.overview.From)) / max(1, int64(span)))
		sums[max(0, min(at, width-1))] += refused(r, &p.Counts)
	}
	marks := levels
	if v.screen.CharacterSet() != "UTF-8" {
		marks = asciiLevels
	}
	highest := max(1, slices.Max(sums))
	text := make([]rune, width)
	for i, n := range sums {
		steps := uint64(len(marks) - 1)
		text[i] = marks[(n*steps+highest-1)/highest]
	}
	return string(text)
}

// drawRule shows the keys of a rule.
func (v *view) drawRule(line int) {
	width, _ := v.screen.Size()
	r := v.report
	if r == nil {
		text := "reading…"
		if v.err == nil && !v.hasRule() {
			text = "there is no such rule any more; Esc goes back"
		}
		v.put(0, line, width, v.rule+"  "+text, bold)
		return
	}
	v.put(0, line, width, fmt.Sprintf("%s  %s  %s  %s of %s requests refused (%s), about %s keys", r.Name, r.Mode,
		strings.Join(r.Limits, ", "), short(float64(refused(&r.RuleSummary, &r.Counts))),
		short(float64(requests(&r.RuleSummary))), percent(share(&r.RuleSummary)), short(float64(r.Distinct))), bold)
	v.heading(line+2, ofKeys)
	for i := 0; i < len(r.Top) && i < v.body-2; i++ {
		v.drawKey(line+3+i, &r.Top[i])
	}
}

func (v *view) hasRule() bool {
	return slices.ContainsFunc(v.overview.Rules, func(r telemetry.RuleSummary) bool { return r.Name == v.rule })
}

func (v *view) drawKey(y int, k *telemetry.KeyRate) {
	cells := []string{keytext.Plain(k.Key), short(float64(k.Refused)), Percent(k.Refused, k.Refused+k.Passed),
		short(float64(k.Passed))}
	v.row(y, ofKeys, func(int) tcell.Style { return plain }, func(i, width int) string {
		if i < len(cells) {
			return cells[i]
		}
		bar := int(min(1, k.Share) * float64(width-7))
		return fmt.Sprintf("%6s %s", percent(k.Share), strings.Repeat("#", max(0, bar)))
	})
}

func (v *view) footer(y int) {
	width, _ := v.screen.Size()
	switch {
	case v.typing:
		text := "filter: " + v.filter
		v.put(0, y, width, text, bold)
		v.screen.ShowCursor(min(len([]rune(text)), width-1), y)
	case v.rule != "":
		v.put(0, y, width, "Esc back  t period  p pause  q quit", dim)
	default:
		text := "↑↓ select  Enter keys  s sort: " + orders[v.sort].name + "  / filter"
		if v.filter != "" {
			text += ": " + v.filter
		}
		text += "  t period  p pause  q quit"
		v.put(0, y, width, text, dim)
	}
}

// put prints text in width cells from x. The rest of a longer text is an ellipsis.
func (v *view) put(x, y, width int, text string, style tcell.Style) {
	text = Printable(text)
	end, last := x+width, x
	for text != "" && x < end {
		last = x
		var cells int
		text, cells = v.screen.Put(x, y, text, style)
		x += max(1, cells)
	}
	if width > 0 && (text != "" || x > end) {
		v.screen.Put(last, y, "…", style)
		for x = last + 1; x < end; x++ {
			v.screen.Put(x, y, " ", style)
		}
	}
	for ; x < end && style == chosen; x++ {
		v.screen.Put(x, y, " ", style)
	}
}

// Printable replaces what a terminal would obey, in text that clients can choose.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
