package source

import (
	"slices"
	"time"

	"github.com/weirproject/weir/rules"
)

// A trial is what becomes of news: all at once, or where that fails, one by one on top of
// what is in force, so that one layer's mistake does not hold up the others.
type trial struct {
	*Keeper
	law        *Law          // in force
	collisions []Collision   // of the layers in force
	files      []*rules.File // of each layer, what is in force; nil: nothing
	asked      []candidate
	passed     []passed
}

// A candidate is good news that is not in force.
type candidate struct {
	layer   int
	news    *News
	waiting []func(error)
	same    bool // as what is in force
	err     error
}

// passed is a law that was put in force.
type passed struct {
	law        *Law
	layer      string
	revision   string
	changes    []Change
	collisions []Collision
}

func (t *trial) run() {
	var fresh []*candidate
	for i := range t.asked {
		if !t.asked[i].same {
			fresh = append(fresh, &t.asked[i])
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

// try puts what is in force, with some of it replaced, in force.
func (t *trial) try(some ...*candidate) error {
	files := slices.Clone(t.files)
	for _, c := range some {
		files[c.layer] = c.news.File
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
	// A compiler that has compiled these rules before returns that set, with its exceptions.
	if err := set.Except(merged.File); err != nil {
		return err
	}
	if err := t.swap(set); err != nil {
		return err
	}
	p := passed{law: &Law{File: merged.File, Set: set, From: merged.From, Off: merged.Off, Loaded: time.Now()}, collisions: merged.Collisions}
	var before *rules.File
	if t.law != nil {
		before = t.law.File
	}
	p.changes = diff(before, merged.File, t.rest)
	if len(some) == 1 {
		p.layer, p.revision = t.layers[some[0].layer].Name, some[0].news.Revision
	}
	t.law, t.files, t.passed = p.law, files, append(t.passed, p)
	return nil
}

// except lays other exceptions over the rules in force, and reports whether nothing else has
// changed. Nothing is compiled: somebody who is blocked while an attack lasts is blocked at
// once, however many rules there are.
func (t *trial) except(fresh []*candidate) bool {
	if t.law == nil {
		return false
	}
	files := slices.Clone(t.files)
	for _, c := range fresh {
		if files[c.layer] == nil || !rules.OtherExceptions(files[c.layer], c.news.File) {
			return false
		}
		files[c.layer] = c.news.File
	}
	file := *t.law.File
	file.Exceptions = nil
	for _, one := range files {
		if one != nil && len(one.Exceptions) > 0 {
			file.Exceptions = one.Exceptions
		}
	}
	if err := t.law.Set.Except(&file); err != nil {
		for _, c := range fresh {
			c.err = err
		}
		return true
	}
	law := *t.law
	law.File, law.Loaded = &file, time.Now()
	p := passed{law: &law, collisions: t.collisions, changes: []Change{{Fields: []string{"exceptions"}}}}
	if len(fresh) == 1 {
		p.layer, p.revision = t.layers[fresh[0].layer].Name, fresh[0].news.Revision
	}
	t.law, t.files, t.passed = &law, files, append(t.passed, p)
	return true
}
