package httplimit

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/weirproject/weir"
)

// A Refusal is what a body is made of.
type Refusal struct {
	// Status is of the answer: 429 (or WithStatus, or the rule's) where a limit refused; 403
	// where the request had no key and the policy is Deny, or a list denies it; 503 where the
	// store did not answer and the policy is FailClosed, or the request's context was over;
	// 400 where rules could not read the request; 500 where the input was wrong.
	Status int
	// Exceeded reports whether a limit refused; otherwise the fields below are empty.
	Exceeded bool
	// RetryAfter is whole seconds, rounded up; -1 says that no wait helps.
	RetryAfter int64
	// Violated are the names of the limits that refused. Middleware made by New knows only
	// the one that decided.
	Violated []string
	// Answer is of the limit that decided.
	Answer weir.Answer
	// Rule is the name of the rule that decided, if rules did.
	Rule string
	// Label is the label of that rule, if it has one.
	Label string
	// Message is a sentence for people, in Language: "en" or "zh", by Accept-Language.
	Message, Language string

	say message
}

// A Body makes the body of a refusal. One in another language than the message's says so
// by changing refusal.Language, which is sent as Content-Language unless it is empty.
type Body func(r *http.Request, refusal *Refusal) (contentType string, body []byte)

const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// Problem is application/problem+json (RFC 9457) of the type quota-exceeded of the draft,
// with the names of the limits in violated-policies, and the rule's label if it has one. What no
// limit refused is about:blank.
func Problem(_ *http.Request, refusal *Refusal) (contentType string, body []byte) {
	problem := struct {
		Type     string   `json:"type"`
		Title    string   `json:"title"`
		Status   int      `json:"status"`
		Detail   string   `json:"detail"`
		Violated []string `json:"violated-policies,omitempty"`
		Label    string   `json:"label,omitempty"`
	}{"about:blank", titleOf(refusal.Language, refusal.Status), refusal.Status, refusal.Message, refusal.Violated, refusal.Label}
	if refusal.Exceeded {
		problem.Type, problem.Title = quotaExceeded, titleExceeded(refusal.Language)
	}
	return "application/problem+json", line(problem)
}

// PlainJSON is {"code":429,"message":"…","retry_after":12,"label":"…"}. retry_after is left out where
// no wait helps, label where the rule has none.
func PlainJSON(_ *http.Request, refusal *Refusal) (contentType string, body []byte) {
	plain := struct {
		Code       int    `json:"code"`
		Message    string `json:"message"`
		RetryAfter int64  `json:"retry_after,omitempty"`
		Label      string `json:"label,omitempty"`
	}{refusal.Status, refusal.Message, max(0, refusal.RetryAfter), refusal.Label}
	return "application/json", line(plain)
}

// line is JSON for people too: "<" is left as it is.
func line(value any) []byte {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil { // not of these values
		return nil
	}
	return buffer.Bytes()
}

// Template is a body made by a template of text/template or html/template, which sees a
// *Refusal. Where it fails, the body is the message alone, as text.
func Template(contentType string, template interface{ Execute(io.Writer, any) error }) Body {
	return func(_ *http.Request, refusal *Refusal) (string, []byte) {
		return execute(template, contentType, refusal, refusal)
	}
}

// execute is the body that a template makes of data, or where it fails the message.
func execute(template interface{ Execute(io.Writer, any) error }, contentType string, refusal *Refusal, data any) (string, []byte) {
	var buffer bytes.Buffer
	if err := template.Execute(&buffer, data); err != nil {
		return "text/plain; charset=utf-8", []byte(refusal.Message + "\n")
	}
	return contentType, buffer.Bytes()
}

// refuse answers for a limit that refused.
func (l *limiting) refuse(w http.ResponseWriter, r *http.Request, v *verdict) {
	refusal := exceeded(w.Header(), l.status, v.answer)
	for i := range v.checks {
		if v.checks[i].decision.RetryAfter != 0 {
			refusal.Violated = append(refusal.Violated, v.checks[i].limit.Name())
		}
	}
	answer(w, r, refusal, l.body)
}

// exceeded is the refusal of a limit, and sets Retry-After.
func exceeded(h http.Header, status int, decided weir.Answer) *Refusal {
	refusal := &Refusal{Status: status, Exceeded: true, Answer: decided, RetryAfter: -1, say: never}
	if decided.RetryAfter != weir.Never {
		// At least 1: 0 would be read as "at once" by whom there is no room for.
		refusal.RetryAfter, refusal.say = max(1, seconds(decided.RetryAfter)), later
		h.Set(fieldRetry, integer(refusal.RetryAfter))
	}
	return refusal
}

// answer writes a refusal. Errors of writing are the connection's end: nobody is there to
// be told.
func answer(w http.ResponseWriter, r *http.Request, refusal *Refusal, body Body) {
	refusal.Language = language(r.Header["Accept-Language"])
	refusal.Message = refusal.say(refusal.Language, refusal.RetryAfter)
	contentType, text := body(r, refusal)
	h := w.Header()
	h.Set("Content-Type", contentType)
	if refusal.Language != "" {
		h.Set("Content-Language", refusal.Language)
	}
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(refusal.Status)
	w.Write(text)
}

// unavailable answers for whoever cannot be served now, and no one knows how long.
func (c *config) unavailable(w http.ResponseWriter, r *http.Request) {
	answer(w, r, &Refusal{Status: http.StatusServiceUnavailable, say: undecided}, c.body)
}

// Wait is RetryAfter as a duration; 0 where no wait helps.
func (r *Refusal) Wait() time.Duration { return time.Duration(max(0, r.RetryAfter)) * time.Second }
