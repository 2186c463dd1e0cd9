package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/weirproject/weir"
)

// A problem is an answer that is no decision: application/problem+json (RFC 9457). Field,
// value and allowed are those of a weir.InputError, where there is one.
type problem struct {
	status                int
	detail                string
	field, value, allowed string
	offset                int64 // bytes into the body; −1: not of the body
	allow, authenticate   string
}

// Error is the sentence for people.
func (p *problem) Error() string { return p.detail }

// invalid says what is wrong with one value of the document.
func invalid(field, value, allowed string, offset int64) *problem {
	shown := value
	if len(shown) > 80 {
		shown = shown[:80]
	}
	return &problem{status: http.StatusBadRequest, field: field, value: value, allowed: allowed, offset: offset,
		detail: fmt.Sprintf("%s is %s; allowed: %s", field, shown, allowed)}
}

// problemOf says what an error is to the caller. What the store said stays here: it may
// name its address.
func problemOf(err error) *problem {
	var known *problem
	var input *weir.InputError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &input):
		value := fmt.Sprint(input.Given)
		if text, ok := input.Given.(string); ok {
			value = strconv.Quote(text)
		}
		return invalid(input.Field, value, input.Allowed, -1)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &problem{status: http.StatusServiceUnavailable, detail: "the request's time was over before the store answered", offset: -1}
	}
	return &problem{status: http.StatusServiceUnavailable, detail: "the store did not answer; whether it did what was asked is not known", offset: -1}
}

// Header values that are shared by all answers. net/http does not write to them.
var (
	typeJSON    = []string{"application/json"}
	typeProblem = []string{"application/problem+json"}
	noSniff     = []string{"nosniff"}
	noStore     = []string{"no-store"}
)

// writeProblem answers with an error. Errors of writing are the connection's end.
func writeProblem(w http.ResponseWriter, err error) {
	p := problemOf(err)
	h := w.Header()
	h["Content-Type"], h["X-Content-Type-Options"], h["Cache-Control"] = typeProblem, noSniff, noStore
	if p.allow != "" {
		h.Set("Allow", p.allow)
	}
	if p.authenticate != "" {
		h.Set("WWW-Authenticate", p.authenticate)
	}
	w.WriteHeader(p.status)
	w.Write(append(p.append(nil), '\n'))
}

func (p *problem) append(b []byte) []byte {
	b = append(b, `{"type":"about:blank","title":`...)
	b = appendString(b, http.StatusText(p.status))
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(p.status), 10)
	b = append(b, `,"detail":`...)
	b = appendString(b, p.detail)
	if p.field != "" {
		b = append(b, `,"field":`...)
		b = appendString(b, p.field)
		b = append(b, `,"value":`...)
		b = appendString(b, cut(p.value))
		b = append(b, `,"allowed":`...)
		b = appendString(b, p.allowed)
	}
	if p.offset > 0 {
		b = append(b, `,"offset":`...)
		b = strconv.AppendInt(b, p.offset, 10)
	}
	return append(b, '}')
}

// cut shortens what is only shown.
func cut(text string) string {
	const most = 200
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

// appendString writes any bytes as JSON: what is not UTF-8 becomes U+FFFD.
func appendString(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c > '~' {
			b, _ = jsontext.AppendQuote(b, text) // its error is that of UTF-8, which it has mended
			return b
		}
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"')
}
