package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/redistest"
)

// TestStreamsShareWhatIsLeft: ten streams at once, which together want ten times the budget, get no more than it, in
// memory, on Redis and by two gateways. A stream that is cut ends as an HTTP response does, with the error of the API; one
// that is to finish is charged beyond the limit. A stream that states its usage costs that in the end.
func TestStreamsShareWhatIsLeft(t *testing.T) {
	const (
		budget  = 2000
		streams = 10
		words   = 500 // events of a stream, with 4 bytes each
	)
	for name, test := range map[string]struct {
		nodes   int
		store   func() string
		preset  string
		overrun string
	}{
		"memory, openai":    {1, func() string { return "memory" }, "openai", "cut"},
		"memory, anthropic": {1, func() string { return "memory" }, "anthropic", "cut"},
		"memory, gemini":    {1, func() string { return "memory" }, "gemini", "cut"},
		"memory, list":      {1, func() string { return "memory" }, "list", "cut"},
		"memory, ollama":    {1, func() string { return "memory" }, "ollama", "cut"},
		"redis":             {1, func() string { return redistest.Start(t).URL() }, "openai", "cut"},
		"two nodes":         {2, func() string { return redistest.Start(t).URL() }, "openai", "cut"},
		"finish":            {1, func() string { return "memory" }, "openai", "finish"},
	} {
		t.Run(name, func(t *testing.T) {
			event := map[string]string{
				"openai":    "data: {\"choices\":[{\"delta\":{\"content\":\"word\"}}]}\n\n",
				"anthropic": "data: {\"delta\":{\"text\":\"word\"}}\n\n",
				"gemini":    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"word\"}]}}]}\n\n",
				"list":      "{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"word\"}]}}]}\n,",
				"ollama":    "{\"message\":{\"content\":\"word\"}}\n",
			}[test.preset]
			usage := map[string]string{"openai": "data: {\"usage\":{\"total_tokens\":%d}}\n\n"}[test.preset]
			var stopped atomic.Int64
			service := open(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "text/event-stream")
				switch test.preset {
				case "ollama":
					w.Header().Set("Content-Type", "application/x-ndjson")
				case "list": // Gemini's without alt=sse
					w.Header().Set("Content-Type", "application/json; charset=UTF-8")
					io.WriteString(w, "[")
				}
				for i := 0; i < words || test.overrun == "cut"; i++ { // without end, if it is to be cut
					io.WriteString(w, event)
					if http.NewResponseController(w).Flush() != nil || r.Context().Err() != nil {
						stopped.Add(1)
						return
					}
				}
				if usage != "" {
					fmt.Fprintf(w, usage, words+7)
				}
			})
			store := test.store()
			var urls []string
			rules := fmt.Sprintf("rules: [{name: tokens, preset: %s, match: {path: /openai}, key: [header.X-Team], "+
				"charge: as_it_streams, stream: {step: 30, overrun: %s}, limit: fixed_window %d/1d}]", strings.Replace(test.preset, "list", "gemini", 1), test.overrun, budget)
			e := engineWith(t, store, rules)
			for i := range test.nodes {
				node := e
				if i > 0 {
					node = engineWith(t, store, rules)
				}
				limit, err := node.Middleware(&httplimit.RuleOptions{})
				if err != nil {
					t.Fatal(err)
				}
				urls = append(urls, front(t, newGateway(t, service.URL, limit)).URL)
			}
			var got, whole, cut, refused atomic.Int64
			var group sync.WaitGroup
			for i := range streams {
				group.Go(func() {
					r, _ := http.NewRequestWithContext(t.Context(), "POST", urls[i%len(urls)]+"/openai", strings.NewReader(`{"stream":true,"messages":[],"contents":[]}`))
					r.Header.Set("X-Team", "a")
					response, err := http.DefaultTransport.RoundTrip(r)
					if err != nil {
						t.Error(err)
						return
					}
					defer response.Body.Close()
					text, err := io.ReadAll(response.Body)
					if err != nil {
						t.Errorf("the response broke off: %v", err)
					}
					if response.StatusCode == 429 {
						refused.Add(1)
						return
					}
					got.Add(int64(strings.Count(string(text), "word")))
					if strings.Contains(string(text), `"error"`) {
						cut.Add(1)
						all := strings.TrimSpace(string(text))
						last := all[strings.LastIndex(all, "\n")+1:]
						if !strings.Contains(last, `"error"`) || test.preset == "list" && !json.Valid(text) {
							t.Errorf("the last event is %q", last)
						}
						return
					}
					whole.Add(1)
				})
			}
			group.Wait()
			if test.overrun == "finish" {
				want := int64(streams-refused.Load()) * (words + 7)
				redistest.Await(t, "the usage", func() bool { return spentOn(t, e, 0, budget) >= min(budget, want) })
				if whole.Load() != streams-refused.Load() || cut.Load() > 0 || got.Load() != whole.Load()*words {
					t.Errorf("%d whole, %d cut, %d refused, %d words", whole.Load(), cut.Load(), refused.Load(), got.Load())
				}
				return
			}
			// Each stream has reserved eleven units for its prompt, a text of 42 bytes. Each event that is not charged
			// is one unit, so that the whole budget is used, of which each stream may have a part of a step left.
			charged := spentOn(t, e, 0, budget)
			if charged != budget || got.Load()+cut.Load() > charged || got.Load() < budget-streams*41 {
				t.Errorf("%d words passed and %d are charged, of %d", got.Load(), charged, budget)
			}
			if cut.Load() == 0 || cut.Load()+refused.Load() != streams {
				t.Errorf("%d streams were cut, %d refused, and %d words passed", cut.Load(), refused.Load(), got.Load())
			}
			redistest.Await(t, "the end of the streams at the service", func() bool { return stopped.Load() == cut.Load() })
		})
	}
}

// TestStreamsAreSettled: what was charged in steps, more or less than the usage, is the usage in the end.
func TestStreamsAreSettled(t *testing.T) {
	for _, total := range []int64{3, 20, 480, 520, 2000} {
		service := open(t, func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "text/event-stream")
			for range 500 {
				io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"word\"}}]}\n\n")
				http.NewResponseController(w).Flush()
			}
			fmt.Fprintf(w, "data: {\"usage\":{\"total_tokens\":%d}}\n\n", total)
		})
		for _, store := range []string{"memory", redistest.Start(t).URL()} {
			e := engineWith(t, store, "rules: [{name: tokens, preset: openai, match: {path: /openai}, key: [header.X-Team], "+
				"charge: as_it_streams, stream: {step: 7}, limit: fixed_window 100000/1d}]")
			limit, err := e.Middleware(nil)
			if err != nil {
				t.Fatal(err)
			}
			p := &prompt{in: 12, stream: true}
			if status, body := p.send(t, http.DefaultTransport, front(t, newGateway(t, service.URL, limit)).URL); status != 200 {
				t.Fatal(status, body)
			}
			redistest.Await(t, fmt.Sprint("a cost of ", total), func() bool { return spentOn(t, e, 0, 100000) == total })
		}
	}
}
