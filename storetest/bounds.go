package storetest

import (
	"math/big"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/stories/model"
)

// bounded are the kinds for which SPEC.md names the most units granted in any time.
var bounded = []string{"continuous bucket", "step bucket", "fixed window first", "fixed window epoch", "sliding log",
	"sliding counter", "several"}

// mostIn is that table: the most units granted in any t µs. ok is false if it has no row.
func mostIn(l *weir.Limit, t int64) (most *big.Int, ok bool) {
	limit, period := l.Capacity(), l.Period()
	switch l.Algorithm() {
	case weir.AlgorithmTokenBucket:
		if l.Step() {
			return sum(l.Most(), l.Refill(), ceilDiv(t-1, period), 1), true
		}
		return sum(l.Most(), l.Refill(), t-1, period), true
	case weir.AlgorithmFixedWindow:
		if l.Anchor() == weir.Epoch {
			return sum(limit, limit, ceilDiv(t-1, period), 1), true
		}
		return sum(limit-1, limit, 1, 1), t <= period
	case weir.AlgorithmSlidingLog:
		return sum(0, limit, ceilDiv(t, period), 1), true
	case weir.AlgorithmSlidingCounter:
		return sum(limit, limit, max(2, t)-2, period), l.Slices() == 1 && t <= period
	}
	return nil, false
}

// sum is a + ⌊b × c/d⌋.
func sum(a, b, c, d int64) *big.Int {
	product := new(big.Int).Mul(big.NewInt(b), big.NewInt(c))
	return product.Div(product, big.NewInt(d)).Add(product, big.NewInt(a))
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// staysBounded plays the takes of a schedule at short intervals, and sums up the units granted
// between any two of them.
func staysBounded(t TB, b *fixture, s schedule) {
	t.Helper()
	b.clock.set(s.start)
	a := b.actor(&s)
	a.forward = true
	grants := make([][]model.Units, len(a.claims))
	for i := range s.steps {
		for range 3 {
			step := s.steps[i]
			step.op, step.quiet, step.renew = "take", false, false
			got := a.do(t, &step)
			a.note(&step, got)
			for j := range grants {
				grants[j] = append(grants[j], model.Units{
					At: int64(got.decisions[j].At), N: got.granted * step.costs[j]})
			}
		}
	}
	for i := range grants {
		holdsBound(t, a.claims[i].Limit, grants[i])
	}
}

func holdsBound(t TB, l *weir.Limit, grants []model.Units) {
	t.Helper()
	for i := range grants {
		total := int64(0)
		for _, last := range grants[i:] {
			total += last.N
			length := last.At - grants[i].At + 1
			if most, ok := mostIn(l, length); ok && big.NewInt(total).Cmp(most) > 0 {
				t.Fatalf("%s granted %d units in the %d µs from %d on; at most %v are promised", l, total, length,
					grants[i].At, most)
			}
		}
	}
}
