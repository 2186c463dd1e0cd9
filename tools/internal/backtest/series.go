package backtest

import (
	"time"
)

const maxSteps = 600 // of a timeline

// steps are the lengths of a timeline's steps, in seconds. Each divides the next one.
var steps = []int64{1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10800, 21600, 43200, 86400, 7 * 86400, 28 * 86400,
	280 * 86400, 2800 * 86400, 28000 * 86400, 280000 * 86400}

// A timeline counts by steps of time, which become longer as the log does. All rows have the same steps.
type timeline struct {
	step  int // of steps
	start int64
	rows  [][]int64
}

func newTimeline(rows int) *timeline { return &timeline{rows: make([][]int64, rows)} }

// at is the step of an instant in microseconds. Instants do not go back.
func (t *timeline) at(instant int64) int {
	s := floorDiv(instant, second)
	if t.rows[0] == nil {
		t.start = s
		t.rows[0] = []int64{0}
	}
	for {
		i := int((s - t.start) / steps[t.step])
		if i < maxSteps || t.step == len(steps)-1 {
			return min(i, maxSteps-1)
		}
		t.coarsen()
	}
}

// coarsen takes the next longer step; the steps are multiples of it then.
func (t *timeline) coarsen() {
	old, length := steps[t.step], steps[t.step+1]
	start := floorDiv(t.start, length) * length
	for r, row := range t.rows {
		var merged []int64
		for i, n := range row {
			if n != 0 {
				merged = grown(merged, int((t.start+int64(i)*old-start)/length))
				merged[(t.start+int64(i)*old-start)/length] += n
			}
		}
		t.rows[r] = merged
	}
	if t.rows[0] == nil {
		t.rows[0] = []int64{0}
	}
	t.step, t.start = t.step+1, start
}

// grown is a row that has a place i.
func grown(row []int64, i int) []int64 {
	for len(row) <= i {
		row = append(row, 0)
	}
	return row
}

func (t *timeline) add(row, i int) {
	t.rows[row] = grown(t.rows[row], i)
	t.rows[row][i]++
}

// length is the number of steps.
func (t *timeline) length() (n int) {
	for _, row := range t.rows {
		n = max(n, len(row))
	}
	return n
}

// row is a row in the full length.
func (t *timeline) row(r, length int) []int64 {
	return append(make([]int64, 0, length), grown(t.rows[r], length-1)...)[:length]
}

func (t *timeline) stepText() string { return (time.Duration(steps[t.step]) * time.Second).String() }

// busiest finds the unit of time, such as a minute, with the most events.
type busiest struct {
	unit, count    int64
	peakUnit, peak int64
}

// add counts an event. Instants do not go back.
func (b *busiest) add(at, length int64) {
	if u := floorDiv(at, length); u != b.unit {
		b.unit, b.count = u, 0
	}
	if b.count++; b.count > b.peak {
		b.peak, b.peakUnit = b.count, b.unit
	}
}
