package cli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestPageOfAgents checks and serves the rules that docs/howto/agents.md shows, and compares what the page says.
func TestPageOfAgents(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/howto/agents.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := func(kind string) (list []string) {
		for _, part := range strings.Split(string(page), "```"+kind+"\n")[1:] {
			block, _, _ := strings.Cut(part, "```")
			list = append(list, block)
		}
		return list
	}
	dir := t.TempDir()
	first, several := blocks("yaml")[0], blocks("yaml")[1]
	write(t, dir, "weir.yaml", several)
	for _, note := range strings.Split(strings.TrimSpace(blocks("text")[0]), "\n") {
		if r := (call{dir: dir}).run(t, "check", "weir.yaml"); r.code != 0 || !strings.Contains(r.out, note+"\n") {
			t.Errorf("no %q in %v", note, r)
		}
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"jsonrpc":"2.0","id":7,"result":{}}`)
	}))
	defer upstream.Close()
	p := call{}.serve(t, "--config", write(t, dir, "first.yaml", first), "--upstream", upstream.URL, "--gateway", "127.0.0.1:0")
	defer p.end()
	send := func() (status int, answer map[string]any) {
		body := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"search"}}`
		r, err := http.Post(p.at("gateway")+"/mcp", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		if err := json.NewDecoder(r.Body).Decode(&answer); err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, answer
	}
	passed := 0
	for range 1000 {
		status, answer := send()
		if status != 200 {
			t.Fatal(status, answer)
		}
		if answer["error"] == nil {
			passed++
			continue
		}
		var want map[string]any
		if err := json.Unmarshal([]byte(blocks("json")[0]), &want); err != nil || !reflect.DeepEqual(answer, want) {
			t.Errorf("%v\n%v, want\n%v", err, answer, want)
		}
		break
	}
	if passed < 60 || passed > 200 { // one more comes each second
		t.Errorf("%d calls passed", passed)
	}
}
