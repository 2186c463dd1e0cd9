package weir_test

import (
	"math/bits"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

// TestEveryAlgorithmIsDescribed fails for an algorithm that lacks a part of its descriptor, or whose spec contradicts
// itself.
func TestEveryAlgorithmIsDescribed(t *testing.T) {
	for a := weir.Algorithm(1); a < weir.Algorithms; a++ {
		words, text := a.Words(), a.Example()
		if len(words) == 0 || text == "" {
			t.Errorf("the algorithm with the number %d has no descriptor in specs.go, or one without units, example "+
				"or forms: words %q, example %q", a, words, text)
			continue
		}
		spec, err := weir.ParseLimit(text)
		if err != nil {
			t.Errorf("%s: the example of its descriptor: %v", a, err)
			continue
		}
		limit := weir.MustLimit("l", spec)
		if limit.Algorithm() != a {
			t.Errorf("%s: the example %q is a limit of %s: forms or compile are of another", a, text, limit.Algorithm())
		}
		if again, err := weir.ParseLimit(limit.String()); err != nil || again != spec {
			t.Errorf("%s: String is %q, which is read as %v, %v", a, limit, again, err)
		}
		describes(t, limit)
	}
}

// describes checks that a limit's descriptor and its spec's methods agree.
func describes(t *testing.T, limit *weir.Limit) {
	t.Helper()
	classes := 0
	for _, is := range []bool{limit.Refills(), limit.Windowed(), limit.CountsFor() > 0, limit.Leases()} {
		if is {
			classes++
		}
	}
	a := limit.Algorithm()
	if classes != 1 || limit.Itemized() && limit.CountsFor() == 0 {
		t.Errorf("%s: units is missing in its descriptor, or counts is for units that do not return one by one", a)
	}
	if limit.Units() < 1 || limit.Length() < 1 || limit.Most() < 1 {
		t.Errorf("%s: compile sets no capacity or no period: units %d, length %d", a, limit.Units(), limit.Length())
	}
	for _, spec := range []weir.Spec{limit.WithUnits(3), limit.WithRate(3, time.Minute)} {
		if made, err := weir.NewLimit("l", spec); err != nil || made.Units() != 3 {
			t.Errorf("%s: with or rated is %v, want 3 units: %v", a, spec, err)
		}
	}
	if rated := weir.MustLimit("l", limit.WithRate(3, time.Minute)); rated.Length() != 60e6 && !limit.Leases() {
		t.Errorf("%s: rated is %v, want a period of a minute", a, rated)
	}
	if share := limit.Share(2); share == limit || !share.SameState(limit) || 2*share.Most() < limit.Most() {
		t.Errorf("%s: shares: a half of %s is %s", a, limit, share)
	}
	less, more := weir.MustLimit("l", limit.WithUnits(1)), weir.MustLimit("l", limit.WithUnits(2))
	if !less.Within(more) || more.Within(less) || less.Within(weir.MustLimit("l", other(a))) {
		t.Errorf("%s: within: %s and %s are compared wrongly", a, less, more)
	}
	bounds(t, limit)
}

// other is a limit of another algorithm.
func other(a weir.Algorithm) weir.Spec {
	if a == weir.AlgorithmSlidingLog {
		return weir.PerSecond(1)
	}
	return weir.SlidingLog{Limit: 1, Window: time.Second}
}

// bounds checks that most rises with the time and stays within the envelope.
func bounds(t *testing.T, limit *weir.Limit) {
	t.Helper()
	if limit.Leases() {
		return
	}
	a := limit.Algorithm()
	most, units, period := limit.Envelope()
	before := int64(0)
	for in := time.Microsecond; in < 1000*period; in *= 2 {
		n := limit.MostIn(in)
		hi, lo := bits.Mul64(uint64(units), uint64(in))
		refilled, _ := bits.Div64(hi, lo, uint64(period))
		if n < before || n < 1 || n > most+int64(refilled) {
			t.Errorf("%s: most or peak: %s grants %d in any %v after %d in a half of it; its envelope is %d + %d/%v",
				a, limit, n, in, before, most, units, period)
		}
		before = n
	}
}
