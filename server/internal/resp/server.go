// Package resp serves decisions over Redis' protocol, RESP2 and RESP3: every Redis client works
// unchanged.
//
// It answers CL.THROTTLE as redis-cell does, and WEIR.DECIDE, WEIR.PEEK, WEIR.REFUND, WEIR.RELEASE
// and WEIR.RESET for all other limits and for the rules in force. Of Redis' own commands it has
// the ones that clients send when they connect: it stores no data. docs/reference/resp.md lists them all.
//
// Each connection has its own goroutine and buffers. Commands that arrive together are answered
// together. The limits struct bounds the input of a client and its time; before
// authentication the bounds are lower.
package resp

import (
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/pause"
	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/server/internal/web"
)

// ErrClosed is the error of Serve after Shutdown or Close.
var ErrClosed = errors.New("resp: the server is closed")

// limits bound what clients may do.
type limits struct {
	Line     int // bytes of a command typed as a line
	Elements int // of a command: its name and arguments
	Bulk     int // bytes of an element; a longer one is skipped, and its command is an error
	Request  int // bytes of a command as sent
	Conns    int // concurrent connections

	// Transaction is bytes of the commands between MULTI and EXEC, plus queuedWord for each word.
	Transaction int

	Idle  time.Duration // between commands; a connection is closed up to an eighth later
	Login time.Duration // from the connection, or RESET, to authentication, if there is a password
	Write time.Duration // for a client to read its answers
	Last  time.Duration // of idle connections at the shutdown, for commands that are on their way
}

func defaultLimits() limits {
	return limits{
		Line:        64 << 10,
		Elements:    1024,
		Bulk:        weir.MaxKey,
		Request:     1 << 20,
		Conns:       10_000,
		Transaction: 4 << 20,
		Idle:        10 * time.Minute,
		Login:       10 * time.Second,
		Write:       10 * time.Second,
		Last:        500 * time.Millisecond,
	}
}

// An Option configures a Server.
type Option func(*Server)

// WithMaxConns bounds the concurrent connections, instead of 10,000.
func WithMaxConns(n int) Option { return func(s *Server) { s.max.Conns = n } }

// WithRefused calls count for each connection that is closed because there are too many.
func WithRefused(count func()) Option { return func(s *Server) { s.refused = count } }

// WithPassword requires clients to authenticate: AUTH password, or AUTH user password. The user ""
// is "default", the user of AUTH password. Given several times, each pair is valid.
func WithPassword(user, password string) Option {
	return func(s *Server) {
		if user == "" {
			user = defaultUser
		}
		s.emptyPassword = s.emptyPassword || password == ""
		s.users = append(s.users, credentials{sha256.Sum256([]byte(user)), sha256.Sum256([]byte(password))})
	}
}

// WithFailOpen grants CL.THROTTLE and LIMIT while the store does not answer, as if their limits
// were unused. By default they are answered an error. Requests of rules follow on_store_error.
func WithFailOpen() Option { return func(s *Server) { s.failOpen = true } }

// WithPathForm sets the form of paths for WEIR.DECIDE RULES.
func WithPathForm(form pathform.Form) Option { return func(s *Server) { s.form = form } }

// A Server answers the connections of its listeners. It is safe for concurrent use.
type Server struct {
	gate          *gate.Gate
	store         weir.Store
	max           limits
	users         []credentials
	emptyPassword bool
	failOpen      bool
	form          pathform.Form

	commands []*command
	byName   map[string]*command
	limits   *web.Cache[string, *weir.Limit] // by the words that name them
	ctx      context.Context                 // of the decisions; canceled by Close
	cancel   context.CancelFunc
	lastID   atomic.Int64
	together bool // commands that arrive together are decided together
	batches  batches
	guesses  guesses
	refused  func()        // counts a connection beyond the maximum; nil: nobody does
	refusing chan struct{} // bounds the connections that are being answered that there are too many

	mu        sync.Mutex
	draining  atomic.Bool // connections end with their next answer
	closing   atomic.Bool
	waking    atomic.Bool // idle connections end
	listeners map[net.Listener]bool
	conns     map[*conn]bool
	running   sync.WaitGroup // the goroutines of connections
}

