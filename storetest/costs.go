package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

// Work is the load of a store's server: the number of calls, and the server's own measure of the
// time spent in them.
type Work struct {
	Calls int64
	Time  time.Duration
}

const (
	// costTime is the longest time of the server for one operation, at any size: it serves no other
	// client meanwhile. On a busy machine, the time of costRatio grants of a plain bucket.
	costTime  = 200 * time.Microsecond
	costRatio = 25
	costMost  = 60 // of a decision of MaxClaims claims
	costRuns  = 25
	costTries = 5
	many      = 100_000 // entries of a log, and leases
)

// Costs limits each operation of a store on a server to one call and a bounded time of the server,
// with 100,000 entries of a log, 100 slices, 100,000 leases and MaxClaims claims. It logs a table
// of its measurements. The Handle must have Work.
func Costs(t *testing.T, s Subject) {
	c := &costs{t: t, clock: &clock{}}
	c.clock.set(epoch)
	c.Handle = s(t, func() weir.Instant { return weir.Instant(c.clock.now.Add(1)) })
	closeAfter(t, c.Store)
	c.grant = c.take(c.claims(1, weir.PerHour(1e6)))
	c.plain = c.measure("bucket, one claim: grant", costRatio, c.grant)
	c.claimsOfAllKinds()
	c.longLog()
	c.counterOfOtherSlices()
	c.manyLeases(1)
	c.manyLeases(100)
	c.manyMembers(weir.FixedWindow{Limit: 1e6, Window: time.Hour})
	c.manyMembers(weir.Concurrency{Limit: 1e6, TTL: time.Minute})
}

type costs struct {
	Handle
	t     testing.TB
	clock *clock
	grant func() error  // of one claim of a bucket
	plain time.Duration // of grant
	names atomic.Int64
}

// measure is the least time of the server for an operation. A busy machine slows the server; the plain grant, measured
// at the same time, shows by how much. So an operation over its bar is measured again beside it.
func (c *costs) measure(name string, ratio time.Duration, operate func() error) time.Duration {
	c.t.Helper()
	least := c.least(name, operate)
	for try := 1; least > max(costTime, ratio*c.plain); try++ {
		if try == costTries {
			c.t.Errorf("%s: the server is at it for %v, want %v at most", name, least, max(costTime, ratio*c.plain))
			break
		}
		c.plain = c.least("bucket, one claim: grant", c.grant)
		least = min(least, c.least(name, operate))
	}
	c.t.Logf("| %s | %d µs |", name, least.Microseconds())
	return least
}

// least is the least time of the server for an operation in some runs.
func (c *costs) least(name string, operate func() error) time.Duration {
	c.t.Helper()
	least := time.Hour
	for run := range 1 + costRuns {
		before := c.Work()
		if err := operate(); err != nil {
			c.t.Fatalf("%s: %v", name, err)
		}
		after := c.Work()
		if run == 0 {
			continue // the script is loaded
		}
		if calls := after.Calls - before.Calls; calls != 1 {
			c.t.Errorf("%s: %d calls, want one", name, calls)
		}
		least = min(least, after.Time-before.Time)
	}
	return least
}

func (c *costs) claims(n int, spec weir.Spec) []weir.Claim {
	limit := weir.MustLimit(fmt.Sprint("cost-", c.names.Add(1)), spec)
	claims := make([]weir.Claim, n)
	for i := range claims {
		claims[i] = weir.Claim{Key: fmt.Sprint("{cost}-", i), Limit: limit, Cost: 1}
	}
	return claims
}

func (c *costs) take(claims []weir.Claim) func() error { return c.decide(claims, 1) }

// decide decides with new leases, and asks for the decisions.
func (c *costs) decide(claims []weir.Claim, times int64) func() error {
	decisions := make([]weir.Decision, len(claims))
	return func() error {
		for i := range claims {
			claims[i].Lease = leaseOf(claims[i].Limit, weir.NewLeaseID())
		}
		_, err := c.Decide(context.Background(), claims, times, decisions)
		return err
	}
}

