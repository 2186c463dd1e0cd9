//go:build unix

package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// MasterName is the name of the master in the Sentinels.
const MasterName = "mymaster"

const sentinels = 3

// A Sentinel is a master with a replica, watched by three Sentinels that declare it down after half a second.
type Sentinel struct {
	t         testing.TB
	Servers   []*Server // the first was the master at the start
	Sentinels []*Server
}

// StartSentinel starts all servers and waits until the Sentinels know each other and the replica. args are for
// the master and the replica.
func StartSentinel(t testing.TB, args ...string) *Sentinel {
	t.Helper()
	s := &Sentinel{t: t}
	master := Start(t, append([]string{"--repl-diskless-sync-delay", "0"}, args...)...)
	s.Servers = []*Server{master, StartReplica(t, master, args...)}
	for range sentinels {
		s.Sentinels = append(s.Sentinels, startSentinel(t, master))
	}
	Await(t, "the Sentinels to know each other", s.inOrder)
	return s
}

func startSentinel(t testing.TB, master *Server) *Server {
	t.Helper()
	return start(t, func(s *Server) {
		config := filepath.Join(s.dir, "sentinel.conf") // Sentinel rewrites it
		text := fmt.Sprintf("port %d\nsentinel monitor %s 127.0.0.1 %d 2\n"+
			"sentinel down-after-milliseconds %[2]s 500\nsentinel failover-timeout %[2]s 3000\n",
			s.port, MasterName, master.port)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.args = []string{config, "--sentinel"}
	})
}

func (s *Sentinel) inOrder() bool {
	for _, sentinel := range s.Sentinels {
		state := make(map[any]any)
		pairs := sentinel.Do("SENTINEL", "MASTER", MasterName).([]any)
		for i := 0; i+1 < len(pairs); i += 2 {
			state[pairs[i]] = pairs[i+1]
		}
		if state["num-slaves"] != "1" || state["num-other-sentinels"] != strconv.Itoa(sentinels-1) {
			return false
		}
	}
	return true
}

// Settle waits until one server is in sync with the other, and the Sentinels name that one. A replaced master
// that comes back is made a replica after about ten seconds.
func (s *Sentinel) Settle() {
	s.t.Helper()
	Await(s.t, "the replica to follow its master", func() bool {
		master := s.Master()
		for _, server := range s.Servers {
			if server != master && !server.follows() || server == master && server.Role() != "master" {
				return false
			}
		}
		return true
	})
}

// URL finds the master through the Sentinels: redis+sentinel://…/mymaster/0.
func (s *Sentinel) URL() string {
	return "redis+sentinel://" + strings.Join(addresses(s.Sentinels), ",") + "/" + MasterName + "/0"
}

// Failover has the Sentinels promote the replica, and waits for it. They refuse without recent knowledge of the
// replica, so each is tried in turn until one accepts.
func (s *Sentinel) Failover() {
	s.t.Helper()
	before, tries, begun := s.Master(), 0, false
	Await(s.t, "a failover by command", func() bool {
		if !begun {
			_, err := s.Sentinels[tries%sentinels].Try("SENTINEL", "FAILOVER", MasterName)
			begun = err == nil
			tries++
		}
		return s.Master() != before
	})
}

// Master is the master according to the first Sentinel.
func (s *Sentinel) Master() *Server {
	s.t.Helper()
	addr := s.Sentinels[0].Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName).([]any)
	for _, server := range s.Servers {
		if strconv.Itoa(server.port) == addr[1] {
			return server
		}
	}
	s.t.Fatalf("redistest: the Sentinels name a master at %v that is none of this test's", addr)
	return nil
}
