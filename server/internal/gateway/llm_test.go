package gateway_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirproject/weir/engine"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/gateway"
)

// modelPaths are the places of four APIs.
var modelPaths = []string{"/openai", "/anthropic", "/gemini", "/ollama"}

// modelRules limit tokens and requests of each API.
func modelRules(tokens int) string {
	text := "rules:\n"
	for _, path := range modelPaths {
		text += fmt.Sprintf("  - {name: %[1]s, preset: %[1]s, match: {path: /%[1]s}, key: [header.X-Team], limit: fixed_window %[2]d/1d}\n",
			path[1:], tokens)
	}
	return text + "  - {name: requests, key: [header.X-Team], cost: 1, limit: fixed_window 1000000/1d}\n"
}

// A models is the four APIs with their events, and the recount of what they used.
type models struct {
	used, expected [4]atomic.Int64 // tokens: of whole answers, and with the estimates of broken ones
	whole, broken  atomic.Int64
}

// ServeHTTP answers with as many tokens as the request's header says, as JSON or as a stream.
func (m *models) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(r.Header.Get(name), 10, 64)
		return n
	}
	api, in, out := number("X-Api"), number("X-In"), number("X-Out")
	var body struct {
		Stream  bool            `json:"stream"`
		Options json.RawMessage `json:"stream_options"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), 400)
		return
	}
	pieces := plainAnswer(api, in, out)
	switch {
	case body.Stream && api == 3:
		w.Header().Set("Content-Type", "application/x-ndjson")
		pieces = streamed(api, in, out)
	case body.Stream:
		w.Header().Set("Content-Type", "text/event-stream")
		pieces = streamed(api, in, out)
		if api == 0 && body.Options == nil { // no usage was asked for
			pieces = append(pieces[:len(pieces)-2], pieces[len(pieces)-1])
		}
	default:
		w.Header().Set("Content-Type", "application/json")
	}
	var to io.Writer = w
	if r.Header.Get("X-Gzip") != "" {
		w.Header().Set("Content-Encoding", "gzip")
		zipped := gzip.NewWriter(w)
		defer zipped.Close()
		to = zipped
	}
	end := r.Header.Get("X-End")
	for i, piece := range pieces {
		if end != "" && i == len(pieces)/2 {
			m.broken.Add(1)
			m.expected[api].Add(number("X-Estimate"))
			http.NewResponseController(w).Flush()
			if end == "client" {
				<-r.Context().Done()
			}
			panic(http.ErrAbortHandler)
		}
		io.WriteString(to, piece)
		if to == w && body.Stream {
			http.NewResponseController(w).Flush()
		}
	}
	m.whole.Add(1)
	m.used[api].Add(in + out)
	m.expected[api].Add(in + out)
}

// plainAnswer is an answer in two pieces.
func plainAnswer(api, in, out int64) []string {
	text := strings.Repeat("word ", int(min(out, 100)))
	return [][]string{
		{fmt.Sprintf(`{"choices":[{"message":{"content":%q}}],"usage":{"prompt_tokens":%d,`, text, in),
			fmt.Sprintf(`"completion_tokens":%d,"total_tokens":%d}}`, out, in+out)},
		{fmt.Sprintf(`{"type":"message","content":[{"text":%q}],"usage":{"input_tokens":%d,`, text, in),
			fmt.Sprintf(`"cache_creation_input_tokens":0,"cache_read_input_tokens":7,"output_tokens":%d}}`, out)},
		{fmt.Sprintf(`{"candidates":[{"content":{"parts":[{"text":%q}]}}],"usageMetadata":`, text),
			fmt.Sprintf(`{"promptTokenCount":%d,"candidatesTokenCount":%d,"totalTokenCount":%d}}`, in, out, in+out)},
		{fmt.Sprintf(`{"message":{"content":%q},"done":true,"prompt_eval_count":%d`, text, in), fmt.Sprintf(`,"eval_count":%d}`, out)},
	}[api]
}

// streamed is an answer as events.
func streamed(api, in, out int64) (pieces []string) {
	words := int(min(out, 20))
	event := func(format string, args ...any) {
		pieces = append(pieces, fmt.Sprintf("data: "+format+"\n\n", args...))
	}
	switch api {
	case 0:
		for range words {
			event(`{"choices":[{"delta":{"content":"word "}}],"usage":null}`)
		}
		event(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, in, out, in+out)
		event(`[DONE]`)
	case 1:
		event(`{"type":"message_start","message":{"usage":{"input_tokens":%d,"output_tokens":1}}}`, in)
		for range words {
			event(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"word "}}`)
		}
		event(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":%d}}`, out)
		event(`{"type":"message_stop"}`)
	case 2:
		for i := range words {
			event(`{"candidates":[{"content":{"parts":[{"text":"word "}]}}],"usageMetadata":{"totalTokenCount":%d}}`, in+int64(i))
		}
		event(`{"candidates":[],"usageMetadata":{"promptTokenCount":%d,"totalTokenCount":%d}}`, in, in+out)
	default:
		for range words {
			pieces = append(pieces, `{"message":{"content":"word "},"done":false}`+"\n")
		}
		pieces = append(pieces, fmt.Sprintf(`{"done":true,"prompt_eval_count":%d,"eval_count":%d}`+"\n", in, out))
	}
	return pieces
}

