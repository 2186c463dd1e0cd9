package webvalues

import (
	"bytes"
	"encoding/json"
	"mime"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxBody is the length of the longest body that is read for its fields.
const MaxBody = 64 << 10

// maxBodyFields is the maximum of a body's fields. PHP reads as many of a form.
const maxBodyFields = 1000

// A Format is the format of a body.
type Format uint8

// The formats. An Unread body is one that a service may read, but this package does not: multipart, a format without a
// name, a charset other than UTF-8, a compressed body.
const (
	Unread Format = iota
	Form          // application/x-www-form-urlencoded
	JSON
)

// FormatOf is the format of a body according to the fields of its request.
func FormatOf(fields interface{ Values(name string) []string }) Format {
	types := fields.Values("Content-Type")
	if len(types) != 1 || Encoded(fields) {
		return Unread
	}
	media, _, err := mime.ParseMediaType(types[0])
	switch {
	case err != nil:
		return Unread
	case media == "application/x-www-form-urlencoded":
		return Form
	case media == "application/json" || strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json"):
		return JSON
	}
	return Unread
}

// Encoded reports whether a body is compressed, or perhaps in a charset other than UTF-8, according to the fields of
// its request. Services that obey a charset such as UTF-7 read other names than those that the bytes spell.
func Encoded(fields interface{ Values(name string) []string }) bool {
	encodings := fields.Values("Content-Encoding")
	if len(encodings) > 1 || len(encodings) == 1 && !strings.EqualFold(encodings[0], "identity") {
		return true
	}
	return slices.ContainsFunc(fields.Values("Content-Type"), func(line string) bool {
		if !strings.Contains(strings.ToLower(line), "charset") {
			return false
		}
		_, parameters, err := mime.ParseMediaType(line)
		charset := strings.ToLower(parameters["charset"])
		return err != nil || charset != "" && charset != "utf-8" && charset != "utf8"
	})
}

// A Body has the fields of a body: the fields of a form, or the members of a JSON object. The zero Body is empty.
type Body struct {
	unread  bool
	form    *Request
	members []member
}

// A member is one of a JSON object.
type member struct {
	name, value string
	plain       bool // value is what every service reads
}

// UnreadBody is a body that is not read, so that each of its fields is doubtful.
func UnreadBody() *Body { return &Body{unread: true} }

// NewBody reads the fields of a whole body. Kind is the Kind of a Request.
func NewBody(format Format, text []byte, kind string) *Body {
	switch {
	case len(text) == 0:
		return new(Body)
	case format == Form && bytes.Count(text, []byte("&")) < maxBodyFields:
		return &Body{form: &Request{RawQuery: string(text), Kind: kind}}
	case format == JSON && json.Valid(text) && utf8.Valid(text):
		members, ok := membersOf(text)
		return &Body{members: members, unread: !ok}
	}
	return UnreadBody()
}

// membersOf are the members of a valid JSON text; empty if it is no object. They are not ok if they are too many.
func membersOf(text []byte) (members []member, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if begin, _ := decoder.Token(); begin != json.Delim('{') {
		return nil, true
	}
	for decoder.More() {
		name, _ := decoder.Token() // the text is valid: there are no errors
		var value json.RawMessage
		decoder.Decode(&value)
		m := member{name: name.(string)}
		m.value, m.plain = plainJSON(value)
		if members = append(members, m); len(members) > maxBodyFields {
			return nil, false
		}
	}
	return members, true
}

// plainJSON is the text of a string or a whole number, and "" of null. Others are not plain: services read a list or
// 1e3 as different texts, and numbers of more digits lose some.
func plainJSON(value json.RawMessage) (text string, plain bool) {
	const exactDigits = 15
	switch {
	case value[0] == '"':
		json.Unmarshal(value, &text)
		return text, !strings.ContainsAny(text, "\x00\ufffd") // half a surrogate pair is U+FFFD to some
	case string(value) == "null":
		return "", true
	}
	digits := strings.TrimPrefix(string(value), "-")
	whole := strings.Trim(digits, "0123456789") == "" && len(digits) <= exactDigits
	return string(value), whole && string(value) != "-0"
}

// Value is the first value of a field.
func (b *Body) Value(name string) string {
	if b.form != nil {
		return b.form.Query(name)
	}
	for i := range b.members {
		if b.members[i].name == name {
			return b.members[i].value
		}
	}
	return ""
}

// Doubtful reports whether services may read different values of a field. Go and ASP.NET read members of JSON by names
// in any case.
func (b *Body) Doubtful(name string) bool {
	if b.form != nil {
		return b.form.Doubtful("query", name) || divided(b.form.RawQuery, name)
	}
	value := b.Value(name)
	for i := range b.members {
		if m := &b.members[i]; strings.EqualFold(m.name, name) && (!m.plain || m.value != value) {
			return true
		}
	}
	return b.unread
}

// divided reports whether a form has the name in a pair with a semicolon, where some services begin another pair.
func divided(form, name string) bool {
	if strings.IndexByte(form, ';') < 0 {
		return false
	}
	for pair := range strings.SplitSeq(form, "&") {
		if !strings.Contains(pair, ";") {
			continue
		}
		for part := range strings.SplitSeq(pair, ";") {
			if key, _, _ := strings.Cut(part, "="); isEscaped(key, name) {
				return true
			}
		}
	}
	return false
}
