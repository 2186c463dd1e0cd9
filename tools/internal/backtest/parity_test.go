package backtest_test

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/internal/accesslog"
	"github.com/weirproject/weir/tools/internal/backtest"
)

const everyAlgorithm = `
rules:
  - {name: bucket, match: {path: /bucket/**}, key: [client.ip], limit: 3/10s burst 5}
  - {name: step, match: {path: /step/**}, key: [client.ip], limit: 3/10s step}
  - {name: queue, match: {path: /queue/**}, key: [client.ip], limit: leaky_queue 20000/1s}
  - {name: fixed, match: {path: /fixed/**}, key: [client.ip v4/28], limit: fixed_window 9/10s}
  - {name: epoch, match: {path: /epoch/**}, key: [client.ip], limit: fixed_window 4/10s epoch}
  - {name: calendar, match: {path: /calendar/**}, key: [client.ip], limit: calendar 12/minute in Asia/Shanghai}
  - {name: log, match: {path: /log/**}, key: [client.ip], limit: [sliding_log 5/10s, sliding_log 20/1m]}
  - {name: counter, match: {path: /counter/**}, key: [client.ip], limit: sliding_counter 4/10s}
  - {name: failures, match: {path: /login}, key: [client.ip], limit: sliding_log 3/1m, count_if: {status: [401]}}
  - {name: banned, match: {path: /banned/**}, key: [client.ip], limit: 3/10s, ban: {after: 5 refusals within 1m, for: 2m}}
  - {name: users, match: {user: "*"}, key: [user], limit: sliding_log 9/10s}
  - {name: pages, match: {path: /query/**}, key: [query.page], limit: fixed_window 12/10s}
  - {name: shadow, mode: shadow, key: [client.ip], limit: 1/1m}
deny: {client.ip: [192.0.2.13]}
`

// sections are the paths of the requests, some in spellings that the gateway brings to another form.
var sections = []string{"/bucket/a", "/step/a", "/queue/a", "/fixed/a", "/epoch/a", "/calendar/a", "/log/a", "/counter/a",
	"/login", "/%6cogin", "//login", "/x/../log/b", "/banned/a", "/query/a?page=1&x=%zz", "/query/a?page=%32", "/a%2fb"}

// A sent request is a line of the log, and what the server needs to know to answer it as then.
type sent struct {
	at                           int64
	client, user, method, target string
	status                       int
}

// parityLog makes a log of some hundred requests a minute of twenty clients, which come in bursts.
func parityLog(n int) (log string, list []sent) {
	r := rand.New(rand.NewPCG(3, 4))
	var b strings.Builder
	at := begin.Add(-time.Hour) // of a time zone's odd hour
	for len(list) < n {
		at = at.Add(time.Duration(r.IntN(3)) * time.Second)
		for range 1 + r.IntN(60) {
			x := sent{client: fmt.Sprintf("192.0.2.%d", r.IntN(1+r.IntN(20))), user: "-", method: "GET", status: 200,
				target: sections[r.IntN(len(sections))]}
			if r.IntN(9) == 0 {
				x.user = fmt.Sprintf("u%d", r.IntN(4))
			}
			if strings.HasSuffix(x.target, "ogin") && r.IntN(3) > 0 {
				x.method, x.status = "POST", 401
			}
			if r.IntN(200) == 0 {
				x.method = "post"
			}
			x.at = at.UnixMicro()
			list = append(list, x)
			fmt.Fprintf(&b, "%s - %s [%s] \"%s %s HTTP/1.1\" %d 512 \"-\" \"-\"\n", x.client, x.user,
				at.Format("02/Jan/2006:15:04:05 -0700"), x.method, x.target, x.status)
		}
	}
	return b.String(), list
}

// spread sets the instants of requests that have the same second.
func spread(list []sent) {
	for from := 0; from < len(list); {
		to := from
		for to < len(list) && list[to].at == list[from].at {
			to++
		}
		for i := range to - from {
			list[from+i].at += 1_000_000 * int64(i) / int64(to-from)
		}
		from = to
	}
}

// A server limits requests before a proxy to a service, with a clock that the test drives.
type server struct {
	*httptest.Server
	now   atomic.Int64
	ended chan struct{} // if not nil, gets the end of each request
}

