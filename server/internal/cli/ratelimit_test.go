//go:build unix

package cli_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/redistest/certtest"
	"github.com/weirproject/weir/server/internal/otlp/otlptest"
)

const limitsOfEdge = `
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 2}
`

// A place has the configuration and the free ports of a rate limit service.
type place struct {
	env                    []string
	http, grpc, debug, dir string
}

func newPlace(t *testing.T, files map[string]string, env ...string) *place {
	t.Helper()
	root := t.TempDir()
	p := &place{dir: filepath.Join(root, "ratelimit", "config")}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		write(t, p.dir, name, text)
	}
	p.env = append([]string{"RUNTIME_ROOT=" + root, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_TIMEOUT=5s", "WEIR_HTTP=127.0.0.1:0"}, env...)
	for _, at := range []struct {
		address *string
		prefix  string
	}{{&p.http, ""}, {&p.grpc, "GRPC_"}, {&p.debug, "DEBUG_"}} {
		port := fmt.Sprint(redistest.FreePort(t))
		*at.address = net.JoinHostPort("127.0.0.1", port)
		p.env = append(p.env, at.prefix+"HOST=127.0.0.1", at.prefix+"PORT="+port)
	}
	return p
}

// start starts the program as ratelimit.
func (p *place) start(t *testing.T) *process {
	t.Helper()
	link := filepath.Join(t.TempDir(), "ratelimit")
	if err := os.Symlink(program, link); err != nil {
		t.Fatal(err)
	}
	return call{env: p.env}.start(t, link)
}

// codeOf is the answer to a user, by /json.
func (p *place) codeOf(t *testing.T, user string) int {
	t.Helper()
	code, _, _ := post(t, "http://"+p.http+"/json",
		`{"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "`+user+`"}]}]}`)
	return code
}

// wants fails unless the third request of a user is refused, which another process counts too if there is one.
func (p *place) wants(t *testing.T, user string, want ...int) {
	t.Helper()
	for i, code := range want {
		if got := p.codeOf(t, user); got != code {
			t.Errorf("request %d of %s: %d, want %d", i+1, user, got, code)
		}
	}
}

// TestRatelimitPorts asks every port of envoyproxy/ratelimit, and those that weir adds.
func TestRatelimitPorts(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	metrics := redistest.FreeAddr(t)
	place := newPlace(t, map[string]string{"edge.yaml": limitsOfEdge}, "REDIS_URL="+redis.Addr(), "USE_PROMETHEUS=true",
		"PROMETHEUS_ADDR="+metrics, "PROMETHEUS_PATH=/stats/prometheus", "CACHE_KEY_PREFIX=mine:", "STATSD_HOST=statsd")
	p := place.start(t)
	place.wants(t, "ann", 200, 200, 429)
	for url, want := range map[string]string{
		"http://" + place.http + "/healthcheck":   "OK",
		"http://" + place.debug + "/rlconfig":     "edge.user: unit=YEAR requests_per_unit=2, shadow_mode: false, quota_mode: false\n",
		"http://" + place.debug + "/stats":        "ratelimit.service.rate_limit.edge.user.over_limit: 1\n",
		"http://" + place.debug + "/debug/pprof/": "goroutine",
		"http://" + metrics + "/stats/prometheus": `ratelimit_service_rate_limit_total_hits{domain="edge",key1="user",key2=""} 3`,
		p.at("http") + "/v1/admin/rules":          "edge.user",
	} {
		if code, _, text := get(t, url); code != 200 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s, want %s", url, code, text, want)
		}
	}
	for url, want := range map[string]int{"http://" + place.http + "/v1/decide": 404, "http://" + place.http + "/metrics": 404,
		"http://" + place.debug + "/v1/admin/rules": 404} {
		if got := status(t, url); got != want {
			t.Errorf("%s: %d, want %d", url, got, want)
		}
	}
	conn := dialPlace(t, place.grpc, insecure.NewCredentials())
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "ratelimit"})
	if err != nil || answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("gRPC health: %v, %v", answer, err)
	}
	if got := askGRPC(t, t.Context(), conn); got != "OK" {
		t.Errorf("gRPC: %s", got)
	}
	for _, key := range redis.Do("KEYS", "*edge.user*").([]any) {
		if !strings.HasPrefix(key.(string), "mine:") {
			t.Errorf("key %s", key)
		}
	}
	if logs := p.logs(); !strings.Contains(logs, "STATSD_HOST has no effect: weir sends no statsd") {
		t.Error(logs)
	}
	checkSeries(t, "http://"+metrics+"/metrics")
	p.end()
}

