package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/webtest"
)

// program is the built command: tests call it over real sockets. ending is the same for commands that end, without the
// race detector: they start no goroutines that share much, and would start ten times as slowly.
var program, ending string

func TestMain(m *testing.M) {
	redistest.Together("6")
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "weir-cli-")
	if err != nil {
		log.Print(err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "weir")
	ending = program
	err = build(program, built...)
	if err == nil && len(built) > 0 {
		ending = filepath.Join(dir, "ending", "weir")
		err = build(ending)
	}
	if err != nil {
		log.Print(err)
		return 1
	}
	return m.Run()
}

func build(name string, flags ...string) error {
	args := append([]string{"build", "-tags", "grpcnotrace", "-o", name}, flags...)
	command := exec.Command("go", append(args, "github.com/weirproject/weir/server/cmd/weir")...)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", command.Args, err, out)
	}
	return nil
}

// A ran command is what it left.
type ran struct {
	out, err string
	code     int
}

// A call is how the program is called, besides its arguments.
type call struct {
	dir   string
	env   []string
	in    string
	files []*os.File // from the descriptor 3 on
}

// run runs the program to its end.
func (c call) run(t *testing.T, args ...string) ran {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // where it should not start, and does
	defer cancel()
	command := exec.CommandContext(ctx, ending, args...)
	var out, failures bytes.Buffer
	command.Stdout, command.Stderr, command.Stdin = &out, &failures, strings.NewReader(c.in)
	command.Dir, command.Env = c.dir, c.environ()
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return ran{out.String(), failures.String(), command.ProcessState.ExitCode()}
}

// environ is that of the tests without what would change the program, and with c's.
func (c call) environ() []string {
	path := "PATH=" + filepath.Dir(program) + ":" + os.Getenv("PATH")
	return slices.Concat([]string{path, "HOME=" + os.TempDir()}, raceOf, c.env)
}

// A process is a weir serve that runs.
type process struct {
	t       *testing.T
	command *exec.Cmd
	banner  string
	ended   chan error
	log     redistest.Log
}

// logs is what the process wrote so far.
func (p *process) logs() string { return p.log.String() }

// serve starts weir serve with its API on a free port, and with seconds for Redis, which has none on a busy machine,
// unless the arguments say otherwise.
func (c call) serve(t *testing.T, args ...string) *process {
	t.Helper()
	if !strings.Contains(strings.Join(args, " ")+strings.Join(c.env, " "), "HTTP=") && !contains(args, "--http") {
		args = append(args, "--http", "127.0.0.1:0")
	}
	if contains(args, "--store") && !strings.Contains(strings.Join(args, " "), "server.store.timeout=") {
		args = append(args, "--set", "server.store.timeout=5s")
	}
	return c.start(t, program, append([]string{"serve"}, args...)...)
}

func contains(list []string, text string) bool {
	for _, one := range list {
		if one == text {
			return true
		}
	}
	return false
}

// start starts a server and waits until it says where it listens.
func (c call) start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{t: t, command: exec.Command(name, args...), ended: make(chan error, 1)}
	p.command.Dir, p.command.Env, p.command.Stderr = c.dir, c.environ(), &p.log
	p.command.ExtraFiles = c.files
	out, err := p.command.StdoutPipe()
	if err == nil {
		err = p.command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.command.Process.Kill() })
	read := make(chan bool)
	go func() {
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadString('\n')
			p.banner += line
			if err != nil || strings.HasPrefix(line, "    curl") || strings.HasPrefix(line, "    redis-cli") || strings.Contains(line, " serve --config ") {
				break
			}
		}
		close(read)
		io.Copy(io.Discard, lines)
		p.ended <- p.command.Wait()
	}()
	select {
	case <-read:
	case <-time.After(time.Minute):
		t.Fatalf("the server says nothing; its logs:\n%s", p.logs())
	}
	if !strings.Contains(p.banner, "\n  store ") {
		p.code()
		t.Fatalf("the server did not start:\n%s%s", p.banner, p.logs())
	}
	return p
}

// at is the address of a listener, as the banner says.
func (p *process) at(listener string) string {
	p.t.Helper()
	found := regexp.MustCompile(`(?m)^  ` + listener + ` +(\S+)`).FindStringSubmatch(p.banner)
	if found == nil {
		p.t.Fatalf("the banner has no listener %s:\n%s", listener, p.banner)
	}
	return found[1]
}

func (p *process) signal(signal syscall.Signal) {
	p.t.Helper()
	if err := p.command.Process.Signal(signal); err != nil {
		p.t.Fatal(err)
	}
}

// code waits for the end.
func (p *process) code() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		p.command.Process.Kill()
		p.t.Fatalf("the server does not end; its logs:\n%s", p.logs())
	}
	return p.command.ProcessState.ExitCode()
}

// end ends it in good order.
func (p *process) end() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.code(); code != 0 {
		p.t.Errorf("the exit code is %d; its logs:\n%s", code, p.logs())
	}
}

// client gives up before the test does.
var client = &http.Client{Timeout: time.Minute}

// get is the status, the fields and the body of an answer.
func get(t *testing.T, url string, fields ...string) (int, http.Header, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return do(t, request, fields...)
}

func post(t *testing.T, url, body string, fields ...string) (int, http.Header, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	return do(t, request, fields...)
}

func do(t *testing.T, request *http.Request, fields ...string) (int, http.Header, string) {
	t.Helper()
	response, body := webtest.Send(t, client, request, fields...)
	return response.StatusCode, response.Header, body
}

// write puts a file into a folder and returns its name.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// shell runs a text as a user would.
func (c call) shell(t *testing.T, text string) ran {
	t.Helper()
	command := exec.CommandContext(t.Context(), "bash", "-ec", text)
	var out, failures bytes.Buffer
	command.Stdout, command.Stderr = &out, &failures
	command.Dir, command.Env = c.dir, c.environ()
	if err := command.Run(); err != nil && command.ProcessState == nil {
		t.Fatal(err)
	}
	return ran{out.String(), failures.String(), command.ProcessState.ExitCode()}
}

// String is for failures.
func (r ran) String() string { return fmt.Sprintf("exit %d\n%s%s", r.code, r.out, r.err) }
