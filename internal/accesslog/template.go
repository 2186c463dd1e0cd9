package accesslog

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A template is the shape of a line of text: values between literals.
type template struct {
	prefix string
	tokens []token
	escape escape
	open   bool // more may follow
	isHTTP bool
}

// A token is a value and the literal after it.
type token struct {
	field   field
	name    string // of a header field, or of a value that is read past
	until   string // "" is the end of the line
	keep    bool   // until belongs to the next value: a path begins with its /
	quoted  bool   // the value may have until in it, escaped by a backslash
	list    bool   // the value may be a list with spaces: 192.0.2.1, 192.0.2.2
	twice   bool   // the value has until in it once
	missing error
}

var (
	errBegin = errors.New("the line does not begin as the format does")
	errEnd   = errors.New("there is more than the format has")
)

// A variable is a name in a pattern.
type variable struct {
	field  field
	header string // the name of a header field
	rank   int    // of two variables for the same field, a pattern's higher one is read
	list   bool
}

// newTemplate compiles a pattern that begins with a literal.
func newTemplate(prefix string, pieces []piece, esc escape) (*template, error) {
	t := &template{prefix: prefix, escape: esc}
	best := make(map[field]int)
	for _, p := range pieces {
		best[p.field] = max(best[p.field], p.rank)
	}
	for i, p := range pieces {
		k := token{field: p.field, name: p.header, until: p.literal, list: p.list}
		if p.field != header && p.rank < best[p.field] {
			k.field = skip
		}
		k.quoted = esc.sign == '\\' && strings.HasPrefix(k.until, `"`)
		if k.until == "" && i+1 < len(pieces) {
			if next := pieces[i+1]; next.field != target && next.field != path {
				return nil, fmt.Errorf("nothing separates %s from %s", p.label, next.label)
			}
			k.until, k.keep = "/", true
		}
		k.missing = fmt.Errorf("%s is not followed by %q", p.label, k.until)
		t.tokens = append(t.tokens, k)
	}
	return t, t.check()
}

// A piece is a variable of a pattern and the literal after it.
type piece struct {
	variable
	label, literal string
}

// patternTemplate compiles a pattern whose variables are $name or ${name}.
func patternTemplate(pattern string, look func(name string) variable, esc escape) (*template, error) {
	// The three together are the target as it was sent, but for its escapes.
	pattern = strings.ReplaceAll(pattern, "$uri$is_args$args", "$uri_and_args")
	parts := strings.Split(pattern, "$")
	var pieces []piece
	for _, part := range parts[1:] {
		name, literal, found := strings.Cut(part, "}")
		if found && name != "" && name[0] == '{' {
			name = name[1:]
		} else {
			name = part[:len(part)-len(strings.TrimLeft(part, nameCharacters))]
			literal = part[len(name):]
		}
		pieces = append(pieces, piece{look(name), "$" + name, literal})
	}
	return newTemplate(parts[0], pieces, esc)
}

const nameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

func (t *template) check() error {
	has := func(fields ...field) bool {
		return slices.ContainsFunc(t.tokens, func(k token) bool { return slices.Contains(fields, k.field) })
	}
	if !has(start, end) {
		return errors.New("the format has no time of the request")
	}
	t.isHTTP = has(request, target, path)
	return nil
}

func (t *template) read(line string, d *draft) error {
	rest, found := strings.CutPrefix(line, t.prefix)
	if !found {
		return errBegin
	}
	d.isHTTP = t.isHTTP
	var notHTTP error
	for i := range t.tokens {
		k := &t.tokens[i]
		value, after, found := k.cut(rest, i == len(t.tokens)-1 && !t.open)
		if !found {
			return k.missing
		}
		rest = after
		if k.field == skip || value == "" || value == "-" {
			continue
		}
		err := d.set(k.field, k.name, t.escape.plain(&d.texts, value))
		if err == errNotHTTP {
			notHTTP = err // if the rest has the format
		} else if err != nil {
			return err
		}
	}
	if rest != "" && !t.open {
		return errEnd
	}
	return notHTTP
}

// cut takes the value from the beginning of the text.
func (k *token) cut(text string, last bool) (value, rest string, found bool) {
	if k.until == "" {
		return text, "", true
	}
	if last && !k.quoted {
		value, found = strings.CutSuffix(text, k.until)
		return value, "", found
	}
	again := k.twice
	for from := 0; ; {
		at := strings.IndexByte(text[from:], k.until[0])
		if at < 0 {
			return "", "", false
		}
		at += from
		from = at + 1
		switch {
		case !strings.HasPrefix(text[at:], k.until):
		case k.quoted && escaped(text[:at]):
		case k.list && continues(text[:at], text[at+1:]):
		case again:
			again = false
		case k.keep:
			return text[:at], text[at:], true
		default:
			return text[:at], text[at+len(k.until):], true
		}
	}
}

// escaped reports whether the next character has a backslash before it that is not escaped itself.
func escaped(before string) bool {
	backslashes := len(before) - len(strings.TrimRight(before, `\`))
	return backslashes%2 == 1
}

// continues reports whether a list goes on: nginx writes "a, b : c" for several upstreams.
func continues(before, after string) bool {
	return strings.HasSuffix(before, ",") || strings.HasSuffix(before, " :") || strings.HasPrefix(after, ": ")
}
