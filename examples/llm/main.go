// Command llm is a gateway in front of a language model that limits tokens a minute and
// requests a minute of each API key, in one decision.
//
//	go run ./examples/llm
//	curl -iN -H 'Authorization: Bearer me' -d '{"prompt":"Tell me of rivers","max_tokens":4000}' \
//		http://127.0.0.1:8080/v1/chat
//
// The cost of a request is known only after its answer has been streamed. So an estimate is
// reserved (the prompt, and the most tokens of an answer), and when the stream ends, or its
// reader disconnects, the estimate is settled: by the usage that the model reports, or else by
// the number of streamed tokens. Without -upstream a simulated model answers.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

//go:embed rules.yaml
var ruleFile []byte

func main() {
	upstream := flag.String("upstream", "", "URL of a model that speaks as the made-up one does")
	flag.Parse()
	if *upstream == "" {
		model := httptest.NewServer(http.HandlerFunc(madeUp))
		defer model.Close()
		*upstream = model.URL
	}
	handler, err := chat(memstore.New(), *upstream)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(`Ask: curl -iN -H 'Authorization: Bearer me' -d '{"prompt":"Tell me of rivers","max_tokens":4000}'` +
		` http://127.0.0.1:8080/v1/chat`)
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", handler))
}

// A gateway runs in front of a model.
type gateway struct {
	gate  *gate.Gate
	proxy *httputil.ReverseProxy
}

func chat(store weir.Store, upstream string) (http.Handler, error) {
	target, err := url.Parse(upstream)
	if err != nil {
		return nil, err
	}
	set, err := rules.Load("rules.yaml", ruleFile)
	if err != nil {
		return nil, err
	}
	decider, err := gate.New(store, set, gate.WithLocal(memstore.New()))
	if err != nil {
		return nil, err
	}
	g := &gateway{gate: decider, proxy: &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: meter,
	}}
	return g, nil
}

// A prompt is what of a request matters here.
type prompt struct {
	Prompt    string `json:"prompt"`
	MaxTokens int64  `json:"max_tokens"`
}

const (
	maxBody   = 1 << 20
	maxTokens = 10_000 // of an answer, and if the request does not say
)

// tokens is the usual rule of thumb: four letters each.
func tokens(text string) int64 { return int64(len(text)+3) / 4 }

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	p := prompt{MaxTokens: maxTokens}
	if err == nil {
		err = json.Unmarshal(body, &p)
	}
	if err != nil || p.MaxTokens < 1 || p.MaxTokens > maxTokens {
		text := fmt.Sprintf("Send JSON with a prompt and max_tokens from 1 to %d.", maxTokens)
		http.Error(w, text, http.StatusBadRequest)
		return
	}
	asked := tokens(p.Prompt)
	estimate := asked + p.MaxTokens
	var v gate.Verdict
	request := rules.Request{Attributes: headers(r.Header)}
	if err := g.gate.Decide(r.Context(), &request, gate.Ask{Times: 1, Cost: &estimate}, &v); err != nil {
		log.Print(err)
	}
	if v.Outcome != gate.Passed {
		refuse(w, &v)
		return
	}
	used := &usage{prompt: asked}
	// The client may have left, or the copy panicked, by the time there is something to settle.
	defer g.settle(context.WithoutCancel(r.Context()), v.Receipt(), used)
	r.Body = io.NopCloser(bytes.NewReader(body))
	g.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), usageKey{}, used)))
}

func (g *gateway) settle(ctx context.Context, receipt gate.Receipt, used *usage) {
	if err := g.gate.Settle(ctx, receipt, used.total()); err != nil {
		log.Print(err) // the estimate stays charged
	}
}

// refuse answers a refused request.
func refuse(w http.ResponseWriter, v *gate.Verdict) {
	check, ok := v.Worst()
	switch {
	case v.Outcome == gate.Refused && ok && check.Decision.RetryAfter != weir.Never && check.Decision.RetryAfter > 0:
		wait := strconv.Itoa(int(math.Ceil(check.Decision.RetryAfter.Seconds())))
		w.Header().Set("Retry-After", wait)
		text := fmt.Sprintf("The limit of %s is exceeded: try again in %s s.", check.Claim.Limit.Name(), wait)
		http.Error(w, text, http.StatusTooManyRequests)
	case v.Outcome == gate.Refused:
		const text = "The request is larger than the limit can ever hold: ask for fewer tokens."
		http.Error(w, text, http.StatusTooManyRequests)
	case v.Outcome == gate.Denied:
		http.Error(w, "Send your API key in the header Authorization.", http.StatusUnauthorized)
	default:
		http.Error(w, "The limits cannot be asked now.", http.StatusServiceUnavailable)
	}
}

// headers are what the rules may ask for.
type headers http.Header

func (h headers) Header(name string) string { return http.Header(h).Get(name) }
func (headers) Query(string) string         { return "" }
func (headers) Cookie(string) string        { return "" }
func (headers) Descriptor(string) string    { return "" }
