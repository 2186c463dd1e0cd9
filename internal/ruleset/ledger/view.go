package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/rules"
)

// A View turns the entries of a ledger into the updates of a ruleset.Source. An entry that cannot be
// read affects no other: its last good version stays in force.
type View struct {
	name    string // of the files
	entries map[string]*viewed
	rules   []rules.Spec // of the last update; nil: one of them has changed since
	ends    time.Time    // of the first trial that is not over, by this process' clock; zero: there is none
	back    int          // entries whose trial is over in the last update
}

// A viewed entry is the state of one entry.
type viewed struct {
	value string      // as read last
	wrong error       // why it is not used; nil: it is
	good  *Change     // the last good version; nil: there was none
	spec  *rules.Spec // of it; nil: it is an exception, or disabled
	ends  time.Time   // of its trial, by the ledger's clock; zero: it has none
	over  bool        // it has ended: good is what was before
}

// NewView makes a view. name is the name of the files, in errors.
func NewView(name string) *View { return &View{name: name, entries: make(map[string]*viewed)} }

// Ends is when a change of the last update reverts, by this process' clock; zero: no change does.
func (v *View) Ends() time.Time { return v.ends }

// Reverted reports whether a change of the last update has reverted: see Ledger.Settle.
func (v *View) Reverted() bool { return v.back > 0 }

// Update returns the rules and exceptions of a snapshot, which may be an old one: changes revert in time.
func (v *View) Update(s *Snapshot) ruleset.Update {
	v.ends, v.back = time.Time{}, 0
	now := s.Now.Add(time.Since(s.Read))
	for name, e := range v.entries {
		if _, there := s.Values[name]; !there {
			v.changed(e)
			delete(v.entries, name)
		}
	}
	names := sortedNames(s.Values)
	for _, name := range names {
		v.put(name, s.Values[name], now)
	}
	file := &rules.File{Name: v.name}
	wrong := &ruleset.Error{}
	var exceptions []Change
	fresh, leftOut := v.rules == nil, 0
	for _, name := range names {
		e := v.entries[name]
		v.note(e, s)
		switch {
		case e.good == nil:
		case e.good.Exception != nil:
			exceptions = append(exceptions, *e.good)
		case !e.good.Enabled:
			file.Disabled = append(file.Disabled, name)
		case fresh:
			v.rules = append(v.rules, *e.spec)
		}
		if e.wrong != nil {
			leftOut++
			state := ruleset.KeptState
			if e.good == nil {
				state = ruleset.AbsentState
			}
			wrong.Add(ruleset.Problem{Where: ruleset.Quoted(name), Message: e.wrong.Error(), State: state})
		}
	}
	file.Rules = slices.Clip(v.rules)
	file.Exceptions = ExceptionsOf(exceptions, s.Now, s.Read)
	revision := fmt.Sprint(s.Revision)
	if v.back > 0 { // these are other rules than those of the revision
		revision += fmt.Sprintf(", %d reverted", v.back)
	}
	return ruleset.Update{File: file, Revision: revision, Warning: wrong.OrNil(), LeftOut: leftOut}
}

func (v *View) put(name, value string, now time.Time) {
	e := v.entries[name]
	if e == nil {
		e = new(viewed)
		v.entries[name] = e
	} else if e.value == value && e.over == e.isOver(now) {
		return
	}
	c, err := Decode(name, value)
	e.value, e.ends = value, c.Reverts
	if e.over = e.isOver(now); e.over {
		c.revert()
	}
	var spec *rules.Spec
	if err == nil && c.Exception == nil && c.YAML != "" {
		var parsed rules.Spec
		parsed, err = ParseDocument(name, c.YAML)
		spec = &parsed
	}
	if e.wrong = err; err != nil {
		return
	}
	v.changed(e)
	if e.good, e.spec = &c, nil; c.Deleted {
		e.good = nil
	} else if c.Exception == nil && c.Enabled {
		e.spec, v.rules = spec, nil
	}
}

// note counts the changes that have reverted, and finds the next entry that will.
func (v *View) note(e *viewed, s *Snapshot) {
	switch ends := s.Read.Add(e.ends.Sub(s.Now)); {
	case e.over:
		v.back++
	case !e.ends.IsZero() && (v.ends.IsZero() || ends.Before(v.ends)):
		v.ends = ends
	}
}

// isOver reports whether the trial of the value is over.
func (e *viewed) isOver(now time.Time) bool { return !e.ends.IsZero() && !now.Before(e.ends) }

// changed records that an entry has changed. While no rule changes, the slice of rules stays in the same memory, so
// that the Manager knows that it need not compile.
func (v *View) changed(e *viewed) {
	if e.spec != nil {
		v.rules = nil
	}
}

// ExceptionsOf returns the exceptions among entries, with Until by this process' clock, including
// ended ones, which the Manager leaves out. read is the time of the reading by this process' clock,
// now by the ledger's: so neither differences nor adjustments of clocks matter.
func ExceptionsOf(entries []Change, now, read time.Time) (list []rules.Exception) {
	for _, c := range entries {
		if c.Exception == nil {
			continue
		}
		e := c.Exception.Exception
		e.Until, e.Why = read.Add(c.Exception.Until.Sub(now)), c.Exception.Author.Why
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b rules.Exception) int {
		return cmp.Or(a.Until.Compare(b.Until), slices.Compare(a.Values, b.Values))
	})
	return list
}
