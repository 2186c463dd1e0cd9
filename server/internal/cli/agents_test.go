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

// blocksOf are the blocks of a kind in a page.
func blocksOf(t *testing.T, page, kind string) (list []string) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/howto/" + page)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(text), "```"+kind+"\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		list = append(list, block)
	}
	return list
}

// TestPageOfModels checks the rules of the page, whose answers other tests show, and what its first preset stands for.
func TestPageOfModels(t *testing.T) {
	t.Parallel()
	dir, note := t.TempDir(), blocksOf(t, "llm.md", "text")[0]
	for i, block := range blocksOf(t, "llm.md", "yaml") {
		write(t, dir, "weir.yaml", block)
		if r := (call{dir: dir}).run(t, "check", "weir.yaml"); r.code != 0 || i == 0 && !strings.Contains(r.out, note) {
			t.Errorf("block %d: %v\nwant %s", i, r, note)
		}
	}
}

// TestPageOfAgents checks and serves the rules that docs/howto/agents.md shows, and compares what the page says.
func TestPageOfAgents(t *testing.T) {
	t.Parallel()
	blocks := func(kind string) []string { return blocksOf(t, "agents.md", kind) }
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
