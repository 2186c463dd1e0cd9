package resp

import (
	"io"
	"net"
	"time"

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
	user string // "" until the client is authenticated, where it must be
	born time.Time
	done bool // no further command is read
	told bool // something was answered since the last read

	now      time.Time // of the last read
	active   time.Time // of the last whole command
	readEnd  time.Time // what the deadlines are set to
	writeEnd time.Time

	// Decisions that wait for the commands behind them come first; all are used again.
	decisions []*decision
	waiting   int
	questions []gate.Question
	more      bool // bytes of further commands came with this one
	scratch   []byte

	multi       bool // since MULTI
	aborted     bool // a command since MULTI was wrong
	queue       []queued
	queuedBytes int

	wrong    int       // how often the password was
	stranger time.Time // since when it is not known who the client is
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
	c.endTransaction()
	c.become("")
	c.stranger = c.now
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
			c.reject("ERR Protocol error: ", err.Error())
			c.done = true
			break
		}
		if args == nil {
			c.settle()
			return c.flush()
		}
		c.active = c.now
		c.more = c.in.start < len(c.in.buf)
		c.run(args)
		if len(c.buf) >= flushAt && !c.flush() {
			return false
		}
	}
	c.settle()
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

// read waits for more. The deadline follows whole commands, not bytes: a client that sends one
// byte each minute is idle too.
func (c *conn) read() bool {
	if end, slack := c.deadline(); c.readEnd.Before(end) || c.readEnd.After(end.Add(slack)) {
		c.readEnd = end.Add(slack)
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

// deadline is until when the next command must have come. Where the time to authenticate ends
// first, no part of it is given away.
func (c *conn) deadline() (end time.Time, slack time.Duration) {
	end = c.active.Add(c.server.max.Idle)
	if login := c.stranger.Add(c.server.max.Login); c.user == "" && login.Before(end) {
		return login, 0
	}
	return end, c.server.max.Idle / 8
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
