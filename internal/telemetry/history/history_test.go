package history

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir/internal/gatetest"
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

func (s *script) Watched() map[string]bool { return map[string]bool{"login": true} }

func (s *script) Recent(telemetry.Filter, int) []telemetry.Sample { return nil }

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
		if o.Total.Passed != 3*96 || o.Total.Refused != 96 || o.Step != ten || len(o.Series) != 49 {
			t.Errorf("%+v in %d steps of %v", o.Total, len(o.Series), o.Step)
		}
		for i, p := range o.Series[:48] {
			if p.Passed != 6 || p.Refused != 2 || p.P99 == 0 {
				t.Fatalf("step %d is %+v", i, p)
			}
		}
		login := o.Rules[0]
		if login.Name != "login" || login.Label != "Log in" || login.RefusedShare != 0.25 || len(login.Series) != 48 ||
			*login.WorstKey != (telemetry.KeyRate{Key: "203.0.113.7", Passed: 288, Refused: 96, Share: 1}) {
			t.Errorf("%+v %+v", login, login.WorstKey)
		}
		if search := o.Rules[1]; search.Name != "search" || search.Mode != "shadow" || len(search.Candidate) != 1 {
			t.Errorf("%+v", search)
		}
		r.count("login", 5, 0)
		time.Sleep(freshness)
		o = overview(t, h, telemetry.Query{From: time.Now().Add(-time.Minute)})
		if o.Step != minute || o.Total.Passed != 5 || o.Series[len(o.Series)-1].Passed != 5 {
			t.Errorf("what was counted a moment ago: %+v", o)
		}
		time.Sleep(23 * time.Hour)
		o = overview(t, h, telemetry.Query{From: began})
		if o.Total.Passed != 3*12+5 || len(o.Series) > 145 { // of the last of the eight hours
			t.Errorf("after a day and a half: %+v", o.Total)
		}
		if len(h.own) > 3*60+24*6+4 || len(h.unshared) > 0 {
			t.Errorf("%d documents are kept", len(h.own))
		}
	})
}

