package rules

import (
	"cmp"
	"mime"
	"text/template"
)

// Fields is the family of header fields that describe limits to clients.
type Fields string

// The families of fields.
const (
	DraftFields    Fields = "draft"     // RateLimit-Policy and RateLimit of the IETF's draft 11
	SecondsFields  Fields = "seconds"   // X-RateLimit-Limit, -Remaining, -Reset in seconds from now
	UnixTimeFields Fields = "unix_time" // the same, with Reset in seconds since 1970
	NoFields       Fields = "none"
)

// The bodies that are not templates.
const (
	ProblemBody = "problem" // application/problem+json
	JSONBody    = "json"    // {"code":429,"message":…,"retry_after":…}
)

// A Response describes refusals. An unset field has the file's value, or else the default.
type Response struct {
	Status      int    // 400 to 599; 0 is 429
	Fields      Fields // "" is DraftFields
	Body        string // problem (also ""), json, or a text/template of a Refusal
	ContentType string // of a template's text; "" is text/plain; charset=utf-8

	// Template is the parsed Body; Compile sets it, files leave it nil. Its output is bounded by its text and
	// the Refusal.
	Template *template.Template
}

// A Refusal is the input of the template of a response's body.
type Refusal struct {
	Status     int
	RetryAfter int64    // whole seconds, rounded up, as in the header; 0: no wait helps
	Message    string   // a sentence for people, in Language
	Violated   []string // names of the limits that refuse; none for a list
	Language   string   // such as "en" or "zh"
}

// Response is the rule's response, with every field set; Template is nil unless Body is one.
func (r *Rule) Response() *Response { return r.response }

// response checks one response; over combines them.
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
			b.add(body, "body is neither %s nor %s, and as a template it is wrong: %s", ProblemBody, JSONBody,
				complaint)
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

// over replaces the fields of the file's response by those of a rule. A content type belongs to its body.
func (b *builder) over(i int, own, file Response) Response {
	own.Status = cmp.Or(own.Status, file.Status)
	own.Fields = cmp.Or(own.Fields, file.Fields)
	if own.Body == "" {
		own.Body, own.Template = file.Body, file.Template
		own.ContentType = cmp.Or(own.ContentType, file.ContentType)
	}
	if own.ContentType != "" && own.Template == nil && (own.Body == ProblemBody || own.Body == JSONBody) {
		b.add(at(i, "response.content_type"), "content_type is for a body that is a template; problem and json have "+
			"their own")
	}
	return own
}

// defaults has every field set.
var defaults = Response{Status: 429, Fields: DraftFields, Body: ProblemBody}

// complete sets the content type of the body.
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
