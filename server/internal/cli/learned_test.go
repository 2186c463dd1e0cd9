package cli_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
)

// TestLearnedCostIsShown by weir check, before it is in force, and by weir explain once answers were settled.
func TestLearnedCostIsShown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := write(t, dir, "weir.yaml", "rules: [{name: tokens, preset: openai, match: {path: /v1/**}, key: [header.X-Team], "+
		"cost: {learn: key}, limit: fixed_window 1000000/1d}]\n")
	check := call{dir: dir}.run(t, "check", "weir.yaml")
	if check.code != 0 || !strings.Contains(check.out, "the cost of tokens is learned") {
		t.Error(check)
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"usage":{"total_tokens":100}}`)
	}))
	defer upstream.Close()
	p := call{}.serve(t, "--config", config, "--upstream", upstream.URL, "--gateway", "127.0.0.1:0")
	defer p.end()
	explain := func() string {
		return call{}.run(t, "explain", "--server", p.at("http"), "-X", "POST", "-H", "X-Team: a", "--path", "/v1/chat").out
	}
	if text := explain(); !strings.Contains(text, "costs 1000") || strings.Contains(text, "learned") {
		t.Error(text)
	}
	for range 20 {
		r, err := http.NewRequest("POST", p.at("gateway")+"/v1/chat", strings.NewReader(`{"max_tokens": 5000}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Team", "a")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
	}
	want := fmt.Sprintf("costs %d tokens, learned from %d settled costs", 95, 20) // beside the prompt
	redistest.Await(t, want, func() bool { return strings.Contains(explain(), want) })
}
