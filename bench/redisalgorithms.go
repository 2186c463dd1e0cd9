package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/redisstore"
)

// redisAlgorithm is the rows of an algorithm on Redis: each decision by a call of its own, and
// decisions that share calls.
type redisAlgorithm struct {
	name          string
	alone, shared row
}

func redisAlgorithms(s *server) (all []redisAlgorithm) {
	for i, a := range algorithms() {
		prefix := fmt.Sprintf("al%02d:", i) // as long as the default; states of two algorithms differ
		all = append(all, redisAlgorithm{
			name:   a.name,
			alone:  redisAlgorithmRow(s, a, prefix, a.name+", Redis", false),
			shared: redisAlgorithmRow(s, a, prefix, a.name+", Redis, coalesced", true),
		})
	}
	return all
}

func redisAlgorithmRow(s *server, a algorithm, prefix, name string, coalesced bool) row {
	return row{name: name, refuses: true, open: func(q Quota) (Peer, error) {
		redis, err := s.weirStore(redisstore.WithPrefix(prefix))
		if err != nil {
			return nil, err
		}
		store := weir.Store(redis)
		if coalesced {
			if store, err = layered(redis, 0, "breaker", "recall"); err != nil {
				redis.Close()
				return nil, err
			}
		}
		return limiterPeer(store, q, a.specs...)
	}}
}

// redisAlgorithmColumns are what the algorithms are compared in.
var redisAlgorithmColumns = []column{{tenThousand, false, crowd}, {tenThousand, true, crowd}}

// overRedisAlgorithms prints what each algorithm costs Redis beside the plain bucket, the worst row
// first.
func overRedisAlgorithms(out io.Writer, st *stage, s *server) error {
	all := redisAlgorithms(s)
	for _, rows := range [][]row{aloneOf(all), sharedOf(all)} {
		st.check(rows)
		for _, c := range redisAlgorithmColumns {
			if err := playRedis(st, s, rows, c.keys, c.refused, []int{c.goroutines}); err != nil {
				return err
			}
		}
	}
	plain := all[0]
	ratios := func(a redisAlgorithm) (ratios []float64) {
		for _, c := range redisAlgorithmColumns {
			ratios = append(ratios, st.board.cpuRatio(a.alone, plain.alone, c), st.board.cpuRatio(a.shared, plain.shared, c))
		}
		return ratios
	}
	slices.SortStableFunc(all, func(a, b redisAlgorithm) int {
		return cmp.Compare(slices.Max(ratios(b)), slices.Max(ratios(a)))
	})
	fmt.Fprintf(out, "## Algorithms on Redis\n\n"+
		"Redis CPU us a decision, %s, %d goroutines, and its ratio to the plain bucket's in the same round.\n"+
		"Alone: each decision is a call of its own. Shared: under coalesce. The worst row first.\n\n",
		redisAlgorithmColumns[0].keyset(), crowd)
	t := table{head: []string{"row"}}
	for _, c := range redisAlgorithmColumns {
		t.head = append(t.head, c.outcome()+", alone", "ratio", c.outcome()+", shared", "ratio")
	}
	for _, a := range all {
		cells := []string{a.name}
		for _, c := range redisAlgorithmColumns {
			cells = append(cells, st.board.cpuText(a.alone, c), ratioText(st.board.cpuRatio(a.alone, plain.alone, c)),
				st.board.cpuText(a.shared, c), ratioText(st.board.cpuRatio(a.shared, plain.shared, c)))
		}
		t.add(cells...)
	}
	t.print(out)
	(&report{broken: st.broken, board: st.board}).printNotes(out, append(aloneOf(all), sharedOf(all)...))
	return nil
}

func aloneOf(all []redisAlgorithm) (rows []row) {
	for _, a := range all {
		rows = append(rows, a.alone)
	}
	return rows
}

func sharedOf(all []redisAlgorithm) (rows []row) {
	for _, a := range all {
		rows = append(rows, a.shared)
	}
	return rows
}

// cpuText is the processor time of Redis a decision.
func (b board) cpuText(r row, c column) string {
	f, ok := b.get(r.name, c)
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.3g", median(f.cpu)/1e3)
}

func (b board) cpuRatio(r, reference row, c column) float64 {
	f, ok := b.get(r.name, c)
	other, found := b.get(reference.name, c)
	if !ok || !found {
		return 0
	}
	return paired(f.cpu, other.cpu)
}
