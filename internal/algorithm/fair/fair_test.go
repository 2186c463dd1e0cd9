package fair_test

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/fair"
)

const (
	tenants = 50
	units   = 6000
	greedy  = 100 // times as much as each other tenant
)

// A tally is what tenants asked for and got: the first one is the greedy one.
type tally struct{ asked, got, refusedWithin [tenants]int64 }

// maxMin is what each tenant gets of the units if they are shared so that nobody gets more who could give to one that
// has less and asks for more.
func maxMin(asked [tenants]int64) (share [tenants]float64) {
	left, open := float64(units), tenants
	for range tenants {
		level := left / float64(max(1, open))
		for i, n := range asked {
			if share[i] == 0 && float64(n) <= level {
				share[i] = float64(n)
				left, open = left-float64(n), open-1
			}
		}
	}
	for i := range share {
		if share[i] == 0 {
			share[i] = left / float64(max(1, open))
		}
	}
	return share
}

// arrivals are the instants, in µs, at which tenants ask for a unit within a second, in order, at random.
func arrivals(random *rand.Rand, load float64) (at []int64, who []int) {
	each := load * units / (tenants - 1 + greedy)
	now := 0.0
	for {
		now += random.ExpFloat64() * 1e6 / (each * (tenants - 1 + greedy))
		if now >= 1e6 {
			return at, who
		}
		one := max(0, random.IntN(tenants-1+greedy)-greedy+1)
		at, who = append(at, int64(now)), append(who, one)
	}
}

// window plays one window of a second, after the first of which all tenants are known.
func window(limit *weir.Limit, random *rand.Rand, load float64) (t tally) {
	var w fair.Window
	at, who := arrivals(random, load)
	for i := range at {
		m := fair.Member{ID: int64(1 + who[i]), Weight: 1}
		standing := w.Standing(limit, m, at[i])
		t.asked[who[i]]++
		if w.Available(limit, m, 0, at[i]) >= 1 {
			w.Charge(limit, m, 1, at[i])
			t.got[who[i]]++
		} else if standing.Own < standing.Share {
			t.refusedWithin[who[i]]++
		}
	}
	return t
}

// TestWindowsAreSharedMaxMin: one of 50 tenants asks for 100 times as much as each other one. The others get what they
// would get of a max-min division, and of the limit nothing is lost.
func TestWindowsAreSharedMaxMin(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, above := range []int{0, 20, 50} {
		limit := weir.MustLimit("window", weir.Fair{Of: weir.FixedWindow{Limit: units, Window: time.Second,
			Anchor: weir.Epoch}, Above: above})
		for _, load := range []float64{1.2, 1.5, 2} {
			var used, wanted, lost, within, asked float64
			const windows = 20
			for range windows {
				got := window(limit, random, load)
				fairly := maxMin(got.asked)
				for i := range tenants {
					used += float64(got.got[i])
					if i > 0 {
						asked += float64(got.asked[i])
						within += float64(got.refusedWithin[i])
						wanted += min(fairly[i], float64(got.asked[i]))
						lost += max(0, min(fairly[i], float64(got.asked[i]))-float64(got.got[i]))
					}
				}
			}
			t.Logf("above %d %%, %.1f times the limit asked: %.1f %% of the limit used; the others lose %.2f %% of their "+
				"max-min shares, and of their requests %.2f %% are refused within a share", above, load,
				100*used/windows/units, 100*lost/wanted, 100*within/asked)
			if used/windows < 0.98*units || lost/wanted > 0.01 {
				t.Error("want 98 % used, and 1 % lost at most")
			}
		}
	}
}

// departures are ends of leases.
type departures []departure

type departure struct {
	at   int64
	who  int
	name string
}

func (d departures) Len() int           { return len(d) }
func (d departures) Less(i, j int) bool { return d[i].at < d[j].at }
func (d departures) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *departures) Push(x any)        { *d = append(*d, x.(departure)) }
func (d *departures) Pop() (last any) {
	last = (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

// TestLeasesAreShared: the same with requests that are held for 50 ms on average, at twice the limit.
func TestLeasesAreShared(t *testing.T) {
	const held, seconds, slots = 50_000.0, 20, 1000
	limit := weir.MustLimit("leases", weir.Fair{Of: weir.Concurrency{Limit: slots, TTL: time.Hour}, Above: 98})
	random := rand.New(rand.NewPCG(3, 4))
	var s fair.Leases
	var ends departures
	var got tally
	busy, last, now := 0.0, 0.0, 0.0
	for n := 0; now < seconds*1e6; n++ {
		now += random.ExpFloat64() * held / (2 * slots)
		for len(ends) > 0 && float64(ends[0].at) <= now {
			d := heap.Pop(&ends).(departure)
			busy, last = busy+float64(len(ends)+1)*(float64(d.at)-last), float64(d.at)
			s.Release(fair.Member{ID: int64(1 + d.who), Weight: 1}, d.name, d.at)
		}
		busy, last = busy+float64(len(ends))*(now-last), now
		who := max(0, random.IntN(tenants-1+greedy)-greedy+1)
		m := fair.Member{ID: int64(1 + who), Weight: 1}
		standing := s.Standing(limit, m, int64(now))
		if got.asked[who]++; s.Available(limit, m, 0, int64(now)) < 1 {
			if standing.Own < standing.Share {
				got.refusedWithin[who]++
			}
			continue
		}
		got.got[who]++
		name := fmt.Sprint(n)
		s.Take(limit, m, name, 1, int64(now))
		heap.Push(&ends, departure{int64(now + random.ExpFloat64()*held), who, name})
	}
	var asked, within, refused int64
	for i := 1; i < tenants; i++ {
		asked, within, refused = asked+got.asked[i], within+got.refusedWithin[i], refused+got.asked[i]-got.got[i]
	}
	used := busy / now / slots
	t.Logf("%.1f %% of the limit used; of the others' requests %.3f %% are refused within a share, %.3f %% in all",
		100*used, 100*float64(within)/float64(asked), 100*float64(refused)/float64(asked))
	if used < 0.975 || float64(within) > 0.001*float64(asked) {
		t.Error("want 98 % used, and 0.1 % refused within a share at most")
	}
}
