package ratelimit_test

import (
	"flag"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirproject/weir/server/internal/ratelimit"
)

var update = flag.Bool("update", false, "write the table of the reference")

// usual are the settings of an environment with REDIS_URL=redis:6379 alone.
var usual = map[string]string{
	"envoy.http": "0.0.0.0:8080", "grpc": "0.0.0.0:8081", "envoy.debug": "0.0.0.0:6070", "http": ratelimit.Operators,
	"open": "true", "store": "redis://redis:6379", "envoy.config": "/srv/runtime_data/current/config",
	"envoy.dot_files": "true", "envoy.health": "config", "rls.no_body": "true", "rls.no_headers": "true",
	"rls.unavailable": "true", "grpc.reuse_port": "true", "envoy.http.reuse_port": "true",
	"envoy.debug.reuse_port": "true", "metrics.reuse_port": "true", "http.reuse_port": "true",
}

// TestRead has what follows from each group of variables, beside the usual settings; "" removes one.
func TestRead(t *testing.T) {
	for _, test := range []struct {
		name, env string
		want      map[string]string
		notes     []string
	}{
		{"nothing more", "", nil, nil},
		{"addresses", "HOST=::1 PORT=1 GRPC_HOST=127.0.0.1 GRPC_PORT=2 DEBUG_HOST=localhost DEBUG_PORT=3",
			map[string]string{"envoy.http": "[::1]:1", "grpc": "127.0.0.1:2", "envoy.debug": "localhost:3"}, nil},
		{"a socket", "GRPC_UDS=/run/r?l.sock", map[string]string{"grpc": "unix:///run/r%3Fl.sock"}, nil},
		{"TLS", "GRPC_SERVER_USE_TLS=1 GRPC_SERVER_TLS_CERT=/c GRPC_SERVER_TLS_KEY=/k GRPC_CLIENT_TLS_CACERT=/a GRPC_CLIENT_TLS_SAN=envoy",
			map[string]string{"grpc.tls_cert": "/c", "grpc.tls_key": "/k", "grpc.client_ca": "/a", "grpc.client_names": "envoy"}, nil},
		{"TLS that is off", "GRPC_SERVER_TLS_CERT=/c GRPC_SERVER_TLS_KEY=/k", nil,
			[]string{"GRPC_SERVER_TLS_CERT, GRPC_SERVER_TLS_KEY have no effect: GRPC_SERVER_USE_TLS is not true"}},
		{"ages", "GRPC_MAX_CONNECTION_AGE=24h GRPC_MAX_CONNECTION_AGE_GRACE=1h",
			map[string]string{"grpc.max_age": "24h", "grpc.max_age_grace": "1h"}, nil},
		{"the log", "LOG_LEVEL=WARNING LOG_FORMAT=JSON", map[string]string{"log.level": "warn", "log.format": "json"}, nil},
		{"a directory", "RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit RUNTIME_APPDIRECTORY=conf RUNTIME_IGNOREDOTFILES=true MERGE_DOMAIN_CONFIG=true",
			map[string]string{"envoy.config": "/data/ratelimit/conf", "envoy.dot_files": "", "envoy.merge": "true"}, nil},
		{"xDS", "CONFIG_TYPE=grpc_xds_sotw CONFIG_GRPC_XDS_NODE_METADATA=a=b,c=d CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=x-a:b:c,x-d:e XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=4096 XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=2s",
			map[string]string{"envoy.config": "", "envoy.dot_files": "", "envoy.xds": "localhost:18000", "envoy.xds.metadata": "a=b,c=d",
				"envoy.xds.headers": "x-a=b:c,x-d=e", "envoy.xds.max_message": "4096", "envoy.xds.backoff": "2s"}, nil},
		{"health", "FORCE_START_WITHOUT_INITIAL_CONFIG=true HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true",
			map[string]string{"envoy.health": "domain,store"}, nil},
		{"no health", "FORCE_START_WITHOUT_INITIAL_CONFIG=true", map[string]string{"envoy.health": ""}, nil},
		{"a password", "REDIS_AUTH=p@:/x", map[string]string{"store": "redis://p%40:%2Fx@redis:6379"}, nil},
		{"a password alone", "REDIS_AUTH=p@x", map[string]string{"store": "redis://:p%40x@redis:6379"}, nil},
		{"a socket of Redis", "REDIS_URL=/run/redis.sock", map[string]string{"store": "unix:///run/redis.sock"}, nil},
		{"a URL of Redis", "REDIS_URL=redis://u:p%40@h:1/2", map[string]string{"store": "redis://u:p%40@h:1/2"}, nil},
		{"Sentinel", "REDIS_TYPE=Sentinel REDIS_URL=mymaster,a:1,b:2 REDIS_AUTH=x REDIS_SENTINEL_AUTH=u:y",
			map[string]string{"store": "redis+sentinel://:x@a:1,b:2/mymaster?sentinel_password=y&sentinel_user=u"}, nil},
		{"one Sentinel", "REDIS_TYPE=SENTINEL REDIS_URL=mymaster,a:1", map[string]string{"store": "redis+sentinel://a:1/mymaster"}, nil},
		{"Cluster with TLS", "REDIS_TYPE=CLUSTER REDIS_URL=redis://a:1,redis://b:2 REDIS_TLS=true REDIS_TLS_CACERT=/ca REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true",
			map[string]string{"store": "rediss+cluster://a:1,b:2?any_name=true&ca=%2Fca"}, nil},
		{"calls of Redis", "REDIS_TIMEOUT=20ms CACHE_KEY_PREFIX=rl_", map[string]string{"store.timeout": "20ms", "store.prefix": "rl_"}, nil},
		{"answers", "LIMIT_RESPONSE_HEADERS_ENABLED=true LIMIT_RESET_HEADER=X-Reset SHADOW_MODE=true QUOTA_MODE=t RESPONSE_DYNAMIC_METADATA=TRUE NEAR_LIMIT_RATIO=0.5",
			map[string]string{"rls.no_headers": "", "envoy.headers": "RateLimit-Limit,RateLimit-Remaining,X-Reset",
				"envoy.shadow": "true", "envoy.quota": "true", "envoy.metadata": "true", "envoy.near_limit": "0.5"}, nil},
		{"Prometheus", "USE_PROMETHEUS=true PROMETHEUS_PATH=/m PROMETHEUS_MAPPER_YAML=/conf.yaml",
			map[string]string{"metrics": ":9090", "metrics.path": "/m"}, []string{"PROMETHEUS_MAPPER_YAML has no effect: "}},
		{"traces", "TRACING_ENABLED=true TRACING_EXPORTER_PROTOCOL=grpc", map[string]string{"otlp": "env"},
			[]string{"TRACING_EXPORTER_PROTOCOL has no effect: weir sends OTLP over HTTP alone"}},
		{"no equal", "STATSD_HOST=h REDIS_POOL_SIZE=3 STATSD_PORT=1 MEMCACHE_HOST_PORT=h:1 REDIS_PERSECOND=true REDIS_PERSECOND_URL=h:1 USE_STATSD=false",
			nil, []string{"REDIS_PERSECOND, REDIS_PERSECOND_URL have no effect: weir decides all limits of a request in one call",
				"STATSD_HOST, STATSD_PORT have no effect: weir sends no statsd", "REDIS_POOL_SIZE has no effect: ",
				"MEMCACHE_HOST_PORT has no effect: weir counts in Redis"}},
		{"mistyped", "REDIS_TLS_CA_CERT=/x REDIS_PORT_6379_TCP=tcp://10.0.0.1:6379 REDIS_SERVICE_HOST=10.0.0.1", nil,
			[]string{"REDIS_TLS_CA_CERT has no effect: it is not known; did you mean REDIS_TLS_CACERT?"}},
		{"empty ones are unset", "REDIS_TLS= PORT= LOG_LEVEL=", nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			read, err := ratelimit.Read(append([]string{"REDIS_URL=redis:6379"}, strings.Fields(test.env)...))
			if err != nil {
				t.Fatal(err)
			}
			got, want := make(map[string]string), maps.Clone(usual)
			maps.Copy(want, test.want)
			maps.DeleteFunc(want, func(_, value string) bool { return value == "" })
			for _, one := range read.Settings {
				got[one.Path] = one.Value
			}
			if !maps.Equal(got, want) || len(got) != len(read.Settings) {
				t.Errorf("settings\n%v, want\n%v", got, want)
			}
			if len(read.Notes) != len(test.notes) {
				t.Errorf("notes: %q", read.Notes)
			}
			for _, note := range test.notes {
				if !slices.ContainsFunc(read.Notes, func(text string) bool { return strings.HasPrefix(text, note) }) {
					t.Errorf("no note %q in %q", note, read.Notes)
				}
			}
		})
	}
}

