package rules

import (
	"strconv"
	"strings"

	"github.com/weirproject/weir/internal/bounds"
)

// A Unit is the name of the units of a rule, for people: "tokens". Rule.Unit makes one. The zero Unit has no name.
type Unit struct {
	Name string
	// Scale is how many units of the rule are one of the name: 1,000,000 for a rule that counts millionths of a dollar.
	// It is 1 or more, unless the Unit is zero.
	Scale int64

	text string // as a file states it
}

// String is the unit as a file states it: "tokens", "USD/1000000"; "" of the zero Unit.
func (u Unit) String() string { return u.text }

// Text is a number of units for people: "730 tokens", "2.5 USD". Without a name it is the number.
func (u Unit) Text(n int64) string {
	if u.Name == "" {
		return u.Number(n)
	}
	return u.Number(n) + " " + u.Name
}

// Number is Text without the name: "730", "2.5".
func (u Unit) Number(n int64) string {
	if u.Scale <= 1 {
		return strconv.FormatInt(n, 10)
	}
	whole := strconv.FormatInt(n/u.Scale, 10)
	digits := strconv.FormatInt(u.Scale+n%u.Scale, 10)[1:] // with the zeros at the begin
	return strings.TrimSuffix(whole+"."+strings.TrimRight(digits, "0"), ".")
}

// Unit is the unit of the rule.
func (r *Rule) Unit() Unit { return r.unit }

// Metered reports whether requests of the rule may cost different numbers of units, or have a named unit: then the
// units are counted, not the requests alone.
func (r *Rule) Metered() bool { return r.metered }

// maxScale keeps the digits of a number short.
const maxScale = 1_000_000_000

// ParseUnit reads the unit that a file states; ok is false for any other text, also for "".
func ParseUnit(text string) (u Unit, ok bool) {
	name, scale, scaled := strings.Cut(text, "/")
	u = Unit{Name: name, Scale: 1, text: text}
	if scaled {
		u.Scale, _ = decimal(scale)
	}
	if name == "" || len(name) > bounds.Unit || !plainName(name) || u.Scale > maxScale || !isPower(u.Scale) {
		return Unit{}, false
	}
	return u, true
}

// unit reads the unit of a rule with a cost, and reports whether the rule is metered.
func (b *builder) unit(i int, text string, c *cost) (u Unit, metered bool) {
	u, ok := ParseUnit(text)
	if !ok && text != "" {
		b.add(at(i, "unit"), "unit is %.80q; allowed: a name of 1 to %d of a-z A-Z 0-9 and . _ -, perhaps with the "+
			"power of ten that makes one, up to %d, such as tokens or USD/1000000", text, bounds.Unit, maxScale)
	}
	return u, ok || c.from != nil || c.by != nil || c.settle != nil
}

// isPower reports whether n is a power of ten.
func isPower(n int64) bool {
	for n > 1 && n%10 == 0 {
		n /= 10
	}
	return n == 1
}
