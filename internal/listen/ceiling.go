package listen

import (
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// logEvery is the minimum interval between two log lines about a full listener.
const logEvery = time.Minute

// Counts are the connections of a listener. The zero value is ready to use.
type Counts struct {
	open    atomic.Int64
	refused atomic.Int64
}

// Open returns the number of open connections.
func (c *Counts) Open() int64 { return c.open.Load() }

// Refused returns the number of connections closed on accept because the limit was reached.
func (c *Counts) Refused() int64 { return c.refused.Load() }

// Refuse counts a connection that a front end with a ceiling of its own closed.
func (c *Counts) Refuse() { c.refused.Add(1) }

// A ceiling closes new connections while the maximum is open. Letting them wait, as
// netutil.LimitListener does, looks kinder, but a waiting client gets no answer as long as slow
// clients keep their connections, while a balancer that sees the close tries another node.
type ceiling struct {
	net.Listener
	most   int64 // 0: no limit
	log    *slog.Logger
	counts *Counts
	logged atomic.Int64 // time of the last log line, in nanoseconds since 1970
}

// Accept implements net.Listener.
func (c *ceiling) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if open := c.counts.open.Add(1); c.most == 0 || open <= c.most {
			return c.counted(conn), nil
		}
		c.counts.open.Add(-1)
		c.counts.refused.Add(1)
		conn.Close()
		c.logFull(time.Now().UnixNano())
	}
}

func (c *ceiling) logFull(now int64) {
	if last := c.logged.Load(); now-last >= int64(logEvery) && c.logged.CompareAndSwap(last, now) {
		c.log.Warn("connection limit reached: new connections are closed",
			"address", c.Addr().String(), "connections", c.most)
	}
}

// counted wraps a connection so that its end frees a place. The wrapper keeps the methods of the
// concrete type: net/http closes one half of a connection, so that unread input does not discard
// the response, and copies files within the kernel.
func (c *ceiling) counted(conn net.Conn) net.Conn {
	gone := sync.OnceFunc(func() { c.counts.open.Add(-1) })
	switch conn := conn.(type) {
	case *net.TCPConn:
		return &tcpConn{conn, gone}
	case *net.UnixConn:
		return &unixConn{conn, gone}
	}
	gone() // unreachable: only TCP and Unix listeners are wrapped
	return conn
}

type tcpConn struct {
	*net.TCPConn
	gone func()
}

// Close implements net.Conn.
func (c *tcpConn) Close() error {
	defer c.gone()
	return c.TCPConn.Close()
}

type unixConn struct {
	*net.UnixConn
	gone func()
}

// Close implements net.Conn.
func (c *unixConn) Close() error {
	defer c.gone()
	return c.UnixConn.Close()
}
