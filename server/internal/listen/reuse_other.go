//go:build !linux || mips || mipsle || mips64 || mips64le

package listen

import (
	"errors"
	"syscall"
)

func reusePort(_, _ string, _ syscall.RawConn) error {
	return errors.New("reuse_port is not supported on this system: leave it out")
}
