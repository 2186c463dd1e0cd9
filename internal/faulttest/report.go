package faulttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir"
)

// A Report is what came of a load.
type Report struct {
	Asked, Granted, Refused int64
	Degraded                int64    // answers that were weir.ErrUnavailable
	Late                    int64    // answers that came too late, beside a control
	Wrong                   []string // answers that may not be: other errors, refusals of keys with room

	Outage        time.Duration // the longest that a key had no decision since the mark
	Back          time.Duration // of a Trial: from its mending, or else from the fault, until each key was decided
	P50, P99, Max time.Duration // of answers, errors among them

	// Over is the most that was granted of one key beyond its limit, Bursts how many more of
	// its limit that is, rounded up.
	Over, Bursts int64
	// Twice is how many units too many Redis counted: more than were granted and than may
	// have been charged by what failed. Lost is how many grants it has forgotten.
	Twice, Lost int64

	Failures map[string]int64 // texts of errors and how often; addresses and numbers are #
}

// Report is what came of it until now, without what only a recount shows.
func (l *Load) Report() Report {
	b := l.books
	b.mu.Lock()
	defer b.mu.Unlock()
	r := Report{
		Asked: b.asked, Granted: b.granted, Refused: b.refused, Degraded: b.failed,
		Late: l.late.Load(), Wrong: slices.Clone(b.wrong), Failures: make(map[string]int64),
		P50: b.times.quantile(0.5), P99: b.times.quantile(0.99), Max: b.times.longest,
	}
	for text, n := range b.failures {
		r.Failures[text] = n
	}
	for _, one := range b.all {
		over, limit := max(0, one.granted-one.limit.Capacity()), one.limit.Capacity()
		r.Over, r.Bursts = max(r.Over, over), max(r.Bursts, (over+limit-1)/limit)
	}
	for _, one := range b.lasting() {
		r.Outage = max(r.Outage, one.gap)
	}
	return r
}

// Recount asks a store, after the end of the load, what is left of each lasting key, and
// fills in Twice and Lost. While the store cannot say it is asked again: on a busy machine a
// Cluster takes a node for dead that is only late.
func (l *Load) Recount(ctx context.Context, store weir.Store, r *Report) error {
	r.Twice, r.Lost = 0, 0
	for _, one := range l.books.lasting() {
		left, err := one.left(ctx, store)
		for begun := time.Now(); errors.Is(err, weir.ErrUnavailable) && time.Since(begun) < await; time.Sleep(often) {
			left, err = one.left(ctx, store)
		}
		if err != nil {
			return fmt.Errorf("recount %s: %w", one.key, err)
		}
		used := one.limit.Capacity() - left
		r.Twice += max(0, used-one.granted-one.unknown)
		r.Lost += max(0, one.granted-used)
	}
	return nil
}

func (b *book) left(ctx context.Context, store weir.Store) (int64, error) {
	var d [1]weir.Decision
	_, err := store.Decide(ctx, []weir.Claim{{Key: b.key, Limit: b.limit, Cost: 1}}, 0, d[:])
	return d[0].Remaining, err
}

// Columns are the heading of what Row prints.
const Columns = "| fault | asked | degraded | a key without decision | all keys again, after | p99 | longest answer | over-admitted | forgotten |\n" +
	"| --- | --: | --: | --: | --: | --: | --: | --: | --: |"

// Row is the report as a line of a table.
func (r *Report) Row(fault string) string {
	return fmt.Sprintf("| %s | %d | %d | %s | %s | %s | %s | %d | %d |", fault, r.Asked, r.Degraded,
		short(r.Outage), short(r.Back), short(r.P99), short(r.Max), r.Over, r.Lost)
}

// short prints three digits.
func short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}

// Texts are the failures, most frequent first.
func (r *Report) Texts() string {
	var lines []string
	for text, n := range r.Failures {
		lines = append(lines, fmt.Sprintf("%9d × %s", n, text))
	}
	slices.Sort(lines)
	slices.Reverse(lines)
	return strings.Join(lines, "\n")
}
