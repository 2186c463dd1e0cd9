package extauthz_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocmode "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/envoytest"
	"github.com/weirproject/weir/server/internal/extauthz"
	"github.com/weirproject/weir/server/internal/grpcserver"
)

// A processed service is behind Envoy with the filter ext_proc of the page.
type processed struct {
	t      *testing.T
	url    string
	gate   *gate.Gate
	server *grpcserver.Server

	upstream *httptest.Server
	seen     chan string // the bodies that the service got
}

func process(t *testing.T, text string, service http.HandlerFunc) *processed {
	t.Helper()
	p := readPage(t)
	filter, config := tree(t, p.extProc), tree(t, p.bootstrap)
	at(t, filter, "typed_config", "grpc_service").(map[string]any)["initial_metadata"] = at(t, tree(t, p.withToken), "grpc_service", "initial_metadata")
	at(t, at(t, config, manager...), "http_filters").([]any)[0] = filter
	at(t, config, append(manager, "route_config", "virtual_hosts", 0, "routes", 0, "route")...).(map[string]any)["timeout"] = "2s"
	whole, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	c := &processed{t: t, seen: make(chan string, 100)}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		c.seen <- r.URL.Path + " " + string(body)
		service(w, r)
	}))
	t.Cleanup(upstream.Close)
	c.upstream = upstream
	weirs := serve(t, text)
	c.gate, c.server = weirs.gate, weirs.server
	e := envoytest.Start(t, string(whole), "address: 0.0.0.0", "address: 127.0.0.1", "port_value: 10000", "port_value: 0",
		"port_value: 3000", "port_value: "+port(t, upstream.Listener.Addr().String()), "port_value: 8082", "port_value: "+weirs.port,
		"port_value: 8083", "port_value: "+port(t, redistest.FreeAddr(t)), "timeout: 1s", "timeout: 60s", "message_timeout: 1s", "message_timeout: 60s")
	c.url = "http://" + e.Address("in")
	return c
}

func (c *processed) post(ctx context.Context, path, body string) *http.Response {
	c.t.Helper()
	r, err := http.NewRequestWithContext(ctx, "POST", c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { response.Body.Close() })
	return response
}

// charged awaits what the rule tokens has charged: the end of a response is after its last byte.
func (c *processed) charged(want int64) {
	c.t.Helper()
	got := int64(-1)
	defer func() {
		if got != want {
			c.t.Errorf("%d are charged, want %d", got, want)
		}
	}()
	redistest.Await(c.t, fmt.Sprint(want, " to be charged"), func() bool {
		var v gate.Verdict
		if err := c.gate.Decide(c.t.Context(), &rules.Request{Method: "POST", Path: "/v1/chat"}, gate.Ask{}, &v); err != nil {
			c.t.Fatal(err)
		}
		got = v.At(0).Claim.Limit.Units() - v.At(0).Decision.Remaining
		return got == want
	})
}

const (
	tokenRules = "rules: [{name: tokens, preset: openai, match: {path: /v1/**}, limit: fixed_window 1000/1m}, " +
		"{name: ip, match: {path: /free}, key: [client.ip], on_missing: deny, limit: 1/1h}]"
	question = `{"max_tokens":93,"messages":[{"content":"two"}]}` // an estimate of 105
	usage    = `{"choices":[],"usage":{"total_tokens":17}}`
	early    = "data: {\"usage\":{\"total_tokens\":1}}\n\n" // a usage that is not the last
	events   = "data: {\"choices\":[{\"delta\":{\"content\":\"a river\"}}]}\n\ndata: " + usage + "\n\ndata: [DONE]\n\n"
)

