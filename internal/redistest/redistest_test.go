//go:build unix

package redistest_test

import (
	"strconv"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
)

func TestServer(t *testing.T) {
	s := redistest.Start(t, "--maxmemory", "10mb")
	s.Do("SET", "k", "v")
	if got := s.Do("CONFIG", "GET", "maxmemory").([]any)[1]; got != "10485760" {
		t.Errorf("maxmemory is %v", got)
	}
	s.Stop()
	s.Cont()
	if got := s.Do("GET", "k"); got != "v" {
		t.Errorf("after Stop and Cont the key is %v", got)
	}
	before := s.Addr()
	s.Restart()
	if got := s.Do("GET", "k"); got != nil || s.Addr() != before {
		t.Errorf("after Restart the key is %v and the address %s, was %s", got, s.Addr(), before)
	}
}

func TestServersOfOtherKinds(t *testing.T) {
	if got := redistest.StartUnix(t).Do("PING"); got != "PONG" {
		t.Errorf("unix socket: %v", got)
	}
	if got := redistest.StartTLS(t).Do("PING"); got != "PONG" {
		t.Errorf("TLS: %v", got)
	}
	redistest.StartACL(t, "ann", "p@ss:/?#%")
}

// TestFreePortIsGivenOnce: a server that is killed finds its port free when it starts again.
func TestFreePortIsGivenOnce(t *testing.T) {
	given := make(map[int]bool)
	for range 300 { // of 10,000: about four would be given twice
		port := redistest.FreePort(t)
		if given[port] {
			t.Errorf("port %d is given twice", port)
		}
		given[port] = true
	}
}

func TestCluster(t *testing.T) {
	c := redistest.StartCluster(t, 3, 1)
	if first, last := c.Owner(0), c.Owner(16383); first != c.Nodes[0] || last != c.Nodes[2] {
		t.Errorf("slot 0 is with %s and slot 16383 with %s", first.Addr(), last.Addr())
	}
	slot := int(c.Nodes[0].Do("CLUSTER", "KEYSLOT", "k").(int64))
	from, to := c.Owner(slot), c.Owner((slot+slots/2)%slots)
	from.Do("SET", "k", "v")
	c.MoveSlot(slot, to)
	if got := to.Do("GET", "k"); got != "v" {
		t.Errorf("the key of a moved slot is %v", got)
	}
	if c.Owner(slot) != to {
		t.Error("slot " + strconv.Itoa(slot) + " has not moved")
	}
	replica := c.Nodes[3]
	c.Failover(replica)
	c.Settle(3)
	if got := c.Nodes[0].Role() + " " + replica.Role(); got != "slave master" {
		t.Errorf("after a failover the two are %s", got)
	}
	c.Nodes[1].Kill()
	if got := c.Nodes[1].Role(); got != "" {
		t.Errorf("a dead node is a %s", got)
	}
}

const slots = 16384

func TestSentinel(t *testing.T) {
	s := redistest.StartSentinel(t)
	if s.Master() != s.Servers[0] {
		t.Error("the master is not the first server")
	}
	s.Servers[0].Kill()
	redistest.Await(t, "a new master", func() bool { return s.Master() == s.Servers[1] })
	s.Servers[0].Restart()
	s.Settle()
	roles := s.Servers[0].Role() + " " + s.Servers[1].Role()
	if roles != "slave master" && roles != "master slave" { // a busy machine fails over once more
		t.Errorf("after a failover the two are %s", roles)
	}
	before := s.Master()
	s.Failover()
	if s.Master() == before {
		t.Error("the failover by command had no effect")
	}
}