func (c *costs) refund(claims []weir.Claim, at func() int64) func() error {
	decisions := make([]weir.Decision, len(claims))
	return func() error {
		return c.Refund(context.Background(), claims, weir.Instant(at()), decisions)
	}
}

func (c *costs) now() int64 { return c.clock.now.Load() }

func (c *costs) claimsOfAllKinds() {
	const hour = time.Hour
	for _, kind := range []struct {
		name string
		spec weir.Spec
	}{
		{"bucket", weir.PerHour(1e6)},
		{"bucket, fraction of a microsecond", weir.TokenBucket{Capacity: 1e6, Refill: 7, Period: hour}},
		{"bucket, by steps", weir.TokenBucket{Capacity: 1e6, Refill: 1, Period: hour, Mode: weir.Step}},
		{"fixed window", weir.FixedWindow{Limit: 1e6, Window: hour}},
		{"calendar", weir.Calendar{Limit: 1e6, Unit: weir.Day}},
		{"sliding log", weir.SlidingLog{Limit: 1e6, Window: hour}},
		{"sliding counter, 100 slices", weir.SlidingCounter{Limit: 1e6, Window: hour, Slices: weir.MaxSlices}},
		{"concurrency", weir.Concurrency{Limit: 1e6, TTL: hour}},
	} {
		for n, ratio := range map[int]time.Duration{1: costRatio, weir.MaxClaims: costMost} {
			claims := c.claims(n, kind.spec)
			name := fmt.Sprintf("%s, %d claims: ", kind.name, n)
			c.measure(name+"grant", ratio, c.take(claims))
			if claims[0].Lease == "" {
				c.measure(name+"refund", ratio, c.refund(claims, c.now))
			}
			claims[n-1].Cost = 2e6
			c.measure(name+"refuse", ratio, c.take(claims))
		}
	}
}

// fill takes one unit at a time, from many goroutines.
func (c *costs) fill(claim weir.Claim, n int) {
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() {
			claim := claim
			for range n / workers {
				claim.Lease = leaseOf(claim.Limit, weir.NewLeaseID())
				if granted, err := c.Decide(context.Background(), []weir.Claim{claim}, 1, nil); granted != 1 ||
					err != nil {
					c.t.Errorf("granted %d, %v", granted, err)
					return
				}
			}
		})
	}
	wait.Wait()
}

// longLog is a log of many entries, also when most of them have left the window.
func (c *costs) longLog() {
	claims := c.claims(1, weir.SlidingLog{Limit: 2 * many, Window: time.Hour})
	claim := &claims[0]
	first := c.now()
	c.fill(*claim, many)
	all := c.now() - first
	c.measure("log of 100,000: grant", costRatio, c.take(claims))
	c.measure("log of 100,000: peek", costRatio, c.decide(claims, 0))
	for _, part := range []int64{0, 1, 2} {
		at := first + part*all*49/100
		c.measure(fmt.Sprintf("log of 100,000: refund of entry %d,000", part*49), costRatio,
			c.refund(claims, func() int64 { at++; return at }))
	}
	at := c.now()
	c.measure("log of 100,000: refund of the newest", costRatio, c.refund(claims, func() int64 { at--; return at }))
	for _, cost := range []int64{many + many/10, many + many/2, 2 * many} {
		claim.Cost = cost
		c.measure(fmt.Sprintf("log of 100,000: refuse a cost of %d", cost), costRatio, c.take(claims))
	}
	for _, part := range []int64{1, 5, 9} { // a shorter window sees only the newest
		shorter := weir.SlidingLog{Limit: 2 * many, Window: time.Duration(c.now()-first-all*part/10) * time.Microsecond}
		claims[0] = weir.Claim{Key: claim.Key, Limit: weir.MustLimit(claim.Limit.Name(), shorter), Cost: 1}
		c.measure(fmt.Sprintf("log of 100,000, %d0 %% have expired: peek", part), costRatio, c.decide(claims, 0))
		claim.Cost = 2 * many
		c.measure(fmt.Sprintf("log of 100,000, %d0 %% have expired: refuse a cost of 200000", part), costRatio,
			c.take(claims))
	}
	claim.Cost = 1
	c.measure("log of 100,000, as they expire: grant", costRatio, c.take(claims))
	c.measure("log of 100,000, as they expire: refund", costRatio, c.refund(claims, c.now))
	c.clock.now.Add(2 * time.Hour.Microseconds())
	c.measure("log of 100,000, all have expired: peek", costRatio, c.decide(claims, 0))
}

