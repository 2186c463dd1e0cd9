package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const perTool = `
rules:
  - name: each-tool
    preset: mcp
    match: {path: /mcp}
    key: [header.Authorization, mcp.tool]
    limit: sliding_log 5/1h
`

// A goServer is a server of the SDK for Go, which counts calls.
type goServer struct {
	url   string
	calls sync.Map // of *atomic.Int64, by tool
}

func (s *goServer) count(tool string) *atomic.Int64 {
	n, _ := s.calls.LoadOrStore(tool, new(atomic.Int64))
	return n.(*atomic.Int64)
}

// serve starts a server of the newest revision, or of the ones with sessions.
func serve(t *testing.T, stateless, asJSON bool) *goServer {
	s := new(goServer)
	server := mcp.NewServer(&mcp.Implementation{Name: "tools", Version: "1"}, nil)
	for _, name := range []string{"search", "other"} {
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			s.count(name).Add(1)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name + " is done"}}}, nil, nil
		})
	}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: stateless, JSONResponse: asJSON})
	mux := http.NewServeMux()
	mux.Handle("/mcp", handler)
	mux.HandleFunc("/calls", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"search":%d,"other":%d}`, s.count("search").Load(), s.count("other").Load())
	})
	started := httptest.NewServer(mux)
	t.Cleanup(started.Close)
	s.url = started.URL
	return s
}

// A refusal is what a program gets to know of a call.
type refusal struct {
	Code    int64
	Message string
	Data    struct {
		Rule       string
		Limit      string
		Remaining  *int64
		RetryAfter int64 `json:"retry_after"`
	}
}

// says reports whether a refusal has all that the program and the model need.
func (r *refusal) says() bool {
	return r.Code == 429 && strings.Contains(r.Message, "try again in") && strings.Contains(r.Message, "The limit is 5 in 1 hour (rule each-tool)") &&
		r.Data.Rule == "each-tool" && strings.HasSuffix(r.Data.Limit, "5/1h") && r.Data.Remaining != nil && *r.Data.Remaining < 5 &&
		r.Data.RetryAfter > 3500 && r.Data.RetryAfter <= 3600
}

// goAgent lists the tools and calls some with the SDK for Go: it returns how many passed, and the refusals.
func goAgent(ctx context.Context, url, revision, token string, tools ...string) (passed int, refused []refusal, err error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	transport := &mcp.StreamableClientTransport{Endpoint: url + "/mcp", HTTPClient: &http.Client{Transport: bearer(token)}}
	session, err := client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		return 0, nil, err
	}
	defer session.Close()
	if list, err := session.ListTools(ctx, nil); err != nil || len(list.Tools) != 2 {
		return 0, nil, fmt.Errorf("list: %v", err)
	}
	for _, tool := range tools {
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: map[string]any{}})
		if err == nil {
			if text := result.Content[0].(*mcp.TextContent).Text; text != tool+" is done" {
				return 0, nil, fmt.Errorf("%s answered %s", tool, text)
			}
			passed++
			continue
		}
		var failed *jsonrpc.Error
		if !errors.As(err, &failed) {
			return 0, nil, fmt.Errorf("no error of JSON-RPC: %w", err)
		}
		one := refusal{Code: failed.Code, Message: failed.Message}
		if err := json.Unmarshal(failed.Data, &one.Data); err != nil {
			return 0, nil, err
		}
		refused = append(refused, one)
	}
	return passed, refused, nil
}

// bearer sends a token with each request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// nodeAgent is goAgent with the SDK for TypeScript, without a token.
func nodeAgent(ctx context.Context, url, version string, tools ...string) (passed int, refused []refusal, revision string, err error) {
	command := exec.CommandContext(ctx, "node", append([]string{filepath.Join(scripts, "agent.mjs"), version, url + "/mcp"}, tools...)...)
	out, err := command.CombinedOutput()
	if err != nil {
		return 0, nil, "", fmt.Errorf("%w: %s", err, out)
	}
	var answer struct {
		Listed   []string
		Revision string
		Results  []struct {
			Text string
			refusal
		}
	}
	if err := json.Unmarshal(out, &answer); err != nil || len(answer.Listed) != 2 {
		return 0, nil, "", fmt.Errorf("%v: %s", err, out)
	}
	for i, r := range answer.Results {
		if r.Text == tools[i]+" is done" {
			passed++
		} else {
			refused = append(refused, r.refusal)
		}
	}
	return passed, refused, answer.Revision, nil
}

// TestAgentsInALoop: with each SDK and revision an agent gets its tool's limit to the call, then errors that say what is
// limited and how long to wait; lists and other tools go on.
func TestAgentsInALoop(t *testing.T) {
	servers := map[string]string{
		"go": serve(t, true, false).url, "go-json": serve(t, true, true).url, "go-sessions": serve(t, false, false).url,
		"ts-v1": node(t, "v1"), "ts-v2": node(t, "v2"),
	}
	loop := append(slices.Repeat([]string{"search"}, 8), "other")
	agents := []string{"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "v1", "v2", "v2-legacy"}
	t.Run("all", func(t *testing.T) {
		for name, upstream := range servers {
			for _, agent := range agents {
				t.Run(name+"/"+agent, func(t *testing.T) {
					t.Parallel()
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					url := gateway(t, perTool, upstream)
					var passed int
					var refused []refusal
					var err error
					if strings.HasPrefix(agent, "v") {
						passed, refused, _, err = nodeAgent(ctx, url, agent, loop...)
					} else {
						passed, refused, err = goAgent(ctx, url, agent, "a", loop...)
					}
					if err != nil {
						t.Fatal(err)
					}
					if passed != 5+1 || len(refused) != 3 {
						t.Errorf("%d calls passed, and %d were refused", passed, len(refused))
					}
					for _, r := range refused {
						if !r.says() {
							t.Errorf("the refusal is %+v", r)
						}
					}
				})
			}
		}
	})
	for name, upstream := range servers {
		if got := callsOf(t, upstream, "search"); got != 5*len(agents) {
			t.Errorf("%s saw %d calls, of %d agents", name, got, len(agents))
		}
	}
}

// TestManyAgentsAtOnce: 64 agents of both revisions share a limit, and each has its own; the server sees no call more.
func TestManyAgentsAtOnce(t *testing.T) {
	const shared = perTool + `
  - {name: all, preset: mcp, match: {path: /mcp}, limit: sliding_log 100/1h}
