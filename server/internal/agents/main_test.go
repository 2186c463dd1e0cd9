package agents

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var (
	program string // the built weir
	scripts string // where the scripts and the packages are
)

func TestMain(m *testing.M) {
	code, err := prepareAndRun(m)
	if err != nil {
		log.Print(err)
		code = 1
	}
	os.Exit(code)
}

func prepareAndRun(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "weir-agents-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	var building sync.WaitGroup
	var built error
	program, scripts = filepath.Join(dir, "weir"), dir
	building.Go(func() {
		build := exec.Command("go", "build", "-o", program, "./server/cmd/weir")
		build.Dir = "../../.."
		build.Env = append(os.Environ(), "GOWORK=") // the workspace has the server
		built = output(build)
	})
	err = os.CopyFS(dir, os.DirFS("testdata"))
	if err == nil {
		err = output(exec.Command("npm", "install", "--prefix", dir, "--ignore-scripts", "--no-audit", "--no-fund"))
	}
	building.Wait()
	if err = errors.Join(err, built); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

func output(command *exec.Cmd) error {
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", command.Args, err, out)
	}
	return nil
}

var listensAt = regexp.MustCompile(`gateway +(http://\S+)`)

// gateway starts weir serve with rules before a server, and returns its URL.
func gateway(t *testing.T, rules, upstream string, args ...string) (url string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"serve", "--http", "127.0.0.1:0", "--gateway", "127.0.0.1:0", "--config", file, "--upstream", upstream}, args...)
	command := exec.Command(program, args...)
	var failures strings.Builder
	command.Stderr = &failures
	lines := started(t, command)
	for lines.Scan() {
		if found := listensAt.FindStringSubmatch(lines.Text()); found != nil {
			go io.Copy(io.Discard, drained{lines}) // the program must not wait for a reader
			return found[1]
		}
	}
	t.Fatalf("weir serve ended: %s", failures.String())
	return ""
}

// drained reads lines to their end.
type drained struct{ lines *bufio.Scanner }

func (d drained) Read([]byte) (int, error) {
	for d.lines.Scan() {
	}
	return 0, io.EOF
}

// started starts a command that ends with the test, and returns the lines that it writes.
func started(t *testing.T, command *exec.Cmd) *bufio.Scanner {
	t.Helper()
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
	})
	return bufio.NewScanner(out)
}

// redis starts a Redis, and returns its URL.
func redis(t *testing.T) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().(*net.TCPAddr)
	l.Close()
	command := exec.Command("redis-server", "--port", strconv.Itoa(address.Port), "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir())
	lines := started(t, command)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "Ready to accept connections") {
			go io.Copy(io.Discard, drained{lines})
			return "redis://" + address.String()
		}
	}
	t.Fatal("redis-server ended")
	return ""
}

// node starts a server of the SDK for TypeScript, and returns its URL.
func node(t *testing.T, version string) (url string) {
	t.Helper()
	command := exec.Command("node", filepath.Join(scripts, "server.mjs"), version)
	command.Stderr = os.Stderr
	lines := started(t, command)
	if !lines.Scan() {
		t.Fatal("the server ended")
	}
	return "http://127.0.0.1:" + lines.Text()
}

// callsOf are the calls of a tool that a server has counted.
func callsOf(t *testing.T, server, tool string) int {
	t.Helper()
	r, err := http.Get(server + "/calls")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var calls map[string]int
	if err := json.NewDecoder(r.Body).Decode(&calls); err != nil {
		t.Fatal(err)
	}
	return calls[tool]
}

// patience is how long a test waits for what never ends.
const patience = time.Minute