// TestReadTracing has the variables of OpenTelemetry that follow, unless they are given.
func TestReadTracing(t *testing.T) {
	read, err := ratelimit.Read([]string{"REDIS_URL=r:1", "TRACING_ENABLED=true", "TRACING_SERVICE_NAMESPACE=a b",
		"TRACING_SERVICE_INSTANCE_ID=i", "TRACING_SAMPLING_RATE=0.1", "OTEL_SERVICE_NAME=mine", "OTEL_RESOURCE_ATTRIBUTES=x=y"})
	want := "OTEL_METRICS_EXPORTER=none OTEL_RESOURCE_ATTRIBUTES=service.namespace=a%20b,service.instance.id=i,x=y " +
		"OTEL_TRACES_SAMPLER=parentbased_traceidratio OTEL_TRACES_SAMPLER_ARG=0.1"
	if got := strings.Join(read.OTel, " "); err != nil || got != want {
		t.Errorf("%s, %v, want\n%s", got, err, want)
	}
}

// TestReadRefuses lists values that no server starts with. Passwords are never repeated.
func TestReadRefuses(t *testing.T) {
	for env, want := range map[string]string{
		"PORT=http":                                                   `PORT is "http"; allowed: a port, 0 to 65535`,
		"GRPC_PORT=65536":                                             `GRPC_PORT is "65536"; allowed: a port`,
		"DEBUG_PORT=tcp://10.0.0.1:80":                                `DEBUG_PORT is "tcp://10.0.0.1:80"; allowed: a port`,
		"GRPC_UDS=run.sock":                                           `GRPC_UDS is "run.sock"; allowed: an absolute path`,
		"GRPC_SERVER_USE_TLS=yes":                                     `GRPC_SERVER_USE_TLS is "yes"; allowed: true or false`,
		"GRPC_SERVER_USE_TLS=true":                                    `GRPC_SERVER_TLS_CERT is not set; allowed: a PEM file, where GRPC_SERVER_USE_TLS is true`,
		"GRPC_MAX_CONNECTION_AGE=1":                                   `GRPC_MAX_CONNECTION_AGE is "1"; allowed: a time with its unit`,
		"GRPC_MAX_CONNECTION_AGE=1ms":                                 `GRPC_MAX_CONNECTION_AGE: server.grpc.max_age is "1ms"; allowed: a time with its unit from 1s`,
		"LOG_LEVEL=loud":                                              `LOG_LEVEL is "loud"; allowed: panic, fatal, error, warn, warning, info, debug, trace`,
		"LOG_FORMAT=xml":                                              `LOG_FORMAT is "xml"; allowed: text, json`,
		"CONFIG_TYPE=HTTP":                                            `CONFIG_TYPE is "HTTP"; allowed: FILE, GRPC_XDS_SOTW`,
		"BACKEND_TYPE=memcache":                                       `BACKEND_TYPE is "memcache"; allowed: redis`,
		"REDIS_TYPE=RING":                                             `REDIS_TYPE is "RING"; allowed: SINGLE, SENTINEL, CLUSTER`,
		"REDIS_TYPE=SENTINEL REDIS_URL=h:1":                           `REDIS_URL is "h:1"; allowed: of a Sentinel the master's name first`,
		"REDIS_TYPE=SENTINEL REDIS_URL=mymaster":                      `REDIS_URL is "mymaster"; allowed: of a Sentinel the master's name first`,
		"REDIS_SOCKET_TYPE=unix":                                      `REDIS_URL is "redis:6379"; allowed: the absolute path of a socket`,
		"REDIS_URL=rediss://u:SECRET@h:1":                             `REDIS_URL is a value with a password; allowed: host:port or redis://…; REDIS_TLS=true is TLS`,
		"REDIS_TLS=on":                                                `REDIS_TLS is "on"; allowed: true or false`,
		"REDIS_TLS=1 REDIS_TLS_CLIENT_KEY=k":                          `REDIS_TLS_CLIENT_CERT is not set; allowed: with REDIS_TLS_CLIENT_KEY`,
		"REDIS_TLS=1 REDIS_URL=/r.sock":                               `REDIS_TLS is "1"; allowed: false at a Unix socket`,
		"REDIS_TIMEOUT=2h":                                            `REDIS_TIMEOUT: server.store.timeout is "2h"; allowed:`,
		"LOCAL_CACHE_SIZE_IN_BYTES=1MB":                               `LOCAL_CACHE_SIZE_IN_BYTES is "1MB"; allowed: a whole number`,
		"NEAR_LIMIT_RATIO=80%":                                        `NEAR_LIMIT_RATIO is "80%"; allowed: a number, such as 0.8`,
		"NEAR_LIMIT_RATIO=2":                                          `NEAR_LIMIT_RATIO: server.envoy.near_limit is "2"; allowed: a number above 0`,
		"USE_PROMETHEUS=1 PROMETHEUS_PATH=m":                          `PROMETHEUS_PATH: server.metrics.path is "m"; allowed: a path`,
		"TRACING_ENABLED=1 TRACING_SAMPLING_RATE=all":                 `TRACING_SAMPLING_RATE is "all"; allowed: a number`,
		"CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=a:SECRET,b":        `CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS is a value that may be a secret; allowed: KEY:VALUE`,
		"TRACING_ENABLED=1 TRACING_SAMPLING_RATE=7":                   `TRACING_SAMPLING_RATE is "7"; allowed: a number from 0 to 1`,
		"LIMIT_RESPONSE_HEADERS_ENABLED=1 LIMIT_LIMIT_HEADER=:status": `LIMIT_LIMIT_HEADER: server.envoy.headers has ":status"; allowed: names`,
		"CONFIG_GRPC_XDS_NODE_METADATA=a":                             `CONFIG_GRPC_XDS_NODE_METADATA: server.envoy.xds.metadata: value 1 is wrong; allowed: KEY=VALUE`,
	} {
		_, err := ratelimit.Read(append([]string{"REDIS_URL=redis:6379"}, strings.Fields(env)...))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v, want %s", env, err, want)
		}
	}
	_, err := ratelimit.Read([]string{"PORT=a", "GRPC_PORT=b", "LOG_LEVEL=c"})
	for _, want := range []string{"PORT is", "GRPC_PORT is", "LOG_LEVEL is", "REDIS_URL is not set"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("all at once: %v, want %s", err, want)
		}
	}
	if _, err := ratelimit.Read([]string{"WEIR_STORE=memory"}); err != nil {
		t.Errorf("counts in memory: %v", err)
	}
}

