package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestMessagesOfBodies: what rules read of each message, or the code of its problem.
func TestMessagesOfBodies(t *testing.T) {
	deep := strings.Repeat("[", 600) + strings.Repeat("]", 600)
	for text, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search","arguments":{"name":"x"}}}`: "1 tools/call search",
		`{"id":"a","method":"tools/call","params":{"n\u0061me":"se\u0061rch"}}`:                              `"a" tools/call search`,
		`{"method":"notifications/initialized"}`:                                                             " notifications/initialized ",
		`{"id":1,"method":"resources/read","params":{"uri":"file:///a","name":"n"}}`:                         "1 resources/read ",
		`{"id":7,"result":{"method":"tools/call"}}`:                                                          "  ",
		`{"id":7,"error":{"code":1}}`:                                                                        "  ",
		` [{"id":1,"method":"ping"}, {"method":"tools/call","params":{"name":"a"}}]`:                         "1 ping  | tools/call a",
		`{"id":1,"method":"tools/list","params":[1]}`:                                                        "1 tools/list ",
		`{"id":1,"method":"x","Name":2,"params":{"Name":"a","name":"b","name":"c"}}`:                         "1 x ",

		``: "-32700", `5`: "-32600", `[]`: "-32600", `{}`: "-32600", `[5]`: "-32600", `[[{"id":1,"method":"ping"}]]`: "-32600",
		`{"id":1,"method":"ping"`: "-32700", `{"id":1,"method":"ping"}{"id":2,"method":"ping"}`: "-32700",
		"\ufeff" + `{"id":1,"method":"ping"}`: "-32700", `{"id":1,"method":"ping","x":` + deep + `}`: "-32700",
		"{\"id\":1,\"method\":\"\xff\"}": "-32700", `{"id":1,"method":"ping",}`: "-32700", `{'id':1,"method":"ping"}`: "-32700",
		`{"id":1,"method":5}`: "1 -32600", `{"id":1,"method":null,"result":1}`: "1 -32600", `{"id":1,"method":""}`: "1 -32600",
		`{"id":1,"method":"ping","method":"tools/call","params":{"name":"a"}}`:                 "1 -32600",
		`{"id":1,"method":"tools/call","method":"ping","params":{"name":"a"}}`:                 "1 -32600",
		`{"id":1,"method":"ping","METHOD":"tools/call","params":{"name":"a"}}`:                 "1 -32600",
		`{"id":1,"id":2,"method":"ping"}`:                                                      "2 -32600",
		`{"id":1,"method":"tools/call","params":{"name":"a","name":"b"}}`:                      "1 -32600",
		`{"id":1,"method":"tools/call","params":{"name":"a","Name":"b"}}`:                      "1 -32600",
		`{"id":1,"method":"tools/call","params":{"name":"a"},"params":{"name":"b"}}`:           "1 -32600",
		`{"id":1,"method":"tools/call","params":{"name":"a"},"Params":{"name":"b"}}`:           "1 -32600",
		`{"id":1,"method":"tools/call","params":{"name":"a\u0000"}}`:                           "1 -32600",
		`{"id":1,"method":"tools/call","params":{"name":"` + strings.Repeat("a", 1025) + `"}}`: "1 -32600",
		`{"id":1,"method":"tools/call","params":{"name":["a"]}}`:                               "1 -32602",
		`{"id":1,"method":"tools/call","params":["a"]}`:                                        "1 -32602",
		`{"id":1,"method":"tools/call"}`:                                                       "1 -32602",
		`[{"id":1,"method":"ping"},{"id":2,"method":"tools/call"}]`:                            "2 -32602",
		`[` + strings.Repeat(`{"method":"ping"},`, 100) + `{"method":"ping"}]`:                 "-32600",
	} {
		var parts []string
		body, problem := Read([]byte(text))
		if problem != nil {
			parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %d", problem.ID, problem.Code)))
		} else {
			for _, m := range body.Messages {
				parts = append(parts, fmt.Sprintf("%s %s %s", m.ID, m.Method, m.Tool))
			}
		}
		if got := strings.Join(parts, " |"); got != want {
			t.Errorf("%.200s:\n%q, want\n%q", text, got, want)
		}
	}
}

