package rules_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/weirproject/weir/rules"
)

// message has the parts of a message of the Model Context Protocol.
type message struct {
	attributes
	method, tool string
}

func (m message) MCP(part string) string {
	if part == "method" {
		return m.method
	}
	return m.tool
}

// TestPresetMCPExpands: each field that the preset stands for, and none that the rule has.
func TestPresetMCPExpands(t *testing.T) {
	for text, want := range map[string]string{
		"match: {path: /mcp}":                                                       "[tools/call prompts/get resources/read] mcp",
		"match: {path: /mcp}, key: [client.ip, mcp.tool]":                           "[tools/call] mcp",
		"match: {path: /mcp, mcp: {tool: [a]}}":                                     "[tools/call] mcp",
		"match: {path: /mcp, any: [{mcp: {tool: a}}, {regex: {mcp: {tool: b.*}}}]}": "[tools/call] mcp",
		"match: {path: /mcp}, cost: {by: mcp.tool trim, each: {a: 1}}":              "[tools/call prompts/get resources/read] mcp",
		"match: {path: /mcp}, allow: {mcp.tool: free}":                              "[tools/call prompts/get resources/read] mcp",
		"match: {path: /mcp, mcp: {method: tools/list}}":                            "[tools/list] mcp",
		"match: {path: /mcp, mcp: {method: '*'}}, response: {body: json}":           "[*] ",
	} {
		file, err := rules.Parse("f", []byte("rules: [{name: a, preset: mcp, limit: 1/1s, "+text+"}]"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		spec := file.Rules[0].Expanded()
		if got := fmt.Sprint(spec.Match.MCP.Method, " ", spec.Response.Shape); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestRulesMatchMessages: by method and tool, exactly or by an expression; a request that is no message meets none.
func TestRulesMatchMessages(t *testing.T) {
	set := loaded(t, `rules:
- {name: all, preset: mcp, match: {path: /mcp}, limit: 1/1s}
- {name: writes, preset: mcp, match: {path: /mcp, mcp: {tool: [put, drop]}}, limit: 1/1s}
- {name: pattern, preset: mcp, match: {path: /mcp, regex: {mcp: {tool: 'pu.*'}}}, limit: 1/1s}
- {name: each, match: {path: /mcp}, key: [mcp.method], limit: 1/1s}
- {name: lists, match: {path: /mcp, mcp: {method: tools/list}}, limit: 1/1s}
- {name: any, match: {path: /mcp, any: [{mcp: {tool: drop}}, {mcp: {method: ping}}]}, limit: 1/1s}
- {name: not, preset: mcp, match: {path: /mcp, not: {mcp: {tool: put}}}, limit: 1/1s}
`)
	for _, c := range []struct{ method, tool, want string }{
		{"tools/call", "put", "all writes pattern each"}, {"tools/call", "drop", "all writes each any not"},
		{"tools/call", "get", "all each not"}, {"tools/list", "", "each lists"}, {"ping", "", "each any"},
		{"resources/read", "", "all each"}, {"", "", ""},
	} {
		var names []string
		request := &rules.Request{Method: "POST", Path: "/mcp", Attributes: message{method: c.method, tool: c.tool}}
		for _, rule := range set.Match(request, nil) {
			names = append(names, rule.Name())
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.method, c.tool, got, c.want)
		}
	}
}

// TestPlacesOfMessages: by host, path, service and route of the rules about messages.
func TestPlacesOfMessages(t *testing.T) {
	set := loaded(t, `rules:
- {name: a, preset: mcp, match: {path: '/a/**', client: 10.0.0.0/8}, limit: 1/1s}
- {name: b, match: {host: '*.B.test', service: [x, y]}, key: mcp.tool, limit: 1/1s}
- {name: c, match: {route: '*', path: /c, mcp: {method: ping}}, limit: 1/1s}
- {name: d, preset: mcp, match: {path: /d}, enabled: false, limit: 1/1s}
- {name: e, match: {path: /e}, limit: 1/1s}
`)
	for _, c := range []struct {
		request rules.Request
		want    bool
	}{
		{rules.Request{Path: "/a"}, true}, {rules.Request{Path: "/a/x"}, true}, {rules.Request{Path: "/b"}, false},
		{rules.Request{Path: "/", Host: "m.b.test", Service: "y"}, true}, {rules.Request{Path: "/", Host: "m.b.test"}, false},
		{rules.Request{Path: "/c", Route: "r"}, true}, {rules.Request{Path: "/c"}, false},
		{rules.Request{Path: "/d"}, false}, {rules.Request{Path: "/e"}, false},
	} {
		if got := set.ExpectsMessages(&c.request); got != c.want {
			t.Errorf("%+v: %v", c.request, got)
		}
	}
	if loaded(t, "rules: [{name: a, limit: 1/1s}]").ExpectsMessages(&rules.Request{Path: "/a"}) {
		t.Error("rules that are not about messages expect them")
	}
}

// TestCostByTool: each value has its cost, others the default, and a limit must grant the largest.
func TestCostByTool(t *testing.T) {
	set := loaded(t, "rules: [{name: a, preset: mcp, match: {path: /mcp}, limit: 20/1m, cost: {by: mcp.tool, each: {render: 20, search: 5}, default: 2}}]")
	for tool, want := range map[string]int64{"render": 20, "search": 5, "other": 2, "": 2} {
		got, _, err := set.Rules()[0].CostOf(&rules.Request{Attributes: message{method: "tools/call", tool: tool}})
		if got != want || err != nil {
			t.Errorf("%q: %d, %v, want %d", tool, got, err, want)
		}
	}
}

// TestMistakesOfMCP: each is an error that says what to do.
func TestMistakesOfMCP(t *testing.T) {
	for text, want := range map[string]string{
		"preset: mpc":                         `preset is "mpc"; allowed: mcp`,
		"preset: mcp":                         "match says nothing of the place of the MCP server",
		"key: mcp.tool":                       "match says nothing of the place of the MCP server",
		"match: {path: /mcp, mcp: {name: a}}": `unknown field "name"`,
		"match: {path: /mcp, mcp: {}}":        "match.mcp is empty",
		"cost: {each: {a: 1}}":                "cost.by, which is missing",
		"cost: {by: user}":                    "cost.each is missing",
		"cost: {by: user, each: {a: 1}, from: header.x, max: 5}":      "the cost has one origin",
		"cost: {by: usr, each: {a: 1}}":                               `did you mean "user"?`,
		"cost: {by: user, each: {a: 1000}}":                           "can never be granted",
		"response: {shape: mcp, body: json}":                          "the answer has one form",
		"response: {shape: mpc}":                                      `response.shape is "mpc"`,
		"match: {path: /mcp}, response: {shape: mcp, as: results}":    `response.as is "results"`,
		"match: {path: /mcp, regex: {mcp: {tool: '('}}}, preset: mcp": "missing closing )",
	} {
		_, err := rules.Parse("f", []byte("rules: [{name: a, limit: 100/1s, "+text+"}]"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestStatusOfTheShapeMCP: 200, unless the rule or the file states one.
func TestStatusOfTheShapeMCP(t *testing.T) {
	for text, want := range map[string]int{"response: {shape: mcp}": 200, "response: {shape: mcp, status: 429}": 429, "response: {}": 200} {
		set := loaded(t, "rules: [{name: a, limit: 1/1s, "+strings.ReplaceAll(text, "response: {}", "label: a")+"}]")
		if got := set.Rules()[0].MessageStatus(); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

// TestExplainedMessages: why a rule does not match.
func TestExplainedMessages(t *testing.T) {
	file, err := rules.Parse("f", []byte("rules: [{name: a, preset: mcp, match: {path: /mcp, mcp: {tool: put}}, limit: 1/1s}]"))
	if err != nil {
		t.Fatal(err)
	}
	request := &rules.Request{Method: "POST", Path: "/mcp", Attributes: message{method: "tools/list"}}
	got := strings.Join(file.Unmatched(0, nil, request), "; ")
	if want := "mcp.method is tools/list, not tools/call; mcp.tool is missing, not put"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func loaded(t *testing.T, text string) *rules.Set {
	t.Helper()
	set, err := rules.Load("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestPresetsOfModels: an estimate that the limit can grant, the usage, and refusals of the API; a rule that states its own
// cost, or counts requests at a time, keeps it.
func TestPresetsOfModels(t *testing.T) {
	const openAI = "json.usage.total_tokens or json.response.usage.total_tokens"
	for text, want := range map[string]string{
		"preset: openai, limit: 100000/1m":                                              "[POST] 1000 32768 " + openAI + " true openai",
		"preset: openai, limit: 500/1m":                                                 "[POST] 500 500 " + openAI + " true openai",
		"preset: openai, limit: [5000/1m, calendar 900000/month]":                       "[POST] 1000 5000 " + openAI + " true openai",
		"preset: openai, algorithm: fixed_window, limit: 700/1m":                        "[POST] 700 700 " + openAI + " true openai",
		"preset: openai, limit: 9000/1m, cost: {max: 400, default: 100}":                "[POST] 100 400 " + openAI + " true openai",
		"preset: openai, limit: 9000/1m, cost: {settle: json.usage.cost}":               "[POST] 0 0 json.usage.cost false openai",
		"preset: openai, limit: 9000/1m, cost: 1":                                       "[POST] 0 0  false openai",
		"preset: openai, limit: 9000/1m, reserve: {by: user, classes: {a: 0%, b: 50%}}": "[POST] 1000 4500 " + openAI + " true openai",
		"preset: openai, limit: 1/1m, reserve: {by: user, classes: {a: 0%, b: 50%}}":    "[POST] 1 1 " + openAI + " true openai",
		"preset: openai, limit: concurrency 5 ttl 1m":                                   "[POST] 0 0  false openai",
		"preset: openai, limit: 9000/1m, stream: {ask_usage: false}":                    "[POST] 1000 9000 " + openAI + " false openai",
		"preset: openai, limit: 9000/1m, response: {shape: problem}":                    "[POST] 1000 9000 " + openAI + " true problem",
		"preset: gemini, limit: 9000/1m, match: {method: [POST, PUT]}":                  "[POST PUT] 1000 9000 json.usageMetadata.totalTokenCount false gemini",
		"preset: ollama, limit: 9000/1m, key: u, response: {body: problem}":             "[POST] 1000 9000 json.prompt_eval_count + json.eval_count false ",
	} {
		text = strings.Replace(text, "key: u", "key: [client.ip]", 1)
		file, err := rules.Parse("f", []byte("rules: [{name: a, "+text+"}]"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		s := file.Rules[0].Expanded()
		asks := s.Stream.AskUsage != nil && *s.Stream.AskUsage
		got := fmt.Sprint(s.Match.Method, " ", s.Cost.Default, " ", s.Cost.Max, " ", s.Cost.Settle, " ", asks, " ", s.Response.Shape)
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestPresetsEstimate: the most tokens of the answer by any of its names, as often as answers are asked for, and a quarter of
// the body. Names that the service ignores make no request cheaper.
func TestPresetsEstimate(t *testing.T) {
	for body, want := range map[string]string{
		`{"max_tokens":90,"messages":["567890"]}`:                                               "openai 90",
		`{"max_tokens":"90","input":"12345678","instructions":"1234","tools":[{"a":"345678"}]}`: "openai 90",
		`{"max_completion_tokens":1,"max_output_tokens":2,"max_tokens":90,"messages":[]}`:       "openai 90",
		`{"messages":[],"max_tokens":1,"input":"1234567890","max_output_tokens":null}`:          "openai 1",
		`{"n":3,"max_tokens":90}`:                                   "openai 270",
		`{"n":3}`:                                                   "openai 3000",
		`{"n":2,"best_of":4,"max_tokens":90}`:                       "openai 360",
		`{"n":0,"max_tokens":90}`:                                   "openai 90",
		`{"n":0.1,"max_tokens":90}`:                                 "openai 90",
		`{"n":-3,"max_tokens":90}`:                                  "openai 90",
		`{"n":1e20,"max_tokens":90}`:                                "openai 9000",
		`{"n":1e400,"max_tokens":90}`:                               "openai 9000",
		`{"max_tokens":1e18}`:                                       "openai 9000",
		`{"max_tokens":1e30}`:                                       "openai 9000",
		`{"max_tokens":1e400}`:                                      "openai 9000",
		`{"max_tokens":1e-400}`:                                     "openai 0",
		`{"max_tokens":9999999999999999999999999999999999999999}`:   "openai 9000",
		`{"max_tokens":0.3333333333333333333333333333333333333333}`: "openai 0",
		`{"max_tokens":-1e99}`:                                      "openai 1000",
		`{"max_tokens":90,"system":"12345678","tools":[12]}`:        "anthropic 90",
		`{"generationConfig":{"maxOutputTokens":"90"},"systemInstruction":{"a":1}}`:               "gemini 90",
		`{"generationConfig":{"max_output_tokens":90},"system_instruction":{"a":1}}`:              "gemini 90",
		`{"generation_config":{"maxOutputTokens":90},"contents":[12]}`:                            "gemini 90",
		`{"generation_config":{"max_output_tokens":90},"tools":[12]}`:                             "gemini 90",
		`{"generationConfig":{"maxOutputTokens":1},"generation_config":{"max_output_tokens":90}}`: "gemini 90",
		`{"generationConfig":{"candidate_count":8,"maxOutputTokens":90}}`:                         "gemini 720",
		`{"options":{"num_predict":90},"prompt":"12345678","system":"1234"}`:                      "ollama 90",
		`{"options":{"num_predict":1},"Options":{"num_predict":5000}}`:                            "ollama 1000",
		`{"max_tokens":1,"MAX_TOKENS":5000}`:                                                      "openai 1000",
		`{"max_tokens":5000,"MAX_TOKENS":1,"max_output_tokens":1}`:                                "openai 1000",
		`{"options":{"num_predict":-1}}`:                                                          "ollama 1000",
	} {
		preset, answer, _ := strings.Cut(want, " ")
		set := loaded(t, "rules: [{name: a, limit: 9000/1m, preset: "+preset+"}]")
		got, _, err := set.Rules()[0].CostOf(&rules.Request{Attributes: posted{attributes{}, set, body}})
		tokens, _ := strconv.Atoi(answer)
		if units := min(9000, tokens+(len(body)+3)/4); err != nil || got != int64(units) {
			t.Errorf("%s costs %d (%v), want %d", body, got, err, units)
		}
	}
}

// TestPresetsCountStreams: the texts of all events of an API are counted, or a client chooses an endpoint, or tools, that
// are not.
func TestPresetsCountStreams(t *testing.T) {
	const text = "12345678"
	for event, preset := range map[string]string{
		`{"choices":[{"delta":{"content":"12345678"}}]}`:                                            "openai",
		`{"choices":[{"delta":{"reasoning_content":"12345678"}}]}`:                                  "openai",
		`{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"12345678"}}]}}]}`:            "openai",
		`{"choices":[{"delta":{"function_call":{"arguments":"12345678"}}}]}`:                        "openai",
		`{"choices":[{"delta":{"reasoning":"12345678"}}]}`:                                          "openai",
		`{"choices":[{"delta":{"reasoning":"12345678","reasoning_content":"12345678"}}]}`:           "openai",
		`{"choices":[{"delta":{"refusal":"12345678"}}]}`:                                            "openai",
		`{"candidates":[{"content":{"parts":[{"text":"12345678"}]}},{"content":{"role":"model"}}]}`: "gemini",
		`{"choices":[{"delta":{"content":"12345678"}},{"delta":{"content":null}}]}`:                 "openai",
		`{"choices":[{"delta":{"content":"12345678"}},{"delta":{}}]}`:                               "openai",
		`{"choices":[{"text":"12345678"}]}`:                                                         "openai",
		`{"type":"response.output_text.delta","delta":"12345678"}`:                                  "openai",
		`{"delta":{"text":"12345678"}}`:                                                             "anthropic",
		`{"delta":{"thinking":"12345678"}}`:                                                         "anthropic",
		`{"delta":{"partial_json":"12345678"}}`:                                                     "anthropic",
		`{"candidates":[{"content":{"parts":[{"text":"1234"},{"text":"5678"}]}}]}`:                  "gemini",
		`{"candidates":[{"content":{"parts":[{"functionCall":{"args":{"a":1}}}]}}]}`:                "gemini",
		`{"message":{"content":"12345678"}}`:                                                        "ollama",
		`{"message":{"thinking":"12345678"}}`:                                                       "ollama",
		`{"message":{"tool_calls":[{"function":{"arguments":"12345678"}}]}}`:                        "ollama",
		`{"response":"12345678"}`:                                                                   "ollama",
	} {
		rule := loaded(t, "rules: [{name: a, limit: 9/1m, preset: "+preset+"}]").Rules()[0]
		answer := rule.Answer()
		body := answer.Body("text/event-stream")
		fmt.Fprintf(body, "data: %s\n\n", event)
		if got := rule.Passed(answer); got != int64(len(text)/4) {
			t.Errorf("%s: %d tokens", event, got)
		}
	}
}

// TestStreamsAreChecked: what does not go with charge: as_it_streams, and the presets' count.
func TestStreamsAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		"charge: as_it_streams":                                        "100 false",
		"charge: as_it_streams, stream: {step: 7, overrun: cut}":       "7 true",
		"charge: as_it_streams, preset: openai":                        "100 false",
		"stream: {step: 7}":                                            "stream",
		"stream: {count: bytes}":                                       "cost.settle",
		"stream: {count: bytes}, cost: {settle: header.X}":             "0 false",
		"charge: as_it_streams, cost: 5":                               "a fixed cost",
		"charge: as_it_streams, count_if: {status: 401}":               "count_if",
		"charge: as_it_streams, stream: {count: header.X}":             "stream.count",
		"charge: as_it_streams, lease_percent: 5":                      "lease_percent",
		"charge: as_it_streams, candidate: {limit: fixed_window 9/1m}": "candidate",
	} {
		set, err := rules.Load("f", []byte("rules: [{name: a, limit: fixed_window 9000/1m, "+text+"}]"))
		got := fmt.Sprint(err)
		if err == nil {
			step, cut, _ := set.Rules()[0].Steps()
			got = fmt.Sprint(step, " ", cut)
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestTextsOfPresetsAreFields: a rule with the fields that a preset is said to stand for is the rule with the preset.
func TestTextsOfPresetsAreFields(t *testing.T) {
	for _, preset := range []string{"mcp", "openai", "anthropic", "gemini", "ollama"} {
		for _, charge := range []string{"", "charge: as_it_streams"} {
			if preset == "mcp" && charge != "" {
				continue
			}
			own := []string{"name: r", "limit: 90000/1m", "key: user"}
			if charge != "" {
				own = append(own, charge)
			}
			set, err := rules.Compile(fileOf(t, append(own, "match: {path: /v1}", "preset: "+preset)))
			if err != nil {
				t.Fatal(err)
			}
			fields := set.Rules()[0].Preset()
			for i := range fields {
				fields[i] = strings.Replace(fields[i], "match: {", "match: {path: /v1, ", 1)
			}
			want := fileOf(t, append(own, "match: {path: /v1}", "preset: "+preset)).Rules[0].Expanded()
			want.Preset = ""
			if got := fileOf(t, append(own, fields...)).Rules[0]; !reflect.DeepEqual(got, want) {
				t.Errorf("%s %s: %v\ngot  %+v\nwant %+v", preset, charge, fields, got, want)
			}
		}
	}
}

// fileOf is a file with one rule of these fields.
func fileOf(t *testing.T, fields []string) *rules.File {
	t.Helper()
	file, err := rules.Parse("rules", []byte("rules:\n  - "+strings.Join(fields, "\n    ")+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// TestUsageIsAskedOfEachStream: services read some other values as true, and ignore names in another case; neither is a way
// to be charged a guess.
func TestUsageIsAskedOfEachStream(t *testing.T) {
	set := loaded(t, "rules: [{name: a, preset: openai, limit: 9000/1m}]")
	for body, want := range map[string]string{
		`{"stream":true}`:                       `{"stream_options":{"include_usage":true},"stream":true}`,
		`{"stream":1}`:                          `{"stream_options":{"include_usage":true},"stream":1}`,
		`{"stream":1.0}`:                        `{"stream_options":{"include_usage":true},"stream":1.0}`,
		`{"stream":"True"}`:                     `{"stream_options":{"include_usage":true},"stream":"True"}`,
		`{"stream":true,"Stream_Options":null}`: `{"stream_options":{"include_usage":true},"stream":true,"Stream_Options":null}`,
		`{"stream":true,"stream_options":{"Include_Usage":false}}`: `{"stream":true,"stream_options":{"include_usage":true,"Include_Usage":false}}`,
		`{"stream":true,"stream_options":{"include_usage":0}}`:     `{"stream":true,"stream_options":{"include_usage":true}}`,
		`{"stream":true,"stream_options":{"include_usage":"no"}}`:  `{"stream":true,"stream_options":{"include_usage":true}}`,
		`{"stream":true,"stream_options":{"include_usage":true}}`:  "",
		`{"stream":true,"stream_options":[0]}`:                     "",
		`{"stream":false}`:                                         "",
		`{"stream":0}`:                                             "",
		`{"stream":"false"}`:                                       "",
		`{"stream":null}`:                                          "",
		`{}`:                                                       "",
	} {
		if got := set.Rules()[0].Asking(set.ReadJSON([]byte(body))); string(got) != want {
			t.Errorf("%s becomes %s, want %s", body, got, want)
		}
	}
}

// FuzzAsking: the body that asks for the usage is JSON, asks for it, and is otherwise the client's.
func FuzzAsking(f *testing.F) {
	for _, body := range []string{`{"stream":true}`, "\ufeff {\"stream\":true,\"stream_options\":null}", `{"stream":true,"stream_options":{ }}`,
		`{"stream":true,"stream_options":{"include_usage":false,"b":[{}]},"x":"{"}`, `{"stream_options":{},"stream":true,"stream_options":{"include_usage":null}}`} {
		f.Add([]byte(body))
	}
	set, err := rules.Load("f", []byte("rules: [{name: a, preset: openai, limit: 9000/1m}]"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		asking := set.Rules()[0].Asking(set.ReadJSON(bytes.Clone(body)))
		if asking == nil {
			return
		}
		var before, after map[string]any
		if json.Unmarshal(bytes.TrimPrefix(body, []byte("\ufeff")), &before) != nil {
			t.Fatalf("%q is not JSON", body)
		}
		if err := json.Unmarshal(bytes.TrimPrefix(asking, []byte("\ufeff")), &after); err != nil {
			t.Fatalf("%q becomes %q: %v", body, asking, err)
		}
		options, ok := after["stream_options"].(map[string]any)
		if !ok || options["include_usage"] != true {
			t.Fatalf("%q becomes %q", body, asking)
		}
		own, _ := before["stream_options"].(map[string]any)
		if own == nil {
			own = make(map[string]any)
		}
		own["include_usage"], before["stream_options"] = true, own
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("%q becomes %q", body, asking)
		}
	})
}
