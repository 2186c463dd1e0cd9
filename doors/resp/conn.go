package resp

import (
	"io"
	"net"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
)

// flushAt is how much is answered before more commands are looked at: a client that sends
// without reading waits for itself.
const flushAt = 32 << 10

// A conn is one connection, used by its goroutine alone, but for wake and nc.Close.
type conn struct {
	server *Server
	nc     net.Conn
	in     *reader
	reply
	id   int64
	name string // as CLIENT SETNAME says
	user string // "" until it is known who it is, where that must be
	born time.Time
	done bool // no further command is read
	told bool // something was answered since the last read

	now      time.Time // of the last read
	active   time.Time // of the last whole command
	readEnd  time.Time // what the deadlines are set to
	writeEnd time.Time

	// What a decision needs is used again by the next.
	verdict gate.Verdict
	one     [1]weir.Claim
	scratch []byte
	q       question
}

func newConn(s *Server, nc net.Conn) *conn {
	now := time.Now()
	c := &conn{server: s, nc: nc, id: s.lastID.Add(1), born: now, now: now, active: now}
	c.in = newReader(&s.max, false)
	c.reset()
	return c
}

// reset is what RESET says: as newly connected.
func (c *conn) reset() {
	c.proto, c.name = 2, ""
	c.become("")
	if len(c.server.users) == 0 {
		c.become(defaultUser)
	}
}

// become notes who the client is; "" is nobody yet.
func (c *conn) become(user string) {
	c.user = user
	c.in.trusted = user != ""
}

func (c *conn) serve() {
	defer c.server.gone(c)
	defer c.nc.Close()
	for c.answer() && c.read() {
	}
}

// answer answers the commands that have come. It reports whether to go on.
func (c *conn) answer() bool {
	for !c.done {
		args, err := c.in.next()
		if err != nil {
			c.fail("ERR Protocol error: ", err.Error())
			c.done = true
			break
		}
		if args == nil {
			return c.flush()
		}
		c.active = c.now
		c.run(args)
		if len(c.buf) >= flushAt && !c.flush() {
			return false
		}
	}
	if c.flush() {
		c.linger()
	}
	return false
}

// flush sends what was answered.
func (c *conn) flush() bool {
	if len(c.buf) == 0 {
		return true
	}
	// A deadline costs as much as a small command: it is moved only when it has come near.
	if now := time.Now(); c.writeEnd.Before(now.Add(c.server.max.Write)) {
		c.writeEnd = now.Add(c.server.max.Write + c.server.max.Write/8)
		c.nc.SetWriteDeadline(c.writeEnd)
	}
	_, err := c.nc.Write(c.buf)
	c.told = true
	if cap(c.buf) > 2*flushAt {
		c.buf = nil
	}
	c.buf = c.buf[:0]
	return err == nil
}

// read waits for more. The deadline follows whole commands, not bytes: who sends one each
// minute is idle too.
func (c *conn) read() bool {
	if end := c.active.Add(c.server.max.Idle); c.readEnd.Before(end) {
		c.readEnd = end.Add(c.server.max.Idle / 8)
		c.nc.SetReadDeadline(c.readEnd)
	}
	// After the deadline was set: wake first says so and then sets its own.
	if c.server.closing.Load() {
		if c.told {
			c.linger()
		}
		return false
	}
	c.told = false
	err := c.in.fill(c.nc)
	c.now = time.Now()
	return err == nil
}

// wake ends a connection that waits, and one that works when it is done.
func (c *conn) wake() { c.nc.SetReadDeadline(time.Unix(1, 0)) }

// linger lets the last answer arrive: a connection that is closed with bytes unread is
// reset, and the client may lose what it was told.
func (c *conn) linger() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	c.nc.SetReadDeadline(time.Now().Add(time.Second))
	io.CopyN(io.Discard, c.nc, int64(c.server.max.Request))
}
