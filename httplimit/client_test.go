package httplimit_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

const openAIRule = `
  - {name: tokens, preset: openai, limit: fixed_window 1000/1m}`

// A client calls an API with the rules of a gate.
type client struct {
	t    *testing.T
	gate *gate.Gate
	*http.Client
	url  string
	seen chan *http.Request // the requests that the API got, with their bodies
}

// newClient calls a service, over HTTP/2 if asked.
func newClient(t *testing.T, text string, h2 bool, service http.HandlerFunc) *client {
	t.Helper()
	c := &client{t: t, gate: gateOf(t, newClock().store(), text), seen: make(chan *http.Request, 100)}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		c.seen <- r.WithContext(context.Background())
		service(w, r)
	}))
	if s.EnableHTTP2 = h2; h2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	c.url, c.Client = s.URL, s.Client()
	c.Transport = c.around(c.Transport)
	return c
}

func (c *client) around(base http.RoundTripper) http.RoundTripper {
	c.t.Helper()
	limited, err := httplimit.TransportByRules(c.gate, base, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return limited
}

func (c *client) post(body string) *http.Response {
	c.t.Helper()
	response, err := c.Post(c.url+"/chat", "application/json", strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	return response
}

// charged compares what the rule has charged.
func (c *client) charged(want int64) {
	c.t.Helper()
	if got := spent(c.t, c.gate); got != want {
		c.t.Errorf("%d are charged, want %d", got, want)
	}
}

func all(t *testing.T, response *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const (
	question = `{"model":"m","max_tokens":93,"messages":[{"content":"two"}]}` // 93 and a quarter of 60 bytes
	estimate = 93 + 15
	answer   = `{"choices":[],"usage":{"total_tokens":17}}` + "\n"
)

func api(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, answer)
}

// TestClientHoldsItsBudget: over both versions of HTTP, a response that is decoded and closed, without a look at its end,
// is settled. A refusal is the error of the API, and is not sent.
func TestClientHoldsItsBudget(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprint("HTTP/2 ", h2), func(t *testing.T) {
			c := newClient(t, openAIRule, h2, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, answer)
				http.NewResponseController(w).Flush() // the end comes apart
			})
			for range 3 {
				response := c.post(question)
				var decoded struct{ Usage map[string]int }
				if err := json.NewDecoder(response.Body).Decode(&decoded); err != nil || decoded.Usage["total_tokens"] != 17 {
					t.Fatal(decoded, err)
				}
				response.Body.Close()
				if sent := <-c.seen; sent.ProtoAtLeast(2, 0) != h2 || body(t, sent) != question {
					t.Fatalf("the API got %s %s", sent.Proto, body(t, sent))
				}
			}
			c.charged(3 * 17)
			response := c.post(strings.Replace(question, "93", "945", 1))
			text := all(t, response)
			if response.StatusCode != 429 || response.Header.Get("Retry-After") == "" || response.Status != "429 Too Many Requests" ||
				!strings.Contains(text, `"code":"rate_limit_exceeded"`) || response.Request.URL.Path != "/chat" || len(c.seen) != 0 {
				t.Errorf("%v %v %s", response, response.Request, text)
			}
			c.charged(3 * 17)
		})
	}
}

func body(t *testing.T, r *http.Request) string {
	t.Helper()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	r.Body = io.NopCloser(strings.NewReader(string(text)))
	return string(text)
}

const (
	event  = "data: {\"choices\":[{\"delta\":{\"content\":\"a river\"}}]}\n\n"
	stream = event + "data: {\"choices\":[],\"usage\":{\"total_tokens\":17}}\n\ndata: [DONE]\n\n"
)

