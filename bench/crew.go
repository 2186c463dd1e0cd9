package main

import (
	"runtime"
	"sync"
	"time"
)

// A crew is goroutines that live as long as the run, so that no measurement pays for
// starting one.
type crew struct {
	members []chan task
}

type task struct {
	station *station
	names   *names
	until   time.Time
	timed   bool
	tally   *tally
	done    *sync.WaitGroup
}

// A station is where one goroutine asks one row: it goes on where it stopped.
type station struct {
	ask   Asker
	next  int
	batch int // questions between two looks at the clock
}

// A tally is what came of the questions of one slice.
type tally struct {
	granted, refused, failed int64
	firstError               error
	elapsed                  time.Duration
	mallocs                  uint64
	latency                  *histogram // nil: not timed one by one
}

func (t *tally) asked() int64 { return t.granted + t.refused + t.failed }

func newCrew(n int) *crew {
	c := &crew{}
	for range n {
		tasks := make(chan task, 1)
		c.members = append(c.members, tasks)
		go serve(tasks)
	}
	return c
}

// stop ends the goroutines.
func (c *crew) stop() {
	for _, tasks := range c.members {
		close(tasks)
	}
}

func serve(tasks chan task) {
	for t := range tasks {
		if t.timed {
			t.station.timed(t.names, t.until, t.tally)
		} else {
			t.station.rush(t.names, t.until, t.tally)
		}
		t.done.Done()
	}
}

// run lets one goroutine a station ask for the length of a slice, all at once.
func (c *crew) run(stations []*station, names *names, slice time.Duration, timed bool) tally {
	tallies := make([]tally, len(stations))
	var done sync.WaitGroup
	done.Add(len(stations))
	if timed {
		for i := range tallies {
			tallies[i].latency = new(histogram)
		}
	}
	before := mallocs()
	start := time.Now()
	for i, s := range stations {
		c.members[i] <- task{s, names, start.Add(slice), timed, &tallies[i], &done}
	}
	done.Wait()
	total := tally{elapsed: time.Since(start), mallocs: mallocs() - before}
	for i := range tallies {
		total.add(&tallies[i])
	}
	return total
}

func mallocs() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.Mallocs
}

func (t *tally) add(other *tally) {
	t.granted += other.granted
	t.refused += other.refused
	t.failed += other.failed
	if t.firstError == nil {
		t.firstError = other.firstError
	}
	if other.latency != nil {
		if t.latency == nil {
			t.latency = new(histogram)
		}
		t.latency.merge(other.latency)
	}
}

func (t *tally) count(granted bool, err error) {
	switch {
	case err != nil:
		t.failed++
		if t.firstError == nil {
			t.firstError = err
		}
	case granted:
		t.granted++
	default:
		t.refused++
	}
}

const (
	// most is how many questions rush asks at most between two looks at the clock.
	most = 128
	// moment is what that may take: slow questions have the clock looked at after each.
	moment = time.Millisecond
)

// rush asks as fast as it can. It counts apart and adds once, so that goroutines do not
// share a cache line of counters.
func (s *station) rush(names *names, until time.Time, out *tally) {
	var t tally
	i := s.next
	for began := time.Now(); began.Before(until); {
		for range max(1, s.batch) {
			granted, err := s.ask(names.at(i))
			t.count(granted, err)
			if i++; i == names.n {
				i = 0
			}
		}
		now := time.Now()
		if now.Sub(began) < moment {
			s.batch = min(most, 2*max(1, s.batch))
		} else {
			s.batch /= 2
		}
		began = now
	}
	s.next = i
	out.add(&t)
}

// timed takes the time of every question.
func (s *station) timed(names *names, until time.Time, out *tally) {
	for start := time.Now(); start.Before(until); {
		granted, err := s.ask(names.at(s.next))
		end := time.Now()
		out.latency.record(end.Sub(start))
		out.count(granted, err)
		if s.next++; s.next == names.n {
			s.next = 0
		}
		start = end
	}
}

// stations are n of a peer, spread evenly over the names.
func stations(p Peer, n int, names *names) []*station {
	all := make([]*station, n)
	for i := range all {
		all[i] = &station{ask: p.Asker(), next: i * names.n / n}
	}
	return all
}

// pass asks once for every name, with many goroutines.
func pass(p Peer, names *names, goroutines int) tally {
	tallies := make([]tally, goroutines)
	var done sync.WaitGroup
	for g := range goroutines {
		done.Go(func() {
			ask := p.Asker()
			for i := g; i < names.n; i += goroutines {
				granted, err := ask(names.at(i))
				tallies[g].count(granted, err)
			}
		})
	}
	done.Wait()
	var total tally
	for i := range tallies {
		total.add(&tallies[i])
	}
	return total
}
