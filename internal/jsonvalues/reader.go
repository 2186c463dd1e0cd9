// Package jsonvalues reads the values at a few paths of JSON texts that pass in pieces: bodies of requests and
// responses, and the events of a stream. Its memory does not depend on the length of a text.
//
// A document is the value of a text. If the value is a list, each of its elements is a document instead. If an object
// has several members with one name, the last member counts, with all its content, as in the parsers of Python, Go and
// JavaScript.
package jsonvalues

import (
	"errors"
	"io"
	"strings"
)

// Bounds of texts.
const (
	MaxText  = 1024 // bytes of a value that are kept
	MaxDepth = 512  // of lists and objects
	maxName  = 128  // bytes of a name; no path has a longer one
)

// ErrSyntax is the error of a text that is not JSON, or nested deeper than MaxDepth.
var ErrSyntax = errors.New("the text is not JSON, or is nested more than 512 deep")

// Kind is the kind of a value.
type Kind uint8

// The kinds.
const (
	Missing Kind = iota
	Null
	Bool
	Number
	Text
	List
	Object
)

// A Value is the value at a path of one document.
type Value struct {
	Kind Kind
	// Text is a text without its escapes, or a number or a word as it is written; empty for other kinds.
	Text []byte
	// Size is the length of the value in the document, in bytes, without the quotes of a text. At a path with the step
	// * it is the sum for all elements.
	Size int64
	// Cut reports that Text has only the first MaxText bytes.
	Cut bool
	// Doubtful reports that some services read another value: the document has a name of the path in another case as
	// well, or the text has NUL or half of a surrogate pair.
	Doubtful bool
	// Twice reports that the document has the value twice or more, so that some services read the first one. It is
	// not for paths with the step *.
	Twice bool

	at int64 // in the text, where it begins
}

// In is the value as it is written in the text that was read, from its beginning, with the quotes of a text.
func (v *Value) In(text []byte) []byte {
	if v.Kind == Text {
		return text[v.at : v.at+v.Size+2]
	}
	return text[v.at : v.at+v.Size]
}

// A Reader reads a text, or a sequence of texts. Set its fields before the first Write. It is not safe for
// concurrent use.
type Reader struct {
	// Each is called at the end of each document. The values, by the index of their paths, are valid until it returns.
	Each func(values []Value)
	// Many accepts any number of texts, separated by blanks and ends of lines: JSON lines. Otherwise there is one.
	Many bool

	paths  *Paths
	values []Value
	err    error
	read   int64 // bytes before the current piece
	ended  bool  // a text has ended

	state state
	depth int
	lists [MaxDepth / 64]uint64 // a bit for each level: it is a list
	batch bool                  // the text is a list, with documents as elements
	loose bool                  // texts that are not kept may have bytes that JSON forbids

	// The open lists and objects from the document on that paths lead through, and where they begin.
	open    [MaxSteps + 2]int
	begins  [MaxSteps + 2]int64
	matched int
	node    int // of the present value, or of the next one

	start   int64 // of a text, number or word
	taken   *Value
	name    []byte // of a member, up to maxName + 1 bytes
	naming  bool   // the text is a name
	word    string // rest of true, false or null
	digits  int    // of \uXXXX that are missing
	unit    rune   // the number of its digits so far
	high    rune   // the first half of a surrogate pair, or 0
	rest    int    // missing bytes of a character
	lo, hi  byte   // bounds of the next missing byte
	numeral numeral
}

// Reader returns a reader of these paths.
func (p *Paths) Reader() *Reader {
	r := &Reader{paths: p, values: make([]Value, p.values)}
	r.Reset()
	return r
}

// Reset forgets the text and begins a new one.
func (r *Reader) Reset() {
	r.err, r.read, r.ended = nil, 0, false
	r.state, r.depth, r.batch, r.matched, r.node = inValue, 0, false, 0, 0
	r.taken, r.high, r.rest = nil, 0, 0
	r.forget()
}

// forget forgets all values before a document.
func (r *Reader) forget() {
	for i := range r.values {
		r.values[i] = Value{Text: r.values[i].Text[:0]}
	}
}

// A state says what the next byte may be.
type state uint8

const (
	inValue   state = iota // blanks, or the begin of a value
	inElement              // the same, or the end of the list
	inMember               // blanks, or the begin of a name, or the end of the object
	inName                 // blanks, or the begin of a name
	inColon
	inAfter // a comma, or the end of the list or object
	inText
	inEscape
	inUnit
	inNumber
	inWord
)

