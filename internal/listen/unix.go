package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/weirproject/weir"
)

// maxSocketPath is what all systems take; Linux takes a few bytes more.
const maxSocketPath = 103

// openUnix removes what a dead process left, and never opens wider than the mode says.
func (a address) openUnix(ctx context.Context) (net.Listener, error) {
	if err := removeStale(ctx, a.path); err != nil {
		return nil, err
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		// Some systems give the file the mode that its socket has; on the others it has
		// the umask's until it is changed below.
		return c.Control(func(fd uintptr) { narrow(fd, uint32(a.mode)) })
	}}
	listener, err := config.Listen(ctx, "unix", a.path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(a.path, a.mode); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// removeStale removes a socket at which nobody listens. What is no socket is not touched.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != os.ModeSocket {
		return &weir.InputError{Field: "address", Given: path, Allowed: "a path at which nothing is, or a socket that nobody listens at; this is a " + kindOf(info)}
	}
	dialer := net.Dialer{Timeout: time.Second}
	connection, err := dialer.DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		connection.Close()
		return &weir.InputError{Field: "address", Given: path, Allowed: "a socket that nobody listens at; somebody does: end that process, or choose another path"}
	case !errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("whether somebody listens at %s cannot be told, so it stays: %w", path, err)
	}
	return os.Remove(path)
}

func kindOf(info os.FileInfo) string {
	switch {
	case info.IsDir():
		return "directory"
	case info.Mode()&os.ModeSymlink != 0:
		return "symbolic link"
	}
	return "file"
}
