package ruleset

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirproject/weir/rules"
)

// EventKind is the kind of an Event.
type EventKind uint8

// The kinds. Each is reported when it begins, and not again while it lasts.
const (
	// InForce: a rule set was put in force. See Rules, Changes and Revision.
	InForce EventKind = iota
	// Refused: a layer's update cannot be used; Err is the reason: mistakes in a text, a conflict
	// with other layers, or an empty set from a source that had rules. Its last good rules stay in
	// force.
	Refused
	// Down: a layer cannot be read. Its last good rules stay in force.
	Down
	// Recovered: the rules of a layer are in force again after Refused or Down.
	Recovered
	// Collided: layers have rules or fields of the same name; Collisions lists all of them. Reported
	// when the list changes.
	Collided
	// Warned: a layer has good rules and a warning, Err; nil: the warning is over. Without a layer it is about elements
	// of the overlay without an effect.
	Warned
	// Ready: all layers have sent an update, or the time for it has passed, and these updates were
	// tried. Err says which are not in force.
	Ready
)

// String is the kind in words.
func (k EventKind) String() string {
	return [...]string{"in force", "refused", "down", "recovered", "collided", "warned", "ready"}[k]
}

// An Event is an occurrence to be logged or counted.
type Event struct {
	Kind       EventKind
	Time       time.Time
	Layer      string // "" for Ready, Collided, and several layers at once
	Revision   string // of the layer's update
	Err        error
	Rules      int         // number of rules in force
	Changes    []Change    // of InForce
	Collisions []Collision // Collided
	// Loaded is the time at which the rule set in force was put there; zero: there is no rule set yet.
	Loaded time.Time
}

// String returns the event as one line, or several if Err lists mistakes.
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

// A RuleSet is in force.
type RuleSet struct {
	File   *rules.File // all layers merged
	Set    *rules.Set
	From   []string // the layer of each rule
	Off    []Off    // rules that an operator has disabled
	Unmet  []string // elements of the overlay without an effect, and why
	Loaded time.Time
}

// Status is a snapshot of a Manager.
type Status struct {
	RuleSet    *RuleSet // nil: none yet
	Collisions []Collision
	Layers     []LayerStatus
}

// LayerStatus is the status of a source.
type LayerStatus struct {
	Name     string
	Revision string    // of its rules that are in force
	Pending  string    // of those that are being put in force; "": none are
	Rules    int       // number of rules in force, including those that a later layer replaces
	Loaded   time.Time // when they were put in force; zero: none are
	Down     bool      // it cannot be read
	Err      error     // why its newest update is not in force; nil: it is
	Since    time.Time // start of Err
	Warning  error     // of its newest update; nil: none
	LeftOut  int       // rules of its newest update that are not in force as they are there
}

// Revision is the revision of the rules in force: the revisions of all layers, in order. It is the same on servers with
// the same rules.
func (s *Status) Revision() string {
	revisions := make([]string, len(s.Layers))
	for i := range s.Layers {
		revisions[i] = s.Layers[i].Revision
	}
	return strings.Join(revisions, "+")
}

// LeftOut returns the number of rules of all layers that are not in force as they are there.
func (s *Status) LeftOut() (n int) {
	for _, y := range s.Layers {
		n += y.LeftOut
	}
	return n
}

// Err returns nil if all layers' newest updates are in force, or an error that lists the others.
func (s *Status) Err() error {
	var list []error
	for _, y := range s.Layers {
		if y.Err != nil {
			list = append(list, fmt.Errorf("%s: %w", y.Name, y.Err))
		}
	}
	return errors.Join(list...)
}
