package source

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirproject/weir/rules"
)

// EventKind says what happened.
type EventKind uint8

// What can happen. Each is told when it begins, not again while it lasts.
const (
	// InForce: a law was put in force. Rules, Changes and Revision say which.
	InForce EventKind = iota
	// Refused: a layer's update cannot be used, and Err says why: mistakes in a text, a
	// conflict with other layers, or no rules where there were some. Its last good rules
	// stay in force.
	Refused
	// Down: a layer cannot be read. Its last good rules stay in force.
	Down
	// Recovered: what a layer says is in force again, after Refused or Down.
	Recovered
	// Collided: layers say different things of one name; Collisions lists all that do. Told
	// when the list changes.
	Collided
	// Warned: a layer has good rules, and its owner should know of Err; nil: there is nothing
	// to know any more.
	Warned
	// Ready: all layers were heard, or the time for it is over, and what they said was tried.
	// Err says what is missing.
	Ready
)

// String is the kind in words.
func (k EventKind) String() string {
	return [...]string{"in force", "refused", "down", "recovered", "collided", "warned", "ready"}[k]
}

// An Event is something that the owner of a server wants to see in a log, or counted.
type Event struct {
	Kind       EventKind
	Time       time.Time
	Layer      string // whose update it was; "" of Ready, Collided, and what several brought
	Revision   string // of the layer's update
	Err        error
	Rules      int         // how many are in force
	Changes    []Change    // InForce: what it changed
	Collisions []Collision // Collided
	// Loaded is when the law that is in force was put there: its age is the age of the
	// last good one. Zero: there is none yet.
	Loaded time.Time
}

// String is the event in a line or, with a list of mistakes, in some.
func (e Event) String() string {
	text := e.Kind.String()
	if e.Layer != "" {
		text = e.Layer + ": " + text
	}
	switch e.Kind {
	case InForce:
		text += fmt.Sprintf(": %d rules (%s)", e.Rules, Summary(e.Changes))
	case Refused, Down:
		text += fmt.Sprintf(", %d rules stay in force", e.Rules)
	case Collided:
		text += ": " + e.collisions()
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e Event) collisions() string {
	if len(e.Collisions) == 0 {
		return "no more"
	}
	text := e.Collisions[0].String()
	if n := len(e.Collisions) - 1; n > 0 {
		text += fmt.Sprintf(", and %d more", n)
	}
	return text
}

// A Law is what is in force.
type RuleSet struct {
	File   *rules.File // all layers as one
	Set    *rules.Set
	From   []string // of each rule, which layer it is from
	Off    []Off    // rules that an operator has disabled
	Loaded time.Time
}

// Status is how things stand. It is a snapshot.
type Status struct {
	RuleSet    *RuleSet // nil: none yet
	Collisions []Collision
	Layers     []LayerStatus
}

// LayerStatus is how a source stands.
type LayerStatus struct {
	Name     string
	Revision string    // of its rules that are in force
	Pending  string    // of those that are being put in force; "": none are
	Rules    int       // how many it has in force, with those that a later layer replaces
	Loaded   time.Time // when they were put in force; zero: it has none in force
	Down     bool      // it cannot be read
	Err      error     // why what it says now is not in force; nil: it is
	Since    time.Time // since when Err
	Warning  error     // of its last update; nil: none
	LeftOut  int       // rules of its last update that are not in force as they are there
}

// LeftOut is how many rules of all layers are not in force as they are there.
func (s *Status) LeftOut() (n int) {
	for _, y := range s.Layers {
		n += y.LeftOut
	}
	return n
}

// Err is nil where all that the layers say is in force, or what is not, and why.
func (s *Status) Err() error {
	var list []error
	for _, y := range s.Layers {
		if y.Err != nil {
			list = append(list, fmt.Errorf("%s: %w", y.Name, y.Err))
		}
	}
	return errors.Join(list...)
}
