//go:build unix

package faulttest_test

import (
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/server/internal/faulttest"
)

// TestSentinelMasterKilled restarts the old master, empty, after the failover. It would take charges until the
// Sentinels make it a replica, but no client sends any.
func TestSentinelMasterKilled(t *testing.T) {
	each(t, func(t *testing.T, s stack) {
		set := redistest.StartSentinel(t)
		try(t, s, set.URL(), set.URL(), faulttest.Trial{
			Forgets: true, Says: "connection refused",
			Strike: func(load *faulttest.Load) {
				set.Servers[0].Kill()
				redistest.Await(t, "the replica to take over", promoted(set.Servers[1]))
				since := time.Now()
				redistest.Await(t, "decisions to flow", func() bool { return load.Flowing(since) })
				set.Servers[0].Restart()
			},
		})
		if keys := set.Servers[0].Do("DBSIZE"); set.Servers[0].Role() == "master" && keys != int64(0) {
			t.Errorf("the old master was sent charges: it has %d keys", keys)
		}
	})
}

// TestSentinelMasterRestarted is back, empty, before the Sentinels miss it: its replica
// forgets with it.
func TestSentinelMasterRestarted(t *testing.T) {
	each(t, func(t *testing.T, s stack) {
		set := redistest.StartSentinel(t)
		try(t, s, set.URL(), set.URL(), faulttest.Trial{
			Forgets: true, Unnoticed: true,
			Strike: func(*faulttest.Load) { set.Servers[0].Restart() },
		})
	})
}

// TestSentinelMasterFrozen resumes the old master after the failover. It takes charges until the Sentinels make
// it a replica, and these are lost.
func TestSentinelMasterFrozen(t *testing.T) {
	each(t, func(t *testing.T, s stack) {
		set := redistest.StartSentinel(t)
		try(t, s, set.URL(), set.URL(), faulttest.Trial{
			Forgets: true, Says: "deadline exceeded",
			Strike: func(*faulttest.Load) { set.Servers[0].Stop() },
			Lasts:  promoted(set.Servers[1]),
			Mend:   set.Servers[0].Cont,
		})
	})
}

// TestSentinelFailoverByCommand forgets the charges until clients know the new master: Sentinels promote the
// replica before they demote the master.
func TestSentinelFailoverByCommand(t *testing.T) {
	each(t, func(t *testing.T, s stack) {
		set := redistest.StartSentinel(t)
		try(t, s, set.URL(), set.URL(), faulttest.Trial{
			Forgets: true, Unnoticed: true,
			Strike: func(*faulttest.Load) { set.Failover() },
		})
	})
}

// TestSentinelFailoverPaused forgets nothing, because writes are paused while roles change.
func TestSentinelFailoverPaused(t *testing.T) {
	each(t, func(t *testing.T, s stack) {
		set := redistest.StartSentinel(t)
		try(t, s, set.URL(), set.URL(), faulttest.Trial{
			Strike: func(*faulttest.Load) {
				set.Servers[0].Do("CLIENT", "PAUSE", "5000", "WRITE")
				set.Failover()
			},
		})
	})
}