// newServer begins a server; service answers the requests that pass.
func newServer(t *testing.T, set *rules.Set, service http.RoundTripper) *server {
	t.Helper()
	s := new(server)
	clock := memstore.WithClock(func() weir.Instant { return weir.Instant(s.now.Load()) })
	g, err := gate.New(memstore.New(clock), set, gate.WithLocal(memstore.New(clock)),
		gate.WithClock(func() time.Time { return time.UnixMicro(s.now.Load()) }))
	if err != nil {
		t.Fatal(err)
	}
	clients, err := clientaddr.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
	if err != nil {
		t.Fatal(err)
	}
	limit, err := httplimit.ByRules(g, &httplimit.RuleOptions{Clients: clients, RegisteredMethods: true, User: func(r *http.Request) string { return r.Header.Get("X-User") }})
	if err != nil {
		t.Fatal(err)
	}
	upstream, _ := url.Parse("http://service.test")
	handler := limit(&httputil.ReverseProxy{Transport: service,
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(upstream) }})
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if at, err := strconv.ParseInt(r.Header.Get("X-At"), 10, 64); err == nil {
			s.now.Store(at)
		}
		handler.ServeHTTP(w, r)
		if s.ended != nil {
			s.ended <- struct{}{}
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// asThen answers with the status of the log.
type asThen struct{}

func (asThen) RoundTrip(r *http.Request) (*http.Response, error) {
	status, err := strconv.Atoi(r.Header.Get("X-Then"))
	return &http.Response{StatusCode: status, Header: http.Header{"X-Service": {"yes"}}, Body: http.NoBody,
		Request: r, ProtoMajor: 1, ProtoMinor: 1}, err
}

// ask sends all requests over one connection, without waiting for the responses, and reads whether each passed.
func (s *server) ask(t *testing.T, list []sent) (passed []bool, refused int) {
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() {
		w := bufio.NewWriter(conn)
		for i := range list {
			x := &list[i]
			fmt.Fprintf(w, "%s %s HTTP/1.1\r\nHost: service.test\r\nX-Forwarded-For: %s\r\nX-At: %d\r\nX-Then: %d\r\n",
				x.method, x.target, x.client, x.at, x.status)
			if x.user != "-" {
				fmt.Fprintf(w, "X-User: %s\r\n", x.user)
			}
			io.WriteString(w, "\r\n")
		}
		w.Flush()
	})
	reader := bufio.NewReader(conn)
	for i := range list {
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		io.Copy(io.Discard, response.Body)
		passed = append(passed, response.Header.Get("X-Service") != "")
		if response.StatusCode == http.StatusTooManyRequests {
			refused++
		}
	}
	return passed, refused
}

