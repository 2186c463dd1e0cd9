//go:build unix

package faulttest_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redisslot"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/server/internal/faulttest"
)

var (
	soakFor  = flag.Duration("soak", 0, "how long TestSoak injects faults; 0: each of a server's once")
	soakRate = flag.Int("rate", 1000, "decisions a second of TestSoak on each kind of server")
	soakSeed = flag.Uint64("seed", 1, "seed of the order of faults of TestSoak")
)

// TestSoak injects faults at random, one after the other, into servers that live on, and so does the store:
//
//	go test ./server/internal/faulttest -run TestSoak -v -timeout 0 -args -soak 10m
//
// It logs a row for each fault, and what grows with a leak.
func TestSoak(t *testing.T) {
	t.Parallel()
	random := func(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(*soakSeed, stream)) }
	t.Log(faulttest.Columns)
	var sum soakSum
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		soakServer(t).run(t, random(0), &sum)
	})
	if *soakFor == 0 {
		return
	}
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		soakCluster(t, random(1)).run(t, random(2), &sum)
	})
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		soakSentinel(t).run(t, random(3), &sum)
	})
}

// A soakFault can be injected at any time.
type soakFault struct {
	name  string
	trial func() faulttest.Trial // called for each injection, because the master changes
}

// A soakStage is servers, and the URL of their store.
type soakStage struct {
	url    string
	faults []soakFault
	settle func() // waits until the servers are healthy again
}

func (s *soakStage) run(t *testing.T, random *rand.Rand, sum *soakSum) {
	store := open(t, s.url, redisstore.WithTimeout(budget))
	begun := time.Now()
	for i := 0; i < len(s.faults) && *soakFor == 0 || time.Since(begun) < *soakFor; i++ {
		f := s.faults[i%len(s.faults)]
		if *soakFor > 0 {
			f = s.faults[random.IntN(len(s.faults))]
		}
		trial := f.trial()
		trial.Rate = *soakRate / slower
		var exact *redisstore.Store
		patient := func() weir.Store {
			var err error
			exact, err = redisstore.Open(t.Context(), s.url, redisstore.WithWarn(nil),
				redisstore.WithTimeout(10*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			return exact
		}
		r, err := trial.Run(t.Context(), store, patient, fmt.Sprint(i, "-"), budget)
		t.Logf("%s\n%s", r.Row(f.name), sum.add(&r))
		if err != nil {
			t.Errorf("%s: %v\n%s", f.name, err, r.Texts())
		}
		if exact != nil {
			exact.Close()
		}
		s.settle()
	}
}

// A soakSum is of all servers.
type soakSum struct {
	mu                    sync.Mutex
	faults                int
	asked, degraded, late int64
}

func (s *soakSum) add(r *faulttest.Report) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults++
	s.asked, s.degraded, s.late = s.asked+r.Asked, s.degraded+r.Degraded, s.late+r.Late
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return fmt.Sprintf("%d faults, %d decisions, %d degraded, %d late; heap %.1f MB, %d goroutines",
		s.faults, s.asked, s.degraded, s.late, float64(m.HeapAlloc)/1e6, runtime.NumGoroutine())
}

// soakServer has the breakages of TestServer that need no server of their own.
func soakServer(t *testing.T) *soakStage {
	server, url := startWeir(t)
	s := &soakStage{url: url, settle: func() {}}
	for _, b := range breakages {
		if b.args == nil {
			s.faults = append(s.faults, soakFault{b.name, func() faulttest.Trial { return b.trial(t, server) }})
		}
	}
	return s
}

func soakCluster(t *testing.T, random *rand.Rand) *soakStage {
	const masters = 3
	c := redistest.StartCluster(t, masters, 1)
	pick := func(role string) *redistest.Server {
		for {
			if node := c.Nodes[random.IntN(len(c.Nodes))]; node.Role() == role {
				return node
			}
		}
	}
	unnoticed := func(strike func(*faulttest.Load)) func() faulttest.Trial {
		return func() faulttest.Trial { return faulttest.Trial{Unnoticed: true, Strike: strike} }
	}
	faults := append(soakMaster(c.Nodes, masters, func() *redistest.Server { return pick("master") }),
		soakFault{"FailoverByCommand", unnoticed(func(*faulttest.Load) { c.Failover(pick("slave")) })},
		soakFault{"SlotsMove", unnoticed(func(l *faulttest.Load) {
			for _, key := range l.Keys()[:16] {
				c.MoveSlot(int(redisslot.Of(key)), pick("master"))
			}
		})},
		soakFault{"ScriptsFlushed", unnoticed(func(*faulttest.Load) {
			for _, node := range c.Nodes {
				node.Do("SCRIPT", "FLUSH")
			}
		})})
	return &soakStage{c.URL(), faults, func() { c.Settle(masters) }}
}

func soakSentinel(t *testing.T) *soakStage {
	s := redistest.StartSentinel(t)
	forgets := func(strike func()) func() faulttest.Trial {
		return func() faulttest.Trial {
			return faulttest.Trial{Forgets: true, Unnoticed: true, Strike: func(*faulttest.Load) { strike() }}
		}
	}
	faults := append(soakMaster(s.Servers, 1, s.Master),
		soakFault{"MasterRestartedEmpty", forgets(func() { s.Master().Restart() })},
		soakFault{"FailoverByCommand", forgets(s.Failover)})
	return &soakStage{s.URL(), faults, s.Settle}
}

// soakMaster has a master fail until a replica has taken over.
func soakMaster(servers []*redistest.Server, masters int, pick func() *redistest.Server) []soakFault {
	takenOver := func(failed *redistest.Server) func() bool {
		return func() bool {
			n := 0
			for _, server := range servers {
				if server != failed && server.Role() == "master" {
					n++
				}
			}
			return n == masters
		}
	}
	return []soakFault{
		{"MasterKilled", func() faulttest.Trial {
			master := pick()
			return faulttest.Trial{Forgets: true, Strike: func(*faulttest.Load) { master.Kill() },
				Lasts: takenOver(master), Mend: master.Restart}
		}},
		{"MasterFrozen", func() faulttest.Trial {
			master := pick()
			return faulttest.Trial{Forgets: true, Strike: func(*faulttest.Load) { master.Stop() },
				Lasts: takenOver(master), Mend: master.Cont}
		}},
	}
}
