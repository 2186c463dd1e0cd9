package jsonvalues

import "slices"

// Latest has the latest value at each path of the documents of a stream: a document without a value, or with null,
// leaves the one before. Size is the sum for all documents.
type Latest struct {
	paths  *Paths
	values []Value
}

// Latest returns values that Add collects.
func (p *Paths) Latest() *Latest { return &Latest{paths: p, values: make([]Value, p.values)} }

// Add takes the values of the next document; it is an Each of a Reader of the same paths.
func (l *Latest) Add(values []Value) {
	for i := range values {
		if from, to := &values[i], &l.values[i]; from.Kind > Null {
			sum := to.Size + from.Size
			text := slices.Grow(to.Text[:0], len(from.Text))
			*to = *from
			to.Text, to.Size = append(text, from.Text...), sum
		}
	}
}

// At is the value at a path.
func (l *Latest) At(path string) Value {
	if i := l.paths.find(path); i != none {
		return l.values[i]
	}
	return Value{}
}