// TestProcessorHoldsABudget: behind Envoy rules for language models do what they do at the gateway.
func TestProcessorHoldsABudget(t *testing.T) {
	breaks := make(chan struct{})
	c := process(t, tokenRules, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/chat":
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, usage)
		case "/v1/stream":
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range events {
				io.WriteString(w, events[i:i+1])
				http.NewResponseController(w).Flush()
			}
		case "/v1/error":
			w.WriteHeader(500)
		case "/v1/breaks":
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, early)
			http.NewResponseController(w).Flush()
			<-breaks
			panic(http.ErrAbortHandler)
		case "/v1/waits":
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, early)
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	})
	read := func(path, body, want string) *http.Response {
		t.Helper()
		response := c.post(t.Context(), path, body)
		if got, _ := io.ReadAll(response.Body); string(got) != want {
			t.Errorf("%s: %s %q, want %q", path, response.Status, got, want)
		}
		return response
	}
	if response := read("/v1/chat", question, usage); response.Header.Get("RateLimit") == "" || <-c.seen != "/v1/chat "+question {
		t.Errorf("%v", response.Header)
	}
	c.charged(17)
	read("/v1/stream", `{"stream":true,`+question[1:], events)
	if got := <-c.seen; !strings.Contains(got, `"include_usage":true`) || !strings.HasSuffix(got, question[1:]) {
		t.Errorf("the service got %s", got)
	}
	c.charged(2 * 17)
	read("/v1/error", question, "")
	c.charged(2 * 17)
	read("//v1/./chat", question, usage)
	for range 2 {
		if got := <-c.seen; !strings.HasPrefix(got, "/v1/error") && !strings.HasPrefix(got, "/v1/chat ") {
			t.Errorf("the service got %s", got)
		}
	}
	c.charged(3 * 17)
	response := c.post(t.Context(), "/v1/chat", strings.Replace(question, "93", "945", 1))
	text, _ := io.ReadAll(response.Body)
	if response.StatusCode != 429 || response.Header.Get("Retry-After") == "" || !strings.Contains(string(text), `"code":"rate_limit_exceeded"`) || len(c.seen) != 0 {
		t.Errorf("%s %v %s", response.Status, response.Header, text)
	}
	c.charged(3 * 17)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for i, path := range []string{"/v1/breaks", "/v1/waits"} { // the estimate stays
		response = c.post(ctx, path, question)
		if _, err := io.ReadFull(response.Body, make([]byte, len(early))); err != nil {
			t.Error(err)
		}
		if i == 0 {
			close(breaks)
			if _, err := io.ReadAll(response.Body); err == nil {
				t.Error("the response ended as if it were whole")
			}
		}
		if i == 1 {
			leave()
		}
		c.charged(3*17 + int64(i+1)*105)
	}
	if response = c.post(t.Context(), "/none", `{"x":"`+strings.Repeat("x", 2<<20)+`"}`); response.StatusCode != 413 {
		t.Errorf("a body that Envoy does not hold: %s", response.Status)
	}
	for _, want := range []int{200, 429} { // the client is known
		free, err := http.Get(c.url + "/free")
		if err != nil || free.StatusCode != want {
			t.Error(free, err)
		}
	}
	c.post(t.Context(), "/v1/waits", question)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if cut := c.server.Shutdown(over); cut != 1 {
		t.Errorf("%d responses were cut by a shutdown, want 1", cut)
	}
}

// TestProcessorOfACrowd: of many requests at once, plain and streamed, some of which leave early, no more pass than fit, and
// in the end those that were answered are charged what they state.
func TestProcessorOfACrowd(t *testing.T) {
	c := process(t, tokenRules, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/stream" {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, events)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, usage)
	})
	var passed atomic.Int64
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			path := []string{"/v1/stream", "/v1/chat"}[i%2]
			response, err := http.Post(c.url+path, "application/json", strings.NewReader(question))
			if err != nil {
				t.Error(err)
				return
			}
			io.Copy(io.Discard, response.Body)
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				passed.Add(1)
			}
		})
	}
	all.Wait()
	if n := passed.Load(); n < 9 || n > 58 { // 9 estimates fit, and 58 usages
		t.Errorf("%d passed", n)
	}
	c.charged(17 * passed.Load())
}

