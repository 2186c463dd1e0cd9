package grpcserver

import (
	"context"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/weirproject/weir/internal/tally"
)

// Bounds of a connection, in ticks of a second.
const (
	// firstCall is how long a stranger may take for its first call, where calls need a token. The Redis protocol has
	// the same.
	firstCall = 10
	// strangerAge is how long a connection may last on health checks alone, where other calls need a token.
	strangerAge = 60
	// lateMessage is how long the message of a call may take after its header.
	lateMessage = 10
)

// maxWatches is the most concurrent calls without a token on a connection, where calls need one: of health's Watch.
const maxWatches = 100

// A connection is an open connection.
type connection struct {
	net.Conn
	all      *connections
	called   atomic.Bool // there was a call
	known    atomic.Bool // there was one with a valid token
	watches  atomic.Int64
	messages tally.InFlight // calls whose message has not arrived
	age      int            // ticks
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.all.remove(c)
	return c.Conn.Close()
}

// AuthType implements credentials.AuthInfo: gRPC hands it to each call, so that the call knows its connection.
func (c *connection) AuthType() string { return "weir" }

func connectionOf(ctx context.Context) *connection {
	if p, ok := peer.FromContext(ctx); ok {
		c, _ := p.AuthInfo.(*connection)
		return c
	}
	return nil
}

// connections closes connections of strangers that hold places and memory without a call. It is the credentials of the
// gRPC server, which see each connection first. TLS is the listener's.
type connections struct {
	credentials.TransportCredentials // unused: of clients
	tokens                           bool

	mu   sync.Mutex
	open map[*connection]struct{}
}

// ServerHandshake implements credentials.TransportCredentials.
func (s *connections) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c := &connection{Conn: raw, all: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[c] = struct{}{}
	return c, c, nil
}

// Info implements credentials.TransportCredentials.
func (s *connections) Info() credentials.ProtocolInfo { return credentials.ProtocolInfo{} }

// Clone implements credentials.TransportCredentials.
func (s *connections) Clone() credentials.TransportCredentials { return s }

func (s *connections) remove(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

// watch calls tick each second.
func (s *connections) watch(ended <-chan struct{}) {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-ended:
			return
		case <-second.C:
			s.tick()
		}
	}
}

// tick closes the connections that are over their bounds.
func (s *connections) tick() {
	var over []*connection
	s.mu.Lock()
	for c := range s.open {
		c.age++
		most := math.MaxInt
		if s.tokens && !c.known.Load() {
			most = strangerAge
			if !c.called.Load() {
				most = firstCall
			}
		}
		if c.messages.Tick() >= lateMessage || c.age >= most {
			over = append(over, c)
		}
	}
	s.mu.Unlock()
	for _, c := range over {
		c.Close()
	}
}
