package rules_test

import (
	"strings"
	"testing"

	"github.com/weirproject/weir/rules"
)

// posted are the attributes of a request with a JSON body.
type posted struct {
	attributes
	set  *rules.Set
	body string
}

func (p posted) JSON() *rules.JSON {
	if p.body == "(unread)" {
		return rules.UnreadJSON(2 << 20)
	}
	return p.set.ReadJSON([]byte(p.body))
}

// TestCostsOfBodies: the sum of what a request states, rounded up, or the stated outcome.
func TestCostsOfBodies(t *testing.T) {
	const (
		unstated = -1
		refused  = -2
	)
	for _, test := range []struct {
		cost, body string
		want       int64
	}{
		{"from: json.max_tokens", `{"max_tokens":50}`, 50},
		{"from: json.max_tokens", `{"max_tokens":0}`, 1},
		{"from: json.max_tokens", `{"max_tokens":1.2e1}`, 12},
		{"from: json.max_tokens", `{"max_tokens":"50"}`, 50},
		{"from: json.max_tokens", `{"max_tokens":"50.5"}`, 51},
		{"from: json.max_tokens", `{"max_tokens":"0x10"}`, unstated},
		{"from: json.max_tokens", `{"max_tokens":"1/2"}`, unstated},
		{"from: json.max_tokens", `{"max_tokens":"1.2.3"}`, unstated},
		{"from: json.max_tokens", `{"max_tokens":" 5"}`, unstated},
		{"from: json.max_tokens", `{"max_tokens":""}`, unstated},
		{"from: json.max_tokens", "\ufeff" + `{"max_tokens":50}`, 50},
		{"from: json.max_tokens", `{"max_tokens":50,"x":NaN}`, unstated},
		{"from: json.max_tokens", `{"max_tokens":-1}`, unstated},
		{"from: json.max_tokens", `{"max_tokens":1e400}`, refused},
		{"from: json.max_tokens", `{"max_tokens":` + strings.Repeat("9", 2000) + `}`, refused},
		{"settle: json.n, from: json.max_tokens or 5", `{"max_tokens":` + strings.Repeat("9", 2000) + `}`, 1000},
		{"settle: json.n, from: json.max_tokens or 5", `{"max_tokens":1e18}`, 1000},
		{"settle: json.n, from: json.max_tokens or 5", `{"max_tokens":-1e400}`, 5},
		{"settle: json.n, from: json.max_tokens or 5", `{"max_tokens":1` + strings.Repeat("0", 1022) + `e5}`, 1000},
		{"settle: json.n, from: json.max_tokens or 5", `{"max_tokens":1.` + strings.Repeat("0", 1022) + `e5}`, 1000},
		{"from: json.max_tokens", `{"max_tokens":1.` + strings.Repeat("0", 1022) + `e5}`, refused},
		{"from: json.max_tokens", `{"max_tokens":"5."}`, 5},
		{"from: json.max_tokens", `{"max_tokens":50,"max_tokens":60}`, 60},
		{"from: json.max_tokens", `{}`, unstated},
		{"from: json.max_tokens", `{"max_tokens":5`, unstated},
		{"from: json.max_tokens", ``, unstated},
		{"from: json.max_tokens", `(unread)`, unstated},
		{"from: json.max_tokens", `[{"max_tokens":50}]`, unstated},
		{"on_missing: deny, from: json.max_tokens", `{}`, refused},
		{"on_missing: deny, from: json.max_tokens", `(unread)`, refused},
		{"from: json.max_tokens", `{"max_tokens":1001}`, refused},
		{"settle: json.n, from: json.max_tokens", `{"max_tokens":1001}`, 1000},
		{"from: json.a or json.b or 7", `{"b":5}`, 5},
		{"from: json.a or json.b or 7", `{"b":5,"a":4}`, 4},
		{"from: json.a or json.b or 7", `{}`, 7},
		{"from: json.a or json.b or 7", `{"a":`, unstated},
		{"from: json.in + 4 * json.out", `{"in":3,"out":5}`, 23},
		{"from: json.in + 4*json.out", `{"out":5}`, 20},
		{"from: 0.1 * json.in + 0.2 * json.out", `{"in":3,"out":5}`, 2},   // 1.3
		{"from: 0.1 * json.in + 0.2 * json.out", `{"in":10,"out":10}`, 3}, // exactly
		{"from: 1000000 * json.usd", `{"usd":0.000123}`, 123},
		{"from: 0.25 * bytes", `{"a": "bcd"}`, 3},
		{"from: 0.25 * bytes(json.messages)", `{"messages":[{"content":"abcdefgh"}]}`, 6},
		{"from: 0.25 * bytes(json.prompt) + json.max_tokens", `{"prompt":"abcdefgh","max_tokens":10}`, 12},
		{"from: header.X-Tokens + json.n", `{"n":1}`, 8},
		{"from: 'max(json.a, json.b) or 7'", `{"a":5,"b":6}`, 6},
		{"from: 'max(json.a, json.b) or 7'", `{"b":6,"a":null}`, 6},
		{"from: 'max(json.a, json.b) or 7'", `{}`, 7},
		{"from: 'max(json.a, json.b) or 7'", `{"a":900,"A":1,"b":1}`, 7},
		{"from: json.n * json.a or 7", `{"a":5,"n":3}`, 15},
		{"from: json.n * json.a or 7", `{"n":3}`, 21},
		{"from: json.n * json.a or 7", `{"a":5,"n":0}`, 5},
		{"from: 2 * json.n * json.a", `{"a":5,"n":1.5}`, 15},
		{"from: json.n * json.a", `{"n":3}`, unstated},
		{"from: 0.25 * bytes(json)", `{"n":3}`, 2},
		{"from: 0.25 * bytes(json)", `{"n":3`, unstated},
		{"from: 0.25 * bytes(json)", `(unread)`, 1000},
		{"from: 0.25 * bytes(json)", ``, unstated},
		{"on_missing: deny, from: bytes(json)", `(unread)`, refused},
		{"from: bytes(json.choices.*.text)", `{"choices":[{"text":"abc"},{"text":"de"}]}`, 5},
	} {
		set := compiled(t, "rules: [{name: a, limit: 100000/1m, cost: {max: 1000, default: 9, "+test.cost+"}}]")
		r := &rules.Request{Attributes: posted{attributes{"header X-Tokens": "7"}, set, test.body}}
		got, stated, err := set.Rules()[0].CostOf(r)
		switch {
		case err != nil:
			got = refused
		case !stated && got == 9:
			got = unstated
		}
		if got != test.want {
			t.Errorf("%s of %.60s: %d (%v), want %d", test.cost, test.body, got, err, test.want)
		}
	}
}

