package rules

import (
	"cmp"
	"mime"

	"github.com/weirproject/weir/internal/bounds"
)

// A Response describes refusals. An unset field has the file's value, or else the default.
type Response struct {
	Status int // 400 to 599; 0 is 429
	// Fields are the header fields that describe limits: "draft", RateLimit-Policy and RateLimit of the IETF's
	// draft 11; "seconds", X-RateLimit-Limit, -Remaining, -Reset in seconds from now; "unix_time", the same,
	// with the reset in seconds since 1970; or "none". "" is "draft".
	Fields string
	// Body is "problem", which is application/problem+json, "json", which is {"code":429,"message":…}, or any
	// other text, with placeholders: see Rule.Body. "" is "problem", or a page for clients who prefer one.
	Body        string
	ContentType string // of a text; "" is text/plain; charset=utf-8
	// Shape is "mcp" for an answer to a message of the Model Context Protocol, "openai", "anthropic", "gemini" or
	// "ollama" for an error of that API, or "problem", in place of Body; "" is Body.
	Shape string
	As    string // of Shape: "error", as also "", or "result", which calls of tools are answered with
}

const (
	shapeMCP       = "mcp"
	shapeOpenAI    = "openai"
	shapeAnthropic = "anthropic"
	shapeGemini    = "gemini"
	shapeOllama    = "ollama"
	shapeProblem   = "problem"
)

var (
	shapes = []string{"", shapeMCP, shapeOpenAI, shapeAnthropic, shapeGemini, shapeOllama, shapeProblem}

	mcpAnswers = []string{"", "error", "result"}
)

// headerFields are the words of fields; "" stands for the file's word.
var headerFields = []string{"", "draft", "seconds", "unix_time", "none"}

// A response is a checked Response.
type response struct {
	Response
	text     bodyText // nil unless Body is a text
	messages int      // see MessageStatus
}

// Response is the rule's response, with every field set but Body, if neither the rule nor the file has one.
func (r *Rule) Response() *Response { return &r.response.Response }

// MessageStatus is the status of an answer of the shape mcp: 200, since programs that speak it read no other answer,
// unless the rule or the file states another.
func (r *Rule) MessageStatus() int { return r.response.messages }

// response checks one response; over combines them.
func (b *builder) response(i int, s *Response) response {
	checked := response{Response: Response{Status: s.Status, ContentType: s.ContentType, Body: s.Body,
		Fields: word(b, at(i, "response.fields"), s.Fields, headerFields),
		Shape:  word(b, at(i, "response.shape"), s.Shape, shapes), As: word(b, at(i, "response.as"), s.As, mcpAnswers)}}
	if s.Shape != "" && s.Body != "" {
		b.add(at(i, "response.shape"), "shape does not go with body: the answer has one form")
	}
	if s.Status != 0 && (s.Status < 400 || s.Status > 599) {
		b.add(at(i, "response.status"), "status is %d; allowed: 400 to 599, usually 429", s.Status)
	}
	body := at(i, "response.body")
	if len(s.Body) > bounds.Body {
		b.add(body, "body has %d bytes; at most %d", len(s.Body), bounds.Body)
		return checked
	}
	if s.Body != "" && s.Body != "problem" && s.Body != "json" {
		text, complaint := parseBody(s.Body)
		if complaint != "" {
			b.add(body, "body is neither problem nor json, and as a template it is wrong: %s", complaint)
		}
		checked.text = text
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

// over replaces fields of the file's response by the fields of a rule's response. A content type belongs to its body.
func (b *builder) over(i int, own, file response) response {
	own.Status = cmp.Or(own.Status, file.Status)
	own.Fields = cmp.Or(own.Fields, file.Fields)
	own.As = cmp.Or(own.As, file.As)
	if own.Body == "" {
		own.Shape = cmp.Or(own.Shape, file.Shape)
	}
	if own.Body == "" && own.Shape == "" {
		own.Body, own.text = file.Body, file.text
		own.ContentType = cmp.Or(own.ContentType, file.ContentType)
	}
	if own.ContentType != "" && (own.Body == "" || own.Body == "problem" || own.Body == "json") {
		b.add(at(i, "response.content_type"), "content_type is for a body that is a template; problem and json have "+
			"their own")
	}
	return own
}

// defaults has every field set whose default does not depend on others.
var defaults = response{Response: Response{Fields: "draft"}}

// complete sets the status, and the content type of the body.
func (r response) complete() *response {
	r.messages, r.Status = cmp.Or(r.Status, 200), cmp.Or(r.Status, 429)
	switch {
	case r.Body == "" || r.Body == "problem":
		r.ContentType = "application/problem+json"
	case r.Body == "json":
		r.ContentType = "application/json"
	case r.ContentType == "":
		r.ContentType = "text/plain; charset=utf-8"
	}
	return &r
}
