package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// take is the value of a variable of the service manager, which children of this process do not get.
func (s *System) take(name string) string {
	os.Unsetenv(name)
	return s.lookup(name)
}

// A notifier tells systemd about the state of this process: sd_notify(3). Without a socket it has no effect.
type notifier struct {
	socket   string
	watchdog time.Duration // systemd restarts a process that says nothing for that long; 0: it does not
	ready    atomic.Bool   // systemd knows
	log      *slog.Logger
}

func (s *System) notifier(log *slog.Logger) *notifier {
	n := &notifier{socket: s.take("NOTIFY_SOCKET"), log: log}
	micros, err := strconv.ParseInt(s.take("WATCHDOG_USEC"), 10, 64)
	if pid := s.take("WATCHDOG_PID"); err == nil && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		n.watchdog = time.Duration(micros) * time.Microsecond
	}
	return n
}

// send sends one message; its lines take effect together.
func (n *notifier) send(lines ...string) {
	if n.socket == "" || len(lines) == 0 {
		return
	}
	connection, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err == nil {
		connection.SetWriteDeadline(time.Now().Add(time.Second))
		_, err = connection.Write([]byte(strings.Join(lines, "\n")))
		connection.Close()
	}
	if err != nil {
		n.log.Warn("systemd was not notified", "state", lines[0], "error", err)
	}
}

// startMore is how much longer systemd waits for the start, beyond its own timeout, while rules are missing.
const startMore = 30 * time.Second

// tell sends the due messages: that the server is ready, once; that it is not yet, so that systemd waits; that it is
// alive.
func (n *notifier) tell(ready, stuck func() bool) {
	var lines []string
	switch {
	case n.ready.Load():
	case ready():
		n.ready.Store(true)
		lines = append(lines, "READY=1", "STATUS=ready")
	default:
		lines = append(lines, "STATUS=starting: /readyz says what is missing",
			fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", startMore.Microseconds()))
	}
	if n.watchdog > 0 && !stuck() {
		lines = append(lines, "WATCHDOG=1")
	}
	n.send(lines...)
}

// run tells systemd about readiness and life, until ctx ends: a process that hangs as it stops is to be restarted too.
func (n *notifier) run(ctx context.Context, ready, stuck func() bool) {
	if n.socket == "" {
		return
	}
	every := time.Second
	if n.watchdog > 0 {
		every = min(every, n.watchdog/3)
	}
	ticker := time.NewTicker(max(every, time.Millisecond))
	defer ticker.Stop()
	for {
		n.tell(ready, stuck)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// reloading is the start of a reload. Units of type notify-reload wait for ready, and need the time.
// A reload before the server is ready is a part of its start.
func (n *notifier) reloading() {
	if !n.ready.Load() {
		return
	}
	n.send("RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", monotonic().Microseconds()))
}

func (n *notifier) reloaded(err error) {
	status := "STATUS=ready"
	if err != nil {
		status = "STATUS=ready; the last reload failed: see the log"
	}
	if n.ready.Load() {
		n.send("READY=1", status)
	}
}

// firstPassed is the descriptor of the first socket that systemd passes: sd_listen_fds(3).
const firstPassed = 3

// passed are the sockets that systemd opened for this process, by the FileDescriptorName of their units.
func (s *System) passed() (map[string]*os.File, error) {
	pid, count, names := s.take("LISTEN_PID"), s.take("LISTEN_FDS"), strings.Split(s.take("LISTEN_FDNAMES"), ":")
	if pid != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	if n, err := strconv.Atoi(count); err != nil || n != len(names) {
		return nil, fmt.Errorf("LISTEN_FDS is %.20q and LISTEN_FDNAMES has %d names; allowed: one for each",
			count, len(names))
	}
	passed := make(map[string]*os.File)
	for i, name := range names {
		if passed[name] != nil {
			return nil, fmt.Errorf("LISTEN_FDNAMES has %.80q twice: give each socket unit its own FileDescriptorName",
				name)
		}
		passed[name] = os.NewFile(uintptr(firstPassed+i), name)
	}
	return passed, nil
}