// theirs are the series that dashboards of envoyproxy/ratelimit use, with their labels.
var theirs = []string{
	`ratelimit_service_rate_limit_total_hits{domain,key1,key2}`, `ratelimit_service_rate_limit_over_limit{domain,key1,key2}`,
	`ratelimit_service_rate_limit_near_limit{domain,key1,key2}`, `ratelimit_service_rate_limit_within_limit{domain,key1,key2}`,
	`ratelimit_service_rate_limit_shadow_mode{domain,key1,key2}`, `ratelimit_service_total_requests{grpc_method}`,
	`ratelimit_service_response_time_seconds_bucket{grpc_method,le}`, `ratelimit_service_response_time_seconds_count{grpc_method}`,
	`ratelimit_service_should_rate_limit_error{err_type}`, `ratelimit_service_config_load_success`, `ratelimit_service_config_load_error`,
}

// checkSeries has the names and labels of series, and promtool read them. It wants counters to end in _total, which
// those of the service do not.
func checkSeries(t *testing.T, url string) {
	t.Helper()
	_, _, text := get(t, url)
	var found []string
	for _, line := range regexp.MustCompile(`(?m)^(ratelimit_\w+)(?:\{(.*)\})? `).FindAllStringSubmatch(text, -1) {
		name := line[1]
		if labels := regexp.MustCompile(`(\w+)="[^"]*"`).ReplaceAllString(line[2], "$1"); labels != "" {
			name += "{" + labels + "}"
		}
		found = append(found, name)
	}
	for _, want := range theirs {
		if !slices.Contains(found, want) {
			t.Errorf("no series %s in\n%s", want, text)
		}
	}
	check := exec.CommandContext(t.Context(), "promtool", "check", "metrics")
	check.Stdin = strings.NewReader(text)
	out, _ := check.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, "ratelimit_service") || !strings.Contains(line, `"_total" suffix`) {
			t.Errorf("promtool: %s", line)
		}
	}
}

func dialPlace(t *testing.T, address string, secure credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(secure))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// askGRPC is the code of a request, or its error.
func askGRPC(t *testing.T, ctx context.Context, conn *grpc.ClientConn) string {
	t.Helper()
	entries := []*common.RateLimitDescriptor_Entry{{Key: "user", Value: "bob"}}
	answer, err := ratelimit.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &ratelimit.RateLimitRequest{
		Domain: "edge", Descriptors: []*common.RateLimitDescriptor{{Entries: entries}}})
	if err != nil {
		return err.Error()
	}
	return answer.GetOverallCode().String()
}

// TestRatelimitCountsInRedis of each kind, by the variables for it.
func TestRatelimitCountsInRedis(t *testing.T) {
	t.Parallel()
	secure, acl := redistest.StartTLS(t), redistest.StartACL(t, "ann", "p@ss:w/rd")
	_, secureAddr, _ := strings.Cut(secure.URL(), "://")
	host, port, err := net.SplitHostPort(secureAddr)
	if err != nil {
		t.Fatal(err)
	}
	sentinel, cluster := redistest.StartSentinel(t), redistest.StartCluster(t, 3, 0)
	masters := addressesOf(t, sentinel.URL())
	for name, env := range map[string][]string{
		"ACL":    {"REDIS_URL=" + acl.Addr(), "REDIS_AUTH=ann:p@ss:w/rd"},
		"socket": {"REDIS_SOCKET_TYPE=unix", "REDIS_URL=" + strings.TrimPrefix(redistest.StartUnix(t).URL(), "unix://")},
		"TLS": {"REDIS_URL=" + net.JoinHostPort(host, port), "REDIS_TLS=true", "REDIS_TLS_CACERT=" + secure.CA,
			"REDIS_TLS_CLIENT_CERT=" + secure.Cert, "REDIS_TLS_CLIENT_KEY=" + secure.Key, "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true"},
		"Sentinel": {"REDIS_TYPE=SENTINEL", "REDIS_URL=" + masters},
		"Cluster":  {"REDIS_TYPE=CLUSTER", "REDIS_URL=" + addressesOf(t, cluster.URL())},
	} {
		t.Run(name, func(t *testing.T) {
			env = append(env, "REDIS_TIMEOUT=5s", "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true")
			one, two := newPlace(t, map[string]string{"edge.yaml": limitsOfEdge}, env...), newPlace(t, map[string]string{"edge.yaml": limitsOfEdge}, env...)
			first, second := one.start(t), two.start(t)
			one.wants(t, "ann", 200)
			two.wants(t, "ann", 200, 429)
			one.wants(t, "ann", 429)
			if code, _, _ := get(t, "http://"+one.http+"/healthcheck"); code != 200 {
				t.Errorf("/healthcheck: %d", code)
			}
			first.end()
			second.end()
		})
	}
}

