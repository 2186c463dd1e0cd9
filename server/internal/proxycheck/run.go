// Package proxycheck attacks a running proxy that asks weir before it serves a request, and reports the requests that
// were served beyond the limit. It is the command weir verify-proxy, and the test of the configurations in deploy.
package proxycheck

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Config is a request, and the parts to vary in it.
type Config struct {
	URL    *url.URL
	Method string
	Fields []string // "Name: value"; Host and Connection are added
	// Keys are the keys of rules, each with its components: cookie.NAME, query.NAME and header.NAME are spelled in
	// other ways. Those that the request does not have are added to it.
	Keys [][]string
	// Methods adds other methods. A rule with a method does not count them.
	Methods bool
	// Mark is a field that only responses of the service have. "": an answer is the service's if its status is 2xx, or
	// the status of a plain request that was served; a proxy may send such answers too.
	Mark string
	// Most is the maximum number of plain requests until one is refused.
	Most int
	// Workers is the number of connections at once.
	Workers int
	// Dial connects to the proxy; nil: to the host of the URL.
	Dial func(context.Context) (net.Conn, error)
	// Progress, if not nil, is called after each attack, by one goroutine at a time.
	Progress func(done, all, passed int)
}

// timeout of one request. Proxies wait a few seconds for weir.
const timeout = 15 * time.Second

// A Passed is an attack that was served beyond the limit.
type Passed struct {
	Attack
	Status int
}

// A Report lists the requests that were sent, and the ones that passed.
type Report struct {
	Plain    int         // requests until one was refused
	Served   int         // status of a plain request that was served
	Refused  int         // status of one that was refused
	Sent     int         // attacks
	Left     []string    // keys whose limit was not reached, so that their spellings were not sent
	Statuses map[int]int // answers to attacks by their status; 0: none
	Passed   []Passed    // in the order of the answers
}

// A phase is a plain request, and attacks that should be refused like it.
type phase struct {
	key     []string // that is spelled; nil: all other attacks
	plain   Attack
	attacks []Attack
}

type run struct {
	Config
	mu     sync.Mutex // of the report and the progress
	report Report
	all    int
	plain  Attack
	order  sync.Mutex // confirmations come one by one
	fresh  atomic.Int64
}

// Run reaches the limit of the request, and then sends the attacks. An error says why there is no report on all.
func Run(ctx context.Context, c Config) (*Report, error) {
	c.Most, c.Workers = cmp.Or(c.Most, 200), cmp.Or(c.Workers, 4)
	r := &run{Config: c}
	r.report.Statuses = make(map[int]int)
	phases := phases(&c)
	for _, p := range phases {
		r.all += len(p.attacks)
	}
	for _, p := range phases {
		if err := r.phase(ctx, p); err != nil {
			return &r.report, fmt.Errorf("stopped after %d of %d requests: %w", r.report.Sent, r.all, err)
		}
	}
	return &r.report, nil
}

func (r *run) phase(ctx context.Context, p phase) error {
	r.plain = p.plain
	served, refused, sent, err := r.exhaust(ctx)
	switch {
	case p.key == nil:
		r.report.Served, r.report.Refused, r.report.Plain = served, refused, sent
	case errors.Is(err, errNotReached):
		r.report.Left = append(r.report.Left, strings.Join(p.key, ", "))
		return nil
	}
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	work := make(chan Attack)
	var workers sync.WaitGroup
	for range r.Workers {
		workers.Go(func() {
			for a := range work {
				if err := r.attack(ctx, a); err != nil {
					stop(err)
				}
			}
		})
	}
	for i := 0; i < len(p.attacks) && ctx.Err() == nil; i++ {
		work <- p.attacks[i]
	}
	close(work)
	workers.Wait()
	return context.Cause(ctx)
}

// errNotReached is the end of the plain requests.
var errNotReached = errors.New("there is no limit, or it is larger; name a request with a small limit")

// exhaust sends the plain request until it is refused. The first answer belongs to a request that is served.
func (r *run) exhaust(ctx context.Context) (served, refused, sent int, err error) {
	for sent = range r.Most {
		got, err := r.send(ctx, r.plain)
		status := got.status
		switch {
		case err != nil:
			return served, 0, sent, err
		case status == 0:
			return served, 0, sent, fmt.Errorf("%s has no answer", r.plain.Name)
		case status == http.StatusTooManyRequests || served != 0 && status != served:
			return served, status, sent, nil
		}
		served = status
	}
	return served, 0, r.Most, fmt.Errorf("%d plain requests were served with status %d: %w", r.Most, served,
		errNotReached)
}

// served reports whether an answer is the service's.
func (r *run) served(a answer) bool {
	if r.Mark != "" {
		return a.marked
	}
	return a.status == r.report.Served && a.status != r.report.Refused || a.status >= 200 && a.status < 300
}

func (r *run) attack(ctx context.Context, a Attack) error {
	got, err := r.send(ctx, a)
	if err != nil {
		return fmt.Errorf("after %s: %w", a.Name, err)
	}
	passed := r.served(got)
	if passed {
		if got, passed, err = r.confirm(ctx, a); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Sent++
	r.report.Statuses[got.status]++
	if passed {
		r.report.Passed = append(r.report.Passed, Passed{Attack: a, Status: got.status})
	}
	if r.Progress != nil {
		r.Progress(r.report.Sent, r.all, len(r.report.Passed))
	}
	return nil
}

// confirm sends an attack again while the limit surely refuses: units may have returned meanwhile.
func (r *run) confirm(ctx context.Context, a Attack) (got answer, passed bool, err error) {
	r.order.Lock()
	defer r.order.Unlock()
	if _, _, _, err := r.exhaust(ctx); err != nil {
		return got, false, err
	}
	got, err = r.send(ctx, a)
	return got, err == nil && r.served(got), err
}

// An answer is the status of a response, 0 if there is no response, and whether it has the service's mark.
type answer struct {
	status int
	marked bool
}

// send sends an attack over a new connection, and returns the first answer that is not 1xx. An
// error is a proxy that does not accept connections.
func (r *run) send(ctx context.Context, a Attack) (got answer, err error) {
	conn, err := r.connect(ctx)
	if err != nil {
		return got, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	conn.SetDeadline(time.Now().Add(timeout))
	go io.WriteString(conn, strings.ReplaceAll(a.Bytes, fresh, fmt.Sprintf("new-%d", r.fresh.Add(1))))
	in := bufio.NewReader(conn)
	for {
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			return got, nil
		}
		if response.StatusCode >= 200 {
			return answer{response.StatusCode, response.Header.Get(r.Mark) != ""}, nil
		}
	}
}

func (r *run) connect(ctx context.Context) (conn net.Conn, err error) {
	dial := r.Dial
	if dial == nil {
		dial = r.dial
	}
	for range 3 { // a process of the proxy may have ended and be started again
		if conn, err = dial(ctx); err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
	return nil, fmt.Errorf("the proxy does not accept connections: %w", err)
}

func (r *run) dial(ctx context.Context) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: timeout}
	host, port := r.URL.Hostname(), r.URL.Port()
	switch r.URL.Scheme {
	case "http":
		return dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, cmp.Or(port, "80")))
	case "https":
		secure := &tls.Dialer{NetDialer: dialer, Config: &tls.Config{NextProtos: []string{"http/1.1"}}}
		return secure.DialContext(ctx, "tcp", net.JoinHostPort(host, cmp.Or(port, "443")))
	}
	return nil, errors.New("allowed URLs begin with http:// or https://")
}
