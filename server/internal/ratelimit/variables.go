package ratelimit

import (
	"cmp"
	"strconv"
	"strings"
	"time"
)

// A variable is one of envoyproxy/ratelimit's environment.
type variable struct {
	name  string
	unset string // its default, for the reference
	kind  kind
	path  string // of the setting that has its value; "": Read says what follows from it
	about string
	// note, if not empty, is logged where the variable has another value than harmless: it has no equal.
	note, harmless string
	// with is a variable that must be true for this one to count.
	with string
}

// A kind reads a value: as a setting has it, or with what is allowed instead.
type kind func(value string) (as, allowed string)

func text(value string) (string, string) { return value, "" }

func truth(value string) (string, string) {
	b, err := strconv.ParseBool(value)
	if err != nil {
		return "", "true or false"
	}
	return strconv.FormatBool(b), ""
}

func port(value string) (string, string) {
	if _, err := strconv.ParseUint(value, 10, 16); err != nil {
		return "", "a port, 0 to 65535"
	}
	return value, ""
}

func whole(value string) (string, string) {
	if _, err := strconv.ParseInt(value, 10, 64); err != nil {
		return "", "a whole number"
	}
	return value, ""
}

func number(value string) (string, string) {
	if _, err := strconv.ParseFloat(value, 64); err != nil {
		return "", "a number, such as 0.8"
	}
	return value, ""
}

func ratio(value string) (string, string) {
	if f, err := strconv.ParseFloat(value, 64); err != nil || !(f >= 0 && f <= 1) {
		return "", "a number from 0 to 1, such as 0.8"
	}
	return value, ""
}

func span(value string) (string, string) {
	if _, err := time.ParseDuration(value); err != nil {
		return "", "a time with its unit, such as 10s"
	}
	return value, ""
}

// pairs are KEY:VALUE, as the service's library reads maps.
func pairs(value string) (string, string) {
	list := strings.Split(value, ",")
	for i, one := range list {
		key, rest, ok := strings.Cut(one, ":")
		if !ok || key == "" {
			return "", "KEY:VALUE, several with commas"
		}
		list[i] = key + "=" + rest
	}
	return strings.Join(list, ","), ""
}

// oneOf are words, in any case; the setting has the word behind the colon, if there is one.
func oneOf(words ...string) kind {
	var shown []string
	for _, word := range words {
		name, _, _ := strings.Cut(word, ":")
		shown = append(shown, name)
	}
	return func(value string) (string, string) {
		for i, word := range words {
			if strings.EqualFold(shown[i], value) {
				_, as, _ := strings.Cut(word, ":")
				return strings.ToLower(cmp.Or(as, shown[i])), ""
			}
		}
		return "", strings.Join(shown, ", ")
	}
}

// Notes of several variables.
const (
	noStatsd = "weir sends no statsd: scrape Prometheus (USE_PROMETHEUS=true), or send metrics by OTLP " +
		"(WEIR_OTLP=http://collector:4318)"
	noPools  = "weir keeps one connection a Redis node, and sends what waits together; there is nothing to set"
	noCache  = "weir counts in Redis or in memory: leave memcache out, and give REDIS_URL"
	oneRedis = "weir decides all limits of a request in one call of one Redis, that of REDIS_URL, which counts the " +
		"limits by the second too"
)

