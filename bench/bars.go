package main

import (
	"fmt"
	"io"
)

// A bar is what weir promises of itself, and what came of it.
type bar struct {
	what     string
	measured string
	ratio    float64 // what is held against the bound; 0 with missing set
	bound    float64
	atLeast  bool // else at most
	strict   bool // the bound itself is not enough
	missing  bool
}

func (b *bar) met() string {
	switch {
	case b.missing:
		return "not measured"
	case b.atLeast && b.ratio >= b.bound, !b.atLeast && b.ratio < b.bound, !b.atLeast && !b.strict && b.ratio == b.bound:
		return "met"
	}
	return "**not met**"
}

func (b *bar) needed() string {
	switch {
	case b.atLeast:
		return fmt.Sprintf("≥ %.4g", b.bound)
	case b.strict:
		return fmt.Sprintf("< %.4g", b.bound)
	}
	return fmt.Sprintf("≤ %.4g", b.bound)
}

func printBars(w io.Writer, bars []bar) {
	if len(bars) == 0 {
		return
	}
	fmt.Fprint(w, "## Bars\n\n")
	t := table{head: []string{"bar", "measured", "ratio", "needed", ""}}
	for _, b := range bars {
		ratio := fmt.Sprintf("%.3g", b.ratio)
		if b.missing {
			ratio = "-"
		}
		t.add(b.what, b.measured, ratio, b.needed(), b.met())
	}
	t.print(w)
	fmt.Fprint(w, "The time of the whole CI is a bar too; it is not measured here.\n")
}

func (r *report) memoryBars() []bar {
	return []bar{
		r.fastest(),
		r.worst("hot key against "+xtimeName, 0.7, func(c column) bool { return c.keys == 1 }),
		r.worst("1e6 keys against "+xtimeName, 0.5, func(c column) bool { return c.keys == million }),
		r.flat(),
		r.scaling(),
		r.weight(),
		r.allocations(),
	}
}

// fastest holds weir against the best peer of each column; its ratio is the worst of them.
func (r *report) fastest() bar {
	b := bar{what: "embedded: faster than every peer in every column", bound: 1, strict: true}
	for _, c := range memoryColumns() {
		b.against(r, r.best(c), c)
	}
	return b
}

// worst is weir's largest ratio to x/time/rate in some columns.
func (r *report) worst(what string, bound float64, of func(column) bool) bar {
	b := bar{what: "embedded: " + what, bound: bound}
	for _, c := range memoryColumns() {
		if of(c) {
			b.against(r, xtimeName, c)
		}
	}
	return b
}

// flat is weir's largest ratio to the least table there can be, with many keys.
func (r *report) flat() bar {
	b := bar{what: "embedded: 1e5 and 1e6 keys against a " + flatName, bound: 1.4}
	for _, c := range memoryColumns() {
		if c.keys > 1 {
			b.against(r, flatName, c)
		}
	}
	return b
}

// against raises the ratio to weir's time by a peer's in one column, if it is larger.
func (b *bar) against(r *report, peer string, c column) {
	ratio := r.faster(peer, weirName, c)
	if ratio == 0 {
		b.missing = true
	}
	if ratio > b.ratio {
		mine, _ := r.board.get(weirName, c)
		other, _ := r.board.get(peer, c)
		b.ratio = ratio
		b.measured = fmt.Sprintf("worst column: %s: %s ns, %s %s ns", describe(c), short(mine.nanoseconds()), peer, short(other.nanoseconds()))
	}
}

func describe(c column) string {
	return fmt.Sprintf("%s, %s, %dg", c.outcome(), c.keyset(), c.goroutines)
}

// best is the fastest row of a column that is neither weir's nor a floor.
func (r *report) best(c column) (name string) {
	most := 0.0
	for _, row := range r.memoryRows[len(weirMemoryRows()):] {
		f, ok := r.board.get(row.name, c)
		if ok && !row.floor && row.name != flatName && f.rate() > most {
			most, name = f.rate(), row.name
		}
	}
	return name
}