// TestHeaderSaysWhatTheBodySays: a field that differs is refused, in each of its lines; one that is missing is not.
func TestHeaderSaysWhatTheBodySays(t *testing.T) {
	const call, list = `{"id":1,"method":"tools/call","params":{"name":"a"}}`, `{"id":1,"method":"tools/list"}`
	const read = `{"id":1,"method":"resources/read","params":{"uri":"file:///ä"}}`
	for _, c := range []struct {
		body   string
		header http.Header
		agrees bool
	}{
		{call, nil, true}, {call, http.Header{"Mcp-Method": {"tools/call"}, "Mcp-Name": {"a"}}, true},
		{call, http.Header{"Mcp-Name": {" a\t"}}, true}, {call, http.Header{"Mcp-Name": {"=?base64?YQ==?="}}, true},
		{call, http.Header{"Mcp-Name": {"b"}}, false}, {call, http.Header{"Mcp-Name": {"A"}}, false},
		{call, http.Header{"Mcp-Name": {"a", "b"}}, false}, {call, http.Header{"Mcp-Name": {"a", "a"}}, true},
		{call, http.Header{"Mcp-Name": {""}}, false}, {call, http.Header{"Mcp-Name": {"=?base64?!?="}}, false},
		{call, http.Header{"Mcp-Method": {"tools/list"}}, false}, {call, http.Header{"Mcp-Method": {"=?base64?dG9vbHMvY2FsbA==?="}}, false},
		{list, http.Header{"Mcp-Method": {"tools/list"}, "Mcp-Name": {"x"}}, true}, {list, http.Header{"Mcp-Method": {"tools/call"}}, false},
		{read, http.Header{"Mcp-Name": {"=?base64?ZmlsZTovLy/DpA==?="}}, true}, {read, http.Header{"Mcp-Name": {"file:///b"}}, false},
		{`{"id":1,"result":{}}`, http.Header{"Mcp-Method": {"ping"}}, false},
		{`[` + call + `,` + call + `]`, http.Header{"Mcp-Method": {"tools/call"}, "Mcp-Name": {"a"}}, true},
		{`[` + call + `,` + list + `]`, http.Header{"Mcp-Method": {"tools/call"}}, false},
	} {
		body, problem := Read([]byte(c.body))
		if problem != nil {
			t.Fatal(problem)
		}
		problem = body.CheckHeader(c.header)
		if (problem == nil) != c.agrees {
			t.Errorf("%s with %v: %+v", c.body, c.header, problem)
		}
		if problem != nil && (problem.Code != -32020 || problem.Status != 400) {
			t.Errorf("%s with %v: %+v", c.body, c.header, problem)
		}
	}
}

