package httplimit_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirproject/weir/memstore"
)

const byTool = `
  - {name: each-tool, preset: mcp, match: {path: /mcp}, key: [mcp.tool], limit: sliding_log 3/1m}
  - {name: writes, preset: mcp, match: {path: /mcp, mcp: {tool: [put]}}, limit: sliding_log 2/1m}
  - {name: all, preset: mcp, match: {path: /mcp}, limit: sliding_log 6/1m, cost: {by: mcp.tool, each: {dear: 4}}}
  - {name: pings, match: {path: /mcp, mcp: {method: ping}}, limit: sliding_log 1/1m, response: {shape: mcp}}`

// call is a message that calls a tool.
func call(id, tool string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool + `","arguments":{}}}`
}

// post sends a body, and returns the status and the body of the answer.
func post(handler http.Handler, body string, change ...func(*http.Request)) (status int, text string) {
	r := httptest.NewRequest("POST", "/mcp", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w.Code, strings.TrimSpace(w.Body.String())
}

// whole is the handler's answer to a body that it got unchanged.
func whole(body string) string {
	w := httptest.NewRecorder()
	echo.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(body)))
	return w.Body.String()
}

func answerTo(id, rest string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"error":` + rest + `}`
}

const (
	toolIsOver = `{"code":429,"message":"Too many requests: try again in 1 minute. The limit is 3 in 1 minute (rule each-tool).",` +
		`"data":{"rule":"each-tool","limit":"sliding_log 3/1m","remaining":0,"retry_after":60}}`
	writesAreOver = `{"code":429,"message":"Too many requests: try again in 1 minute. The limit is 2 in 1 minute (rule writes).",` +
		`"data":{"rule":"writes","limit":"sliding_log 2/1m","remaining":0,"retry_after":60}}`
)

// TestCallsOfTools: each call is counted by its tool and by the caller, in one decision; other messages are free unless
// a rule names them; and the refusal is the answer to the message.
func TestCallsOfTools(t *testing.T) {
	limited := byRules(t, newClock().store(), byTool, nil)(echo)
	steps := []struct{ body, want string }{
		{call("1", "get"), ""}, {call("2", "get"), ""}, {call(`"3"`, "get"), ""},
		{call(`"four\u0034"`, "get"), answerTo(`"four\u0034"`, toolIsOver)},
		{call("5", "put"), ""}, {call("6", "put"), ""}, {call("7e0", "put"), answerTo("7e0", writesAreOver)},
		{`{"jsonrpc":"2.0","id":8,"method":"tools/list"}`, ""}, {`{"jsonrpc":"2.0","id":8,"result":{}}`, ""},
		{`{"jsonrpc":"2.0","method":"notifications/initialized"}`, ""}, {`{"jsonrpc":"2.0","id":8,"method":"initialize"}`, ""},
		{`{"jsonrpc":"2.0","id":9,"method":"ping"}`, ""},
		{call("11", "dear"), answerTo("11", `{"code":429,"message":"Too many requests: try again in 1 minute. The limit is 6 in 1 minute (rule all).",`+
			`"data":{"rule":"all","limit":"sliding_log 6/1m","remaining":1,"retry_after":60}}`)},
		{`{"jsonrpc":"2.0","id":12,"method":"prompts/get","params":{"name":"get"}}`, ""}, // by all alone
	}
	for _, step := range steps {
		status, text := post(limited, step.body)
		if want := step.want; status != 200 || want != "" && text != want || want == "" && text != whole(step.body) {
			t.Errorf("%s: %d\n%s, want\n%s", step.body, status, text, want)
		}
	}
}

// TestRefusedNotification: it has no answer, so that the status says it.
func TestRefusedNotification(t *testing.T) {
	limited := byRules(t, newClock().store(), byTool, nil)(echo)
	notification := strings.Replace(call("1", "put"), `"id":1,`, "", 1)
	for i, want := range []int{200, 200, 429} {
		if status, text := post(limited, notification); status != want || want == 429 && text != `{"jsonrpc":"2.0","error":`+writesAreOver+`}` {
			t.Errorf("%d: %d %s", i, status, text)
		}
	}
}

// TestBatches: all calls of a batch pass, or none is charged; each call has its own answer.
func TestBatches(t *testing.T) {
	limited := byRules(t, newClock().store(), byTool, nil)(echo)
	batch := func(parts ...string) string { return "[" + strings.Join(parts, ",") + "]" }
	steps := []struct{ body, want string }{
		{batch(call("1", "put"), call("2", "put"), call("3", "put"), `{"method":"notifications/x"}`),
			batch(answerTo("1", neverFits), answerTo("2", neverFits), answerTo("3", neverFits))},
		{batch(call("1", "get"), `{"id":2,"method":"ping"}`, call("3", "get")), ""},
		{batch(call("1", "put"), call("2", "get"), call(`"x"`, "get")), batch(answerTo("1", oneIsLeft), answerTo("2", oneIsLeft), answerTo(`"x"`, oneIsLeft))},
		{batch(call("1", "put"), call("2", "put"), call("3", "get")), ""}, // the refused ones were not charged
		{batch(call("1", "put")), batch(answerTo("1", writesAreOver))},
		{call("1", "new"), ""}, {call("1", "new"), `all`},
	}
	for _, step := range steps {
		status, text := post(limited, step.body)
		want := step.want
		if want == "all" {
			if !strings.Contains(text, `"rule":"all"`) {
				t.Errorf("%s: %s", step.body, text)
			}
			continue
		}
		if status != 200 || want != "" && text != want || want == "" && text != whole(step.body) {
			t.Errorf("%s: %d\n%s, want\n%s", step.body, status, text, want)
		}
	}
}

// TestFieldsOfABatch: of the call that meets limits.
func TestFieldsOfABatch(t *testing.T) {
	limited := byRules(t, newClock().store(), byTool, nil)(echo)
	r := httptest.NewRequest("POST", "/mcp", strings.NewReader(`[{"method":"notifications/x"},`+call("1", "get")+"]"))
	w := httptest.NewRecorder()
	limited.ServeHTTP(w, r)
	if got := w.Header()["Ratelimit"]; len(got) != 1 || !strings.Contains(got[0], `"each-tool";r=2`) {
		t.Errorf("the fields are %q", got)
	}
}

// TestBatchOfTooManyTools: a decision holds no more keys; the batch is refused, and charged nowhere.
func TestBatchOfTooManyTools(t *testing.T) {
	limited := byRules(t, newClock().store(), byTool, nil)(echo)
	var calls []string
	for i := range 100 {
		calls = append(calls, call(fmt.Sprint(i), fmt.Sprint("tool-", i)))
	}
	batch := "[" + strings.Join(calls, ",") + "]"
	status, text := post(limited, batch)
	if status != 200 || strings.Count(text, `"error":{"code":400,"message":"`) != 100 || !strings.Contains(text, "keys and limits of all requests") {
		t.Errorf("%d %.300s", status, text)
	}
	if _, text := post(limited, call("1", "tool-1")); text != whole(call("1", "tool-1")) {
		t.Error(text)
	}
}