// TestJSONSelectsAndCounts: values of the body are conditions and keys; a value that services read differently is an
// error, also where it would have avoided a rule.
func TestJSONSelectsAndCounts(t *testing.T) {
	set := compiled(t, `
rules:
  - {name: big, match: {path: /chat, json: {model: big}}, key: [json.user], limit: 5/1m}
  - {name: other, match: {path: /other}, limit: 5/1m}`)
	for body, want := range map[string]string{
		`{"model":"big","user":"ann"}`:                 "json.user=3:ann",
		`{"model":"big","user":7}`:                     "json.user=1:7",
		`{"model":"small","model":"big","user":"ann"}`: "json.user=3:ann",
		`{"model":"big","model":"small"}`:              "",
		`{"model":"small"}`:                            "",
		`{}`:                                           "",
		``:                                             "",
		`{"model":"small","Model":"big"}`:              "doubtful",
		`{"Model":"big"}`:                              "doubtful",
		`{"model":["big"]}`:                            "doubtful",
		`(unread)`:                                     "doubtful",
		`{"model":"big"`:                               "doubtful",
		`[{"model":"big"}]`:                            "doubtful",
		`{"model":"big","user":1.5}`:                   "doubtful",
		`{"model":"big","user":"\ud800"}`:              "doubtful",
	} {
		r := &rules.Request{Path: "/chat", Attributes: posted{attributes{}, set, body}}
		got := ""
		matched := set.Match(r, nil)
		rule, err := set.Doubt(r)
		if err != nil && rule.Name() != "big" {
			t.Errorf("%s: %v of %s", body, err, rule.Name())
		}
		if err == nil && len(matched) > 0 {
			key, _ := matched[0].AppendKey(nil, r)
			got, err = string(key), matched[0].Doubt(r)
		}
		if err != nil {
			got = "doubtful"
		}
		if got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
		if r.Path = "/other"; len(set.Match(r, nil)) != 1 {
			t.Errorf("%s: the other rule does not match", body)
		}
		if _, err := set.Doubt(r); err != nil {
			t.Errorf("%s: a rule that reads no body: %v", body, err)
		}
	}
}

// TestAnswers: the cost that a response states, in its header, body or events.
func TestAnswers(t *testing.T) {
	const unknown = -1
	const sse, openAI = "text/event-stream", "json.usage.prompt_tokens + json.usage.completion_tokens"
	for _, test := range []struct {
		settle, media, body string
		want                int64
	}{
		{"header.X-Used", "", "", 12}, {"header.X-Other", "", "", unknown}, {"bytes", "", "", 100}, {"0.1 * bytes + header.X-Used", "", "", 22},
		{openAI, "application/json", `{"usage":{"prompt_tokens":3,"completion_tokens":4}}`, 7},
		{openAI, "application/json", `{"usage":{"prompt_tokens":3,"completion_tokens":4}`, unknown}, // its end is missing
		{openAI, "application/json", `{"error":{}}`, unknown},
		{openAI, "text/html", `{"usage":{"prompt_tokens":3,"completion_tokens":4}}`, unknown},
		{openAI, sse, "data: {\"usage\":null}\n\ndata: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\ndata: [DONE]\n\n", 7},
		{"json.usage.in or json.message.usage.in + json.usage.out", sse,
			"data: {\"message\":{\"usage\":{\"in\":25}}}\n\ndata: {\"usage\":{\"out\":1}}\n\ndata: {\"usage\":{\"out\":15}}\n\n", 40},
		{"json.eval_count", "application/x-ndjson", "{\"a\":1}\n{\"eval_count\":9}\n", 9},
		{"bytes(json.text)", sse, "data: {\"text\":\"abc\"}\n\ndata: {\"text\":\"de\"}\n\n", 5},
	} {
		set := compiled(t, "rules: [{name: a, limit: 100/1m, cost: {settle: "+test.settle+"}}]")
		a := set.Rules()[0].Answer()
		a.Bytes, a.Header = 100, func(name string) string { return map[string]string{"X-Used": "12"}[name] }
		if body := a.Body(test.media); body != nil {
			body.Write([]byte(test.body))
			body.Close()
		}
		got, err := set.Rules()[0].Actual(a)
		if err != nil {
			got = unknown
		}
		if got != test.want {
			t.Errorf("%s of %s: %d (%v), want %d", test.settle, test.body, got, err, test.want)
		}
	}
}
