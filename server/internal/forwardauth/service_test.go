package forwardauth_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
)

// servedField is in every response of the service.
const servedField = "X-Served"

// newService starts the service: it echoes the request, and has refusals and errors of its own. Like
// services in other languages it accepts input that net/http refuses.
func newService(t *testing.T) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serveTolerantly(conn)
		}
	}()
	return listener.Addr().String()
}

func serveTolerantly(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		method, target, length, err := readHead(in)
		if err != nil {
			return
		}
		body := make([]byte, length)
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		status, text := "200 OK", fmt.Sprintf("%s %s %s", method, target, body)
		switch target {
		case "/own403":
			status, text = "403 Forbidden", "own\n"
		case "/own500":
			status, text = "500 Internal Server Error", "own\n"
		}
		if method == "HEAD" {
			text = ""
		}
		if _, err := fmt.Fprintf(conn, "HTTP/1.1 %s\r\n%s: yes\r\nContent-Length: %d\r\n\r\n%s", status, servedField, len(text), text); err != nil {
			return
		}
	}
}

func readHead(in *bufio.Reader) (method, target string, length int, err error) {
	for first := true; ; first = false {
		line, err := in.ReadString('\n')
		if err != nil {
			return "", "", 0, err
		}
		line = strings.TrimRight(line, "\r\n")
		if line == "" && !first {
			return method, target, length, nil
		}
		if first {
			method, line, _ = strings.Cut(line, " ")
			target, _, _ = strings.Cut(line, " ")
			continue
		}
		if name, value, _ := strings.Cut(line, ":"); strings.EqualFold(name, "Content-Length") {
			length, _ = strconv.Atoi(strings.TrimSpace(value))
		}
	}
}
