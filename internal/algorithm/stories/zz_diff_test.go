package stories_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
)

type gen struct{ *rand.Rand }

func (g gen) pick(xs ...int64) int64 { return xs[g.IntN(len(xs))] }

func (g gen) spec(kind int) weir.Spec {
	us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	switch kind {
	case 0:
		s := weir.TokenBucket{Capacity: g.pick(1, 3, 7, 10, 100), Refill: g.pick(1, 3, 7, 10), Period: us(g.pick(1, 3, 10, 1000, 7777, 1000000)), Overdraft: g.pick(0, 0, 0, 2, 9)}
		if g.IntN(3) == 0 {
			s.Mode = weir.Step
		}
		return s
	case 1:
		return weir.FixedWindow{Limit: g.pick(1, 3, 10), Window: us(g.pick(1, 7, 100, 150, 1000)), Anchor: weir.Anchor(g.IntN(2))}
	case 2:
		return weir.SlidingLog{Limit: g.pick(1, 3, 10, 50), Window: us(g.pick(1, 7, 100, 150, 1000))}
	case 3:
		n := g.pick(1, 2, 3, 6, 10)
		return weir.SlidingCounter{Limit: g.pick(1, 3, 10, 50), Window: us(n * g.pick(1, 7, 100, 150, 1000)), Slices: n}
	case 4:
		return weir.Concurrency{Limit: g.pick(1, 3, 10), TTL: us(g.pick(1, 7, 100, 150, 1000))}
	}
	return weir.Calendar{Limit: g.pick(1, 3, 10), Unit: weir.CalendarUnit(1 + g.IntN(6)), Zone: []string{"", "Europe/Berlin", "America/Havana", "Asia/Kolkata"}[g.IntN(4)]}
}

func TestZDiff(t *testing.T) {
	url := redistest.Start(t).URL()
	rounds, _ := strconv.Atoi(os.Getenv("ROUNDS"))
	seed0, _ := strconv.Atoi(os.Getenv("SEED"))
	changes := os.Getenv("CHANGES") != ""
	var now int64
	clock := func() weir.Instant { return weir.Instant(now) }
	r, err := redisstore.Open(t.Context(), url, redisstore.WithClock(clock), redisstore.WithTimeout(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	mem := memstore.New(memstore.WithClock(clock))
	fails := 0
	for seed := seed0; seed < seed0+rounds && fails < 6; seed++ {
		g := gen{rand.New(rand.NewPCG(uint64(seed), 7))}
		tw := newTwins(clock)
		stores := []weir.Store{tw, mem, r}
		now = 1790443553057798 + g.Int64N(1000)
		n := 1 + g.IntN(3)
		kinds := make([]int, n)
		limits := make([]*weir.Limit, n)
		for i := range kinds {
			kinds[i] = int(g.pick(kindset()...))
			limits[i] = weir.MustLimit(fmt.Sprint("l", i), g.spec(kinds[i]))
		}
		var log []string
		back := int64(1)
		if os.Getenv("NOBACK") != "" {
			back = 0
		}
		var taken int64 = now
		span := int64(100)
		if kinds[0] == 5 {
			span = 3 * 3600 * 1e6
		}
	steps:
		for range 40 {
			now += g.pick(0, 0, 1, 2, g.Int64N(span), g.Int64N(10*span), g.Int64N(100*span), -back*g.Int64N(span), -back*g.Int64N(5*span))
			if changes && g.IntN(6) == 0 {
				i := g.IntN(n)
				limits[i] = weir.MustLimit(fmt.Sprint("l", i), g.spec(kinds[i]))
			}
			claims := make([]weir.Claim, n)
			renew := g.IntN(4) == 0
			for i := range claims {
				claims[i] = weir.Claim{Key: fmt.Sprint("k", seed), Limit: limits[i], Cost: g.pick(1, 1, 1, 0, 2, 3, 12)}
				if kinds[i] == 4 {
					claims[i].Cost = max(1, claims[i].Cost)
					claims[i].Lease = string('a' + rune(g.IntN(5)))
					claims[i].Renew = renew
				}
			}
			op := g.pick(0, 0, 0, 0, 1, 2, 3)
			if op == 2 && changes {
				op = 3
			}
			times := g.pick(1, 1, 1, 2, 5)
			for i := range kinds {
				if kinds[i] == 4 {
					times = 1
				}
			}
			if op == 3 {
				times = 0
			}
			for i := range claims {
				if op == 2 && os.Getenv("REFUND0") == "" {
					claims[i].Cost = max(1, claims[i].Cost)
				}
			}
			at := taken + g.pick(0, 0, 1, -1)
			var first string
			for si, s := range stores {
				ds := make([]weir.Decision, n)
				var granted int64
				var err error
				switch op {
				case 0, 3:
					granted, err = s.Decide(t.Context(), claims, times, ds)
					if granted > 0 {
						taken = now
					}
				case 1:
					for i := range claims {
						claims[i].Renew = false
					}
					err = s.Charge(t.Context(), claims, ds)
				case 2:
					err = s.Refund(t.Context(), claims, weir.Instant(at), ds)
				}
				gone := errors.Is(err, weir.ErrLeaseGone)
				if gone {
					err = nil
				}
				got := fmt.Sprint(granted, gone, err, ds)
				if si == 0 {
					first = got
					d := fmt.Sprint("at ", now, " op ", op, " times ", times, " taken ", at)
					for i := range claims {
						d += fmt.Sprint(" | ", limits[i], " cost ", claims[i].Cost, " ", claims[i].Lease, claims[i].Renew)
					}
					log = append(log, d+"\n      "+got)
				} else if got != first {
					fails++
					t.Errorf("seed %d store %T:\n%s\nGOT   %s", seed, s, join(log), got)
					break steps
				}
			}
		}
	}
}

func join(l []string) (s string) {
	if len(l) > 14 {
		l = l[len(l)-14:]
	}
	for _, x := range l {
		s += x + "\n"
	}
	return
}

func kindset() (k []int64) {
	for _, c := range os.Getenv("KINDS") {
		k = append(k, int64(c-'0'))
	}
	return
}
