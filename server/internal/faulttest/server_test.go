//go:build unix

package faulttest_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/server/internal/faulttest"
)

// breakage is a fault of one server that is commanded.
type breakage struct {
	name      string
	says      string
	args      []string // of the server
	strike    func(*testing.T, *redistest.Server)
	mend      func(*redistest.Server)
	unnoticed bool
	forgets   bool
}

func (b *breakage) trial(t *testing.T, server *redistest.Server) faulttest.Trial {
	f := faulttest.Trial{
		Rate: 3000, Says: b.says, Unnoticed: b.unnoticed, Forgets: b.forgets,
		Strike: func(*faulttest.Load) { b.strike(t, server) },
	}
	if b.mend != nil {
		f.Mend = func() { b.mend(server) }
	}
	return f
}

// closedPort is a port without a listener.
const closedPort = "1"

// set is a breakage that CONFIG SET makes and mends.
func set(name, says, parameter, bad, good string) breakage {
	return breakage{
		name: name, says: says,
		strike: func(_ *testing.T, s *redistest.Server) { s.Do("CONFIG", "SET", parameter, bad) },
		mend:   func(s *redistest.Server) { s.Do("CONFIG", "SET", parameter, good) },
	}
}

// acl is a breakage of the user weir.
func acl(name, says string, bad, good []string) breakage {
	setUser := func(s *redistest.Server, rules []string) {
		s.Do(append([]string{"ACL", "SETUSER", "weir"}, rules...)...)
	}
	return breakage{
		name: name, says: says,
		strike: func(_ *testing.T, s *redistest.Server) {
			setUser(s, bad)
			s.Do("CLIENT", "KILL", "USER", "weir")
		},
		mend: func(s *redistest.Server) { setUser(s, good) },
	}
}

var breakages = []breakage{
	set("OutOfMemory", "OOM", "maxmemory", "1", "0"),
	set("TooFewReplicas", "NOREPLICAS", "min-replicas-to-write", "1", "0"),
	acl("WrongPassword", "WRONGPASS", []string{"resetpass", ">other"}, []string{">secret"}),
	acl("WithoutEVALSHA", "NOPERM", []string{"-evalsha"}, []string{"+evalsha"}),
	{
		name:   "Frozen",
		strike: func(_ *testing.T, s *redistest.Server) { s.Stop() },
		mend:   (*redistest.Server).Cont,
	}, {
		name: "RestartedEmpty", forgets: true, says: "connection refused",
		strike: func(_ *testing.T, s *redistest.Server) { s.Kill() },
		mend:   (*redistest.Server).Restart,
	}, {
		// Restarted with older data: the grants since then are forgotten.
		name: "Loading", forgets: true, says: "LOADING",
		// It looks up from loading after each of the keys.
		args: []string{"--key-load-delay", "4000", "--loading-process-events-interval-bytes", "1024",
			"--rdbcompression", "no"},
		strike: func(t *testing.T, s *redistest.Server) {
			s.Do("EVAL", "for i = 1, 1000 do redis.call('SET', i, string.rep('x', 1024)) end", "0")
			s.Do("SAVE")
			s.Restart()
		},
		mend: func(s *redistest.Server) { s.Do("CONFIG", "SET", "key-load-delay", "0") },
	}, {
		name: "ReadOnly", says: "READONLY",
		strike: func(_ *testing.T, s *redistest.Server) { s.Do("REPLICAOF", "127.0.0.1", closedPort) },
		mend:   func(s *redistest.Server) { s.Do("REPLICAOF", "NO", "ONE") },
	}, {
		name: "MasterDown", says: "MASTERDOWN", args: []string{"--replica-serve-stale-data", "no"},
		strike: func(_ *testing.T, s *redistest.Server) { s.Do("REPLICAOF", "127.0.0.1", closedPort) },
		mend:   func(s *redistest.Server) { s.Do("REPLICAOF", "NO", "ONE") },
	}, {
		name: "BusyScript", says: "BUSY", args: []string{"--lua-time-limit", "10"},
		strike: func(_ *testing.T, s *redistest.Server) { go s.Try("EVAL", "while true do end", "0") },
		mend:   func(s *redistest.Server) { s.Do("SCRIPT", "KILL") },
	}, {
		name: "ScriptsFlushed", unnoticed: true,
		strike: func(_ *testing.T, s *redistest.Server) {
			for range 200 {
				s.Do("SCRIPT", "FLUSH")
			}
		},
	}, {
		name: "ConfigRenamed", unnoticed: true, args: []string{"--rename-command", "CONFIG", "hidden"},
		strike: func(_ *testing.T, s *redistest.Server) { s.Do("CLIENT", "KILL", "USER", "weir") },
	},
}

func startWeir(t *testing.T, args ...string) (s *redistest.Server, url string) {
	s = redistest.Start(t, append([]string{"--user", "weir", "on", ">secret", "~*", "&*", "+@all"}, args...)...)
	return s, strings.Replace(s.URL(), "redis://", "redis://weir:secret@", 1)
}

func TestServer(t *testing.T) {
	t.Parallel()
	for _, b := range breakages {
		t.Run(b.name, func(t *testing.T) {
			each(t, func(t *testing.T, s stack) {
				server, url := startWeir(t, b.args...)
				try(t, s, url, url, b.trial(t, server))
			})
		})
	}
}

// TestServerFull: Redis has no room for another connection after ours is lost.
func TestServerFull(t *testing.T) {
	each(t, func(t *testing.T, s stack) {
		server, url := startWeir(t)
		operator, err := net.Dial("tcp", server.Addr()) // another would not be let in
		if err != nil {
			t.Fatal(err)
		}
		defer operator.Close()
		try(t, s, url, url, faulttest.Trial{
			Rate: 3000, Says: "EOF",
			Strike: func(*faulttest.Load) {
				fmt.Fprint(operator, "CONFIG SET maxclients 1\r\nCLIENT KILL USER weir\r\n")
			},
			Mend: func() { fmt.Fprint(operator, "CONFIG SET maxclients 100\r\n") },
		})
	})
}
