package rules

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/internal/jsonvalues"
)

// A sum is a cost that a request or a response states: the sum of its terms, rounded up to a whole unit once.
type sum []term

// A term is a weight times a quantity, and optionally times a number of the body, such as the number of answers.
type term struct {
	weight *big.Rat  // nil: 1
	times  *quantity // factor of the body; nil, missing or below 1: 1
	of     []quantity
}

// A quantity is one number of a request or a response. Of the quantities of a term the first that is there counts.
type quantity struct {
	kind   quantityKind
	source source     // of an attribute
	name   string     // of an attribute, or a path
	value  *big.Rat   // of a constant
	among  []quantity // of the largest
}

type quantityKind uint8

const (
	constant   quantityKind = iota
	attributed              // header.NAME, query.NAME, descriptor.NAME
	jsonNumber              // json.PATH, a number
	jsonSize                // bytes(json.PATH), the length of a value; without a path that of the body
	bodySize                // bytes, the length of the body
	largest                 // max(json.PATH, json.PATH), the largest value that the body has
)

// sumSyntax are the allowed forms, but for the attributes.
const sumSyntax = "json.PATH, bytes(json.PATH), bytes(json), bytes, numbers, and sums of these such as json.a + 4 * " +
	"json.b; json.a or json.b is the first that is present, max(json.a, json.b) the largest; json.n * json.a multiplies"

// single is the only quantity of a sum without weights and alternatives; nil of other sums.
func (s sum) single() *quantity {
	if len(s) == 1 && s[0].weight == nil && s[0].times == nil && len(s[0].of) == 1 {
		return &s[0].of[0]
	}
	return nil
}

// all calls each with every quantity.
func (s sum) all(each func(*quantity)) {
	for i := range s {
		eachOf(s[i].of, each)
		if times := s[i].times; times != nil {
			eachOf([]quantity{*times}, each)
		}
	}
}

func eachOf(list []quantity, each func(*quantity)) {
	for i := range list {
		each(&list[i])
		eachOf(list[i].among, each)
	}
}

// paths are the paths of JSON that the sum names.
func (s sum) paths() (list []string) {
	s.all(func(q *quantity) {
		if (q.kind == jsonNumber || q.kind == jsonSize) && q.name != "" && !slices.Contains(list, q.name) {
			list = append(list, q.name)
		}
	})
	return list
}

// readsJSON reports whether the sum needs a body that is JSON.
func (s sum) readsJSON() (reads bool) {
	s.all(func(q *quantity) { reads = reads || q.kind == jsonNumber || q.kind == jsonSize })
	return reads
}

// units is the sum, rounded up, and at most one unit more than any cost may be. It is unknown if the request has none
// of its quantities; lengths of bodies do not count as such, unless the sum has only lengths. A constant that stands
// for a missing quantity counts.
func (s sum) units(value func(*quantity) (*big.Rat, bool)) (units int64, known bool) {
	total, stated, asked := new(big.Rat), false, false
	for i := range s {
		t := &s[i]
		for j := range t.of {
			q := &t.of[j]
			always := q.kind == constant && len(t.of) == 1 || q.kind == bodySize
			asked = asked || !always
			n, ok := value(q)
			if !ok {
				continue
			}
			stated = stated || !always
			total.Add(total, t.weighted(n, value))
			break
		}
	}
	if total.Sign() < 0 || asked && !stated {
		return 0, false
	}
	up, rest := new(big.Int).QuoRem(total.Num(), total.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		up.Add(up, big.NewInt(1))
	}
	if !up.IsInt64() {
		return weir.MaxUnits + 1, true
	}
	return min(up.Int64(), weir.MaxUnits+1), true
}

// weighted is a number with the weight of the term.
func (t *term) weighted(n *big.Rat, value func(*quantity) (*big.Rat, bool)) *big.Rat {
	if t.weight != nil {
		n = new(big.Rat).Mul(n, t.weight)
	}
	if t.times == nil {
		return n
	}
	if times, ok := value(t.times); ok && times.Cmp(big.NewRat(1, 1)) > 0 {
		n = new(big.Rat).Mul(n, times)
	}
	return n
}