// A prompt is a request of an API.
type prompt struct {
	api           int
	in, out, most int64
	stream        bool
	end           string // client, service: who breaks the answer off
}

// body is the request's body, and the estimate of its cost.
func (p *prompt) body() (text string, estimate int64) {
	messages := fmt.Sprintf(`[{"role":"user","content":%q}]`, strings.Repeat("ask ", int(p.in)))
	field := map[int]string{0: `"messages":%s,"max_tokens":%d`, 1: `"messages":%s,"max_tokens":%d`,
		2: `"contents":%s,"generationConfig":{"maxOutputTokens":%d}`, 3: `"messages":%s,"options":{"num_predict":%d}`}[p.api]
	text = fmt.Sprintf(`{"model":"m","stream":%t,`+field+`}`, p.stream, messages, p.most)
	return text, p.most + int64(len(text)+3)/4
}

// send sends the prompt. It returns the status.
func (p *prompt) send(t *testing.T, client http.RoundTripper, url string) (status int, body string) {
	text, estimate := p.body()
	r, err := http.NewRequestWithContext(t.Context(), "POST", url+modelPaths[p.api], strings.NewReader(text))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	for name, value := range map[string]any{"X-Team": "a", "X-Api": p.api, "X-In": p.in, "X-Out": p.out, "X-Estimate": estimate,
		"X-End": p.end, "Content-Type": "application/json", "Accept-Encoding": "identity"} {
		r.Header.Set(name, fmt.Sprint(value))
	}
	if p.end == "" && p.out%2 == 0 {
		r.Header.Set("X-Gzip", "1")
	}
	answer, err := client.RoundTrip(r)
	if err != nil {
		if p.end == "" {
			t.Error(err)
		}
		return 0, ""
	}
	defer answer.Body.Close()
	if p.end == "client" && answer.StatusCode == 200 {
		io.ReadFull(answer.Body, make([]byte, 1))
		return answer.StatusCode, ""
	}
	all, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(all)
}

// chosen is a prompt with sizes of a Pareto distribution.
func chosen(random *rand.Rand) *prompt {
	pareto := func(least, most float64) int64 { return int64(min(most, least/math.Pow(1-random.Float64(), 1/1.2))) }
	p := &prompt{api: random.IntN(len(modelPaths)), in: pareto(3, 3000), most: 2000, stream: random.IntN(2) == 0}
	p.out = pareto(20, 2000)
	if n := random.IntN(10); n < 2 {
		p.end = []string{"client", "service"}[n]
	}
	return p
}

