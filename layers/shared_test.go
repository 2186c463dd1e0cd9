package layers

import (
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

func sharedTimes(l *weir.Limit, by float64) *weir.Limit {
	return weir.MustLimit(l.Name(), weir.FixedWindow{Limit: int64(by) * l.Capacity(), Window: time.Second})
}

func sharedLimit(n int64) *weir.Limit {
	return weir.MustLimit("limit", weir.FixedWindow{Limit: n, Window: time.Second})
}

func TestEachLimitIsDerivedOnce(t *testing.T) {
	made := 0
	l := newDerivedLimits(func(of *weir.Limit, by float64) *weir.Limit { made++; return sharedTimes(of, by) })
	a, b := sharedLimit(3), sharedLimit(4)
	for range 3 {
		if again := l.of(a, 2); again.Capacity() != 6 || l.of(b, 2).Capacity() != 8 || l.of(a, 2) != again {
			t.Fatalf("%v of %v, %v of %v", l.of(a, 2), a, l.of(b, 2), b)
		}
	}
	if made != 2 {
		t.Errorf("2 limits were made %d times", made)
	}
	if n := testing.AllocsPerRun(100, func() { l.of(a, 2) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if l.of(a, 3).Capacity() != 9 || l.of(a, 2).Capacity() != 6 || made != 4 {
		t.Errorf("another number makes another limit, once: %d", made)
	}
}

func TestNilLimit(t *testing.T) {
	l := newDerivedLimits(func(*weir.Limit, float64) *weir.Limit { t.Error("something is made of nothing"); return nil })
	if l.of(nil, 1) != nil || l.of(new(weir.Limit), 1) != nil {
		t.Error("no limit became one")
	}
}

// Reloads produce new limits without end.
func TestCacheIsBounded(t *testing.T) {
	l := newDerivedLimits(func(of *weir.Limit, _ float64) *weir.Limit { return of })
	a := sharedLimit(1)
	kept := func() (n int) {
		l.kept.Load().Range(func(any, any) bool { n++; return true })
		return n
	}
	for i := range maxDerived {
		l.of(sharedLimit(1), 1)
		l.of(a, float64(i))
	}
	// The last one was one too many, and a was made again after that.
	if got := kept(); got != 1 || l.count.Load() != 1 {
		t.Errorf("%d are kept and %d counted of one more than there is room for", got, l.count.Load())
	}
}

func TestConcurrentCallers(t *testing.T) {
	l := newDerivedLimits(sharedTimes)
	of := sharedLimit(5)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 1000 {
				by := float64(1 + i%3)
				if got := l.of(of, by).Capacity(); got != int64(5*by) {
					t.Errorf("%d by %v", got, by)
				}
			}
		})
	}
	all.Wait()
}
