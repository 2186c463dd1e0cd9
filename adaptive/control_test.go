package adaptive

import (
	"math/rand/v2"
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

func TestClientsThatLeaveEarlyDoNotMoveTheLimit(t *testing.T) {
	l, now := single(t, Config{Min: 5, Max: 500}), int64(0)
	feed(l, &now, 1000, Answered, 10*time.Millisecond)
	before := l.State()
	feed(l, &now, 10_000, Ignored, time.Hour)
	feed(l, &now, 10_000, Abandoned, time.Millisecond)
	if s := l.State(); s.Limit != before.Limit || s.Latency != before.Latency || s.Unloaded != before.Unloaded {
		t.Errorf("state is %+v, want that of before, %+v", s, before)
	}
}

// All clients leave after a second, because the service has become slow: without their time nothing would be known.
func TestClientsThatLeaveLateLowerTheLimit(t *testing.T) {
	l, now := single(t, Config{Min: 5, Max: 500}), int64(0)
	feed(l, &now, 1000, Answered, 10*time.Millisecond)
	l.control.limit, l.control.start = 400, start{over: true}
	l.resize()
	for range 10 {
		l.control.bound = true
		feed(l, &now, 100, Abandoned, time.Second)
	}
	if s := l.State(); s.Limit > 200 {
		t.Errorf("state is %+v, want a limit of at most 200", s)
	}
}

// A service works on 8 requests at once and refuses the others.
func TestOverloadLowersTheLimit(t *testing.T) {
	for _, algorithm := range []Algorithm{Gradient, AIMD} {
		l, now := single(t, Config{Algorithm: algorithm, Min: 5, Max: 500}), int64(0)
		l.control.limit, l.control.start = 100, start{over: true}
		l.resize()
		random := rand.New(rand.NewPCG(1, 2))
		for range 5000 {
			l.control.bound = true
			if random.IntN(l.State().Limit) >= 8 {
				feed(l, &now, 1, Overloaded, time.Millisecond)
			} else {
				feed(l, &now, 1, Answered, 10*time.Millisecond)
			}
		}
		if s := l.State(); s.Limit > 12 {
			t.Errorf("algorithm %d: limit is %d; the service works on 8", algorithm, s.Limit)
		}
	}
}

// A tenth of the requests asks for a part of the service that refuses at any load.
func TestBrokenPartDoesNotLowerTheLimit(t *testing.T) {
	for _, algorithm := range []Algorithm{Gradient, AIMD} {
		l, now := single(t, Config{Algorithm: algorithm, Min: 5, Max: 500}), int64(0)
		l.control.limit, l.control.start = 100, start{over: true}
		l.resize()
		random := rand.New(rand.NewPCG(1, 2))
		for range 20_000 {
			l.control.bound = true
			if random.IntN(10) == 0 {
				feed(l, &now, 1, Overloaded, time.Millisecond)
			} else {
				feed(l, &now, 1, Answered, 10*time.Millisecond)
			}
			if s := l.State(); !s.Measuring && s.Limit < 50 {
				t.Fatalf("algorithm %d: limit is %d of 100", algorithm, s.Limit)
			}
		}
	}
}

// A service that answers errors at once shows a latency without load that is too low afterwards.
func TestLimitRecoversFromInstantErrors(t *testing.T) {
	l := loads[0]
	broken := func(r *rand.Rand, at float64) float64 {
		if at < 15 {
			return 0.5
		}
		return l.service(r, at)
	}
	m := l.model(3, single(t, Config{Min: 5, Max: 1000, Classes: threeClasses, Queue: shortQueue}))
	m.workers = func(float64) int { return l.workers }
	m.service, m.from, m.seconds = broken, 20, 35
	m.good = 2*l.unloaded(t) + 50
	r := m.run()
	if least := int(0.9 * 15 * l.capacity); r.goodput() < least {
		t.Errorf("%d good answers in 15 s, want at least %d; %+v", r.goodput(), least, m.limiters[0].State())
	}
}

func TestFewRequestsEndAMeasurement(t *testing.T) {
	l, now := single(t, Config{Min: 5, Max: 500}), int64(0)
	l.control.limit, l.control.unloaded, l.control.start = 100, 1e7, start{over: true}
	for !l.State().Measuring {
		l.control.bound = true
		feed(l, &now, 1, Answered, 10*time.Millisecond)
	}
	now += int64(time.Minute)
	feed(l, &now, 2, Answered, 10*time.Millisecond)
	if s := l.State(); s.Measuring || s.Limit < 90 {
		t.Errorf("state is %+v a minute later, want the limit of before", s)
	}
}

// Measurements are at multiples of the wall clock, also after it was set.
func TestMeasurementsFollowAClockThatIsSet(t *testing.T) {
	for _, ahead := range []time.Duration{0, 3 * time.Second, -7300 * time.Millisecond, 24 * time.Hour} {
		c := control{ahead: ahead}
		for now := int64(48 * time.Hour); now < int64(48*time.Hour+time.Minute); now += int64(777 * time.Millisecond) {
			next := c.after(now, probeEvery)
			if wall := next + int64(ahead); wall%int64(probeEvery) != 0 || next <= now || next > now+int64(probeEvery) {
				t.Fatalf("after %d is %d, which is %d of a clock that is %v ahead", now, next, wall, ahead)
			}
		}
	}
}

func TestAdoptKeepsWhatWasLearned(t *testing.T) {
	old, now := single(t, Config{Min: 5, Max: 500, Classes: threeClasses}), int64(0)
	feed(old, &now, 1000, Answered, 10*time.Millisecond)
	old.control.limit, old.control.ceiling = 300, 250
	next := single(t, Config{Min: 5, Max: 200, Classes: []Class{{Name: "other"}, {Name: "critical"}}})
	next.Adopt(old)
	s := next.State()
	if s.Limit != 200 || s.Unloaded != 10*time.Millisecond || s.Classes[1].Admitted != 1000 || s.Classes[0].Admitted != 0 ||
		next.control.ceiling != 250 {
		t.Errorf("state is %+v", s)
	}
}

// The time of the next measurement is by the old clock: the wall clock may have been set since.
func TestAdoptKeepsTheClock(t *testing.T) {
	old, next := single(t, Config{Min: 5, Max: 500}), single(t, Config{Min: 5, Max: 500})
	old.unix += int64(time.Hour)
	next.Adopt(old)
	if ahead := time.Duration(next.now() - time.Now().UnixNano()); ahead < 59*time.Minute {
		t.Errorf("the clock is %v ahead, want the hour of the limiter before", ahead)
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
