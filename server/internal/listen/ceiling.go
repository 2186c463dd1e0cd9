package listen

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pires/go-proxyproto"
)

const (
	// logEvery is the minimum interval between two log lines about a full listener.
	logEvery = time.Minute
	// reservedFor is how long a reserved connection may stay open: a health check takes less.
	reservedFor = 2 * time.Second
)

// Counts are the connections of a listener. The zero value is ready to use.
type Counts struct {
	open    atomic.Int64
	refused atomic.Int64
}

// Open returns the number of open connections.
func (c *Counts) Open() int64 { return c.open.Load() }

// Refused returns the number of connections that were closed because the limit was reached.
func (c *Counts) Refused() int64 { return c.refused.Load() }

// Refuse counts a connection that a front end closed because of its own ceiling.
func (c *Counts) Refuse() { c.refused.Add(1) }

// A ceiling closes new connections while the maximum is open. Letting them wait, as
// netutil.LimitListener does, looks kinder, but a waiting client gets no answer as long as slow
// clients keep their connections, while a balancer that sees the close tries another node.
type ceiling struct {
	net.Listener
	places   *places
	reserved *places // nil: none
	log      *slog.Logger
	counts   *Counts

	mu     sync.Mutex
	logged map[refusal]time.Time // the last log line
}

// Accept implements net.Listener.
func (c *ceiling) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		client := sourceOf(conn)
		why := c.places.take(client)
		if why == "" {
			return c.counted(conn, func() { c.places.give(client) }), nil
		}
		c.report(why, client)
		if c.reserved != nil && c.reserved.take(client) == "" {
			return c.brief(conn, client), nil
		}
		c.counts.refused.Add(1)
		conn.Close()
	}
}

// report logs a refusal, unless one of its kind was logged just now.
func (c *ceiling) report(why refusal, client netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if last, ok := c.logged[why]; ok && now.Sub(last) < logEvery {
		return
	}
	c.logged[why] = now
	about := []any{"address", c.Addr().String(), "connections", c.places.most}
	if why == share {
		about = []any{"address", c.Addr().String(), "connections", c.places.share, "client", client.String()}
	}
	c.log.Warn(string(why), about...)
}

// brief wraps a reserved connection. One that its time ends was not a health check: it counts as refused.
func (c *ceiling) brief(conn net.Conn, client netip.Addr) net.Conn {
	var ended atomic.Bool
	wrapped := c.counted(conn, func() {
		ended.Store(true)
		c.reserved.give(client)
	})
	Of(wrapped).refuse = c.counts.Refuse
	time.AfterFunc(reservedFor, func() {
		if !ended.Load() {
			c.counts.Refuse()
			wrapped.Close()
		}
	})
	return wrapped
}

// counted wraps a connection so that its end frees its place. The wrapper keeps the methods of the
// concrete type: net/http closes one half of a connection, so that unread input does not discard
// the response, and copies files within the kernel.
func (c *ceiling) counted(conn net.Conn, free func()) net.Conn {
	c.counts.open.Add(1)
	about := &Conn{gone: sync.OnceFunc(func() {
		c.counts.open.Add(-1)
		free()
	})}
	switch conn := conn.(type) {
	case *net.TCPConn:
		return &tcpConn{conn, about}
	case *net.UnixConn:
		return &unixConn{conn, about}
	}
	about.gone() // unreachable: only TCP and Unix listeners are wrapped
	return conn
}

// A Conn has a listener's facts about a connection.
type Conn struct {
	gone   func()
	refuse func() // nil: the connection is not reserved
	read   atomic.Int64
}

// Of returns the Conn of a connection that a listener of this package accepted.
func Of(conn net.Conn) *Conn {
	for {
		switch inner := conn.(type) {
		case *tcpConn:
			return inner.about
		case *unixConn:
			return inner.about
		case *clientConn:
			conn = inner.Raw()
		case interface{ NetConn() net.Conn }: // TLS
			conn = inner.NetConn()
		default:
			return new(Conn)
		}
	}
}

// Reserved reports whether the connection is for health checks alone.
func (c *Conn) Reserved() bool { return c.refuse != nil }

// Refuse counts a reserved connection that asks for anything else.
func (c *Conn) Refuse() { c.refuse() }

// Read returns how many bytes have come, bytes of the TLS protocol included.
func (c *Conn) Read() int64 { return c.read.Load() }

type tcpConn struct {
	*net.TCPConn
	about *Conn
}

// Read implements net.Conn.
func (c *tcpConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.about.read.Add(int64(n))
	return n, err
}

// Close implements net.Conn.
func (c *tcpConn) Close() error {
	defer c.about.gone()
	return c.TCPConn.Close()
}

type unixConn struct {
	*net.UnixConn
	about *Conn
}

// Read implements net.Conn.
func (c *unixConn) Read(b []byte) (int, error) {
	n, err := c.UnixConn.Read(b)
	c.about.read.Add(int64(n))
	return n, err
}

// Close implements net.Conn.
func (c *unixConn) Close() error {
	defer c.about.gone()
	return c.UnixConn.Close()
}

// A named listener divides the places among the clients that PROXY headers name.
type named struct {
	net.Listener
	places  *places
	ceiling *ceiling
}

// Accept implements net.Listener.
func (n *named) Accept() (net.Conn, error) {
	conn, err := n.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &clientConn{Conn: conn.(*proxyproto.Conn), named: n}, nil
}

// A clientConn takes its client's place with the first byte that is read, when the client is known.
type clientConn struct {
	*proxyproto.Conn
	named *named
	once  sync.Once

	mu     sync.Mutex
	closed bool
	client netip.Addr
	held   bool
}

// Read implements net.Conn.
func (c *clientConn) Read(b []byte) (int, error) {
	c.once.Do(c.enter)
	return c.Conn.Read(b)
}

func (c *clientConn) enter() {
	client := sourceOf(c.Conn)
	if Of(c).Reserved() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	if why := c.named.places.take(client); why != "" {
		c.named.ceiling.report(why, client)
		c.named.ceiling.counts.Refuse()
		c.Conn.Close()
		return
	}
	c.client, c.held = client, true
}

// Close implements net.Conn.
func (c *clientConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed = true; c.held {
		c.named.places.give(c.client)
		c.held = false
	}
	return c.Conn.Close()
}