// TestClientFollowsStreams: the usage is asked for, the events are those of the API, and a program that stops at the last
// one is charged the usage.
func TestClientFollowsStreams(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		c := newClient(t, openAIRule, h2, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, stream)
			http.NewResponseController(w).Flush()
		})
		response := c.post(strings.Replace(question, "{", `{"stream":true,`, 1))
		if sent := body(t, <-c.seen); !strings.HasPrefix(sent, `{"stream_options":{"include_usage":true},"stream":true,`) {
			t.Errorf("the API got %s", sent)
		}
		events := bufio.NewReader(response.Body)
		var got string
		for !strings.Contains(got, "[DONE]") {
			line, err := events.ReadString('\n')
			if got += line; err != nil {
				t.Fatal(err)
			}
		}
		if response.Body.Close(); got+"\n" != stream {
			t.Errorf("the program got %q", got)
		}
		c.charged(17)
	}
}

// TestClientThatLeaves: a response that is closed early, or that breaks off, stays at its estimate, or at the
// prompt, which is 15 tokens, and what has passed.
func TestClientThatLeaves(t *testing.T) {
	for name, test := range map[string]struct {
		sends string
		want  int64
	}{"less than estimated": {event, estimate}, "a usage that is not the last": {event + "data: {\"usage\":{\"total_tokens\":1}}\n\n", estimate}, "a usage so far": {event + "data: {\"usage\":{\"total_tokens\":700}}\n\n" + event, 700}, "more": {strings.Repeat(event, 200), 15 + 200*7/4}} {
		for _, breaks := range []bool{false, true} {
			c := newClient(t, openAIRule, false, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, test.sends)
				http.NewResponseController(w).Flush()
				if breaks {
					panic(http.ErrAbortHandler)
				}
				<-r.Context().Done()
			})
			response := c.post(question)
			if _, err := io.ReadFull(response.Body, make([]byte, len(test.sends))); err != nil {
				t.Fatal(err)
			}
			if breaks {
				if _, err := response.Body.Read(make([]byte, 1)); err == nil || err == io.EOF {
					t.Error(name, err)
				}
			}
			response.Body.Close()
			c.charged(test.want)
		}
	}
}

// TestClientClosesWhileItReads: as programs do whose context ends.
func TestClientClosesWhileItReads(t *testing.T) {
	c := newClient(t, openAIRule, false, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	response := c.post(question)
	var reads sync.WaitGroup
	reads.Go(func() {
		if _, err := response.Body.Read(make([]byte, 1)); err == nil {
			t.Error("a byte was read")
		}
	})
	response.Body.Close()
	reads.Wait()
	c.charged(estimate)
}

const twoRules = openAIRule + `
  - {name: requests, cost: 1, limit: fixed_window 5/1m}`

// TestClientThatDoesNotSend: what was never sent costs nothing, neither tokens nor requests; what may have been sent
// costs its estimate.
func TestClientThatDoesNotSend(t *testing.T) {
	left := func(c *client, want int64) {
		t.Helper()
		var v gate.Verdict
		if err := c.gate.Decide(t.Context(), &rules.Request{Method: "POST", Path: "/chat"}, gate.Ask{}, &v); err != nil {
			t.Fatal(err)
		}
		if got := v.At(1).Decision.Remaining; got != want {
			t.Errorf("%d requests are left, want %d", got, want)
		}
	}
	c := newClient(t, twoRules, false, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	post := func() error {
		_, err := c.Post(c.url+"/chat", "application/json", strings.NewReader(question))
		return err
	}
	if err := post(); err == nil {
		t.Error("the connection did not break")
	}
	c.charged(estimate)
	left(c, 4)
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.url = "http://" + nobody.Addr().String()
	nobody.Close()
	if err := post(); err == nil {
		t.Error("nobody answers")
	}
	c.charged(estimate)
	left(c, 4)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	r, _ := http.NewRequestWithContext(ended, "POST", c.url+"/chat", strings.NewReader(question))
	if _, err := c.Transport.RoundTrip(r); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	c.charged(estimate)
}

// TestClientWaitsItsTurn: the delay of a leaky queue passes before a request is sent; one whose context ends before gives
// its place back.
func TestClientWaitsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &client{t: t, gate: gateOf(t, memstore.New(), "  - {name: queue, limit: leaky_queue 1/10s queue 1}")}
		server := &script{lines: []string{"200"}, start: time.Now()}
		c.Client = &http.Client{Transport: c.around(server)}
		get := func(ctx context.Context) error {
			r, _ := http.NewRequestWithContext(ctx, "GET", "http://api/", nil)
			response, err := c.Do(r)
			if err == nil {
				response.Body.Close()
			}
			return err
		}
		if err := get(t.Context()); err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := get(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := get(t.Context()); err != nil {
			t.Error(err)
		}
		if got := fmt.Sprint(server.sent); got != "[0s 10s]" {
			t.Error("sent at", got)
		}
	})
}

