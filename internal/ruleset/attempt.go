package ruleset

import (
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/weirproject/weir/rules"
)

// An attempt applies updates: all together, or if that fails, one by one, so that one layer's
// mistake does not hold up the others.
type attempt struct {
	*Manager
	current    *RuleSet      // in force
	collisions []Collision   // of the layers in force
	files      []*rules.File // of each layer, in force; nil: none
	pending    []*pending
	applied    []applied
}

// A pending update is good, but not in force.
type pending struct {
	layer   int
	update  *Update
	file    *rules.File // of the update, or the rules in force with its exceptions
	same    bool        // its revision is in force
	waiting []func(error)
	err     error
}

// An applied rule set was put in force.
type applied struct {
	rules      *RuleSet
	layer      string
	revision   string
	changes    []Change
	collisions []Collision
}

// apply puts all good updates in force, and ends exceptions when their time is over. Updates are received meanwhile.
func (m *Manager) apply() {
	m.mu.Lock()
	a := &attempt{Manager: m, current: m.current, collisions: m.collisions, files: make([]*rules.File, len(m.states))}
	for i := range m.states {
		s := &m.states[i]
		a.files[i] = s.file
		if s.latest != nil {
			a.pending = append(a.pending, s.pending(i))
			s.waiting = nil
		}
	}
	m.mu.Unlock()
	a.run()
	m.mu.Lock()
	m.record(a)
	m.mu.Unlock()
	for _, c := range a.pending {
		for _, done := range c.waiting {
			done(c.err)
		}
	}
}

func (s *layerState) pending(layer int) *pending {
	n := s.latest
	c := &pending{layer: layer, update: n, file: n.File, waiting: s.waiting,
		same: s.file != nil && n.Revision != "" && n.Revision == s.Revision}
	if c.same { // the rules stay in the same memory, by which they are known to be equal
		file := *s.file
		file.Exceptions = n.File.Exceptions
		c.file = &file
	}
	return c
}

func (a *attempt) run() {
	var fresh []*pending
	before := slices.Clone(a.files)
	for _, c := range a.pending {
		if old := a.files[c.layer]; old != nil && (c.same || old.DiffersInExceptions(c.file)) {
			a.files[c.layer] = c.file
		} else {
			fresh = append(fresh, c)
		}
	}
	err := a.try(fresh...)
	for _, c := range fresh {
		if c.err = err; err != nil && len(fresh) > 1 {
			c.err = a.try(c)
		}
	}
	if err := a.except(); err != nil {
		for _, c := range a.pending {
			if c.file == a.files[c.layer] && before[c.layer] != c.file {
				c.err = err
			}
		}
	}
}

// try replaces the files of some layers, and puts the result in force.
func (a *attempt) try(some ...*pending) error {
	if len(some) == 0 {
		return nil
	}
	files := slices.Clone(a.files)
	for _, c := range some {
		files[c.layer] = c.file
	}
	var parts []Part
	for i, file := range files {
		if file != nil {
			parts = append(parts, Part{Name: a.layers[i].Name, File: file})
		}
	}
	merged := Merge(parts...)
	overlaid, unmet := merged.File.Overlaid(func(i int) bool { return slices.Contains(a.kept, merged.From[i]) })
	file := *overlaid
	file.Exceptions = live(files)
	set, err := a.compile(&file)
	if err != nil {
		return merged.Locate(err)
	}
	// A compiler that has compiled these rules before returns that set, with its old exceptions.
	if err := set.Except(&file); err != nil {
		return err
	}
	if err := a.swap(set); err != nil {
		return err
	}
	p := applied{rules: &RuleSet{File: &file, Set: set, From: merged.From, Off: merged.Off, Unmet: unmet,
		Loaded: time.Now()},
		collisions: merged.Collisions}
	var before *rules.File
	if a.current != nil {
		before = a.current.File
	}
	p.changes = Diff(before, &file)
	if len(some) == 1 {
		p.layer, p.revision = a.layers[some[0].layer].Name, some[0].update.Revision
	}
	a.current, a.files, a.applied = p.rules, files, append(a.applied, p)
	return nil
}

