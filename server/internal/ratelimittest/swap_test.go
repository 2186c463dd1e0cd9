//go:build unix

package ratelimittest_test

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/server/internal/cli"
	"github.com/weirproject/weir/server/internal/envoytest"
	"github.com/weirproject/weir/server/internal/ratelimittest"
)

// TestMain is weir when it is started as ratelimit, which needs no second program.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "ratelimit" {
		os.Exit(cli.Run(&cli.System{Args: os.Args, Environ: os.Environ(), In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
	}
	os.Exit(m.Run())
}

// weir is a program of the name ratelimit.
func weir(t *testing.T) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "ratelimit")
	if err := os.Symlink(program, name); err != nil {
		t.Fatal(err)
	}
	return name
}

const tightLimit = 5

var configuration = map[string]string{"shop.yaml": `domain: shop
descriptors:
  - key: roomy
    rate_limit: {unit: hour, requests_per_unit: 1000000}
  - key: tight
    rate_limit: {unit: year, requests_per_unit: 5}
`}

// A site is an Envoy before a service, which asks the rate limit service of a place.
type site struct {
	*ratelimittest.Place
	t          *testing.T
	redis      *redistest.Server
	deny, open string // host:port
}

func newSite(t *testing.T) *site {
	t.Helper()
	redis := redistest.Start(t)
	s := &site{t: t, redis: redis, Place: ratelimittest.NewPlace(t, redis.Addr(), configuration)}
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	config, err := os.ReadFile("testdata/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(s.GRPC)
	envoy := envoytest.Start(t, string(config), "port_value: 10001", "port_value: "+port,
		"port_value: 10002", fmt.Sprint("port_value: ", upstream.Listener.Addr().(*net.TCPAddr).Port))
	s.deny, s.open = envoy.Address("deny"), envoy.Address("open")
	return s
}

// An answer is the status of a request, and when it was sent.
type answer struct {
	sent   time.Time
	took   time.Duration
	open   bool
	status int
}

// A load sends 500 requests a second until it is stopped, by turns to both listeners.
type load struct {
	site *site
	stop chan struct{}
	done sync.WaitGroup

	mu      sync.Mutex
	answers []answer
}

const interval = 2 * time.Millisecond

func (s *site) load() *load {
	l := &load{site: s, stop: make(chan struct{})}
	l.done.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for n := 0; ; n++ {
			select {
			case <-l.stop:
				return
			case <-ticker.C:
				l.done.Go(func() { l.send(n%2 == 0, fmt.Sprint(n%100)) })
			}
		}
	})
	return l
}

func (l *load) send(open bool, key string) {
	a := answer{sent: time.Now(), open: open}
	a.status = l.site.get(open, "X-Roomy", key)
	a.took = time.Since(a.sent)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = append(l.answers, a)
}

// run waits until so many more requests were answered.
func (l *load) run(n int) {
	l.site.t.Helper()
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.answers)
	}
	enough := count() + n
	redistest.Await(l.site.t, "answers of Envoy", func() bool { return count() >= enough })
}

// end stops the load. It returns its answers.
func (l *load) end() []answer {
	close(l.stop)
	l.done.Wait()
	return l.answers
}

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 512}, Timeout: time.Minute}

