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

// maxSocketPath is the limit of the strictest system; Linux allows a few bytes more.
const maxSocketPath = 103

// openUnix replaces a stale socket. The new one is never accessible beyond the mode.
func (a address) openUnix(ctx context.Context) (net.Listener, error) {
	if err := removeStale(ctx, a.path); err != nil {
		return nil, err
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		// On some systems the file gets the mode of the socket; on the others it has the mode
		// of the umask until the Chmod below.
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

// removeStale removes a socket without a listener. It leaves files of other types alone.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != os.ModeSocket {
		return &weir.InputError{Field: "address", Given: path,
			Allowed: "a path without a file, or an unused socket; this is a " + kindOf(info)}
	}
	dialer := net.Dialer{Timeout: time.Second}
	connection, err := dialer.DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		connection.Close()
		return &weir.InputError{Field: "address", Given: path,
			Allowed: "an unused socket; another process listens on it: stop that process, or choose another path"}
	case !errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("cannot tell whether a process listens on %s, so it is not removed: %w", path, err)
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