// A told stream is a call of which Envoy's messages are known.
type told struct {
	grpc.ServerStream
	ctx  context.Context
	says []*extproc.ProcessingRequest
	sent []*extproc.ProcessingResponse
}

func (s *told) Context() context.Context { return s.ctx }

func (s *told) Send(m *extproc.ProcessingResponse) error {
	s.sent = append(s.sent, m)
	return nil
}

func (s *told) Recv() (*extproc.ProcessingRequest, error) {
	if len(s.says) == 0 {
		return nil, io.EOF
	}
	m := s.says[0]
	s.says = s.says[1:]
	return m, nil
}

// processor is the service without a connection.
func processor(t *testing.T, text string) extproc.ExternalProcessorServer {
	t.Helper()
	register, err := extauthz.NewProcessor(gatetest.New(t, memstore.New(), text), new(httplimit.RuleOptions))
	if err != nil {
		t.Fatal(err)
	}
	var r processors
	register(&r)
	return r
}

type processors struct {
	extproc.ExternalProcessorServer
}

func (r *processors) RegisterService(_ *grpc.ServiceDesc, service any) {
	r.ExternalProcessorServer = service.(extproc.ExternalProcessorServer)
}

func headed(method, path string, ends bool) *extproc.ProcessingRequest {
	list := &core.HeaderMap{Headers: []*core.HeaderValue{{Key: ":method", RawValue: []byte(method)}, {Key: ":path", RawValue: []byte(path)}, {Key: ":authority", Value: "a"}}}
	return &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestHeaders{RequestHeaders: &extproc.HttpHeaders{Headers: list, EndOfStream: ends}}}
}

// TestProcessorRefusesOtherModes: by them weir would not see what rules need.
func TestProcessorRefusesOtherModes(t *testing.T) {
	p := processor(t, tokenRules)
	for _, modes := range [][2]extprocmode.ProcessingMode_BodySendMode{
		{extprocmode.ProcessingMode_NONE, extprocmode.ProcessingMode_STREAMED}, {extprocmode.ProcessingMode_BUFFERED, extprocmode.ProcessingMode_NONE},
		{extprocmode.ProcessingMode_STREAMED, extprocmode.ProcessingMode_STREAMED}, {extprocmode.ProcessingMode_BUFFERED, extprocmode.ProcessingMode_FULL_DUPLEX_STREAMED},
	} {
		m := headed("POST", "/v1/chat", false)
		m.ProtocolConfig = &extproc.ProtocolConfiguration{RequestBodyMode: modes[0], ResponseBodyMode: modes[1]}
		err := p.Process(&told{ctx: t.Context(), says: []*extproc.ProcessingRequest{m}})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "processing_mode") {
			t.Errorf("%v: %v", modes, err)
		}
	}
}

// TestProcessorAnswersEachMessage: a body that is cut is not read, a path without a form is refused, and a call that ends
// early is charged its estimate.
func TestProcessorAnswersEachMessage(t *testing.T) {
	cut := &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestBody{RequestBody: &extproc.HttpBody{Body: []byte(question)}}}
	for _, test := range []struct {
		says []*extproc.ProcessingRequest
		want string
	}{
		{[]*extproc.ProcessingRequest{headed("POST", "/v1/chat", false), cut}, "HeadersResponse BodyResponse"},
		{[]*extproc.ProcessingRequest{headed("POST", "/large", false), cut}, "HeadersResponse 400"},
		{[]*extproc.ProcessingRequest{headed("POST", "/large", false)}, "HeadersResponse 400"},
		{[]*extproc.ProcessingRequest{headed("GET", "/a%2fb", true)}, "400"},
		{[]*extproc.ProcessingRequest{headed("GET", "a b", true)}, "400"},
		{[]*extproc.ProcessingRequest{headed("GET", "/", true)}, "HeadersResponse"},
		{[]*extproc.ProcessingRequest{{}}, "400"},
	} {
		p := processor(t, "rules: [{name: tokens, preset: openai, match: {path: /v1/**}, limit: fixed_window 1000/1m}, "+
			"{name: large, match: {path: /large, json: {model: large}}, limit: 1/1h}]")
		s := &told{ctx: t.Context(), says: test.says}
		var got []string
		if err := p.Process(s); err != nil {
			got = append(got, err.Error())
		}
		for _, m := range s.sent {
			switch m := m.Response.(type) {
			case *extproc.ProcessingResponse_RequestHeaders:
				got = append(got, "HeadersResponse")
			case *extproc.ProcessingResponse_RequestBody:
				got = append(got, "BodyResponse")
			case *extproc.ProcessingResponse_ImmediateResponse:
				got = append(got, fmt.Sprint(int(m.ImmediateResponse.Status.Code)))
			}
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%v: %v, want %s", test.says, got, test.want)
		}
	}
}

