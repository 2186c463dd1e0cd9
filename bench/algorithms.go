package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// plainName is what the rows of other algorithms are held against.
const (
	plainName = "token bucket"
	twoName   = "two token buckets"
	threeName = "three token buckets"
	mixedName = "bucket, window and counter"
)

func gateName(rules int) string { return fmt.Sprintf("gate, %d such rules", rules) }

// algorithm is a set of limits of one Limiter.
type algorithm struct {
	name  string
	specs []func(Quota) weir.Spec
}

// algorithms are every algorithm alone, and several at once.
func algorithms() []algorithm {
	fixed := func(q Quota) weir.Spec { return weir.FixedWindow{Limit: q.Burst, Window: window} }
	of := func(name string, specs ...func(Quota) weir.Spec) algorithm { return algorithm{name, specs} }
	return []algorithm{
		of(plainName, bucketOf),
		of("token bucket, fractional (7 in the time of 3)", func(q Quota) weir.Spec {
			return weir.TokenBucket{Capacity: q.Burst, Refill: 7, Period: 3 * q.Every}
		}),
		of("token bucket, denominator 4099", func(q Quota) weir.Spec {
			return weir.TokenBucket{Capacity: q.Burst, Refill: 4099, Period: 4096 * q.Every}
		}),
		of("token bucket with overdraft", func(q Quota) weir.Spec {
			return weir.TokenBucket{Capacity: q.Burst - q.Burst/2, Refill: 1, Period: q.Every, Overdraft: q.Burst / 2}
		}),
		of("token bucket, step", func(q Quota) weir.Spec {
			return weir.TokenBucket{Capacity: q.Burst, Refill: 1, Period: q.Every, Mode: weir.Step}
		}),
		of("fixed_window", fixed),
		of("calendar", func(q Quota) weir.Spec { return weir.Calendar{Limit: q.Burst, Unit: weir.Year} }),
		of("sliding_counter of 6", slicesOf(6)),
		of("sliding_counter of 60", slicesOf(60)),
		of("sliding_log (granted: 1e6/100us)", logOf),
		of(twoName, bucketOf, bucketOf),
		of(threeName, bucketOf, bucketOf, bucketOf),
		of(mixedName, bucketOf, fixed, slicesOf(6)),
	}
}

// algorithmRows are the algorithms on the embedded store, by Limiter, and buckets by the gate.
func algorithmRows() []row {
	var rows []row
	for _, a := range algorithms() {
		rows = append(rows, allowRow(a.name, a.specs...))
	}
	return append(rows, gateRow(1), gateRow(2), gateRow(3))
}

func slicesOf(n int64) func(Quota) weir.Spec {
	return func(q Quota) weir.Spec { return weir.SlidingCounter{Limit: q.Burst, Window: window, Slices: n} }
}

// gateRow is a request to the gate under so many rules, each a token bucket by the client's address.
func gateRow(count int) row {
	return row{name: gateName(count), refuses: true, open: func(q Quota) (Peer, error) {
		var text strings.Builder
		text.WriteString("rules:\n")
		for i := range count {
			fmt.Fprintf(&text, "  - {name: r%d, key: [client.ip], limit: 1/%ds burst %d}\n", i, int(q.Every/time.Second), q.Burst)
		}
		set, err := rules.Load("bench.yaml", []byte(text.String()))
		if err != nil {
			return nil, err
		}
		store := memstore.New(memstore.WithMaxKeys(maxKeys))
		g, err := gate.New(store, set, gate.WithLocal(store))
		if err != nil {
			return nil, err
		}
		return peer{func() Asker { return asksGate(g) }, func() { store.Close() }}, nil
	}}
}

// asksGate makes a client's address of each key, so that keys differ as they do for the other rows.
func asksGate(g *gate.Gate) Asker {
	request := &rules.Request{Method: "GET", Path: "/"}
	var verdict gate.Verdict
	var last string
	return func(key string) (bool, error) {
		if key != last {
			sum := [4]byte{10}
			for i := range len(key) {
				sum[1+i%3] = sum[1+i%3]*31 + key[i]
			}
			request.Client, last = netip.AddrFrom4(sum), key
		}
		err := g.Decide(context.Background(), request, gate.Once, &verdict)
		return verdict.Outcome == gate.Passed, err
	}
}

// overAlgorithms prints what each algorithm costs beside the plain bucket, the worst row first.
func overAlgorithms(out io.Writer, st *stage) []bar {
	rows := algorithmRows()
	st.check(rows)
	names := newNames("ip:", 1)
	for _, refused := range []bool{false, true} {
		st.play(scene{rows, names, names, refused, []int{1}, enterAll})
	}
	granted, refused := column{1, false, 1}, column{1, true, 1}
	ratio := func(r row, c column) float64 {
		f, _ := st.board.get(r.name, c)
		plain, _ := st.board.get(plainName, c)
		return paired(plain.perSecond, f.perSecond)
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Compare(max(ratio(b, granted), ratio(b, refused)), max(ratio(a, granted), ratio(a, refused)))
	})
	fmt.Fprint(out, "## Algorithms, alone and together\n\nEmbedded store, one hot key, one goroutine, ns a decision and its ratio to the plain bucket's in the same round. The worst row first.\n\n")
	t := table{head: []string{"row", "granted", "ratio", "refused", "ratio", "allocs"}}
	for _, r := range rows {
		g, _ := st.board.get(r.name, granted)
		f, _ := st.board.get(r.name, refused)
		t.add(r.name, short(g.nanoseconds()), ratioText(ratio(r, granted)), short(f.nanoseconds()), ratioText(ratio(r, refused)),
			fmt.Sprintf("%.1f", max(median(g.allocs), median(f.allocs))))
	}
	t.print(out)
	(&report{broken: st.broken, board: st.board}).printNotes(out, rows)
	return st.algorithmBars(rows)
}

// algorithmBars hold each row against one plain bucket, and what passes the gate against one rule there.
func (s *stage) algorithmBars(rows []row) []bar {
	one := bar{what: "one limit of any algorithm against a plain bucket", bound: 1.6}
	two := bar{what: "two limits of one Limiter against a plain bucket", bound: 1.8}
	three := bar{what: "three limits of one Limiter against a plain bucket", bound: 2.6}
	twoRules := bar{what: "gate: two rules against one", bound: 1.8}
	threeRules := bar{what: "gate: three rules against one", bound: 2.6}
	for _, r := range rows {
		switch r.name {
		case gateName(1), plainName:
		case gateName(2):
			s.raise(&twoRules, r.name, gateName(1))
		case gateName(3):
			s.raise(&threeRules, r.name, gateName(1))
		case twoName:
			s.raise(&two, r.name, plainName)
		case threeName, mixedName:
			s.raise(&three, r.name, plainName)
		default:
			s.raise(&one, r.name, plainName)
		}
	}
	return []bar{one, two, three, twoRules, threeRules}
}

// raise sets a bar to a row's ratio, granted or refused, where that is larger.
func (s *stage) raise(b *bar, name, reference string) {
	for _, c := range []column{{1, false, 1}, {1, true, 1}} {
		f, ok := s.board.get(name, c)
		plain, found := s.board.get(reference, c)
		if ratio := paired(plain.perSecond, f.perSecond); !ok || !found {
			b.missing = true
		} else if ratio > b.ratio {
			b.ratio = ratio
			b.measured = fmt.Sprintf("%s, %s: %s ns, %s %s ns", name, c.outcome(), short(f.nanoseconds()), reference, short(plain.nanoseconds()))
		}
	}
}
