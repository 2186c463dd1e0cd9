// Command http is a small HTTP server that is limited by client address.
//
//	go run ./examples/http
//	go run ./examples/http -limit "sliding_log 5/1m" -store redis://127.0.0.1:6379
//
// It is an example, not a gateway: it trusts no X-Forwarded-For, and lets requests pass
// while its store does not answer.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "where to listen")
	limit := flag.String("limit", "5/10s", "the limit of each client address, as weir.ParseLimit reads it")
	store := flag.String("store", "memory", "memory, or a URL such as redis://127.0.0.1:6379")
	timeout := flag.Duration("timeout", 50*time.Millisecond, "how long to wait for Redis")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *addr, *limit, *store, *timeout); err != nil {
		log.Fatal(err)
	}
}

// run serves until the context ends.
func run(ctx context.Context, addr, limit, url string, timeout time.Duration) error {
	spec, err := weir.ParseLimit(limit)
	if err != nil {
		return err
	}
	if _, holds := spec.(weir.Concurrency); holds {
		return errors.New("a concurrency limit needs somebody to release what it holds: see Limiter.Acquire")
	}
	store, err := open(ctx, url, timeout)
	if err != nil {
		return err
	}
	defer store.Close()
	limiter, err := weir.New(store, "per-address", spec)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Printf("Each address may send %v. Try, a few times:\n\n\tcurl -i http://%s/\n\n", spec, listener.Addr())
	return serve(ctx, listener, limited(limiter, http.HandlerFunc(hello)))
}

func open(ctx context.Context, url string, timeout time.Duration) (weir.Store, error) {
	if url == "memory" {
		return memstore.New(), nil
	}
	return redisstore.Open(ctx, url, redisstore.WithTimeout(timeout))
}

// serve serves until the context ends, and then lets the requests finish that are being
// answered.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	finished := make(chan error, 1)
	context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		finished <- server.Shutdown(last)
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-finished
}

func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "Hello.") }

// limited asks the limiter before it lets a request through to next.
func limited(limiter *weir.Limiter, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := limiter.Allow(r.Context(), client(r))
		if err != nil { // an outage of the limiter is not to be one of the service
			log.Print(err)
			next.ServeHTTP(w, r)
			return
		}
		describe(w.Header(), answer)
		if !answer.Allowed {
			w.Header().Set("Retry-After", seconds(answer.RetryAfter))
			http.Error(w, "Too many requests: try again in "+seconds(answer.RetryAfter)+" s.", http.StatusTooManyRequests)
			return
		}
		if pause(r.Context(), answer.Delay) {
			next.ServeHTTP(w, r)
		}
	})
}

// pause sleeps what a request that borrowed has to wait (a leaky queue, an overdraft). It
// is false if the client left meanwhile.
func pause(ctx context.Context, delay time.Duration) bool {
	if delay == 0 {
		return true
	}
	select {
	case <-time.After(delay):
		return true
	case <-ctx.Done():
		return false
	}
}

// client is whom a request is counted against: its address, and of IPv6 the /64, since
// one subscriber has 2^64 addresses to choose from.
func client(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "ip:unknown"
	}
	addr := peer.Addr().Unmap().WithZone("")
	if addr.Is4() {
		return "ip:" + addr.String()
	}
	network, _ := addr.Prefix(64)
	return "ip:" + network.String()
}

// describe sets the fields of draft-ietf-httpapi-ratelimit-headers.
func describe(h http.Header, answer weir.Answer) {
	name := strconv.Quote(answer.Limit.Name())
	policy := []string{name, "q=" + strconv.FormatInt(answer.Limit.Capacity(), 10)}
	if period := answer.Limit.Period(); period >= 1e6 {
		policy = append(policy, "w="+strconv.FormatInt(period/1e6, 10))
	}
	h.Set("RateLimit-Policy", strings.Join(policy, ";"))
	h.Set("RateLimit", fmt.Sprintf("%s;r=%d;t=%s", name, answer.Remaining, seconds(answer.ResetAfter)))
}

// seconds rounds up: a client that comes back a moment too early is refused again.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