`
	for store, args := range map[string][]string{"memory": nil, "redis": {"--store", redis(t)}} {
		t.Run(store, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			server := serve(t, true, false)
			url := gateway(t, shared, server.url, args...)
			var agents sync.WaitGroup
			var passed, refused atomic.Int64
			for i := range 64 {
				agents.Go(func() {
					revision := []string{"2026-07-28", "2025-11-25"}[i%2]
					n, rest, err := goAgent(ctx, url, revision, fmt.Sprint(i), slices.Repeat([]string{"search"}, 7)...)
					if err != nil || n > 5 {
						t.Errorf("agent %d: %d passed, %v", i, n, err)
					}
					passed.Add(int64(n))
					refused.Add(int64(len(rest)))
				})
			}
			agents.Wait()
			if n := server.count("search").Load(); passed.Load() != 100 || n != 100 || refused.Load() != 64*7-100 {
				t.Errorf("%d calls passed, the server saw %d, and %d were refused", passed.Load(), n, refused.Load())
			}
		})
	}
}

// TestResultsOfRefusals: with as: result the SDKs hand the refusal to the model as the result of the tool.
func TestResultsOfRefusals(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	url := gateway(t, perTool+"    response: {shape: mcp, as: result}\n", serve(t, true, false).url)
	client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	for _, revision := range []string{"2026-07-28", "2025-11-25"} {
		transport := &mcp.StreamableClientTransport{Endpoint: url + "/mcp", HTTPClient: &http.Client{Transport: bearer(revision)}}
		session, err := client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: revision})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 7 {
			result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "search"})
			if err != nil {
				t.Fatal(revision, i, err)
			}
			text := result.Content[0].(*mcp.TextContent).Text
			if i >= 5 != result.IsError || i >= 5 != strings.Contains(text, "try again in") {
				t.Errorf("%s, call %d: error %t: %s", revision, i, result.IsError, text)
			}
			if data, ok := result.Meta["io.github.weirproject/refusal"].(map[string]any); result.IsError && (!ok || data["rule"] != "each-tool") {
				t.Errorf("%s: the data of the result is %v", revision, result.Meta)
			}
		}
		session.Close()
	}
	for _, version := range []string{"v1", "v2"} {
		out, err := exec.CommandContext(ctx, "node", append([]string{filepath.Join(scripts, "agent.mjs"), version, url + "/mcp"},
			slices.Repeat([]string{"other"}, 6)...)...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), `"isError":true`) || !strings.Contains(string(out), `"retry_after":3`) {
			t.Errorf("%s: %v: %s", version, err, out)
		}
	}
}

// TestLiesAreRefused: a header that names another method or tool, in both revisions; nothing passes the limit, and the
// server sees no such call.
func TestLiesAreRefused(t *testing.T) {
	server := serve(t, true, true)
	url := gateway(t, perTool, server.url)
	const call = `{"jsonrpc":"2.0","id":"lie","method":"tools/call","params":{"name":"search","arguments":{},"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"a","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}}}}`
	send := func(body string, header map[string]string) (status int, text string) {
		r, _ := http.NewRequestWithContext(t.Context(), "POST", url+"/mcp", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		for name, value := range header {
			r.Header.Set(name, value)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		answer, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(answer)
	}
	honest := map[string]string{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "search"}
	for _, lie := range []map[string]string{
		{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"},
		{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "other"},
		{"Mcp-Name": "other"}, {"MCP-Protocol-Version": "2025-11-25", "Mcp-Method": "ping"},
	} {
		if status, text := send(call, lie); status != 400 || !strings.Contains(text, `"id":"lie","error":{"code":-32020`) {
			t.Errorf("%v: %d %s", lie, status, text)
		}
	}
	if n := server.count("search").Load(); n != 0 {
		t.Errorf("the server saw %d lies", n)
	}
	for i := range 8 {
		if status, text := send(call, honest); status != 200 || strings.Contains(text, `"code":429`) != (i >= 5) {
			t.Errorf("call %d: %d %s", i, status, text)
		}
	}
	for _, evasion := range []string{
		strings.Replace(call, `"method"`, `"Method":"ping","method"`, 1), strings.Replace(call, `"params"`, `"params":{},"params"`, 1),
		strings.Replace(call, `{"name"`, `{"name":"other","name"`, 1), "\ufeff" + call, call + call, "[" + call + "]",
		strings.Replace(call, "search", "se\\u0061rch", 1), strings.Replace(call, `"id":"lie",`, "", 1),
	} {
		if status, text := send(evasion, nil); status == 200 && !strings.Contains(text, `"code":429`) {
			t.Errorf("%s: %d %s", evasion, status, text)
		}
	}
	if n := server.count("search").Load(); n != 5 {
		t.Errorf("the server saw %d calls", n)
	}
}

// TestBatchesOfARevision: each call of a batch of 2025-03-26 is charged, and all pass or none.
func TestBatchesOfARevision(t *testing.T) {
	server := serve(t, true, true)
	url := gateway(t, perTool, server.url)
	send := func(n int) (answers []struct {
		ID     any
		Result any
		Error  *refusal
	}) {
		var parts []string
		for i := range n {
			parts = append(parts, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"search","arguments":{}}}`, i))
		}
		r, _ := http.NewRequestWithContext(t.Context(), "POST", url+"/mcp", strings.NewReader("["+strings.Join(parts, ",")+"]"))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("MCP-Protocol-Version", "2025-03-26")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		if err := json.Unmarshal(text, &answers); err != nil {
			t.Fatalf("%d %s", response.StatusCode, text)
		}
		return answers
	}
	for _, step := range []struct{ calls, saw int }{{3, 3}, {3, 3}, {2, 5}, {1, 5}} {
		before := server.count("search").Load()
		answers := send(step.calls)
		if len(answers) != step.calls || server.count("search").Load() != int64(step.saw) {
			t.Errorf("%+v: %d answers, the server saw %d", step, len(answers), server.count("search").Load())
		}
		for _, a := range answers {
			if refused := before == int64(step.saw); refused != (a.Error != nil) || refused && !a.Error.says() {
				t.Errorf("%+v: %+v", step, a)
			}
		}
	}
}

