//go:build linux

package ratelimittest_test

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/server/internal/ratelimittest"
)

// listeners is the number of sockets that listen on a port: proc_net(5), state 0A.
func listeners(t *testing.T, address string) (n int) {
	t.Helper()
	_, port, _ := net.SplitHostPort(address)
	number, _ := strconv.Atoi(port)
	text, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) > 3 && words[3] == "0A" && strings.HasSuffix(words[1], fmt.Sprintf(":%04X", number)) {
			n++
		}
	}
	return n
}

// overlapped starts a service beside another one under load, and then stops the first: every request passes.
func overlapped(t *testing.T, from, to string) {
	t.Helper()
	s := newSite(t)
	service := s.Start(from)
	service.Await()
	load := s.load()
	load.run(250)
	next := s.Start(to)
	redistest.Await(t, "two services at one port", func() bool { return listeners(t, s.GRPC) == 2 })
	service.Stop()
	next.Await()
	load.run(250)
	for _, a := range load.end() {
		if a.status != 200 {
			t.Errorf("answered %d", a.status)
		}
	}
	next.Stop()
}

// TestRestartWithoutAGap starts the next process before the last one ends.
func TestRestartWithoutAGap(t *testing.T) {
	t.Parallel()
	overlapped(t, weir(t), weir(t))
}

// TestSwapWithoutAGap does so with the real service first, and back.
func TestSwapWithoutAGap(t *testing.T) {
	t.Parallel()
	real, weir := ratelimittest.Real(t), weir(t)
	overlapped(t, real, weir)
	overlapped(t, weir, real)
}
