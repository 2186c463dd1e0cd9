//go:build unix

package redistest

import (
	"net"
	"strconv"
	"strings"
	"testing"
)

const slots = 16384

// A Cluster is a Redis Cluster whose masters share the slots evenly.
type Cluster struct {
	t     testing.TB
	Nodes []*Server // the masters, then their replicas in turn
}

// StartCluster starts masters, each with a number of replicas, and waits until every node reports the cluster
// as healthy. It takes about three seconds: a master waits two before it takes part. A silent master is missed after 15
// seconds, so that a busy machine does not bring the cluster down, and with replicas it is replaced after a second as
// soon as the cluster is healthy. args are further arguments of each redis-server.
func StartCluster(t testing.TB, masters, replicas int, args ...string) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	for range masters * (1 + replicas) {
		c.Nodes = append(c.Nodes, startNode(t, args))
	}
	c.meet(masters)
	for i, node := range c.Nodes[masters:] {
		master := c.Nodes[i%masters].id()
		Await(t, "a replica to know its master", func() bool {
			reply, _ := node.Try("CLUSTER", "REPLICATE", master)
			return reply == "OK"
		})
	}
	Await(t, "cluster_state:ok on all nodes", func() bool { return c.inOrder(masters) })
	if replicas > 0 {
		for _, node := range c.Nodes {
			node.Do("CONFIG", "SET", "cluster-node-timeout", "1000")
		}
	}
	return c
}

func startNode(t testing.TB, args []string) *Server {
	t.Helper()
	return start(t, func(s *Server) {
		s.args = plain(s.port, "--cluster-enabled", "yes",
			"--cluster-node-timeout", "15000",
			"--repl-diskless-sync-delay", "0")
		s.args = append(s.args, args...)
	})
}

