package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/weirproject/weir"
)

// Ceilings of a document, so that no caller can make the server work without bound.
const (
	maxBody  = 1 << 20 // bytes of a body
	maxBatch = 100     // requests of a batch
	maxNames = 64      // headers, query parameters, cookies or descriptors of a request
	maxName  = 256     // bytes of such a name
	maxText  = 8 << 10 // bytes of a text that is no key
	maxLimit = 256     // bytes of a limit's text
)

// A document is the body of a request while it is read: strictly, by RFC 8259 and RFC 7493
// (I-JSON). Names that stand twice, that are not known, and whatever follows it are errors.
// How deep it may be is given by what it may hold.
type document struct {
	body    bytes.Buffer
	source  io.LimitedReader
	json    jsontext.Decoder
	strings []byte // what its strings are made of; reused
}

// A field is a member of an object and how it is read.
type field struct {
	name string
	read func(*call) error
}

// receive reads the body. application/json is asked for because a page of another site may
// send it only if the server agrees to, which this one does not.
func (d *document) receive(r *http.Request) error {
	if !isJSON(r.Header["Content-Type"]) {
		return &problem{status: http.StatusUnsupportedMediaType, detail: fmt.Sprintf("Content-Type is %.80q; allowed: application/json", r.Header.Get("Content-Type"))}
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return &problem{status: http.StatusUnsupportedMediaType, detail: fmt.Sprintf("Content-Encoding is %.80q; allowed: none", coding)}
	}
	if r.ContentLength > maxBody {
		return errTooLarge
	}
	d.body.Reset()
	d.source = io.LimitedReader{R: r.Body, N: maxBody + 1}
	_, err := d.body.ReadFrom(&d.source)
	d.source.R = nil
	switch {
	case err != nil:
		return &problem{status: http.StatusBadRequest, detail: "the body could not be read to its end"}
	case d.body.Len() > maxBody:
		return errTooLarge
	}
	return nil
}

var errTooLarge = &problem{status: http.StatusRequestEntityTooLarge, detail: "the body is over 1 MiB; send it in several requests"}

func isJSON(contentType []string) bool {
	if len(contentType) != 1 {
		return false
	}
	kind, parameter, _ := strings.Cut(contentType[0], ";")
	parameter = strings.ToLower(strings.TrimSpace(parameter))
	return strings.EqualFold(strings.TrimSpace(kind), "application/json") &&
		(parameter == "" || parameter == "charset=utf-8" || parameter == `charset="utf-8"`)
}

// parse reads the whole body as one object.
func (c *call) parse(fields []field) error {
	c.json.Reset(&c.body)
	members, err := c.object(fields)
	switch {
	case err != nil:
		return err
	case c.batch && members > 1:
		return invalid("requests", "not alone", "no other member beside it: each request has its own", c.offset())
	case c.batch && c.n == 0:
		return invalid("requests", "empty", "1 to "+strconv.Itoa(maxBatch)+" requests", c.offset())
	}
	if _, err := c.json.ReadToken(); err != io.EOF {
		return &problem{status: http.StatusBadRequest, detail: "something follows the object; allowed: one object", offset: c.json.InputOffset()}
	}
	return nil
}

// object reads an object of known members, and says how many there were.
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
	names := make([]string, len(fields))
	for i := range fields {
		names[i] = fields[i].name
	}
	return &problem{status: http.StatusBadRequest, field: c.path(""), value: string(name), allowed: strings.Join(names, ", "), offset: c.offset(),
		detail: fmt.Sprintf("unknown field %.80s; allowed: %s", c.path(""), strings.Join(names, ", "))}
}

// array calls item for each element.
func (c *call) array(most int, item func(*call) error) error {
	if err := c.open('[', "an array"); err != nil {
		return err
	}
	for n := 0; c.json.PeekKind() != ']'; n++ {
		if n == most {
			return invalid(c.path(""), "longer", "at most "+strconv.Itoa(most)+" elements", c.offset())
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
				return invalid(c.path(""), "a second one", "each name once", c.offset())
			}
		}
		value, err := c.text(0, maxText)
		if err != nil {
			return err
		}
		if len(*into) == maxNames {
			return invalid(c.path(""), "one more", "at most "+strconv.Itoa(maxNames)+" names", c.offset())
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

// text reads a string of so many bytes. It lies in a buffer that is used again for the
// next request.
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
		return "", invalid(c.path(""), strconv.Itoa(n)+" bytes long", fmt.Sprintf("%d to %d bytes", least, most), c.offset())
	}
	if n == 0 {
		return "", nil
	}
	return unsafe.String(&c.strings[start], n), nil
}

// number reads a whole number. 1.0 and 1e3 are none: readers differ about large ones.
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
		return 0, invalid(c.path(""), string(value), allowed(), c.offset())
	}
	return n, nil
}

func (c *call) units(least int64) (int64, error) { return c.number(least, weir.MaxUnits) }

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

// wrong says that the next value is of another kind.
func (c *call) wrong(allowed string) error {
	value, err := c.json.ReadValue()
	if err != nil {
		return c.syntax(err)
	}
	return invalid(c.path(""), string(value), allowed, c.offset())
}

func (c *call) offset() int64 { return c.json.InputOffset() }

// path is where the reader stands, as people write it: requests[2].claims[0].cost.
func (c *call) path(member string) string {
	return dotted(c.json.StackPointer(), member)
}

func dotted(pointer jsontext.Pointer, member string) string {
	var b strings.Builder
	for token := range pointer.Tokens() {
		if b.Len() > maxName {
			return cut(b.String())
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

// syntax says where and why the body is no JSON.
func (c *call) syntax(err error) error {
	if err == nil {
		return nil
	}
	var syntactic *jsontext.SyntacticError
	if !errors.As(err, &syntactic) {
		return &problem{status: http.StatusBadRequest, detail: "the body is not JSON: " + err.Error(), offset: c.offset()}
	}
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return invalid(dotted(syntactic.JSONPointer, ""), "a second one", "each name once", syntactic.ByteOffset)
	}
	return &problem{status: http.StatusBadRequest, offset: syntactic.ByteOffset,
		detail: fmt.Sprintf("the body is not JSON: %v at byte %d, in %s", syntactic.Err, syntactic.ByteOffset, dotted(syntactic.JSONPointer, ""))}
}
