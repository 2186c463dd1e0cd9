package redisconn

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirproject/weir/internal/redisslot"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/respguard"
)

// TestClusterConn shares one Cluster, which takes seconds to start.
func TestClusterConn(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	c := open(t, cluster.URL(), Config{})
	for name, test := range map[string]func(*testing.T, *redistest.Cluster, *rueidisConn){
		"all slots": testAllSlots, "moved": testMoved, "moving": testMoving, "flush": testClusterFlush,
		"unlisted": testUnlisted, "unbound": testUnbound,
	} {
		t.Run(name, func(t *testing.T) { test(t, cluster, c) })
	}
	t.Run("detour", func(t *testing.T) { testDetour(t, cluster, c) })            // it cuts clients off
	t.Run("failover", func(t *testing.T) { testClusterFailover(t, cluster, c) }) // last: it kills a node
}

func testAllSlots(t *testing.T, cluster *redistest.Cluster, c *rueidisConn) {
	keys := make([]string, 100)
	for i := range keys {
		keys[i] = "all" + strconv.Itoa(i)
		if got := mustRun(t, c, keys[i]); got != 1 {
			t.Errorf("the first charge of %s counts %d", keys[i], got)
		}
	}
	if err := c.Delete(t.Context(), keys); err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if got := mustRun(t, c, key); got != 1 {
			t.Errorf("after Delete %s counts %d", key, got)
		}
	}
}

// otherOwner is a master that does not hold the key.
func otherOwner(cluster *redistest.Cluster, key string) *redistest.Server {
	slot := int(redisslot.Of(key))
	for i := 1; ; i++ {
		if other := cluster.Owner((slot + i*redisslot.Count/16) % redisslot.Count); other != cluster.Owner(slot) {
			return other
		}
	}
}

func testMoved(t *testing.T, cluster *redistest.Cluster, c *rueidisConn) {
	mustRun(t, c, "moved")
	to := otherOwner(cluster, "moved")
	to.Do("SCRIPT", "FLUSH")
	cluster.MoveSlot(int(redisslot.Of("moved")), to)
	if got := mustRun(t, c, "moved"); got != 2 {
		t.Errorf("after a move the charge counts %d, want 2", got)
	}
}

// unlisting is a client that does not list a node, as rueidis leaves out a node of its URL that was no part of the
// Cluster, or a replica that was not in sync, when it last looked.
type unlisting struct {
	rueidis.Client
	addr string
}

func (u unlisting) Nodes() map[string]rueidis.Client {
	nodes := u.Client.Nodes()
	delete(nodes, u.addr)
	return nodes
}

// testUnlisted has a slot move to such a node, which does not know the script.
func testUnlisted(t *testing.T, cluster *redistest.Cluster, c *rueidisConn) {
	mustRun(t, c, "unlisted")
	to := otherOwner(cluster, "unlisted")
	whole := c.live.Load()
	c.live.Store(&library{unlisting{whole.Client, to.Addr()}})
	defer c.live.Store(whole)
	cluster.MoveSlot(int(redisslot.Of("unlisted")), to)
	to.Do("SCRIPT", "FLUSH")
	if got := mustRun(t, c, "unlisted"); got != 2 {
		t.Errorf("after a move the charge counts %d, want 2", got)
	}
}

// testUnbound has the old owner of a slot forget the new one: it answers "Hash slot not served", as a node does that
// has not heard yet who took over. Other nodes know.
func testUnbound(t *testing.T, cluster *redistest.Cluster, c *rueidisConn) {
	mustRun(t, c, "unbound")
	slot := int(redisslot.Of("unbound"))
	from := cluster.Owner(slot)
	defer cluster.Settle(3) // it hears of the new owner, and is not down any more
	cluster.MoveSlot(slot, otherOwner(cluster, "unbound"))
	from.Do("CLUSTER", "DELSLOTS", strconv.Itoa(slot))
	if got := detoured(t, c, "unbound"); got != 2 {
		t.Errorf("after a move the charge counts %d, want 2", got)
	}
}

// detoured runs charge, whose detours may all happen to lead to the node that they should avoid.
func detoured(t *testing.T, c *rueidisConn, key string) int64 {
	var got []Value
	strayed := 0
	redistest.Await(t, "another node to say who holds the slot", func() bool {
		var err error
		got, err = run(t, c, key)
		if err != nil && !strings.Contains(err.Error(), ErrPerhapsExecuted.Error()) {
			if strayed++; strayed > 10 {
				t.Fatal(err)
			}
		}
		return err == nil
	})
	return got[0].Int
}

