package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir/internal/tally"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/rules"
)

// A script is a recorder that counts what a test says.
type script struct {
	mu   sync.Mutex
	at   time.Time
	next map[string]telemetry.RuleRecord
}

func (s *script) count(rule string, passed, refused uint64, keys ...telemetry.KeyRate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = make(map[string]telemetry.RuleRecord)
	}
	r := s.next[rule]
	r.Name = rule
	r.Counts.Passed += passed
	r.Counts.Refused += refused
	r.Top = append(r.Top, keys...)
	s.next[rule] = r
}

func (s *script) Cut(at time.Time) *telemetry.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &telemetry.Record{At: s.at, Step: at.Sub(s.at)}
	for _, one := range s.next {
		r.Rules = append(r.Rules, one)
		r.Total.Add(&one.Counts)
		r.Took = r.Took.Add(tally.Buckets{{Index: 80, Count: one.Counts.Passed + one.Counts.Refused}})
	}
	s.at, s.next = at, nil
	return r
}

func (s *script) Keys(rule string, others ...*telemetry.KeySample) *telemetry.KeyReport {
	if rule != "login" {
		return nil
	}
	return &telemetry.KeyReport{Distinct: 7, Sampled: 1 + len(others), Error: 0.1, Histogram: []telemetry.Bar{{Keys: 5}},
		WhatIf: []telemetry.WhatIf{{Limit: 9}}}
}

func (s *script) Sample(rule string) *telemetry.KeySample {
	if rule != "login" {
		return nil
	}
	return new(telemetry.KeySample)
}

func (s *script) Recent(telemetry.Filter, int) []telemetry.Sample { return nil }

func (s *script) Watch(context.Context, telemetry.Filter, func(telemetry.Sample) error) error {
	return nil
}

const someRules = "rules:\n  - {name: login, key: [client.ip], limit: 5/1m, label: Log in}\n" +
	"  - {name: search, limit: 100/1m, mode: shadow, candidate: {limit: 50/1m}}\n"

func configOf(t testing.TB, name string, r Recorder) Config {
	t.Helper()
	set, err := rules.Load("rules.yaml", []byte(someRules))
	if err != nil {
		t.Fatal(err)
	}
	return Config{Name: name, Version: "1.2.3", Recorder: r, Rules: func() *rules.Set { return set },
		Describe: func(n *telemetry.Node) { n.Revision = "abc" }, Log: slog.New(slog.DiscardHandler)}
}

func overview(t testing.TB, h *History, q telemetry.Query) *telemetry.Overview {
	t.Helper()
	o, err := h.Overview(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestHistoryOfOneNode: every request is in the total, the series and its rule, at its time, at both resolutions, for
// 24 hours and no longer.
func TestHistoryOfOneNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &script{at: time.Now()}
		h, err := Open(configOf(t, "a", r))
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		began := time.Now()
		time.Sleep(time.Second) // not at the moment of a cut
		for range 8 * 60 / 5 {  // eight hours
			r.count("login", 3, 1, telemetry.KeyRate{Key: "203.0.113.7", Passed: 3, Refused: 1})
			time.Sleep(5 * time.Minute)
		}
		o := overview(t, h, telemetry.Query{From: began})
		if o.Total.Passed != 3*96 || o.Total.Refused != 96 || o.Step != 5*time.Minute || len(o.Series) != 97 {
			t.Errorf("%+v in %d steps of %v", o.Total, len(o.Series), o.Step)
		}
		for i, p := range o.Series[:96] {
			if p.Passed != 3 || p.Refused != 1 || p.P99 == 0 {
				t.Fatalf("step %d is %+v", i, p)
			}
		}
		login := o.Rules[0]
		if login.Name != "login" || login.Label != "Log in" || login.RefusedShare != 0.25 || len(login.Series) != 96 ||
			*login.WorstKey != (telemetry.KeyRate{Key: "203.0.113.7", Passed: 288, Refused: 96, Share: 1}) {
			t.Errorf("%+v %+v", login, login.WorstKey)
		}
		if search := o.Rules[1]; search.Name != "search" || search.Mode != "shadow" || len(search.Candidate) != 1 {
			t.Errorf("%+v", search)
		}
		r.count("login", 5, 0)
		time.Sleep(freshness)
		o = overview(t, h, telemetry.Query{From: time.Now().Add(-time.Minute)})
		if o.Step != 10*time.Second || o.Total.Passed != 5 || o.Series[len(o.Series)-1].Passed != 5 {
			t.Errorf("what was counted a moment ago: %+v", o)
		}
		time.Sleep(23 * time.Hour)
		o = overview(t, h, telemetry.Query{From: began})
		if o.Total.Passed != 3*12+5 || len(o.Series) > mostSteps { // of the last of the eight hours
			t.Errorf("after a day and a half: %+v", o.Total)
		}
		if len(h.minutes) > 24*60+1 {
			t.Errorf("%d minutes are kept", len(h.minutes))
		}
	})
}

