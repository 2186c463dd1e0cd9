package audit

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/memstore"
)

const costRules = `rules:
  - {name: tokens, unit: tokens, key: [client.ip], cost: {default: 1000, settle: bytes}, limit: fixed_window 2500/1h}
  - {name: money, unit: USD/100, key: [client.ip], cost: {default: 50, settle: bytes}, limit: fixed_window 100000/1h}
  - {name: tried, unit: tokens, mode: shadow, key: [client.ip], cost: {default: 7, settle: bytes}, limit: fixed_window 90/1h}
  - {name: unnamed, key: [client.ip], cost: {default: 9, settle: bytes}, limit: fixed_window 100000/1h}
`

// text is what a record says.
func text(r *Record) string {
	return strings.Join(strings.Fields(fmt.Sprintln(r.Outcome, r.Reason, r.Rule, r.Key, r.RequestID, r.Method, r.Path, r.Client,
		r.Estimate, r.Cost, r.Unit)), " ")
}

// TestCostsAreRecorded with their estimates, of rules whose unit has a name; a refusal has what was asked for.
func TestCostsAreRecorded(t *testing.T) {
	sink := &memory{batch: 100}
	log := New(Config{Node: "n1", Keys: Shown, Sinks: []Sink{sink}, Log: quiet})
	g := gatetest.New(t, memstore.New(), costRules, gate.WithObserver(log.Verdict), gate.WithCountObserver(log.Counting))
	ask := gate.Once
	ask.Settles = true
	decide := func(id string, actual int64) {
		t.Helper()
		var v gate.Verdict
		if err := g.Decide(t.Context(), from("192.0.2.1", id), ask, &v); err != nil {
			t.Fatal(err)
		}
		receipt := v.Receipt()
		end := g.Open(receipt)
		defer end()
		if actual < 0 {
			return
		}
		if err := g.Settle(t.Context(), receipt, actual); err != nil {
			t.Fatal(err)
		}
	}
	decide("settled", 700)
	decide("free", 0)
	decide("unsettled", -1)
	decide("refused", 0)
	log.Close()
	var got []string
	for i := range sink.list {
		got = append(got, text(&sink.list[i]))
	}
	want := `cost settled tokens client.ip=9:192.0.2.1 settled POST /settled 192.0.2.1 1000 700 tokens
cost settled money client.ip=9:192.0.2.1 settled POST /settled 192.0.2.1 50 700 USD/100
cost settled tokens client.ip=9:192.0.2.1 free POST /free 192.0.2.1 1000 0 tokens
cost settled money client.ip=9:192.0.2.1 free POST /free 192.0.2.1 50 0 USD/100
cost unsettled tokens client.ip=9:192.0.2.1 unsettled POST /unsettled 192.0.2.1 1000 1000 tokens
cost unsettled money client.ip=9:192.0.2.1 unsettled POST /unsettled 192.0.2.1 50 50 USD/100
refused limit_exceeded tokens client.ip=9:192.0.2.1 refused POST /refused 192.0.2.1 1000 0 tokens`
	if all := strings.Join(got, "\n"); all != want {
		t.Errorf("recorded:\n%s\nwant:\n%s", all, want)
	}
}

// costs are records of costs.
func costs(from, to int) (list []Record) {
	for _, r := range numbered(from, to) {
		r.Outcome, r.Reason, r.Estimate, r.Cost, r.Unit, r.Wait = "cost", "settled", 1000, int64(from), "tokens", 0
		list = append(list, r)
	}
	return list
}

// TestCostsDisplaceNoRefusals: in the streams, in the queue, and in what waits for a sink that is down; and they are
// found by their outcome, or by a request id.
func TestCostsDisplaceNoRefusals(t *testing.T) {
	server := redistest.Start(t)
	sink := NewStreamSink(server.URL(), "audit", 100)
	defer sink.Close()
	write(t, sink, numbered(0, 10))
	for n := 10; n < 1010; n += 50 {
		write(t, sink, costs(n, n+50))
	}
	name := filepath.Join(t.TempDir(), "audit.log")
	file, err := NewFileSink(name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, append(numbered(0, 10), costs(960, 1010)...))
	file.Close()
	stream, err := OpenStream(t.Context(), server.URL(), "audit")
	if err != nil {
		t.Fatal(err)
	}
	lines, err := OpenFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, reader := range []Reader{stream, lines} {
		defer reader.Close()
		for filter, want := range map[Filter]string{
			{}:                                "0-9: 10",
			{Outcome: "refused"}:              "0-9: 10",
			{Outcome: "cost"}:                 "990-1009: 20",
			{RequestID: "1005"}:               "1005-1005: 1",
			{RequestID: "5"}:                  "5-5: 1",
			{RequestID: "5", Outcome: "cost"}: "none",
		} {
			if list, err := reader.Last(t.Context(), &filter, 20); err != nil || ids(list) != want {
				t.Errorf("%T %+v: %s, want %s; %v", reader, filter, ids(list), want, err)
			}
		}
	}
	list, err := stream.Last(t.Context(), &Filter{Outcome: "cost"}, 1)
	if want := costs(960, 1010)[49]; err != nil || len(list) != 1 || list[0] != want {
		t.Errorf("%+v, want %+v; %v", list, want, err)
	}

	log := New(Config{Keys: Shown, Sinks: []Sink{&memory{batch: 1}}, Log: quiet})
	defer log.Close()
	log.shards = log.shards[:1]
	set := gatetest.Rules(t, costRules)
	for range maxQueued {
		log.add(&entry{at: time.Now(), rule: set.Rules()[0], outcome: cost}, named)
	}
	lost := log.lost.Load()
	for range maxQueued / 2 / 16 {
		log.add(&entry{at: time.Now()}, named)
	}
	if now := log.lost.Load(); lost == 0 || now != lost {
		t.Errorf("%d costs are lost, and then %d refusals", lost, now-lost)
	}
	waits := outlet{wake: make(chan struct{}, 1)}
	waits.backlog = make([]Record, maxBacklog/2)
	waits.put(append(costs(0, 3), numbered(0, 3)...))
	if n := len(waits.backlog) - maxBacklog/2; n != 3 || waits.lost.Load() != 3 {
		t.Errorf("%d records wait, and %d are lost", n, waits.lost.Load())
	}
}

// FuzzRecords: what other programs write into a file or a stream is a record that can be printed, or none.
func FuzzRecords(f *testing.F) {
	line, err := json.Marshal(costs(0, 1)[0])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(line, "1700000000000-1", "700")
	f.Add([]byte(`{"at":"2026-11-28T00:00:00Z","outcome":"cost","cost":-5,"estimate":1e99}`), "x", "-9223372036854775809")
	f.Add([]byte("{\n\x00\n{}\n"), "", "1e3")
	name := filepath.Join(f.TempDir(), "audit.log")
	f.Fuzz(func(t *testing.T, file []byte, id, number string) {
		if err := os.WriteFile(name, file, 0o600); err != nil {
			t.Fatal(err)
		}
		reader, err := OpenFile(name)
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		list, err := reader.Last(t.Context(), &Filter{}, 100)
		if err != nil {
			t.Fatal(err)
		}
		fields := []redisconn.Value{{Text: id}}
		for len(fields) < 2+len(numberFields)+len(textFields) {
			fields = append(fields, redisconn.Value{Text: number})
		}
		for _, r := range append(list, entryBy(fields).Record) {
			if _, err := json.Marshal(r); err != nil && !strings.Contains(err.Error(), "year outside of range") {
				t.Errorf("%+v: %v", r, err)
			}
		}
	})
}
