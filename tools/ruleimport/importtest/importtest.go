// Package importtest tests readers of other formats.
package importtest

import (
	"errors"
	"os"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/ruleimport"
)

// Import is the result of one file, which must be a valid rule file.
func Import(t *testing.T, program string, read func(*ruleimport.Job), text string) (*ruleimport.Result, string) {
	t.Helper()
	result, err := ruleimport.Read(program, read, []ruleimport.Text{{Name: "source", Data: []byte(text)}}, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	yaml, err := result.YAML()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, text, yaml)
	}
	return result, yaml
}

// Any imports any text: it is an error with a line, or becomes a valid rule file.
func Any(t *testing.T, program string, read func(*ruleimport.Job), text string) {
	t.Helper()
	result, err := ruleimport.Read(program, read, []ruleimport.Text{{Name: "source", Data: []byte(text)}}, nil)
	if err != nil {
		var list *rules.Error
		if !errors.As(err, &list) || list.Problems[0].Line < 1 {
			t.Fatalf("%s: %v has no line", program, err)
		}
		return
	}
	if yaml, err := result.YAML(); err != nil {
		t.Fatalf("%s: %v\n%s\n%s", program, err, text, yaml)
	}
}

// Page imports the first block of YAML of a README.md, which has the rules as its second one.
func Page(t *testing.T, program string, read func(*ruleimport.Job), file string) {
	t.Helper()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), 2)
	if len(blocks) != 2 {
		t.Fatalf("the page has %d blocks of YAML", len(blocks))
	}
	result, err := ruleimport.Read(program, read, []ruleimport.Text{{Name: file, Data: []byte(blocks[0][1])}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if yaml, err := result.YAML(); err != nil || yaml != blocks[1][1] {
		t.Errorf("%v: the page shows\n%s\ninstead of\n%s", err, blocks[1][1], yaml)
	}
}

// A Replay decides requests by rules, at times of a driven clock.
type Replay struct {
	now  atomic.Int64 // microseconds
	Gate *gate.Gate
}

// NewReplay makes one of a rule file.
func NewReplay(t *testing.T, yaml string) *Replay {
	t.Helper()
	set, err := rules.Load("imported", []byte(yaml))
	if err != nil {
		t.Fatalf("%v\n%s", err, yaml)
	}
	r := new(Replay)
	clock := memstore.WithClock(func() weir.Instant { return weir.Instant(r.now.Load()) })
	r.Gate, err = gate.New(memstore.New(clock), set, gate.WithLocal(memstore.New(clock)),
		gate.WithClock(func() time.Time { return time.UnixMicro(r.now.Load()) }))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Decide decides a request at a time in microseconds since 1970.
func (r *Replay) Decide(t *testing.T, at int64, request *rules.Request) *gate.Verdict {
	t.Helper()
	r.now.Store(at)
	v := new(gate.Verdict)
	if err := r.Gate.Decide(t.Context(), request, gate.Ask{Times: 1}, v); err != nil {
		t.Fatal(err)
	}
	return v
}
