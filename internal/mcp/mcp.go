// Package mcp reads messages of the Model Context Protocol over HTTP (streamable HTTP, revisions 2025-03-26 to
// 2026-07-28), and makes the answers to refused messages.
package mcp

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"

	"github.com/weirproject/weir/internal/jsonvalues"
)

// Bounds of a body.
const (
	MaxBody     = 1 << 20 // bytes
	maxMessages = 100     // of a batch
)

// Codes of JSON-RPC and, the last one, of the Model Context Protocol.
const (
	ParseError     = -32700
	InvalidRequest = -32600
	InvalidParams  = -32602
	HeaderMismatch = -32020
)

// A Body is the messages of one request.
type Body struct {
	Messages []Message
	Batch    bool // they are a list, as in revision 2025-03-26, even if it is of one
}

// A Message is a request, a notification or a response of JSON-RPC.
type Message struct {
	ID     []byte // of a request, as it is written; nil: it has none
	Method string // "": a response
	Tool   string // that is called

	name string // what Mcp-Name mirrors
}

// Part is a part of the message that rules name: tool, or method.
func (m *Message) Part(part string) string {
	if part == "tool" {
		return m.Tool
	}
	return m.Method
}

// A Problem is why a body is not read as messages. It refuses the request.
type Problem struct {
	Code   int
	Text   string
	Status int    // of the response
	ID     []byte // of the message, if it has one
}

const methodCall = "tools/call"

// nameSources are the members of params that Mcp-Name mirrors, by method (SEP-2243, and SEP-2663 for tasks).
var nameSources = map[string]int{methodCall: inName, "prompts/get": inName, "resources/read": inURI,
	"resources/subscribe": inURI, "resources/unsubscribe": inURI, "tasks/get": inTask, "tasks/update": inTask,
	"tasks/cancel": inTask}

// The values of a message that are read.
const (
	inMethod = iota
	inID
	inResult
	inError
	inParams
	inName
	inURI
	inTask
)

var paths = func() *jsonvalues.Paths {
	p, err := jsonvalues.New("method", "id", "result", "error", "params", "params.name", "params.uri", "params.taskId")
	if err != nil {
		panic(err)
	}
	return p
}()

// Read reads a whole body. A body that servers may read differently is a Problem: such as two methods in one message,
// or a member in another case, which the parsers of Go and .NET take for the same.
func Read(text []byte) (*Body, *Problem) {
	b := &Body{Batch: bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("["))}
	var problem *Problem
	reader := paths.Reader()
	reader.Each = func(values []jsonvalues.Value) {
		if problem == nil {
			problem = b.add(text, values)
		}
	}
	_, err := reader.Write(text)
	if err == nil {
		err = reader.Close()
	}
	switch {
	case err != nil:
		return nil, invalid(ParseError, "the body is no JSON that this server reads")
	case problem != nil:
		return nil, problem
	case len(b.Messages) == 0:
		return nil, invalid(InvalidRequest, "the body has no message")
	}
	return b, nil
}

func invalid(code int, format string, args ...any) *Problem {
	return &Problem{Code: code, Text: fmt.Sprintf(format, args...), Status: http.StatusBadRequest}
}

// TooLarge is the Problem of a body with more than MaxBody bytes.
func TooLarge() *Problem {
	p := invalid(InvalidRequest, "the body is longer than %d bytes", MaxBody)
	p.Status = http.StatusRequestEntityTooLarge
	return p
}

// Unreadable is the Problem of a body that could not be read, or is compressed.
func Unreadable() *Problem { return invalid(ParseError, "the body is not plain JSON, or ended early") }

// add reads the values of one message.
func (b *Body) add(text []byte, values []jsonvalues.Value) *Problem {
	if len(b.Messages) == maxMessages {
		return invalid(InvalidRequest, "the batch has over %d messages", maxMessages)
	}
	var m Message
	if id := &values[inID]; id.Kind != jsonvalues.Missing {
		m.ID = id.In(text)
	}
	if p := m.read(values); p != nil {
		p.ID = m.ID
		return p
	}
	b.Messages = append(b.Messages, m)
	return nil
}

func (m *Message) read(values []jsonvalues.Value) *Problem {
	method := &values[inMethod]
	switch {
	case method.Twice || values[inID].Twice || method.Doubtful || method.Cut:
		return invalid(InvalidRequest, "method or id stands twice, perhaps in another case, or is too long")
	case method.Kind == jsonvalues.Text && len(method.Text) > 0:
		m.Method = string(method.Text)
	case method.Kind == jsonvalues.Missing && values[inResult].Kind+values[inError].Kind != jsonvalues.Missing:
		m.ID = nil // of a request of the server
		return nil
	default:
		return invalid(InvalidRequest, "the message has no method")
	}
	source, named := nameSources[m.Method]
	if !named {
		return nil
	}
	name := &values[source]
	if values[inParams].Twice || name.Twice || name.Doubtful || name.Cut {
		return invalid(InvalidRequest, "params or its name stands twice, perhaps in another case, or is too long")
	}
	if name.Kind == jsonvalues.Text {
		m.name = string(name.Text)
	}
	if m.Method != methodCall {
		return nil
	}
	if m.Tool = m.name; m.Tool == "" {
		return invalid(InvalidParams, "params.name is missing: the tool to call")
	}
	return nil
}

// CheckHeader compares the header with the messages, as revision 2026-07-28 asks of servers: a client must not be
// limited by other names than those that it is served by. A field that is missing is left to the server.
func (b *Body) CheckHeader(h http.Header) *Problem {
	for i := range b.Messages {
		m := &b.Messages[i]
		_, named := nameSources[m.Method]
		for field, value := range map[string]string{"Mcp-Method": m.Method, "Mcp-Name": m.name} {
			for _, line := range h[field] {
				if (named || field == "Mcp-Method") && plain(field, line) != value {
					p := invalid(HeaderMismatch, "Header mismatch: %s is %.200q, and the body has %.200q", field, line,
						value)
					p.ID = m.ID
					return p
				}
			}
		}
	}
	return nil
}

// plain is the value of a field without the encoding that Mcp-Name may have.
func plain(field, line string) string {
	line = strings.Trim(line, " \t")
	encoded, begins := strings.CutPrefix(line, "=?base64?")
	encoded, ends := strings.CutSuffix(encoded, "?=")
	if !begins || !ends || field != "Mcp-Name" {
		return line
	}
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return line
	}
	return string(text)
}
