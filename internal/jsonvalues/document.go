package jsonvalues

import (
	"bytes"
	"slices"
	"strings"
)

// A Document is one whole JSON text. It is not safe for concurrent use.
type Document struct {
	text   []byte
	paths  *Paths // that were read at once
	values []Value
	read   bool // it is one document
}

// NewDocument reads a text, which must not change later. Values at paths other than these are read when they are
// needed, each in a pass of its own. A text that is not JSON, and a list, have a doubtful value at every path. A
// byte-order mark before the text is skipped, as many services do.
func NewDocument(text []byte, paths *Paths) *Document {
	if paths == nil {
		paths = &Paths{nodes: []node{{value: none}}}
	}
	r, documents := paths.Reader(), 0
	r.Each = func([]Value) { documents++ }
	if bytes.HasPrefix(text, []byte(bom)) {
		r.read = int64(len(bom))
	}
	r.Write(text[r.read:])
	read := r.Close() == nil && documents == 1 && !r.batch
	return &Document{text: text, paths: paths, values: r.values, read: read}
}

// Valid reports whether the text is one document.
func (d *Document) Valid() bool { return d.read }

// At is the value at a path.
func (d *Document) At(path string) Value {
	if !d.read {
		return Value{Doubtful: true}
	}
	if i := d.paths.find(path); i != none {
		return d.values[i]
	}
	one, err := New(path)
	if err != nil {
		return Value{}
	}
	return NewDocument(d.text, one).At(path)
}

// With is the whole text with another value in place of v, which is of the document.
func (d *Document) With(v *Value, text string) []byte {
	return slices.Concat(d.text[:v.at], []byte(text), d.text[v.at+int64(len(v.In(d.text))):])
}

// WithMember is the whole text with one more member at the begin of v, an object of the document; nil is the document.
func (d *Document) WithMember(v *Value, member string) []byte {
	var from int64
	if v != nil {
		from = v.at
	}
	begin := from + int64(bytes.IndexByte(d.text[from:], '{')) + 1
	rest := d.text[begin:]
	if next := rest[blanks(rest):]; next[0] != '}' {
		member += ","
	}
	return slices.Concat(d.text[:begin], []byte(member), rest)
}

// Plain is the text of a value that all services read alike: a text, a word, or a whole number. "" is missing or null.
func (v *Value) Plain() (text string, plain bool) {
	const exactDigits = 15
	switch {
	case v.Doubtful || v.Cut:
		return "", false
	case v.Kind == Missing || v.Kind == Null:
		return "", true
	case v.Kind == Text || v.Kind == Bool:
		return string(v.Text), true
	case v.Kind != Number:
		return "", false
	}
	digits := strings.TrimPrefix(string(v.Text), "-")
	whole := strings.Trim(digits, "0123456789") == "" && len(digits) <= exactDigits
	return string(v.Text), whole && string(v.Text) != "-0"
}
