package jsonvalues

import (
	"errors"
	"strings"
)

// Bounds of paths.
const (
	MaxSteps = 16 // of one path
	maxNodes = 1 << 12
)

// Any is the step of a path that stands for every element of a list.
const Any = "*"

// Paths say which values a Reader reads. They are immutable.
type Paths struct {
	nodes  []node // the first is the document
	values int    // number of paths
}

// A node is a place in a document. Its children are a list: child is the first, next the one after it.
type node struct {
	name        string
	value       int  // index of the path that ends here, or none
	child, next int  // 0: there is no such node
	summed      bool // the step * leads here
}

// none is the node of a value that no path leads through.
const none = -1

// New returns different paths such as "usage.input_tokens": names of members, joined by dots. The step * stands for
// every element of a list: choices.*.delta.content. A value has the index of its path.
func New(paths ...string) (*Paths, error) {
	p := &Paths{nodes: []node{{value: none}}, values: len(paths)}
	for i, path := range paths {
		steps := strings.Split(path, ".")
		if len(steps) > MaxSteps {
			return nil, errors.New("a path has at most 16 steps: " + path)
		}
		at := 0
		for _, step := range steps {
			if step == "" {
				return nil, errors.New("a path is names joined by dots, such as usage.input_tokens: " + path)
			}
			at = p.step(at, step)
		}
		if len(p.nodes) > maxNodes {
			return nil, errors.New("the paths have too many steps together")
		}
		if p.nodes[at].value == none {
			p.nodes[at].value = i
		}
	}
	return p, nil
}

// step is the child of a node with a name; a missing child is made.
func (p *Paths) step(from int, name string) int {
	for at := p.nodes[from].child; at != 0; at = p.nodes[at].next {
		if p.nodes[at].name == name {
			return at
		}
	}
	parent := p.nodes[from]
	p.nodes = append(p.nodes, node{name: name, value: none, next: parent.child, summed: parent.summed || name == Any})
	p.nodes[from].child = len(p.nodes) - 1
	return p.nodes[from].child
}

// element is the node of the elements of a list, or none.
func (p *Paths) element(list int) int {
	for at := p.nodes[list].child; at != 0; at = p.nodes[at].next {
		if p.nodes[at].name == Any {
			return at
		}
	}
	return none
}

// find is the index of a path, or none.
func (p *Paths) find(path string) int {
	at := 0
	for step := range strings.SplitSeq(path, ".") {
		child := p.nodes[at].child
		for child != 0 && p.nodes[child].name != step {
			child = p.nodes[child].next
		}
		if child == 0 {
			return none
		}
		at = child
	}
	return p.nodes[at].value
}