// TestAnswersHaveTheIDs: of each JSON type, byte for byte; a batch has a list, and notifications have no answer.
func TestAnswersHaveTheIDs(t *testing.T) {
	remaining := int64(0)
	r := &Refusal{Code: 429, Message: `wait "<5>"`, Data: Data{Rule: "r", Limit: "5/1m", Remaining: &remaining, RetryAfter: 5}}
	const failed = `"error":{"code":429,"message":"wait \"<5>\"","data":{"rule":"r","limit":"5/1m","remaining":0,"retry_after":5}}}`
	const call = `{"id":ID,"method":"tools/call","params":{"name":"a"}}`
	for _, id := range []string{`1`, `-0`, `1.50`, `1e3`, `123456789012345678901234567890`, `"a"`, `"\u0061\/\ud83d\ude00"`, `""`, `null`, `true`,
		`[1, 2]`, `{"a": 1}`, `"` + strings.Repeat("x", 5000) + `"`} {
		body, problem := Read([]byte(strings.Replace(call, "ID", " "+id+" ", 1)))
		if problem != nil {
			t.Fatal(id, problem)
		}
		if got, want := string(body.Refuse(r)), `{"jsonrpc":"2.0","id":`+id+`,`+failed; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	for text, want := range map[string]string{
		`[{"id":1,"method":"a"},{"method":"n"},{"id":"b","method":"a"}]`: `[{"jsonrpc":"2.0","id":1,` + failed + `,{"jsonrpc":"2.0","id":"b",` + failed + `]`,
		`[{"id":1,"method":"a"}]`: `[{"jsonrpc":"2.0","id":1,` + failed + `]`,
		`{"method":"n"}`:          `{"jsonrpc":"2.0",` + failed,
	} {
		body, _ := Read([]byte(text))
		if got := string(body.Refuse(r)); got != want {
			t.Errorf("%s: got  %s\nwant %s", text, got, want)
		}
		if body.Expects() != strings.Contains(text, "id") {
			t.Errorf("%s: expects an answer: %t", text, body.Expects())
		}
	}
	r.Results = true
	body, _ := Read([]byte(`[{"id":1,"method":"tools/call","params":{"name":"a"}},{"id":2,"method":"ping"}]`))
	want := `[{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"wait \"<5>\""}],"isError":true,` +
		`"_meta":{"io.github.weirproject/refusal":{"rule":"r","limit":"5/1m","remaining":0,"retry_after":5}}}},{"jsonrpc":"2.0","id":2,` + failed + `]`
	if got := string(body.Refuse(r)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// FuzzRead: an accepted body has the same calls for parsers that take the last of two members, that take the first, and
// that ignore case; and each answer is JSON with the id.
func FuzzRead(f *testing.F) {
	for _, text := range []string{`{"id":1,"method":"tools/call","params":{"name":"a"}}`, `[{"method":"ping"},{"id":"x","method":"y"}]`,
		`{"id":1,"method":"ping","Method":"tools/call"}`, `{"method":"tools/call","params":{"name":"a","name":"b"}}`, `{"id":1e400,"result":{}}`,
		`{"params":{"n\u0061me":"a"},"method":"tools/call"}`, `{"ſ":1,"method":"ping","params":null}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		body, problem := Read(text)
		if problem != nil {
			if !json.Valid(problem.Body()) {
				t.Fatalf("%q: the answer is %q", text, problem.Body())
			}
			return
		}
		var documents []json.RawMessage
		if body.Batch {
			if err := json.Unmarshal(text, &documents); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
		} else {
			documents = []json.RawMessage{text}
		}
		if len(documents) != len(body.Messages) {
			t.Fatalf("%q has %d messages, and %d were read", text, len(documents), len(body.Messages))
		}
		for i, document := range documents {
			m := &body.Messages[i]
			var folded struct {
				Method any
				Params json.RawMessage
			}
			var name struct{ Name any }
			if err := json.Unmarshal(document, &folded); err != nil {
				t.Fatalf("%q: %v", document, err)
			}
			_ = json.Unmarshal(folded.Params, &name)
			method, _ := folded.Method.(string)
			if method != m.Method || m.Method == methodCall && name.Name != any(m.Tool) {
				t.Fatalf("%q calls %v %v, and %q %q was read", document, folded.Method, name.Name, m.Method, m.Tool)
			}
			if first, _ := firstOf(document, "method"); string(first) != "" {
				var text string
				if json.Unmarshal(first, &text); text != m.Method {
					t.Fatalf("%q has the method %q first, and %q was read", document, text, m.Method)
				}
			}
			if id, ok := firstOf(document, "id"); ok && m.Method != "" && !bytes.Equal(id, m.ID) {
				t.Fatalf("%q has the id %q, and %q was read", document, id, m.ID)
			}
		}
		if answer := body.Refuse(&Refusal{Code: 429}); !json.Valid(answer) {
			t.Fatalf("%q: the answer is %q", text, answer)
		}
	})
}

// firstOf is the first member of an object with a name.
func firstOf(object []byte, name string) (value json.RawMessage, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(object))
	if begin, _ := decoder.Token(); begin != json.Delim('{') {
		return nil, false
	}
	for decoder.More() {
		member, _ := decoder.Token()
		var value json.RawMessage
		if decoder.Decode(&value) != nil {
			return nil, false
		}
		if member == name {
			return value, true
		}
	}
	return nil, false
}