// manyRules are a set of as many rules, named r0 and so on.
func manyRules(t testing.TB, n int) *rules.Set {
	t.Helper()
	var text strings.Builder
	text.WriteString("rules:\n")
	for i := range n {
		fmt.Fprintf(&text, "- {name: r%d, key: user, limit: 5/1m, match: {service: s%d}}\n", i, i)
	}
	set, err := rules.Load("rules.yaml", []byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestCountsOfTenThousandRulesAreExact in each report: of minutes, and of ten of them.
func TestCountsOfTenThousandRulesAreExact(t *testing.T) {
	const many = 10_000
	set := manyRules(t, many)
	clock := time.Now().Truncate(time.Hour)
	r := &script{at: clock}
	c := configOf(t, "a", r)
	c.Rules = func() *rules.Set { return set }
	h, err := open(c, func() time.Time { return clock })
	if err != nil {
		t.Fatal(err)
	}
	pass := func(times int) {
		for range times {
			for i := range many {
				r.count(fmt.Sprint("r", i), uint64(i%7), 1)
			}
			clock = clock.Add(interval)
			h.cut(clock)
		}
	}
	exact := func(span time.Duration, times uint64) {
		t.Helper()
		o := overview(t, h, telemetry.Query{From: clock.Add(-span)})
		if len(o.Rules) != many {
			t.Fatalf("%d rules in %v", len(o.Rules), span)
		}
		for _, one := range o.Rules {
			i, _ := strconv.Atoi(one.Name[1:])
			if want := (telemetry.Counts{Passed: times * uint64(i%7), Refused: times}); one.Counts != want || one.Folded {
				t.Fatalf("%v: %s has %+v, want %+v; folded: %v", span, one.Name, one.Counts, want, one.Folded)
			}
		}
		report, err := h.Rule(t.Context(), "r6", telemetry.Query{From: clock.Add(-span)})
		if sum := sumOf(report.Series); err != nil || sum.Passed != 6*times {
			t.Fatalf("%v: the series of r6 is %+v, want %d passed; %v", span, sum, 6*times, err)
		}
	}
	pass(7)
	exact(2*time.Minute, 7)
	for range 20 * time.Minute / interval {
		clock = clock.Add(interval)
		h.cut(clock)
	}
	exact(time.Hour, 7)
	exact(20*time.Hour, 7)
}

func sumOf(series []telemetry.Point) (n telemetry.Counts) {
	for i := range series {
		n.Add(&series[i].Counts)
	}
	return n
}

// TestFoldedCountsAreMarked on each row that they may belong to, and rules whose keys are not watched.
func TestFoldedCountsAreMarked(t *testing.T) {
	set := manyRules(t, telemetry.MostRules+1)
	clock := time.Now().Truncate(time.Hour)
	r := &script{at: clock}
	c := configOf(t, "a", r)
	c.Rules = func() *rules.Set { return set }
	h, err := open(c, func() time.Time { return clock })
	if err != nil {
		t.Fatal(err)
	}
	r.count("r7", 1, 1)
	r.count(telemetry.OtherRules, 1, 1)
	clock = clock.Add(interval)
	h.cut(clock)
	for _, one := range overview(t, h, telemetry.Query{}).Rules {
		if folded := one.Name == fmt.Sprint("r", telemetry.MostRules); one.Folded != folded {
			t.Errorf("%s is folded: %v", one.Name, one.Folded)
		}
		if one.Unwatched != (one.Name == "r7") {
			t.Errorf("%s is unwatched: %v", one.Name, one.Unwatched)
		}
	}
	set = manyRules(t, 10)
	for _, one := range overview(t, h, telemetry.Query{}).Rules {
		if set := strings.HasPrefix(one.Name, "r"); one.Folded != set {
			t.Errorf("%s is folded: %v", one.Name, one.Folded)
		}
	}
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
			report.Counts.Refused != 59*60/2 || len(report.Series) < 60 {
			t.Fatalf("%+v, %v", report, err)
		}
		time.Sleep(time.Minute)
		report, _ = h.Rule(t.Context(), "old", telemetry.Query{From: time.Now().Add(-time.Hour)})
		if len(report.Top) != keysPerRule || report.Top[9].Key != "k50" || report.Top[keysPerRule-1].Passed != 100 {
			t.Errorf("a document has %d keys: %+v", len(report.Top), report.Top)
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

// TestSharesOfShadowRules are of the requests that they would refuse.
func TestSharesOfShadowRules(t *testing.T) {
	one := newSum(time.Unix(0, 0), time.Minute, 0)
	one.add(&document{Record: telemetry.Record{Rules: []telemetry.RuleRecord{{Name: "search",
		Counts: telemetry.Counts{ShadowPassed: 40, ShadowRefused: 512},
		Top:    []telemetry.KeyRate{{Key: "198.51.100.200", Refused: 384}}}}}})
	if top := one.rules["search"].top(1); top[0].Share != 0.75 {
		t.Errorf("%+v", top)
	}
}

// TestHistoryOfAKey has its requests under each rule, at both resolutions, by the whole key and by its value.
func TestHistoryOfAKey(t *testing.T) {
	clock := time.Now().Truncate(time.Hour)
	r := &script{at: clock}
	h, err := open(configOf(t, "a", r), func() time.Time { return clock })
	if err != nil {
		t.Fatal(err)
	}
	for range 12 {
		r.count("login", 9, 9, telemetry.KeyRate{Key: "client.ip=11:203.0.113.7", Passed: 2, Refused: 1},
			telemetry.KeyRate{Key: "client.ip=11:203.0.113.8", Passed: 5})
		r.count("search", 9, 0, telemetry.KeyRate{Key: "client.ip=11:203.0.113.7", Passed: 4})
		clock = clock.Add(interval)
		h.cut(clock)
	}
	for _, key := range []string{"203.0.113.7", "client.ip=11:203.0.113.7"} {
		for _, span := range []time.Duration{5 * time.Minute, 24 * time.Hour} {
			report, err := h.Key(t.Context(), key, telemetry.Query{From: clock.Add(-span)})
			if err != nil || len(report.Rules) != 2 || report.Rules[0].Rule != "login" ||
				report.Rules[0].Counts != (telemetry.Counts{Passed: 24, Refused: 12}) ||
				sumOf(report.Rules[1].Series) != (telemetry.Counts{Passed: 48}) {
				t.Errorf("%s in %v: %+v, %v", key, span, report, err)
			}
		}
	}
	if o := overview(t, h, telemetry.Query{From: clock.Add(-24 * time.Hour)}); o.Rules[0].Counts.Passed != 12*9 {
		t.Errorf("all keys: %+v", o.Rules[0].Counts)
	}
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
		if err != nil || len(marks) != 1+maxBans+1+1 {
			t.Fatalf("%d marks, %v", len(marks), err)
		}
		kinds := map[string]int{}
		for i, m := range marks {
			if kinds[m.Kind]++; m.Node != "a" || i > 0 && m.At.After(marks[i-1].At) {
				t.Errorf("%+v", m)
			}
		}
		if !maps.Equal(kinds, map[string]int{"start": 1, "degraded": 1, "ban": maxBans + 1}) ||
			!strings.Contains(fmt.Sprint(marks), "4980 more bans") {
			t.Errorf("%v", kinds)
		}
	})
}

// TestFilesKeepHistory over a restart in the same minute, and with a damaged file, for 24 hours.
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
		if err := os.WriteFile(filepath.Join(dir, slotOf(minute, time.Now()).String()+fileSuffix), []byte("torn"), 0o600); err != nil {
			t.Fatal(err)
		}
		if o := run(time.Hour, 3); o.Total.Passed != 3 {
			t.Errorf("after a torn minute: %+v", o.Total)
		}
		if o := run(9*time.Hour, 1); o.Total.Passed != 16 || o.Step != ten {
			t.Errorf("after hours: %+v", o.Total)
		}
		run(26*time.Hour, 1)
		if names, err := filepath.Glob(filepath.Join(dir, "*")); len(names) > 3*60+24*6+3 || err != nil {
			t.Errorf("%d files, %v", len(names), err)
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

// TestStepOfSeries: no series is long, and none is empty.
func TestStepOfSeries(t *testing.T) {
	now := time.Date(2026, 11, 22, 17, 3, 27, 0, time.UTC)
	h := &History{Config: Config{Name: "a"}}
	for _, c := range []struct {
		ago   time.Duration
		step  time.Duration
		steps int
	}{
		{15 * time.Minute, minute, 16}, {time.Hour, minute, 61}, {6 * time.Hour, ten, 37}, {24 * time.Hour, ten, 145},
		{100 * time.Hour, ten, 145}, {0, minute, 61},
	} {
		q := telemetry.Query{}
		if c.ago > 0 {
			q.From = now.Add(-c.ago)
		}
		if s := h.spanOf(q, now); s.step != c.step || s.steps != c.steps || s.end().Before(now) {
			t.Errorf("%v: %d steps of %v to %v", c.ago, s.steps, s.step, s.end())
		}
	}
	ago := now.Add(-48 * time.Hour)
	if s := h.spanOf(telemetry.Query{From: ago, To: ago.Add(time.Hour)}, now); s.steps < 1 || s.steps > 2 {
		t.Errorf("an interval that is too old has %d steps", s.steps)
	}
}

func example() *document {
	at := time.Unix(1_800_000_000, 0).UTC()
	return &document{Record: telemetry.Record{At: at, Step: time.Minute,
		Total: telemetry.Counts{Passed: 1, Refused: 2, Denied: 3, Failed: 4, ShadowPassed: 5, ShadowRefused: 6, Degraded: 7, Bans: 8},
		Took:  tally.Buckets{{Index: 0, Count: 1}, {Index: 200, Count: 1 << 60}},
		Rules: []telemetry.RuleRecord{{Name: "login", Counts: telemetry.Counts{Passed: 9}, Distinct: 10,
			Compared: telemetry.Comparison{Both: 11, NewlyRefused: 12, NewlyGranted: 13, Neither: 14},
			Top:      []telemetry.KeyRate{{Key: "203.0.113.7", Passed: 15, Refused: 16}, {Key: "x", Hidden: true}}}}},
		Marks: []telemetry.Mark{{At: at, Kind: "ban", Node: "a", Rule: "login", Text: "t", Actor: "w", Reason: "r", Change: "12"}}}
}

func TestPack(t *testing.T) {
	got, err := unpack(example().pack())
	if want := example(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

// TestPackIsBounded: of too many keys those with refused requests stay, and the counts of all rules.
func TestPackIsBounded(t *testing.T) {
	s := &document{Record: telemetry.Record{At: time.Unix(1_800_000_000, 0)}}
	for i := range 2000 {
		r := telemetry.RuleRecord{Name: fmt.Sprint("rule-", i), Counts: telemetry.Counts{Passed: 1}}
		for k := range keysPerRule {
			r.Top = append(r.Top, telemetry.KeyRate{Key: fmt.Sprint(strings.Repeat("k", 200), i, k), Refused: uint64(i / 1999)})
		}
		s.Rules = append(s.Rules, r)
	}
	text := s.pack()
	got, err := unpack(text)
	if err != nil || len(got.Rules) != 2000 || len(got.Rules[1999].Top) != keysPerRule || len(got.Rules[1998].Top) != 0 {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
}

// TestWorstKeysArePacked: of each rule first, whatever its name, and before the second key of any.
func TestWorstKeysArePacked(t *testing.T) {
	s := &document{Record: telemetry.Record{At: time.Unix(1_800_000_000, 0)}}
	for i := range 256 {
		r := telemetry.RuleRecord{Name: fmt.Sprintf("rule-%03d", i)}
		for k := range keysPerRule {
			r.Top = append(r.Top, telemetry.KeyRate{Key: fmt.Sprint(k), Refused: uint64(keysPerRule - k)})
		}
		s.Rules = append(s.Rules, r)
	}
	got, err := unpack(s.pack())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range got.Rules {
		if len(r.Top) != 2 || r.Top[0].Key != "0" {
			t.Fatalf("%s has %+v", r.Name, r.Top)
		}
	}
}

// TestPackKeepsAllCounts: those of rules that do not fit are in one sum.
func TestPackKeepsAllCounts(t *testing.T) {
	s := &document{Record: telemetry.Record{At: time.Unix(1_800_000_000, 0)}}
	for i := range maxRules + 10 {
		name := fmt.Sprintf("%05d-%s", i, strings.Repeat("n", maxWord/10))
		s.Rules = append(s.Rules, telemetry.RuleRecord{Name: name, Counts: telemetry.Counts{Passed: 2},
			Top: []telemetry.KeyRate{{Key: "x", Refused: 1}}})
	}
	got, err := unpack(s.pack())
	if err != nil {
		t.Fatal(err)
	}
	var all telemetry.Counts
	for i := range got.Rules {
		all.Add(&got.Rules[i].Counts)
	}
	last := got.Rules[len(got.Rules)-1]
	if all.Passed != 2*(maxRules+10) || last.Name != telemetry.OtherRules || len(got.Rules) > maxRules {
		t.Errorf("%+v of %d rules, %s has %+v", all, len(got.Rules), last.Name, last.Counts)
	}
}

// TestClassesOfDocumentsAddUp, and a document cannot name any number of them.
func TestClassesOfDocumentsAddUp(t *testing.T) {
	many := make(map[string]uint64)
	for i := range 2 * maxClasses {
		many[fmt.Sprint(i)] = 1
	}
	of := func(classes map[string]uint64) *document {
		return &document{Record: telemetry.Record{Rules: []telemetry.RuleRecord{{Name: "r", Classes: classes}}}}
	}
	total := newSum(time.Unix(0, 0), time.Minute, 0)
	for _, classes := range []map[string]uint64{{"a": 1, "b": 2}, {"b": 3}, many} {
		read, err := unpack(of(classes).pack())
		if err != nil {
			t.Fatal(err)
		}
		total.add(read)
	}
	set := gatetest.Rules(t, "rules: [{name: r, limit: 9/1h, reserve: {by: user, classes: {a: 0%, b: 50%, c: 60%}}}]")
	got := classesOf(set.Rules()[0], total.rules["r"])
	if want := "[{a 0 1} {b 50 5} {c 60 0}]"; fmt.Sprint(got) != want || len(total.rules["r"].classes) > maxClasses {
		t.Errorf("%v with %d classes, want %s", got, len(total.rules["r"].classes), want)
	}
}

func FuzzUnpack(f *testing.F) {
	text := example().pack()
	f.Add(text)
	f.Add(text[:len(text)/2])
	f.Add(compress(make([]byte, maxRaw+1)))
	f.Add(compress([]byte(`{"rules": [{"top": null}], "marks": [{}], "took": [{"index": 255, "count": 1}]}`)))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := unpack(text)
		if err != nil {
			if !errors.Is(err, errDocument) {
				t.Error(err)
			}
			return
		}
		total := newSum(time.Unix(0, 0), time.Minute, 0)
		total.add(s)
		again, err := unpack(total.document().pack())
		if err != nil || again.Total != s.Total {
			t.Errorf("%+v became %+v, %v", s, again, err)
		}
	})
}

// TestBucketsOutOfOrder are malformed: sums rely on their order.
func TestBucketsOutOfOrder(t *testing.T) {
	s := example()
	s.Took = tally.Buckets{{Index: 7, Count: 1}, {Index: 7, Count: 1}}
	if got, err := unpack(s.pack()); !errors.Is(err, errDocument) {
		t.Errorf("%+v, %v", got, err)
	}
}