// except puts the exceptions of the files in force, if they are others. It compiles no rule, so that a block during an
// attack takes effect at once, however many rules there are.
func (a *attempt) except() error {
	if a.current == nil {
		return nil
	}
	list := live(a.files)
	if len(list)+len(a.current.File.Exceptions) == 0 || reflect.DeepEqual(list, a.current.File.Exceptions) {
		return nil
	}
	set, file := *a.current, *a.current.File
	file.Exceptions = list
	if err := set.Set.Except(&file); err != nil {
		return err
	}
	set.File, set.Loaded = &file, time.Now()
	p := applied{rules: &set, collisions: a.collisions, changes: []Change{{Fields: []string{"exceptions"}}}}
	if len(a.pending) == 1 {
		p.layer, p.revision = a.layers[a.pending[0].layer].Name, a.pending[0].update.Revision
	}
	a.current, a.applied = &set, append(a.applied, p)
	return nil
}

// live returns the exceptions that have not ended, of the last layer that has some.
func live(files []*rules.File) (list []rules.Exception) {
	now := time.Now()
	for _, file := range slices.Backward(files) {
		if file == nil {
			continue
		}
		for _, e := range file.Exceptions {
			if e.Until.IsZero() || e.Until.After(now) {
				list = append(list, e)
			}
		}
		if len(list) > 0 {
			break
		}
	}
	return list
}

// record publishes the result of an attempt.
func (m *Manager) record(a *attempt) {
	if n := len(a.applied); n > 0 { // one Status has the rule set and its revisions
		m.current = a.applied[n-1].rules
	}
	var recovered []*layerState
	for _, c := range a.pending {
		if s := &m.states[c.layer]; c.err == nil && s.accept(c) {
			recovered = append(recovered, s)
		}
	}
	for _, p := range a.applied {
		m.event(Event{Kind: InForce, Layer: p.layer, Revision: p.revision, Changes: p.changes})
		if !slices.Equal(p.collisions, m.collisions) {
			m.collisions = p.collisions
			m.event(Event{Kind: Collided, Collisions: p.collisions})
		}
		if !slices.Equal(p.rules.Unmet, m.unmet) {
			m.unmet = p.rules.Unmet
			m.event(Event{Kind: Warned, Err: warning(m.unmet)})
		}
	}
	for _, s := range recovered {
		m.event(Event{Kind: Recovered, Layer: s.Name, Revision: s.Revision})
	}
	for _, c := range a.pending {
		// Newer content of the source may have another mistake, which was reported.
		if s := &m.states[c.layer]; c.err != nil && !s.refused {
			m.report(s, Refused, c.update.Revision, c.err)
		}
	}
	m.publish()
	select {
	case <-m.ready:
	default:
		m.start = m.Status().Err()
		m.event(Event{Kind: Ready, Err: m.start})
		close(m.ready)
	}
}

// warning lists elements of the overlay without an effect; nil: there are none.
func warning(list []string) error {
	var errs []error
	for _, text := range list[:min(len(list), MaxProblems)] {
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}

// accept records that an update is in force, and reports whether an error is over. A refused update
// is kept, because another layer may have caused the refusal, and may change. An error of a later
// update stays: clearing it would report a bad file as good.
func (s *layerState) accept(c *pending) (recovered bool) {
	if !c.same {
		s.Loaded = time.Now()
	}
	s.file, s.Revision, s.Rules = c.file, c.update.Revision, len(c.file.Rules)
	if !s.refused {
		recovered = s.reported != ""
		s.reported, s.Err, s.Down, s.Since = "", nil, false, time.Time{}
	}
	if s.latest == c.update {
		s.latest = nil
	}
	return recovered
}
