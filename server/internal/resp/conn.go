package resp

import (
	"io"
	"net"
	"time"

	"github.com/weirproject/weir/gate"
)

// flushAt is the length of answers that are sent before further commands are run: a client that
// sends without reading waits for itself.
const flushAt = 32 << 10

// A conn is one connection. Only its goroutine uses it, except for wake and nc.Close.
type conn struct {
	server *Server
	nc     net.Conn
	in     *reader
	reply
	id       int64
	name     string // of CLIENT SETNAME
	user     string // "" before authentication
	began    time.Time
	done     bool // no further command is run
	answered bool // since the last read
	worked   bool // a command that is not about the connection was run since the last read

	now      time.Time // of the last read
	active   time.Time // of the last whole command
	readEnd  time.Time // the deadlines in force
	writeEnd time.Time

	unsent []gate.Receipt // leases in answers that are not sent yet

	decisions []*decision // the pending ones come first
	pending   int
	questions []gate.Question
	more      bool // bytes of further commands arrived with this one
	scratch   []byte

	multi       bool // since MULTI
	aborted     bool // a command since MULTI was refused
	queue       []queued
	queuedBytes int

	wrongPasswords int
	unknownSince   time.Time // when the time to authenticate began
}

func newConn(s *Server, nc net.Conn) *conn {
	now := time.Now()
	c := &conn{server: s, nc: nc, in: newReader(&s.max), id: s.lastID.Add(1), began: now, now: now, active: now}
	c.reset()
	return c
}

// reset makes the connection as new, for RESET.
func (c *conn) reset() {
	c.proto, c.name = 2, ""
	c.endTransaction()
	c.become("")
	c.unknownSince = c.now
	if len(c.server.users) == 0 {
		c.become(defaultUser)
	}
}

// become sets the authenticated user; "" is no user.
func (c *conn) become(user string) {
	c.user = user
	c.in.trusted = user != ""
}

func (c *conn) serve() {
	defer c.server.ended(c)
	defer c.nc.Close()
	for c.answer() && c.read() {
	}
}

// answer answers the commands that have arrived. It returns false if the connection ends.
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
			if c.mayLeave() {
				break
			}
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
	cork(c.nc)
	if c.flush() {
		c.linger()
	}
	return false
}

// mayLeave reports whether the connection ends after these answers, because the server is to end: the client has had
// the answer that it waits for, and has not begun another command. The end arrives with the answer, so that the client
// sees it before its next command. A connection that was only set up goes on: the client is about to use it.
func (c *conn) mayLeave() bool {
	return c.server.draining.Load() && c.worked && !c.multi && c.in.start == len(c.in.buf)
}

// flush sends the answers.
func (c *conn) flush() bool {
	if len(c.buf) == 0 {
		return true
	}
	// Setting a deadline costs as much as a small command: it is moved only when it is near.
	if now := time.Now(); c.writeEnd.Before(now.Add(c.server.max.Write)) {
		c.writeEnd = now.Add(c.server.max.Write + c.server.max.Write/8)
		c.nc.SetWriteDeadline(c.writeEnd)
	}
	_, err := c.nc.Write(c.buf)
	c.answered = true
	c.sent(err)
	if cap(c.buf) > 2*flushAt {
		c.buf = nil
	}
	c.buf = c.buf[:0]
	return err == nil
}

// sent releases the leases of answers that could not be sent: their ids are lost.
func (c *conn) sent(failed error) {
	for _, receipt := range c.unsent {
		if failed != nil {
			_ = c.server.gate.Release(c.server.ctx, receipt) // the store repeats it
		}
	}
	clear(c.unsent)
	c.unsent = c.unsent[:0]
}

// read waits for input. The deadline follows whole commands, not bytes: a client that sends one byte
// a minute is idle too.
func (c *conn) read() bool {
	if end, slack := c.deadline(); c.readEnd.Before(end) || c.readEnd.After(end.Add(slack)) {
		c.readEnd = end.Add(slack)
		c.nc.SetReadDeadline(c.readEnd)
	}
	// After setting the deadline: it is set before wake is called.
	if c.server.waking.Load() {
		if c.answered {
			c.linger()
		}
		return false
	}
	c.answered, c.worked = false, false
	err := c.in.fill(c.nc)
	c.now = time.Now()
	return err == nil
}

// deadline is the latest time for the next command to arrive, and how far it may be exceeded,
// which saves setting it often. The time to authenticate is not exceeded.
func (c *conn) deadline() (end time.Time, slack time.Duration) {
	end = c.active.Add(c.server.max.Idle)
	if login := c.unknownSince.Add(c.server.max.Login); c.user == "" && login.Before(end) {
		return login, 0
	}
	return end, c.server.max.Idle / 8
}

// wake ends a read, and each later one.
func (c *conn) wake() { c.nc.SetReadDeadline(time.Unix(1, 0)) }

// linger lets the last answer arrive: closing a connection with unread input resets it, which may
// lose the answer.
func (c *conn) linger() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	c.nc.SetReadDeadline(time.Now().Add(time.Second))
	io.CopyN(io.Discard, c.nc, int64(c.server.max.Request))
}
