package history

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/tally"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/rules"
)

// busy is a history of 1,000 rules over a day on three nodes, whose minutes are all in memory.
func busy(t testing.TB) *History {
	t.Helper()
	text := new(bytes.Buffer)
	fmt.Fprintln(text, "rules:")
	for i := range 1000 {
		fmt.Fprintf(text, "  - {name: rule-%d, key: [client.ip], limit: %d/1m, match: {path: /%d}}\n", i, i+1, i)
	}
	set, err := rules.Load("rules.yaml", text.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().Truncate(time.Minute).Add(30 * time.Second)
	c := configOf(t, "a", &script{at: now})
	c.Rules = func() *rules.Set { return set }
	h, err := open(c, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	h.shared = &shared{register: noNodes{}, now: h.now, slots: map[slot]*others{}, faults: &h.failures}
	for _, step := range []time.Duration{minute, ten} {
		for _, one := range between(step, now.Add(-kept), now) {
			packed := busyMinute(one).pack()
			h.own[one] = packed
			h.shared.slots[one] = &others{now.Add(time.Hour), map[string]string{"b/1": string(packed), "c/1": string(packed)}}
		}
	}
	return h
}

// busyMinute has traffic of all rules, a tenth of which refuse.
func busyMinute(of slot) *document {
	s := &document{Record: telemetry.Record{At: of.start(), Step: of.step,
		Took: tally.Buckets{{Index: 60, Count: 1000}, {Index: 90, Count: 3}}}}
	for i := range 1000 {
		n := uint64(i)*7919%1000 + uint64(of.at%60)
		r := telemetry.RuleRecord{Name: fmt.Sprint("rule-", i), Counts: telemetry.Counts{Passed: n}, Distinct: n / 3}
		if i%10 == 0 {
			r.Counts.Refused = n / 5
		}
		for k := range uint64(4) {
			r.Top = append(r.Top, telemetry.KeyRate{Key: fmt.Sprintf("client.ip=11:203.0.%d.%d", n%256, k),
				Passed: n / (k + 2), Refused: r.Counts.Refused / (k + 2)})
		}
		s.Total.Add(&r.Counts)
		s.Rules = append(s.Rules, r)
	}
	return s
}

// BenchmarkOverview is what a server does for the overview of 1,000 rules on three nodes.
func BenchmarkOverview(b *testing.B) {
	h := busy(b)
	b.ReportMetric(float64(len(h.own[slotOf(ten, h.now())])), "B/document")
	for _, span := range []time.Duration{15 * time.Minute, time.Hour, 24 * time.Hour} {
		for _, most := range []int{200, 1000} {
			b.Run(fmt.Sprint(span, "/", most), func(b *testing.B) {
				var plain, packed int
				for b.Loop() {
					o := overview(b, h, telemetry.Query{From: h.now().Add(-span), Most: most})
					text, err := json.Marshal(o)
					if err != nil {
						b.Fatal(err)
					}
					var out bytes.Buffer
					z, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed)
					z.Write(text)
					z.Close()
					plain, packed = len(text), out.Len()
				}
				b.ReportMetric(float64(plain), "B")
				b.ReportMetric(float64(packed), "B-gzip")
			})
		}
	}
}

// noNodes is a register without notes.
type noNodes struct{}

func (noNodes) Register(context.Context, string, string, string, time.Duration) error { return nil }

func (noNodes) Registered(context.Context, string) (map[string]string, error) { return nil, nil }
