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

// A Report is the result of a load.
type Report struct {
	Asked, Granted, Refused int64
	Degraded                int64    // answers that were weir.ErrUnavailable
	Late                    int64    // answers slower than the control
	Wrong                   []string // impossible answers: other errors, refusals of keys with room

	Outage        time.Duration // longest time since the mark in which a key had no decision
	Back          time.Duration // of a Trial: from the repair, or else the fault, until each key was decided
	P50, P99, Max time.Duration // of answers, including errors

	// Over is the most that one key was granted beyond its limit, Bursts the same in multiples of the limit,
	// rounded up.
	Over, Bursts int64
	// Twice counts the units that Redis charged beyond the grants and the possibly charged failures. Lost
	// counts the grants that Redis has forgotten.
	Twice, Lost int64

	Failures map[string]int64 // counts by error text, with # for addresses and numbers
}

// Report is the result so far, without the fields that only Recount fills in.
func (l *Load) Report() Report {
	b := l.accounts
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
	for _, one := range b.lasting {
		r.Outage = max(r.Outage, one.gap)
	}
	return r
}

// Recount reads the remainder of each lasting key from a store, after the end of the load, and fills in Twice
// and Lost. It retries while the store is unavailable: on a busy machine a Cluster takes a slow node for dead.
func (l *Load) Recount(ctx context.Context, store weir.Store, r *Report) error {
	r.Twice, r.Lost = 0, 0
	for _, one := range l.accounts.lasting {
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

func (b *account) left(ctx context.Context, store weir.Store) (int64, error) {
	var d [1]weir.Decision
	_, err := store.Decide(ctx, []weir.Claim{{Key: b.key, Limit: b.limit, Cost: 1}}, 0, d[:])
	return d[0].Remaining, err
}

// Columns is the table head of Row.
const Columns = "| fault | asked | degraded | a key without decision | all keys again, after | p99 | " +
	"longest answer | over-admitted | forgotten |\n" +
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

// Texts lists the failures, most frequent first.
func (r *Report) Texts() string {
	var lines []string
	for text, n := range r.Failures {
		lines = append(lines, fmt.Sprintf("%9d × %s", n, text))
	}
	slices.Sort(lines)
	slices.Reverse(lines)
	return strings.Join(lines, "\n")
}