// addressesOf is REDIS_URL for a URL of weir: of a Sentinel with the master's name first.
func addressesOf(t *testing.T, text string) string {
	t.Helper()
	scheme, rest, _ := strings.Cut(text, "://")
	hosts, path, _ := strings.Cut(rest, "/")
	if strings.HasSuffix(scheme, "+sentinel") {
		master, _ := url.PathUnescape(strings.SplitN(path, "?", 2)[0])
		return master + "," + hosts
	}
	return strings.SplitN(hosts, "?", 2)[0]
}

// TestRatelimitTLS: clients need a certificate of the authority and with the name.
func TestRatelimitTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := certtest.New(t, dir, "ca")
	a.Issue("server", "key")
	place := newPlace(t, map[string]string{"edge.yaml": limitsOfEdge}, "WEIR_STORE=memory", "GRPC_SERVER_USE_TLS=true",
		"GRPC_SERVER_TLS_CERT="+a.File("server"), "GRPC_SERVER_TLS_KEY="+a.File("key"),
		"GRPC_CLIENT_TLS_CACERT="+a.File("ca"), "GRPC_CLIENT_TLS_SAN=envoy.example.com")
	p := place.start(t)
	with := func(hosts ...string) string {
		c := &tls.Config{RootCAs: a.Pool()}
		if hosts != nil {
			pair, err := tls.X509KeyPair(a.Leaf("client", hosts...))
			if err != nil {
				t.Fatal(err)
			}
			c.Certificates = []tls.Certificate{pair}
		}
		return askGRPC(t, t.Context(), dialPlace(t, place.grpc, credentials.NewTLS(c)))
	}
	if got := with("envoy.example.com"); got != "OK" {
		t.Error(got)
	}
	if got := with("other.example.com"); !strings.Contains(got, "Unavailable") {
		t.Errorf("another name: %s", got)
	}
	if got := with(); !strings.Contains(got, "Unavailable") {
		t.Errorf("no certificate: %s", got)
	}
	p.end()
}

