package top

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/vt"

	"github.com/weirproject/weir/internal/keytext"
	"github.com/weirproject/weir/internal/telemetry"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// overview has the rules a (harmful), b (busy), c (a shadow rule).
func overview() *telemetry.Overview {
	points := func(refused ...uint64) (list []telemetry.Point) {
		for i, n := range refused {
			list = append(list, telemetry.Point{At: noon.Add(time.Duration(i) * time.Minute),
				Counts: telemetry.Counts{Passed: 60, Refused: n, ShadowRefused: 1}, P99: 412 * time.Microsecond})
		}
		return list
	}
	return &telemetry.Overview{From: noon, To: noon.Add(4 * time.Minute), Step: time.Minute, Series: points(0, 0, 30, 999),
		Rules: []telemetry.RuleSummary{
			{Name: "a", Mode: "enforce", Limits: []string{"5/1m", "9/1h"}, Series: points(0, 1, 4, 8),
				Counts:   telemetry.Counts{Passed: 87, Refused: 13},
				WorstKey: &telemetry.KeyRate{Key: "client.ip=11:203.0.113.7 user=3:ann", Refused: 12, Share: 0.92}},
			{Name: "b", Mode: "enforce", Limits: []string{"100/1m"}, Counts: telemetry.Counts{Passed: 12345}},
			{Name: "c", Mode: "shadow", Limits: []string{"1/1m"}, Counts: telemetry.Counts{ShadowPassed: 1, ShadowRefused: 1}},
		},
		Nodes: []telemetry.Node{{Name: "n1", StoreUp: true, StoreP99: 900 * time.Microsecond}}}
}

// A terminal is one in memory, which keeps what it is sent.
type terminal struct {
	vt.MockTerm
	sent strings.Builder
}

// Write implements tcell.Tty.
func (t *terminal) Write(text []byte) (int, error) {
	t.sent.Write(text)
	return t.MockTerm.Write(text)
}

// A shown is a view on a terminal.
type shown struct {
	*view
	term *terminal
}

