package derived

import (
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

func double(l *weir.Limit) *weir.Limit {
	return weir.MustLimit(l.Name(), weir.FixedWindow{Limit: 2 * l.Capacity(), Window: time.Second})
}

func limit(n int64) *weir.Limit {
	return weir.MustLimit("limit", weir.FixedWindow{Limit: n, Window: time.Second})
}

func TestEachIsMadeOnce(t *testing.T) {
	made := 0
	l := New(func(of *weir.Limit) *weir.Limit { made++; return double(of) })
	a, b := limit(3), limit(4)
	for range 3 {
		if l.Of(a).Capacity() != 6 || l.Of(b).Capacity() != 8 || l.Of(a) != l.Of(a) {
			t.Fatalf("%v of %v, %v of %v", l.Of(a), a, l.Of(b), b)
		}
	}
	if made != 2 {
		t.Errorf("2 limits were made %d times", made)
	}
	if n := testing.AllocsPerRun(100, func() { l.Of(a) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestNoLimit(t *testing.T) {
	l := New(func(*weir.Limit) *weir.Limit { t.Error("something is made of nothing"); return nil })
	if l.Of(nil) != nil || l.Of(new(weir.Limit)) != nil {
		t.Error("no limit became one")
	}
}

// Rules are replaced for ever; what is kept of them is not.
func TestFewAreKept(t *testing.T) {
	l := New(func(of *weir.Limit) *weir.Limit { return of })
	for range most + 1 {
		l.Of(limit(1))
	}
	kept := 0
	l.kept.Load().Range(func(any, any) bool { kept++; return true })
	if kept != 1 || kept != int(l.count.Load()) {
		t.Errorf("%d are kept and %d counted of one more than there is room for", kept, l.count.Load())
	}
}

func TestManyAskAtOnce(t *testing.T) {
	l := New(double)
	of := limit(5)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if l.Of(of) != l.Of(of) {
				t.Error("two of one")
			}
		})
	}
	all.Wait()
}
