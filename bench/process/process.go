// Package process runs the servers of the benchmarks, each as a process of its own whose CPU is measured: weir serve
// as it is built, and the benchmark's own program again, as another server.
package process

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Serve says where this process listens, and waits for the end of the benchmark.
func Serve(address string) {
	fmt.Println(address)
	io.Copy(io.Discard, os.Stdin)
}

// A Server is a process that listens.
type Server struct {
	Address string

	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
	rules   string // file that the server looks at while it runs; "": none
}

// Self starts this program again with more arguments, which lead it to [Serve].
func Self(args ...string) (*Server, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s, err := start(exec.Command(program, args...))
	if err != nil {
		return nil, err
	}
	if !s.out.Scan() {
		return nil, fmt.Errorf("%q does not say where it listens", args)
	}
	s.Address = s.out.Text()
	return s, nil
}

// Build builds weir in a folder, unless there is a program.
func Build(program, dir string) (string, error) {
	if program != "" {
		return program, nil
	}
	program = filepath.Join(dir, "weir")
	build := exec.Command("go", "build", "-tags", "grpcnotrace", "-o", program, "github.com/weirproject/weir/server/cmd/weir")
	build.Dir, build.Stderr = "..", os.Stderr
	build.Env = append(os.Environ(), "GOWORK=") // the workspace has the server
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("building weir: %w", err)
	}
	return program, nil
}

// Weir starts weir serve with rules and more flags. It listens where its banner says, at the listener of that name.
func Weir(program, listener, rules string, flags ...string) (*Server, error) {
	file, err := os.CreateTemp("", "bench-*.yaml")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := io.WriteString(file, rules); err != nil {
		return nil, errors.Join(err, os.Remove(file.Name()))
	}
	s, err := start(exec.Command(program, append([]string{"serve", "--config", file.Name()}, flags...)...))
	if err != nil {
		return nil, errors.Join(err, os.Remove(file.Name()))
	}
	s.rules = file.Name()
	for s.out.Scan() {
		if words := strings.Fields(s.out.Text()); len(words) > 1 && words[0] == listener {
			_, s.Address, _ = strings.Cut(words[1], "://")
			return s, nil // what the pipe holds is enough for the rest of the banner
		}
	}
	return nil, fmt.Errorf("weir serve does not say where %s is", listener)
}

func start(command *exec.Cmd) (*Server, error) {
	s := &Server{command: command}
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if s.in, err = command.StdinPipe(); err != nil {
		return nil, err
	}
	s.out = bufio.NewScanner(out)
	return s, command.Start()
}

// Stop ends the process.
func (s *Server) Stop() {
	s.in.Close()
	s.command.Process.Signal(syscall.SIGTERM)
	s.command.Wait()
	if s.rules != "" {
		os.Remove(s.rules)
	}
}

// PID is the number of the process.
func (s *Server) PID() int { return s.command.Process.Pid }

// CPU is what the threads of a process have used so far: proc(5), the first field of schedstat. Threads of Go do not
// end.
func CPU(pid int) (used time.Duration, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err == nil && len(threads) == 0 {
		err = fmt.Errorf("process %d has ended, or /proc is not that of Linux", pid)
	}
	for _, name := range threads {
		text, _ := os.ReadFile(name)
		running, _, _ := strings.Cut(string(text), " ")
		n, _ := strconv.ParseInt(running, 10, 64)
		used += time.Duration(n)
	}
	return used, err
}
