package rules

import (
	"cmp"
	"mime"
	"text/template"
)

// Fields says which header fields tell a client of its limits.
type Fields string

// The families of fields.
const (
	DraftFields    Fields = "draft"     // RateLimit-Policy and RateLimit of the IETF's draft 11
	SecondsFields  Fields = "seconds"   // X-RateLimit-Limit, -Remaining, -Reset in seconds from now
	UnixTimeFields Fields = "unix_time" // the same, with Reset in seconds since 1970
	NoFields       Fields = "none"
)

// The bodies that are no template.
const (
	ProblemBody = "problem" // application/problem+json
	JSONBody    = "json"    // {"code":429,"message":…,"retry_after":…}
)

// A Response says what a client is told, by its own fields where they are set, else by the
// file's, else by the defaults.
type Response struct {
	Status      int    // of a refusal, 400 to 599; 0 is 429
	Fields      Fields // "" is DraftFields
	Body        string // problem (also ""), json, or a text/template of a Refusal
	ContentType string // of a template's text; "" is text/plain; charset=utf-8

	// Template is Body, if that is one: Compile makes it, files leave it nil. What it
	// writes has a bound, which follows from its text and the Refusal.
	Template *template.Template
}

// A Refusal is what the template of a response's body is told.
type Refusal struct {
	Status     int
	RetryAfter int64    // whole seconds, rounded up, as in the header; 0: no wait helps
	Message    string   // the sentence that people are told, in Language
	Violated   []string // the names of the limits that refuse; none if a list does
	Language   string   // such as "en" or "zh"
}

// Response is what the rule's clients are told, with every field set; Template is nil
// unless Body is one.
func (r *Rule) Response() *Response { return r.response }

// responses are checked one by one, and then laid over each other.
func (b *builder) response(i int, s *Response) Response {
	checked := Response{Status: s.Status, ContentType: s.ContentType, Body: s.Body,
		Fields: word(b, at(i, "response.fields"), s.Fields, "", DraftFields, SecondsFields, UnixTimeFields, NoFields)}
	if s.Status != 0 && (s.Status < 400 || s.Status > 599) {
		b.add(at(i, "response.status"), "status is %d; allowed: 400 to 599, usually 429", s.Status)
	}
	body := at(i, "response.body")
	if len(s.Body) > MaxBody {
		b.add(body, "body has %d bytes; at most %d", len(s.Body), MaxBody)
		return checked
	}
	if s.Body != "" && s.Body != ProblemBody && s.Body != JSONBody {
		t, complaint := parseBody(s.Body)
		if complaint != "" {
			b.add(body, "body is neither %s nor %s, and as a template it is wrong: %s", ProblemBody, JSONBody, complaint)
		}
		checked.Template = t
	}
	b.contentType(at(i, "response.content_type"), s.ContentType)
	return checked
}

func (b *builder) contentType(p place, text string) {
	if text == "" {
		return
	}
	kind, parameters, err := mime.ParseMediaType(text)
	if err != nil || mime.FormatMediaType(kind, parameters) == "" || !isASCII(text) {
		b.add(p, "content_type is %.80q; allowed: a type such as text/html; charset=utf-8", text)
	}
}

// over lays a rule's response over the file's. A content type belongs to its body.
func (b *builder) over(i int, own, file Response) Response {
	own.Status = cmp.Or(own.Status, file.Status)
	own.Fields = cmp.Or(own.Fields, file.Fields)
	if own.Body == "" {
		own.Body, own.Template = file.Body, file.Template
		own.ContentType = cmp.Or(own.ContentType, file.ContentType)
	}
	if own.ContentType != "" && own.Template == nil && (own.Body == ProblemBody || own.Body == JSONBody) {
		b.add(at(i, "response.content_type"), "content_type is for a body that is a template; problem and json have their own")
	}
	return own
}

// defaults are under all: every field is set.
var defaults = Response{Status: 429, Fields: DraftFields, Body: ProblemBody}

// complete gives a response the type of its body.
func (r Response) complete() *Response {
	switch {
	case r.Body == ProblemBody:
		r.ContentType = "application/problem+json"
	case r.Body == JSONBody:
		r.ContentType = "application/json"
	case r.ContentType == "":
		r.ContentType = "text/plain; charset=utf-8"
	}
	return &r
}
