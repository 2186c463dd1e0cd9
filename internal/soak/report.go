//go:build unix

package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir/internal/faulttest"
)

// A tally sums the outcomes of one fault.
type tally struct {
	stage, fault string
	outages      []time.Duration
	sum          faulttest.Report
	broken       []string
}

// A ledger is the tallies, and the resources of the process.
type ledger struct {
	begun   time.Time
	tallies []*tally
	first   footprint // after some faults of each stage
	last    footprint // while other stages go on, like the first
	rounds  int
}

// A footprint is the resources that grow with a leak.
type footprint struct {
	heap       uint64 // bytes in use after a collection
	goroutines int
}

func measure() footprint {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return footprint{m.HeapAlloc, runtime.NumGoroutine()}
}

func (l *ledger) add(o outcome) {
	l.rounds++
	t := l.tally(o.stage, o.fault)
	r := &o.report
	t.outages = append(t.outages, r.Outage)
	t.sum.Asked += r.Asked
	t.sum.Degraded += r.Degraded
	t.sum.Late += r.Late
	t.sum.Twice += r.Twice
	t.sum.P99 = max(t.sum.P99, r.P99)
	t.sum.Max = max(t.sum.Max, r.Max)
	t.sum.Over = max(t.sum.Over, r.Over)
	t.sum.Lost = max(t.sum.Lost, r.Lost)
	if o.err != nil {
		t.broken = append(t.broken, strings.ReplaceAll(o.err.Error(), "\n", "; "))
	}
}

func (l *ledger) tally(stage, fault string) *tally {
	for _, t := range l.tallies {
		if t.stage == stage && t.fault == fault {
			return t
		}
	}
	t := &tally{stage: stage, fault: fault}
	l.tallies = append(l.tallies, t)
	return t
}

// broken counts the faults whose outcome contradicts the promises.
func (l *ledger) broken() (n int) {
	for _, t := range l.tallies {
		n += len(t.broken)
	}
	return n
}

func (l *ledger) print(w io.Writer, args string) {
	var asked, degraded, late, twice int64
	for _, t := range l.tallies {
		asked, degraded = asked+t.sum.Asked, degraded+t.sum.Degraded
		late, twice = late+t.sum.Late, twice+t.sum.Twice
	}
	fmt.Fprintf(w, "```sh\ngo run ./internal/soak %s\n```\n\n", args)
	fmt.Fprintf(w, "- %s, %s, %s/%s, %d processors; load of the machine in the end %s\n",
		time.Now().UTC().Format(time.DateOnly),
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), average())
	fmt.Fprintf(w, "- %d faults in %v; %d decisions, %d of them (%.1f%%) answered with an error\n",
		l.rounds, time.Since(l.begun).Round(time.Second), asked, degraded, 100*float64(degraded)/float64(max(asked, 1)))
	fmt.Fprintf(w, "- %d answers late, %d units charged twice, %d faults with a broken promise\n", late,
		twice, l.broken())
	fmt.Fprintf(w, "- heap %.1f MB and %d goroutines after the first faults, %.1f MB and %d after the last\n\n",
		float64(l.first.heap)/1e6, l.first.goroutines, float64(l.last.heap)/1e6, l.last.goroutines)
	l.table(w)
	for _, t := range l.tallies {
		for _, text := range t.broken {
			fmt.Fprintf(w, "\n**%s, %s**: %s\n", t.stage, t.fault, text)
		}
	}
}

func (l *ledger) table(w io.Writer) {
	fmt.Fprint(w, "| servers | fault | times | a key without decision: median | most | degraded | p99, worst | "+
		"longest answer | over-admitted, most | grants forgotten, most |\n"+
		"| --- | --- | --: | --: | --: | --: | --: | --: | --: | --: |\n")
	slices.SortStableFunc(l.tallies, func(a, b *tally) int { return strings.Compare(a.stage+a.fault, b.stage+b.fault) })
	for _, t := range l.tallies {
		slices.Sort(t.outages)
		fmt.Fprintf(w, "| %s | %s | %d | %s | %s | %.1f%% | %s | %s | %d | %d |\n", t.stage, t.fault, len(t.outages),
			milliseconds(t.outages[len(t.outages)/2]), milliseconds(t.outages[len(t.outages)-1]),
			100*float64(t.sum.Degraded)/float64(max(t.sum.Asked,
				1)), milliseconds(t.sum.P99), milliseconds(t.sum.Max), t.sum.Over, t.sum.Lost)
	}
}

func milliseconds(d time.Duration) string { return d.Round(time.Millisecond).String() }

// average is the machine's load average over one minute.
func average() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
