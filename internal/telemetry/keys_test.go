//go:build !race

package telemetry

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/gatetest"
)

// Estimates have no concurrency: the race detector would only be slow.

// demands are the exact requests of each user in each window.
type demands map[int]map[string]uint64

func (d demands) add(window int, user string) {
	if d[window] == nil {
		d[window] = make(map[string]uint64)
	}
	d[window][user]++
}

// refused recounts a fixed window of another limit.
func (d demands) refused(limit uint64) (keys int, share float64) {
	over := make(map[string]bool)
	var refused, all uint64
	for _, users := range d {
		for user, n := range users {
			all += n
			if n > limit {
				refused += n - limit
				over[user] = true
			}
		}
	}
	return len(over), float64(refused) / float64(all)
}

func (d demands) users() int {
	seen := make(map[string]bool)
	for _, users := range d {
		for user := range users {
			seen[user] = true
		}
	}
	return len(seen)
}

// compare compares a report with the recount.
func (d demands) compare(t *testing.T, report *KeyReport, most, scatter float64) {
	t.Helper()
	if report.Error > most {
		t.Errorf("the stated error is %.3f, above %.3f", report.Error, most)
	}
	worst, refuses := 0.0, 0
	for _, point := range report.WhatIf {
		keys, share := d.refused(uint64(point.Limit))
		if diff := math.Abs(share - point.Share); diff > report.Error {
			t.Errorf("limit %d refuses %.4f of the requests, want %.4f ± %.4f", point.Limit, point.Share, share, report.Error)
		} else {
			worst = max(worst, diff)
		}
		if share > 0.05 {
			refuses++
		}
		tolerated := 3*math.Sqrt(float64(keys)*float64(d.users())/float64(report.Sampled)) + (0.1+scatter)*float64(keys) + 1
		if scatter > 0 && point.Limit < 7 {
			tolerated = math.Inf(1) // a node sees one unit or none
		}
		if math.Abs(float64(point.Keys)-float64(keys)) > tolerated {
			t.Errorf("limit %d refuses %d keys, want %d", point.Limit, point.Keys, keys)
		}
	}
	if refuses < 5 {
		t.Fatalf("only %d limits refuse anything: %+v", refuses, report.WhatIf)
	}
	t.Logf("worst error %.4f, stated %.4f, %d keys sampled", worst, report.Error, report.Sampled)
	if users := float64(d.users()); math.Abs(float64(report.Distinct)-users) > 0.1*users {
		t.Errorf("%d keys, want %v", report.Distinct, users)
	}
	bars := uint64(0)
	for _, bar := range report.Histogram {
		bars += bar.Keys
	}
	if diff := math.Abs(float64(bars) - float64(report.Distinct)); diff > 12+scatter*float64(bars) {
		t.Errorf("the histogram has %d keys of %d", bars, report.Distinct)
	}
}

// drive asks nodes in turn, at random, in some windows of a minute.
func drive(t *testing.T, nodes []*node, windows, each int, user func(*rand.Rand) int) demands {
	d, random := make(demands), rand.New(rand.NewPCG(3, 4))
	var v gate.Verdict
	for window := range windows {
		for i := range each {
			name := fmt.Sprint("u", user(random))
			d.add(window, name)
			nodes[random.IntN(len(nodes))].ask(t, name, &v)
			if i%(each/100) == 0 {
				for _, n := range nodes {
					n.pass(tick)
				}
			}
		}
		for _, n := range nodes {
			n.pass(time.Minute - n.clock.Sub(n.clock.Truncate(time.Minute)))
			n.Cut(n.clock)
		}
	}
	return d
}

const perMinute = `rules: [{name: user, key: [user], limit: fixed_window 20/1m}]`

func TestWhatIfIsWithinItsStatedError(t *testing.T) {
	for _, c := range []struct {
		name string
		keys int
		most float64
	}{{"all keys counted", 2000, 0.02}, {"a sample of keys", 30_000, 0.1}} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, perMinute, true)
			d := drive(t, []*node{n}, 3, 60_000, zipf(c.keys))
			d.compare(t, n.Keys("user"), c.most, 0)
		})
	}
}

// A burst at the end of a window is refused by a bucket that is still empty in the next one. The computation has a
// fresh window there, and says how wrong it is.
func TestErrorOfWhatIfCoversBurstsAcrossWindows(t *testing.T) {
	n := newNode(t, `rules: [{name: user, key: [user], limit: 5/1m}]`, true)
	n.pass(time.Minute - n.clock.Sub(n.clock.Truncate(time.Minute)) - 2*tick)
	var v gate.Verdict
	for range 4 {
		for range 6 {
			n.ask(t, "u", &v)
		}
		n.pass(tick)
	}
	n.pass(time.Minute)
	report := n.Keys("user")
	i := slices.IndexFunc(report.WhatIf, func(w WhatIf) bool { return w.Limit == 5 })
	const refused = 19. / 24
	if point := report.WhatIf[i]; math.Abs(point.Share-refused) > report.Error || point.Share > 0.7 {
		t.Errorf("the limit in force refuses %.3f ± %.3f of the requests, want %.3f", point.Share, report.Error, refused)
	}
}

