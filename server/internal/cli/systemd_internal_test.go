package cli

import (
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// TestStuckServerIsNotAlive: the watchdog restarts a server exactly when /livez would have it restarted. A reload before
// the server is ready does not end its start.
func TestStuckServerIsNotAlive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	n := &notifier{socket: path, watchdog: time.Minute, log: slog.New(slog.DiscardHandler)}
	const starting = "STATUS=starting: /readyz says what is missing\nEXTEND_TIMEOUT_USEC=30000000"
	for _, c := range []struct {
		ready, stuck, reload bool
		want                 string
	}{
		{false, false, false, starting + "\nWATCHDOG=1"},
		{false, true, true, starting},
		{true, false, false, "READY=1\nSTATUS=ready\nWATCHDOG=1"},
		{true, true, true, "READY=1\nSTATUS=ready"},
		{true, false, false, "WATCHDOG=1"},
		{false, false, false, "WATCHDOG=1"},
	} {
		if c.reload {
			n.reloaded(nil)
		}
		n.tell(func() bool { return c.ready }, func() bool { return c.stuck })
		n.send("END=1")
		got := ""
		for message := make([]byte, 4096); ; {
			size, err := socket.Read(message)
			if err != nil {
				t.Fatal(err)
			}
			if string(message[:size]) == "END=1" {
				break
			}
			got += string(message[:size])
		}
		if got != c.want {
			t.Errorf("ready %v, stuck %v: %q, want %q", c.ready, c.stuck, got, c.want)
		}
	}
}
