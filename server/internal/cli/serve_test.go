package cli_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestWithoutFlagsEverythingPasses(t *testing.T) {
	t.Parallel()
	p := call{dir: t.TempDir()}.serve(t)
	for range 20 {
		status, _, body := post(t, p.at("http")+"/v1/decide", `{"request": {"client": "203.0.113.7", "path": "/"}}`)
		if status != 200 || !strings.Contains(body, `"no_rule"`) {
			t.Fatalf("%d %s", status, body)
		}
	}
	if !strings.Contains(p.banner, "none: every request passes") || !strings.Contains(p.banner, "memory of this process") {
		t.Errorf("the banner is\n%s", p.banner)
	}
	p.end()
}

// TestConsoleWithoutRulesNamesTheFlag: an empty console says by which flag a rule file is given, in both languages.
func TestConsoleWithoutRulesNamesTheFlag(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../internal/static/texts/overview.js")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`'overview.none.text'.*`).Find(text)
	flags := regexp.MustCompile(`--[a-z-]+`).FindAllString(string(line), -1)
	if len(flags) != 2 || flags[0] != flags[1] {
		t.Fatalf("the flags are %q in %s", flags, line)
	}
	dir := t.TempDir()
	write(t, dir, "weir.yaml", "rules: [{name: a, limit: 1/1h}]\n")
	call{dir: dir}.serve(t, flags[0], "weir.yaml").end()
}

// TestBannerOfAServerWithoutRulesWorks: the commands that it suggests add a rule that limits.
func TestBannerOfAServerWithoutRulesWorks(t *testing.T) {
	t.Parallel()
	here := call{dir: t.TempDir(), env: []string{"WEIR_HTTP=127.0.0.1:0", "WEIR_GATEWAY=127.0.0.1:0"}}
	p := here.serve(t, "--http", "127.0.0.1:0", "--gateway", "off")
	_, block, ok := strings.Cut(p.banner, "10 seconds:\n\n")
	lines := strings.Split(strings.TrimSpace(block), "\n")
	if !ok || len(lines) != 7 {
		t.Fatalf("the banner is\n%s", p.banner)
	}
	p.end()
	if r := here.shell(t, strings.Join(lines[:6], "\n")); r.code != 0 {
		t.Fatal(r)
	}
	next := here.start(t, "bash", "-c", "exec "+lines[6])
	refuses(t, next.at("gateway")+"/", 5)
	next.end()
	if again := here.serve(t, "--gateway", "off"); !strings.Contains(again.banner, "There is a weir.yaml here") {
		t.Errorf("it would write over a file:\n%s", again.banner)
	}
}

// refuses asks until it is refused: the first n pass.
func refuses(t *testing.T, url string, n int) http.Header {
	t.Helper()
	for i := range n {
		if status, _, body := get(t, url); status != 200 {
			t.Fatalf("request %d: %d %s", i+1, status, body)
		}
	}
	status, fields, body := get(t, url)
	if status != 429 {
		t.Fatalf("request %d: %d %s", n+1, status, body)
	}
	return fields
}

func TestGateway(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Path", r.URL.Path)
	}))
	defer upstream.Close()
	p := call{}.serve(t, "--limit", "fixed_window 3/1h", "--gateway", "127.0.0.1:0", "--upstream", upstream.URL)
	status, fields, _ := get(t, p.at("gateway")+"/a//./b")
	if status != 200 || fields.Get("X-Path") != "/a/b" || fields.Get("RateLimit") != `"limit";r=2;t=3600` {
		t.Errorf("%d %v", status, fields)
	}
	fields = refuses(t, p.at("gateway")+"/", 2)
	if fields.Get("Retry-After") == "" || fields.Get("Content-Type") != "application/problem+json" {
		t.Errorf("the refusal has %v", fields)
	}
	// The line that the banner shows is the one that curl takes.
	found := regexp.MustCompile(`(?m)^    (curl .*)$`).FindStringSubmatch(p.banner)
	if found == nil {
		t.Fatalf("the banner is\n%s", p.banner)
	}
	if r := (call{}).shell(t, found[1]); !strings.HasPrefix(r.out, "HTTP/1.1 429 ") {
		t.Error(r)
	}
	p.end()
}

func TestTheDemoShowsTheFirst429(t *testing.T) {
	t.Parallel()
	p := call{}.serve(t, "--limit", "5/1h", "--gateway", "127.0.0.1:0", "--upstream", "demo")
	if _, _, body := get(t, p.at("gateway")+"/shop?a=1"); body != "Hello from the service behind weir: GET /shop\n" {
		t.Errorf("the demo says %q", body)
	}
	refuses(t, p.at("gateway")+"/", 4)
	p.end()
}

