// Command llm is a gateway in front of a language model that limits tokens a minute and
// requests a minute of each API key, in one decision.
//
//	go run ./examples/llm
//	curl -iN -H 'Authorization: Bearer me' -d '{"messages":[{"content":"Tell me of rivers"}],"stream":true}' \
//		http://127.0.0.1:8080/v1/chat/completions
//
// The cost of a request is known only after its answer has been streamed. The preset of the rule
// reserves an estimate, and settles it by the usage that the model states. Without -upstream a
// simulated model answers.
package main

import (
	_ "embed"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

//go:embed rules.yaml
var ruleFile []byte

func main() {
	upstream := flag.String("upstream", "", "URL of an API in OpenAI's form")
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
	fmt.Println(`Ask: curl -iN -H 'Authorization: Bearer me' -d '{"messages":[{"content":"Tell me of rivers"}],` +
		`"stream":true}' http://127.0.0.1:8080/v1/chat/completions`)
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", handler))
}

// chat is a gateway in front of a model.
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
	limit, err := httplimit.ByRules(decider, &httplimit.RuleOptions{
		Observe: func(_ *http.Request, e httplimit.Event) {
			if e.Err != nil {
				log.Print(e.Err) // such as an answer without its usage: the estimate stays charged
			}
		},
	})
	if err != nil {
		return nil, err
	}
	return limit(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			httplimit.Unfinished(w) // the model may have done the work
			http.Error(w, err.Error(), http.StatusBadGateway)
		},
	}), nil
}