// variables is the table of all that the service reads, in the order of the reference.
var variables = []variable{
	{name: "HOST", unset: "0.0.0.0", kind: text,
		about: "with `PORT` the address of `/healthcheck` and `/json`: `envoy.http`"},
	{name: "PORT", unset: "8080", kind: port, about: "see `HOST`"},
	{name: "GRPC_HOST", unset: "0.0.0.0", kind: text, about: "with `GRPC_PORT` the address of gRPC: `grpc`"},
	{name: "GRPC_PORT", unset: "8081", kind: port, about: "see `GRPC_HOST`"},
	{name: "GRPC_UDS", kind: text, about: "path of a Unix socket for gRPC, in place of these two: `grpc`"},
	{name: "DEBUG_HOST", unset: "0.0.0.0", kind: text,
		about: "with `DEBUG_PORT` the address of `/rlconfig`, `/stats` and `/debug/pprof/`: `envoy.debug`"},
	{name: "DEBUG_PORT", unset: "6070", kind: port, about: "see `DEBUG_HOST`"},

	{name: "GRPC_SERVER_USE_TLS", unset: "false", kind: truth, about: "TLS of gRPC"},
	{name: "GRPC_SERVER_TLS_CERT", kind: text, path: "grpc.tls_cert", with: "GRPC_SERVER_USE_TLS",
		about: "file of the certificate, read again when it changes"},
	{name: "GRPC_SERVER_TLS_KEY", kind: text, path: "grpc.tls_key", with: "GRPC_SERVER_USE_TLS",
		about: "file of its key"},
	{name: "GRPC_CLIENT_TLS_CACERT", kind: text, path: "grpc.client_ca", with: "GRPC_SERVER_USE_TLS",
		about: "file of the authority of client certificates, which are then required"},
	{name: "GRPC_CLIENT_TLS_SAN", kind: text, path: "grpc.client_names", with: "GRPC_SERVER_USE_TLS",
		about: "name that a client's certificate must have"},
	{name: "GRPC_SERVER_TLS_CA_CERT", kind: text, about: "none: envoyproxy/ratelimit does not read it either",
		note: "to require certificates of clients, give GRPC_CLIENT_TLS_CACERT"},
	{name: "GRPC_MAX_CONNECTION_AGE", unset: "10m", kind: span, path: "grpc.max_age",
		about: "age at which clients are asked to connect anew"},
	{name: "GRPC_MAX_CONNECTION_AGE_GRACE", unset: "30s", kind: span, path: "grpc.max_age_grace",
		about: "time that their calls have to end after that"},

	{name: "LOG_LEVEL", unset: "info", path: "log.level", kind: oneOf("panic:error", "fatal:error", "error", "warn",
		"warning:warn", "info", "debug", "trace:debug"), about: "lowest level that is logged"},
	{name: "LOG_FORMAT", unset: "text", path: "log.format", kind: oneOf("text", "json"), about: "format of the log"},

	{name: "CONFIG_TYPE", unset: "FILE", kind: oneOf("FILE", "GRPC_XDS_SOTW"), about: "where limits come from"},
	{name: "RUNTIME_ROOT", unset: "/srv/runtime_data/current", kind: text,
		about: "the files below `RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY` are configurations: " +
			"`envoy.config`"},
	{name: "RUNTIME_SUBDIRECTORY", kind: text, about: "see `RUNTIME_ROOT`"},
	{name: "RUNTIME_APPDIRECTORY", unset: "config", kind: text, about: "see `RUNTIME_ROOT`"},
	{name: "RUNTIME_IGNOREDOTFILES", unset: "false", kind: truth,
		about: "leave out files and folders whose names begin with a dot; those with two dots, behind a ConfigMap, " +
			"always are: `envoy.dot_files`"},
	{name: "RUNTIME_WATCH_ROOT", unset: "true", kind: truth,
		about: "nothing: weir watches each folder and link of the path, so that either way of replacing them is seen"},
	{name: "MERGE_DOMAIN_CONFIG", unset: "false", kind: truth, path: "envoy.merge", about: "several files of a domain"},
	{name: "FORCE_START_WITHOUT_INITIAL_CONFIG", unset: "false", kind: truth,
		about: "be healthy before a configuration was read: no `config` in `envoy.health`"},
	{name: "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", unset: "false", kind: truth,
		about: "be healthy only with a domain: `domain` in `envoy.health`"},

	{name: "CONFIG_GRPC_XDS_SERVER_URL", unset: "localhost:18000", kind: text,
		about: "host:port of the control plane: `envoy.xds`"},
	{name: "CONFIG_GRPC_XDS_NODE_ID", unset: "default", kind: text, path: "envoy.xds.node", about: "id of this node"},
	{name: "CONFIG_GRPC_XDS_NODE_METADATA", kind: text, path: "envoy.xds.metadata",
		about: "KEY=VALUE, several with commas"},
	{name: "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", kind: pairs, path: "envoy.xds.headers",
		about: "KEY:VALUE, several with commas"},
	{name: "CONFIG_GRPC_XDS_SERVER_USE_TLS", unset: "false", kind: truth, path: "envoy.xds.tls", about: "TLS"},
	{name: "CONFIG_GRPC_XDS_CLIENT_TLS_CERT", kind: text, path: "envoy.xds.cert",
		with: "CONFIG_GRPC_XDS_SERVER_USE_TLS", about: "file of the client certificate"},
	{name: "CONFIG_GRPC_XDS_CLIENT_TLS_KEY", kind: text, path: "envoy.xds.key",
		with: "CONFIG_GRPC_XDS_SERVER_USE_TLS", about: "file of its key"},
	{name: "CONFIG_GRPC_XDS_SERVER_TLS_CACERT", kind: text, path: "envoy.xds.ca",
		with: "CONFIG_GRPC_XDS_SERVER_USE_TLS", about: "file of the server's authority"},
	{name: "CONFIG_GRPC_XDS_SERVER_TLS_SAN", kind: text, path: "envoy.xds.server_name",
		with: "CONFIG_GRPC_XDS_SERVER_USE_TLS", about: "name that the server's certificate must have"},
	{name: "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", unset: "1s", kind: span, path: "envoy.xds.backoff",
		about: "first wait before a connection anew; it doubles, with jitter"},
	{name: "XDS_CLIENT_BACKOFF_MAX_INTERVAL", unset: "60s", kind: span, path: "envoy.xds.backoff_max",
		about: "longest wait"},
	{name: "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", unset: "67108864", kind: whole, path: "envoy.xds.max_message",
		about: "most bytes of a message"},
	{name: "XDS_CLIENT_BACKOFF_RANDOM_FACTOR", kind: number, about: "nothing",
		note: "waits double, and have a jitter of half their length"},
	{name: "XDS_CLIENT_BACKOFF_JITTER", unset: "true", kind: truth, about: "nothing", harmless: "true",
		note: "waits always have jitter"},
	{name: "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", kind: span, about: "nothing",
		note: "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL and XDS_CLIENT_BACKOFF_MAX_INTERVAL are the waits of each attempt"},

	{name: "REDIS_URL", kind: text, about: "host:port, or the path of a socket; of a Sentinel " +
		"`MASTER,host:port,host:port`; of a Cluster `host:port,host:port`: `store`"},
	{name: "REDIS_TYPE", unset: "SINGLE", kind: oneOf("SINGLE", "SENTINEL", "CLUSTER"), about: "see `REDIS_URL`"},
	{name: "REDIS_SOCKET_TYPE", unset: "by `REDIS_URL`", kind: oneOf("tcp", "unix"), about: "see `REDIS_URL`"},
	{name: "REDIS_AUTH", kind: text, about: "PASSWORD or USER:PASSWORD"},
	{name: "REDIS_SENTINEL_AUTH", kind: text, about: "the same, of the Sentinels"},
	{name: "REDIS_TLS", unset: "false", kind: truth, about: "TLS to Redis and to Sentinels"},
	{name: "REDIS_TLS_CACERT", kind: text, with: "REDIS_TLS", about: "file of the authority of their certificates"},
	{name: "REDIS_TLS_CLIENT_CERT", kind: text, with: "REDIS_TLS", about: "file of the client certificate"},
	{name: "REDIS_TLS_CLIENT_KEY", kind: text, with: "REDIS_TLS", about: "file of its key"},
	{name: "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", unset: "false", kind: truth, with: "REDIS_TLS",
		about: "accept certificates of the authority for any name"},
	{name: "REDIS_TIMEOUT", unset: "50ms", kind: span, path: "store.timeout",
		about: "time limit of a call; the default is shorter than the service's 10s"},
	{name: "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", unset: "false", kind: truth,
		about: "be unhealthy while Redis does not answer: `store` in `envoy.health`"},
	{name: "CACHE_KEY_PREFIX", unset: "weir:", kind: text, path: "store.prefix", about: "beginning of keys in Redis"},
	{name: "LOCAL_CACHE_SIZE_IN_BYTES", kind: whole, about: "nothing: the cache of refusals is always on, and bounded"},
	{name: "BACKEND_TYPE", unset: "redis", kind: oneOf("redis"), about: "memcache has no equal"},
	{name: "REDIS_PERSECOND", unset: "false", kind: truth, harmless: "false", note: oneRedis,
		about: "nothing: one Redis counts all limits, so that a request is charged by all or by none"},

	{name: "NEAR_LIMIT_RATIO", unset: "0.8", kind: number, path: "envoy.near_limit",
		about: "part of a limit above which hits count as near_limit"},
	{name: "SHADOW_MODE", unset: "false", kind: truth, path: "envoy.shadow", about: "refuse no request"},
	{name: "QUOTA_MODE", unset: "false", kind: truth, path: "envoy.quota", about: "all limits are in quota mode"},
	{name: "RESPONSE_DYNAMIC_METADATA", unset: "false", kind: truth, path: "envoy.metadata",
		about: "answers have the service's dynamic metadata"},
	{name: "LIMIT_RESPONSE_HEADERS_ENABLED", unset: "false", kind: truth,
		about: "answers have the next three headers: `envoy.headers`; otherwise `rls.no_headers`"},
	{name: "LIMIT_LIMIT_HEADER", unset: "RateLimit-Limit", kind: text, with: "LIMIT_RESPONSE_HEADERS_ENABLED",
		about: "name of the header with the limit"},
	{name: "LIMIT_REMAINING_HEADER", unset: "RateLimit-Remaining", kind: text, with: "LIMIT_RESPONSE_HEADERS_ENABLED",
		about: "name of the header with the rest"},
	{name: "LIMIT_RESET_HEADER", unset: "RateLimit-Reset", kind: text, with: "LIMIT_RESPONSE_HEADERS_ENABLED",
		about: "name of the header with the seconds until the reset"},

	{name: "USE_PROMETHEUS", unset: "false", kind: truth, about: "serve metrics at `PROMETHEUS_ADDR`"},
	{name: "PROMETHEUS_ADDR", unset: ":9090", kind: text, path: "metrics", with: "USE_PROMETHEUS",
		about: "address of the metrics"},
	{name: "PROMETHEUS_PATH", unset: "/metrics", kind: text, path: "metrics.path", with: "USE_PROMETHEUS",
		about: "their path"},
	{name: "PROMETHEUS_MAPPER_YAML", kind: text, about: "nothing", note: "series have the names and labels of the " +
		"service's default mapper: rename others in Prometheus (metric_relabel_configs)"},
	{name: "TRACING_ENABLED", unset: "false", kind: truth,
		about: "send traces to the collector in `OTEL_EXPORTER_OTLP_ENDPOINT`: `otlp: env`"},
	{name: "TRACING_SERVICE_NAME", unset: "RateLimit", kind: text, with: "TRACING_ENABLED",
		about: "`OTEL_SERVICE_NAME`"},
	{name: "TRACING_SERVICE_NAMESPACE", kind: text, with: "TRACING_ENABLED", about: "in `OTEL_RESOURCE_ATTRIBUTES`"},
	{name: "TRACING_SERVICE_INSTANCE_ID", unset: "the node's name", kind: text, with: "TRACING_ENABLED",
		about: "in `OTEL_RESOURCE_ATTRIBUTES`"},
	{name: "TRACING_SAMPLING_RATE", unset: "1", kind: ratio, with: "TRACING_ENABLED",
		about: "`OTEL_TRACES_SAMPLER_ARG`"},
	{name: "TRACING_EXPORTER_PROTOCOL", unset: "http", kind: oneOf("http", "grpc"), harmless: "http",
		about: "http alone",
		note:  "weir sends OTLP over HTTP alone: OTEL_EXPORTER_OTLP_ENDPOINT must name such a port, often 4318"},

	{name: "USE_STATSD", unset: "false", kind: truth, harmless: "false", note: noStatsd, about: "nothing"},
	{name: "STATSD_HOST", kind: text, note: noStatsd, about: "nothing"},
	{name: "STATSD_PORT", kind: text, note: noStatsd, about: "nothing"},
	{name: "USE_DOG_STATSD", unset: "false", kind: truth, harmless: "false", note: noStatsd, about: "nothing"},
	{name: "USE_DOG_STATSD_MOGRIFIERS", kind: text, note: noStatsd, about: "nothing"},
	{name: "EXTRA_TAGS", kind: pairs, note: "give tags in Prometheus (relabel_configs), or for OTLP in " +
		"OTEL_RESOURCE_ATTRIBUTES", about: "nothing"},
	{name: "STATS_FLUSH_INTERVAL", kind: span, note: noStatsd, about: "nothing"},
	{name: "DISABLE_STATS", kind: truth, harmless: "false", note: "WEIR_TELEMETRY=off ends the statistics of keys",
		about: "nothing"},
	{name: "REDIS_POOL_SIZE", kind: whole, note: noPools, about: "nothing"},
	{name: "REDIS_POOL_ON_EMPTY_BEHAVIOR", kind: text, note: noPools, about: "nothing"},
	{name: "REDIS_PIPELINE_WINDOW", kind: span, note: noPools, about: "nothing"},
	{name: "REDIS_PIPELINE_LIMIT", kind: whole, note: noPools, about: "nothing"},
	{name: "EXPIRATION_JITTER_MAX_SECONDS", kind: whole, about: "nothing",
		note: "a key expires when its counts have no more effect"},
	{name: "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", kind: truth, harmless: "true", about: "as `true`, always",
		note: "a refused request is charged nowhere, always"},
	{name: "PROTO", kind: text, about: "nothing", note: "nothing reads it"},
}

// families are beginnings of names of variables that have no equal.
var families = []struct{ prefix, note string }{{"MEMCACHE_", noCache}, {"REDIS_PERSECOND_", oneRedis}}

// Help lists the variables for a terminal.
func Help() string {
	var b strings.Builder
	for i := range variables {
		v := &variables[i]
		about := strings.ReplaceAll(v.says(), "`", "")
		if v.unset != "" {
			about += " (default: " + v.unset + ")"
		}
		b.WriteString("  " + v.name + "\n      " + about + "\n")
	}
	return b.String()
}

// Reference is the table of the variables in Markdown.
func Reference() string {
	var b strings.Builder
	b.WriteString("| variable | in weir | default |\n| --- | --- | --- |\n")
	for i := range variables {
		v := &variables[i]
		unset := "none"
		if v.unset != "" {
			unset = "`" + v.unset + "`"
		}
		b.WriteString("| `" + v.name + "` | " + v.says() + " | " + unset + " |\n")
	}
	return b.String()
}

// says is what follows from the variable: its setting, and what to do where it has no equal.
func (v *variable) says() string {
	text := v.about
	if v.path != "" {
		text += ": `" + v.path + "`"
	}
	if v.note != "" {
		text += "; " + v.note
	}
	return text
}
