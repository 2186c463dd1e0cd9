package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A column says how the rows are asked.
type column struct {
	keys       int
	refused    bool
	goroutines int
}

func (c column) outcome() string {
	if c.refused {
		return "refused"
	}
	return "granted"
}

func (c column) keyset() string {
	switch {
	case c.keys == 1:
		return "hot key"
	case c.keys >= 1e5:
		return strings.Replace(fmt.Sprintf("%.0e keys", float64(c.keys)), "e+0", "e", 1)
	default:
		return strconv.Itoa(c.keys/1000) + "k keys"
	}
}

// A figure is what came of a row's slices in one column, a round each.
type figure struct {
	perSecond []float64 // decisions of all goroutines
	allocs    []float64 // a decision
	cpu       []float64 // of Redis, nanoseconds a decision
	calls     []float64 // of scripts in Redis, a decision
	p50, p99  time.Duration
	failed    int64 // answers that were errors
	asked     int64
	broken    string // why there is no figure
}

// rate is decisions a second.
func (f figure) rate() float64 { return median(f.perSecond) }

// nanoseconds is the wall time a decision.
func (f figure) nanoseconds() float64 { return 1e9 / f.rate() }

// paired is the median of the ratios within each round: what hit one slice of a round hit
// its neighbours too. It is 0 where there is nothing to compare.
func paired(a, b []float64) float64 {
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if b[i] > 0 {
			ratios = append(ratios, a[i]/b[i])
		}
	}
	return median(ratios)
}

// A board holds the figures: row by name, then column.
type board map[string]map[column]figure

func (b board) put(row string, c column, f figure) {
	if b[row] == nil {
		b[row] = map[column]figure{}
	}
	b[row][c] = f
}

// get is a figure, and whether there is one.
func (b board) get(row string, c column) (figure, bool) {
	f, ok := b[row][c]
	return f, ok && f.broken == "" && f.rate() > 0
}

// A stage measures rows side by side: in each round every row has a short slice, so that
// whatever else the machine does hits all of them alike.
type stage struct {
	crew   *crew
	rounds int
	slice  time.Duration
	timed  bool                  // take the time of each question
	used   func() (usage, error) // of Redis so far; nil: there is none
	broken map[string]string     // rows that failed the self-check, and why
	board  board
	log    io.Writer
	live   uint64 // bytes of heap after the last collection
}

// An actor is a row on the stage.
type actor struct {
	row      row
	peer     Peer
	stations map[int][]*station // by the number of goroutines
	slices   map[int][]slicePart
}

type slicePart struct {
	tally tally
	usage
}

// usage is what Redis did.
type usage struct {
	cpu   time.Duration
	calls int64 // of scripts
}

// check runs the self-check of every row and remembers who failed.
func (s *stage) check(rows []row) {
	for _, r := range rows {
		if err := check(r); err != nil {
			s.broken[r.name] = err.Error()
			fmt.Fprintf(s.log, "bench: %s is broken: %v\n", r.name, err)
		}
	}
}

// A scene is rows that are asked for the same names, all granted or all refused.
type scene struct {
	rows       []row
	entering   *names // in the order in which they are entered
	asking     *names // the same, in the order in which they are asked
	refused    bool
	goroutines []int
	// enter asks a new peer once for every name, so that all keys are there (and, of
	// quota single, exhausted).
	enter func(Peer, *names) error
}

func (sc *scene) quota() Quota {
	if sc.refused {
		return single
	}
	return generous
}

func (sc *scene) column(goroutines int) column {
	return column{sc.entering.n, sc.refused, goroutines}
}

func (s *stage) play(sc scene) {
	fmt.Fprintf(s.log, "bench: %s, %s\n", sc.column(0).keyset(), sc.column(0).outcome())
	var actors []*actor
	for _, r := range sc.rows {
		a, err := s.open(r, &sc)
		if err != nil {
			s.fail(r, &sc, err.Error())
			continue
		}
		defer a.peer.Close()
		actors = append(actors, a)
		s.collect()
	}
	for round := range s.rounds {
		for _, n := range sc.goroutines {
			// Each round begins with another row: nobody always follows the same one.
			for i := range actors {
				s.perform(actors[(i+round)%len(actors)], n, sc.asking)
			}
		}
		s.collect()
	}
	for _, a := range actors {
		for _, n := range sc.goroutines {
			s.board.put(a.row.name, sc.column(n), a.figure(n, sc.refused))
		}
	}
}

func (s *stage) fail(r row, sc *scene, why string) {
	for _, n := range sc.goroutines {
		s.board.put(r.name, sc.column(n), figure{broken: why})
	}
}

func (s *stage) open(r row, sc *scene) (*actor, error) {
	if why := s.broken[r.name]; why != "" {
		return nil, fmt.Errorf("%s", why)
	}
	p, err := r.open(sc.quota())
	if err != nil {
		return nil, err
	}
	if err := sc.enter(p, sc.entering); err != nil {
		p.Close()
		return nil, err
	}
	a := &actor{row: r, peer: p, stations: map[int][]*station{}, slices: map[int][]slicePart{}}
	for _, n := range sc.goroutines {
		a.stations[n] = stations(p, n, sc.asking)
	}
	return a, nil
}

func (s *stage) perform(a *actor, goroutines int, names *names) {
	before, _ := s.usage()
	t := s.crew.run(a.stations[goroutines], names, s.slice, s.timed)
	after, err := s.usage()
	if err != nil {
		t.failed, t.firstError = t.failed+1, err
	}
	a.slices[goroutines] = append(a.slices[goroutines], slicePart{t, usage{after.cpu - before.cpu, after.calls - before.calls}})
}

func (s *stage) usage() (usage, error) {
	if s.used == nil {
		return usage{}, nil
	}
	return s.used()
}

// figure is what the slices came to, or why they are none: a row must have done what the
// column is about.
func (a *actor) figure(goroutines int, refused bool) figure {
	var f figure
	var total tally
	for _, part := range a.slices[goroutines] {
		total.add(&part.tally)
		n := float64(part.tally.asked())
		f.perSecond = append(f.perSecond, n/part.tally.elapsed.Seconds())
		f.allocs = append(f.allocs, float64(part.tally.mallocs)/n)
		f.cpu = append(f.cpu, float64(part.cpu)/n)
		f.calls = append(f.calls, float64(part.calls)/n)
	}
	f.failed, f.asked = total.failed, total.asked()
	if total.latency != nil {
		f.p50, f.p99 = total.latency.percentile(0.5), total.latency.percentile(0.99)
	}
	if !a.row.floor {
		f.broken = total.against(refused)
	}
	return f
}

// against says what is wrong with answers that should all be granted, or all refused.
// A thousandth may differ: a slow limiter's own refill.
func (t *tally) against(refused bool) string {
	wrong, what := t.refused, "refused"
	if refused {
		wrong, what = t.granted, "granted"
	}
	switch {
	case t.asked() == 0:
		return "no answer"
	case t.failed*100 > t.asked():
		return fmt.Sprintf("%d of %d answers were errors: %v", t.failed, t.asked(), t.firstError)
	case wrong*1000 > t.asked():
		return fmt.Sprintf("%s %d of %d", what, wrong, t.asked())
	}
	return ""
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// garbage is how much may lie about before it is collected between two rounds.
const garbage = 1 << 30

// collect stands in for the garbage collector, which is off while slices run: it would
// mark the keys of all rows in the slice of one.
func (s *stage) collect() {
	if allocated() < s.live+garbage {
		return
	}
	runtime.GC()
	s.live = allocated()
}

func allocated() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
