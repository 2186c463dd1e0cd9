// Package respguard stands between a connection to Redis and the client library that reads it. Libraries allocate the
// lengths that a reply announces: one of 2^31 elements ends the process, one of 2^63 bytes is a panic. A guarded
// connection fails instead, and so does one with a reply to no request: libraries take such a reply for their own bug
// and panic, or give the reply to the next call.
package respguard

import (
	"fmt"
	"net"
	"sync"
)

// Ceilings bound a single reply.
type Ceilings struct {
	Text     int64 // bytes of one text
	Bytes    int64 // bytes of the texts of one reply together
	Elements int64 // elements of one reply, at all depths
	Depth    int   // arrays within arrays
}

// Decisions are the ceilings of a connection for decisions. The largest reply there is the
// topology of a Cluster: some 200,000 elements where each slot lies apart.
var Decisions = Ceilings{Text: 1 << 20, Bytes: 16 << 20, Elements: 1 << 18, Depth: 8}

// Rules are the ceilings of a connection over which rules are read.
var Rules = Ceilings{Text: 64 << 20, Bytes: 128 << 20, Elements: 1 << 21, Depth: 8}

// An Error is why a connection was closed.
type Error struct{ What string }

func (e *Error) Error() string {
	return "the server sent what no Redis answers to weir, and the connection was closed: " + e.What
}

func wrong(format string, args ...any) error { return &Error{What: fmt.Sprintf(format, args...)} }

// Conn is a guarded connection.
type Conn struct {
	net.Conn
	reader reader

	mu     sync.Mutex
	asked  *writer // nil: replies are not counted
	failed error
}

// Guard guards a connection with one user, which speaks RESP3 once it has said HELLO: it counts requests and replies
// too.
func Guard(conn net.Conn, most Ceilings) *Conn {
	g := Bound(conn, most)
	g.asked = &writer{}
	return g
}

// Bound checks the sizes of replies only.
func Bound(conn net.Conn, most Ceilings) *Conn {
	return &Conn{Conn: conn, reader: reader{most: most}}
}

// Read implements net.Conn. After the first error all others are the same.
func (g *Conn) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failed == nil && n > 0 {
		g.failed = g.reader.read(p[:n], g.asked)
	}
	if g.failed != nil {
		g.Conn.Close()
		return 0, g.failed
	}
	return n, err
}

func (g *Conn) Write(p []byte) (int, error) {
	if g.asked != nil {
		g.mu.Lock()
		g.asked.write(p)
		g.mu.Unlock()
	}
	return g.Conn.Write(p)
}