// Write reads a piece of the text. The error is ErrSyntax, for all later pieces too, until Reset.
func (r *Reader) Write(piece []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	for i := 0; i < len(piece); {
		n, ok := r.step(piece[i:], r.read+int64(i))
		if !ok {
			r.err = ErrSyntax
			return i, r.err
		}
		i += n
	}
	r.read += int64(len(piece))
	return len(piece), nil
}

// Close ends the text. The error is io.ErrUnexpectedEOF if a value is incomplete or, without Many, missing.
func (r *Reader) Close() error {
	if r.err != nil {
		return r.err
	}
	if r.state == inNumber && r.depth == 0 && r.numeral.whole() {
		r.endScalar(r.read - r.start)
	}
	if r.state != inValue || r.depth != 0 || !r.ended && !r.Many {
		r.err = io.ErrUnexpectedEOF
	}
	return r.err
}

// step reads one or more bytes of the piece, and no byte if a number ends before it. position is where the piece begins
// in the text.
func (r *Reader) step(piece []byte, position int64) (n int, ok bool) {
	c := piece[0]
	switch r.state {
	case inText:
		return r.text(piece, position)
	case inEscape:
		return 1, r.escape(c)
	case inUnit:
		return 1, r.codeUnit(c)
	case inNumber:
		if r.numeral.next(c) {
			r.keep(piece[:1])
			return 1, true
		}
		if !r.numeral.whole() {
			return 0, false
		}
		r.endScalar(position - r.start)
		return 0, true
	case inWord:
		return 1, r.letter(c, position)
	}
	if c == ' ' || c == '\n' || c == '\t' || c == '\r' {
		return blanks(piece), true
	}
	switch r.state {
	case inValue, inElement:
		if c == ']' && r.state == inElement {
			return 1, r.close(c, position)
		}
		return 1, r.begin(c, position)
	case inMember, inName:
		if c == '}' && r.state == inMember {
			return 1, r.close(c, position)
		}
		r.naming, r.name, r.state = true, r.name[:0], inText
		return 1, c == '"'
	case inColon:
		r.state = inValue
		return 1, c == ':'
	}
	if c == ',' {
		r.comma()
		return 1, true
	}
	return 1, r.close(c, position)
}

func blanks(piece []byte) int {
	for i, c := range piece {
		if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return i
		}
	}
	return len(piece)
}

// begin begins a value with its first byte.
func (r *Reader) begin(c byte, position int64) bool {
	switch {
	case r.depth == 0 && r.ended && !r.Many:
		return false
	case r.depth == 0 && c == '[':
		r.batch, r.node = true, none
	case r.depth == 0:
		r.batch, r.node = false, 0
	case r.depth == 1 && r.batch:
		r.node = 0
	}
	if r.node == 0 {
		r.forget()
	} else if r.node != none && !r.paths.nodes[r.node].summed { // elements of a list share their values
		r.clear(r.node)
	}
	r.start = position
	switch c {
	case '{', '[':
		return r.descend(c == '[', position)
	case '"':
		r.naming, r.state = false, inText
		r.take(Text)
	case 't':
		r.state, r.word = inWord, "rue"
		r.take(Bool)
	case 'f':
		r.state, r.word = inWord, "alse"
		r.take(Bool)
	case 'n':
		r.state, r.word = inWord, "ull"
		r.take(Null)
	default:
		r.state, r.numeral = inNumber, numeral(0)
		r.take(Number)
		if !r.numeral.next(c) {
			return false
		}
	}
	if c != '"' {
		r.keep([]byte{c})
	}
	return true
}

// take prepares to keep a value that begins, if it is at one of the paths.
func (r *Reader) take(kind Kind) {
	r.taken = nil
	if r.node == none || kind == Null && r.paths.nodes[r.node].summed { // null adds nothing to a sum
		return
	}
	if i := r.paths.nodes[r.node].value; i != none {
		r.taken = &r.values[i]
		r.taken.Kind, r.taken.Text, r.taken.Cut, r.taken.at = kind, r.taken.Text[:0], false, r.start
	}
}