// A node that sees a third of each key's requests reports on all of them, with the samples of the others.
func TestWhatIfOfThreeNodes(t *testing.T) {
	for _, keys := range []int{2000, 30_000} {
		one := newNode(t, perMinute, true)
		nodes := []*node{one, one.beside(t, perMinute), one.beside(t, perMinute)}
		d := drive(t, nodes, 3, 60_000, zipf(keys))
		var others []*KeySample
		for _, n := range nodes[1:] {
			text := n.Sample("user").Append(nil)
			if len(text) > 4096 {
				t.Errorf("the sample has %d bytes", len(text))
			}
			s, err := ParseSample(text)
			if err != nil {
				t.Fatal(err)
			}
			others = append(others, s)
		}
		d.compare(t, nodes[0].Keys("user", others...), 0.15, 0.5) // the demand of a part scatters more
	}
}

// Nodes that each have keys of their own, by consistent hashing, report their sum.
func TestKeysThatStayOnOneNode(t *testing.T) {
	a, b := newNode(t, perMinute, true), newNode(t, perMinute, true)
	even := drive(t, []*node{a}, 2, 20_000, func(r *rand.Rand) int { return 2 * zipf(1000)(r) })
	odd := drive(t, []*node{b}, 2, 20_000, func(r *rand.Rand) int { return 2*zipf(1000)(r) + 1 })
	for window, users := range odd {
		for user, n := range users {
			even[window][user] += n
		}
	}
	even.compare(t, a.Keys("user", b.Sample("user")), 0.05, 0)
}

func TestWindowOfEachAlgorithm(t *testing.T) {
	for text, want := range map[string]window{
		"fixed_window 10/1m":        {60, 10, 10},
		"sliding_log 10/1h":         {3600, 10, 10},
		"sliding_counter 10/1s":     {1, 10, 10},
		"100/1m":                    {60, 100, 100},
		"10/1s burst 50":            {5, 50, 10},
		"100/1m burst 10":           {6, 10, 100},
		"1000/100ms":                {1, 10_000, 1000},
		"calendar 5/day":            {86400, 5, 5},
		"concurrency 5 ttl 10s":     {},
		"leaky_queue 10/1s queue 9": {1, 10, 10},
	} {
		set := gatetest.Rules(t, "rules: [{name: a, key: [user], limit: "+text+"}]")
		if got := windowOf(set.Rules()[0]); got.seconds != want.seconds || got.base != want.base || math.Abs(got.grant-want.grant) > 1e-9 {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

func TestDemandBucketsAreNarrow(t *testing.T) {
	last := -1
	for units := range uint64(100_000) {
		b := demandBucket(units)
		if b < last || b > last+1 {
			t.Fatalf("%d units are in bucket %d after %d", units, b, last)
		}
		if last = b; units > 0 && math.Abs(middleOf(b)-float64(units)) > float64(units)/16+0.5 {
			t.Fatalf("%d units are in bucket %d with the middle %v", units, b, middleOf(b))
		}
	}
	if b := demandBucket(math.MaxUint64); b != demandBuckets-1 {
		t.Errorf("the largest demand is in bucket %d", b)
	}
}

func TestSampleOfKeysIsReadAsItWasWritten(t *testing.T) {
	n := newNode(t, perMinute, true)
	drive(t, []*node{n}, 1, 5000, zipf(500))
	s := n.Sample("user")
	text := s.Append(nil)
	got, err := ParseSample(text)
	if err != nil {
		t.Fatal(err)
	}
	if got.requests != s.requests || got.refusals != s.refusals || got.keys != s.keys || got.demand != s.demand || got.peaks != s.peaks || !slices.Equal(got.hashes, s.hashes) {
		t.Errorf("%+v\nwant %+v", got, s)
	}
	for size := range text {
		if _, err := ParseSample(text[:size]); err == nil && size < len(text)-5*mostHashes {
			t.Errorf("%d of %d bytes are accepted", size, len(text))
		}
	}
	if n.Sample("nothing") != nil || n.Keys("nothing") != nil {
		t.Error("a rule that is not there has a sample")
	}
}

func FuzzParseSample(f *testing.F) {
	f.Add([]byte{1, 2, 2, 0, 5, 1, 1, 1, 1, 1, 192, 0, 0, 0, 9, 3})
	f.Add([]byte{1, 255, 255, 255})
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ParseSample(text)
		if err != nil {
			return
		}
		report := window{60, 10, 10}.report([]*KeySample{s, s})
		if len(report.WhatIf) == 0 || math.IsNaN(report.Error) {
			t.Errorf("%+v", report)
		}
	})
}
