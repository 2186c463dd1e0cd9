//go:build !small

package redisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir/internal/respguard"
)

const (
	dialTimeout = 5 * time.Second
	// dialPause is how long the error of a failed attempt is reused: weir connects to a Redis
	// that is down twenty times a second, not once a decision.
	dialPause = 50 * time.Millisecond
	// dialKeep is how long a connection may still, after its calls gave up, be used by others.
	dialKeep = 2 * time.Second
)

var (
	errDialClosed = errors.New("the store is closed")
	errSilent     = errors.New("the server sent nothing while calls waited for it")
	errFar        = errors.New("the server has not accepted a connection yet")
)

// unreachable says that no connection could be made: the call was not executed.
type unreachable struct {
	addr  string
	cause error
}

func (e *unreachable) Error() string { return fmt.Sprintf("no connection to %s: %v", e.addr, e.cause) }
func (e *unreachable) Unwrap() error { return e.cause }

func isUnreachable(err error) bool {
	var far *unreachable
	return errors.As(err, &far)
}

// A dialer makes connections that outlast the calls that wanted them. A call has tens of
// milliseconds; TCP and TLS may need more. If each attempt ended with its call, a server
// some way off could be lost once and never be reached again.
//
// rueidis lets every call of a node wait for the first one that connects, without regard to their contexts, and the
// first may be its own look-up of the topology, which has seconds. So once the store is open no call waits for a
// connection and the server's HELLO for longer than the timeout.
type dialer struct {
	network string
	tls     *tls.Config
	silence time.Duration
	timeout time.Duration // of a call
	most    respguard.Ceilings
	opened  atomic.Bool

	mu       sync.Mutex
	closed   bool
	attempts map[string]*attempt // by address: under way, failed a moment ago, or not taken up
}

type attempt struct {
	done chan struct{}
	// These are set, under the dialer's lock, before done is closed.
	conn  net.Conn
	err   error
	ended time.Time
}

// dial implements rueidis' DialCtxFn. One attempt for each address is under way at a time.
func (d *dialer) dial(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
	patience := dialTimeout
	if d.opened.Load() {
		patience = d.timeout
	}
	for end := time.Now().Add(patience); ; {
		a, err := d.attempt(addr)
		if err != nil {
			return nil, &unreachable{addr, err}
		}
		if err := a.wait(ctx, time.Until(end)); err != nil {
			return nil, &unreachable{addr, err}
		}
		if d.take(addr, a) {
			conn := &watched{Conn: a.conn, silence: d.silence, greeted: end, born: time.Now()}
			return respguard.Guard(conn, d.most), nil
		}
	}
}

// wait waits for the attempt's end, and returns its error.
func (a *attempt) wait(ctx context.Context, patience time.Duration) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return errFar
	}
}

// attempt returns the attempt under way, or the last if it may still be used, or a new one.
func (d *dialer) attempt(addr string) (*attempt, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errDialClosed
	}
	a := d.attempts[addr]
	if a == nil || a.stale() {
		a = &attempt{done: make(chan struct{})}
		d.attempts[addr] = a
		go d.run(addr, a)
	}
	return a, nil
}

// stale reports whether an attempt has ended too long ago; a connection is then closed.
func (a *attempt) stale() bool {
	age := time.Since(a.ended)
	switch {
	case a.ended.IsZero():
		return false
	case a.err != nil:
		return age > dialPause
	case age <= dialKeep:
		return false
	}
	a.conn.Close()
	return true
}

// take makes the attempt's connection the caller's, unless another was faster.
func (d *dialer) take(addr string, a *attempt) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.attempts[addr] != a || d.closed {
		return false
	}
	delete(d.attempts, addr)
	return true
}

func (d *dialer) run(addr string, a *attempt) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	conn, err := d.connect(ctx, addr)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed && err == nil {
		conn.Close()
		err = errDialClosed
	}
	a.conn, a.err, a.ended = conn, err, time.Now()
	close(a.done)
}

func (d *dialer) connect(ctx context.Context, addr string) (net.Conn, error) {
	var plain net.Dialer
	if d.tls == nil {
		return plain.DialContext(ctx, d.network, addr)
	}
	secure := tls.Dialer{NetDialer: &plain, Config: d.tls}
	return secure.DialContext(ctx, d.network, addr)
}

func (d *dialer) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, a := range d.attempts {
		if a.conn != nil {
			a.conn.Close()
		} // one under way is closed by run
	}
}

// watched ends a connection on which the server has been silent for too long after a write.
// rueidis would wait for seconds, and as its full queue (of calls that were given up, too)
// ignores the contexts of calls, a frozen server would hold every caller for that long.
type watched struct {
	net.Conn
	silence time.Duration
	born    time.Time
	greeted time.Time    // by when HELLO must be answered; zero after the first deadline
	piped   atomic.Bool  // rueidis sets no deadline of its own
	asked   atomic.Int64 // ns since born of the first write after the last read; 0: none
	armed   atomic.Bool  // Read has a deadline
}

// SetDeadline is called by rueidis: with a time when it waits for one reply, with the zero time when it begins to
// pipeline.
func (w *watched) SetDeadline(t time.Time) error {
	if t.After(w.greeted) && !w.greeted.IsZero() {
		t = w.greeted
	}
	w.greeted = time.Time{}
	w.piped.Store(t.IsZero())
	return w.Conn.SetDeadline(t)
}

func (w *watched) Write(p []byte) (int, error) {
	if w.piped.Load() && w.asked.CompareAndSwap(0, int64(time.Since(w.born))) {
		w.arm()
	}
	return w.Conn.Write(p)
}

// arm does not move a deadline that is set already, although it is too early: to move it with
// every write costs a lone caller a tenth of its time.
func (w *watched) arm() {
	if !w.armed.Swap(true) {
		w.Conn.SetReadDeadline(time.Now().Add(w.silence))
	}
}

// Read tries again after its deadline: that may belong to a write that was answered since, or
// this process stood still and the answer is there.
func (w *watched) Read(p []byte) (int, error) {
	for late := false; ; {
		n, err := w.Conn.Read(p)
		if n > 0 {
			w.asked.Store(0)
		}
		if n > 0 || !w.piped.Load() || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		asked := time.Duration(w.asked.Load())
		switch {
		case asked == 0:
			w.disarm()
		case time.Since(w.born)-asked < w.silence:
			w.Conn.SetReadDeadline(w.born.Add(asked + w.silence))
		case late:
			return 0, errSilent
		default:
			late = true
			w.Conn.SetReadDeadline(time.Now().Add(w.silence / 16))
		}
	}
}

// disarm checks asked again at its end: a write in between found the old deadline.
func (w *watched) disarm() {
	w.Conn.SetReadDeadline(time.Time{})
	w.armed.Store(false)
	if w.asked.Load() != 0 {
		w.arm()
	}
}