func TestRESP(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const password = "a-password-of-some-length"
	p := call{dir: dir}.serve(t, "--resp", "127.0.0.1:0", "--set", "server.resp.password_file="+write(t, dir, "password", password+"\n"))
	ask := func(auth string) string {
		out, err := exec.CommandContext(t.Context(), "redis-cli", "-u", p.at("resp"), "-a", auth, "--no-auth-warning",
			"CL.THROTTLE", "user:42", "1", "1", "3600").CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", " ")
	}
	for i, want := range []string{"0 2 1 -1 ", "0 2 0 -1 ", "1 2 0 "} {
		if got := ask(password); !strings.HasPrefix(got, want) {
			t.Errorf("call %d: %s, want %s…", i+1, got, want)
		}
	}
	if got := ask("another"); !strings.Contains(got, "WRONGPASS") || !strings.Contains(got, "NOAUTH") {
		t.Errorf("with another password: %s", got)
	}
	p.end()
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := call{dir: dir}.serve(t, "--http", "unix://"+dir+"/http.sock", "--limit", "fixed_window 1/1h")
	found := regexp.MustCompile(`(?m)^    (curl .*)$`).FindStringSubmatch(p.banner)
	if found == nil {
		t.Fatalf("the banner is\n%s", p.banner)
	}
	for _, want := range []string{`"passed"`, `"refused"`} {
		if r := (call{}).shell(t, found[1]); !strings.Contains(r.out, want) {
			t.Errorf("%v, want %s", r, want)
		}
	}
	if r := (call{}).run(t, "health", "--server", p.at("http")); r.code != 0 {
		t.Error(r)
	}
	p.end()
	if r := (call{env: []string{"WEIR_HTTP=unix://" + dir + "/http.sock"}}).run(t, "health"); r.code != 1 || !strings.Contains(r.err, "not ready") {
		t.Error(r)
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const token, reader = "a-token-that-may-write", "a-token-that-may-read"
	p := call{dir: dir, env: []string{"WEIR_READ_TOKEN=" + reader}}.serve(t, "--token-file", write(t, dir, "token", token+"\n"))
	const ask = `{"request": {"path": "/"}}`
	for _, test := range []struct {
		path, token string
		status      int
	}{
		{"/v1/decide", "", 401}, {"/v1/decide", "another", 401}, {"/v1/decide", reader, 403}, {"/v1/decide", token, 200},
		{"/v1/peek", "", 401}, {"/v1/peek", reader, 200},
	} {
		if status, _, body := post(t, p.at("http")+test.path, ask, "Authorization", "Bearer "+test.token); status != test.status {
			t.Errorf("%s with %q: %d %s, want %d", test.path, test.token, status, body, test.status)
		}
	}
	for _, path := range []string{"/readyz", "/livez"} {
		if status, _, body := get(t, p.at("http")+path); status != 200 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	// Explanations are for operators, of whom this server has no credentials.
	explained := call{env: []string{"WEIR_TOKEN=" + reader}}.run(t, "explain", "--server", p.at("http"))
	if explained.code == 0 || !strings.Contains(explained.err, "the admin API has no credentials") {
		t.Error(explained)
	}
	p.end()
}

// TestAPIRefusesOtherHosts: a web page whose DNS name resolves to this machine cannot use the API.
func TestAPIRefusesOtherHosts(t *testing.T) {
	t.Parallel()
	p := call{}.serve(t)
	request := httptest.NewRequest("POST", p.at("http")+"/v1/reset", strings.NewReader(`{}`))
	request.RequestURI, request.Host = "", "rebound.example"
	request.Header.Set("Content-Type", "application/json")
	if status, _, body := do(t, request); status != 403 {
		t.Errorf("%d %s", status, body)
	}
	p.end()
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	p := call{}.serve(t, "--limit", "fixed_window 2/1h", "--gateway", "127.0.0.1:0", "--upstream", "demo")
	refuses(t, p.at("gateway")+"/", 2)
	status, _, body := get(t, p.at("http")+"/metrics")
	if status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	for _, line := range []string{
		`weir_decisions_total{outcome="passed",rule="limit"} 2`, `weir_decisions_total{outcome="refused",rule="limit"} 1`,
		`weir_verdicts_total{outcome="refused",reason="limit_exceeded"} 1`, "weir_rules 1", "weir_store_up 1",
		`weir_store_duration_seconds_count{operation="decide"} 3`,
	} {
		if !strings.Contains(body, "\n"+line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	if strings.Contains(body, "127.0.0.1") {
		t.Error("a client's address is in the metrics")
	}
	p.end()
}

// TestForwardAuth answers trusted proxies only.
func TestForwardAuth(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := write(t, dir, "rules.yaml", "server: {trusted_proxies: [127.0.0.1]}\nrules: [{name: a, key: [client.ip], match: {path: /login}, limit: fixed_window 1/1h}]\n")
	ask := func(p *process, client string) int {
		status, _, _ := get(t, p.at("http")+"/v1/forward-auth", "X-Forwarded-Method", "POST", "X-Forwarded-Uri", "/./login",
			"X-Forwarded-Host", "example.com", "X-Forwarded-For", client)
		return status
	}
	p := call{}.serve(t, "--config", file)
	for i, test := range []struct {
		client string
		want   int
	}{{"198.51.100.7", 200}, {"198.51.100.7", 429}, {"6.6.6.6, 198.51.100.7", 429}, {"198.51.100.8", 200}} {
		if got := ask(p, test.client); got != test.want {
			t.Errorf("question %d: %d, want %d", i+1, got, test.want)
		}
	}
	p.end()
	p = call{env: []string{"WEIR_TRUSTED_PROXIES=192.0.2.1"}}.serve(t, "--config", file)
	if got := ask(p, "198.51.100.7"); got != 403 {
		t.Errorf("who is not trusted: %d", got)
	}
	p.end()
}

// TestPROXYProtocol: the client is the address that the balancer names. A trusted peer without the header is
// disconnected.
func TestPROXYProtocol(t *testing.T) {
	t.Parallel()
	p := call{}.serve(t, "--limit", "fixed_window 1/1h", "--gateway", "127.0.0.1:0", "--upstream", "demo",
		"--set", "server.gateway.proxy_protocol=true", "--trusted-proxies", "127.0.0.1")
	_, address, _ := strings.Cut(p.at("gateway"), "://")
	for i, test := range []struct{ header, want string }{
		{"PROXY TCP4 203.0.113.7 127.0.0.1 4000 80\r\n", "HTTP/1.1 200 OK"},
		{"PROXY TCP4 203.0.113.7 127.0.0.1 4001 80\r\n", "HTTP/1.1 429 Too Many Requests"},
		{"PROXY TCP4 203.0.113.8 127.0.0.1 4000 80\r\n", "HTTP/1.1 200 OK"},
		{"", ""},
	} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, test.header+"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		answer, _ := io.ReadAll(conn)
		conn.Close()
		if line, _, _ := strings.Cut(string(answer), "\r\n"); line != test.want {
			t.Errorf("connection %d: %q, want %q", i+1, line, test.want)
		}
	}
	p.end()
}

// TestAccessLog: it is complete when the server has ended, and its id is the one that the client got.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "access.log")
	p := call{}.serve(t, "--limit", "fixed_window 1/1h", "--gateway", "127.0.0.1:0", "--upstream", "demo", "--set", "server.access_log="+name)
	var ids []string
	for range 2 {
		response, err := http.Get(p.at("gateway"))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		ids = append(ids, response.Header.Get("X-Request-Id"))
	}
	p.end()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i, status := range []int{200, 429} {
		var line struct {
			Status    int
			RequestID string `json:"request_id"`
		}
		lines := strings.Split(string(text), "\n")
		if err := json.Unmarshal([]byte(lines[min(i, len(lines)-1)]), &line); err != nil || line.Status != status || line.RequestID != ids[i] {
			t.Errorf("request %d had the id %s: %v: %s", i+1, ids[i], err, text)
		}
	}
	for _, wrong := range [][]string{{"--set", "server.access_log.format=xml"}, {"--set", "server.access_log.every=0"}} {
		if r := (call{}).run(t, append([]string{"serve", "--limit", "1/1h", "--upstream", "demo"}, wrong...)...); r.code != 2 ||
			!strings.Contains(r.err, strings.TrimRight(wrong[1], "=0xml")+" is ") {
			t.Errorf("%v: %+v", wrong, r)
		}
	}
}

// TestUserAndService: they are set by flags, and the user is read from trusted proxies only.
func TestUserAndService(t *testing.T) {
	t.Parallel()
	file := write(t, t.TempDir(), "rules.yaml", "rules: [{name: a, match: {service: mail, user: ann}, limit: fixed_window 1/1h}]\n")
	for _, test := range []struct {
		trusted string
		want    int
	}{{"127.0.0.1", 429}, {"192.0.2.1", 200}} {
		p := call{}.serve(t, "--config", file, "--gateway", "127.0.0.1:0", "--upstream", "demo", "--set", "server.service=mail",
			"--set", "server.user_header=X-Remote-User", "--trusted-proxies", test.trusted)
		for _, want := range []int{200, test.want} {
			if got, _, _ := get(t, p.at("gateway")+"/", "X-Remote-User", "ann"); got != want {
				t.Errorf("trusted %s: %d, want %d", test.trusted, got, want)
			}
		}
		p.end()
	}
}

// TestMaxBytesBoundsLogs fills the memory of a server with one client's sliding log.
func TestMaxBytesBoundsLogs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args       []string
		want, logs string
	}{
		{nil, `"within_limits"`, ""},
		{[]string{"--set", "server.max_bytes=2000"}, `"store_failed"`, "server.max_bytes"},
	} {
		p := call{}.serve(t, append(test.args, "--limit", "sliding_log 100000/1h")...)
		body := ""
		for range 300 {
			_, _, body = post(t, p.at("http")+"/v1/decide", `{"request": {"client": "203.0.113.7", "path": "/"}}`)
		}
		if !strings.Contains(body, test.want) {
			t.Errorf("serve %v: request 300: %s, want %s", test.args, body, test.want)
		}
		p.end()
		if !strings.Contains(p.logs(), test.logs) {
			t.Errorf("serve %v: the log does not name %s:\n%s", test.args, test.logs, p.logs())
		}
	}
}
