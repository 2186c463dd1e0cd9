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

// anyJSON reads any JSON value, as the caller wrote it.
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
	json    *rules.JSON    // its values; nil until a rule needs them
	fields  *webvalues.Body
	message *mcp.Body  // the body as a message, where rules expect one; else nil
	rules   *rules.Set // by which the message was read; nil: the rules in force decide
}

// absent reports whether the caller says, by null, that the request has no body.
func (b *body) absent() bool { return b.text.Kind() == 'n' }

// JSON has the values of the body. A body that the caller did not pass counts as one that was not read.
func (a *attributes) JSON() *rules.JSON {
	if a.body.json == nil {
		switch {
		case a.body.text == nil:
			a.body.json = rules.UnreadJSON(-1)
		case a.body.absent():
			a.body.json = a.set.ReadJSON(nil)
		default:
			a.body.json = a.set.ReadJSON(a.body.text)
		}
	}
	return a.body.json
}

// Body is the value of a field of the body.
func (a *attributes) Body(name string) string { return a.fields().Value(name) }

// Doubtful implements rules.Attributes. Only a field of the body can have several values.
func (a *attributes) Doubtful(kind, name string) bool {
	return kind == "body" && a.fields().Doubtful(name)
}

func (a *attributes) fields() *webvalues.Body {
	if a.body.fields == nil {
		switch {
		case a.body.text == nil || len(a.body.text) > webvalues.MaxBody:
			a.body.fields = webvalues.UnreadBody()
		case a.body.absent():
			a.body.fields = new(webvalues.Body)
		default:
			a.body.fields = webvalues.NewBody(webvalues.JSON, a.body.text, a.set.ServiceKind())
		}
	}
	return a.body.fields
}

// MCP is a part of the message; empty without a message.
func (a *attributes) MCP(part string) string {
	if a.body.message == nil {
		return ""
	}
	return a.body.message.Messages[0].Part(part)
}

// Messages has the message that a refusal answers: see httplimit.Respond.
func (a *attributes) Messages() *mcp.Body { return a.body.message }

// readMessage reads the body of a request as a message, if rules expect one. This API refuses a batch of messages,
// because each message is a request to decide.
func (c *call) readMessage(a *ask) error {
	set := c.api.gate.Rules()
	if a.attributes.set = set; !a.requested || !strings.EqualFold(a.request.Method, http.MethodPost) ||
		!set.ExpectsMessages(&a.request) {
		return nil
	}
	b := &a.attributes.body
	if b.text == nil || b.absent() {
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

// unread makes an error about a missing body name the member of the call that the caller left out.
func (a *ask) unread(err error) error {
	input, ok := err.(*weir.InputError)
	if !ok || !a.requested || a.attributes.body.text != nil || !strings.HasPrefix(input.Field, "body ") {
		return err
	}
	return web.Invalid(requestJSON, "missing", "the JSON body of the request, because a rule reads its "+
		strings.TrimPrefix(input.Field, "body ")+"; null if it has none", 0)
}

// price sets the actual cost of each charge that its rule settles by the JSON of the response. An error response
// without a cost costs 0.
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

// responseOf makes the response from the headers and the JSON that the caller passed.
func (c *call) responseOf(rule *rules.Rule) *rules.Answer {
	answer := rule.Answer()
	attributes := &c.last().attributes
	answer.Header, answer.Bytes = attributes.Header, int64(len(c.answered))
	body := answer.Body("application/json")
	body.Write(c.answered) // the reader takes the elements of a list for the events of a stream
	body.Close()
	return answer
}
