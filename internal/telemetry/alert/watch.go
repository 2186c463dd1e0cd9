package alert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir/internal/tally"
	"github.com/weirproject/weir/internal/telemetry"
)

// every is the time between evaluations.
const every = 5 * time.Second

const (
	// maxFiring bounds the conditions that hold on one node at the same time.
	maxFiring = 10_000
	// mostApart is how many alerts of one name fire by themselves. Further ones have one cause, and one alert.
	mostApart = 5
	// mostNamed is how many rules that one names.
	mostNamed = 10
	// flapping is the time in which another begin of a condition is a flap: then its end must last twice as long,
	// and again twice with the next flap, up to maxFlaps times.
	flapping = time.Hour
	maxFlaps = 4
)

// A watch decides by the readings of a node, and what others have counted, which alerts fire there. It is not safe for
// concurrent use.
type watch struct {
	Settings
	turn     int // number of evaluations
	rules    map[string]*traffic
	tops     map[[2]string]time.Time // rule and key, when last on top
	clock    int64                   // its steps at the last evaluation
	degraded uint64                  // at the last evaluation
	calls    []tally.Buckets         // at the last evaluations
	states   map[string]*state
	leftOut  int // alerts beyond maxFiring, at the last evaluation
	firing   int // conditions
	begun    []*state

	own    map[string]Sum            // what this node counted in the window, by rule
	others map[string]map[string]Sum // what others did, by node; nil: another one has that
	alone  bool                      // there are no others, or
	apart  bool                      // they cannot be asked
}

// A state is an alert that fires, may soon, or did.
type state struct {
	telemetry.Alert
	firing  bool
	grouped bool      // with others of its name
	row     int       // evaluations in a row that would raise it
	turn    int       // of the last of them
	held    time.Time // when the condition held last
	ended   time.Time // when the alert was resolved last
	flapped int
}

func newWatch(s Settings) *watch {
	return &watch{Settings: s, alone: true, rules: make(map[string]*traffic), tops: make(map[[2]string]time.Time),
		states: make(map[string]*state)}
}

// ID is the same for the same alert on all nodes.
func ID(a *telemetry.Alert) string {
	return strings.Join(slices.DeleteFunc([]string{a.Name, a.Rule, a.Key}, func(s string) bool { return s == "" }), "/")
}

// step evaluates a reading that was counted, and returns the alerts that fire, by id.
func (w *watch) step(r *Reading, now time.Time) (firing []telemetry.Alert) {
	w.leftOut, w.begun = 0, nil
	for _, c := range w.evaluate(r, now) {
		w.apply(&c, now)
	}
	w.group()
	groups := make(map[string][]telemetry.Alert)
	for id, s := range w.states {
		switch quiet := now.Sub(s.held); {
		case s.firing && quiet >= w.Resolve<<s.flapped:
			s.firing, s.ended = false, now
			w.firing--
		case !s.firing && s.turn != w.turn && quiet > flapping:
			delete(w.states, id)
		}
		switch {
		case s.firing && s.grouped:
			groups[s.Name] = append(groups[s.Name], s.Alert)
		case s.firing:
			firing = append(firing, s.Alert)
		}
	}
	for _, list := range groups {
		firing = append(firing, together(list))
	}
	return firing
}

// group joins what began in this evaluation where many of a name fire.
func (w *watch) group() {
	if len(w.begun) == 0 {
		return
	}
	apart := make(map[string]int)
	for _, s := range w.states {
		if s.firing && !s.grouped {
			apart[s.Name]++
		}
	}
	for _, s := range w.begun {
		s.grouped = apart[s.Name] > mostApart
	}
}

// together is the alert that stands for some of the same name.
func together(list []telemetry.Alert) telemetry.Alert {
	slices.SortFunc(list, func(a, b telemetry.Alert) int {
		return cmp.Or(cmp.Compare(b.Value, a.Value), strings.Compare(ID(&a), ID(&b)))
	})
	worst := list[0]
	worst.Count = len(list)
	for _, a := range list {
		if len(worst.Rules) < mostNamed && !slices.Contains(worst.Rules, cmp.Or(a.Rule, a.Key)) {
			worst.Rules = append(worst.Rules, cmp.Or(a.Rule, a.Key))
		}
		if a.Since.Before(worst.Since) {
			worst.Since = a.Since
		}
	}
	if more := len(list) - 1; more > 0 {
		worst.Text += fmt.Sprintf("; and %d more like this, such as %s", more, strings.Join(worst.Rules[1:], ", "))
	}
	worst.Rule, worst.Key = "", ""
	return worst
}

// apply takes a condition that holds.
func (w *watch) apply(c *condition, now time.Time) {
	id := ID(&c.Alert)
	s := w.states[id]
	if s == nil {
		if !c.raises {
			return
		}
		s = new(state)
		w.states[id] = s
	}
	if c.raises {
		if s.turn != w.turn-1 {
			s.row = 0
		}
		s.row, s.turn = s.row+1, w.turn
	}
	if !s.firing && (!c.raises || s.row < c.confirm) || !s.firing && !w.begin(s, now) {
		return
	}
	if c.holds {
		s.held = now
		c.Since = s.Since
		s.Alert = c.Alert
	}
}

// begin lets an alert fire, if there is room.
func (w *watch) begin(s *state, now time.Time) bool {
	if w.firing == maxFiring {
		w.leftOut++
		return false
	}
	if s.ended.IsZero() || now.Sub(s.ended) > flapping {
		s.flapped = 0
	} else {
		s.flapped = min(s.flapped+1, maxFlaps)
	}
	s.firing, s.grouped, s.Since = true, false, now
	w.firing++
	w.begun = append(w.begun, s)
	return true
}
