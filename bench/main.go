// Command bench measures weir beside other limiters, in one run on one machine, and
// prints Markdown: a table of decisions in the process, tables of decisions in Redis, and
// what came of each bar that weir sets itself.
//
// Before a row is measured it is checked that it limits: it must grant what it should and
// refuse the rest. A row that does not, or that answers otherwise while it is measured,
// prints as broken.
//
// It starts a redis-server of its own, unless -redis names one; that must be empty, and
// is flushed.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"time"
)

func main() {
	quick := flag.Bool("quick", false, "about a minute, with more noise, instead of about five")
	only := flag.String("only", "", "measure one part: memory, algorithms, redis, redisalgorithms, layers, outage or resp")
	url := flag.String("redis", "", "URL of an empty Redis to use (it is flushed); default: start one")
	flag.Parse()
	if flag.NArg() > 0 || !slices.Contains([]string{"", "memory", "algorithms", "redis", "redisalgorithms", "layers", "outage", "resp"}, *only) {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(os.Stdout, os.Stderr, planned(*quick), *only, *url); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// A plan is how long a run takes.
type plan struct {
	rounds, redisRounds int
	slice, redisSlice   time.Duration
	thousands           int // of keys, for large states in Redis
	respRounds          int
	respRequests        int // of redis-benchmark a round
}

func planned(quick bool) plan {
	if quick {
		return plan{5, 5, 12 * time.Millisecond, 25 * time.Millisecond, 1, 3, 200_000}
	}
	return plan{9, 9, 30 * time.Millisecond, 140 * time.Millisecond, 2, 5, 1_000_000}
}

func (p plan) String() string {
	return fmt.Sprintf("in-process: %d rounds of %v; Redis: %d rounds of %v", p.rounds, p.slice, p.redisRounds, p.redisSlice)
}

func run(out, log io.Writer, p plan, only, url string) (err error) {
	quiet()
	var s *server
	if only != "memory" && only != "algorithms" {
		if s, err = open(url); err != nil {
			return err
		}
		defer s.stop()
		s.stopOnSignal()
	}
	c := newCrew(slices.Max(crowds))
	defer c.stop()
	r := &report{board: board{}, broken: map[string]string{}}
	printMachine(out, s, p.String())
	var bars []bar
	if only == "" || only == "memory" {
		r.measureMemory(&stage{crew: c, rounds: p.rounds, slice: p.slice, broken: r.broken, board: r.board, log: log})
		r.printMemory(out)
		bars = r.memoryBars()
	}
	if only == "" || only == "algorithms" {
		bars = append(bars, overAlgorithms(out, &stage{crew: c, rounds: p.rounds, slice: p.slice, broken: r.broken, board: r.board, log: log})...)
	}
	if only == "" || only == "redis" {
		st := &stage{crew: c, rounds: p.redisRounds, slice: p.redisSlice, timed: true, used: s.usage, broken: r.broken, board: r.board, log: log}
		if err := r.measureRedis(out, st, s, p.thousands); err != nil {
			return err
		}
		bars = append(bars, r.redisBars()...)
	}
	if only == "" || only == "redisalgorithms" {
		st := &stage{crew: c, rounds: p.redisRounds, slice: p.redisSlice, used: s.usage, broken: r.broken, board: r.board, log: log}
		if err := overRedisAlgorithms(out, st, s); err != nil {
			return err
		}
	}
	if only == "" || only == "layers" {
		l, err := overLayers(out, stage{crew: c, rounds: p.redisRounds, slice: p.redisSlice, timed: true, used: s.usage, log: log}, s)
		if err != nil {
			return err
		}
		bars = append(bars, l.bars()...)
	}
	if only == "" || only == "outage" {
		some, err := overOutage(out, s)
		if err != nil {
			return err
		}
		bars = append(bars, some...)
	}
	if only == "" || only == "resp" {
		b, err := overRESP(out, s, p.respRounds, p.respRequests)
		if err != nil {
			return err
		}
		bars = append(bars, b)
	}
	printBars(out, bars)
	return nil
}

func open(url string) (*server, error) {
	if url != "" {
		return connect(url)
	}
	return startServer()
}

func (r *report) measureMemory(st *stage) {
	// Off while slices run; collect stands in for it between rounds.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	r.memoryRows = memoryRows()
	st.check(r.memoryRows)
	r.heap = weigh(st, r.memoryRows, million)
	inProcess(st, r.memoryRows)
}

func (r *report) measureRedis(out io.Writer, st *stage, s *server, thousands int) (err error) {
	r.redisRows, r.threeRows = redisRows(s), threeRows(s)
	st.check(r.redisRows)
	st.check(r.threeRows)
	if err := overRedis(st, s, r.redisRows); err != nil {
		return err
	}
	r.printRedis(out)
	if err := overThree(st, s, r.threeRows); err != nil {
		return err
	}
	r.printThree(out)
	all := footprints(s, thousands)
	if r.redis, err = weighRedis(s, all); err != nil {
		return err
	}
	r.printFootprints(out, all)
	return nil
}
