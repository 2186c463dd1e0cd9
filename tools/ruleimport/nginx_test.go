package ruleimport_test

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/ruleimport"
	"github.com/weirproject/weir/tools/ruleimport/importtest"
)

// proofRequests is the number of requests of each configuration.
const proofRequests = 2000

// An nginxProof is a configuration whose refusals are compared.
type nginxProof struct {
	name string
	http string // of the http block
	// drifts is for rates that nginx cannot count in whole thousandths of a request for each millisecond: what it loses
	// by rounding is modelled, so that each difference is explained.
	drifts *drift
}

// A drift is the only limit of a configuration: by client, in thousandths of a request a second.
type drift struct{ rate, burst int64 }

// The words of requests.
var (
	clients = []string{"192.0.2.1", "192.0.2.2", "198.51.100.3", "10.1.2.3", "2001:db8::1", "2001:db8::2"}
	hosts   = []string{"a.example", "b.example", "x.b.example", "other.example"}
	paths   = []string{"/", "/api/x", "/api/open/y", "/apix", "/login", "/login/x", "/static/a.png", "/a.gif", "/A.PNG", "/old/x"}
	users   = []string{"", "ann", "bob", "Cleo"}
)

var nginxProofs = []nginxProof{
	{name: "no burst", http: `limit_req_zone $binary_remote_addr zone=z:1m rate=10r/s;
		server { LISTEN; location / { limit_req zone=z; empty_gif; } }`},
	{name: "burst with delay", http: `limit_req_zone $binary_remote_addr zone=z:1m rate=40r/s;
		server { LISTEN; location / { limit_req zone=z burst=8; empty_gif; } }`},
	{name: "burst without delay", http: `limit_req_zone $remote_addr zone=z:1m rate=20r/s;
		server { LISTEN; limit_req zone=z burst=10 nodelay; location / { empty_gif; } }`},
	{name: "two stages", http: `limit_req_zone $binary_remote_addr zone=z:1m rate=30r/s;
		server { LISTEN; location / { limit_req zone=z burst=12 delay=4; empty_gif; } }`},
	{name: "delay over burst", http: `limit_req_zone $binary_remote_addr zone=z:1m rate=30r/s;
		server { LISTEN; location / { limit_req zone=z burst=5 delay=9; empty_gif; } }`},
	{name: "60r/m", http: `limit_req_zone $binary_remote_addr zone=z:1m rate=60r/m;
		server { LISTEN; location / { limit_req zone=z burst=3 nodelay; empty_gif; } }`},
	{name: "30r/m", drifts: &drift{500, 20}, http: `limit_req_zone $binary_remote_addr zone=z:1m rate=30r/m;
		server { LISTEN; location / { limit_req zone=z burst=20 nodelay; empty_gif; } }`},
	{name: "1000r/m", drifts: &drift{16666, 5}, http: `limit_req_zone $binary_remote_addr zone=z:1m rate=1000r/m;
		server { LISTEN; location / { limit_req zone=z burst=5 nodelay; empty_gif; } }`},
	{name: "100r/m", drifts: &drift{1666, 0}, http: `limit_req_zone $binary_remote_addr zone=z:1m rate=100r/m;
		server { LISTEN; location / { limit_req zone=z; empty_gif; } }`},
	{name: "by header", http: `limit_req_zone $http_x_user zone=z:1m rate=10r/s;
		server { LISTEN; location / { limit_req zone=z burst=4 nodelay; empty_gif; } }`},
	{name: "by host", http: `limit_req_zone $host zone=z:1m rate=15r/s;
		server { LISTEN; location / { limit_req zone=z burst=4 nodelay; empty_gif; } }`},
	{name: "by argument", http: `limit_req_zone $arg_user zone=z:1m rate=10r/s;
		server { LISTEN; location / { limit_req zone=z burst=4 nodelay; empty_gif; } }`},
	{name: "by cookie", http: `limit_req_zone $cookie_session zone=z:1m rate=10r/s;
		server { LISTEN; location / { limit_req zone=z burst=4 nodelay; empty_gif; } }`},
	{name: "combined", http: `limit_req_zone "$binary_remote_addr/${http_x_user}" zone=z:1m rate=5r/s;
		server { LISTEN; location / { limit_req zone=z burst=2 nodelay; empty_gif; } }`},
	{name: "by method", http: `limit_req_zone $request_method zone=z:1m rate=20r/s;
		server { LISTEN; location / { limit_req zone=z burst=9 nodelay; empty_gif; } }`},
	{name: "by path", http: `limit_req_zone $uri zone=z:1m rate=8r/s;
		server { LISTEN; location / { limit_req zone=z burst=5 nodelay; empty_gif; } }`},
	{name: "two limits", http: `limit_req_zone $binary_remote_addr zone=ip:1m rate=20r/s;
		limit_req_zone $server_name zone=all:1m rate=60r/s;
		server { LISTEN; server_name a; location / { limit_req zone=ip burst=4 nodelay; limit_req zone=all burst=9 nodelay; empty_gif; } }`},
	{name: "two limits with delays", http: `limit_req_zone $binary_remote_addr zone=ip:1m rate=20r/s;
		limit_req_zone $http_x_user zone=user:1m rate=30r/s;
		server { LISTEN; location / { limit_req zone=ip burst=6 delay=2; limit_req zone=user burst=9; empty_gif; } }`},
	{name: "inheritance", http: `limit_req_zone $binary_remote_addr zone=a:1m rate=10r/s;
		limit_req_zone $binary_remote_addr zone=b:1m rate=20r/s; limit_req_status 429;
		limit_req zone=a burst=9 nodelay;
		server { LISTEN; location / { empty_gif; }
			location /api/ { limit_req zone=b burst=2 nodelay; empty_gif; location /api/open/ { empty_gif; } }
			location = /login { limit_req zone=b burst=2 nodelay; empty_gif; } }`},
	{name: "priorities", http: `limit_req_zone $binary_remote_addr zone=a:1m rate=5r/s;
		limit_req_zone $binary_remote_addr zone=b:1m rate=6r/s; limit_req_zone $binary_remote_addr zone=c:1m rate=7r/s;
		limit_req_zone $binary_remote_addr zone=d:1m rate=8r/s; limit_req_zone $binary_remote_addr zone=e:1m rate=9r/s;
		server { LISTEN; location = /login { limit_req zone=a; empty_gif; }
			location /login { limit_req zone=b; empty_gif; }
			location ^~ /static/ { limit_req zone=c; empty_gif; }
			location ~* \.png$ { limit_req zone=d; empty_gif; } location ~ "^/[a-z]\.gif$" { limit_req zone=e; empty_gif; }
			location /api { empty_gif; } location /old/ { return 204; limit_req zone=a; } }`},
	{name: "servers", http: `limit_req_zone $binary_remote_addr zone=z:1m rate=10r/s;
		limit_req_zone $server_name zone=each:1m rate=25r/s; limit_req zone=z burst=3 nodelay;
		server { LISTEN; server_name a.example; location / { empty_gif; } }
		server { LISTEN default_server; server_name _; limit_req zone=each burst=5 nodelay; location / { empty_gif; } }
		server { LISTEN; server_name *.b.example b.example; limit_req zone=each burst=5 nodelay; location / { empty_gif; } }`},
	{name: "dry run", http: `limit_req_zone $binary_remote_addr zone=z:1m rate=10r/s;
		server { LISTEN; location / { limit_req zone=z burst=3 nodelay; limit_req_dry_run on; empty_gif; } }`},
	{name: "networks that are not limited", http: `geo $limited { default 1; 10.0.0.0/8 0; 192.0.2.2 0; }
		map $limited $limited_key { 0 ""; 1 $binary_remote_addr; }
		limit_req_zone $limited_key zone=z:1m rate=10r/s;
		server { LISTEN; location / { limit_req zone=z burst=3 nodelay; empty_gif; } }`},
	{name: "users that are not limited", http: `map $http_x_user $k { default $binary_remote_addr; ANN ""; cleo ""; }
		limit_req_zone $k zone=z:1m rate=10r/s;
		server { LISTEN; location / { limit_req zone=z burst=3 nodelay; empty_gif; } }`},
	{name: "WordPress", http: `limit_req_zone $binary_remote_addr zone=z:1m rate=10r/s;
		server { LISTEN; location / { try_files $uri $uri/ /index.php?$args; }
			location ~ \.php$ { limit_req zone=z burst=3 nodelay; empty_gif; } location = /login { empty_gif; } }`},
	{name: "Laravel", http: `limit_req_zone $binary_remote_addr zone=z:1m rate=10r/s;
		server { LISTEN; location / { try_files $uri $uri/ /index.php$is_args$args; }
			location = /index.php { limit_req zone=z burst=3 nodelay; empty_gif; } location /api/ { empty_gif; } }`},
	{name: "one page", http: `limit_req_zone $binary_remote_addr zone=z:1m rate=10r/s;
		server { LISTEN; location / { try_files $uri /index.html; }
			location = /index.html { limit_req zone=z burst=3 nodelay; empty_gif; } location /api { empty_gif; } }`},
	{name: "a named location", http: `limit_req_zone $binary_remote_addr zone=z:1m rate=10r/s;
		limit_req_zone $binary_remote_addr zone=y:1m rate=5r/s;
		server { LISTEN; location / { try_files $uri @app; } location @app { limit_req zone=z burst=3 nodelay; empty_gif; }
			location /login { limit_req zone=y; try_files $uri @app; } }`},
	{name: "users that are limited", http: `map $http_x_user $k { default ""; ann $binary_remote_addr; CLEO $binary_remote_addr; }
		include zone[s].conf;
		server { LISTEN; location / { limit_req zone=z burst=3 nodelay; empty_gif; } }`},
}

