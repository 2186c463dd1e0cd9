package api

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/weirproject/weir/server/internal/web"
)

// Limits of a body, which bound the work of a request.
const (
	maxBody   = 1 << 20 // bytes
	maxBatch  = 100     // requests of a batch
	maxNames  = 64      // headers, query parameters, cookies or descriptors of a request
	maxName   = 256     // bytes of such a name
	maxText   = 8 << 10 // bytes of a text that is no key
	maxLimit  = 256     // bytes of a limit's text
	maxClient = 64      // bytes of an address
)

// A document reads the body of a request strictly, by RFC 8259 and RFC 7493 (I-JSON): duplicate and
// unknown names are errors, and so is text after the object. The types of the members bound its depth.
type document struct {
	body    web.Body
	json    jsontext.Decoder
	strings []byte // the bytes of its texts; reused
}

// parse reads the whole body as one object.
func (c *call) parse(fields []field) error {
	c.json.Reset(&c.body.Buffer)
	members, err := c.object(fields)
	switch {
	case err != nil:
		return err
	case c.batch && members > 1:
		return web.Invalid("requests", "not alone", "no other member beside it: each request has its own", c.offset())
	case c.batch && c.n == 0:
		return web.Invalid("requests", "empty", "1 to "+strconv.Itoa(maxBatch)+" requests", c.offset())
	}
	if _, err := c.json.ReadToken(); err != io.EOF {
		return malformed(c.offset(), "something follows the object; allowed: one object")
	}
	return nil
}

// object reads an object of known members, and returns their number.
func (c *call) object(fields []field) (members int, err error) {
	if err := c.open('{', "an object"); err != nil {
		return 0, err
	}
	for c.json.PeekKind() != '}' {
		name, err := c.json.ReadValue()
		if err != nil {
			return members, c.syntax(err)
		}
		f := find(fields, name)
		if f == nil {
			return members, c.unknown(fields, name)
		}
		if err := f.read(c); err != nil {
			return members, err
		}
		members++
	}
	return members, c.close()
}

// find compares with the name as it stands, in its quotes.
func find(fields []field, quoted jsontext.Value) *field {
	for i := range fields {
		if name := fields[i].name; len(quoted) == len(name)+2 && string(quoted[1:len(quoted)-1]) == name {
			return &fields[i]
		}
	}
	return nil
}

func (c *call) unknown(fields []field, name jsontext.Value) error {
	known := make([]string, len(fields))
	for i := range fields {
		known[i] = fields[i].name
	}
	p := web.Invalid(c.path(""), string(name), strings.Join(known, ", "), c.offset())
	p.Detail = fmt.Sprintf("unknown field %.80s; allowed: %s", p.Field, p.Allowed)
	return p
}

// array calls item for each element.
func (c *call) array(most int, item func(*call) error) error {
	if err := c.open('[', "an array"); err != nil {
		return err
	}
	for n := 0; c.json.PeekKind() != ']'; n++ {
		if n == most {
			return c.invalid("", "longer", "at most "+strconv.Itoa(most)+" elements")
		}
		if err := item(c); err != nil {
			return err
		}
	}
	return c.close()
}

// names reads an object of texts under names that the caller chooses.
func (c *call) names(into *[]pair, same func(a, b string) bool) error {
	if err := c.open('{', "an object of texts"); err != nil {
		return err
	}
	for c.json.PeekKind() != '}' {
		name, err := c.text(0, maxName)
		if err != nil {
			return err
		}
		for _, other := range *into {
			if same(other.name, name) {
				return c.invalid("", "a second one", "each name once")
			}
		}
		value, err := c.text(0, maxText)
		if err != nil {
			return err
		}
		if len(*into) == maxNames {
			return c.invalid("", "one more", "at most "+strconv.Itoa(maxNames)+" names")
		}
		*into = append(*into, pair{name, value})
	}
	return c.close()
}

