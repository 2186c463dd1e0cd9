package ruleset

import (
	"slices"
	"time"

	"github.com/weirproject/weir/rules"
)

// An attempt applies updates: all together, or if that fails, one by one, so that one layer's
// mistake does not hold up the others.
type attempt struct {
	*Keeper
	current    *RuleSet      // in force
	collisions []Collision   // of the layers in force
	files      []*rules.File // of each layer, in force; nil: none
	pending    []pending
	applied    []applied
}

// A pending update is good, but not in force.
type pending struct {
	layer   int
	update  *Update
	waiting []func(error)
	same    bool // equal to the file in force
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

func (t *attempt) run() {
	var fresh []*pending
	for i := range t.pending {
		if !t.pending[i].same {
			fresh = append(fresh, &t.pending[i])
		}
	}
	if len(fresh) == 0 || t.except(fresh) {
		return
	}
	err := t.try(fresh...)
	if err == nil {
		return
	}
	for _, c := range fresh {
		if len(fresh) > 1 {
			err = t.try(c)
		}
		c.err = err
	}
}

// try replaces the files of some layers, and puts the result in force.
func (t *attempt) try(some ...*pending) error {
	files := slices.Clone(t.files)
	for _, c := range some {
		files[c.layer] = c.update.File
	}
	var parts []Part
	for i, file := range files {
		if file != nil {
			parts = append(parts, Part{Name: t.layers[i].Name, File: file})
		}
	}
	merged := Merge(parts...)
	set, err := t.compile(merged.File)
	if err != nil {
		return merged.Locate(err)
	}
	// A compiler that has compiled these rules before returns that set, with its old exceptions.
	if err := set.Except(merged.File); err != nil {
		return err
	}
	if err := t.swap(set); err != nil {
		return err
	}
	p := applied{rules: &RuleSet{File: merged.File, Set: set, From: merged.From, Off: merged.Off,
		Loaded: time.Now()}, collisions: merged.Collisions}
	var before *rules.File
	if t.current != nil {
		before = t.current.File
	}
	p.changes = diff(before, merged.File, t.rest)
	if len(some) == 1 {
		p.layer, p.revision = t.layers[some[0].layer].Name, some[0].update.Revision
	}
	t.current, t.files, t.applied = p.rules, files, append(t.applied, p)
	return nil
}

// except applies updates that change nothing but exceptions, and reports whether they do. It
// compiles nothing, so that a block during an attack takes effect at once, however many rules there
// are.
func (t *attempt) except(fresh []*pending) bool {
	if t.current == nil {
		return false
	}
	files := slices.Clone(t.files)
	for _, c := range fresh {
		if files[c.layer] == nil || !files[c.layer].DiffersInExceptions(c.update.File) {
			return false
		}
		files[c.layer] = c.update.File
	}
	file := *t.current.File
	file.Exceptions = nil
	for _, one := range files {
		if one != nil && len(one.Exceptions) > 0 {
			file.Exceptions = one.Exceptions
		}
	}
	if err := t.current.Set.Except(&file); err != nil {
		for _, c := range fresh {
			c.err = err
		}
		return true
	}
	set := *t.current
	set.File, set.Loaded = &file, time.Now()
	p := applied{rules: &set, collisions: t.collisions, changes: []Change{{Fields: []string{"exceptions"}}}}
	if len(fresh) == 1 {
		p.layer, p.revision = t.layers[fresh[0].layer].Name, fresh[0].update.Revision
	}
	t.current, t.files, t.applied = &set, files, append(t.applied, p)
	return true
}
