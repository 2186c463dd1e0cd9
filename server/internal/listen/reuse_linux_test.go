package listen_test

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/weirproject/weir/server/internal/listen"
)

// TestReusePort starts a second listener beside a first one that still serves, as the next process of a restart does.
// When the first is closed, every connection is the second one's.
func TestReusePort(t *testing.T) {
	first := open(t, listen.Config{Address: "127.0.0.1:0", ReusePort: true})
	address := first.Addr().String()
	if _, err := (listen.Config{Address: address}).Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("without the setting the address is taken: %v", err)
	}
	second := open(t, listen.Config{Address: address, ReusePort: true})
	first.Close()
	go func() {
		for {
			conn, err := second.Accept()
			if err != nil {
				return
			}
			io.WriteString(conn, "second")
			conn.Close()
		}
	}()
	for range 20 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(conn)
		conn.Close()
		if string(text) != "second" {
			t.Errorf("the connection has %q, %v", text, err)
		}
	}
}