// TestRuleReport: rules in force, rules that were removed, and rules that never were.
func TestRuleReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &script{at: time.Now()}
		h, err := Open(configOf(t, "a", r))
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		for i := range 60 {
			n := uint64(i)
			r.count("old", n, n, telemetry.KeyRate{Key: fmt.Sprint("k", i), Passed: 100 - n, Refused: n})
		}
		time.Sleep(time.Minute)
		report, err := h.Rule(t.Context(), "old", telemetry.Query{Most: 3})
		if err != nil || !report.Removed || len(report.Top) != 3 || report.Top[0].Key != "k59" ||
			report.Counts.Refused != 59*60/2 || len(report.Series) < 6 {
			t.Fatalf("%+v, %v", report, err)
		}
		h.sums = cache{}
		report, _ = h.Rule(t.Context(), "old", telemetry.Query{From: time.Now().Add(-time.Hour)})
		if len(report.Top) != keysPerRule || report.Top[9].Key != "k50" || report.Top[keysPerRule-1].Passed != 100 {
			t.Errorf("a packed minute has %d keys: %+v", len(report.Top), report.Top)
		}
		if report, err = h.Rule(t.Context(), "never", telemetry.Query{}); report != nil || err != nil {
			t.Errorf("%+v, %v", report, err)
		}
		if report, err = h.Rule(t.Context(), "search", telemetry.Query{}); err != nil || len(report.Limits) != 1 ||
			report.Removed {
			t.Errorf("%+v, %v", report, err)
		}
	})
}

// TestMarksAreBounded: an attack bans thousands of keys.
func TestMarksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := Open(configOf(t, "a", &script{at: time.Now()}))
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		for i := range 5000 {
			h.Mark(telemetry.Mark{Kind: "ban", Text: fmt.Sprint(i)})
		}
		h.Mark(telemetry.Mark{Kind: "degraded", Text: "Redis is down"})
		time.Sleep(time.Minute)
		marks, err := h.Marks(t.Context(), telemetry.Query{Most: 1000})
		if err != nil || len(marks) != 1+mostBans+1+1 {
			t.Fatalf("%d marks, %v", len(marks), err)
		}
		kinds := map[string]int{}
		for i, m := range marks {
			if kinds[m.Kind]++; m.Node != "a" || i > 0 && m.At.After(marks[i-1].At) {
				t.Errorf("%+v", m)
			}
		}
		if !maps.Equal(kinds, map[string]int{"start": 1, "degraded": 1, "ban": mostBans + 1}) ||
			!strings.Contains(fmt.Sprint(marks), "4980 more bans") {
			t.Errorf("%v", kinds)
		}
	})
}

// TestFilesKeepHistory over a restart in the same minute and after a crash that tears the last minute, for 24 hours.
func TestFilesKeepHistory(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		run := func(lasts time.Duration, passed uint64) *telemetry.Overview {
			r := &script{at: time.Now()}
			c := configOf(t, "a", r)
			c.Dir = dir
			h, err := Open(c)
			if err != nil {
				t.Fatal(err)
			}
			r.count("login", passed, 0)
			time.Sleep(lasts)
			o := overview(t, h, telemetry.Query{From: began})
			if err := h.Close(); err != nil {
				t.Error(err)
			}
			return o
		}
		run(20*time.Second, 7)
		if o := run(20*time.Second, 5); o.Total.Passed != 12 {
			t.Errorf("after a restart in one minute: %+v", o.Total)
		}
		run(2*time.Hour, 3)
		names, err := filepath.Glob(filepath.Join(dir, "history-*.weir"))
		if err != nil || len(names) != 3 {
			t.Fatalf("%q, %v", names, err)
		}
		last := names[len(names)-1]
		text, err := os.ReadFile(last)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(last, append(text, text[:50]...), 0o600); err != nil {
			t.Fatal(err)
		}
		if o := run(2*time.Minute, 1); o.Total.Passed != 16 {
			t.Errorf("after a torn minute: %+v", o.Total)
		}
		if o := run(time.Minute, 0); o.Total.Passed != 16 {
			t.Errorf("what was written after the torn minute is lost: %+v", o.Total)
		}
		run(26*time.Hour, 1)
		if names, _ = filepath.Glob(filepath.Join(dir, "*")); len(names) > 26 {
			t.Errorf("%d files", len(names))
		}
	})
}

// TestFilesThatCannotBeUsed are found at the start.
func TestFilesThatCannotBeUsed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := configOf(t, "a", &script{})
	c.Dir = path
	if _, err := open(c, time.Now); err == nil {
		t.Error("a file was taken for a folder")
	}
}

