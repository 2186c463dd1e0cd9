package web

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/weirproject/weir"
)

// A Problem is an error answer: application/problem+json (RFC 9457).
type Problem struct {
	Type   string `json:"type" enum:"about:blank|https://iana.org/assignments/http-problem-types#quota-exceeded"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail" doc:"A sentence for people."`
	// Of one wrong value of the request.
	Field   string `json:"field,omitzero" doc:"The wrong value's place: requests[2].claims[0].cost."`
	Value   string `json:"value,omitzero" doc:"The wrong value as JSON, shortened."`
	Allowed string `json:"allowed,omitzero" doc:"The allowed values."`
	Offset  int64  `json:"offset,omitzero" min:"1" doc:"The place of the mistake: bytes into the body."`
	// Of a limit on callers.
	Violated []string `json:"violated-policies,omitzero" doc:"The limits that are exceeded."`
	Instance string   `json:"instance,omitzero" doc:"The id of the request, as a URI: urn:weir:request:ID."`
	// Of a conflict.
	Current *int64 `json:"current,omitzero" doc:"The current revision; 0: it does not exist."`

	Mistakes []Mistake `json:"mistakes,omitzero" doc:"The mistakes in rules."`

	allow, authenticate string
}

// A Mistake is one in the text of rules.
type Mistake struct {
	File    string `json:"file,omitzero"`
	Line    int    `json:"line,omitzero"`
	Column  int    `json:"column,omitzero"`
	Field   string `json:"field,omitzero"`
	Message string `json:"message"`
}

// Error returns the detail.
func (p *Problem) Error() string { return p.Detail }

// Refuse returns a problem with its sentence.
func Refuse(status int, format string, values ...any) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: strings.ToValidUTF8(fmt.Sprintf(format, values...), "\uFFFD")}
}

// Invalid returns the problem of one wrong value at an offset of the body; 0: it is not in the body.
func Invalid(field, value, allowed string, offset int64) *Problem {
	p := Refuse(http.StatusBadRequest, "%s is %s; allowed: %s", field, value[:min(len(value), 80)], allowed)
	p.Field, p.Value, p.Allowed, p.Offset = field, Shorten(value), allowed, max(offset, 0)
	return p
}

// InvalidInput is Invalid for an error of the rules or limits.
func InvalidInput(err *weir.InputError) *Problem {
	value := fmt.Sprint(err.Given)
	if text, ok := err.Given.(string); ok {
		value = strconv.Quote(text)
	}
	return Invalid(err.Field, value, err.Allowed, 0)
}

// Shorten shortens a text for a sentence.
func Shorten(text string) string {
	const most = 200
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

// Header values that all answers share. net/http does not write to them.
var (
	typeProblem = []string{"application/problem+json"}
	noSniff     = []string{"nosniff"}
	noStore     = []string{"no-store"}
)

// JSON returns the problem as a JSON object. Bytes that are not UTF-8 become U+FFFD.
func (p *Problem) JSON() []byte {
	text, _ := json.Marshal(p, jsontext.AllowInvalidUTF8(true)) // nothing else of these types can fail
	return text
}

// Write answers a request with the problem.
func (p *Problem) Write(w http.ResponseWriter) {
	h := w.Header()
	h["Content-Type"], h["X-Content-Type-Options"], h["Cache-Control"] = typeProblem, noSniff, noStore
	if p.allow != "" {
		h.Set("Allow", p.allow)
	}
	if p.authenticate != "" {
		h.Set("WWW-Authenticate", p.authenticate)
	}
	if p.Current != nil && *p.Current > 0 {
		h.Set("ETag", ETag(*p.Current))
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(p.JSON(), '\n')) // an error means that the connection is gone
}

// ETag returns a revision as an entity tag.
func ETag(revision int64) string { return `"` + strconv.FormatInt(revision, 10) + `"` }

// NotAllowed refuses the method of a request.
func NotAllowed(r *http.Request, allow string) *Problem {
	p := Refuse(http.StatusMethodNotAllowed, "method is %.20q; allowed: %s", r.Method, allow)
	p.allow = allow
	return p
}