// New makes a server that decides by g. store is the gate's, for WEIR.RESET.
func New(g *gate.Gate, store weir.Store, opts ...Option) (*Server, error) {
	if g == nil || store == nil {
		return nil, errors.New("resp: the gate or its store is nil; give both")
	}
	s := &Server{
		gate:      g,
		store:     store,
		max:       defaultLimits(),
		limits:    web.NewCache[string, *weir.Limit](maxCachedLimits),
		refusing:  make(chan struct{}, 16),
		listeners: make(map[net.Listener]bool),
		conns:     make(map[*conn]bool),
	}
	for _, opt := range opts {
		opt(s)
	}
	switch {
	case s.emptyPassword:
		return nil, errors.New("resp: a password is empty; give one, or leave out WithPassword")
	case s.max.Conns < 1:
		return nil, &weir.InputError{Field: "maximum of connections", Given: s.max.Conns, Allowed: "1 or more"}
	}
	_, s.together = store.(weir.Batcher)
	s.commands, s.byName = commands()
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.batches.decide = func(questions []gate.Question) { g.DecideBatch(s.ctx, questions) }
	return s, nil
}

// Serve answers connections until the listener fails or the server is closed; then the error is
// ErrClosed. It closes the listener. For TLS, give a listener of crypto/tls.
func (s *Server) Serve(listener net.Listener) error {
	defer listener.Close()
	if !s.track(listener) {
		return ErrClosed
	}
	defer s.untrack(listener)
	for wait := time.Duration(0); ; {
		nc, err := listener.Accept()
		switch {
		case err == nil:
			wait = 0
			s.accept(nc)
		case s.closing.Load():
			return ErrClosed
		case !isTemporary(err):
			return err
		default: // usually too many open files
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			pause.For(wait, s.ctx.Done())
		}
	}
}

// isTemporary reports whether Accept may succeed when repeated. The method is deprecated in
// general; net/http uses it for Accept.
func isTemporary(err error) bool {
	var temporary interface{ Temporary() bool }
	return errors.As(err, &temporary) && temporary.Temporary()
}

func (s *Server) track(listener net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		return false
	}
	s.listeners[listener] = true
	return true
}

func (s *Server) untrack(listener net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, listener)
}

// accept starts a connection, unless there are too many.
func (s *Server) accept(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing.Load():
		nc.Close()
	case len(s.conns) < s.max.Conns:
		c := newConn(s, nc)
		s.conns[c] = true
		s.running.Add(1)
		go c.serve()
	default:
		s.refuse(nc)
	}
}

// refuse answers that there are too many connections. With TLS that takes a handshake, so it runs on
// a goroutine; of many such connections at a time, most are closed without an answer.
func (s *Server) refuse(nc net.Conn) {
	if s.refused != nil {
		s.refused()
	}
	select {
	case s.refusing <- struct{}{}:
	default:
		nc.Close()
		return
	}
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		defer func() { <-s.refusing }()
		defer nc.Close()
		nc.SetDeadline(time.Now().Add(time.Second))
		nc.Write([]byte("-ERR max number of clients reached\r\n"))
	}()
}

// ended removes a connection.
func (s *Server) ended(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.running.Done()
}

// close closes the listeners, and calls end for each connection.
func (s *Server) close(end func(*conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing.Store(true)
	for listener := range s.listeners {
		listener.Close()
	}
	for c := range s.conns {
		end(c)
	}
}

// Drain ends each connection with its next answer, and continues to serve. RESP has no word for it: a client that looks
// at its connection before it sends, as pools do, sees the end then.
func (s *Server) Drain() { s.draining.Store(true) }

// Shutdown closes the listeners, and each connection with its next answer, or when it is still idle after limits.Last.
// If the context ends first, it closes the rest at once and returns the context's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Drain()
	s.close(func(*conn) {})
	s.leave(ctx)
	s.waking.Store(true)
	s.close((*conn).wake)
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		s.cancel()
		return nil
	case <-ctx.Done():
		s.Close()
		return ctx.Err()
	}
}

// leave waits until the connections have ended, for limits.Last at most.
func (s *Server) leave(ctx context.Context) {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	last := time.After(s.max.Last)
	for {
		s.mu.Lock()
		left := len(s.conns)
		s.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-last:
			return
		case <-ticker.C:
		}
	}
}

// Close closes everything at once. Decisions in progress are canceled; Close does not wait for them.
func (s *Server) Close() {
	s.cancel()
	s.waking.Store(true)
	s.close(func(c *conn) { c.nc.Close() })
}