// TestRatelimitFollowsAConfigMap, whose link Kubernetes swaps, and keeps the last good configuration.
func TestRatelimitFollowsAConfigMap(t *testing.T) {
	t.Parallel()
	place := newPlace(t, nil, "WEIR_STORE=memory", "RUNTIME_IGNOREDOTFILES=false")
	swap := func(name, text string) {
		t.Helper()
		version := filepath.Join(place.dir, name)
		if err := os.Mkdir(version, 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, version, "edge.yaml", text)
		next := filepath.Join(place.dir, "..data_tmp")
		if err := os.Symlink(name, next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(place.dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	swap("..one", limitsOfEdge)
	if err := os.Symlink("..data/edge.yaml", filepath.Join(place.dir, "edge.yaml")); err != nil {
		t.Fatal(err)
	}
	p := place.start(t)
	place.wants(t, "ann", 200, 200, 429)
	shows := func(want string) {
		t.Helper()
		redistest.Await(t, want, func() bool {
			_, _, text := get(t, "http://"+place.debug+"/rlconfig")
			return strings.Contains(text, want)
		})
	}
	swap("..two", strings.Replace(limitsOfEdge, ": 2}", ": 5}", 1))
	shows("requests_per_unit=5")
	swap("..three", strings.Replace(limitsOfEdge, "unit: year", "unit: decade", 1))
	redistest.Await(t, "a mistake in the log", func() bool { return strings.Contains(p.logs(), "decade") })
	shows("requests_per_unit=5")
	if _, _, text := get(t, "http://"+place.debug+"/stats"); !strings.Contains(text, "config_load_error: 1\n") || !strings.Contains(text, "config_load_success: 2\n") {
		t.Error(text)
	}
	p.end()
}

// TestRatelimitHealth: /healthcheck fails first, and the service answers on until the drain is over. Without a
// configuration it waits, unless it is told not to.
func TestRatelimitHealth(t *testing.T) {
	t.Parallel()
	health := func(p *place) int { return status(t, "http://"+p.http+"/healthcheck") }
	place := newPlace(t, map[string]string{"edge.yaml": limitsOfEdge}, "WEIR_STORE=memory", "WEIR_DRAIN=1m")
	p := place.start(t)
	conn := dialPlace(t, place.grpc, insecure.NewCredentials())
	if got := health(place); got != 200 {
		t.Errorf("at first: %d", got)
	}
	p.signal(syscall.SIGTERM)
	redistest.Await(t, "an unhealthy service", func() bool { return health(place) == 500 })
	if got := askGRPC(t, t.Context(), conn); got != "OK" {
		t.Errorf("while it drains: %s", got)
	}
	p.signal(syscall.SIGTERM)
	p.code()
	for env, want := range map[string]int{"": 500, "FORCE_START_WITHOUT_INITIAL_CONFIG=true": 200,
		"FORCE_START_WITHOUT_INITIAL_CONFIG=true HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true": 500} {
		place := newPlace(t, nil, append(strings.Fields(env), "WEIR_STORE=memory", "CONFIG_TYPE=GRPC_XDS_SOTW", "WEIR_RULES_WAIT=10ms",
			"CONFIG_GRPC_XDS_SERVER_URL="+redistest.FreeAddr(t))...)
		p := place.start(t)
		if got := health(place); got != want {
			t.Errorf("without a configuration, %q: %d, want %d", env, got, want)
		}
		p.end()
	}
}

// TestRatelimitRefuses lists every wrong variable, and ends with the exit code of usage.
func TestRatelimitRefuses(t *testing.T) {
	t.Parallel()
	r := call{env: []string{"PORT=http", "REDIS_TYPE=RING", "REDIS_URL=h:1"}}.run(t, "ratelimit")
	want := "weir: PORT is \"http\"; allowed: a port, 0 to 65535\nREDIS_TYPE is \"RING\"; allowed: SINGLE, SENTINEL, CLUSTER\n"
	if r.code != 2 || r.err != want {
		t.Errorf("%v, want\n%s", r, want)
	}
	r = call{env: []string{"RUNTIME_ROOT=/nowhere", "WEIR_STORE=memory", "WEIR_HTTP=127.0.0.1:0", "PORT=0", "GRPC_PORT=0", "DEBUG_PORT=0",
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1"}}.run(t, "ratelimit")
	if r.code == 0 || !strings.Contains(r.err, `"/nowhere/config" is no directory`) {
		t.Error(r)
	}
	r = call{}.run(t, "ratelimit", "--help")
	for _, want := range []string{"RUNTIME_ROOT", "CONFIG_GRPC_XDS_SERVER_URL", "weir sends no statsd", "store.timeout"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("the help has no %s", want)
		}
	}
}

// TestRatelimitAlgorithms are one word for all limits, for those of a unit, or for one limit in an overlay.
func TestRatelimitAlgorithms(t *testing.T) {
	t.Parallel()
	const configuration = `
domain: edge
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: path, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: login, rate_limit: {unit: minute, requests_per_unit: 2}}
`
	overlay := write(t, t.TempDir(), "overlay.yaml", "overlay:\n  - {domain: edge, descriptor: login, algorithm: sliding_log}\n")
	place := newPlace(t, map[string]string{"edge.yaml": configuration}, "WEIR_STORE=memory", "WEIR_ALGORITHM=token_bucket",
		"WEIR_ALGORITHM_MINUTE=sliding_counter", "WEIR_OVERLAY="+overlay)
	p := place.start(t)
	_, _, text := get(t, p.at("http")+"/v1/admin/rules")
	for _, want := range []string{"token_bucket 2/", "sliding_counter 2/1m", `"sliding_log"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no limit %s in %s", want, text)
		}
	}
	p.end()
	r := call{env: append(place.env, "WEIR_CONFIG="+overlay)}.run(t, "ratelimit")
	if r.code != 2 || !strings.Contains(r.err, "both --config and --overlay are given") {
		t.Error(r)
	}
	r = call{env: append(place.env, "WEIR_ALGORITHM_MINUTE=lucky")}.run(t, "ratelimit")
	if r.code != 2 || !strings.Contains(r.err, `WEIR_ALGORITHM_MINUTE: server.algorithm.minute is "lucky"; allowed: fixed_window, `) {
		t.Error(r)
	}
}

// TestRatelimitStartsWithoutTheAddressForOperators where another program has it.
func TestRatelimitStartsWithoutTheAddressForOperators(t *testing.T) {
	t.Parallel()
	redistest.Await(t, "a free address", func() bool { // tests of other packages may have it
		taken, err := net.Listen("tcp", "127.0.0.1:6071")
		if err == nil {
			t.Cleanup(func() { taken.Close() })
		}
		return err == nil
	})
	place := newPlace(t, map[string]string{"edge.yaml": limitsOfEdge}, "WEIR_STORE=memory", "WEIR_HTTP=")
	p := place.start(t)
	place.wants(t, "ann", 200, 200, 429)
	if !strings.Contains(p.logs(), "listener left out: another program listens there") || strings.Contains(p.banner, "6071") {
		t.Error(p.banner, p.logs())
	}
	p.end()
}

// TestRatelimitTraces go to the collector of OpenTelemetry's variables, under the names of the service's.
func TestRatelimitTraces(t *testing.T) {
	t.Parallel()
	collector := otlptest.Start(t)
	place := newPlace(t, map[string]string{"edge.yaml": limitsOfEdge}, "WEIR_STORE=memory", "TRACING_ENABLED=true",
		"TRACING_SERVICE_NAME=edge limits", "TRACING_SERVICE_NAMESPACE=mesh", "TRACING_SERVICE_INSTANCE_ID=pod-1",
		"OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL)
	p := place.start(t)
	place.wants(t, "ann", 200)
	const trace = "0af7651916cd43dd8448eb211c80319c"
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+trace+"-b7ad6b7169203331-01")
	if got := askGRPC(t, ctx, dialPlace(t, place.grpc, insecure.NewCredentials())); got != "OK" {
		t.Error(got)
	}
	p.end()
	continued := 0
	for _, span := range collector.Spans() {
		if fmt.Sprintf("%x", span.GetTraceId()) == trace {
			continued++
		}
	}
	if continued != 2 { // the call, and its decision
		t.Errorf("%d spans of Envoy's trace in %v", continued, collector.Spans())
	}
	resource, _ := collector.Last()
	if resource["service.name"] != "edge limits" || resource["service.namespace"] != "mesh" || resource["service.instance.id"] != "pod-1" {
		t.Errorf("the resource is %v", resource)
	}
	if len(collector.Spans()) == 0 || len(collector.Metrics()) > 0 {
		t.Errorf("%d spans, %d metrics", len(collector.Spans()), len(collector.Metrics()))
	}
}

// TestRatelimitWithoutRedis counts by itself while Redis is away, and is unhealthy if it was told to be.
func TestRatelimitWithoutRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	place := newPlace(t, map[string]string{"edge.yaml": limitsOfEdge}, "REDIS_URL="+redis.Addr(), "REDIS_TIMEOUT=5s",
		"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true")
	p := place.start(t)
	place.wants(t, "ann", 200)
	redis.Kill()
	place.wants(t, "bob", 200, 200, 429)
	if got := status(t, "http://"+place.http+"/healthcheck"); got != 500 {
		t.Errorf("/healthcheck without Redis: %d", got)
	}
	redis.Restart()
	redistest.Await(t, "a healthy service", func() bool { return status(t, "http://"+place.http+"/healthcheck") == 200 })
	if _, _, text := get(t, "http://"+place.debug+"/stats"); strings.Contains(text, "redis_error: 0\n") {
		t.Error(text)
	}
	p.end()
}

// TestRatelimitToken: with a token of weir, each port of the service wants it, but for the health checks.
func TestRatelimitToken(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef0123456789abcdef"
	place := newPlace(t, map[string]string{"edge.yaml": limitsOfEdge}, "WEIR_STORE=memory", "WEIR_TOKEN="+token)
	p := place.start(t)
	body := `{"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}`
	for credential, want := range map[string]int{"Bearer " + strings.Repeat("x", 32): 401, "Bearer " + token: 200} {
		list := []string{"Authorization", credential}
		if code, _, _ := post(t, "http://"+place.http+"/json", body, list...); code != want {
			t.Errorf("/json with %q: %d, want %d", credential, code, want)
		}
		if code, _, _ := get(t, "http://"+place.debug+"/rlconfig", list...); code != want {
			t.Errorf("/rlconfig with %q: %d, want %d", credential, code, want)
		}
	}
	if got := askGRPC(t, t.Context(), dialPlace(t, place.grpc, insecure.NewCredentials())); !strings.Contains(got, "Unauthenticated") {
		t.Errorf("gRPC: %s", got)
	}
	if got := status(t, "http://"+place.http+"/healthcheck"); got != 200 {
		t.Errorf("/healthcheck: %d", got)
	}
	p.end()
}
