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
	h.shared = &shared{register: noNodes{}, now: h.now, others: map[string]*other{}, listed: now, faults: &h.failures,
		late: h.forgetBlocks}
	for _, name := range []string{"b/1", "c/1"} {
		h.shared.others[name] = &other{first: minuteOf(now) - 24*60, last: minuteOf(now), minutes: map[int64][]byte{}}
	}
	for minute := minuteOf(now) - 24*60; minute <= minuteOf(now); minute++ {
		packed := pack(busyMinute(minute), keysPerSlice)
		h.minutes[minute] = packed
		for _, o := range h.shared.others {
			o.minutes[minute] = packed
		}
	}
	return h
}

// busyMinute has traffic of all rules, a tenth of which refuse.
func busyMinute(minute int64) *slice {
	s := &slice{Record: telemetry.Record{At: time.Unix(minute*60, 0), Step: time.Minute,
		Took: tally.Buckets{{Index: 60, Count: 1000}, {Index: 90, Count: 3}}}}
	for i := range 1000 {
		n := uint64(i)*7919%1000 + uint64(minute%60)
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
	b.ReportMetric(float64(len(h.minutes[minuteOf(h.now())])), "B/minute")
	for _, span := range []time.Duration{15 * time.Minute, time.Hour, 24 * time.Hour} {
		for _, most := range []int{200, 1000} {
			b.Run(fmt.Sprint(span, "/", most), func(b *testing.B) {
				var plain, packed int
				overview(b, h, telemetry.Query{From: h.now().Add(-span)}) // makes blocks
				for b.Loop() {
					h.sums = cache{}
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