const neverFits = `{"code":429,"message":"This request costs more than the limit ever grants: waiting does not help, request less. The limit is 2 in 1 minute (rule writes).",` +
	`"data":{"rule":"writes","limit":"sliding_log 2/1m","remaining":2}}`

var oneIsLeft = strings.Replace(toolIsOver, `"remaining":0`, `"remaining":1`, 1)

// TestBatchHoldsLeases: as many as it has calls, until it is answered.
func TestBatchHoldsLeases(t *testing.T) {
	const text = `
  - {name: at-once, preset: mcp, match: {path: /mcp}, limit: concurrency 3 ttl 1m}`
	inside, leave := make(chan bool), make(chan bool)
	limited := byRules(t, newClock().store(), text, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inside <- true
		<-leave
	}))
	two := "[" + call("1", "a") + "," + call("2", "b") + "]"
	for range 3 { // each time the leases have come back
		done := make(chan int)
		go func() {
			status, _ := post(limited, two)
			done <- status
		}()
		<-inside
		if _, text := post(limited, two); !strings.Contains(text, `"rule":"at-once"`) {
			t.Errorf("four calls at once: %s", text)
		}
		go func() {
			status, _ := post(limited, call("1", "a"))
			done <- status
		}()
		<-inside
		leave <- true
		leave <- true
		if a, b := <-done, <-done; a != 200 || b != 200 {
			t.Error(a, b)
		}
	}
}

