// Package ratelimittest runs rate limit services in tests: the real envoyproxy/ratelimit, and weir in its place. Both
// are started by the same environment variables, on the same ports, with the same Redis.
package ratelimittest

import (
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
)

// service is the main package of the real service, in the version of real/go.mod. That module stands apart from the
// workspace, so that its requirements change no version of what is shipped.
const service = "github.com/envoyproxy/ratelimit/src/service_cmd"

// Real is the program of the real service. WEIR_RATELIMIT names it; with "build" it is built from its module, which
// takes a minute the first time. Without the variable the test is skipped.
func Real(t testing.TB) string {
	t.Helper()
	given := os.Getenv("WEIR_RATELIMIT")
	if given == "" {
		t.Skip("WEIR_RATELIMIT is not set: it names a built envoyproxy/ratelimit, or is \"build\"")
	}
	if given == "build" {
		return build(t)
	}
	return given
}

func build(t testing.TB) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "service")
	command := exec.Command("go", "build", "-o", program, service)
	command.Dir = "../ratelimittest/real" // of any package beside this one
	command.Env = append(os.Environ(), "GOWORK=off")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", service, err, out)
	}
	return program
}

// A Place is what services need that take turns: ports, a Redis, and files of configuration.
type Place struct {
	GRPC, HTTP, Debug string // host:port
	Config            string // folder of the files

	t   testing.TB
	env []string
}

// NewPlace writes the files, by name, and chooses free ports. More variables, such as LOG_LEVEL=debug, come after those
// of the place.
func NewPlace(t testing.TB, redis string, files map[string]string, env ...string) *Place {
	t.Helper()
	root := t.TempDir()
	p := &Place{t: t, Config: filepath.Join(root, "ratelimit", "config")}
	if err := os.MkdirAll(p.Config, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(p.Config, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p.env = []string{"RUNTIME_ROOT=" + root, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false",
		"USE_STATSD=false", "DISABLE_STATS=true", "LOG_LEVEL=warn", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis,
		"REDIS_TIMEOUT=5s", "WEIR_HTTP=127.0.0.1:0"} // a busy machine is not an outage
	for _, at := range []struct {
		address *string
		prefix  string
	}{{&p.GRPC, "GRPC_"}, {&p.HTTP, ""}, {&p.Debug, "DEBUG_"}} {
		port := strconv.Itoa(redistest.FreePort(t))
		*at.address = net.JoinHostPort("127.0.0.1", port)
		p.env = append(p.env, at.prefix+"HOST=127.0.0.1", at.prefix+"PORT="+port)
	}
	p.env = append(p.env, env...)
	return p
}

// A Service is a process at a place.
type Service struct {
	place   *Place
	command *exec.Cmd
	ended   chan struct{}
	log     redistest.Log
}

// Log is what the service has written.
func (s *Service) Log() string { return s.log.String() }

// Start starts a program, which ends with the test at the latest. It does not wait: see [Service.Await].
func (p *Place) Start(program string) *Service {
	p.t.Helper()
	s := &Service{place: p, command: exec.Command(program), ended: make(chan struct{})}
	s.command.Env, s.command.Stdout, s.command.Stderr = p.env, &s.log, &s.log
	s.command.SysProcAttr = redistest.DieWithParent()
	if err := s.command.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		s.command.Wait()
		close(s.ended)
	}()
	p.t.Cleanup(func() {
		s.command.Process.Kill()
		<-s.ended
		if p.t.Failed() {
			p.t.Logf("log of %s:\n%s", program, s.Log())
		}
	})
	return s
}

// Await waits until the service says that it is healthy.
func (s *Service) Await() {
	s.place.t.Helper()
	redistest.Await(s.place.t, "a healthy rate limit service", func() bool {
		if s.Ended() {
			s.place.t.Fatalf("the service has ended: %v\n%s", s.command.ProcessState, s.Log())
		}
		return s.healthy() == nil
	})
}

func (s *Service) healthy() error {
	response, err := http.Get("http://" + s.place.HTTP + "/healthcheck")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// Ended says whether the process has ended.
func (s *Service) Ended() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// Stop ends the service as an orchestrator does, and waits for its end.
func (s *Service) Stop() {
	s.place.t.Helper()
	s.command.Process.Signal(syscall.SIGTERM)
	redistest.Await(s.place.t, "the end of the service", s.Ended)
	if code := s.command.ProcessState.ExitCode(); code != 0 {
		s.place.t.Errorf("the service ended with %v\n%s", s.command.ProcessState, s.Log())
	}
}
