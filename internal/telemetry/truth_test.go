package telemetry

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
)

// ask decides a request and returns whether it passed.
func (n *node) ask(t testing.TB, user string, v *gate.Verdict) bool {
	if err := n.gate.Decide(t.Context(), &rules.Request{User: user}, gate.Once, v); err != nil {
		t.Fatal(err)
	}
	return v.Outcome == gate.Passed
}

// exact is the recount of a test: passed and refused requests of each user.
type exact map[string]*[2]uint64

// flood asks from several goroutines, while ticks pass, and recounts. They wait for each other after every 2,000
// requests: on a busy machine the one that makes time pass would fall behind, and taps would overflow.
func (n *node) flood(t testing.TB, goroutines, each int, user func(*rand.Rand) int) exact {
	const together = 2000
	sums, random := make([]exact, goroutines), make([]*rand.Rand, goroutines)
	for g := range goroutines {
		sums[g], random[g] = make(exact), rand.New(rand.NewPCG(uint64(g), 1))
	}
	for done := 0; done < each; done += together {
		var wait sync.WaitGroup
		for g := range goroutines {
			wait.Go(func() {
				var v gate.Verdict
				for i := range min(together, each-done) {
					name := "user" + strconv.Itoa(user(random[g]))
					if sums[g][name] == nil {
						sums[g][name] = new([2]uint64)
					}
					if n.ask(t, name, &v) {
						sums[g][name][0]++
					} else {
						sums[g][name][1]++
					}
					if g == 0 && i == together/2 {
						n.pass(tick)
					}
				}
			})
		}
		wait.Wait()
	}
	all := make(exact)
	for _, sum := range sums {
		for name, count := range sum {
			if all[name] == nil {
				all[name] = new([2]uint64)
			}
			all[name][0] += count[0]
			all[name][1] += count[1]
		}
	}
	return all
}

func (e exact) total() (sum [2]uint64) {
	for _, count := range e {
		sum[0] += count[0]
		sum[1] += count[1]
	}
	return sum
}

// top are the users with the most requests of a kind: 0 passed, 1 refused.
func (e exact) top(kind, most int) (list []string) {
	for name := range e {
		list = append(list, name)
	}
	slices.SortFunc(list, func(a, b string) int {
		return cmp.Or(cmp.Compare(e[b][kind], e[a][kind]), cmp.Compare(a, b))
	})
	return list[:most]
}

func zipf(keys int) func(*rand.Rand) int {
	return func(r *rand.Rand) int { return int(math.Pow(float64(keys), r.Float64())) }
}

// Counts are exact, whatever the samples lost, and the top keys are right within 5 % with few keys and with many.
func TestTruthOfAMillionDecisions(t *testing.T) {
	for keys, each := range map[int]int{1000: 250_000, 200_000: 75_000} {
		before := 100_000
		if testing.Short() {
			before, each = 30_000, 10_000
		}
		n := newNode(t, `
rules:
  - {name: user, key: [user], limit: fixed_window 1000/1h}
  - {name: all, limit: fixed_window 100000000/1h}
`, true)
		known := n.flood(t, 1, before, zipf(keys)) // now the frequent keys are known
		n.Cut(n.clock)
		want := n.flood(t, 4, each, zipf(keys))
		record := n.Cut(n.clock)
		sum := want.total()
		if record.Total.Passed != sum[0] || record.Total.Refused != sum[1] {
			t.Errorf("%d keys: %+v, want %v", keys, record.Total, sum)
		}
		if n := record.Took.Total(); n != sum[0]+sum[1] {
			t.Errorf("%d latencies, want %d", n, sum)
		}
		if len(record.Rules) != 2 || record.Rules[0].Name != "all" || record.Rules[1].Name != "user" {
			t.Fatalf("rules: %+v", record.Rules)
		}
		user := record.Rules[1]
		if user.Counts != record.Total || record.Rules[0].Counts.Passed != sum[0] {
			t.Errorf("%d keys: %+v of %+v", keys, user.Counts, record.Total)
		}
		checkTop(t, user.Top, want)
		maps.Copy(known, want)
		if d := float64(user.Distinct) / float64(len(known)); d < 0.95 || d > 1.05 {
			t.Errorf("%d keys of %d", user.Distinct, len(known))
		}
		if record := n.Cut(n.clock); record.Total != (Counts{}) || len(record.Rules) > 0 || len(record.Took) > 0 {
			t.Errorf("counted twice: %+v", record)
		}
	}
}

func checkTop(t *testing.T, top []KeyRate, want exact) {
	t.Helper()
	for kind, name := range []string{"passed", "refused"} {
		var shown []uint64
		for _, k := range top {
			shown = append(shown, [2]uint64{k.Passed, k.Refused}[kind])
		}
		slices.Sort(shown)
		slices.Reverse(shown)
		least := float64(shown[min(19, len(shown)-1)]) // of those that are shown for this kind
		for _, user := range want.top(kind, 20) {
			key := fmt.Sprintf("user=%d:%s", len(user), user)
			i := slices.IndexFunc(top, func(k KeyRate) bool { return k.Key == key })
			exact := want[user][kind]
			if sum := want.total(); exact < (sum[0]+sum[1])*3/2/frequent {
				continue // chance decides whether the samples show in time that it is frequent
			}
			if i < 0 {
				if float64(exact) > 1.05*least {
					t.Errorf("%s with %d %s is not among the top keys", key, exact, name)
				}
				continue
			}
			got := [2]uint64{top[i].Passed, top[i].Refused}[kind]
			if diff := math.Abs(float64(got) - float64(exact)); diff > 0.05*float64(exact) {
				t.Errorf("%s has %d %s, want %d", key, got, name, exact)
			}
		}
	}
}