// TestClientCutsStreams: no event reaches the program that is not charged, and the body ends as the API's errors do.
func TestClientCutsStreams(t *testing.T) {
	c := newClient(t, `
  - {name: tokens, preset: openai, charge: as_it_streams, stream: {step: 10, overrun: cut}, limit: fixed_window 60/1m}`,
		false, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for r.Context().Err() == nil {
				io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\""+strings.Repeat("word", 5)+"\"}}]}\n\n")
				http.NewResponseController(w).Flush()
			}
		})
	text := all(t, c.post(question))
	if n := strings.Count(text, "wordword"); n < 18 || n > 22 || !strings.Contains(text, "\n\ndata: {\"error\":") || !strings.HasSuffix(text, "\n\n") {
		t.Errorf("%d words: %s", n, text)
	}
	if got := spent(t, c.gate); got < 55 || got > 60 {
		t.Errorf("%d are charged", got)
	}
}

// TestClientRequestIsAsItWas: the request that is sent has the URL, the host and the body of the program, which keeps its
// own; a body that is sent again has the same bytes.
func TestClientRequestIsAsItWas(t *testing.T) {
	const streamed = `{"stream":true}`
	c := &client{t: t, gate: gateOf(t, newClock().store(), `
  - {name: tokens, preset: openai, match: {path: /v1/**, host: api}, limit: fixed_window 100000/1m}`)}
	base := roundTrip(func(r *http.Request) (*http.Response, error) {
		sent := body(t, r)
		again, err := r.GetBody()
		if err != nil {
			t.Fatal(err)
		}
		repeated, _ := io.ReadAll(again)
		if r.URL.String() != "http://api//v1/./chat?q=%2F" || r.ContentLength != int64(len(sent)) || string(repeated) != sent {
			t.Errorf("sent %s with %d bytes: %q, again %q", r.URL, r.ContentLength, sent, repeated)
		}
		if want := `{"stream_options":{"include_usage":true},"stream":true}`; sent != want {
			t.Errorf("sent %q, want %q", sent, want)
		}
		return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(answer)), Request: r}, nil
	})
	r, _ := http.NewRequest("POST", "http://api//v1/./chat?q=%2F", strings.NewReader(streamed))
	before := *r
	response, err := c.around(base).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	if all(t, response) != answer || r.URL != before.URL || r.ContentLength != int64(len(streamed)) || len(r.Header) != 0 {
		t.Errorf("the program's request is %v", r)
	}
	r, _ = http.NewRequest("POST", "http://api/v1/chat", io.MultiReader(strings.NewReader(question), strings.NewReader(" ")))
	response, err = c.around(roundTrip(func(r *http.Request) (*http.Response, error) {
		if text := body(t, r); text != question+" " || r.ContentLength != -1 {
			t.Errorf("sent %d bytes: %q", r.ContentLength, text)
		}
		return &http.Response{StatusCode: 204, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	})).RoundTrip(r)
	if err != nil || response.StatusCode != 204 {
		t.Error(response, err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestTransportWaitsForRules: a Transport around the rules waits as long as a refusal says, and repeats the request.
func TestTransportWaitsForRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &client{t: t, gate: gateOf(t, memstore.New(), "  - {name: calls, limit: sliding_log 1/20s}")}
		server := &script{lines: []string{"200"}, start: time.Now()}
		c.Client = &http.Client{Transport: &httplimit.Transport{Base: c.around(server), Retries: 1}}
		for range 3 {
			response, err := c.Post("http://api/", "text/plain", strings.NewReader(" text"))
			if err != nil || response.StatusCode != 200 {
				t.Fatal(response, err)
			}
			response.Body.Close()
		}
		if got := fmt.Sprint(server.sent); got != "[0s text 20s text 40s text]" {
			t.Error("sent at", got)
		}
	})
}

