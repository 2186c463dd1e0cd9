package adaptive

import (
	"testing"
	"time"
)

// feed ends n requests of a latency, one each ms.
func feed(l *Limiter, now *int64, n int, outcome Outcome, took time.Duration) {
	for range n {
		*now += int64(time.Millisecond)
		l.enter(0)
		l.leave(*now, outcome, took)
	}
}

func single(t *testing.T, c Config) *Limiter { return limiters(t, 1, c)[0] }

func TestAnIdleServiceKeepsItsLimit(t *testing.T) {
	l, now := single(t, Config{Min: 5, Max: 500}), int64(0)
	l.control.limit, l.control.start = 100, start{over: true}
	l.resize()
	feed(l, &now, 1000, Answered, 10*time.Millisecond)
	feed(l, &now, 1000, Answered, 50*time.Millisecond) // one request at a time is no queue
	if s := l.State(); s.Limit != 100 {
		t.Errorf("limit is %d, want 100: nothing says that it is wrong", s.Limit)
	}
	feed(l, &now, 100_000, Answered, 50*time.Millisecond)
	if u := l.State().Unloaded; u < 49*time.Millisecond {
		t.Errorf("latency without load is %v, want the 50ms that it has drifted to", u)
	}
	feed(l, &now, 10_000, Answered, 10*time.Millisecond)
	if u := l.State().Unloaded; u > 11*time.Millisecond {
		t.Errorf("latency without load is %v, want 10ms again", u)
	}
}

func TestClientsThatLeaveAreNoSignal(t *testing.T) {
	l, now := single(t, Config{Min: 5, Max: 500}), int64(0)
	feed(l, &now, 1000, Answered, 10*time.Millisecond)
	before := l.State()
	feed(l, &now, 10_000, Ignored, time.Hour)
	if s := l.State(); s.Limit != before.Limit || s.Latency != before.Latency || s.Unloaded != before.Unloaded {
		t.Errorf("state is %+v, want that of before, %+v", s, before)
	}
}

func TestOverloadLowersTheLimit(t *testing.T) {
	for _, algorithm := range []Algorithm{Gradient, AIMD} {
		l, now := single(t, Config{Algorithm: algorithm, Min: 5, Max: 500}), int64(0)
		l.control.limit, l.control.start = 100, start{over: true}
		l.resize()
		for range 50 {
			l.control.bound = true
			feed(l, &now, 90, Answered, 10*time.Millisecond)
			feed(l, &now, 10, Overloaded, time.Millisecond)
		}
		if s := l.State(); s.Limit > 10 {
			t.Errorf("algorithm %d: limit is %d after windows with a tenth of refusals, want at most 10", algorithm, s.Limit)
		}
	}
}

func TestAdoptKeepsWhatWasLearned(t *testing.T) {
	old, now := single(t, Config{Min: 5, Max: 500, Classes: threeClasses}), int64(0)
	feed(old, &now, 1000, Answered, 10*time.Millisecond)
	old.control.limit = 300
	next := single(t, Config{Min: 5, Max: 200, Classes: []Class{{Name: "other"}, {Name: "critical"}}})
	next.Adopt(old)
	s := next.State()
	if s.Limit != 200 || s.Unloaded != 10*time.Millisecond || s.Classes[1].Admitted != 1000 || s.Classes[0].Admitted != 0 {
		t.Errorf("state is %+v", s)
	}
}

// Equal bounds are a fixed limit, which no latency moves.
func TestAFixedLimitStays(t *testing.T) {
	l, now := single(t, Config{Min: 5, Max: 5}), int64(0)
	for range 20 {
		l.control.bound = true
		feed(l, &now, 1000, Answered, time.Duration(now%100)*time.Millisecond)
	}
	if s := l.State(); s.Limit != 5 || s.Measuring {
		t.Errorf("state is %+v", s)
	}
}
