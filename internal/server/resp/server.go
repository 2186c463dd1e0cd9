// Package resp is the door for programs that speak Redis' protocol, RESP2 or RESP3: every
// client of Redis is a client of it, unpatched.
//
// It answers CL.THROTTLE as redis-cell does, and WEIR.DECIDE, WEIR.PEEK, WEIR.REFUND,
// WEIR.RELEASE and WEIR.RESET for every other limit and for the rules in force. Of Redis'
// own commands it has those with which clients connect, and no others: it keeps no data.
// docs/resp.md has them all.
//
// Each connection has a goroutine and buffers of its own. Commands that came together are
// answered together. What a client may send, and how long it may take, has ceilings: see
// Limits. Until it has said the password, if there is one, the ceilings are lower, and it
// can do nothing but say it.
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
	"github.com/weirproject/weir/pathform"
)

// ErrClosed is what Serve returns after Shutdown or Close.
var ErrClosed = errors.New("resp: the server is closed")

// Limits are the ceilings of what clients may do. What is 0 has its default.
type Limits struct {
	Line     int // bytes of a command that is typed as a line: 64 KiB
	Elements int // of a command, its name and its arguments: 1024
	Bulk     int // bytes of one of them: 64 KiB; a longer one is read past, and its command is an error
	Request  int // bytes of a command as it is sent: 1 MiB
	Conns    int // connections at a time: 10,000

	// Transaction is how many bytes the commands between MULTI and EXEC may have, with 32
	// more for each word: 4 MiB.
	Transaction int

	// Idle is how long a connection may take from one whole command to the next: 10 minutes.
	// It is closed then, or up to an eighth later.
	Idle time.Duration
	// Login is how long a connection may take from its start, or from RESET, until it is
	// authenticated, where it must be: 10 seconds.
	Login time.Duration
	// Write is how long a client may take to read what it is answered: 10 seconds.
	Write time.Duration
}

// defaultLimits are those of a server that is given none.
func defaultLimits() Limits {
	return Limits{Line: 64 << 10, Elements: 1024, Bulk: weir.MaxKey, Request: 1 << 20, Conns: 10_000, Transaction: 4 << 20,
		Idle: 10 * time.Minute, Login: 10 * time.Second, Write: 10 * time.Second}
}

// least are the smallest ceilings under which clients can connect.
const (
	leastElements = 8
	leastBytes    = 512
)

// An Option changes what New makes.
type Option func(*Server)

// WithLimits sets ceilings of what clients may do.
func WithLimits(limits Limits) Option { return func(s *Server) { s.max = limits } }

// WithPassword has clients say who they are before they can do anything: AUTH password, or
// AUTH user password. The user "" is "default", whom AUTH password means. Given more than
// once, each pair is good.
func WithPassword(user, password string) Option {
	return func(s *Server) {
		if user == "" {
			user = defaultUser
		}
		s.open = s.open || password == ""
		s.users = append(s.users, credentials{sha256.Sum256([]byte(user)), sha256.Sum256([]byte(password))})
	}
}

// WithFailOpen grants what callers name the limits of, CL.THROTTLE and LIMIT, while the
// store does not answer, as if none of it had been used. Without it they are told so by an
// error. What becomes of rules' requests then, the rules say.
func WithFailOpen() Option { return func(s *Server) { s.failOpen = true } }

// WithPathForm gives the form that paths are matched in, for WEIR.DECIDE RULES.
func WithPathForm(form pathform.Form) Option { return func(s *Server) { s.form = form } }

// A Server answers the connections of the listeners that it is given. Its methods may be
// called from any goroutine.
type Server struct {
	gate     *gate.Gate
	store    weir.Store
	max      Limits
	users    []credentials
	open     bool // a password is empty
	failOpen bool
	form     pathform.Form

	commands []*command
	byName   map[string]*command
	limits   *compiled
	ctx      context.Context // of the decisions; over when the server is closed
	cancel   context.CancelFunc
	lastID   atomic.Int64
	together bool          // commands that came together are decided together
	batches  chan struct{} // holds those that are at the store
	guesses  guesses       // wrong passwords
	refusing chan struct{} // holds those who are told that there are too many

	mu        sync.Mutex
	closing   atomic.Bool
	listeners map[net.Listener]bool
	conns     map[*conn]bool
	running   sync.WaitGroup // the goroutines of connections
}

