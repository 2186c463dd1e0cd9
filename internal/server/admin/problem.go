package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/rules"
)

// A problem is an error answer: application/problem+json (RFC 9457).
type problem struct {
	Type     string    `json:"type"`
	Title    string    `json:"title"`
	Status   int       `json:"status"`
	Detail   string    `json:"detail"`
	Current  *int64    `json:"current,omitzero"`  // the current revision; 0: there is none
	Mistakes []mistake `json:"mistakes,omitzero"` // of rules

	allow, authenticate string
}

// A mistake is one in a rule's text.
type mistake struct {
	Line    int    `json:"line,omitzero"`
	Column  int    `json:"column,omitzero"`
	Field   string `json:"field"`
	Message string `json:"message"`
}

// Error returns the detail.
func (p *problem) Error() string { return p.Detail }

func refusef(status int, format string, values ...any) *problem {
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: readable(fmt.Sprintf(format, values...))}
}

// problemOf converts an error. It hides errors of the store, which may contain its address.
func problemOf(err error) *problem {
	var known *problem
	var conflict *ledger.ConflictError
	var lost *ledger.LostError
	var wrong *rules.Error
	var input *weir.InputError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &conflict):
		p := refusef(http.StatusPreconditionFailed, "%s", conflict)
		p.Current = &conflict.Is
		return p
	case errors.Is(err, ledger.ErrForeign):
		return refusef(http.StatusForbidden, "%s", err)
	case errors.As(err, &lost):
		return refusef(http.StatusConflict, "%s", lost)
	case errors.As(err, &wrong):
		p := refusef(http.StatusUnprocessableEntity, "%s", wrong)
		for _, m := range wrong.Problems {
			p.Mistakes = append(p.Mistakes, mistake{m.Line, m.Column, m.Field, m.Message})
		}
		return p
	case errors.As(err, &input):
		return refusef(http.StatusUnprocessableEntity, "%s", input)
	case errors.Is(err, ledger.ErrNoRule), errors.Is(err, ledger.ErrNoException):
		return refusef(http.StatusNotFound, "%s", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return refusef(http.StatusServiceUnavailable,
			"the request timed out; read again whether a change was made")
	}
	return refusef(http.StatusServiceUnavailable,
		"the ledger or the store did not answer; the server's log has the reason. Read again whether a change was made")
}

func writeProblem(w http.ResponseWriter, err error) {
	p := problemOf(err)
	text, err := json.Marshal(p)
	if err != nil { // its texts are not UTF-8
		text = []byte(`{"type":"about:blank","status":` + strconv.Itoa(p.Status) + `}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if p.allow != "" {
		h.Set("Allow", p.allow)
	}
	if p.authenticate != "" {
		h.Set("WWW-Authenticate", p.authenticate)
	}
	if p.Current != nil && *p.Current > 0 {
		h.Set("ETag", fmt.Sprintf("%q", strconv.FormatInt(*p.Current, 10)))
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(text, '\n'))
}
