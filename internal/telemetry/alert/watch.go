package alert

import (
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir/internal/tally"
	"github.com/weirproject/weir/internal/telemetry"
)

// every is the time between evaluations.
const every = 5 * time.Second

const (
	// maxFiring bounds the alerts of one node that fire at the same time.
	maxFiring = 200
	// flapping is the time in which another begin of a condition is a flap: then its end must last twice as long,
	// and again twice with the next flap, up to maxFlaps times.
	flapping = time.Hour
	maxFlaps = 4
)

// A watch decides by the readings of one node which alerts fire there. It is not safe for concurrent use.
type watch struct {
	Settings
	turn     int // number of evaluations
	rules    map[string]*traffic
	tops     map[[2]string]time.Time // rule and key, when last on top
	degraded uint64                  // at the last evaluation
	calls    []tally.Buckets         // at the last evaluations
	states   map[string]*state
	leftOut  int // alerts beyond maxFiring, at the last evaluation
}

// A state is an alert that fires, may soon, or did.
type state struct {
	telemetry.Alert
	firing  bool
	row     int       // evaluations in a row that would raise it
	turn    int       // of the last of them
	held    time.Time // when the condition held last
	ended   time.Time // when the alert was resolved last
	flapped int
}

func newWatch(s Settings) *watch {
	return &watch{Settings: s, rules: make(map[string]*traffic), tops: make(map[[2]string]time.Time),
		states: make(map[string]*state)}
}

// ID is the same for the same alert on all nodes.
func ID(a *telemetry.Alert) string {
	return strings.Join(slices.DeleteFunc([]string{a.Name, a.Rule, a.Key}, func(s string) bool { return s == "" }), "/")
}

// step evaluates a reading, and returns the alerts that fire, by id.
func (w *watch) step(r *Reading, now time.Time) (firing []telemetry.Alert) {
	w.turn++
	w.leftOut = 0
	for _, c := range w.evaluate(r, now) {
		w.apply(&c, now)
	}
	for id, s := range w.states {
		switch quiet := now.Sub(s.held); {
		case s.firing && quiet >= w.Resolve<<s.flapped:
			s.firing, s.ended = false, now
		case !s.firing && s.turn != w.turn && quiet > flapping:
			delete(w.states, id)
		}
		if s.firing {
			firing = append(firing, s.Alert)
		}
	}
	return firing
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
	n := 0
	for _, other := range w.states {
		if other.firing {
			n++
		}
	}
	if n == maxFiring {
		w.leftOut++
		return false
	}
	if s.ended.IsZero() || now.Sub(s.ended) > flapping {
		s.flapped = 0
	} else {
		s.flapped = min(s.flapped+1, maxFlaps)
	}
	s.firing, s.Since = true, now
	return true
}