// TestEnvoyGateway reads the environment that its controller writes, whose one note is of a variable that
// envoyproxy/ratelimit does not read either.
func TestEnvoyGateway(t *testing.T) {
	read, err := ratelimit.Read(strings.Fields(`RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit RUNTIME_IGNOREDOTFILES=true
		RUNTIME_WATCH_ROOT=false LOG_LEVEL=info USE_STATSD=false CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_SERVER_URL=envoy-gateway:18001
		CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=/certs/tls.crt
		GRPC_SERVER_TLS_KEY=/certs/tls.key GRPC_SERVER_TLS_CA_CERT=/certs/ca.crt CONFIG_GRPC_XDS_SERVER_USE_TLS=true
		CONFIG_GRPC_XDS_CLIENT_TLS_CERT=/certs/tls.crt CONFIG_GRPC_XDS_CLIENT_TLS_KEY=/certs/tls.key
		CONFIG_GRPC_XDS_SERVER_TLS_CACERT=/certs/ca.crt FORCE_START_WITHOUT_INITIAL_CONFIG=true REDIS_SOCKET_TYPE=tcp
		REDIS_URL=redis.svc:6379 REDIS_TLS=true REDIS_TLS_CLIENT_CERT=/redis/tls.crt REDIS_TLS_CLIENT_KEY=/redis/tls.key
		USE_PROMETHEUS=true PROMETHEUS_ADDR=:19001`))
	if err != nil {
		t.Fatal(err)
	}
	if len(read.Notes) != 1 || !strings.HasPrefix(read.Notes[0], "GRPC_SERVER_TLS_CA_CERT") {
		t.Errorf("notes: %q", read.Notes)
	}
}