// randomRequest has few values of each attribute, so that limits are met.
func randomRequest(r *rand.Rand) sentRequest {
	pick := func(list []string) string { return list[r.IntN(len(list))] }
	s := sentRequest{method: pick([]string{"GET", "GET", "HEAD"}), host: pick(hosts), path: pick(paths),
		client: pick(clients), header: map[string]string{}, cookie: map[string]string{}}
	if user := pick(users); user != "" {
		s.header["X-User"] = user
	}
	if user := pick(users); user != "" {
		s.query = "user=" + user
	}
	if user := pick(users); user != "" {
		s.cookie["session"] = user
	}
	return s
}

// Header and the others make a request one of rules.
func (s *sentRequest) Header(name string) string { return s.header[name] }
func (s *sentRequest) Query(name string) string  { return strings.TrimPrefix(s.query, name+"=") }
func (s *sentRequest) Cookie(name string) string { return s.cookie[name] }
func (s *sentRequest) Descriptor(string) string  { return "" }
func (s *sentRequest) asked() *rules.Request {
	return &rules.Request{Method: s.method, Host: s.host, Path: s.path, Client: netip.MustParseAddr(s.client), Attributes: s}
}

// A ranProof is a configuration that nginx has run.
type ranProof struct {
	yaml     string
	requests []sentRequest
	log      []loggedRequest
}