func show(t *testing.T, o *telemetry.Overview, width, height int) *shown {
	t.Helper()
	term := &terminal{MockTerm: vt.NewMockTerm(vt.MockOptSize{X: vt.Col(width), Y: vt.Row(height)})}
	screen, err := tcell.NewTerminfoScreenFromTty(term)
	if err == nil {
		err = screen.Init()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(screen.Fini)
	return &shown{view: newView(screen, Options{Server: "http://h", Last: time.Hour, First: o}), term: term}
}

// lines draws, and returns what the screen has.
func (s *shown) lines() []string {
	s.draw()
	width, height := s.screen.Size()
	list := make([]string, height)
	for y := range list {
		for x := 0; x < width; {
			text, _, cells := s.screen.Get(x, y)
			list[y] += text
			x += max(1, cells)
		}
		list[y] = strings.TrimRight(list[y], " ")
	}
	return list
}

func (s *shown) text() string { return strings.Join(s.lines(), "\n") }

// types presses keys: names of tcell's keys in < >, or letters.
func (s *shown) types(keys ...any) {
	for _, key := range keys {
		switch key := key.(type) {
		case tcell.Key:
			s.handle(tcell.NewEventKey(key, "", 0))
		case string:
			for _, letter := range key {
				s.handle(tcell.NewEventKey(tcell.KeyRune, string(letter), 0))
			}
		}
	}
}

// order is that of the names in the first column.
func (s *shown) order() (names string) {
	below := false
	for _, line := range s.lines() {
		if below && line != "" && !strings.Contains(line, "quit") && !strings.HasPrefix(line, "filter") {
			names += strings.Fields(line)[0]
		}
		below = below || strings.HasPrefix(line, "RULE")
	}
	return names
}

func TestOverviewFitsIn80Columns(t *testing.T) {
	got := show(t, overview(), 80, 24).lines()
	to := noon.Add(4 * time.Minute).UTC().Format(zulu)
	want := []string{
		"weir  http://h  1 node                                        last 1h  " + to,
		"1.5/s   refused 33.3%   denied 0.0%   p99 412µs   store p99 900µs",
		"",
		"RULE             LIMIT      REQUESTS  REFUSED   SHARE TREND      WORST KEY",
		"a                5/1m +1         100       13   13.0%   ▁  ▄ █   92% 203.0.113.…",
		"b                100/1m        12.3k        0    0.0%",
		"c (shadow)       1/1m              2        1   50.0%",
	}
	for i, line := range want {
		if got[i] != line {
			t.Errorf("line %d is\n%s, want\n%s", i, got[i], line)
		}
	}
	if last := got[23]; last != "↑↓ select  Enter keys  s sort: harm  / filter  t period  p pause  q quit" {
		t.Errorf("the last line is %s", last)
	}
}

func TestSortAndFilter(t *testing.T) {
	s := show(t, overview(), 80, 24)
	for _, want := range []string{"abc", "cab", "bac", "abc", "abc"} {
		if got := s.order(); got != want {
			t.Errorf("by %s the order is %s, want %s", orders[s.sort].name, got, want)
		}
		s.types("s")
	}
	s.types("/bq", tcell.KeyBackspace)
	if got := s.text(); s.order() != "b" || !strings.Contains(got, "filter: b") || s.quit {
		t.Errorf("the filter b shows\n%s", got)
	}
	if s.types(tcell.KeyEnter, tcell.KeyEscape); s.order() == "b" {
		t.Error("Escape keeps the filter")
	}
	s.types("/nothing")
	if got := s.text(); !strings.Contains(got, "no rule is shown") {
		t.Errorf("it shows\n%s", got)
	}
	if s.types(tcell.KeyEnter, tcell.KeyEnter); s.rule != "" {
		t.Errorf("it opens %q", s.rule)
	}
}

func TestSelectionFollowsTheRule(t *testing.T) {
	s := show(t, overview(), 80, 24)
	s.types(tcell.KeyDown)
	o := overview()
	o.Rules[0], o.Rules[1] = o.Rules[1], o.Rules[0]
	s.take(&answer{question: s.question, overview: o})
	if s.selected != "b" {
		t.Errorf("%s is selected", s.selected)
	}
	o = overview()
	o.Rules = o.Rules[2:]
	if s.take(&answer{question: s.question, overview: o}); s.selected != "c" {
		t.Errorf("%s is selected after b is gone", s.selected)
	}
}

func TestSelectedRowStaysOnTheScreen(t *testing.T) {
	o := overview()
	o.Rules = nil
	for i := range 100 {
		o.Rules = append(o.Rules, telemetry.RuleSummary{Name: fmt.Sprintf("rule-%d.", i)})
	}
	s := show(t, o, 80, 12)
	for _, step := range []struct {
		key  tcell.Key
		want string
	}{{tcell.KeyDown, "rule-1."}, {tcell.KeyPgDn, "rule-7."}, {tcell.KeyEnd, "rule-99."}, {tcell.KeyDown, "rule-99."},
		{tcell.KeyPgUp, "rule-93."}, {tcell.KeyHome, "rule-0."}, {tcell.KeyUp, "rule-0."}} {
		s.draw()
		s.types(step.key)
		if got := s.text(); s.selected != step.want || !strings.Contains(got, step.want) {
			t.Errorf("after %v %s is selected, want %s:\n%s", step.key, s.selected, step.want, got)
		}
	}
}

func TestEnterShowsKeysOfTheRule(t *testing.T) {
	s := show(t, overview(), 80, 24)
	s.types(tcell.KeyEnter)
	if got := s.text(); s.rule != "a" || !strings.Contains(got, "a  reading…") {
		t.Errorf("it shows\n%s", got)
	}
	r := &telemetry.RuleReport{RuleSummary: overview().Rules[0], Distinct: 12400, Top: []telemetry.KeyRate{
		{Key: "client.ip=11:203.0.113.7 user=3:ann", Passed: 1, Refused: 12, Share: 0.92}}}
	s.take(&answer{question: s.question, overview: overview(), rule: r})
	got := s.text()
	for _, want := range []string{"a  enforce  5/1m, 9/1h  13 of 100 requests refused (13.0%), about 12.4k keys",
		"203.0.113.7 ann                        12   92.3%        1  92.0% ############"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	s.take(&answer{question: question{last: time.Hour}, overview: overview()}) // a late answer about no rule
	if s.report == nil {
		t.Error("a late answer hides the keys")
	}
	if s.types(tcell.KeyEscape); s.order() != "abc" {
		t.Errorf("Escape shows\n%s", s.text())
	}
}

func TestProblemsAreShown(t *testing.T) {
	o := overview()
	o.Alerts = []telemetry.Alert{{Text: "login refuses 34 %", Since: noon}}
	o.Nodes = []telemetry.Node{{Name: "n1", Revision: "1"}, {Name: "n2", Revision: "2", StoreUp: true, Problems: []string{"x"}}}
	s := show(t, o, 80, 24)
	s.take(&answer{question: s.question, err: errors.New("not responding")})
	got := s.lines()
	want := []string{"! reading failed; shown is the last report: not responding",
		"! login refuses 34 %, since " + noon.UTC().Format(zulu), "! and 3 more", ""}
	for i, line := range want {
		if got[2+i] != line {
			t.Errorf("line %d is %q, want %q", 2+i, got[2+i], line)
		}
	}
	if got := Problems(o)[1:]; fmt.Sprint(got) != "[n1: the store is not responding n2: x nodes have different rules in force]" {
		t.Errorf("%q", got)
	}
}

// TestHostileTextIsHarmless: keys are chosen by clients.
func TestHostileTextIsHarmless(t *testing.T) {
	o := overview()
	o.Rules[0].WorstKey.Key = "\x1b]0;owned\x07\x1b[2J\u202e漢字漢字漢字漢字漢字漢字\xff"
	for width := range 130 {
		s := show(t, o, width+1, 9)
		s.draw()
		if sent := s.term.sent.String(); strings.Contains(sent, "\x1b]0;") || strings.Contains(sent, "\u202e") {
			t.Fatalf("width %d: the terminal gets %q", width+1, sent)
		}
	}
	if got := show(t, o, 100, 9).text(); !strings.Contains(got, "92% �]0;owned��[2J�漢…") {
		t.Errorf("it shows\n%s", got)
	}
}

// TestSmallScreens draws at all sizes: nothing panics.
func TestSmallScreens(t *testing.T) {
	for height := range 9 {
		s := show(t, overview(), 3*height+1, height+1)
		s.draw()
		s.types("/x", tcell.KeyEscape, tcell.KeyDown, tcell.KeyPgDn, tcell.KeyEnter)
		s.draw()
	}
}

func TestASCIITerminal(t *testing.T) {
	t.Setenv("LC_ALL", "C")
	if got := show(t, overview(), 80, 24).lines()[4]; !strings.Contains(got, "   .  = @   ") {
		t.Errorf("it shows %s", got)
	}
}

func TestPeriodAndPause(t *testing.T) {
	s := show(t, overview(), 80, 24)
	for _, want := range []string{"24h", "5m", "15m", "1h"} {
		if s.types("t"); !strings.Contains(s.lines()[0], "last "+want+" ") {
			t.Errorf("the title is %s, want the last %s", s.lines()[0], want)
		}
	}
	if s.types("p"); !strings.Contains(s.lines()[0], "paused  last") {
		t.Errorf("the title is %s", s.lines()[0])
	}
}

func TestFormats(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 0.25: "0.2", 9.96: "10.0", 42.4: "42", 9999: "9999", 9999.6: "10.0k",
		999_960: "1.0M", 12_345_678: "12.3M"} {
		if got := short(n); got != want {
			t.Errorf("short(%v) is %s, want %s", n, got, want)
		}
	}
	for n, want := range map[uint64]string{0: "0.0%", 1: "<0.1%", 1000: "10.0%", 9999: ">99.9%", 10_000: "100.0%"} {
		if got := Percent(n, 10_000); got != want {
			t.Errorf("%d of 10,000 is %s, want %s", n, got, want)
		}
	}
	for key, want := range map[string]string{"all": "all", "client.ip=11:203.0.113.7 user=3:ann": "203.0.113.7 ann"} {
		if got := keytext.Plain(key); got != want {
			t.Errorf("Plain(%q) is %q, want %q", key, got, want)
		}
	}
}

// A source answers from memory.
type source chan question

func (s source) Overview(_ context.Context, last time.Duration) (*telemetry.Overview, error) {
	s <- question{last: last}
	return overview(), nil
}

func (s source) Rule(_ context.Context, name string, last time.Duration) (*telemetry.RuleReport, error) {
	s <- question{last: last, rule: name}
	return &telemetry.RuleReport{RuleSummary: overview().Rules[0]}, nil
}

// TestRunReads: by time, and at once if the user asks for something else.
func TestRunReads(t *testing.T) {
	s := show(t, overview(), 80, 24)
	asked, ended := make(source, 100), make(chan bool)
	go func() {
		Run(t.Context(), s.screen, asked, Options{Every: time.Hour, Last: time.Hour, First: overview()})
		close(ended)
	}()
	s.screen.EventQ() <- tcell.NewEventKey(tcell.KeyRune, "t", 0)
	if got := <-asked; got.last != 24*time.Hour {
		t.Errorf("it reads %v", got)
	}
	s.screen.EventQ() <- tcell.NewEventKey(tcell.KeyEnter, "", 0)
	for got := range asked {
		if got.rule == "a" {
			break
		}
	}
	s.screen.EventQ() <- tcell.NewEventKey(tcell.KeyRune, "q", 0)
	<-ended
	ticking, cancel := context.WithCancel(t.Context())
	ended = make(chan bool)
	go func() {
		Run(ticking, s.screen, asked, Options{Every: time.Millisecond, Last: time.Minute, First: overview()})
		close(ended)
	}()
	for got := range asked {
		if got.last == time.Minute {
			break
		}
	}
	cancel()
	<-ended
}
