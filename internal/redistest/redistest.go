//go:build unix

// Package redistest starts real Redis servers for tests: single ones, a Cluster, a
// master with Sentinels; with TLS, ACL users or a Unix socket. Nothing here is a mock.
//
// Servers listen on loopback, keep their files in the test's temporary directory and
// are killed, by process id, when the test ends (on Linux also when it dies).
package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

const attempts = 10 // to find a free port

// A Server is one redis-server process.
type Server struct {
	t    testing.TB
	port int
	dir  string
	args []string
	dial func() (net.Conn, error)
	url  string

	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	out  bytes.Buffer  // what it printed; read only after done
}

// Start starts a server on a free loopback port, without persistence, and waits until it answers. args are
// further arguments of redis-server, such as "--maxmemory", "10mb".
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, func(s *Server) {
		s.args = plain(s.port, args...)
	})
}

func plain(port int, args ...string) []string {
	return append([]string{"--port", strconv.Itoa(port), "--save", "", "--appendonly", "no"}, args...)
}

// StartReplica is Start for a replica of another server, and waits until it is in sync. It is configured by
// command, so after a Restart it is a master: the other server may be its replica by then.
func StartReplica(t testing.TB, master *Server, args ...string) *Server {
	t.Helper()
	replica := Start(t, args...)
	replica.Do("REPLICAOF", "127.0.0.1", strconv.Itoa(master.port))
	Await(t, "the replica to follow its master", func() bool {
		return replica.Info("replication")["master_link_status"] == "up"
	})
	return replica
}

// StartUnix is Start for a server that listens on a Unix socket only.
func StartUnix(t testing.TB, args ...string) *Server {
	t.Helper()
	socket := filepath.Join(shortDir(t), "redis.sock")
	return start(t, func(s *Server) {
		s.args = append(plain(0, "--unixsocket", socket), args...)
		s.dial = func() (net.Conn, error) { return net.DialTimeout("unix", socket, time.Second) }
		s.url = "unix://" + socket
	})
}

// StartACL is Start for a server whose default user is off, with one user that has all permissions. URL carries
// no credentials.
func StartACL(t testing.TB, user, password string, args ...string) *Server {
	t.Helper()
	return Start(t, append([]string{
		"--user", "default", "off",
		"--user", user, "on", ">" + password, "~*", "&*", "+@all",
	}, args...)...)
}

// shortDir is a temporary directory with a path short enough for a Unix socket.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// start tries ports until a server runs on one. configure fills in its arguments and, if special, its URL and
// dialer.
func start(t testing.TB, configure func(*Server)) *Server {
	t.Helper()
	var err error
	for range attempts {
		port := FreePort(t)
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		s := &Server{t: t, port: port, dir: t.TempDir(), url: "redis://" + addr}
		s.dial = func() (net.Conn, error) { return net.DialTimeout("tcp", addr, patience) }
		configure(s)
		if err = s.run(); err == nil {
			t.Cleanup(s.Kill)
			return s
		}
	}
	t.Fatal(err)
	return nil
}

// FreePort is an unused port below the range of ephemeral ports, one of which could be lost before Restart. The
// port 10000 above it, the bus of a Cluster node, is outside of that range too. Until the end of the test no other
// test, of any process, is given it, also while nothing listens on it: the UDP port of the same number is held.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 11000 + rand.IntN(10000)
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		held, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		t.Cleanup(func() { held.Close() })
		l, err := net.Listen("tcp", addr)
		if err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("redistest: no free port between 11000 and 21000 on 127.0.0.1")
	return 0
}

// FreeAddr is host:port of a FreePort.
func FreeAddr(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(FreePort(t)))
}

// run starts the process and waits until it answers. On an error it is not running.
func (s *Server) run() error {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		s.t.Fatal("redistest: redis-server is not in PATH; install it with: apt-get install redis-server")
	}
	s.out.Reset()
	s.cmd = exec.Command(path, append(s.args, "--dir", s.dir)...)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	s.cmd.SysProcAttr = DieWithParent()
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("redistest: start redis-server: %w", err)
	}
	cmd, done := s.cmd, make(chan struct{})
	s.done = done
	go func() {
		cmd.Wait()
		close(done)
	}()
	return s.awaitPing()
}

func (s *Server) awaitPing() error {
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		if s.answers() {
			return nil
		}
		select {
		case <-s.done:
			return fmt.Errorf("redistest: redis-server ended at once:\n%s", s.out.Bytes())
		case <-time.After(2 * time.Millisecond):
		}
	}
	s.Kill()
	return fmt.Errorf("redistest: redis-server did not answer within %v:\n%s", patience, s.out.Bytes())
}

// answers reports whether this process answers, possibly by an authentication error. Another server may have taken the
// port first: then that one answers, and this one ends.
func (s *Server) answers() bool {
	answer, err := s.Try("INFO", "server")
	if text, ok := answer.(string); ok {
		return fields(text)["process_id"] == strconv.Itoa(s.cmd.Process.Pid)
	}
	var refusal Error
	return errors.As(err, &refusal)
}

// Addr is host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL is the server's address for redisstore: redis://127.0.0.1:port, or that of its kind.
func (s *Server) URL() string { return s.url }

// Stop freezes the process (SIGSTOP): connections stay open and nothing is answered.
func (s *Server) Stop() { s.signal(syscall.SIGSTOP) }

// Cont wakes a stopped process up.
func (s *Server) Cont() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("redistest: %v to redis-server: %v", sig, err)
	}
}

// Kill ends the process (SIGKILL) and waits for its end. Data is lost.
func (s *Server) Kill() {
	s.cmd.Process.Kill() // fails only if it has ended
	<-s.done
}

// Restart kills the process and starts a new one on the same port.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if err := s.run(); err != nil {
		s.t.Fatal(err)
	}
}