// TestBodiesThatAreNoMessages are refused where rules expect messages, and pass elsewhere.
func TestBodiesThatAreNoMessages(t *testing.T) {
	limited := byRules(t, newClock().store(), byTool, nil)(echo)
	long := `{"jsonrpc":"2.0","id":1,"method":"ping","params":"` + strings.Repeat("x", 1<<20) + `"}`
	for _, c := range []struct {
		body   string
		change func(*http.Request)
		status int
		want   string
	}{
		{"", nil, 400, "-32700"}, {"a=b", nil, 400, "-32700"}, {`{"id":1}`, nil, 400, `"id":1,"error":{"code":-32600`},
		{long, nil, 413, "-32600"}, {long, func(r *http.Request) { r.ContentLength = -1 }, 413, "-32600"},
		{call("1", "a"), header("Content-Encoding", "gzip"), 400, "-32700"},
		{call("1", "a"), header("Content-Type", "text/plain"), 200, ""},
		{call("1", `a","+AG4-ame":"b`), header("Content-Type", "application/json; charset=utf-7"), 400, "-32700"},
		{call("1", "a"), header("Content-Type", "application/json; Charset=utf-8; charset=utf-7"), 400, "-32700"},
		{call("1", "a"), header("Content-Type", `application/json; charset="UTF-8"`), 200, ""},
		{call(`"b"`, "a"), header("Mcp-Name", "b"), 400, `"id":"b","error":{"code":-32020`},
		{call(`"b"`, "a"), header("Mcp-Method", "ping"), 400, `"id":"b","error":{"code":-32020`},
		{call("1", "a"), func(r *http.Request) { r.Method = "post" }, 200, ""},
		{"a=b", func(r *http.Request) { r.URL.Path = "/other" }, 200, ""}, {"a=b", func(r *http.Request) { r.Method = "PUT" }, 200, ""},
		{"", func(r *http.Request) { r.Method = "GET" }, 200, ""}, {"", func(r *http.Request) { r.Method = "DELETE" }, 200, ""},
	} {
		change := []func(*http.Request){}
		if c.change != nil {
			change = append(change, c.change)
		}
		status, text := post(limited, c.body, change...)
		if status != c.status || !strings.Contains(text, c.want) || status == 200 && text != whole(c.body) {
			t.Errorf("%.80s: %d %.300s, want %d %s", c.body, status, text, c.status, c.want)
		}
	}
}

// TestAnswersThatAreResults: a call of a tool is answered with a result, other messages with an error; a status that the
// rule states is sent.
func TestAnswersThatAreResults(t *testing.T) {
	const text = `
  - name: all
    preset: mcp
    match: {path: /mcp}
    limit: sliding_log 1/1m
    message: slow down
    response: {shape: mcp, as: result, fields: none, status: 429}`
	limited := byRules(t, newClock().store(), text, nil)(echo)
	post(limited, call("1", "a"))
	for body, want := range map[string]string{
		call("2", "a"): `{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[{"type":"text","text":"slow down"}],"isError":true,` +
			`"_meta":{"io.github.weirproject/refusal":{"rule":"all","retry_after":60}}}}`,
		`{"id":2,"method":"prompts/get","params":{"name":"a"}}`: answerTo("2", `{"code":429,"message":"slow down","data":{"rule":"all","retry_after":60}}`),
	} {
		if status, text := post(limited, body); status != 429 || text != want {
			t.Errorf("%d %s, want %s", status, text, want)
		}
	}
}

