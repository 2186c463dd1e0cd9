package layers

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
)

// floored is a refusalClaim with a floor.
func floored(spec weir.Spec, cost, floor int64) weir.Claim {
	c := refusalClaim(spec, cost)
	c.Floor = floor
	return c
}

// TestRefusalOfAFloorCoversLargerFloors: in a window, claims with a smaller floor change nothing for the others.
func TestRefusalOfAFloorCoversLargerFloors(t *testing.T) {
	window := weir.FixedWindow{Limit: 10, Window: time.Minute}
	s := newScene(t)
	s.ask(1, true, floored(window, 5, 5)) // the answer says that no unit above the floor is left
	s.ask(0, false, floored(window, 1, 5))
	s.ask(0, false, floored(window, 3, 6))
	s.ask(0, true, floored(window, 6, 4)) // one unit is left above 4
	s.ask(1, true, floored(window, 2, 0))
	s.pass(time.Second)
	d := s.ask(0, false, floored(window, 1, 5))[0]
	if d.RetryAfter > 59*time.Second || d.RetryAfter < 59*time.Second-time.Microsecond || d.Remaining != 0 {
		t.Errorf("after a second %+v", d)
	}
	if d := s.ask(0, false, floored(window, 1, 10))[0]; d.RetryAfter != weir.Never {
		t.Errorf("a floor that never fits: %+v", d)
	}
	s.ask(1, true, floored(window, 3, 0))
	s.ask(0, false, floored(window, 1, 0))
	s.ask(0, false, floored(window, 0, 3))
}

// TestRefusalOfNoCostCoversNoOther: only a request for units corrects what a clock that was ahead wrote.
func TestRefusalOfNoCostCoversNoOther(t *testing.T) {
	window := weir.FixedWindow{Limit: 10, Window: time.Minute}
	s := newScene(t)
	s.ask(1, true, floored(window, 8, 0))
	s.ask(0, true, floored(window, 0, 3))
	s.ask(0, false, floored(window, 0, 4))
	s.ask(0, true, floored(window, 1, 4))
	s.ask(0, false, floored(window, 1, 4))
}

// TestRefusalOfABucketIsOfNoUnitAtAll: there a claim with a smaller floor makes the others wait longer.
func TestRefusalOfABucketIsOfNoUnitAtAll(t *testing.T) {
	for _, spec := range []weir.Spec{weir.PerMinute(10), weir.SlidingLog{Limit: 10, Window: time.Minute},
		weir.SlidingCounter{Limit: 10, Window: time.Minute, Slices: 6}} {
		s := newScene(t)
		s.ask(1, true, floored(spec, 5, 5))
		s.ask(0, true, floored(spec, 1, 5))
		s.ask(0, true, floored(spec, 1, 5))
	}
	s := newScene(t)
	s.ask(1, true, floored(weir.PerMinute(10), 10, 0))
	if d := s.ask(0, false, floored(weir.PerMinute(10), 1, 4))[0]; d.RetryAfter != 30*time.Second || d.Remaining != 0 {
		t.Errorf("of an empty bucket, a floor of 4: %+v", d)
	}
}

func TestShortcutKnowsFloors(t *testing.T) {
	s, window := newScene(t), weir.FixedWindow{Limit: 4, Window: time.Minute}
	c := floored(window, 2, 2)
	s.ask(1, true, c)
	for floor, known := range map[int64]bool{2: true, 3: true, 1: false, 0: false} {
		_, granted, _, _, _, _, _, ok := s.layer.DecideKey(c.Key, []*weir.Limit{c.Limit}, 1, floor)
		if granted || ok != known {
			t.Errorf("a floor of %d: granted %v, known %v", floor, granted, ok)
		}
	}
}

// TestCallersOfDifferentFloorsAreNotMerged: nor are their hashes equal.
func TestCallersOfDifferentFloorsAreNotMerged(t *testing.T) {
	a, b := []weir.Claim{floored(weir.PerHour(5), 1, 1)}, []weir.Claim{floored(weir.PerHour(5), 1, 2)}
	b[0].Limit = a[0].Limit
	s := coalescerOf(nil, 1)
	if sameClaims(a, b) || s.hash(a) == s.hash(b) || !sameClaims(a, slices.Clone(a)) {
		t.Error("claims with other floors are taken for equal")
	}
}

// TestUnitsAheadStayAboveTheFloor: a hot class takes leases, and never the units below its floor.
func TestUnitsAheadStayAboveTheFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, low := leaseOpen(t, tenth), leaseOne(daily(1000))
		low[0].Floor = 400
		all, passed := slices.Clone(low), 0
		all[0].Floor = 0
		for range 1000 {
			if granted, _ := b.ask(low); granted {
				passed++
			}
			time.Sleep(time.Millisecond)
		}
		if times, _ := b.below.seen(); passed != 600 || slices.Max(times) < 2 {
			t.Errorf("%d pass, want 600, some of them from leases: %v", passed, times)
		}
		time.Sleep(time.Second) // what is held goes back
		b.many(400, all)
		if granted, _ := b.ask(all); granted {
			t.Error("more than the limit passes")
		}
	})
}

// TestFloorOfAShare is the same part of the share, and leaves each class a unit that has one.
func TestFloorOfAShare(t *testing.T) {
	for _, c := range []struct {
		limit        weir.Spec
		nodes        int
		floor, share int64
	}{
		{weir.FixedWindow{Limit: 10, Window: time.Minute}, 3, 5, 2}, // of 4
		{weir.FixedWindow{Limit: 3, Window: time.Minute}, 3, 1, 0},
		{weir.FixedWindow{Limit: 10, Window: time.Minute}, 1, 5, 5},
		{weir.FixedWindow{Limit: 10, Window: time.Minute}, 3, 10, 10},
		{weir.FixedWindow{Limit: weir.MaxUnits, Window: time.Minute}, 2, weir.MaxUnits - 2, weir.MaxUnits/2 - 1},
		{weir.LeakyQueue(5, time.Second, 99), 4, 50, 13}, // of 1 + 25
	} {
		l := newLocal(t, c.nodes)
		mine := l.claims([]weir.Claim{floored(c.limit, 1, c.floor)})
		if got := (*mine)[0].Floor; got != c.share {
			t.Errorf("a floor of %d of %s on one of %d nodes is %d, want %d", c.floor, c.limit, c.nodes, got, c.share)
		}
	}
}
