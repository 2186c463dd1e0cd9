package top

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/gdamore/tcell/v3"

	"github.com/weirproject/weir/internal/telemetry"
)

// A view is what is on the screen, and what the user has chosen.
type view struct {
	question
	screen   tcell.Screen
	server   string
	overview *telemetry.Overview
	report   *telemetry.RuleReport
	err      error // of the last read; the reports are those of an earlier one
	sort     int   // index of orders
	filter   string
	typing   bool // keys are text of the filter
	selected string
	first    int // index of the row below the heading
	body     int // rows that fit on the screen
	paused   bool
	quit     bool
}

// orders are the ways to sort rules; the server's order is that of harm.
var orders = []struct {
	name    string
	compare func(a, b *telemetry.RuleSummary) int
}{
	{"harm", func(_, _ *telemetry.RuleSummary) int { return 0 }},
	{"share", func(a, b *telemetry.RuleSummary) int { return cmp.Compare(share(b), share(a)) }},
	{"requests", func(a, b *telemetry.RuleSummary) int { return cmp.Compare(requests(b), requests(a)) }},
	{"name", func(a, b *telemetry.RuleSummary) int { return strings.Compare(a.Name, b.Name) }},
}

// periods are those that the key t chooses by turns.
var periods = []time.Duration{5 * time.Minute, 15 * time.Minute, time.Hour, 24 * time.Hour}

func newView(screen tcell.Screen, o Options) *view {
	v := &view{question: question{last: o.Last}, screen: screen, server: o.Server, overview: o.First}
	screen.RegisterRuneFallback('…', "~")
	screen.RegisterRuneFallback('·', "-")
	v.keepSelected()
	return v
}

// take shows an answer. After an error, and if the user has chosen another report meanwhile, the old
// reports stay.
func (v *view) take(a *answer) {
	if v.err = a.err; a.err != nil || a.question != v.question {
		return
	}
	v.overview, v.report = a.overview, a.rule
	v.keepSelected()
}

// rows are the rules that the filter shows, sorted.
func (v *view) rows() (list []*telemetry.RuleSummary) {
	wanted := strings.ToLower(v.filter)
	for i := range v.overview.Rules {
		r := &v.overview.Rules[i]
		if strings.Contains(strings.ToLower(r.Name+"\n"+r.Label), wanted) {
			list = append(list, r)
		}
	}
	slices.SortStableFunc(list, orders[v.sort].compare)
	return list
}

// index is that of the selected rule, which keeps its name when rows change places.
func (v *view) index(rows []*telemetry.RuleSummary) int {
	return slices.IndexFunc(rows, func(r *telemetry.RuleSummary) bool { return r.Name == v.selected })
}

// keepSelected selects the first rule if the selected one is not there any more.
func (v *view) keepSelected() { v.move(0) }

// move selects another rule.
func (v *view) move(by int) {
	rows := v.rows()
	if len(rows) == 0 {
		v.selected = ""
		return
	}
	at := max(0, min(v.index(rows)+by, len(rows)-1))
	v.selected = rows[at].Name
}

// handle acts on a key.
func (v *view) handle(event tcell.Event) {
	switch event := event.(type) {
	case *tcell.EventResize:
		v.screen.Sync()
	case *tcell.EventKey:
		switch {
		case event.Key() == tcell.KeyCtrlC:
			v.quit = true
		case v.typing:
			v.edit(event)
		default:
			v.command(event)
		}
	}
}

// edit changes the filter.
func (v *view) edit(event *tcell.EventKey) {
	const longest = 64
	switch event.Key() {
	case tcell.KeyEnter:
		v.typing = false
	case tcell.KeyEscape:
		v.typing, v.filter = false, ""
	case tcell.KeyBackspace, tcell.KeyDelete:
		text := []rune(v.filter)
		v.filter = string(text[:max(0, len(text)-1)])
	case tcell.KeyRune:
		if len(v.filter) < longest {
			v.filter += event.Str()
		}
	}
	v.keepSelected()
}

func (v *view) command(event *tcell.EventKey) {
	page := max(1, v.body-1)
	switch event.Key() {
	case tcell.KeyUp:
		v.move(-1)
	case tcell.KeyDown:
		v.move(1)
	case tcell.KeyPgUp:
		v.move(-page)
	case tcell.KeyPgDn:
		v.move(page)
	case tcell.KeyHome:
		v.move(-len(v.overview.Rules))
	case tcell.KeyEnd:
		v.move(len(v.overview.Rules))
	case tcell.KeyEnter:
		v.open(v.selected)
	case tcell.KeyEscape, tcell.KeyBackspace:
		v.back()
	case tcell.KeyRune:
		v.letter(event.Str())
	}
}

func (v *view) letter(key string) {
	switch key {
	case "q":
		v.quit = true
	case "k":
		v.move(-1)
	case "j":
		v.move(1)
	case "s":
		v.sort = (v.sort + 1) % len(orders)
		v.first = 0
	case "/":
		v.typing = v.rule == ""
	case "p":
		v.paused = !v.paused
	case "t":
		longer := slices.IndexFunc(periods, func(d time.Duration) bool { return d > v.last })
		v.last = periods[max(0, longer)]
	}
}

// open shows the keys of a rule.
func (v *view) open(rule string) {
	if v.rule == "" {
		v.rule, v.report = rule, nil
	}
}

// back leaves the rule, or else ends the filter.
func (v *view) back() {
	if v.rule != "" {
		v.rule, v.report = "", nil
		return
	}
	v.filter = ""
	v.keepSelected()
}

func isShadow(r *telemetry.RuleSummary) bool { return r.Mode == "shadow" }

// refused are the rule's refusals; of a shadow rule those that it would have made.
func refused(r *telemetry.RuleSummary, c *telemetry.Counts) uint64 {
	if isShadow(r) {
		return c.ShadowRefused
	}
	return c.Refused
}

// NotWatched is what stands for the keys of a rule that is not one of the busiest.
const NotWatched = "keys not watched: 256 busier rules"

// Incomplete is added to the name of a rule whose counts may be in those of other rules.
func Incomplete(r *telemetry.RuleSummary) string {
	if r.Folded {
		return " (counts in (other))"
	}
	return ""
}

// Requests counts those that the rule passed and refused, or as a shadow rule would have.
func Requests(r *telemetry.RuleSummary) (passed, refusals uint64) {
	if isShadow(r) {
		return r.Counts.ShadowPassed, r.Counts.ShadowRefused
	}
	return r.Counts.Passed, r.Counts.Refused
}

func requests(r *telemetry.RuleSummary) uint64 {
	passed, refusals := Requests(r)
	return passed + refusals
}

// share is that of the refused requests, 0 to 1.
func share(r *telemetry.RuleSummary) float64 { return part(refused(r, &r.Counts), requests(r)) }

func part(of, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(of) / float64(whole)
}
