package forwardauth_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/webtest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/server/internal/envoytest"
	"github.com/weirproject/weir/server/internal/forwardauth"
	"github.com/weirproject/weir/server/internal/proxycheck"
)

// read returns a file of the repository. Its configurations are run unchanged except for addresses.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks returns the fenced blocks of a kind in docs/howto/forward-auth.md.
func blocks(t *testing.T, kind string, want int) (list []string) {
	t.Helper()
	for _, match := range regexp.MustCompile("(?s)```"+kind+"\n(.*?)```").FindAllStringSubmatch(read(t, "docs/howto/forward-auth.md"), -1) {
		list = append(list, match[1])
	}
	if len(list) != want {
		t.Fatalf("docs/howto/forward-auth.md has %d blocks of %s; this test knows %d", len(list), kind, want)
	}
	return list
}

// replaced replaces each old text, which must occur.
func replaced(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("the page's configuration has no %q:\n%s", pairs[i], text)
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

// envoyOf is the configuration of docs/howto/envoy-filters.md with another first filter and another cluster for weir.
func envoyOf(t *testing.T, filter, listeners, cluster string) string {
	t.Helper()
	bootstrap := regexp.MustCompile("(?s)```yaml\n(static_resources:.*?)```").FindStringSubmatch(read(t, "docs/howto/envoy-filters.md"))[1]
	const indent = "\n                    "
	before, rest, _ := strings.Cut(bootstrap, "- name: envoy.filters.http.ratelimit")
	_, after, found := strings.Cut(rest, "- name: envoy.filters.http.router")
	config := before + "- " + strings.ReplaceAll(strings.TrimSpace(filter), "\n", indent) + indent[:len(indent)-2] +
		"- name: envoy.filters.http.router" + after
	before, away, first := strings.Cut(config, "    - name: away\n") // the listener, and after it the cluster
	_, clusters, second := strings.Cut(away, "  clusters:\n")
	clusters, _, last := strings.Cut(clusters, "    - name: away\n")
	before += "  clusters:\n" + clusters
	if !found || !first || !second || !last {
		t.Fatal("docs/howto/envoy-filters.md has another order of filters or clusters")
	}
	deeper := func(text string) string {
		return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ") + "\n"
	}
	return replaced(t, before+deeper(cluster), "  clusters:\n", deeper(listeners)+"  clusters:\n")
}

func TestEnvoy(t *testing.T) {
	pages := blocks(t, "yaml", 4)
	filter := replaced(t, pages[1], "x-api-key", "x-pass")
	_, rest, _ := strings.Cut(pages[2], "clusters:\n")
	cluster, away, _ := strings.Cut(rest, "listeners:\n")
	second := regexp.MustCompile(`(?s)        - priority: 1\n.*`)
	for name, config := range map[string]string{
		"open":   envoyOf(t, filter, away, cluster),
		"closed": envoyOf(t, filter, away, second.ReplaceAllString(cluster, "")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStreet(t)
			e := envoytest.Start(t, config, "address: 0.0.0.0", "address: 127.0.0.1", "port_value: 10000", "port_value: 0",
				"port_value: 8080", "port_value: "+portOf(s.weir), "port_value: 8081", "port_value: "+portOf(redistest.FreeAddr(t)),
				"port_value: 3000", "port_value: "+portOf(s.service))
			s.proxy = e.Address("in")
			s.wants(name == "open")
		})
	}
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// A street has a service, a limiter that can fail, and the address for a proxy.
type street struct {
	t                    *testing.T
	service, weir, proxy string // host:port
	server               *httptest.Server
	failing              atomic.Pointer[http.HandlerFunc] // replaces the decisions if it is not nil
	dir                  string
}

func newStreet(t *testing.T) *street {
	set := gatetest.Rules(t, blocks(t, "yaml", 4)[0]+
		"  - {name: login, match: {method: POST, path: /login}, limit: sliding_log 1/1m}\nallow: {header.X-Pass: [friend]}\n")
	clients, err := clientaddr.New(set.TrustedProxies())
	if err != nil {
		t.Fatal(err)
	}
	// Time stands still: a unit of the page's limit comes back each 20 s, and a busy machine takes longer.
	store := memstore.New(memstore.WithClock(func() weir.Instant { return 1 }))
	handler, err := forwardauth.New(gatetest.Of(t, store, set), &httplimit.RuleOptions{Clients: clients})
	if err != nil {
		t.Fatal(err)
	}
	s := &street{t: t, service: newService(t), proxy: redistest.FreeAddr(t), dir: t.TempDir()}
	mux := http.NewServeMux()
	mux.HandleFunc("/livez", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/v1/forward-auth", func(w http.ResponseWriter, r *http.Request) {
		if failing := s.failing.Load(); failing != nil {
			(*failing)(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	})
	s.server = httptest.NewServer(mux)
	t.Cleanup(s.server.Close)
	s.weir = s.server.Listener.Addr().String()
	return s
}

func (s *street) write(name, text string) (path string) {
	s.t.Helper()
	path = filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// run starts a proxy, and stops it with the test.
func (s *street) run(debian, name string, args ...string) {
	s.t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/" + name); err != nil { // not in everybody's PATH
			s.t.Fatalf("%s is not here; install it: apt-get install %s", name, debian)
		}
	}
	said := new(redistest.Log)
	command := exec.Command(path, args...)
	command.Stdout, command.Stderr, command.Dir, command.SysProcAttr = said, said, s.dir, redistest.DieWithParent()
	command.Env = append(os.Environ(), "HOME="+s.dir, "XDG_DATA_HOME="+s.dir, "XDG_CONFIG_HOME="+s.dir)
	if err := command.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	s.t.Cleanup(func() {
		command.Process.Kill()
		<-ended
		if s.t.Failed() {
			s.t.Logf("%s said:\n%s", name, said)
		}
	})
	for deadline := time.Now().Add(time.Minute); ; {
		if conn, err := net.Dial("tcp", s.proxy); err == nil {
			conn.Close()
			return
		}
		select {
		case err := <-ended:
			ended <- err
			s.t.Fatalf("%s ended: %v", name, err)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s does not listen at %s", name, s.proxy)
		}
	}
}

// A client has its own loopback address.
type client struct {
	t    *testing.T
	base string
	http *http.Client
}

func (s *street) client(address string) *client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &client{s.t, "http://" + s.proxy, &http.Client{Transport: transport, Timeout: time.Minute}}
}

