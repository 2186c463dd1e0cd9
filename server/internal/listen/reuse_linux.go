//go:build linux && !mips && !mipsle && !mips64 && !mips64le

package listen

import "syscall"

// soReusePort is SO_REUSEPORT of socket(7), which package syscall has on few systems.
const soReusePort = 15

// reusePort lets several sockets of one user listen on an address.
func reusePort(_, _ string, c syscall.RawConn) (err error) {
	controlErr := c.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, soReusePort, 1)
	})
	if controlErr != nil {
		return controlErr
	}
	return err
}