// testMoving asks in the middle of a move, for a key that has moved (ASK) to a node that
// does not know the script, and for one that has not.
func testMoving(t *testing.T, cluster *redistest.Cluster, c *rueidisConn) {
	const stays, moves = "{moving}stays", "{moving}moves"
	mustRun(t, c, stays)
	to := otherOwner(cluster, moves)
	to.Do("SCRIPT", "FLUSH")
	finish := cluster.OpenMove(int(redisslot.Of(moves)), to)
	for i := range 2 {
		if got := mustRun(t, c, moves); got != int64(i+1) {
			t.Errorf("charge %d of a key on its new node counts %d", i+1, got)
		}
		if got := mustRun(t, c, stays); got != int64(i+2) {
			t.Errorf("charge %d of a key on its old node counts %d", i+2, got)
		}
	}
	finish()
	if got := mustRun(t, c, moves) + mustRun(t, c, stays); got != 3+4 {
		t.Errorf("after the move the charges count %d together, want 7", got)
	}
}

func testClusterFlush(t *testing.T, cluster *redistest.Cluster, c *rueidisConn) {
	for _, node := range cluster.Nodes {
		node.Do("SCRIPT", "FLUSH")
	}
	var wg sync.WaitGroup
	for i := range 128 {
		wg.Go(func() {
			if _, err := run(t, c, "flush"+strconv.Itoa(i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// testClusterFailover kills a master. The others go on; its slots come back with its
// replica, which does not know the script.
func testClusterFailover(t *testing.T, cluster *redistest.Cluster, c *rueidisConn) {
	dead := cluster.Owner(int(redisslot.Of("failover")))
	mustRun(t, c, "failover")
	for _, node := range cluster.Nodes {
		node.Do("SCRIPT", "FLUSH")
	}
	dead.Kill()
	redistest.Await(t, "the replica to take over", func() bool {
		return timedRun(t, c, "failover") == nil
	})
	redistest.Await(t, "all nodes to know", func() bool { return cluster.Owner(int(redisslot.Of("failover"))) != dead })
}

// testDetour has a node lose a slot to its replica, and be out of reach, before the client
// has heard of it: another node says who holds the slot now. That one lacks the script.
func testDetour(t *testing.T, cluster *redistest.Cluster, c *rueidisConn) {
	old := cluster.Owner(int(redisslot.Of("detour")))
	replica := cluster.Nodes[slices.Index(cluster.Nodes, old)+3]
	mustRun(t, c, "detour")
	cluster.Failover(replica)
	replica.Do("SCRIPT", "FLUSH")
	refused := &attempt{done: make(chan struct{}), err: errFar, ended: time.Now().Add(time.Hour)}
	close(refused.done)
	c.dialer.mu.Lock()
	c.dialer.attempts[old.Addr()] = refused
	c.dialer.mu.Unlock()
	old.Do("CLIENT", "KILL", "TYPE", "normal")
	if got := detoured(t, c, "detour"); got < 2 {
		t.Errorf("the second charge, or a later, counts %d", got)
	}
}

// TestSentinelConn opens the master by its Sentinels, as a user of theirs, and follows it when it dies.
func TestSentinelConn(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t)
	const password = "p@ss"
	for _, sentinel := range s.Sentinels {
		sentinel.Do("ACL", "SETUSER", "ann", "on", ">"+password, "~*", "&*", "+@all")
	}
	c := open(t, s.URL()+"?sentinel_user=ann&sentinel_password="+url.QueryEscape(password), Config{})
	mustRun(t, c, "k")
	var clients string
	for _, sentinel := range s.Sentinels {
		clients += sentinel.Do("CLIENT", "LIST").(string)
	}
	if !strings.Contains(clients, "user=ann") {
		t.Error("no Sentinel was asked as its user")
	}
	for address, want := range map[string]string{
		s.Sentinels[0].URL(): "redis+sentinel://",
		"redis+sentinel://" + s.Sentinels[0].Addr() + "/other": "No such master",
	} {
		if _, err := openConn(t.Context(), address, Config{}, respguard.Decisions); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
	s.Servers[0].Kill()
	redistest.Await(t, "the replica to take over", func() bool {
		return timedRun(t, c, "k") == nil
	})
	if s.Servers[1].Info("replication")["role"] != "master" {
		t.Error("another than the replica answered")
	}
}