type reply struct {
	*http.Response
	text string
}

func (c *client) ask(method, path, body string, fields ...string) *reply {
	c.t.Helper()
	request, err := http.NewRequestWithContext(c.t.Context(), method, c.base, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	target, err := url.ParseRequestURI(path) // which keeps // and escapes as they are
	if err != nil {
		c.t.Fatal(err)
	}
	target.Scheme, target.Host = request.URL.Scheme, request.URL.Host
	request.URL = target
	response, text := webtest.Send(c.t, c.http, request, fields...)
	return &reply{response, text}
}

// wants checks the behaviour common to all proxies with the page's configuration.
func (s *street) wants(open bool) {
	t := s.t
	t.Helper()
	one := s.client("127.0.0.2")
	for i, want := range []string{`"per-ip";r=2;t=`, `"per-ip";r=1;t=`, `"per-ip";r=0;t=`} {
		r := one.ask("POST", "/a?b=c", "body")
		if r.StatusCode != 200 || r.text != "POST /a?b=c body" || !strings.HasPrefix(r.Header.Get("RateLimit"), want) || r.Header.Get("RateLimit-Policy") != `"per-ip";q=3;w=60` {
			t.Errorf("request %d: %d %q %v", i, r.StatusCode, r.text, r.Header)
		}
	}
	for name, fields := range map[string][]string{
		"plain":     nil,
		"spoofed":   {"X-Forwarded-For", "203.0.113.9", "X-Real-IP", "203.0.113.9", "Forwarded", "for=203.0.113.9"},
		"rewritten": {"X-Forwarded-Method", "PUT", "X-Forwarded-Uri", "/x", "X-Forwarded-Host", "x", "X-Original-URI", "/y", "X-Original-Method", "PUT", "X-Original-URL", "http://z/"},
	} {
		s.refused(name, one.ask("POST", "/a", "body", fields...))
	}
	if r := one.ask("HEAD", "/a", ""); r.StatusCode != 429 {
		t.Errorf("HEAD is answered %d", r.StatusCode)
	}
	if r := one.ask("GET", "/a", "", "X-Pass", "friend"); r.StatusCode != 200 || r.text != "GET /a " || len(r.Header.Values("RateLimit"))+len(r.Header.Values("RateLimit-Policy")) > 0 {
		t.Errorf("allowed client: %d %v", r.StatusCode, r.Header)
	}
	two := s.client("127.0.0.3")
	for path, want := range map[string]int{"/own403": 403, "/own500": 500, "/c%2fd": 400} {
		if r := two.ask("GET", path, ""); r.StatusCode != want || (r.text == "own\n") != (want != 400) || r.Header.Get("Retry-After") != "" {
			t.Errorf("%s is answered %d %q %v", path, r.StatusCode, r.text, r.Header)
		}
	}
	if r := s.client("127.0.0.4").ask("POST", "/login", "x"); r.StatusCode != 200 {
		t.Errorf("login: %d %s", r.StatusCode, r.text)
	}
	s.refused("another login", s.client("127.0.0.5").ask("POST", "/%6cogin", "x"))
	s.refused("and another", s.client("127.0.0.6").ask("POST", "//login?a=b", "x", "X-Forwarded-Method", "GET"))
	if r := s.client("127.0.0.7").ask("GET", "/login", ""); r.StatusCode != 200 {
		t.Errorf("to look at the form: %d", r.StatusCode)
	}
	s.nothingPasses()
	s.failedChecksDoNotPass()
	s.server.CloseClientConnections()
	s.server.Close()
	if !open {
		if r := one.ask("POST", "/a?b=c", "body"); r.StatusCode < 500 || strings.Contains(r.text, "body") {
			t.Errorf("without the limiter it should not pass: %d %q", r.StatusCode, r.text)
		}
		return
	}
	redistest.Await(t, "requests to pass without the limiter", func() bool {
		r := one.ask("POST", "/a?b=c", "body")
		return r.StatusCode == 200 && r.text == "POST /a?b=c body" && r.Header.Get("RateLimit") == ""
	})
}

// nothingPasses exhausts a client's limit, and then sends every request of weir verify-proxy.
func (s *street) nothingPasses() {
	s.t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.20")}}
	report, err := proxycheck.Run(s.t.Context(), proxycheck.Config{
		URL:     &url.URL{Scheme: "http", Host: s.proxy, Path: "/a"},
		Mark:    servedField,
		Methods: true,
		Keys:    [][]string{{"cookie.sid", "query.user_id", "header.X-Key"}},
		Dial:    func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", s.proxy) },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, passed := range report.Passed {
		s.t.Errorf("%s: served, with status %d", passed.Name, passed.Status)
	}
	if report.Sent < 2000 || report.Plain != 3 || report.Refused != 429 {
		s.t.Errorf("the report is %+v", report)
	}
	s.t.Logf("%d requests: %v", report.Sent, report.Statuses)
}

// failedChecksDoNotPass: while /livez answers, a check without a decision is the request's own failure.
func (s *street) failedChecksDoNotPass() {
	s.t.Helper()
	for name, failing := range map[string]http.HandlerFunc{
		"a broken connection": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"no answer":           func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"an error":            func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"another error":       func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"an overload":         func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"a head of 200 KB": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("RateLimit", strings.Repeat("a", 200_000))
			w.WriteHeader(http.StatusForbidden)
		},
	} {
		s.failing.Store(&failing)
		r := s.client("127.0.0.21").ask("GET", "/a", "")
		if r.StatusCode < 400 || r.Header[servedField] != nil {
			s.t.Errorf("%s: served, with status %d", name, r.StatusCode)
		}
	}
	s.failing.Store(nil)
	if r := s.client("127.0.0.21").ask("GET", "/a", ""); r.StatusCode != 200 {
		s.t.Errorf("afterwards: %d %s", r.StatusCode, r.text)
	}
}

func (s *street) refused(name string, r *reply) {
	s.t.Helper()
	wait, err := strconv.Atoi(r.Header.Get("Retry-After"))
	if r.StatusCode != 429 || err != nil || wait < 1 || wait > 60 || !strings.Contains(r.Header.Get("RateLimit"), ";r=0;t=") || r.Header.Get("RateLimit-Policy") == "" {
		s.t.Errorf("%s: %d %v", name, r.StatusCode, r.Header)
	}
	if r.Header.Get("Cache-Control") != "no-store" || r.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(r.text, "#quota-exceeded") {
		s.t.Errorf("%s: %v %s", name, r.Header, r.text)
	}
}

func TestNginx(t *testing.T) {
	whole, closed := read(t, "deploy/nginx/weir.conf"), blocks(t, "nginx", 1)[0]
	undecided := regexp.MustCompile(` +error_page 500 = @undecided;\n`)
	for name, config := range map[string]string{
		"open":             whole,
		"open, long heads": "large_client_header_buffers 64 1m;\n" + whole,
		"closed":           undecided.ReplaceAllLiteralString(whole, closed),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStreet(t)
			temp := ""
			for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
				temp += "    " + kind + "_temp_path " + filepath.Join(s.dir, kind) + ";\n"
			}
			main := "daemon off;\nmaster_process off;\nerror_log stderr;\npid " + filepath.Join(s.dir, "pid") + ";\nevents {}\nhttp {\n    access_log off;\n" + temp +
				replaced(t, config, "127.0.0.1:8080", s.weir, "127.0.0.1:3000", s.service, "listen 80;", "listen "+s.proxy+";") + "}\n"
			s.run("nginx-light", "nginx", "-p", s.dir, "-c", s.write("nginx.conf", main))
			s.wants(name != "closed")
		})
	}
}