// overAll is a number over all costs.
const overAll = 2 * weir.MaxUnits

// numberOf reads a number of JSON; ok is false below 0. A number too long for exact arithmetic is rounded; a number
// above the largest cost stays above it.
func numberOf(text string) (n *big.Rat, ok bool) {
	if text == "" || text[0] == '-' && strings.Trim(text, "-0.eE+") != "" {
		return nil, false
	}
	i := strings.IndexAny(text, "eE")
	exponent, err := strconv.Atoi(text[i+1:])
	if absurd := i >= 0 && (err != nil || exponent < -20 || exponent > 20); !absurd && len(text) <= 30 {
		n, ok = new(big.Rat).SetString(text)
		return n, ok && n.Sign() >= 0
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || math.IsNaN(f) {
		return nil, false
	}
	return new(big.Rat).SetFloat64(min(f, overAll)), true
}

// isDecimal reports whether a text is digits, perhaps with a dot: services read such a text as a number.
func isDecimal(text []byte) bool {
	rest := bytes.Trim(text, "0123456789.")
	return len(text) > 0 && len(rest) == 0 && text[0] != '.' && bytes.Count(text, []byte(".")) < 2
}

// of is the number of a quantity that stands in a body; body may be nil.
func (q *quantity) of(body *JSON) (*big.Rat, bool) {
	switch {
	case q.kind == constant:
		return q.value, true
	case body == nil:
		return nil, false
	case q.kind == largest:
		return q.largest(body)
	case q.kind == bodySize:
		return new(big.Rat).SetInt64(max(0, body.length)), body.length >= 0
	case q.name == "":
		return new(big.Rat).SetInt64(max(0, body.length)), body.values != nil && body.length >= 0
	}
	value := body.at(q.name)
	switch {
	case value.Kind == jsonvalues.Missing || value.Kind == jsonvalues.Null:
		return nil, false
	case q.kind == jsonSize:
		return new(big.Rat).SetInt64(value.Size), true
	case body.doubts(&value):
		return nil, false
	case value.Kind == jsonvalues.Text && (value.Cut || !isDecimal(value.Text)):
		return nil, false
	case value.Kind != jsonvalues.Number && value.Kind != jsonvalues.Text:
		return nil, false
	case value.Cut: // the rest may be an exponent
		return new(big.Rat).SetInt64(overAll), true
	}
	return numberOf(string(value.Text))
}

// largest returns the largest of the numbers that the body has. It is unknown if one of them is doubtful.
func (q *quantity) largest(body *JSON) (most *big.Rat, ok bool) {
	for i := range q.among {
		if value := body.at(q.among[i].name); body.doubts(&value) {
			return nil, false
		}
		if n, there := q.among[i].of(body); there && (most == nil || n.Cmp(most) > 0) {
			most = n
		}
	}
	return most, most != nil
}

// A sumReader reads the text of a sum.
type sumReader struct {
	rest    string
	word    string // the current one: a number, a name, a sign; "" at the end
	allowed []source
}

// parseSum reads a sum. complaint says what is wrong. allowed are the attributes that it may name.
func parseSum(text string, allowed []source) (s sum, complaint string) {
	if q, ok := attributeOf(text, allowed); ok { // of any name, also one with a sign in it
		return sum{{of: []quantity{q}}}, ""
	}
	r := &sumReader{rest: text, allowed: allowed}
	r.next()
	for {
		t, complaint := r.term()
		if complaint != "" {
			return nil, complaint
		}
		if s = append(s, t); r.word != "+" {
			break
		}
		r.next()
	}
	switch {
	case r.word != "":
		return nil, fmt.Sprintf("at %.80q: a + must follow, or nothing", r.word+r.rest)
	case len(s) > bounds.Terms:
		return nil, fmt.Sprintf("%d terms; at most %d", len(s), bounds.Terms)
	}
	return s, ""
}

// next reads the next word.
func (r *sumReader) next() {
	r.rest = strings.TrimLeft(r.rest, " ")
	n := 0
	for n < len(r.rest) && (strings.IndexByte(" +*(),", r.rest[n]) < 0 || r.rest[n] == '*' && n > 0 &&
		r.rest[n-1] == '.') {
		n++
	}
	if n == 0 && r.rest != "" {
		n = 1
	}
	r.word, r.rest = r.rest[:n], r.rest[n:]
}

// term reads [number *] [quantity *] quantity [or quantity …].
func (r *sumReader) term() (t term, complaint string) {
	place, misplaced := r.word+r.rest, false
	q, complaint := r.quantity()
	for complaint == "" && r.word == "*" && !misplaced {
		switch factor := q; {
		case q.kind == constant && t.weight == nil && t.times == nil:
			t.weight = q.value
		case (q.kind == jsonNumber || q.kind == largest) && t.times == nil:
			t.times = &factor
		default:
			misplaced = true
		}
		r.next()
		q, complaint = r.quantity()
	}
	switch {
	case misplaced || complaint == "" && t.times != nil && q.kind == constant:
		return t, fmt.Sprintf("at %.80q: a weight is a number, and comes first, as in 4 * json.a; one factor may "+
			"come from the body, as in json.n * json.a", place)
	case complaint != "":
		return t, complaint
	}
	t.of = []quantity{q}
	for r.word == "or" {
		r.next()
		if q, complaint = r.quantity(); complaint != "" {
			return t, complaint
		}
		t.of = append(t.of, q)
	}
	if len(t.of) > bounds.Terms {
		return t, fmt.Sprintf("%d alternatives; at most %d", len(t.of), bounds.Terms)
	}
	return t, ""
}

// quantity reads one quantity.
func (r *sumReader) quantity() (q quantity, complaint string) {
	word, place := r.word, r.word+r.rest
	r.next()
	if word == "bytes" && r.word == "(" {
		r.next()
		path, ok := strings.CutPrefix(r.word, "json.")
		ok = ok && validPath(path)
		if r.word == "json" {
			path, ok = "", true
		}
		if r.next(); !ok || r.word != ")" {
			return q, fmt.Sprintf("at %.80q: allowed: bytes(json.PATH), bytes(json)", place)
		}
		r.next()
		return quantity{kind: jsonSize, name: path}, ""
	}
	if word == "max" && r.word == "(" {
		return r.largest(place)
	}
	if word == "bytes" {
		return quantity{kind: bodySize}, ""
	}
	if path, ok := strings.CutPrefix(word, "json."); ok && validPath(path) {
		return quantity{kind: jsonNumber, name: path}, ""
	}
	if n, ok := numberOf(word); ok && !strings.ContainsAny(word, "eE/") {
		return quantity{kind: constant, value: n}, ""
	}
	if q, ok := attributeOf(word, r.allowed); ok {
		return q, ""
	}
	if word == "" {
		return q, "it ends where a quantity must follow"
	}
	return q, fmt.Sprintf("at %.80q: no such quantity", word)
}

// largest reads the rest of max(json.PATH, json.PATH).
func (r *sumReader) largest(place string) (q quantity, complaint string) {
	q.kind = largest
	named := true
	for named && (r.word == "(" || r.word == ",") {
		r.next()
		path, ok := strings.CutPrefix(r.word, "json.")
		named = ok && validPath(path)
		q.among = append(q.among, quantity{kind: jsonNumber, name: path})
		r.next()
	}
	if !named || r.word != ")" || len(q.among) > bounds.Terms {
		return q, fmt.Sprintf("at %.80q: allowed: max(json.PATH, json.PATH), with at most %d", place, bounds.Terms)
	}
	r.next()
	return q, ""
}

// attributeOf is the quantity of header.NAME and the like.
func attributeOf(word string, allowed []source) (q quantity, ok bool) {
	kind, name, _ := strings.Cut(word, ".")
	source, known := sourceOf(kind, true)
	if !known || !slices.Contains(allowed, source) || !validAttribute(name) {
		return q, false
	}
	if source == sourceHeader {
		name = canonical(name)
	}
	return quantity{kind: attributed, source: source, name: name}, true
}
