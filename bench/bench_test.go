package main

import (
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestNamesAreDistinctAndOfOneLength(t *testing.T) {
	for _, prefix := range []string{"", "ip:"} {
		seen := map[string]bool{}
		names := newNames(prefix, million)
		for i := range names.n {
			name := names.at(i)
			if len(name) != len(prefix)+digits || seen[name] {
				t.Fatalf("name %d is %q, which is not new or not of %d bytes", i, name, len(prefix)+digits)
			}
			seen[name] = true
		}
	}
}

func TestShuffledNamesAreTheSameInAnotherOrder(t *testing.T) {
	inOrder, shuffled := listed(newNames("ip:", 1000)), listed(shuffledNames("ip:", 1000))
	if slices.Equal(inOrder, shuffled) {
		t.Error("they come in the same order")
	}
	slices.Sort(inOrder)
	slices.Sort(shuffled)
	if !slices.Equal(inOrder, shuffled) {
		t.Error("they are other names")
	}
}

func listed(names *names) []string {
	var all []string
	for i := range names.n {
		all = append(all, names.at(i))
	}
	return all
}

// every third question is refused, every seventh fails.
type countingPeer struct{ granted, refused, failed, asked atomic.Int64 }

var errTest = errors.New("a failure of the test")

func (p *countingPeer) Asker() Asker {
	return func(string) (bool, error) {
		switch n := p.asked.Add(1); {
		case n%7 == 0:
			p.failed.Add(1)
			return false, errTest
		case n%3 == 0:
			p.refused.Add(1)
			return false, nil
		default:
			p.granted.Add(1)
			return true, nil
		}
	}
}

func (p *countingPeer) Close() {}

func TestCrewCountsEveryAnswer(t *testing.T) {
	crew := newCrew(8)
	defer crew.stop()
	names := newNames("", 100)
	for _, timed := range []bool{false, true} {
		for _, goroutines := range []int{1, 2, 8} {
			p := &countingPeer{}
			got := crew.run(stations(p, goroutines, names), names, 5*time.Millisecond, timed)
			if got.granted != p.granted.Load() || got.refused != p.refused.Load() || got.failed != p.failed.Load() || got.asked() == 0 {
				t.Errorf("timed %v, %d goroutines: counted %d, %d, %d; answered %d, %d, %d", timed, goroutines,
					got.granted, got.refused, got.failed, p.granted.Load(), p.refused.Load(), p.failed.Load())
			}
			if !errors.Is(got.firstError, errTest) {
				t.Errorf("timed %v: the first error is %v", timed, got.firstError)
			}
			if got.elapsed < 5*time.Millisecond {
				t.Errorf("timed %v: a slice of 5 ms took %v", timed, got.elapsed)
			}
			if timed && got.latency.n != got.asked() {
				t.Errorf("%d latencies of %d questions", got.latency.n, got.asked())
			}
		}
	}
}

func TestStationsAskAllNamesInTurn(t *testing.T) {
	crew := newCrew(1)
	defer crew.stop()
	names := newNames("", 1000)
	for _, timed := range []bool{false, true} {
		asked := map[string]int{}
		all := stations(shared(func(key string) (bool, error) { asked[key]++; return true, nil }, nil), 1, names)
		for range 20 {
			crew.run(all, names, time.Millisecond, timed)
		}
		if len(asked) < names.n {
			t.Fatalf("timed %v: asked %d of %d names", timed, len(asked), names.n)
		}
		for key, times := range asked {
			if least := asked[names.at(names.n-1)]; times < least || times > least+1 {
				t.Fatalf("timed %v: %s was asked %d times, the last name %d times", timed, key, times, least)
			}
		}
	}
}

func TestPassAsksEachNameOnce(t *testing.T) {
	names := newNames("", 1000)
	counts := map[string]*atomic.Int64{}
	for _, name := range listed(names) {
		counts[name] = new(atomic.Int64)
	}
	got := pass(shared(func(key string) (bool, error) { counts[key].Add(1); return true, nil }, nil), names, 16)
	if got.granted != 1000 {
		t.Errorf("granted %d of 1000", got.granted)
	}
	for name, n := range counts {
		if n.Load() != 1 {
			t.Errorf("%s was asked %d times", name, n.Load())
		}
	}
}

func TestHistogramAgainstSorting(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var h histogram
	var all []time.Duration
	for range 10_000 {
		d := time.Duration(random.ExpFloat64() * 50_000)
		all = append(all, d)
		h.record(d)
	}
	slices.Sort(all)
	for _, p := range []float64{0, 0.5, 0.9, 0.99, 0.999} {
		exact, got := all[int(p*float64(len(all)))], h.percentile(p)
		if got < exact || float64(got) > float64(exact)*1.0625 {
			t.Errorf("p%v is %v, measured as %v", p*100, exact, got)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{9, 1, 2, 4}, 3}} {
		if got := median(test.values); got != test.want {
			t.Errorf("median of %v is %v, not %v", test.values, got, test.want)
		}
	}
}

// limitEach is a right limiter; the faults below are made of it.
func limitEach(q Quota) Asker {
	asked := map[string]int64{}
	return func(key string) (bool, error) {
		asked[key]++
		return asked[key] <= q.Burst, nil
	}
}

func rowOf(ask func(Quota) Asker) row {
	return row{name: "row", refuses: true, open: func(q Quota) (Peer, error) { return shared(ask(q), nil), nil }}
}

func TestCheckFindsAFault(t *testing.T) {
	if err := check(rowOf(limitEach)); err != nil {
		t.Errorf("a right limiter: %v", err)
	}
	for fault, ask := range map[string]func(Quota) Asker{
		"grants everything":  func(Quota) Asker { return func(string) (bool, error) { return true, nil } },
		"refuses everything": func(Quota) Asker { return func(string) (bool, error) { return false, nil } },
		"one too many":       func(q Quota) Asker { return limitEach(Quota{Burst: q.Burst + 1}) },
		"one too few":        func(q Quota) Asker { return limitEach(Quota{Burst: q.Burst - 1}) },
		"fails":              func(Quota) Asker { return func(string) (bool, error) { return false, errTest } },
		"one count for all keys": func(q Quota) Asker {
			ask := limitEach(q)
			return func(string) (bool, error) { return ask("one") }
		},
	} {
		if check(rowOf(ask)) == nil {
			t.Errorf("%s: not found", fault)
		}
	}
}

func TestMemoryRowsLimit(t *testing.T) {
	for _, r := range memoryRows() {
		if err := check(r); err != nil {
			t.Errorf("%s: %v", r.name, err)
		}
	}
}

func newStage(t *testing.T) *stage {
	crew := newCrew(2)
	t.Cleanup(crew.stop)
	return &stage{crew: crew, rounds: 2, slice: time.Millisecond, broken: map[string]string{}, board: board{}, log: io.Discard}
}

func TestEveryMemoryRowIsMeasuredInEveryColumn(t *testing.T) {
	s := newStage(t)
	names := newNames("ip:", 1000)
	for _, refused := range []bool{false, true} {
		s.play(scene{memoryRows(), names, shuffledNames("ip:", 1000), refused, []int{1, 2}, enterAll})
		for _, r := range memoryRows() {
			for _, n := range []int{1, 2} {
				f, ok := s.board.get(r.name, column{1000, refused, n})
				if !ok {
					t.Errorf("%s, refused %v, %d goroutines: %q", r.name, refused, n, f.broken)
				}
			}
		}
	}
}

// The self-check may pass and the row go wrong later: that is no figure either.
func TestWrongAnswersInASliceAreNoFigure(t *testing.T) {
	for fault, ask := range map[string]func(Quota) Asker{
		"granted where refusals are measured": func(Quota) Asker { return func(string) (bool, error) { return true, nil } },
		"errors":                              func(Quota) Asker { return func(string) (bool, error) { return false, errTest } },
	} {
		s := newStage(t)
		r := rowOf(ask)
		s.play(scene{[]row{r}, newNames("", 10), newNames("", 10), true, []int{1}, func(Peer, *names) error { return nil }})
		if _, ok := s.board.get(r.name, column{10, true, 1}); ok {
			t.Errorf("%s: has a figure", fault)
		}
	}
}

func TestABrokenRowPrintsAsBroken(t *testing.T) {
	s := newStage(t)
	wrong := row{name: "wrong", open: func(Quota) (Peer, error) {
		return shared(func(string) (bool, error) { return true, nil }, nil), nil
	}}
	s.check([]row{wrong})
	s.play(scene{[]row{wrong}, newNames("", 1), newNames("", 1), false, []int{1, 2}, enterAll})
	r := &report{memoryRows: []row{wrong}, board: s.board, broken: s.broken}
	var out strings.Builder
	r.printMemory(&out)
	if strings.Count(out.String(), "| wrong |") != 1 || strings.Count(out.String(), " broken |") != 2 {
		t.Errorf("printed:\n%s", out.String())
	}
	if !strings.Contains(out.String(), "- wrong is broken: self-check: a burst of 5: question 6") {
		t.Errorf("does not say why:\n%s", out.String())
	}
}

func TestHeapOfAKeyIsCounted(t *testing.T) {
	s := newStage(t)
	keep := row{name: "keeps 100 bytes a key", open: func(Quota) (Peer, error) {
		kept := make(map[string][]byte, 10_000)
		var mu sync.Mutex
		ask := func(key string) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			kept[key] = make([]byte, 96)
			return true, nil
		}
		return peer{func() Asker { return ask }, func() { clear(kept) }}, nil
	}}
	bytes := weigh(s, []row{keep}, 10_000)[keep.name]
	if bytes < 96 || bytes > 300 {
		t.Errorf("%.0f bytes a key", bytes)
	}
}