func (c *call) open(kind jsontext.Kind, allowed string) error {
	if found := c.json.PeekKind(); found != kind && found != 0 {
		return c.wrong(allowed)
	}
	_, err := c.json.ReadToken()
	return c.syntax(err)
}

func (c *call) close() error {
	_, err := c.json.ReadToken()
	return c.syntax(err)
}

// text reads a string of so many bytes. Its memory is reused for the next request.
func (c *call) text(least, most int) (string, error) {
	if kind := c.json.PeekKind(); kind != '"' && kind != 0 {
		return "", c.wrong("a text")
	}
	value, err := c.json.ReadValue()
	if err != nil {
		return "", c.syntax(err)
	}
	start := len(c.strings)
	if c.strings, err = jsontext.AppendUnquote(c.strings, value); err != nil {
		return "", c.syntax(err)
	}
	n := len(c.strings) - start
	if n < least || n > most {
		return "", c.invalid("", strconv.Itoa(n)+" bytes long", fmt.Sprintf("%d to %d bytes", least, most))
	}
	if n == 0 {
		return "", nil
	}
	return unsafe.String(&c.strings[start], n), nil
}

// number reads a whole number. 1.0 and 1e3 are refused: programs differ in reading large ones.
func (c *call) number(least, most int64) (int64, error) {
	allowed := func() string { return fmt.Sprintf("a whole number from %d to %d", least, most) }
	if kind := c.json.PeekKind(); kind != '0' && kind != 0 {
		return 0, c.wrong(allowed())
	}
	value, err := c.json.ReadValue()
	if err != nil {
		return 0, c.syntax(err)
	}
	n, err := strconv.ParseInt(unsafe.String(&value[0], len(value)), 10, 64)
	if err != nil || n < least || n > most {
		return 0, c.invalid("", string(value), allowed())
	}
	return n, nil
}

func (c *call) bool() (bool, error) {
	if kind := c.json.PeekKind(); kind != 't' && kind != 'f' && kind != 0 {
		return false, c.wrong("true or false")
	}
	token, err := c.json.ReadToken()
	if err != nil {
		return false, c.syntax(err)
	}
	return token.Bool(), nil
}

// wrong refuses the next value, which is of another kind.
func (c *call) wrong(allowed string) error {
	value, err := c.json.ReadValue()
	if err != nil {
		return c.syntax(err)
	}
	return c.invalid("", string(value), allowed)
}

func (c *call) offset() int64 { return c.json.InputOffset() }

// path is the position of the reader as people write it: requests[2].claims[0].cost.
func (c *call) path(member string) string {
	return dotted(c.json.StackPointer(), member)
}

func dotted(pointer jsontext.Pointer, member string) string {
	var b strings.Builder
	for token := range pointer.Tokens() {
		if b.Len() > maxName {
			return web.Shorten(b.String())
		}
		if _, err := strconv.Atoi(token); err == nil {
			b.WriteString("[" + token + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(token)
	}
	if member != "" && b.Len() > 0 {
		b.WriteByte('.')
	}
	b.WriteString(member)
	if b.Len() == 0 {
		return "the body"
	}
	return b.String()
}

// syntax describes a syntax error and its place.
func (c *call) syntax(err error) error {
	if err == nil {
		return nil
	}
	var syntactic *jsontext.SyntacticError
	if !errors.As(err, &syntactic) {
		return malformed(c.offset(), "the body is not JSON: %v", err)
	}
	at := dotted(syntactic.JSONPointer, "")
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return web.Invalid(at, "a second one", "each name once", syntactic.ByteOffset)
	}
	return malformed(syntactic.ByteOffset, "the body is not JSON: %v at byte %d, in %s",
		syntactic.Err, syntactic.ByteOffset, at)
}

func malformed(offset int64, format string, values ...any) error {
	p := web.Refuse(http.StatusBadRequest, format, values...)
	p.Offset = offset
	return p
}