// scaling holds what a second goroutine adds to refusals of one key against what it adds
// to a noop: that is what the machine's second core is worth.
func (r *report) scaling() bar {
	weir, noop := r.speedup(weirName), r.speedup(noopRow().name)
	b := bar{what: "embedded: refusals of one hot key scale with cores (two goroutines by one, against a noop's)", bound: 0.8, atLeast: true}
	if b.missing = weir == 0 || noop == 0; !b.missing {
		b.ratio, b.measured = weir/noop, fmt.Sprintf("%.2f times as many, noop %.2f times", weir, noop)
	}
	return b
}

func (r *report) speedup(row string) float64 {
	alone, _ := r.board.get(row, column{1, true, 1})
	both, _ := r.board.get(row, column{1, true, 2})
	return paired(both.perSecond, alone.perSecond)
}

func (r *report) weight() bar {
	bytes, ok := r.heap[weirName]
	return bar{what: "embedded: bytes a live key beside its text, at 1e6 keys", measured: fmt.Sprintf("%.1f bytes", bytes), ratio: bytes, bound: 64, missing: !ok}
}

// allocations is the most that any of weir's rows allocates in any column. A slice includes the crew's own
// allocations, so a hundredth is none.
func (r *report) allocations() bar {
	b := bar{what: "embedded: allocations a decision, granted and refused, one and three claims", bound: 0.01, measured: "none in any column"}
	for _, row := range weirMemoryRows() {
		for _, c := range memoryColumns() {
			f, ok := r.board.get(row.name, c)
			b.missing = b.missing || !ok
			allocs := median(f.allocs)
			if allocs > max(b.ratio, b.bound) {
				b.measured = fmt.Sprintf("%s: %s: %.2f", row.name, describe(c), allocs)
			}
			b.ratio = max(b.ratio, allocs)
		}
	}
	return b
}

func (r *report) redisBars() []bar {
	c := column{tenThousand, false, crowd}
	return []bar{
		r.throughput(c),
		r.cpuBar("Redis CPU a decision, 10k keys, 128 goroutines, against redis_rate", weirRedisName, redisRateName, c, 0.65),
		r.cpuBar("Redis CPU a decision, 10k keys, 128 goroutines, against the shortest script", weirRedisName, shortestName, c, 1.25),
		r.cpuBar("three limits of one request: Redis CPU against three EVALSHA in a pipeline", threeTogetherName, threePipelinedName, c, 0.8),
		r.bytesBar("Redis memory: a token bucket key against redis_rate's", bucketFootprint, redisRateFootprint, 1),
		r.bytesBar("Redis memory: a sliding log of 100 against the ZSET with UUIDs", logFootprint, zsetFootprint, 0.25),
		r.bytesBar("Redis memory: a counter of 60 slices against a HASH of 60", counterFootprint, hashFootprint, 1),
	}
}

func (r *report) throughput(c column) bar {
	weir, _ := r.board.get(weirRedisName, c)
	other, _ := r.board.get(redisRateName, c)
	ratio := r.faster(weirRedisName, redisRateName, c)
	return bar{what: "Redis: decisions/s, 10k keys, 128 goroutines, against redis_rate", ratio: ratio, bound: 2, atLeast: true, missing: ratio == 0,
		measured: fmt.Sprintf("%.0f/s against %.0f/s", weir.rate(), other.rate())}
}

func (r *report) cpuBar(what, name, reference string, c column, bound float64) bar {
	a, _ := r.board.get(name, c)
	b, _ := r.board.get(reference, c)
	ratio := r.costlier(name, reference, c)
	return bar{what: what, ratio: ratio, bound: bound, missing: ratio == 0, measured: fmt.Sprintf("%s us against %s us", micros(median(a.cpu)), micros(median(b.cpu)))}
}

func (r *report) bytesBar(what, name, reference string, bound float64) bar {
	a, b := r.redis[name], r.redis[reference]
	return bar{what: what, ratio: a / max(b, 1), bound: bound, missing: a == 0 || b == 0, measured: fmt.Sprintf("%.0f bytes against %.0f", a, b)}
}
