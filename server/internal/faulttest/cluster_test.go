//go:build unix

package faulttest_test

import (
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/redisslot"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/server/internal/faulttest"
)

// promoted reports whether a server has become a master.
func promoted(s *redistest.Server) func() bool {
	return func() bool { return s.Role() == "master" }
}

func TestClusterMasterKilled(t *testing.T) {
	each(t, func(t *testing.T, s stack) {
		cluster := redistest.StartCluster(t, 3, 1)
		try(t, s, cluster.URL(), cluster.URL(), faulttest.Trial{
			Forgets: true, Says: "connection refused",
			Strike: func(*faulttest.Load) { cluster.Nodes[0].Kill() },
		})
		if !promoted(cluster.Nodes[3])() {
			t.Error("decisions flow, but not from the replica")
		}
	})
}

// TestClusterWithoutFullCoverage keeps deciding the keys of the masters that are left.
func TestClusterWithoutFullCoverage(t *testing.T) {
	each(t, func(t *testing.T, s stack) {
		cluster := redistest.StartCluster(t, 3, 1)
		for _, node := range cluster.Nodes {
			node.Do("CONFIG", "SET", "cluster-require-full-coverage", "no")
		}
		r := try(t, s, cluster.URL(), cluster.URL(), faulttest.Trial{
			Forgets: true, Says: "connection refused",
			Strike: func(*faulttest.Load) { cluster.Nodes[0].Kill() },
		})
		// "Hash slot not served" is said of slots that go to the replica, by nodes that have not heard of it yet. Nothing
		// was executed: redisconn asks up to three nodes more within the call's time, and then returns it.
		if strings.Contains(r.Texts(), "CLUSTERDOWN The cluster is down") {
			t.Error("keys of other masters failed")
		}
	})
}

// TestClusterMasterFrozen wakes the master up when its replica has taken over: for a
// moment both believe to be the master.
func TestClusterMasterFrozen(t *testing.T) {
	each(t, func(t *testing.T, s stack) {
		cluster := redistest.StartCluster(t, 3, 1)
		try(t, s, cluster.URL(), cluster.URL(), faulttest.Trial{
			Forgets: true, Says: "deadline exceeded",
			Strike: func(*faulttest.Load) { cluster.Nodes[0].Stop() },
			Lasts:  promoted(cluster.Nodes[3]),
			Mend:   cluster.Nodes[0].Cont,
		})
		redistest.Await(t, "the old master to be a replica", func() bool { return cluster.Nodes[0].Role() == "slave" })
	})
}

// TestClusterSlotsMove: no unit is lost and none is charged twice.
func TestClusterSlotsMove(t *testing.T) {
	each(t, func(t *testing.T, s stack) {
		cluster := redistest.StartCluster(t, 3, 0)
		try(t, s, cluster.URL(), cluster.URL(), faulttest.Trial{
			Unnoticed: true,
			Strike: func(load *faulttest.Load) {
				for i, key := range load.Keys() {
					cluster.MoveSlot(int(redisslot.Of(key)), cluster.Nodes[i%3])
				}
			},
		})
	})
}

// TestClusterFailoverByCommand: master and replica agree, so nothing is forgotten.
func TestClusterFailoverByCommand(t *testing.T) {
	each(t, func(t *testing.T, s stack) {
		cluster := redistest.StartCluster(t, 3, 1)
		try(t, s, cluster.URL(), cluster.URL(), faulttest.Trial{
			Unnoticed: true,
			Strike:    func(*faulttest.Load) { cluster.Failover(cluster.Nodes[3]) },
		})
	})
}

// TestClusterDown: with a third of its slots lost, a Cluster answers for none.
func TestClusterDown(t *testing.T) {
	each(t, func(t *testing.T, s stack) {
		cluster := redistest.StartCluster(t, 3, 0, "--cluster-node-timeout", "1000")
		try(t, s, cluster.URL(), cluster.URL(), faulttest.Trial{
			Forgets: true, Says: "CLUSTERDOWN",
			Strike: func(load *faulttest.Load) {
				cluster.Nodes[0].Kill()
				redistest.Await(t, "CLUSTERDOWN", func() bool { return load.Failed("CLUSTERDOWN") > 300 })
			},
			Mend: cluster.Nodes[0].Restart,
		})
	})
}

func TestClusterGone(t *testing.T) {
	each(t, func(t *testing.T, s stack) {
		cluster := redistest.StartCluster(t, 3, 0, "--cluster-node-timeout", "1000")
		try(t, s, cluster.URL(), cluster.URL(), faulttest.Trial{
			Forgets: true,
			Strike: func(*faulttest.Load) {
				for _, node := range cluster.Nodes {
					node.Kill()
				}
			},
			Mend: func() {
				for _, node := range cluster.Nodes {
					node.Restart()
				}
			},
		})
	})
}