// modelGateways are gateways of engines with the rules, before the models.
func modelGateways(t *testing.T, m *models, store string, nodes, tokens int) (urls []string, engines []*engine.Engine) {
	t.Helper()
	service := open(t, m.ServeHTTP)
	for range nodes {
		e := engineWith(t, store, modelRules(tokens))
		limit, err := e.Middleware(&httplimit.RuleOptions{Decoders: gateway.Decoders()})
		if err != nil {
			t.Fatal(err)
		}
		urls = append(urls, front(t, newGateway(t, service.URL, limit)).URL)
		engines = append(engines, e)
	}
	return urls, engines
}

// spentOn is what a rule of an API has charged.
func spentOn(t *testing.T, e *engine.Engine, api, tokens int) int64 {
	t.Helper()
	r := &rules.Request{Method: "POST", Path: modelPaths[api], Attributes: team{}}
	var v gate.Verdict
	if err := e.Decide(t.Context(), r, gate.Ask{}, &v); err != nil {
		t.Fatal(err)
	}
	return int64(tokens) - v.At(0).Decision.Remaining
}

// team are the attributes of a request that looks.
type team struct{}

func (team) Header(name string) string {
	if name == "X-Team" {
		return "a"
	}
	return ""
}
func (team) Query(string) string      { return "" }
func (team) Cookie(string) string     { return "" }
func (team) Descriptor(string) string { return "" }

// countedUnits checks that nothing is reserved in the end, and that the metrics of the nodes add up to the recount.
func countedUnits(t *testing.T, m *models, engines []*engine.Engine) {
	t.Helper()
	spent := make(map[string]int64)
	for _, e := range engines {
		redistest.Await(t, "the end of each request", func() bool { return len(e.Gate().Reserved()) == 0 })
		registry := prometheus.NewRegistry()
		registry.MustRegister(e.Metrics())
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			for _, one := range family.GetMetric() {
				if family.GetName() == "weir_units_total" {
					spent["/"+one.GetLabel()[0].GetValue()] += int64(one.GetCounter().GetValue())
				}
			}
		}
	}
	for api, path := range modelPaths {
		if want := m.expected[api].Load(); spent[path] != want {
			t.Errorf("%s: the metrics say %d tokens, want %d", path, spent[path], want)
		}
	}
}

// TestTokensAreCountedExactly: 64 clients of four APIs, with streams, plain answers, clients that leave and services that
// break off: what is charged in the end equals a recount by the services, to the token. An answer that broke off costs its
// estimate.
func TestTokensAreCountedExactly(t *testing.T) {
	for name, test := range map[string]struct {
		nodes int
		store func() string
	}{
		"memory":    {1, func() string { return "memory" }},
		"redis":     {1, func() string { return redistest.Start(t).URL() }},
		"two nodes": {2, func() string { return redistest.Start(t).URL() }},
	} {
		t.Run(name, func(t *testing.T) {
			const tokens = 1_000_000_000
			m := new(models)
			urls, engines := modelGateways(t, m, test.store(), test.nodes, tokens)
			each := 30
			if testing.Short() {
				each = 5
			}
			var group sync.WaitGroup
			for client := range 64 {
				group.Go(func() {
					transport := &http.Transport{}
					defer transport.CloseIdleConnections()
					random := rand.New(rand.NewPCG(11, uint64(client)))
					for i := range each {
						p := chosen(random)
						if status, body := p.send(t, transport, urls[(client+i)%len(urls)]); status != 200 && p.end == "" {
							t.Errorf("%+v: %d %s", p, status, body)
						}
					}
				})
			}
			group.Wait()
			for api, path := range modelPaths {
				for _, e := range engines {
					want := func() bool { return spentOn(t, e, api, tokens) == m.expected[api].Load() }
					redistest.Await(t, "the settled cost of "+path, want)
				}
			}
			countedUnits(t, m, engines)
			if m.broken.Load() == 0 || m.whole.Load() == 0 {
				t.Errorf("%d whole answers and %d that broke off", m.whole.Load(), m.broken.Load())
			}
		})
	}
}

