package resp

import (
	"net"
	"syscall"
)

// cork makes the kernel send the next bytes and the end of the connection together, so that a client never has the
// last answer without the end.
func cork(nc net.Conn) {
	if secured, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = secured.NetConn()
	}
	tcp, ok := nc.(interface {
		SyscallConn() (syscall.RawConn, error)
	})
	if !ok || nc.RemoteAddr().Network() != "tcp" {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_CORK, 1)
		})
	}
}
