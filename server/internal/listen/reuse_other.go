//go:build !linux || mips || mipsle || mips64 || mips64le

package listen

import "syscall"

// reusePort has no effect here: an address has one process.
func reusePort(_, _ string, _ syscall.RawConn) error { return nil }
