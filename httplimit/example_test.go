package httplimit_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

func ExampleNew() {
	limiter, err := weir.New(memstore.New(), "per-address", weir.SlidingLog{Limit: 1, Window: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	limited, err := httplimit.New(limiter, httplimit.PeerAddress, &httplimit.Options{Body: httplimit.PlainJSON})
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(limited(hello))
	defer server.Close()
	for range 2 {
		response, err := http.Get(server.URL)
		if err != nil {
			log.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		fmt.Println(response.StatusCode, response.Header.Get("RateLimit"), string(body))
	}
	// Output:
	// 200 "per-address";r=0;t=60 hello
	// 429 "per-address";r=0;t=60 {"code":429,"message":"Too many requests: try again in 1 minute.","retry_after":60}
}

// A gateway counts each request four times, in one decision: for the whole site, for its service,
// for its interface, and for the client's address. A request that one of them refuses is charged to
// none.
func ExampleTogether() {
	service := func(name string) httplimit.Key { return httplimit.Constant("service:" + name) }
	limits := func(name string, n int64) []*weir.Limit {
		return []*weir.Limit{weir.MustLimit(name, weir.SlidingLog{Limit: n, Window: time.Minute})}
	}
	limited, err := httplimit.Together(memstore.New(), []httplimit.Part{
		{Key: httplimit.Constant("GLOBAL"), Limits: limits("global", 1000)},
		{Key: service("orders"), Limits: limits("service", 100)},
		{Key: httplimit.Joined(service("orders"), httplimit.MethodRoute), Limits: limits("interface", 3)},
		{Key: httplimit.Joined(httplimit.PeerAddress, httplimit.Header("X-Client")), Limits: limits("ip", 2)},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux() // the routes are known behind the mux
	mux.Handle("GET /orders/{id}", limited(hello))
	server := httptest.NewServer(mux)
	defer server.Close()

	for _, client := range []string{"a", "a", "a", "b", "b"} { // one machine plays two
		request, _ := http.NewRequest("GET", server.URL+"/orders/7", nil)
		request.Header.Set("X-Client", client)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			log.Fatal(err)
		}
		response.Body.Close()
		fmt.Println(client, response.StatusCode, response.Header.Get("RateLimit"))
	}
	// Output:
	// a 200 "global";r=999;t=60, "service";r=99;t=60, "interface";r=2;t=60, "ip";r=1;t=60
	// a 200 "global";r=998;t=60, "service";r=98;t=60, "interface";r=1;t=60, "ip";r=0;t=60
	// a 429 "global";r=998, "service";r=98, "interface";r=1, "ip";r=0;t=60
	// b 200 "global";r=997;t=60, "service";r=97;t=60, "interface";r=0;t=60, "ip";r=1;t=60
	// b 429 "global";r=997, "service";r=97, "interface";r=0;t=60, "ip";r=1
}

// The rules of a file, before any handler. The rule for logins counts all spellings of its path, and
// refuses with the body that its clients expect.
func ExampleByRules() {
	file, err := rules.Parse("weir.yaml", []byte(`
server:
  trusted_proxies: [10.0.0.0/8]
rules:
  - name: per-ip
    key: [client.ip]
    limit: sliding_log 100/1m
  - name: login
    match: {method: POST, path: /login}
    key: [client.ip]
    limit: sliding_log 1/1m
    response: {body: json}
`))
	if err != nil {
		log.Fatal(err)
	}
	set, err := rules.Compile(file)
	if err != nil {
		log.Fatal(err)
	}
	g, err := gate.New(memstore.New(), set, gate.WithLocal(memstore.New()))
	if err != nil {
		log.Fatal(err)
	}
	clients, err := clientaddr.New(set.TrustedProxies())
	if err != nil {
		log.Fatal(err)
	}
	limited, err := httplimit.ByRules(g, &httplimit.RuleOptions{Clients: clients})
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(limited(hello))
	defer server.Close()
	for _, path := range []string{"/login", "/./%6cogin", "/logout"} {
		response, err := http.Post(server.URL+path, "text/plain", nil)
		if err != nil {
			log.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		fmt.Println(response.StatusCode, response.Header.Get("RateLimit"), strings.TrimSpace(string(body)))
	}
	// Output:
	// 200 "per-ip";r=99;t=60, "login";r=0;t=60 hello
	// 429 "per-ip";r=99, "login";r=0;t=60 {"code":429,"message":"Too many requests: try again in 1 minute.","retry_after":60}
	// 200 "per-ip";r=98;t=60 hello
}

// A client that keeps to its own rate and to the waits that servers request, and repeats a refused
// request up to three times.
func ExampleTransport() {
	own, err := weir.New(memstore.New(), "outgoing", weir.PerSecond(20))
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(hello)
	defer server.Close()
	client := &http.Client{Transport: &httplimit.Transport{Limiter: own, MaxWait: 10 * time.Second, Retries: 3}}
	response, err := client.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	fmt.Println(response.StatusCode)
	// Output: 200
}

// A client of an API of language models that spends at most 1,000 tokens an hour. The third question does not fit in
// the budget: its answer is the client's own, and has the form of the API's.
func ExampleTransportByRules() {
	set, err := rules.Load("budget.yaml", []byte("rules: [{name: tokens, preset: openai, limit: fixed_window 1000/1h}]"))
	if err != nil {
		log.Fatal(err)
	}
	budget, err := gate.New(memstore.New(), set, gate.WithLocal(memstore.New()))
	if err != nil {
		log.Fatal(err)
	}
	limited, err := httplimit.TransportByRules(budget, nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"choices":[],"usage":{"total_tokens":320}}`)
	}))
	defer server.Close()
	client := &http.Client{Transport: limited}
	for range 3 {
		question := strings.NewReader(`{"max_tokens":400,"messages":[]}`)
		response, err := client.Post(server.URL+"/v1/chat/completions", "application/json", question)
		if err != nil {
			log.Fatal(err)
		}
		var answer struct {
			Usage struct {
				Tokens int `json:"total_tokens"`
			}
			Error struct{ Code string }
		}
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
			log.Fatal(err)
		}
		response.Body.Close()
		fmt.Printf("%d %d %q\n", response.StatusCode, answer.Usage.Tokens, answer.Error.Code)
	}
	// Output:
	// 200 320 ""
	// 200 320 ""
	// 429 0 "rate_limit_exceeded"
}