// TestHelp has each variable with its default, and no empty one.
func TestHelp(t *testing.T) {
	for _, want := range []string{"  PORT\n      see HOST (default: 8080)\n", "  GRPC_UDS\n      path of a Unix socket for gRPC, in place of these two: grpc\n",
		"  GRPC_SERVER_TLS_KEY\n      file of its key: grpc.tls_key\n"} {
		if !strings.Contains(ratelimit.Help(), want) {
			t.Errorf("no %q", want)
		}
	}
}

// TestReference compares the table of docs/reference/ratelimit.md.
func TestReference(t *testing.T) {
	const file = "../../../docs/reference/ratelimit.md"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	marked := regexp.MustCompile(`(?s)(<!-- variables: [^>]*-->\n).*?(<!-- end -->)`)
	fresh := marked.ReplaceAll(page, []byte("${1}"+strings.ReplaceAll(ratelimit.Reference(), "$", "$$")+"${2}"))
	switch {
	case !marked.Match(page):
		t.Fatal("the page has no table")
	case string(fresh) == string(page):
	case *update:
		if err := os.WriteFile(file, fresh, 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s differs from the table of variables; write it with: go test ./server/internal/ratelimit -update", file)
	}
}

// TestSpaceAroundAddressesOfRedis: lists are written with it, and a file of a secret often ends with a new line.
func TestSpaceAroundAddressesOfRedis(t *testing.T) {
	for given, want := range map[string]string{"a:1\n": "redis://a:1", " /run/r.sock\n": "unix:///run/r.sock"} {
		read, err := ratelimit.Read([]string{"REDIS_URL=" + given})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(read.Settings, func(s ratelimit.Setting) bool { return s.Path == "store" })
		if got := read.Settings[i].Value; got != want {
			t.Errorf("%q: %s, want %s", given, got, want)
		}
	}
	read, err := ratelimit.Read([]string{"REDIS_TYPE=CLUSTER", "REDIS_URL=a:1, b:2"})
	if err != nil || !slices.Contains(read.Settings, ratelimit.Setting{Path: "store", Variable: "REDIS_URL", Value: "redis+cluster://a:1,b:2"}) {
		t.Errorf("a list: %v, %v", read, err)
	}
}