// TestTheSameLinesAreRefusedOverHTTP: a server that is sent the requests of the log at their times refuses exactly those
// that the replay does.
func TestTheSameLinesAreRefusedOverHTTP(t *testing.T) {
	for _, way := range []backtest.Spread{backtest.Even, backtest.First} {
		t.Run(way.String(), func(t *testing.T) {
			t.Parallel()
			log, list := parityLog(50_000)
			if way == backtest.Even {
				spread(list)
			}
			c := replayOf(t, everyAlgorithm, log, accesslog.Options{})
			c.Spread = way
			decisions, err := backtest.Decisions(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			by := make(map[string]int)
			got, refused := newServer(t, c.Set, asThen{}).ask(t, list)
			wrong := 0
			for i := range list {
				what := decisions[int64(i+1)]
				by[what]++
				if got[i] != (what == "passed") {
					if wrong++; wrong < 5 {
						t.Errorf("line %d, %+v: passed is %v over HTTP, and the replay says %s", i+1, list[i], got[i], what)
					}
				}
			}
			if wrong > 0 {
				t.Errorf("%d of %d lines differ", wrong, len(list))
			}
			for _, rule := range c.Set.Rules() {
				if rule.Name() != "shadow" && by[rule.Name()] == 0 && (rule.Name() != "queue" || way == backtest.First) {
					t.Errorf("the log does not try the rule %s: %v", rule.Name(), by)
				}
			}
			if by["400"] == 0 || by["(deny list)"] == 0 || refused == 0 {
				t.Errorf("the log does not try all: %v", by)
			}
		})
	}
}

const concurrency = `
rules:
  - {name: slots, key: [client.ip], limit: [concurrency 3 ttl 1h, 40/1m], match: {not: [{path: /guess}]}}
  - {name: all, limit: concurrency 9 ttl 1h}
  - {name: guesses, match: {path: /guess}, key: [client.ip], limit: sliding_log 2/10s, count_if: {status: [4xx]}}
`

// A held request lasts from its start to its end, in milliseconds.
type held struct {
	start, end   int64
	line         int64
	client, path string
	status       int
	ends         chan struct{}
}

// heldLog makes a log as nginx writes it, when requests end. The list is in the order of the starts.
func heldLog(n int) (log string, list []*held) {
	r := rand.New(rand.NewPCG(5, 6))
	at := begin.UnixMilli()
	for range n {
		at += 1 + int64(r.IntN(300))
		x := &held{start: at, end: at + int64(r.IntN(3000)), client: fmt.Sprintf("192.0.2.%d", r.IntN(5)),
			path: "/work", status: 200, ends: make(chan struct{})}
		if r.IntN(3) == 0 {
			x.path, x.status = "/guess", 200+201*r.IntN(2)
		}
		list = append(list, x)
	}
	written := slices.Clone(list)
	slices.SortStableFunc(written, func(a, b *held) int { return cmp.Compare(a.end, b.end) })
	var b strings.Builder
	for i, x := range written {
		x.line = int64(i + 1)
		took := x.end - x.start
		fmt.Fprintf(&b, "%s %d.%03d \"GET %s HTTP/1.1\" %d %d.%03d\n", x.client, x.end/1000, x.end%1000, x.path, x.status,
			took/1000, took%1000)
	}
	return b.String(), list
}

// A holding service answers a request when its end comes.
type holding struct {
	list    []*held
	reached chan struct{}
}

func (h *holding) RoundTrip(r *http.Request) (*http.Response, error) {
	i, err := strconv.Atoi(r.Header.Get("X-Number"))
	if err != nil {
		return nil, err
	}
	h.reached <- struct{}{}
	<-h.list[i].ends
	return &http.Response{StatusCode: h.list[i].status, Header: http.Header{}, Body: http.NoBody, Request: r,
		ProtoMajor: 1, ProtoMinor: 1}, nil
}

// TestTheSameRequestsAreRefusedWhileOthersLast is the same for limits that depend on when requests end.
func TestTheSameRequestsAreRefusedWhileOthersLast(t *testing.T) {
	t.Parallel()
	log, list := heldLog(1200)
	c := replayOf(t, concurrency, log,
		accesslog.Options{Format: `$remote_addr $msec "$request" $status $request_time`})
	decisions, err := backtest.Decisions(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	service := &holding{list: list, reached: make(chan struct{})}
	s := newServer(t, c.Set, service)
	s.ended = make(chan struct{}, 1)
	var asking sync.WaitGroup
	defer asking.Wait()
	var lasting []*held // by their ends
	endUntil := func(at int64) {
		for len(lasting) > 0 && lasting[0].end <= at {
			s.now.Store(1000 * lasting[0].end)
			close(lasting[0].ends)
			<-s.ended
			lasting = lasting[1:]
		}
	}
	by := make(map[string]int)
	for i, x := range list {
		endUntil(x.start)
		request, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+x.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header = http.Header{"X-Forwarded-For": {x.client}, "X-At": {fmt.Sprint(1000 * x.start)},
			"X-Number": {fmt.Sprint(i)}}
		asking.Go(func() {
			if response, err := s.Client().Do(request); err == nil {
				response.Body.Close()
			}
		})
		passes := false
		select {
		case <-service.reached:
			passes = true
			at, _ := slices.BinarySearchFunc(lasting, x.end, func(o *held, end int64) int {
				return cmp.Or(cmp.Compare(o.end, end), -1) // after those with the same end
			})
			lasting = slices.Insert(lasting, at, x)
		case <-s.ended:
		}
		what := decisions[x.line]
		by[what]++
		if passes != (what == "passed") {
			t.Errorf("request %d, line %d, %+v: passed is %v over HTTP, and the replay says %s", i, x.line, x, passes, what)
		}
	}
	endUntil(1 << 60)
	for _, rule := range []string{"slots", "all", "guesses", "passed"} {
		if by[rule] == 0 {
			t.Errorf("the log does not try %s: %v", rule, by)
		}
	}
}

func replayOf(t testing.TB, rule, log string, o accesslog.Options) *backtest.Config {
	t.Helper()
	file, err := rules.Parse("rules.yaml", []byte(rule))
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	return &backtest.Config{Name: file.Name, File: file, Set: set, Clients: new(clientaddr.Extractor),
		Form: set.PathForm(), MaxKeys: 1 << 20, Top: 10,
		Open: func(int, int) (backtest.Source, error) {
			return accesslog.Open([]string{"-"}, bytes.NewReader([]byte(log)), o)
		}}
}