// keep appends to the taken value, or to the name.
func (r *Reader) keep(text []byte) {
	if r.naming {
		r.name = append(r.name, text[:min(len(text), maxName+1-len(r.name))]...)
		return
	}
	if v := r.taken; v != nil {
		n := min(len(text), MaxText-len(v.Text))
		v.Text, v.Cut = append(v.Text, text[:n]...), v.Cut || n < len(text)
	}
}

// descend opens a list or an object.
func (r *Reader) descend(list bool, position int64) bool {
	if r.depth == MaxDepth {
		return false
	}
	word, bit := &r.lists[r.depth/64], uint64(1)<<(r.depth%64)
	if *word &^= bit; list {
		*word |= bit
	}
	r.depth++
	if list {
		r.take(List)
	} else {
		r.take(Object)
	}
	r.taken = nil // it has no text
	document := 0
	if r.batch {
		document = 1
	}
	if r.node != none && r.matched == r.depth-1-document {
		r.open[r.matched], r.begins[r.matched] = r.node, position
		r.matched++
	}
	if r.state = inMember; list {
		r.state = inElement
		r.node = r.element()
	}
	return true
}

// current is the node of the innermost open list or object, or none.
func (r *Reader) current() int {
	depth := r.depth
	if r.batch {
		depth--
	}
	if depth == 0 || r.matched != depth {
		return none
	}
	return r.open[r.matched-1]
}

// element is the node of an element of the innermost list, or none.
func (r *Reader) element() int {
	list := r.current()
	if list == none {
		return none
	}
	return r.paths.element(list)
}

func (r *Reader) inList() bool {
	level := r.depth - 1
	return r.lists[level/64]>>(level%64)&1 == 1
}

func (r *Reader) comma() {
	if r.state = inName; r.inList() {
		r.state, r.node = inValue, r.element()
	}
}

// close closes a list or an object.
func (r *Reader) close(c byte, position int64) bool {
	if r.depth == 0 || r.inList() != (c == ']') || c != ']' && c != '}' {
		return false
	}
	node := r.current()
	if node != none {
		r.matched--
		r.sized(node, position+1-r.begins[r.matched])
	}
	r.depth--
	r.after(node == 0)
	return true
}

// sized notes the length of a value.
func (r *Reader) sized(node int, size int64) {
	n := &r.paths.nodes[node]
	if n.value == none {
		return
	}
	v := &r.values[n.value]
	if !n.summed {
		v.Size = 0
	}
	v.Size += size
}

// endScalar ends a value that is no list and no object.
func (r *Reader) endScalar(size int64) {
	if r.taken != nil {
		r.sized(r.node, size)
	}
	r.taken = nil
	r.after(r.node == 0)
}

// after is the state after a value, which may be a document.
func (r *Reader) after(document bool) {
	if document {
		r.node = none
		if r.Each != nil {
			r.Each(r.values)
		}
	}
	if r.state = inAfter; r.depth == 0 {
		r.state, r.ended = inValue, true
	}
}

// clear forgets the values of a node and below, since the last value of a name counts.
func (r *Reader) clear(at int) {
	n := &r.paths.nodes[at]
	if n.value != none {
		v := &r.values[n.value]
		v.Twice = v.Twice || v.Kind != Missing
		v.Kind, v.Text, v.Cut, v.Size = Missing, v.Text[:0], false, 0
	}
	for child := n.child; child != 0; child = r.paths.nodes[child].next {
		r.clear(child)
	}
}

// letter reads the next letter of true, false or null.
func (r *Reader) letter(c byte, position int64) bool {
	if c != r.word[0] {
		return false
	}
	r.keep([]byte{c})
	if r.word = r.word[1:]; r.word == "" {
		r.endScalar(position + 1 - r.start)
	}
	return true
}

// named finds the node of a member after its name.
func (r *Reader) named() {
	r.naming, r.state, r.node = false, inColon, none
	object := r.current()
	if object == none {
		return
	}
	nodes := r.paths.nodes
	for child := nodes[object].child; child != 0; child = nodes[child].next {
		switch {
		case nodes[child].name == Any:
		case string(r.name) == nodes[child].name:
			r.node = child
		case strings.EqualFold(string(r.name), nodes[child].name):
			r.doubt(child)
		}
	}
}

// doubt marks the values of a node and below.
func (r *Reader) doubt(at int) {
	n := &r.paths.nodes[at]
	if n.value != none {
		r.values[n.value].Doubtful = true
	}
	for child := n.child; child != 0; child = r.paths.nodes[child].next {
		r.doubt(child)
	}
}
