//go:build unix

package redistest

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// Greeting is what Redis answers to the commands with which clients begin.
var Greeting = map[string]string{
	"HELLO":  "%3\r\n+version\r\n+7.0.0\r\n+mode\r\n+standalone\r\n+role\r\n+master\r\n",
	"CLIENT": "+OK\r\n",
	"INFO":   "$0\r\n\r\n",
	"CONFIG": "*0\r\n",
}

// A Hostile is a server that answers some commands as Redis does, and the others as no Redis does.
type Hostile struct {
	net.Listener
	honest map[string]string

	mu     sync.Mutex
	answer func(io.Writer) error
	conns  []net.Conn
	asked  map[string]bool // commands that had a hostile answer
}

// StartHostile starts a server that gives the honest answers, and calls answer for any other command. The address
// may be that of a server that was just killed.
func StartHostile(t testing.TB, address string, honest map[string]string, answer func(io.Writer) error) *Hostile {
	t.Helper()
	h := &Hostile{honest: honest, answer: answer, asked: make(map[string]bool)}
	Await(t, "the address to be free", func() bool {
		listener, err := net.Listen("tcp", address)
		h.Listener = listener
		return err == nil
	})
	t.Cleanup(h.Stop)
	go h.run()
	return h
}

func (h *Hostile) run() {
	for {
		conn, err := h.Accept()
		if err != nil {
			return
		}
		h.mu.Lock()
		h.conns = append(h.conns, conn)
		h.mu.Unlock()
		go h.serve(conn)
	}
}

func (h *Hostile) serve(conn net.Conn) {
	defer conn.Close()
	reader := bufio.NewReader(conn)
	for {
		words, err := readReply(reader)
		if err != nil {
			return
		}
		command := strings.ToUpper(words.([]any)[0].(string))
		if text, ok := h.honest[command]; ok {
			io.WriteString(conn, text)
			continue
		}
		h.mu.Lock()
		h.asked[command] = true
		answer := h.answer
		h.mu.Unlock()
		if answer(conn) != nil {
			return
		}
	}
}

// Answer changes the answer to all other commands.
func (h *Hostile) Answer(answer func(io.Writer) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer = answer
}

// Answered reports whether such a command had a hostile answer.
func (h *Hostile) Answered(command string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.asked[command]
}

// Stop closes the listener and all connections.
func (h *Hostile) Stop() {
	h.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, conn := range h.conns {
		conn.Close()
	}
}
