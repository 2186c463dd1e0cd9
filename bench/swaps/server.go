package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// A server is a weir serve.
type server struct {
	address string
	command *exec.Cmd
	said    bytes.Buffer
	took    time.Duration // until it was ready
}

// serve starts it, and waits until it is ready.
func serve(program string, args ...string) (*server, error) {
	address, err := free()
	if err != nil {
		return nil, err
	}
	s := &server{address: address, command: exec.Command(program, append([]string{"serve", "--http", address, "--log-level", "warn"}, args...)...)}
	s.command.Stderr = &s.said
	began := time.Now()
	if err := s.command.Start(); err != nil {
		return nil, err
	}
	for time.Since(began) < time.Minute {
		if answer, err := http.Get("http://" + address + "/readyz"); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				s.took = time.Since(began)
				return s, nil
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
	s.stop()
	return nil, fmt.Errorf("weir was not ready within a minute: %s", s.said.String())
}

func free() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// stop ends it. A warning is an error: nothing that is measured may go wrong.
func (s *server) stop() error {
	s.command.Process.Signal(syscall.SIGTERM)
	err := s.command.Wait()
	if text := strings.TrimSpace(s.said.String()); text != "" {
		err = errors.Join(err, errors.New(text))
	}
	return err
}
