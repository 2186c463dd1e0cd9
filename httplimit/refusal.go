package httplimit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/requestid"
	"github.com/weirproject/weir/internal/rpcstatus"
	"github.com/weirproject/weir/internal/wording"
)

// A Refusal is the content of a refusal's body.
type Refusal struct {
	// Status is 429 (or the status of the options or of the rule) for an exceeded limit; 403 for a missing key with the
	// policy Deny, or for a list; 409 for a repeated request that a rule refuses; 503 if the store did not respond and
	// the policy is FailClosed, or if the request was canceled; 400 for a request that rules cannot read; 500 for
	// invalid input of the program.
	Status int
	// Exceeded reports whether a limit refused; otherwise RetryAfter to Rule are empty.
	Exceeded bool
	// RetryAfter is whole seconds, rounded up; -1 if waiting does not help.
	RetryAfter int64
	// Violated are the names of the limits that refused; with New, only the deciding one.
	Violated []string
	// Answer is the answer of the deciding limit.
	Answer weir.Answer
	// Rule is the name of the deciding rule, if any.
	Rule string
	// Label is the label of that rule, if it has one.
	Label string
	// Message is a sentence for people in Language: the rule's, or "en" or "zh" by Accept-Language. Language
	// is "" if the rule does not state it.
	Message, Language string
	// RequestID is the request's X-Request-Id, or the trace id of its traceparent; without a valid one it is made for
	// the refusal, which has it as X-Request-Id, so that a client can say which of its requests was refused.
	RequestID string

	say  wording.Text
	sent int // the status of the response, if it is not Status
}

// A Body makes the body of a refusal. If its language differs from the message's, it sets
// refusal.Language, which is sent as Content-Language unless empty.
type Body func(r *http.Request, refusal *Refusal) (contentType string, body []byte)

const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// Problem is application/problem+json (RFC 9457). For an exceeded limit it has the type
// quota-exceeded of the draft, with the names of the limits in violated-policies and the rule's
// label, if it has one; otherwise about:blank. Its instance ends with the id of the request.
func Problem(_ *http.Request, refusal *Refusal) (contentType string, body []byte) {
	problem := struct {
		Type     string   `json:"type"`
		Title    string   `json:"title"`
		Status   int      `json:"status"`
		Detail   string   `json:"detail"`
		Violated []string `json:"violated-policies,omitempty"`
		Label    string   `json:"label,omitempty"`
		Instance string   `json:"instance,omitempty"`
	}{"about:blank", wording.Title(refusal.Language, refusal.Status), refusal.Status, refusal.Message, refusal.Violated,
		refusal.Label, ""}
	if refusal.RequestID != "" {
		problem.Instance = requestid.Instance(refusal.RequestID)
	}
	if refusal.Exceeded {
		problem.Type, problem.Title = quotaExceeded, wording.Exceeds(refusal.Language)
	}
	return "application/problem+json", line(problem)
}

// PlainJSON is {"code":429,"message":"…","retry_after":12,"label":"…"}. retry_after is omitted if unknown, label if the
// rule has no label.
func PlainJSON(_ *http.Request, refusal *Refusal) (contentType string, body []byte) {
	plain := struct {
		Code       int    `json:"code"`
		Message    string `json:"message"`
		RetryAfter int64  `json:"retry_after,omitempty"`
		Label      string `json:"label,omitempty"`
	}{refusal.Status, refusal.Message, max(0, refusal.RetryAfter), refusal.Label}
	return "application/json", line(plain)
}

// line is a JSON line without HTML escaping, for readability.
func line(value any) []byte {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil { // impossible for these types
		return nil
	}
	return buffer.Bytes()
}

// Template makes bodies with a template of text/template or html/template; its data is a
// *Refusal. If it fails, the body is the message alone, as text.
func Template(contentType string, template interface{ Execute(io.Writer, any) error }) Body {
	return func(_ *http.Request, refusal *Refusal) (string, []byte) {
		var buffer bytes.Buffer
		if err := template.Execute(&buffer, refusal); err != nil {
			return "text/plain; charset=utf-8", []byte(refusal.Message + "\n")
		}
		return contentType, buffer.Bytes()
	}
}

// answer writes a refusal. It ignores write errors: the connection is gone. Frameworks that render errors themselves
// have a writer with a method Refuse, which reports whether it does so. The fields are in the header by then.
func (c *config) answer(w http.ResponseWriter, r *http.Request, refusal *Refusal, body Body) {
	refusal.Message, refusal.Language = refusal.say(r.Header["Accept-Language"])
	if refusal.RequestID == "" {
		refusal.RequestID = requestid.For(r.Header)
	}
	framework, ok := w.(interface{ Refuse(*Refusal) bool })
	h := w.Header()
	h.Set(requestid.Field, refusal.RequestID)
	h.Set("Cache-Control", "no-store")
	if refusal.Exceeded && refusal.RetryAfter > 0 {
		h.Set(fieldRetry, integer(refusal.RetryAfter))
	}
	if ok && framework.Refuse(refusal) {
		return
	}
	call := c.grpc && rpcstatus.Is(r)
	var text []byte
	if call {
		h.Add("Vary", "Accept-Language")
	} else {
		text = c.content(w, r, refusal, body)
	}
	if refusal.Language != "" {
		h.Set("Content-Language", refusal.Language)
	}
	if call {
		status := rpcstatus.Answer{Status: refusal.Status, Exceeded: refusal.Exceeded, Message: refusal.Message,
			Wait: refusal.Wait()}
		status.Write(w, r)
		return
	}
	w.WriteHeader(cmp.Or(refusal.sent, refusal.Status))
	w.Write(text)
}

// content is the body, which may set the language; nil is a Problem, or a page if the client prefers one.
func (c *config) content(w http.ResponseWriter, r *http.Request, refusal *Refusal, body Body) []byte {
	h := w.Header()
	switch {
	case body != nil || !c.pages:
		h.Add("Vary", "Accept-Language")
	case wording.Negotiate(h, r.Header):
		page := wording.Page{Status: refusal.Status, Message: refusal.Message, Language: refusal.Language,
			Wait: refusal.Wait(), RequestID: refusal.RequestID}
		return page.HTML(r.Header["Accept-Language"])
	}
	if body == nil {
		body = Problem
	}
	contentType, text := body(r, refusal)
	h.Set("Content-Type", contentType)
	return text
}

// unavailable responds 503 without Retry-After, because the duration is unknown.
func (c *config) unavailable(w http.ResponseWriter, r *http.Request) {
	c.answer(w, r, &Refusal{Status: http.StatusServiceUnavailable, say: wording.Undecided}, c.body)
}

// Wait is RetryAfter as a duration; 0 if waiting does not help.
func (r *Refusal) Wait() time.Duration { return time.Duration(max(0, r.RetryAfter)) * time.Second }