// New makes a server that decides by g. Store is what g asks, for WEIR.RESET.
func New(g *gate.Gate, store weir.Store, opts ...Option) (*Server, error) {
	if g == nil || store == nil {
		return nil, errors.New("resp: the gate or its store is nil; give both")
	}
	s := &Server{gate: g, store: store, limits: newCompiled(), refusing: make(chan struct{}, 16), batches: make(chan struct{}, mostBatches),
		listeners: make(map[net.Listener]bool), conns: make(map[*conn]bool)}
	for _, opt := range opts {
		opt(s)
	}
	if s.open {
		return nil, errors.New("resp: a password is empty; give one, or leave out WithPassword")
	}
	if err := s.max.complete(); err != nil {
		return nil, err
	}
	_, s.together = store.(weir.Batcher)
	s.commands, s.byName = commands()
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// complete puts the defaults where there is nothing.
func (l *Limits) complete() error {
	def := defaultLimits()
	for _, n := range []struct {
		field      string
		value      *int
		least, def int
	}{
		{"Line", &l.Line, leastBytes, def.Line}, {"Elements", &l.Elements, leastElements, def.Elements},
		{"Bulk", &l.Bulk, leastBytes, def.Bulk}, {"Request", &l.Request, leastBytes, def.Request}, {"Conns", &l.Conns, 1, def.Conns},
		{"Transaction", &l.Transaction, leastBytes, def.Transaction},
	} {
		if *n.value == 0 {
			*n.value = n.def
		}
		if *n.value < n.least || *n.value > 1<<30 {
			return &weir.InputError{Field: "resp.Limits." + n.field, Given: *n.value, Allowed: "a few hundred and more (Elements: 8, Conns: 1), to 2^30; 0 for the default"}
		}
	}
	for _, d := range []struct {
		field string
		value *time.Duration
		def   time.Duration
	}{{"Idle", &l.Idle, def.Idle}, {"Login", &l.Login, def.Login}, {"Write", &l.Write, def.Write}} {
		if *d.value == 0 {
			*d.value = d.def
		}
		if *d.value < time.Millisecond {
			return &weir.InputError{Field: "resp.Limits." + d.field, Given: *d.value, Allowed: "1ms or more; 0 for the default"}
		}
	}
	return nil
}

// Serve answers who connects, until the listener fails or the server is closed: the error
// is ErrClosed then. It closes the listener. TLS is the listener's business.
func (s *Server) Serve(listener net.Listener) error {
	if !s.listen(listener) {
		listener.Close()
		return ErrClosed
	}
	defer s.deaf(listener)
	for wait := time.Duration(0); ; {
		nc, err := listener.Accept()
		switch {
		case err == nil:
			wait = 0
			s.welcome(nc)
		case s.closing.Load():
			return ErrClosed
		case !passing(err):
			return err
		default: // too many open files, most often: that passes
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(wait):
			case <-s.ctx.Done():
			}
		}
	}
}

// passing reports whether Accept may succeed when it is asked again. The method is
// deprecated for errors at large; for Accept it is what net/http goes by.
func passing(err error) bool {
	var temporary interface{ Temporary() bool }
	return errors.As(err, &temporary) && temporary.Temporary()
}

func (s *Server) listen(listener net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		return false
	}
	s.listeners[listener] = true
	return true
}

func (s *Server) deaf(listener net.Listener) {
	s.mu.Lock()
	delete(s.listeners, listener)
	s.mu.Unlock()
	listener.Close()
}

// welcome starts a connection, if there is room for it.
func (s *Server) welcome(nc net.Conn) {
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
		s.turnAway(nc)
	}
}

// turnAway tells a client that there are too many. With TLS that needs its help, so it is
// not waited for; and where many are being told, the others are not.
func (s *Server) turnAway(nc net.Conn) {
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

func (s *Server) gone(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.running.Done()
}

// close ends listening, and each connection with end. It is done once.
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

// Shutdown stops listening, lets each connection answer the commands that it has read
// whole, and closes it. If the context ends before, it closes what is left at once and
// returns the context's error.
func (s *Server) Shutdown(ctx context.Context) error {
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

// Close ends everything at once. Decisions that are under way end with their context; it
// does not wait for them.
func (s *Server) Close() {
	s.cancel()
	s.close(func(c *conn) { c.nc.Close() })
}