// get is the status of a request with one descriptor; 0: no answer.
func (s *site) get(open bool, header, value string) int {
	address := s.deny
	if open {
		address = s.open
	}
	r, err := http.NewRequest(http.MethodGet, "http://"+address, nil)
	if err != nil {
		s.t.Error(err)
		return 0
	}
	r.Header.Set(header, value)
	response, err := client.Do(r)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// tight uses a limit of five up. It returns how many requests passed.
func (s *site) tight(key string) (passed int) {
	s.t.Helper()
	for range 3 * tightLimit {
		switch status := s.get(false, "X-Tight", key); status {
		case http.StatusOK:
			passed++
		case http.StatusTooManyRequests:
		default:
			s.t.Errorf("a request with a tight limit was answered %d", status)
		}
	}
	return passed
}

// A report is what clients saw of a change of services.
type report struct {
	answers, passed int         // in all, and with 200
	errors          map[int]int // by status, while no service was ready
	away            time.Duration
	slowest         time.Duration
	kept            int // units that remained of a used limit
}

func (r report) String() string {
	return fmt.Sprintf("%d of %d requests passed; errors by status %v in %v without a service; slowest answer %v; %d units of a used limit remained",
		r.passed, r.answers, r.errors, r.away.Round(time.Millisecond), r.slowest.Round(time.Millisecond), r.kept)
}

// replaced stops one service under load and starts another at its place. Outside that time every request passes, and
// where Envoy is open to errors it passes always.
func replaced(t *testing.T, from, to string) report {
	t.Helper()
	s := newSite(t)
	service := s.Start(from)
	service.Await()
	if n := s.tight("a"); n != tightLimit {
		t.Errorf("%d requests passed before the change, want %d", n, tightLimit)
	}
	load := s.load()
	load.run(250)
	gone := time.Now()
	service.Stop()
	next := s.Start(to)
	next.Await()
	back := time.Now()
	load.run(250)
	kept := tightLimit - s.tight("a")
	r := report{errors: make(map[int]int), away: back.Sub(gone), kept: kept}
	for _, a := range load.end() {
		r.count(t, a, gone, back)
	}
	next.Stop()
	return r
}

func (r *report) count(t *testing.T, a answer, gone, back time.Time) {
	r.answers++
	r.slowest = max(r.slowest, a.took)
	during := a.sent.Add(a.took).After(gone) && a.sent.Before(back)
	switch {
	case a.status == http.StatusOK:
		r.passed++
	case a.open:
		t.Errorf("Envoy passes errors of the rate limit service, and answered %d", a.status)
	case during:
		r.errors[a.status]++
	default:
		t.Errorf("answered %d while a service was ready, %v after the start of the change", a.status, a.sent.Sub(gone))
	}
}

// TestSwap replaces the real service by weir, as an operator who changes the name of an image, and weir by the real
// one, as an operator who goes back. Clients see what they see when the real service is restarted.
func TestSwap(t *testing.T) {
	t.Parallel()
	real, weir := ratelimittest.Real(t), weir(t)
	restart := replaced(t, real, real)
	t.Logf("real to real: %v", restart)
	for _, change := range []struct{ name, from, to string }{{"real to weir", real, weir}, {"weir to real", weir, real}} {
		r := replaced(t, change.from, change.to)
		t.Logf("%s: %v", change.name, r)
		for status := range r.errors {
			if restart.errors[status] == 0 {
				t.Errorf("%s: answers with %d, where a restart has %s", change.name, status, words(restart.errors))
			}
		}
		if r.kept != 0 {
			t.Errorf("%s: %d units of a limit remained used: the services share no state", change.name, r.kept)
		}
	}
	if restart.kept != tightLimit {
		t.Errorf("a restart keeps counts, and %d units remained used", restart.kept)
	}
}

func words(errors map[int]int) string {
	return strings.Join(strings.Fields(fmt.Sprint(slices.Sorted(maps.Keys(errors)))), ", ")
}

// TestRestart restarts weir under load: what clients see of it, without the real service to compare with.
func TestRestart(t *testing.T) {
	t.Parallel()
	weir := weir(t)
	r := replaced(t, weir, weir)
	t.Log(r)
	if r.kept != tightLimit {
		t.Errorf("a restart keeps counts in Redis, and %d units remained used", r.kept)
	}
}

// TestRedisIsKilled kills Redis under load, restarts weir without it, and starts Redis. Each process counts by itself
// meanwhile, so that the restart alone shows.
func TestRedisIsKilled(t *testing.T) {
	t.Parallel()
	weir := weir(t)
	s := newSite(t)
	service := s.Start(weir)
	service.Await()
	load := s.load()
	load.run(250)
	s.redis.Kill()
	load.run(250)
	gone := time.Now()
	service.Stop()
	service = s.Start(weir)
	service.Await()
	back := time.Now()
	load.run(250)
	if n := s.tight("a"); n != tightLimit {
		t.Errorf("without Redis %d requests pass a limit of %d", n, tightLimit)
	}
	s.redis.Restart()
	counted := func() bool { return strings.Contains(s.redis.Info("keyspace")["db0"], "keys=") }
	redistest.Await(t, "counts in Redis", counted)
	load.run(250)
	r := report{errors: make(map[int]int), away: back.Sub(gone)}
	for _, a := range load.end() {
		r.count(t, a, gone, back)
	}
	t.Log(r)
	service.Stop()
}
