package api_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// TestExamplesOfDocs asks what docs/reference/api.md asks, in its order, of a server with its rules,
// and compares the answer to the last curl of each block with the block of JSON after it. The
// status is 200, or in a comment. A text that ends in … stands for whatever begins so, and
// is the same wherever it stands again.
func TestExamplesOfDocs(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/api.md")
	if err != nil {
		t.Fatal(err)
	}
	all := blocks(string(page))
	if len(all) < 15 || all[0].kind != "yaml" {
		t.Fatalf("%d blocks, the first of kind %q; want rules first", len(all), all[0].kind)
	}
	clock := func() weir.Instant { return 1_790_000_000_000_000 }
	w := newWitness(t, handler(t, memstore.New(memstore.WithClock(clock)), all[0].text))
	p := &reader{t: t, server: serve(t, w), whole: make(map[string]string)}
	for i := 1; i < len(all); i++ {
		if all[i].kind != "sh" || i+1 == len(all) || all[i+1].kind != "json" {
			t.Fatalf("line %d: a block of kind %q without its answer", all[i].line, all[i].kind)
		}
		var last *answer
		for line := range strings.Lines(all[i].text) {
			last = p.curl(all[i].line, line)
		}
		p.compare(all[i+1], last)
		i++
	}
}

type block struct {
	kind, text string
	line       int
}

func blocks(page string) (list []block) {
	var open *block
	for i, line := range strings.Split(page, "\n") {
		kind, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open == nil:
			open = &block{kind: kind, line: i + 2}
		case fence:
			list, open = append(list, *open), nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	return list
}

// A reader does what a reader of the page does.
type reader struct {
	t      *testing.T
	server *server
	whole  map[string]string // what a shortened text stands for
}

// curl understands: curl URL --json BODY # STATUS
func (p *reader) curl(at int, line string) *answer {
	p.t.Helper()
	words := split(line)
	if len(words) < 4 || words[0] != "curl" || words[2] != "--json" || !strings.HasPrefix(words[1], "localhost:8080/") {
		p.t.Fatalf("line %d: %q: this test understands only: curl localhost:8080/PATH --json BODY # STATUS", at, line)
	}
	body, want := words[3], 200
	for short, whole := range p.whole {
		body = strings.ReplaceAll(body, short, whole)
	}
	if len(words) == 6 && words[4] == "#" {
		want, _ = strconv.Atoi(words[5])
	}
	a := p.server.post(strings.TrimPrefix(words[1], "localhost:8080"), body)
	if a.status != want {
		p.t.Errorf("line %d: %d, want %d: %s", at, a.status, want, a.text)
	}
	return a
}

// split is a line as a shell takes it, with single quotes.
func split(line string) (words []string) {
	for i, part := range strings.Split(strings.TrimSpace(line), "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

func (p *reader) compare(b block, a *answer) {
	p.t.Helper()
	var want map[string]any
	if err := json.Unmarshal([]byte(b.text), &want); err != nil {
		p.t.Fatalf("line %d: %v", b.line, err)
	}
	if difference := p.differ("", want, a.body); difference != "" {
		p.t.Errorf("line %d: %s; the server answers %s", b.line, difference, a.text)
	}
}

func (p *reader) differ(at string, want, got any) string {
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok || len(got) != len(want) {
			return fmt.Sprintf("%q has other members", at)
		}
		for name := range want {
			if d := p.differ(at+"."+name, want[name], got[name]); d != "" {
				return d
			}
		}
		return ""
	case []any:
		got, ok := got.([]any)
		if !ok || len(got) != len(want) {
			return fmt.Sprintf("%q has other elements", at)
		}
		for i := range want {
			if d := p.differ(fmt.Sprint(at, "[", i, "]"), want[i], got[i]); d != "" {
				return d
			}
		}
		return ""
	case string:
		if short, ok := strings.CutSuffix(want, "…"); ok {
			got, _ := got.(string)
			if got == "" || !strings.HasPrefix(got, short) {
				return fmt.Sprintf("%s is %q, want %q", at, got, want)
			}
			if short != "" {
				p.whole[want] = got
			}
			return ""
		}
	}
	if want != got {
		return fmt.Sprintf("%s is %v, want %v", at, got, want)
	}
	return ""
}
