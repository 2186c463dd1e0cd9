package mcp

import (
	"bytes"
	"encoding/json"
)

// A Refusal is what the answers to refused messages say.
type Refusal struct {
	Code    int
	Message string // for the model
	Data    Data   // for the program
	Results bool   // calls of tools are answered with a result that has isError
}

// Data is the data of an error, or what a result has in _meta.
type Data struct {
	Rule       string `json:"rule,omitempty"`
	Limit      string `json:"limit,omitempty"` // as rules write it
	Remaining  *int64 `json:"remaining,omitempty"`
	Unit       string `json:"unit,omitempty"`        // as rules write it
	RetryAfter int64  `json:"retry_after,omitempty"` // whole seconds, rounded up; 0: no wait helps, or it is unknown
}

// Meta is the key of the Data in _meta of a result.
const Meta = "io.github.weirproject/refusal"

// Expects reports whether a message expects an answer. A body without such messages is refused by its status alone.
func (b *Body) Expects() bool {
	for i := range b.Messages {
		if b.Messages[i].ID != nil {
			return true
		}
	}
	return false
}

// Refuse is the answer to the body: to each request an error or a result with its id, in a list if the body is a list.
func (b *Body) Refuse(r *Refusal) []byte {
	var parts [][]byte
	for i := range b.Messages {
		if m := &b.Messages[i]; m.ID != nil {
			parts = append(parts, r.answer(m))
		}
	}
	switch {
	case len(parts) == 0:
		return r.answer(new(Message))
	case !b.Batch:
		return parts[0]
	}
	return append(append([]byte("["), bytes.Join(parts, []byte(","))...), ']')
}

// Body is the answer to a body with a problem.
func (p *Problem) Body() []byte {
	r := Refusal{Code: p.Code, Message: p.Text}
	return r.answer(&Message{ID: p.ID})
}

// answer is the answer to one message. The id is copied: JSON-RPC asks for the same value, and an encoder would write
// some numbers otherwise.
func (r *Refusal) answer(m *Message) []byte {
	text := []byte(`{"jsonrpc":"2.0",`)
	if m.ID != nil {
		text = append(append(append(text, `"id":`...), m.ID...), ',')
	}
	if r.Results && m.Method == methodCall {
		return append(append(append(text, `"result":`...), encoded(r.result())...), '}')
	}
	return append(append(append(text, `"error":`...), encoded(r.error())...), '}')
}

func (r *Refusal) error() any {
	e := struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    *Data  `json:"data,omitempty"`
	}{r.Code, r.Message, nil}
	if r.Data != (Data{}) {
		e.Data = &r.Data
	}
	return e
}

// result has its data in _meta: clients check structuredContent by the schema of the tool.
func (r *Refusal) result() any {
	type content struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	return struct {
		ResultType string          `json:"resultType"` // of revision 2026-07-28
		Content    []content       `json:"content"`
		IsError    bool            `json:"isError"`
		Meta       map[string]Data `json:"_meta"`
	}{"complete", []content{{"text", r.Message}}, true, map[string]Data{Meta: r.Data}}
}

func encoded(value any) []byte {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value) // of these types it does not fail
	return bytes.TrimSpace(buffer.Bytes())
}
