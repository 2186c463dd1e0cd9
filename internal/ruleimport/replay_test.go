package ruleimport_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/ruleimport"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// imported is the result of one file, which must be a valid rule file.
func imported(t *testing.T, format, text string) (*ruleimport.Result, string) {
	t.Helper()
	result, err := ruleimport.Import(format, []ruleimport.Text{{Name: "source", Data: []byte(text)}}, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	yaml, err := result.YAML()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, text, yaml)
	}
	return result, yaml
}

// A replay decides requests by rules, at times of a driven clock.
type replay struct {
	now  atomic.Int64 // microseconds
	gate *gate.Gate
}

func newReplay(t *testing.T, yaml string) *replay {
	t.Helper()
	set, err := rules.Load("imported", []byte(yaml))
	if err != nil {
		t.Fatalf("%v\n%s", err, yaml)
	}
	r := new(replay)
	clock := memstore.WithClock(func() weir.Instant { return weir.Instant(r.now.Load()) })
	r.gate, err = gate.New(memstore.New(clock), set, gate.WithLocal(memstore.New(clock)),
		gate.WithClock(func() time.Time { return time.UnixMicro(r.now.Load()) }))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// decide decides a request at a time in microseconds since 1970.
func (r *replay) decide(t *testing.T, at int64, request *rules.Request) *gate.Verdict {
	t.Helper()
	r.now.Store(at)
	v := new(gate.Verdict)
	if err := r.gate.Decide(t.Context(), request, gate.Ask{Times: 1}, v); err != nil {
		t.Fatal(err)
	}
	return v
}