// meet distributes the slots and introduces every node to every other: gossip alone would need a second for
// each.
func (c *Cluster) meet(masters int) {
	for i, node := range c.Nodes { // refused once a node knows another
		node.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	for i, node := range c.Nodes {
		if i < masters {
			node.Do(append([]string{"CLUSTER", "ADDSLOTS"}, numbers(i*slots/masters, (i+1)*slots/masters)...)...)
		}
		for _, other := range c.Nodes[i+1:] {
			node.Do("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(other.port))
		}
	}
}

// numbers are those from first to last, exclusive.
func numbers(first, last int) (words []string) {
	for n := first; n < last; n++ {
		words = append(words, strconv.Itoa(n))
	}
	return words
}

func (s *Server) id() string { return s.Do("CLUSTER", "MYID").(string) }

func (c *Cluster) inOrder(masters int) bool {
	for i, node := range c.Nodes {
		info := fields(node.Do("CLUSTER", "INFO").(string))
		if info["cluster_state"] != "ok" || info["cluster_known_nodes"] != strconv.Itoa(len(c.Nodes)) {
			return false
		}
		if i >= masters && node.Info("replication")["master_link_status"] != "up" {
			return false
		}
	}
	return true
}

// Settle waits until the cluster is healthy again: all nodes run, all slots are owned, all replicas are in
// sync.
func (c *Cluster) Settle(masters int) {
	c.t.Helper()
	Await(c.t, "a healthy cluster", func() bool { return c.settled(masters) })
}

func (c *Cluster) settled(masters int) bool {
	for _, node := range c.Nodes {
		reply, err := node.Try("CLUSTER", "INFO")
		if err != nil || fields(reply.(string))["cluster_state"] != "ok" {
			return false
		}
		switch node.Role() {
		case "master":
			masters--
		case "slave":
			if !node.follows() {
				return false
			}
		}
	}
	return masters == 0
}

// URL is redis+cluster:// and the addresses of all nodes.
func (c *Cluster) URL() string {
	return "redis+cluster://" + strings.Join(addresses(c.Nodes), ",")
}

func addresses(servers []*Server) []string {
	addrs := make([]string, len(servers))
	for i, server := range servers {
		addrs[i] = server.Addr()
	}
	return addrs
}

// Owner is the master of a slot, according to the first node that answers.
func (c *Cluster) Owner(slot int) *Server {
	c.t.Helper()
	for _, node := range c.Nodes {
		reply, err := node.Try("CLUSTER", "SLOTS")
		if err != nil {
			continue
		}
		for _, one := range reply.([]any) {
			row := one.([]any)
			if row[0].(int64) <= int64(slot) && int64(slot) <= row[1].(int64) {
				return c.byPort(row[2].([]any)[1].(int64))
			}
		}
	}
	c.t.Fatalf("redistest: no node owns slot %d", slot)
	return nil
}

// Failover promotes a replica by agreement with its master, and waits until all nodes know.
func (c *Cluster) Failover(replica *Server) {
	c.t.Helper()
	replica.Do("CLUSTER", "FAILOVER")
	id := replica.id()
	Await(c.t, "a failover by command", func() bool {
		for _, node := range c.Nodes {
			if !node.knowsOwner(id) {
				return false
			}
		}
		return true
	})
}

// knowsOwner reports whether a node knows that another, or itself, is a master that holds slots. An equal epoch says
// less: masters have it as soon as they are asked for their vote.
func (s *Server) knowsOwner(id string) bool {
	for line := range strings.Lines(s.Do("CLUSTER", "NODES").(string)) {
		if words := strings.Fields(line); len(words) > 8 && words[0] == id {
			return strings.Contains(words[2], "master")
		}
	}
	return false
}

func (c *Cluster) byPort(port int64) *Server {
	for _, node := range c.Nodes {
		if int64(node.port) == port {
			return node
		}
	}
	c.t.Fatalf("redistest: no node has port %d", port)
	return nil
}

// MoveSlot moves a slot and its keys to another master, as a reshard does.
func (c *Cluster) MoveSlot(slot int, to *Server) {
	c.t.Helper()
	c.OpenMove(slot, to)()
}

// OpenMove begins to move a slot: the owner redirects requests for keys that it lacks to the target (ASK).
// finish moves the keys and the ownership (MOVED).
func (c *Cluster) OpenMove(slot int, to *Server) (finish func()) {
	c.t.Helper()
	from, number := c.Owner(slot), strconv.Itoa(slot)
	if from == to {
		return func() {}
	}
	Await(c.t, "all nodes to know the last move", c.sameEpoch)
	to.Do("CLUSTER", "SETSLOT", number, "IMPORTING", from.id())
	from.Do("CLUSTER", "SETSLOT", number, "MIGRATING", to.id())
	return func() {
		c.t.Helper()
		from.migrate(number, to)
		for _, node := range append([]*Server{to, from}, c.Nodes...) { // the new owner first
			if node.Info("replication")["role"] == "master" {
				node.Do("CLUSTER", "SETSLOT", number, "NODE", to.id())
			}
		}
	}
}

// sameEpoch reports whether all nodes know the last move. A master that does not would take the next slot with
// an epoch that is not new, and lose it to its old owner's next ping.
func (c *Cluster) sameEpoch() bool {
	epochs := make(map[string]bool)
	for _, node := range c.Nodes {
		epochs[fields(node.Do("CLUSTER", "INFO").(string))["cluster_current_epoch"]] = true
	}
	return len(epochs) == 1
}

func (s *Server) migrate(slot string, to *Server) {
	s.t.Helper()
	for {
		keys := s.Do("CLUSTER", "GETKEYSINSLOT", slot, "1000").([]any)
		if len(keys) == 0 {
			return
		}
		host, port, _ := net.SplitHostPort(to.Addr())
		command := []string{"MIGRATE", host, port, "", "0", "5000", "KEYS"}
		for _, key := range keys {
			command = append(command, key.(string))
		}
		s.Do(command...)
	}
}