// TestStepOfSeries: no series is longer than mostSteps, and none is empty.
func TestStepOfSeries(t *testing.T) {
	now := time.Date(2026, 11, 22, 17, 3, 27, 0, time.UTC)
	h := &History{Config: Config{Name: "a"}, shared: &shared{}, started: now.Add(-time.Hour)}
	for _, c := range []struct {
		node  string
		ago   time.Duration
		step  time.Duration
		steps int
	}{
		{"", 15 * time.Minute, time.Minute, 16}, {"a", 14 * time.Minute, 10 * time.Second, 85},
		{"", time.Hour, time.Minute, 61}, {"", 6 * time.Hour, 5 * time.Minute, 73}, {"", 24 * time.Hour, 15 * time.Minute, 97},
		{"", 100 * time.Hour, 15 * time.Minute, 97}, {"", 0, time.Minute, 61},
	} {
		q := telemetry.Query{Node: c.node}
		if c.ago > 0 {
			q.From = now.Add(-c.ago)
		}
		if s := h.spanOf(q, now); s.step != c.step || s.steps != c.steps || s.end().Before(now) {
			t.Errorf("%v of %q: %d steps of %v to %v", c.ago, c.node, s.steps, s.step, s.end())
		}
	}
	ago := now.Add(-48 * time.Hour)
	if s := h.spanOf(telemetry.Query{From: ago, To: ago.Add(time.Hour)}, now); s.steps < 1 || s.steps > 2 {
		t.Errorf("an interval that is too old has %d steps", s.steps)
	}
}

func example() *slice {
	at := time.Unix(1_800_000_000, 0).UTC()
	return &slice{Record: telemetry.Record{At: at, Step: time.Minute,
		Total: telemetry.Counts{Passed: 1, Refused: 2, Denied: 3, Failed: 4, ShadowPassed: 5, ShadowRefused: 6, Degraded: 7, Bans: 8},
		Took:  tally.Buckets{{Index: 0, Count: 1}, {Index: 200, Count: 1 << 60}},
		Rules: []telemetry.RuleRecord{{Name: "login", Counts: telemetry.Counts{Passed: 9}, Distinct: 10,
			Compared: telemetry.Comparison{Both: 11, NewlyRefused: 12, NewlyGranted: 13, Neither: 14},
			Top:      []telemetry.KeyRate{{Key: "203.0.113.7", Passed: 15, Refused: 16}, {Key: "x", Hidden: true}}}}},
		Marks: []telemetry.Mark{{At: at, Kind: "ban", Node: "a", Rule: "login", Text: "t", Actor: "w", Reason: "r", Change: "12"}}}
}

func TestPack(t *testing.T) {
	s := example()
	got, err := unpack(pack(s))
	if err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("%+v, %v; want %+v", got, err, s)
	}
}

// TestPackIsBounded: of too many keys those with refused requests stay, and the counts of all rules.
func TestPackIsBounded(t *testing.T) {
	s := &slice{Record: telemetry.Record{At: time.Unix(1_800_000_000, 0)}}
	for i := range 2000 {
		r := telemetry.RuleRecord{Name: fmt.Sprint("rule-", i), Counts: telemetry.Counts{Passed: 1}}
		for k := range keysPerRule {
			r.Top = append(r.Top, telemetry.KeyRate{Key: fmt.Sprint(strings.Repeat("k", 200), i, k), Refused: uint64(i / 1999)})
		}
		s.Rules = append(s.Rules, r)
	}
	text := pack(s)
	got, err := unpack(text)
	if err != nil || len(got.Rules) != 2000 || len(got.Rules[1999].Top) != keysPerRule || len(got.Rules[0].Top) != 0 {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
}

func FuzzUnpack(f *testing.F) {
	text := pack(example())
	f.Add(text)
	f.Add(text[:len(text)/2])
	f.Add(deflate(make([]byte, 3<<20)))
	f.Add(deflate([]byte{0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := unpack(text)
		if err != nil {
			if !errors.Is(err, errPacked) {
				t.Error(err)
			}
			return
		}
		total := newSum(time.Unix(0, 0), time.Minute, 0)
		total.add(s)
		again, err := unpack(pack(total.slice()))
		if err != nil || again.Total != s.Total {
			t.Errorf("%+v became %+v, %v", s, again, err)
		}
	})
}

// FuzzRaw skips the compression, so that the fuzzer sees what is read.
func FuzzRaw(f *testing.F) {
	f.Add(appendSlice(nil, example(), keysPerSlice))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if s, err := unpack(deflate(raw)); err == nil && len(s.Rules) > mostRules {
			t.Error(len(s.Rules))
		}
	})
}

// TestBucketsOutOfOrder are malformed: sums rely on their order.
func TestBucketsOutOfOrder(t *testing.T) {
	s := example()
	s.Took = tally.Buckets{{Index: 7, Count: 1}, {Index: 7, Count: 1}}
	if got, err := unpack(pack(s)); !errors.Is(err, errPacked) {
		t.Errorf("%+v, %v", got, err)
	}
}