// TestOutcomesOfMessages: what refuses besides limits is an answer to the message too.
func TestOutcomesOfMessages(t *testing.T) {
	const text = `
  - {name: denied, preset: mcp, match: {path: /mcp}, deny: {mcp.tool: rm}, limit: 100/1m}
  - {name: keyed, preset: mcp, match: {path: /mcp, mcp: {tool: [k, d]}}, key: [header.X-Key], on_missing: deny, limit: 100/1m}
  - {name: plain, preset: mcp, match: {path: /mcp, mcp: {tool: p}}, limit: none, response: {body: json}}`
	limited := byRules(t, newClock().store(), text, nil)(echo)
	for _, c := range []struct {
		tool   string
		keys   []string
		status int
		want   string
	}{
		{"rm", nil, 200, `"id":1,"error":{"code":403`}, {"k", nil, 200, `"error":{"code":403`}, {"k", []string{"a"}, 200, ""},
		{"d", []string{"a", "b"}, 200, `"id":1,"error":{"code":400`}, {"p", nil, 403, `{"code":403`},
	} {
		status, text := post(limited, call("1", c.tool), func(r *http.Request) { r.Header["X-Key"] = c.keys })
		if status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s, want %d %s", c.tool, status, text, c.status, c.want)
		}
	}
}

// TestMessagesPassUnchanged: every byte reaches the handler, in however many pieces it came.
func TestMessagesPassUnchanged(t *testing.T) {
	body := " [" + call("1", "a") + " , " + call("2", "é") + "]\r\n"
	s := httptest.NewServer(byRules(t, newClock().store(), byTool, nil)(echo))
	defer s.Close()
	for size := range len(body) {
		reader, writer := io.Pipe()
		go func() {
			fmt.Fprint(writer, body[:size])
			fmt.Fprint(writer, body[size:])
			writer.Close()
		}()
		r, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/other", reader)
		if size%2 == 0 {
			r.URL.Path = "/mcp"
		}
		response, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if got := string(text); got != whole(body) && !strings.Contains(got, `"code":429`) {
			t.Fatalf("cut at %d: %s", size, got)
		}
	}
}

// TestBatchWithoutAnAnswerOfTheStore: refused as the rules say, or with a key that is doubtful in one of the calls.
func TestBatchWithoutAnAnswerOfTheStore(t *testing.T) {
	const text = `
  - {name: deny, preset: mcp, match: {path: /mcp, mcp: {tool: b}}, limit: 5/1m, on_store_error: deny}
  - {name: keyed, preset: mcp, match: {path: /mcp, mcp: {tool: k}}, key: [header.X-Key], limit: 5/1m}`
	batch := func(tool string) string { return "[" + call("1", "a") + "," + call("2", tool) + "]" }
	store := memstore.New()
	store.Close()
	down := byRules(t, store, text, nil)(echo)
	if status, answer := post(down, batch("b")); status != 200 || strings.Count(answer, `"code":503`) != 2 {
		t.Errorf("%d %s", status, answer)
	}
	two := func(r *http.Request) { r.Header["X-Key"] = []string{"a", "b"} }
	if status, answer := post(byRules(t, newClock().store(), text, nil)(echo), batch("k"), two); status != 200 || strings.Count(answer, `"code":400`) != 2 {
		t.Errorf("%d %s", status, answer)
	}
	left, leave := context.WithCancel(t.Context())
	leave()
	post(down, batch("b"), func(r *http.Request) { *r = *r.WithContext(left) })
}
