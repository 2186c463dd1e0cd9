package main

import (
	"fmt"
	"runtime"
	"strings"
)

const million = 1_000_000

// memoryRows are all rows of the table of in-process decisions.
func memoryRows() []row {
	return append(weirMemoryRows(), xtimeRow(), throttledRow(), ululeRow(), goLimiterRow(), httprateRow(), flatRow(), noopRow())
}

// inProcess measures decisions in this process.
func inProcess(s *stage, rows []row) {
	for _, keys := range []int{1, 1e5, million} {
		entering, asking := newNames("ip:", keys), shuffledNames("ip:", keys)
		for _, refused := range []bool{false, true} {
			s.play(scene{rows, entering, asking, refused, []int{1, 2}, enterAll})
		}
	}
}

// enterAll enters every name as a text of its own, as a server does that takes keys out
// of requests: a limiter that keeps the text it was given keeps no other with it.
func enterAll(p Peer, names *names) error {
	owned := peer{asker: func() Asker {
		ask := p.Asker()
		return func(key string) (bool, error) { return ask(strings.Clone(key)) }
	}}
	return entered(pass(owned, names, 2))
}

func entered(t tally) error {
	if t.failed > 0 {
		return fmt.Errorf("entering %d keys: %d errors: %w", t.asked(), t.failed, t.firstError)
	}
	return nil
}

// weigh measures the heap that a key takes: by how much it grew, after a collection, when
// n names were entered whose texts only the limiter still holds, a name, less the length
// of the name. A limiter that keeps no text is so credited with one it never held.
func weigh(s *stage, rows []row, n int) (bytes map[string]float64) {
	fmt.Fprintf(s.log, "bench: bytes a key, %d keys\n", n)
	bytes = map[string]float64{}
	names := newNames("ip:", n)
	for _, r := range rows {
		if s.broken[r.name] != "" || r.floor {
			continue
		}
		if grown, err := weighRow(r, names); err != nil {
			s.broken[r.name] = err.Error()
		} else {
			bytes[r.name] = grown - float64(names.size)
		}
	}
	return bytes
}

func weighRow(r row, names *names) (bytes float64, err error) {
	before := heap()
	p, err := r.open(single)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	if err := enterAll(p, names); err != nil {
		return 0, err
	}
	return (float64(heap()) - float64(before)) / float64(names.n), nil
}

// heap collects twice: what a sync.Pool holds goes in the second.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	return allocated()
}