// TestTokensDoNotExceedTheBudget: 64 clients at once, of which each may get what is left, use no more than it, since an
// estimate is not below the cost. Refusals have the form of the API.
func TestTokensDoNotExceedTheBudget(t *testing.T) {
	const tokens = 20_000
	m := new(models)
	urls, engines := modelGateways(t, m, "memory", 1, tokens)
	var refused atomic.Int64
	var group sync.WaitGroup
	for client := range 64 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(3, uint64(client)))
			for range 10 {
				p := chosen(random)
				p.end = ""
				status, body := p.send(t, http.DefaultTransport, urls[0])
				if status != 429 {
					continue
				}
				refused.Add(1)
				want := []string{`"code":"rate_limit_exceeded"`, `"type":"rate_limit_error"`, `"status":"RESOURCE_EXHAUSTED"`, `{"error":"`}[p.api]
				if !strings.Contains(body, want) || !strings.Contains(body, `"remaining":`) {
					t.Errorf("%s is refused with %s", modelPaths[p.api], body)
				}
			}
		})
	}
	group.Wait()
	for api, path := range modelPaths {
		used := m.used[api].Load()
		if used > tokens || used == 0 {
			t.Errorf("%s: %d tokens of %d", path, used, tokens)
		}
		redistest.Await(t, "the settled cost of "+path, func() bool { return spentOn(t, engines[0], api, tokens) == used })
	}
	if refused.Load() == 0 {
		t.Error("nobody was refused")
	}
}

// TestModelsGetEachByte: of requests, but for the usage that is asked for, and of responses.
func TestModelsGetEachByte(t *testing.T) {
	got := make(chan string, 1)
	const answer = "data: {\"a\":1}\r\n\r\ndata: [DONE]\n\n"
	service := open(t, func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got <- fmt.Sprint(r.ContentLength, " ", string(text))
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, answer)
	})
	e := engineWith(t, "memory", modelRules(1_000_000))
	limit, err := e.Middleware(nil)
	if err != nil {
		t.Fatal(err)
	}
	url := front(t, newGateway(t, service.URL, limit)).URL
	for _, test := range []struct{ path, body, want string }{
		{"/openai", `{"model":"m", "stream":true}`, `68 {"stream_options":{"include_usage":true},"model":"m", "stream":true}`},
		{"/openai", ` { "stream":true,"stream_options":{ }}`, `58  { "stream":true,"stream_options":{"include_usage":true }}`},
		{"/openai", `{"stream":true,"stream_options":{"a":1} }`, `62 {"stream":true,"stream_options":{"include_usage":true,"a":1} }`},
		{"/openai", `{"stream":true,"stream_options":null}`, `55 {"stream":true,"stream_options":{"include_usage":true}}`},
		{"/openai", `{"stream":true,"stream_options":{"include_usage":false}}`, `55 {"stream":true,"stream_options":{"include_usage":true}}`},
		{"/openai", `{"stream":true,"stream_options":{"include_usage":true}}`, `55 {"stream":true,"stream_options":{"include_usage":true}}`},
		{"/openai", `{"stream":true,"stream_options":1}`, `34 {"stream":true,"stream_options":1}`},
		{"/openai", `{"stream":true,"stream_options":{},"Stream_options":{}}`, `75 {"stream":true,"stream_options":{"include_usage":true},"Stream_options":{}}`},
		{"/openai", "\ufeff{\"stream\":true}", "58 \ufeff{\"stream_options\":{\"include_usage\":true},\"stream\":true}"},
		{"/openai", `{"stream":false}`, `16 {"stream":false}`},
		{"/openai", `{"stream":true`, `14 {"stream":true`},
		{"/anthropic", `{"model":"m","stream":true}`, `27 {"model":"m","stream":true}`},
	} {
		response, err := http.Post(url+test.path, "application/json", strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if body := <-got; body != test.want || string(text) != answer {
			t.Errorf("%s %s: the service got %s, and the client %q", test.path, test.body, body, text)
		}
	}
}
