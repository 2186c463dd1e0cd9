//go:build !linux

package resp

import "net"

// cork is for Linux.
func cork(net.Conn) {}