// counterOfOtherSlices is written by other numbers: until something is granted, each reading converts.
func (c *costs) counterOfOtherSlices() {
	claims := c.claims(1, weir.SlidingCounter{Limit: 1e6, Window: 60 * time.Millisecond, Slices: 60})
	for range 60 {
		if err := c.take(claims)(); err != nil {
			c.t.Fatalf("%v", err)
		}
		c.clock.now.Add(1000)
	}
	claims[0].Limit = weir.MustLimit(claims[0].Limit.Name(),
		weir.SlidingCounter{Limit: 1, Window: time.Second, Slices: weir.MaxSlices})
	c.measure("counter of 60 slices read as 100: refuse", costRatio, c.take(claims))
}

// manyLeases are held, of one unit each or of several; the limit is lowered, and then they expire together.
func (c *costs) manyLeases(units int64) {
	name := fmt.Sprintf("100,000 leases of %d: ", units)
	claims := c.claims(1, weir.Concurrency{Limit: 2 * many * units, TTL: time.Minute})
	claims[0].Cost = units
	c.fill(claims[0], many)
	c.measure(name+"acquire", costRatio, c.take(claims))
	release := c.refund(claims, c.now)
	c.measure(name+"release", costRatio, func() error {
		if err := release(); err != weir.ErrLeaseGone {
			return err
		}
		return nil
	})
	held := claims[0].Limit
	for _, lowered := range []struct{ limit, cost int64 }{
		{2 * many, 2 * many}, {2 * many, many + many/2}, {many * 9 / 10, 1}, {many / 2, many / 4}, {10, 1}, {10, 10},
	} {
		claims[0].Limit = weir.MustLimit(held.Name(),
			weir.Concurrency{Limit: lowered.limit * units, TTL: time.Minute})
		claims[0].Cost = lowered.cost * units
		asked := fmt.Sprintf("a cost of %d under a limit of %d", lowered.cost, lowered.limit)
		c.measure(name+"refuse "+asked, costRatio, c.take(claims))
		c.measure(name+"peek for "+asked, costRatio, c.decide(claims, 0))
	}
	claims[0].Limit, claims[0].Cost = held, units
	c.clock.now.Add(time.Minute.Microseconds() - many/2) // half of them have expired
	c.measure(name+"half have expired: peek", costRatio, c.decide(claims, 0))
	c.measure(name+"half have expired: acquire", costRatio, c.take(claims))
	c.clock.now.Add(2 * time.Minute.Microseconds())
	c.measure(name+"all have expired: peek", costRatio, c.decide(claims, 0))
	c.measure(name+"all have expired: acquire", costRatio, c.take(claims))
}

// manyMembers share a limit, as many as it tells apart. Then their units expire together.
func (c *costs) manyMembers(of weir.Spec) {
	name := fmt.Sprintf("10,000 members of %s: ", of)
	claims := c.claims(1, weir.Fair{Of: of})
	claim := &claims[0]
	for i := range weir.MaxFairKeys {
		claim.Member = fmt.Sprint("member-", i)
		if err := c.take(claims)(); err != nil {
			c.t.Fatalf("%v", err)
		}
	}
	c.measure(name+"grant", costRatio, c.take(claims))
	claim.Member = "one more"
	c.measure(name+"grant to the others", costRatio, c.take(claims))
	claim.Cost = 1e6
	c.measure(name+"refuse", costRatio, c.take(claims))
	claim.Cost = 1
	c.clock.now.Add(2 * time.Hour.Microseconds())
	c.measure(name+"they have expired: refuse", costRatio, c.decide(claims, 0))
	c.measure(name+"they have expired: grant", costRatio, c.take(claims))
}
