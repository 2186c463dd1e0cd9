package resp_test

import (
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/weirproject/weir/memstore"
)

// TestTheEndArrivesWithTheAnswer, so that a client that looks before it sends sees it.
func TestTheEndArrivesWithTheAnswer(t *testing.T) {
	h := openOn(t, memstore.New())
	h.server.Drain()
	for range 1000 { // each on a connection of its own
		nc, err := net.Dial("tcp", h.addr)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(nc, wire(w("CL.THROTTLE k 15 30 60")...))
		if n, err := nc.Read(make([]byte, 1000)); n == 0 || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
		if !ended(t, nc) {
			t.Fatal("the answer came without the end")
		}
		nc.Close()
	}
}

// ended reports whether the end of a connection has arrived, without waiting.
func ended(t *testing.T, nc net.Conn) (end bool) {
	raw, err := nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		n, err := syscall.Read(int(fd), make([]byte, 1))
		end = n == 0 && err == nil
	})
	return end
}
