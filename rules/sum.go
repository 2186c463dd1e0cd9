package rules

import (
	"bytes"
	"fmt"
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

// A term is a weight times a quantity.
type term struct {
	weight *big.Rat // nil: 1
	of     []quantity
}

// A quantity is one number of a request or a response. Of the quantities of a term the first that is there counts.
type quantity struct {
	kind   quantityKind
	source source   // of an attribute
	name   string   // of an attribute, or a path
	value  *big.Rat // of a constant
}

type quantityKind uint8

const (
	constant   quantityKind = iota
	attributed              // header.NAME, query.NAME, descriptor.NAME
	jsonNumber              // json.PATH, a number
	jsonSize                // bytes(json.PATH), the length of a value
	bodySize                // bytes, the length of the body
)

// sumSyntax are the allowed forms, but for the attributes.
const sumSyntax = "json.PATH, bytes(json.PATH), bytes, numbers, and sums of these such as json.a + 4 * json.b; " +
	"json.a or json.b is the first that there is"

// single is the only quantity of a sum without weights and alternatives; nil of other sums.
func (s sum) single() *quantity {
	if len(s) == 1 && s[0].weight == nil && len(s[0].of) == 1 {
		return &s[0].of[0]
	}
	return nil
}

// all calls each with every quantity.
func (s sum) all(each func(*quantity)) {
	for i := range s {
		for j := range s[i].of {
			each(&s[i].of[j])
		}
	}
}

// paths are the paths of JSON that the sum names.
func (s sum) paths() (list []string) {
	s.all(func(q *quantity) {
		if (q.kind == jsonNumber || q.kind == jsonSize) && !slices.Contains(list, q.name) {
			list = append(list, q.name)
		}
	})
	return list
}

// units is the sum, rounded up. It is not known if no quantity other than lengths of bodies is there, unless the sum
// has no others, or if the result is too large. A constant that stands for a missing quantity is one that is there.
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
			if stated = stated || !always; t.weight != nil {
				n = new(big.Rat).Mul(n, t.weight)
			}
			total.Add(total, n)
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
	return up.Int64(), up.IsInt64() && up.Int64() <= weir.MaxUnits
}

// numberOf reads a number as JSON writes it; ok is false for one below 0, with more than 30 bytes, or with an exponent
// that makes it absurd.
func numberOf(text string) (n *big.Rat, ok bool) {
	if text == "" || len(text) > 30 {
		return nil, false
	}
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		if exponent, err := strconv.Atoi(text[i+1:]); err != nil || exponent < -20 || exponent > 20 {
			return nil, false
		}
	}
	n, ok = new(big.Rat).SetString(text)
	return n, ok && n.Sign() >= 0
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
	case q.kind == bodySize:
		return new(big.Rat).SetInt64(max(0, body.length)), body.length >= 0
	}
	value := body.at(q.name)
	switch {
	case value.Kind == jsonvalues.Missing || value.Kind == jsonvalues.Null:
		return nil, false
	case q.kind == jsonSize:
		return new(big.Rat).SetInt64(value.Size), true
	case value.Cut || value.Kind == jsonvalues.Text && !isDecimal(value.Text):
		return nil, false
	case value.Kind != jsonvalues.Number && value.Kind != jsonvalues.Text:
		return nil, false
	}
	return numberOf(string(value.Text))
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
	for n < len(r.rest) && (strings.IndexByte(" +*()", r.rest[n]) < 0 || r.rest[n] == '*' && n > 0 &&
		r.rest[n-1] == '.') {
		n++
	}
	if n == 0 && r.rest != "" {
		n = 1
	}
	r.word, r.rest = r.rest[:n], r.rest[n:]
}

// term reads [number *] quantity [or quantity …].
func (r *sumReader) term() (t term, complaint string) {
	q, complaint := r.quantity()
	if complaint != "" {
		return t, complaint
	}
	if r.word == "*" {
		if q.kind != constant {
			return t, fmt.Sprintf("at %.80q: a weight is a number, and stands first, as in 4 * json.a", "*"+r.rest)
		}
		t.weight = q.value
		r.next()
		if q, complaint = r.quantity(); complaint != "" {
			return t, complaint
		}
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
		r.next()
		if !ok || !validPath(path) || r.word != ")" {
			return q, fmt.Sprintf("at %.80q: allowed: bytes(json.PATH)", place)
		}
		r.next()
		return quantity{kind: jsonSize, name: path}, ""
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
