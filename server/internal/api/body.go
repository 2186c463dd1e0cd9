package api

import (
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/mcp"
	"github.com/weirproject/weir/internal/webvalues"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/web"
)

// The JSON bodies of requests and responses, which callers pass.

// any reads a value of JSON as it is written.
func anyJSON(into func(*call) *jsontext.Value) reader {
	return reader{schema: web.Schema{}, read: func(c *call) error {
		value, err := c.json.ReadValue()
		if err != nil {
			return c.syntax(err)
		}
		*into(c) = value.Clone()
		return nil
	}}
}

// A body is the JSON body of a request.
type body struct {
	text    jsontext.Value // nil: the caller did not pass it
	json    *rules.JSON    // nil: no rule has needed it
	fields  *webvalues.Body
	message *mcp.Body  // of a place where rules expect one; nil: none
	rules   *rules.Set // that were asked about the place; nil: those in force
}

// none reports whether the request has no body.
func (b *body) none() bool { return b.text.Kind() == 'n' }

// JSON has the values of the body. One that is not passed is as one that is not read.
func (a *attributes) JSON() *rules.JSON {
	if a.body.json == nil {
		switch {
		case a.body.text == nil:
			a.body.json = rules.UnreadJSON(-1)
		case a.body.none():
			a.body.json = a.set.ReadJSON(nil)
		default:
			a.body.json = a.set.ReadJSON(a.body.text)
		}
	}
	return a.body.json
}

// Body is a field of the body.
func (a *attributes) Body(name string) string { return a.fields().Value(name) }

// Doubtful implements rules.Attributes: all but the body has one value by each name.
func (a *attributes) Doubtful(kind, name string) bool {
	return kind == "body" && a.fields().Doubtful(name)
}

func (a *attributes) fields() *webvalues.Body {
	if a.body.fields == nil {
		switch {
		case a.body.text == nil || len(a.body.text) > webvalues.MaxBody:
			a.body.fields = webvalues.UnreadBody()
		case a.body.none():
			a.body.fields = new(webvalues.Body)
		default:
			a.body.fields = webvalues.NewBody(webvalues.JSON, a.body.text, a.set.ServiceKind())
		}
	}
	return a.body.fields
}

// MCP is a part of the message.
func (a *attributes) MCP(part string) string {
	if a.body.message == nil {
		return ""
	}
	return a.body.message.Messages[0].Part(part)
}

// Messages are what a refusal answers: see httplimit.Respond.
func (a *attributes) Messages() *mcp.Body { return a.body.message }

// readMessage reads the body of a request as a message, if rules expect one. A batch would be several requests that are
// decided as one, which this API does not do.
func (c *call) readMessage(a *ask) error {
	set := c.api.gate.Rules()
	if a.attributes.set = set; !a.requested || !strings.EqualFold(a.request.Method, http.MethodPost) ||
		!set.ExpectsMessages(&a.request) {
		return nil
	}
	b := &a.attributes.body
	if b.text == nil || b.none() {
		return c.invalid(requestJSON, "missing", "a message of the Model Context Protocol, which a rule is about")
	}
	messages, problem := mcp.Read(b.text)
	if problem == nil {
		problem = messages.CheckHeader(canonical(a.attributes.headers))
	}
	switch {
	case problem != nil:
		return c.invalid(requestJSON, problem.Text, "a message of the Model Context Protocol")
	case messages.Batch:
		return c.invalid(requestJSON, "a list", "one message; ask about each of them")
	}
	b.message, b.rules = messages, set
	return nil
}

const requestJSON = "request.json"

// unread names the member where a rule needs a body that the caller did not pass.
func (a *ask) unread(err error) error {
	input, ok := err.(*weir.InputError)
	if !ok || !a.requested || a.attributes.body.text != nil || !strings.HasPrefix(input.Field, "body ") {
		return err
	}
	return web.Invalid(requestJSON, "missing", "the JSON body of the request, because a rule reads its "+
		strings.TrimPrefix(input.Field, "body ")+"; null if it has none", 0)
}

// price states the actual costs of the charges whose rules read it from the JSON of the response. An error of the
// service that does not state it costs nothing.
func (c *call) price(receipt gate.Receipt) error {
	var answer *rules.Answer
	for i := range receipt {
		charged := &receipt[i]
		if charged.Rule == nil || !charged.Rule.Settles() {
			continue
		}
		if _, read := charged.Rule.SettlesBy(); !read {
			continue
		}
		if answer == nil {
			answer = c.responseOf(charged.Rule)
		}
		units, err := charged.Rule.Actual(answer)
		if err != nil && c.response < http.StatusBadRequest {
			return web.Invalid("json", "without the actual cost", charged.Rule.Settle()+", by which rule "+
				charged.Rule.Name()+" settles; or actual in place of it", 0)
		}
		charged.Actual = &units
	}
	return nil
}

// responseOf is the response that the caller describes.
func (c *call) responseOf(rule *rules.Rule) *rules.Answer {
	answer := rule.Answer()
	attributes := &c.last().attributes
	answer.Header, answer.Bytes = attributes.Header, int64(len(c.answered))
	body := answer.Body("application/json")
	body.Write(c.answered) // a list of events is read as they are, one after the other
	body.Close()
	return answer
}
