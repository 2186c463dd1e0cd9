package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/weirproject/weir"
	"github.com/weirproject/weir/server/internal/web"
)

// problemOf converts an error. It hides errors of the store, which may contain its address.
func problemOf(err error) *web.Problem {
	var known *web.Problem
	var input *weir.InputError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &input):
		return web.InvalidInput(input)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return web.Refuse(http.StatusServiceUnavailable, "the request timed out before the store answered")
	}
	return web.Refuse(http.StatusServiceUnavailable,
		"the store did not answer; whether it carried out the operation is not known")
}

// appendString appends any bytes as JSON; invalid UTF-8 becomes U+FFFD.
func appendString(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c > '~' {
			b, _ = jsontext.AppendQuote(b, text) // its error is about UTF-8, which it has replaced
			return b
		}
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"')
}