// TestStreamsPassAtOnce: each event reaches the client before the server sends the next one, byte for byte, and the call
// holds its slot until the stream has ended.
func TestStreamsPassAtOnce(t *testing.T) {
	events := []string{": ping\r\n\r\n", "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n",
		"id: 7\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\n", "data: \"result\":{}}\n\n"}
	read := make(chan bool)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, event := range events {
			io.WriteString(w, event)
			http.NewResponseController(w).Flush()
			<-read
		}
	}))
	defer upstream.Close()
	url := gateway(t, "rules: [{name: at-once, preset: mcp, match: {path: /mcp}, limit: concurrency 1 ttl 1m}]\n", upstream.URL)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	call := func() *http.Response {
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search"}}`
		r, _ := http.NewRequestWithContext(ctx, "POST", url+"/mcp", strings.NewReader(body))
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	for range 2 {
		stream := call()
		for _, event := range events {
			got := make([]byte, len(event))
			if _, err := io.ReadFull(stream.Body, got); err != nil || string(got) != event {
				t.Fatalf("%q: %q, %v", event, got, err)
			}
			refused := call()
			if text, _ := io.ReadAll(refused.Body); !strings.Contains(string(text), `"rule":"at-once"`) {
				t.Errorf("a call beside the stream: %s", text)
			}
			refused.Body.Close()
			read <- true
		}
		if rest, err := io.ReadAll(stream.Body); err != nil || len(rest) > 0 {
			t.Errorf("%q, %v", rest, err)
		}
		stream.Body.Close()
	}
}