func TestCaddy(t *testing.T) {
	configs := blocks(t, "caddyfile", 3)
	const first = "reverse_proxy 127.0.0.1:8080 {\n"
	for name, config := range map[string]string{
		"closed": configs[0],
		"open":   replaced(t, configs[0], first, first+configs[1]) + configs[2],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStreet(t)
			pairs := []string{"127.0.0.1:8080", s.weir, "127.0.0.1:3000", s.service, ":80 {", "http://:" + portOf(s.proxy) + " {\n\tbind 127.0.0.1"}
			if name == "open" {
				pairs = append(pairs, "127.0.0.1:8081", redistest.FreeAddr(t))
			}
			config := "{\n\tadmin off\n\tauto_https off\n}\n" + replaced(t, config, pairs...)
			s.run("caddy", "caddy", "run", "--adapter", "caddyfile", "--config", s.write("Caddyfile", config))
			s.wants(name == "open")
		})
	}
}

func TestHAProxy(t *testing.T) {
	script, config := read(t, "deploy/haproxy/weir.lua"), read(t, "deploy/haproxy/haproxy.cfg")
	for name, script := range map[string]string{
		"open":             script,
		"open, long heads": script,
		"closed":           replaced(t, script, "open = true", "open = false"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStreet(t)
			lua := s.write("weir.lua", replaced(t, script, "127.0.0.1:8080", s.weir))
			config := replaced(t, config, "127.0.0.1:8080", s.weir, "127.0.0.1:3000", s.service, "bind :80", "bind "+s.proxy, "/etc/haproxy/weir.lua", lua)
			if name == "open, long heads" {
				config = replaced(t, config, "global\n", "global\n    tune.bufsize 1100000\n    tune.http.maxhdr 32000\n")
			}
			s.run("haproxy", "haproxy", "-db", "-f", s.write("haproxy.cfg", config))
			s.wants(name != "closed")
		})
	}
}
