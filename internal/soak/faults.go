//go:build unix

package main

import (
	"math/rand/v2"
	"testing"

	"github.com/weirproject/weir/internal/faulttest"
	"github.com/weirproject/weir/internal/redisslot"
	"github.com/weirproject/weir/internal/redistest"
)

type (
	trial = faulttest.Trial
	load  = faulttest.Load
)

func single(h testing.TB) *stage {
	server := redistest.Start(h)
	config := func(name, bad, good string) func() trial {
		return func() trial {
			return trial{
				Strike: func(*load) { server.Do("CONFIG", "SET", name, bad) },
				Mend:   func() { server.Do("CONFIG", "SET", name, good) },
			}
		}
	}
	return &stage{"server", server.URL(), []fault{
		{"frozen", func() trial { return trial{Strike: func(*load) { server.Stop() }, Mend: server.Cont} }},
		{"restarted empty", func() trial {
			return trial{Strike: func(*load) { server.Kill() }, Mend: server.Restart, Forgets: true}
		}},
		{"out of memory", config("maxmemory", "1", "0")},
		{"too few replicas", config("min-replicas-to-write", "1", "0")},
		{"read-only", func() trial {
			return trial{
				Strike: func(*load) { server.Do("REPLICAOF", "127.0.0.1", "1") },
				Mend:   func() { server.Do("REPLICAOF", "NO", "ONE") },
			}
		}},
		{"scripts flushed", func() trial {
			return trial{Unnoticed: true, Strike: func(*load) {
				for range 200 {
					server.Do("SCRIPT", "FLUSH")
				}
			}}
		}},
	}, func() {}}
}

const masters = 3

func cluster(h testing.TB, random *rand.Rand) *stage {
	c := redistest.StartCluster(h, masters, 1)
	pick := func(role string) *redistest.Server {
		for {
			if node := c.Nodes[random.IntN(len(c.Nodes))]; node.Role() == role {
				return node
			}
		}
	}
	return &stage{"Cluster", c.URL(), []fault{
		{"master killed", func() trial {
			master := pick("master")
			return trial{Forgets: true, Strike: func(*load) { master.Kill() }, Lasts: healed(c.Nodes, masters),
				Mend: master.Restart}
		}},
		{"master frozen", func() trial {
			master := pick("master")
			return trial{Forgets: true, Strike: func(*load) { master.Stop() },
				Lasts: healed(without(c.Nodes, master), masters), Mend: master.Cont}
		}},
		{"failover by command", func() trial {
			replica := pick("slave")
			return trial{Unnoticed: true, Strike: func(*load) { c.Failover(replica) }}
		}},
		{"slots moved", func() trial {
			return trial{Unnoticed: true, Strike: func(l *load) {
				for _, key := range l.Keys()[:16] {
					c.MoveSlot(int(redisslot.Of(key)), pick("master"))
				}
			}}
		}},
		{"scripts flushed", func() trial {
			return trial{Unnoticed: true, Strike: func(*load) {
				for _, node := range c.Nodes {
					node.Do("SCRIPT", "FLUSH")
				}
			}}
		}},
	}, func() { c.Settle(masters) }}
}

func sentinel(h testing.TB) *stage {
	s := redistest.StartSentinel(h)
	return &stage{"Sentinel", s.URL(), []fault{
		{"master killed", func() trial {
			master := s.Master()
			return trial{Forgets: true, Strike: func(*load) { master.Kill() },
				Lasts: healed(without(s.Servers, master), 1), Mend: master.Restart}
		}},
		{"master frozen", func() trial {
			master := s.Master()
			return trial{Forgets: true, Strike: func(*load) { master.Stop() },
				Lasts: healed(without(s.Servers, master), 1), Mend: master.Cont}
		}},
		{"master restarted empty", func() trial {
			master := s.Master()
			return trial{Forgets: true, Unnoticed: true, Strike: func(*load) { master.Restart() }}
		}},
		{"failover by command", func() trial {
			return trial{Forgets: true, Unnoticed: true, Strike: func(*load) { s.Failover() }}
		}},
	}, s.Settle}
}

func without(servers []*redistest.Server, one *redistest.Server) (others []*redistest.Server) {
	for _, server := range servers {
		if server != one {
			others = append(others, server)
		}
	}
	return others
}

// healed reports whether the number of masters is back to want.
func healed(servers []*redistest.Server, want int) func() bool {
	return func() bool {
		n := 0
		for _, server := range servers {
			if server.Role() == "master" {
				n++
			}
		}
		return n == want
	}
}
