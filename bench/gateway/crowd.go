package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir/bench/process"
)

// A crowd is the connections to one server.
type crowd struct {
	role    string
	server  *process.Server
	request string
	members []net.Conn
	readers []*bufio.Reader
}

func gather(role string, s *process.Server, request string) (*crowd, error) {
	c := &crowd{role: role, server: s, request: request}
	for range connections {
		connection, err := net.Dial("tcp", s.Address)
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
	before, err := process.CPU(c.server.PID())
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
	after, err := process.CPU(c.server.PID())
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
			return n, fmt.Errorf("%s: %w", c.role, err)
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