// TestProcessorCutsStreams: the last event is the API's error, and then the service is stopped.
func TestProcessorCutsStreams(t *testing.T) {
	stopped := make(chan struct{})
	c := process(t, "rules: [{name: tokens, preset: openai, charge: as_it_streams, stream: {step: 10, overrun: cut}, match: {path: /v1/**}, limit: fixed_window 60/1m}]",
		func(w http.ResponseWriter, r *http.Request) {
			defer close(stopped)
			w.Header().Set("Content-Type", "text/event-stream")
			for r.Context().Err() == nil {
				io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"wordwordwordwordword\"}}]}\n\n")
				http.NewResponseController(w).Flush()
			}
		})
	lines := bufio.NewScanner(c.post(t.Context(), "/v1/chat", question).Body)
	words, last := 0, ""
	for lines.Scan() {
		words += strings.Count(lines.Text(), "word")
		if lines.Text() != "" {
			last = lines.Text()
		}
	}
	if words > 55*4/4 || !strings.HasPrefix(last, `data: {"error":`) {
		t.Errorf("%d words, and at last %s", words, last)
	}
	<-stopped
}

// TestProcessorReadsABodyBeforeTrailers: Envoy does not say then that the body ends, and no client chooses thereby that its
// cost is not read.
func TestProcessorReadsABodyBeforeTrailers(t *testing.T) {
	c := process(t, tokenRules, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{}`) // which states no cost: the estimate stays
	})
	r, err := http.NewRequestWithContext(t.Context(), "POST", c.url+"/v1/chat", io.MultiReader(strings.NewReader(question)))
	if err != nil {
		t.Fatal(err)
	}
	r.Trailer = http.Header{"X-End": {"yes"}}
	r.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	response, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if seen := <-c.seen; response.StatusCode != 200 || seen != "/v1/chat "+question {
		t.Errorf("%s, and the service got %s", response.Status, seen)
	}
	c.charged(105)
}

// TestProcessorKeepsTheCostOfUnseenResponses: Envoy answers for a service that takes too long or hangs up, and the service may
// have done the work. A client can cause both, so such an answer must not be free.
func TestProcessorKeepsTheCostOfUnseenResponses(t *testing.T) {
	c := process(t, tokenRules, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/slow":
			<-r.Context().Done()
		case "/v1/hangs-up":
			panic(http.ErrAbortHandler)
		case "/v1/refuses":
			w.WriteHeader(http.StatusGatewayTimeout)
		}
	})
	for i, test := range []struct {
		path    string
		status  int
		charged int64
	}{
		{"/v1/slow", 504, 105}, {"/v1/hangs-up", 503, 2 * 105}, {"/v1/refuses", 504, 2 * 105}, {"/v1/closed", 503, 2 * 105},
	} {
		if test.path == "/v1/closed" {
			c.upstream.CloseClientConnections()
			c.upstream.Listener.Close()
		}
		if response := c.post(t.Context(), test.path, question); response.StatusCode != test.status {
			t.Errorf("%d: %s", i, response.Status)
		}
		c.charged(test.charged)
	}
}
