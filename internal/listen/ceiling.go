package listen

import (
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// tellEvery is how often the log is told that a listener is full, at most.
const tellEvery = time.Minute

// Counts are of the connections of a listener. The zero value is ready for use.
type Counts struct {
	open    atomic.Int64
	refused atomic.Int64
}

// Open is how many connections are open.
func (c *Counts) Open() int64 { return c.open.Load() }

// Refused is how many were closed as they came, because as many were open as may be.
func (c *Counts) Refused() int64 { return c.refused.Load() }

// A ceiling closes connections as they come while as many are open as may be. To let them
// wait, as netutil.LimitListener does, looks kinder; but who waits is told nothing for as long
// as slow clients please, and a balancer that is hung up on asks another node.
type ceiling struct {
	net.Listener
	most   int64 // 0: as many as come
	log    *slog.Logger
	counts *Counts
	told   atomic.Int64 // when the log was told last: nanoseconds since 1970
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
		c.tell(time.Now().UnixNano())
	}
}

func (c *ceiling) tell(now int64) {
	if last := c.told.Load(); now-last >= int64(tellEvery) && c.told.CompareAndSwap(last, now) {
		c.log.Warn("as many connections are open as may be: others are closed as they come", "address", c.Addr().String(), "connections", c.most)
	}
}

// counted is the connection, whose end makes room for another. It stays what it is: net/http
// closes one half of it, so that an answer is not lost with what was not read, and copies
// streams within the kernel.
func (c *ceiling) counted(conn net.Conn) net.Conn {
	gone := sync.OnceFunc(func() { c.counts.open.Add(-1) })
	switch conn := conn.(type) {
	case *net.TCPConn:
		return &tcpConn{conn, gone}
	case *net.UnixConn:
		return &unixConn{conn, gone}
	}
	gone() // nothing else is opened here
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