func TestBarsSayWhetherTheyAreMet(t *testing.T) {
	for _, test := range []struct {
		bar  bar
		want string
	}{
		{bar{ratio: 0.5, bound: 0.7}, "met"},
		{bar{ratio: 0.7, bound: 0.7}, "met"},
		{bar{ratio: 0.71, bound: 0.7}, "**not met**"},
		{bar{ratio: 1, bound: 1, strict: true}, "**not met**"},
		{bar{ratio: 2, bound: 2, atLeast: true}, "met"},
		{bar{ratio: 1.99, bound: 2, atLeast: true}, "**not met**"},
		{bar{missing: true, bound: 2}, "not measured"},
	} {
		if got := test.bar.met(); got != test.want {
			t.Errorf("%+v is %q, not %q", test.bar, got, test.want)
		}
	}
}

// figures are what a run would put on the board, weir three times as fast as others.
func TestBarsReadTheirColumns(t *testing.T) {
	r := &report{memoryRows: memoryRows(), board: board{}, heap: map[string]float64{weirName: 50}}
	for _, row := range r.memoryRows {
		for _, c := range memoryColumns() {
			rate := 1e6 * float64(c.goroutines)
			if row.name == weirName {
				rate *= 3
			}
			r.board.put(row.name, c, steady(rate, 0, 0))
		}
	}
	for _, b := range r.memoryBars() {
		if b.met() != "met" {
			t.Errorf("%s: %s, %v of %v: %s", b.what, b.measured, b.ratio, b.bound, b.met())
		}
	}
	slow := column{1, true, 2}
	r.board.put(weirName, slow, steady(1e6, 1, 0))
	for _, i := range []int{0, 1, 4, 6} { // those that read this column
		if b := r.memoryBars()[i]; b.met() == "met" {
			t.Errorf("%s: met although weir is slow and allocates in one column", b.what)
		}
	}
}

func steady(perSecond, allocs, cpu float64) figure {
	return figure{perSecond: []float64{perSecond}, allocs: []float64{allocs}, cpu: []float64{cpu}}
}

func TestRatiosAreWithinARound(t *testing.T) {
	// The machine slows down to a third; one row stays twice as fast as the other.
	fast, slow := []float64{600, 200, 400}, []float64{300, 100, 200}
	if got := paired(fast, slow); got != 2 {
		t.Errorf("ratio %v", got)
	}
	if got := paired(nil, slow); got != 0 {
		t.Errorf("ratio of nothing %v", got)
	}
}
