package main

import (
	"fmt"
	"io"
	"slices"
)

// A report is everything that was measured.
type report struct {
	memoryRows, redisRows, threeRows []row
	board                            board
	broken                           map[string]string  // rows that failed the self-check
	heap                             map[string]float64 // bytes a key, less the key
	redis                            map[string]float64 // bytes a key in Redis
}

const quotas = "Granted: a burst of 1e9, then 1 a second (windows: 1e9 an hour). Refused: a burst of 1, used up, then 1 an hour."

// memoryColumns are the columns of the table of in-process decisions.
func memoryColumns() []column {
	var columns []column
	for _, refused := range []bool{false, true} {
		for _, keys := range []int{1, 1e5, million} {
			for _, goroutines := range []int{1, 2} {
				columns = append(columns, column{keys, refused, goroutines})
			}
		}
	}
	return columns
}

func (r *report) printMemory(w io.Writer) {
	fmt.Fprintf(w, "## In-process decisions\n\n"+
		"ns a decision (wall time by the decisions of all goroutines), and its ratio to %s. %s\n"+
		"Keys are texts of 21 bytes, asked in another order than they were entered in. Allocations are the most of all columns.\n"+
		"Bytes a key: growth of the heap after a collection when 1e6 keys were charged once, less the 21 bytes of the key's text,\n"+
		"which only the limiter still held. A row that keeps a hash instead of the text is credited with the text all the same.\n"+
		"The garbage collector runs between rounds, not within.\n\n", xtimeName, quotas)
	t := table{head: []string{"row"}}
	for _, c := range memoryColumns() {
		t.head = append(t.head, fmt.Sprintf("%s, %s, %dg", c.outcome(), c.keyset(), c.goroutines))
	}
	t.head = append(t.head, "allocs", "bytes a key")
	for _, row := range r.memoryRows {
		t.add(r.memoryLine(row)...)
	}
	t.print(w)
	r.printNotes(w, r.memoryRows)
}

func (r *report) memoryLine(row row) []string {
	cells := []string{row.name}
	allocs := 0.0
	for _, c := range memoryColumns() {
		f, ok := r.board.get(row.name, c)
		if !ok {
			cells = append(cells, r.without(row.name, c))
			continue
		}
		allocs = max(allocs, median(f.allocs))
		cells = append(cells, fmt.Sprintf("%s (%s)", short(f.nanoseconds()), ratioText(r.faster(xtimeName, row.name, c))))
	}
	weight := "-"
	if bytes, ok := r.heap[row.name]; ok {
		weight = fmt.Sprintf("%.0f", bytes)
	}
	return append(cells, fmt.Sprintf("%.1f", allocs), weight)
}

// without is what stands in for a figure.
func (r *report) without(name string, c column) string {
	if r.board[name][c].broken != "" {
		return "broken"
	}
	return "-"
}

func (r *report) printRedis(w io.Writer) {
	fmt.Fprintf(w, "## Redis decisions\n\n"+
		"Names of 18 bytes. CPU is that of Redis, user and system, by INFO. Ratios are to %s and, the last, to \"%s\".\n"+
		"p50 and p99 are at most 6 %% too high. Allocations are the whole client's. Clients have their defaults.\n%s\n\n", redisRateName, shortestName, quotas)
	for _, keys := range []int{tenThousand, 1} {
		for _, refused := range []bool{false, true} {
			r.printScene(w, r.redisRows, column{keys: keys, refused: refused}, crowds, redisRateName, shortestName)
		}
	}
	r.printNotes(w, r.redisRows)
}

func (r *report) printThree(w io.Writer) {
	fmt.Fprintf(w, "## Three limits of one request\n\nA decision is of all three. Ratios are to \"%s\" and, the last, to \"%s\".\n\n", threePipelinedName, mixedPipelinedName)
	for _, refused := range []bool{false, true} {
		r.printScene(w, r.threeRows, column{keys: tenThousand, refused: refused}, []int{crowd}, threePipelinedName, mixedPipelinedName)
	}
	r.printNotes(w, r.threeRows)
}

// printScene is one table: rows under each number of goroutines.
func (r *report) printScene(w io.Writer, rows []row, c column, goroutines []int, reference, second string) {
	if c.refused {
		rows = refusing(rows)
	}
	t := table{head: []string{c.keyset() + ", " + c.outcome(), "goroutines", "decisions/s", "ratio", "p50 us", "p99 us",
		"Redis CPU us", "ratio", "second ratio", "allocs"}}
	for _, n := range goroutines {
		c.goroutines = n
		for _, row := range rows {
			t.add(r.redisLine(row, c, reference, second)...)
		}
	}
	t.print(w)
}

func (r *report) redisLine(row row, c column, reference, second string) []string {
	cells := []string{row.name, fmt.Sprint(c.goroutines)}
	f, ok := r.board.get(row.name, c)
	if !ok {
		return append(cells, r.without(row.name, c), "", "", "", "", "", "", "")
	}
	return append(cells, fmt.Sprintf("%.0f", f.rate()), ratioText(r.faster(row.name, reference, c)),
		micros(float64(f.p50)), micros(float64(f.p99)), micros(median(f.cpu)),
		ratioText(r.costlier(row.name, reference, c)), ratioText(r.costlier(row.name, second, c)), fmt.Sprintf("%.1f", median(f.allocs)))
}

func micros(ns float64) string { return short(ns / 1e3) }

// short is a number in three digits, or in as many as it has before the point.
func short(x float64) string {
	if x >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// faster is the ratio of two rows' decisions a second; 0 where one is missing.
func (r *report) faster(name, reference string, c column) float64 {
	a, ok := r.board.get(name, c)
	b, there := r.board.get(reference, c)
	if !ok || !there {
		return 0
	}
	return paired(a.perSecond, b.perSecond)
}

// costlier is the ratio of two rows' Redis CPU a decision; 0 where one is missing.
func (r *report) costlier(name, reference string, c column) float64 {
	a, ok := r.board.get(name, c)
	b, there := r.board.get(reference, c)
	if !ok || !there {
		return 0
	}
	return paired(a.cpu, b.cpu)
}

func ratioText(ratio float64) string {
	if ratio == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f×", ratio)
}

func (r *report) printFootprints(w io.Writer, all []footprint) {
	fmt.Fprint(w, "## Redis memory\n\nGrowth of used_memory (less clients' buffers) a key; names of 18 bytes, each under its limiter's own prefix; a time-to-live set.\n\n")
	t := table{head: []string{"state", "keys", "bytes a key"}}
	for _, f := range all {
		t.add(f.name, fmt.Sprint(f.keys), fmt.Sprintf("%.0f", r.redis[f.name]))
	}
	t.print(w)
}

// printNotes says why there is no figure, and who answered with errors.
func (r *report) printNotes(w io.Writer, rows []row) {
	var notes []string
	for _, row := range rows {
		if why := r.broken[row.name]; why != "" {
			notes = append(notes, fmt.Sprintf("- %s is broken: self-check: %s", row.name, why))
			continue
		}
		for c, f := range r.board[row.name] {
			where := fmt.Sprintf("- %s, %s, %s, %d goroutines: ", row.name, c.keyset(), c.outcome(), c.goroutines)
			if f.broken != "" {
				notes = append(notes, where+"broken: "+f.broken)
			} else if f.failed > 0 {
				notes = append(notes, where+fmt.Sprintf("%d of %d answers were errors", f.failed, f.asked))
			}
		}
	}
	slices.Sort(notes)
	for _, note := range notes {
		fmt.Fprintln(w, note)
	}
	if len(notes) > 0 {
		fmt.Fprintln(w)
	}
}