// TestClientSettlesByTrailersAndRedirects: a trailer may state the cost; a redirect of the same request costs nothing.
func TestClientSettlesByTrailersAndRedirects(t *testing.T) {
	c := newClient(t, `
  - {name: units, match: {path: /chat}, cost: {default: 50, settle: header.X-Used}, limit: fixed_window 1000/1m}`, false,
		func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Used")
			io.WriteString(w, "text")
			w.Header().Set("X-Used", "12")
		})
	if all(t, c.post(question)); true {
		c.charged(12)
	}
	c = newClient(t, openAIRule, false, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/chat" {
			http.Redirect(w, r, "/moved", http.StatusTemporaryRedirect)
			return
		}
		api(w, r)
	})
	if got := all(t, c.post(question)); got != answer {
		t.Errorf("got %q", got)
	}
	c.charged(17)
}

// TestClientHoldsSlots: a slot is held until the body ends.
func TestClientHoldsSlots(t *testing.T) {
	c := newClient(t, "  - {name: one, match: {path: /chat}, limit: concurrency 1 ttl 1m}", false, api)
	first := c.post(question)
	if second := c.post(question); second.StatusCode != 429 {
		t.Errorf("beside the first: %s", second.Status)
	}
	all(t, first)
	if third := c.post(question); third.StatusCode != 200 {
		t.Errorf("after the first: %s", third.Status)
	}
	c = newClient(t, "  - {name: one, match: {path: /chat}, hold_until: done, limit: concurrency 1 ttl 1m}", false, api)
	c.CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	c.Transport = c.around(roundTrip(func(*http.Request) (*http.Response, error) {
		cancel()
		return nil, ctx.Err()
	}))
	for range 2 {
		r, _ := http.NewRequestWithContext(ctx, "POST", "http://api/chat", nil)
		if _, err := c.Do(r); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if second, err := c.Get("http://api/chat"); err != nil || second.StatusCode != 429 {
		t.Errorf("while the service may work: %v %v", second, err)
	}
}

// TestClientOfMCP: a tool's refusal is the answer to the message.
func TestClientOfMCP(t *testing.T) {
	c := newClient(t, "  - {name: each, preset: mcp, match: {path: /chat}, key: [mcp.tool], limit: 1/1h}", false, api)
	const call = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"search"}}`
	all(t, c.post(call))
	if text := all(t, c.post(call)); !strings.Contains(text, `"id":7,"error":{"code":429`) {
		t.Error(text)
	}
	all(t, c.post(strings.Replace(call, "search", "find", 1)))
	if len(c.seen) != 2 {
		t.Errorf("the server got %d calls", len(c.seen))
	}
}

// TestClientsTogether: many streams at once, some left early, never have more charged than the limit, and the service is
// asked for no more than that.
func TestClientsTogether(t *testing.T) {
	var answered atomic.Int64
	c := newClient(t, openAIRule, false, func(w http.ResponseWriter, r *http.Request) {
		answered.Add(1)
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, stream)
	})
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			response, err := c.Post(c.url+"/chat", "application/json", strings.NewReader(question))
			if err != nil {
				t.Error(err)
				return
			}
			if i%3 > 0 {
				io.Copy(io.Discard, response.Body)
			}
			response.Body.Close()
		})
	}
	all.Wait()
	redistest.Await(t, "all to be settled", func() bool { return spent(t, c.gate) == 17*answered.Load() })
}
