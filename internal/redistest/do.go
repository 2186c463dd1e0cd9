//go:build unix

package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// An Error is an error reply of Redis.
type Error string

// Error is the text from Redis.
func (e Error) Error() string { return string(e) }

// Do sends one command on a connection of its own and returns the reply: a string, an
// int64, nil or []any. An error reply fails the test.
func (s *Server) Do(args ...string) any {
	s.t.Helper()
	reply, err := s.Try(args...)
	if err != nil {
		s.t.Fatalf("redistest: %.80q: %v", args, err)
	}
	return reply
}

// Try is Do that returns errors, an error reply as an Error.
func (s *Server) Try(args ...string) (any, error) {
	conn, err := s.dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(conn, b.String()); err != nil {
		return nil, err
	}
	return readReply(bufio.NewReader(conn))
}

// readReply reads one reply of the protocol's second version.
func readReply(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, errors.New("redistest: got an empty line instead of a reply")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return nil, Error(rest)
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	switch {
	case err != nil:
		return nil, err
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, nil
	case kind == '*':
		return readArray(r, int(n))
	}
	text := make([]byte, n+2)
	_, err = io.ReadFull(r, text)
	return string(text[:n]), err
}

func readArray(r *bufio.Reader, n int) (any, error) {
	array := make([]any, n)
	for i := range array {
		element, err := readReply(r)
		var refusal Error
		if err != nil && !errors.As(err, &refusal) {
			return nil, err
		}
		if array[i] = element; err != nil {
			array[i] = refusal
		}
	}
	return array, nil
}

// Info returns the fields of a section of INFO.
func (s *Server) Info(section string) map[string]string {
	s.t.Helper()
	return fields(s.Do("INFO", section).(string))
}

// Role is master, slave or sentinel; empty while the server does not answer, as while it changes its role and
// drops its clients.
func (s *Server) Role() string {
	reply, err := s.Try("ROLE")
	if err != nil {
		return ""
	}
	return reply.([]any)[0].(string)
}

// follows reports whether a replica is in sync with its master.
func (s *Server) follows() bool {
	reply, err := s.Try("INFO", "replication")
	return err == nil && fields(reply.(string))["master_link_status"] == "up"
}

func fields(text string) map[string]string {
	found := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			found[name] = value
		}
	}
	return found
}