// TestNginxRefusesTheSame sends requests to nginx and, at the times that nginx decided them, through the imported rules.
// All configurations run at once, each in an nginx of its own.
func TestNginxRefusesTheSame(t *testing.T) {
	t.Parallel()
	ran := make([]ranProof, len(nginxProofs))
	failures := make([]error, len(nginxProofs))
	running := make([]*runningNginx, len(nginxProofs))
	for i := range nginxProofs {
		dir, err := os.MkdirTemp("", "n") // short, for the names of sockets
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		text := nginxFile(dir, nginxProofs[i].http)
		for name, text := range map[string]string{"nginx.conf": text,
			"zones.conf": "limit_req_zone $k zone=z:1m rate=10r/s;\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		ran[i].yaml = importedNginx(t, dir, text)
		running[i] = startNginx(t, dir)
	}
	var wg sync.WaitGroup
	for i, n := range running {
		r := rand.New(rand.NewPCG(uint64(i), 2))
		for range proofRequests {
			ran[i].requests = append(ran[i].requests, randomRequest(r))
		}
		var bursts []int
		var pauses []time.Duration
		for sent := 0; sent < proofRequests; sent += bursts[len(bursts)-1] {
			bursts = append(bursts, 1+r.IntN(40))
			pauses = append(pauses, time.Duration(r.IntN(45_000))*time.Microsecond)
		}
		wg.Go(func() { failures[i] = n.sendAll(ran[i].requests, bursts, pauses) })
	}
	wg.Wait()
	for i, n := range running {
		if failures[i] != nil {
			t.Fatalf("%s: %v", nginxProofs[i].name, failures[i])
		}
		ran[i].log = n.end(t, proofRequests)
	}
	for i := range ran {
		t.Run(nginxProofs[i].name, func(t *testing.T) { ran[i].compare(t, nginxProofs[i].drifts) })
	}
}

// importedNginx is the YAML of a configuration, with the files that it includes.
func importedNginx(t *testing.T, dir, text string) string {
	t.Helper()
	include := func(_, pattern string) (list []ruleimport.Text, err error) {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			list = append(list, ruleimport.Text{Name: name, Data: data})
		}
		return list, err
	}
	result, err := ruleimport.Import("nginx", []ruleimport.Text{{Name: "nginx.conf", Data: []byte(text)}}, include)
	if err != nil {
		t.Fatal(err)
	}
	yaml, err := result.YAML()
	if err != nil {
		t.Fatal(err)
	}
	return yaml
}

