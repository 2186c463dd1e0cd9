package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// A server is a process that serves a role.
type server struct {
	role, address string
	command       *exec.Cmd
	in            io.WriteCloser
	out           *bufio.Scanner
}

func start(role, upstream string) (*server, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &server{role: role, command: exec.Command(program, "-role", role, "-upstream", upstream)}
	s.command.Stderr = os.Stderr
	out, err := s.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if s.in, err = s.command.StdinPipe(); err != nil {
		return nil, err
	}
	if err := s.command.Start(); err != nil {
		return nil, err
	}
	s.out = bufio.NewScanner(out)
	if !s.out.Scan() {
		return nil, fmt.Errorf("%s does not say where it listens", role)
	}
	s.address = s.out.Text()
	return s, nil
}

func (s *server) stop() {
	s.in.Close()
	s.command.Wait()
}

// cpu is what the server's process used so far.
func (s *server) cpu() (time.Duration, error) {
	if _, err := io.WriteString(s.in, "\n"); err != nil {
		return 0, err
	}
	if !s.out.Scan() {
		return 0, fmt.Errorf("%s ended", s.role)
	}
	n, err := strconv.ParseInt(s.out.Text(), 10, 64)
	return time.Duration(n), err
}

// A crowd is the connections to one server.
type crowd struct {
	server  *server
	request string
	members []net.Conn
	readers []*bufio.Reader
}

func gather(s *server, request string) (*crowd, error) {
	c := &crowd{server: s, request: request}
	for range connections {
		connection, err := net.Dial("tcp", s.address)
		if err != nil {
			return nil, err
		}
		c.members = append(c.members, connection)
		c.readers = append(c.readers, bufio.NewReader(connection))
	}
	return c, nil
}

func (c *crowd) leave() {
	for _, connection := range c.members {
		connection.Close()
	}
}

// ask has all ask, one question after the other, for the length of a slice.
func (c *crowd) ask(slice time.Duration, f *figures) error {
	before, err := c.server.cpu()
	if err != nil {
		return err
	}
	begin := time.Now()
	counts, failed := make(chan int, connections), make(chan error, connections)
	for i := range c.members {
		go func() {
			n, err := c.rush(i, begin.Add(slice))
			counts <- n
			failed <- err
		}()
	}
	total := 0
	var errs []error
	for range c.members {
		total += <-counts
		errs = append(errs, <-failed)
	}
	took := time.Since(begin)
	after, err := c.server.cpu()
	if err = errors.Join(append(errs, err)...); err != nil || f == nil {
		return err
	}
	f.rate = append(f.rate, float64(total)/took.Seconds())
	f.cpu = append(f.cpu, float64((after-before).Microseconds())/float64(total))
	return nil
}

func (c *crowd) rush(member int, until time.Time) (n int, err error) {
	for time.Now().Before(until) {
		if _, err := io.WriteString(c.members[member], c.request); err != nil {
			return n, err
		}
		if err := answered(c.readers[member]); err != nil {
			return n, fmt.Errorf("%s: %w", c.server.role, err)
		}
		n++
	}
	return n, nil
}

// answered reads an answer, which must be 200 and say how long it is: a row that answers
// otherwise is not the work that is measured.
func answered(r *bufio.Reader) error {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(string(line), "HTTP/1.1 200 ") {
		return fmt.Errorf("it answers %q", line)
	}
	length := -1
	for {
		if line, err = r.ReadSlice('\n'); err != nil {
			return err
		}
		if len(line) == 2 {
			break
		}
		if digits, ok := strings.CutPrefix(string(line), "Content-Length: "); ok {
			if length, err = strconv.Atoi(strings.TrimSpace(digits)); err != nil {
				return err
			}
		}
	}
	if length < 0 {
		return errors.New("its answer has no length")
	}
	_, err = r.Discard(length)
	return err
}