// compare replays the requests, and holds each refusal to nginx's.
func (ran *ranProof) compare(t *testing.T, drifts *drift) {
	const start = 1_700_000_000_000_000
	r := importtest.NewReplay(t, ran.yaml)
	rounded, exact := newModel(drifts, true), newModel(drifts, false)
	refused, differing := 0, 0
	for i, l := range ran.log {
		s := &ran.requests[l.id]
		v := r.Decide(t, start+l.millis*1000, s.asked())
		got := v.Outcome == gate.Refused
		for i := range v.Len() { // of a dry run
			got = got || v.At(i).Shadow && v.At(i).Granted == 0
		}
		want := strings.HasPrefix(l.req, "REJECTED")
		if want {
			refused++
		}
		if l.req == "REJECTED" && v.Outcome == gate.Refused && v.Rule.Response().Status != l.status {
			t.Fatalf("request %d: status %d, nginx %d", i, v.Rule.Response().Status, l.status)
		}
		if v.Outcome == gate.Passed && (v.Delay >= time.Millisecond) != (l.req == "DELAYED") && drifts == nil {
			t.Fatalf("request %d: delayed by %v, nginx says %s", i, v.Delay, l.req)
		}
		if drifts == nil {
			if got != want {
				t.Fatalf("request %d, %+v at %d ms: refused %t, nginx %s\n%s", i, s, l.millis, got, l.req, ran.yaml)
			}
			continue
		}
		if one := rounded.refuses(s.client, l.millis); one != want {
			t.Fatalf("request %d at %d ms: the model with nginx's rounding refuses %t, nginx %s", i, l.millis, one, l.req)
		}
		if one := exact.refuses(s.client, l.millis); one != got {
			t.Fatalf("request %d at %d ms: the model without rounding refuses %t, the rules %t", i, l.millis, one, got)
		}
		if got != want {
			differing++
		}
	}
	if refused < 100 || refused > proofRequests-20 {
		t.Errorf("nginx refused %d requests of %d: too few or too many to compare", refused, proofRequests)
	}
	t.Logf("%d of %d refused, %d differ by nginx's rounding", refused, proofRequests, differing)
}

// A model is how nginx counts: the excess over the first request, in thousandths of a request. Of what has drained since
// the last granted request it drops what is less than a thousandth, unless the model is told not to.
type model struct {
	drift
	rounds bool
	excess map[string]int64 // in millionths
	last   map[string]int64
}

func newModel(d *drift, rounds bool) *model {
	if d == nil {
		d = new(drift)
	}
	return &model{*d, rounds, make(map[string]int64), make(map[string]int64)}
}

func (m *model) refuses(client string, millis int64) bool {
	last, known := m.last[client]
	if !known {
		m.last[client] = millis
		return false
	}
	drained := m.rate * (millis - last)
	if m.rounds {
		drained = drained / 1000 * 1000
	}
	excess := max(0, m.excess[client]-drained+1_000_000)
	if excess > m.burst*1_000_000 {
		return true
	}
	m.excess[client], m.last[client] = excess, millis
	return false
}
