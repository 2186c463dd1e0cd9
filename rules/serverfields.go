package rules

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/weirproject/weir/internal/bounds"
)

const wholeDay = 24 * time.Hour

// serverFields is the table of the section server. docs/reference/server.md, the variables WEIR_… and --set follow from
// it.
var serverFields = mapping[Server]{"server", "leave it out", []field[Server]{
	{"store", headed(&storeFields), "see `store.url`", ""},
	{"nodes", number(1, bounds.Sharing, func(s *Server) *int { return &s.Nodes }),
		"1 to 10,000: processes that share the store; while it does not answer, each grants " +
			"[its share](../howto/layers.md#fallback)", "`1`"},
	{"without", texts("layer", bounds.Values, func(s *Server) *[]string { return &s.Without }),
		"[layers](../howto/layers.md) before Redis to leave out: `breaker`, `coalesce`, `recall`, `warm`", "none"},
	{"max_keys", number(1, 1<<30, func(s *Server) *int { return &s.MaxKeys }),
		"1 to 1,073,741,824: maximum of keys in memory", "`1000000`"},
	{"max_bytes", number(1, 1<<50, func(s *Server) *int64 { return &s.MaxBytes }),
		"1 to 2^50: maximum of bytes in memory, for keys, logs and leases", "`1073741824`"},
	{"fallback_keys", number(1, bounds.FallbackKeys, func(s *Server) *int { return &s.FallbackKeys }),
		"1 to 1,073,741,824: keys of rules with `on_store_error: local` that each process counts in memory while the " +
			"store answers", "`1000000`"},
	{"state", setting("text", func(s *Server) *string { return &s.State }),
		"file that preserves the [counts in memory](../howto/deploying.md#keep-counts) across restarts", "none"},
	{"config", within(&configFields), "reads of a file or URL in `--config`", ""},
	{"rules", headed(&hashFields), "see `rules.redis`", ""},
	{"ledger", headed(&ledgerFields), "see `ledger.url`", ""},
	{"allow_empty", truth(func(s *Server) *bool { return &s.AllowEmpty }),
		"accept an empty rule set; otherwise the last rules stay in force", "`false`"},
	{"trusted_proxies", texts("proxy", bounds.Proxies, func(s *Server) *[]string { return &s.TrustedProxies }),
		"addresses and networks of your proxies, whose headers are trusted; `unix`: peers on a Unix socket", "none"},
	{"client_header", oneWord(clientHeaders, func(s *Server) *string { return &s.ClientHeader }),
		"the header with the client's address: `X-Forwarded-For`, `Forwarded`, `X-Real-IP` or `CF-Connecting-IP`; " +
			"the last two only if every trusted proxy sets them", "`X-Forwarded-For`"},
	{"user_header", setting("text", func(s *Server) *string { return &s.UserHeader }),
		"the header with the user, set by trusted proxies", "none"},
	{"country_header", setting("text", func(s *Server) *string { return &s.CountryHeader }),
		"the header with the client's [country](matching.md#country-and-network-operator), such as `CF-IPCountry`, " +
			"set by trusted proxies", "none"},
	{"geo", texts("text", bounds.Values, func(s *Server) *[]string { return &s.Geo }),
		"files with the [country or the autonomous system](matching.md#country-and-network-operator) of addresses, " +
			"in MaxMind's format (.mmdb); a changed file is read again", "none"},
	{"path_form", texts("path_form", bounds.Values, func(s *Server) *[]string { return &s.PathForm }),
		"words for [the form of paths](paths.md#the-form-of-paths) in requests and rules",
		"the form of `service_kind`, or `strict`"},
	{"any_method", truth(func(s *Server) *bool { return &s.AnyMethod }),
		"accept HTTP methods that are not registered or not in capitals", "`false`"},
	{"hash_key_file", secretFile(func(s *Server) *string { return &s.HashKeyFile }),
		"file with the secret for hashing long keys, the same on all nodes", "none"},
	{"http", headed(listenerFields("server_http", "the API, forward-auth, metrics and health", "`127.0.0.1:8080`",
		func(s *Server) *Listener { return &s.HTTP })), "see `http.listen`", ""},
	{"gateway", headed(listenerFields("server_gateway", "the [gateway](../howto/gateway.md)",
		"`127.0.0.1:8081` with an upstream or routes",
		func(s *Server) *Listener { return &s.Gateway })), "see `gateway.listen`", ""},
	{"resp", headed(respFields), "see `resp.listen`", ""},
	{"grpc", headed(grpcFields), "see `grpc.listen`", ""},
	{"metrics", headed(metricsFields), "see `metrics.listen`", ""},
	{"rls", within(&rlsFields), "Envoy's rate limit service", ""},
	{"upstream", headed(&upstreamFields), "see `upstream.url`", ""},
	{"service", setting("text", func(s *Server) *string { return &s.Service }),
		"name of the service behind the gateway, for rules that match `service`", "none"},
	{"forward_overrides", truth(func(s *Server) *bool { return &s.ForwardOverrides }),
		"forward headers that override path or method, such as X-Original-URL and X-HTTP-Method-Override", "`false`"},
	{"strict_query", truth(func(s *Server) *bool { return &s.StrictQuery }),
		"refuse query strings that servers parse differently", "`false`"},
	{"access_log", headed(&accessFields), "see `access_log.file`", ""},
	{"token_file", secretFile(func(s *Server) *string { return &s.TokenFile }), "file with the token of the API",
		"none"},
	{"read_token_file", secretFile(func(s *Server) *string { return &s.ReadTokenFile }),
		"file with a read-only token of the API", "none"},
	{"admin", within(&adminFields), "access to the [admin API](admin.md)", ""},
	{"open", truth(func(s *Server) *bool { return &s.Open }),
		"allow listening on other than loopback addresses without authentication", "`false`"},
	{"shutdown_timeout", alive(duration(time.Millisecond, wholeDay, func(s *Server) *time.Duration {
		return &s.ShutdownTimeout
	})), "1ms to 24h: time for requests in progress to finish after a signal", "`10s`"},
	{"drain", alive(duration(0, wholeDay, func(s *Server) *time.Duration { return &s.Drain })),
		"0s to 24h: time of service after a signal, while /readyz fails", "`0s`"},
	{"node_name", setting("text", func(s *Server) *string { return &s.NodeName }),
		"name of this process in the console and in audit records", "the host's name and a port"},
	{"audit", headed(&auditFields), "see `audit.to`", ""},
	{"alerts", setting("text", func(s *Server) *string { return &s.Alerts }),
		"[alerts](../howto/alerts.md) in the log and to the webhook: `on`, `off`, or settings that differ from " +
			"reject_share=10%,degraded=on,window=1m,minimum=100,resolve=1m", "`on`"},
	{"alert", within(&alertFields), "the alerts' webhook", ""},
	{"telemetry", oneWord([]string{"on", "hidden", "off"}, func(s *Server) *string { return &s.Telemetry }),
		"[statistics](telemetry.md) of rules and keys, for the console and its API: `on`, `hidden` (keys as digests) " +
			"or `off`", "`on`"},
	{"state_dir", setting("text", func(s *Server) *string { return &s.StateDir }),
		"folder that preserves 24 hours of the statistics if counts are in memory; otherwise Redis has them",
		"none, so that a restart loses them"},
	{"otlp", setting("text", func(s *Server) *string { return &s.OTLP }),
		"URL of an [OpenTelemetry collector](telemetry.md#opentelemetry), such as http://127.0.0.1:4318, for traces " +
			"and metrics over OTLP/HTTP; `env`: the URL in OTEL_EXPORTER_OTLP_ENDPOINT; `off`: no traces or metrics",
		"`off`"},
	{"log", within(&logFields), "the log, on standard error", ""},
	{"algorithm", headed(algorithmFields()), "see `algorithm.all`", ""},
	{"envoy", within(&envoyFields), "settings of envoyproxy/ratelimit", ""},
}}

var storeFields = mapping[Server]{"server_store", "leave it out", []field[Server]{
	{"url", setting("store", func(s *Server) *string { return &s.Store }),
		"place of the counts: `memory`, or the [URL of a Redis](../howto/redis.md#opening), such as " +
			"redis://host:6379/0",
		"`memory`"},
	{"timeout", duration(time.Millisecond, time.Hour, func(s *Server) *time.Duration { return &s.StoreTimeout }),
		"1ms to 1h: time limit of a call to Redis; after it `on_store_error` of each rule decides", "`50ms`"},
	{"prefix", setting("text", func(s *Server) *string { return &s.StorePrefix }),
		"beginning of the keys of all limits in Redis, and of the name of a channel; the same on all nodes", "`weir:`"},
}}

var configFields = mapping[Server]{"server_config", "leave it out", []field[Server]{
	{"token_file", setting("text", func(s *Server) *string { return &s.ConfigToken }),
		"file with the bearer token for a URL in `--config`, or the credentials of a " +
			"[configuration center](../howto/sources.md#configuration-centers)", "none"},
	{"plain_http", truth(func(s *Server) *bool { return &s.ConfigPlainHTTP }),
		"read rules by http from other machines: whoever controls the network between can change them", "`false`"},
	{"poll", duration(100*time.Millisecond, wholeDay, func(s *Server) *time.Duration { return &s.ConfigPoll }),
		"100ms (for a URL 1s) to 24h: time between reads without a change notification", "`30s`"},
}}

var hashFields = mapping[Server]{"server_rules", "leave it out", []field[Server]{
	{"redis", whole(texts("text", bounds.Values, func(s *Server) *[]string { return &s.Hashes })),
		"URLs of Redis with a [hash for each rule](../howto/redis-rules.md), or `redis` for the Redis of `store`; " +
			"later ones override earlier ones", "none"},
	{"prefix", setting("text", func(s *Server) *string { return &s.HashPrefix }), "prefix of the hashes' keys",
		"`rate_limit_config:`"},
	{"channel", setting("text", func(s *Server) *string { return &s.HashChannel }),
		"channel that announces changes of the hashes", "`rate_limit_config`"},
	{"refresh", duration(100*time.Millisecond, wholeDay, func(s *Server) *time.Duration { return &s.Refresh }),
		"100ms to 24h: time between reads of rules in Redis without a change notification", "`30s`"},
	{"wait", duration(time.Millisecond, wholeDay, func(s *Server) *time.Duration { return &s.StartWithin }),
		"1ms to 24h: time that the start waits for rule sources that cannot be read", "`10s`"},
}}

var ledgerFields = mapping[Server]{"server_ledger", "leave it out", []field[Server]{
	{"url", setting("text", func(s *Server) *string { return &s.Ledger }),
		"operators' [rules and exceptions](admin.md), which override other sources: URL of a Redis, `redis` for the " +
			"Redis of `store`, a file, `memory`, or `none`", "the Redis of `store`, or `memory` without Redis"},
	{"name", setting("text", func(s *Server) *string { return &s.LedgerName }),
		"prefix of the ledger's keys, and name of its channel", "`weir:rules`"},
}}

// listenerFields is the table of a listener.
func listenerFields(name, what, unset string, at func(*Server) *Listener) *mapping[Server] {
	return &mapping[Server]{name, "leave it out", []field[Server]{
		{"listen", setting("text", func(s *Server) *string { return &at(s).Listen }),
			"address of " + what + ": host:port, unix:///path, fd:NAME (a socket that systemd passed), or `off`",
			unset},
		{"tls_cert", texts("text", bounds.Values, func(s *Server) *[]string { return &at(s).TLSCert }),
			"PEM files of server certificates, which enable TLS; a client gets the one for the name that it asks " +
				"for, otherwise the first", "none"},
		{"tls_key", texts("text", bounds.Values, func(s *Server) *[]string { return &at(s).TLSKey }),
			"PEM files of the certificates' keys, in the same order", "none"},
		{"client_ca", setting("text", func(s *Server) *string { return &at(s).ClientCA }),
			"PEM file of the authority of client certificates; clients without one are then refused", "none"},
		{"client_names", texts("text", bounds.Values, func(s *Server) *[]string { return &at(s).ClientNames }),
			"names (DNS names, IP addresses, URIs) of which a client certificate must have one", "any"},
		{"reuse_port", truth(func(s *Server) *bool { return &at(s).ReusePort }),
			"on Linux, let another process of the same user listen on the address too, if it has this setting: the " +
				"next one can start before the last one ends", "`false`"},
		{"proxy_protocol", truth(func(s *Server) *bool { return &at(s).ProxyProtocol }),
			"read the PROXY protocol from trusted proxies", "`false`"},
		{"max_connections", number(1, 1<<30, func(s *Server) *int { return &at(s).MaxConnections }),
			"1 to 1,073,741,824: maximum of open connections; connections beyond it are closed", "`10000`"},
	}}
}

var respFields = &mapping[Server]{"server_resp", "leave it out", slices.Concat(
	listenerFields("", "the [Redis protocol](resp.md)", "`off`", func(s *Server) *Listener { return &s.RESP }).fields,
	[]field[Server]{
		{"password_file", secretFile(func(s *Server) *string { return &s.RESPPasswordFile }),
			"file with the password of the listener", "none"},
		{"fail_open", truth(func(s *Server) *bool { return &s.RESPFailOpen }),
			"allow CL.THROTTLE while the store is down, instead of returning an error", "`false`"},
	})}

var grpcFields = &mapping[Server]{"server_grpc", "leave it out", slices.Concat(
	listenerFields("", "[Envoy's](../howto/envoy-filters.md) rate limit service, ext_authz and ext_proc, and health",
		"`off`", func(s *Server) *Listener { return &s.GRPC }).fields,
	[]field[Server]{
		{"max_age", duration(time.Second, 365*wholeDay, func(s *Server) *time.Duration { return &s.GRPCMaxAge }),
			"1s to 8760h: age at which clients are asked to connect anew, so that an added node gets calls", "`10m`"},
		{"max_age_grace", duration(time.Second, 365*wholeDay,
			func(s *Server) *time.Duration { return &s.GRPCMaxAgeGrace }),
			"1s to 8760h: time that calls have to end after that", "`30s`"},
	})}

var metricsFields = &mapping[Server]{"server_metrics", "leave it out", slices.Concat(
	listenerFields("", "/metrics and health, in place of /metrics at `http`", "at `http`",
		func(s *Server) *Listener { return &s.Metrics }).fields,
	[]field[Server]{
		{"path", setting("text", func(s *Server) *string { return &s.MetricsPath }),
			"path of the metrics at `metrics.listen`, beside /metrics", "`/metrics`"},
	})}

// algorithmFields are the algorithms of the limits of envoyproxy/ratelimit.
func algorithmFields() *mapping[Server] {
	const all = "algorithm of limits of envoyproxy/ratelimit: `fixed_window`, `sliding_log`, `sliding_counter` or " +
		"`token_bucket`; an [overlay](overlay.md) has precedence"
	m := &mapping[Server]{name: "server_algorithm", empty: "leave it out"}
	for i, word := range []string{"all", "second", "minute", "hour", "day", "week", "month", "year"} {
		about, unset := all, "`fixed_window`, with windows as that service has them"
		if i > 0 {
			about, unset = "the same, of limits by the "+word, "that of all"
		}
		m.fields = append(m.fields, field[Server]{word, oneWord(overlayAlgorithms,
			func(s *Server) *string { return &s.Algorithm[i] }), about, unset})
	}
	return m
}

var envoyFields = mapping[Server]{"server_envoy", "leave it out", []field[Server]{
	{"config", setting("text", func(s *Server) *string { return &s.EnvoyConfig }),
		"directory of configurations of envoyproxy/ratelimit, with its folders", "none"},
	{"dot_files", truth(func(s *Server) *bool { return &s.EnvoyDotFiles }),
		"read files and folders with names that begin with a dot; those that begin with two never are", "`false`"},
	{"merge", truth(func(s *Server) *bool { return &s.EnvoyMerge }),
		"let several configurations add to one domain; otherwise that is a mistake", "`false`"},
	{"xds", headed(&xdsFields), "see `envoy.xds.server`", ""},
	{"http", headed(listenerFields("server_envoy_http", "GET /healthcheck and POST /json", "`off`",
		func(s *Server) *Listener { return &s.EnvoyHTTP })), "see `envoy.http.listen`", ""},
	{"debug", headed(listenerFields("server_envoy_debug", "/rlconfig, /stats and /debug/pprof/", "`off`",
		func(s *Server) *Listener { return &s.EnvoyDebug })), "see `envoy.debug.listen`", ""},
	{"health", texts("text", 3, func(s *Server) *[]string { return &s.EnvoyHealth }),
		"what /healthcheck and gRPC health wait for besides the start: `config` (a configuration was read), `domain` " +
			"(it has a domain), `store` (the last call of the store succeeded)", "nothing"},
	{"headers", texts("text", 3, func(s *Server) *[]string { return &s.EnvoyHeaders }),
		"three names of headers, for limit, remaining and reset, which answers have in place of weir's own", "weir's"},
	{"shadow", truth(func(s *Server) *bool { return &s.EnvoyShadow }), "refuse no request", "`false`"},
	{"quota", truth(func(s *Server) *bool { return &s.EnvoyQuota }), "all limits are in quota mode", "`false`"},
	{"metadata", truth(func(s *Server) *bool { return &s.EnvoyMetadata }),
		"answers have the dynamic metadata of envoyproxy/ratelimit in place of weir's", "`false`"},
	{"near_limit", share(func(s *Server) *float64 { return &s.EnvoyNearLimit }),
		"above 0, at most 1: part of a limit above which its hits count as near_limit", "`0.8`"},
}}

var xdsFields = mapping[Server]{"server_envoy_xds", "leave it out", []field[Server]{
	{"server", setting("text", func(s *Server) *string { return &s.XDSServer }),
		"host:port of a [control plane](../howto/sources.md#a-control-plane) that sends configurations over xDS " +
			"(ADS, state of the world)", "none"},
	{"node", setting("text", func(s *Server) *string { return &s.XDSNode }), "id of this node", "`default`"},
	{"metadata", texts("text", bounds.Values, func(s *Server) *[]string { return &s.XDSMetadata }),
		"metadata of this node, each `KEY=VALUE`", "none"},
	{"headers", veiled(texts("text", bounds.Values, func(s *Server) *[]string { return &s.XDSHeaders })),
		"headers of the call, each `KEY=VALUE`", "none"},
	{"tls", truth(func(s *Server) *bool { return &s.XDSTLS }), "connect with TLS", "`false`"},
	{"ca", setting("text", func(s *Server) *string { return &s.XDSCA }),
		"PEM file of the authority of the server's certificate", "those of the system"},
	{"cert", setting("text", func(s *Server) *string { return &s.XDSCert }), "PEM file of the client certificate",
		"none"},
	{"key", setting("text", func(s *Server) *string { return &s.XDSKey }), "PEM file of its key", "none"},
	{"server_name", setting("text", func(s *Server) *string { return &s.XDSServerName }),
		"name that the server's certificate must have", "the host"},
	{"backoff", duration(time.Millisecond, wholeDay, func(s *Server) *time.Duration { return &s.XDSBackoff }),
		"1ms to 24h: wait before the first attempt to connect anew; it doubles with each, with jitter", "`1s`"},
	{"backoff_max", duration(time.Millisecond, wholeDay, func(s *Server) *time.Duration { return &s.XDSBackoffMax }),
		"1ms to 24h: longest wait before an attempt", "`60s`"},
	{"max_message", number(1<<10, 1<<30, func(s *Server) *int { return &s.XDSMaxMessage }),
		"1,024 to 1,073,741,824: most bytes of a message", "`67108864`"},
}}

var rlsFields = mapping[Server]{"server_rls", "leave it out", []field[Server]{
	{"no_headers", truth(func(s *Server) *bool { return &s.RLSNoHeaders }),
		"leave RateLimit, Retry-After and the like out of answers to Envoy's rate limit filter", "`false`"},
	{"no_body", truth(func(s *Server) *bool { return &s.RLSNoBody }),
		"leave out the body of refusals to Envoy's rate limit filter; to gRPC clients Envoy sends it as the message",
		"`false`"},
	{"unavailable", truth(func(s *Server) *bool { return &s.RLSUnavailable }),
		"answer Envoy's rate limit filter UNAVAILABLE, so that its failure_mode_deny decides, where the store does " +
			"not answer and a rule has `on_store_error: deny`; otherwise OVER_LIMIT", "`false`"},
}}

var upstreamFields = mapping[Server]{"server_upstream", "leave it out", []field[Server]{
	{"url", setting("text", func(s *Server) *string { return &s.Upstream }),
		"URL of the service behind the gateway, or `demo` for a built-in one; if the rules have routes, the " +
			"service for requests without a route", "none"},
	{"host", truth(func(s *Server) *bool { return &s.UpstreamHost }),
		"send the upstream's name as Host instead of the client's", "`false`"},
	{"max_requests", number(1, 1<<30, func(s *Server) *int { return &s.UpstreamRequests }),
		"1 to 1,073,741,824: maximum of concurrent requests to the upstream; requests beyond it are answered 503",
		"`10000`"},
}}

var accessFields = mapping[Server]{"server_access_log", "leave it out", []field[Server]{
	{"file", setting("text", func(s *Server) *string { return &s.AccessLog }),
		"file with a line for each request of the gateway; `-`: standard output", "none"},
	{"format", oneWord([]string{"json", "combined"}, func(s *Server) *string { return &s.AccessLogFormat }),
		"format of the lines: `json` or `combined`", "`json`"},
	{"every", number(1, 1<<30, func(s *Server) *int { return &s.AccessLogEvery }),
		"1 to 1,073,741,824: one in this number of requests answered below 400 is logged; each other request is logged",
		"`1`"},
}}

var adminFields = mapping[Server]{"server_admin", "leave it out", []field[Server]{
	{"token_file", secretFile(func(s *Server) *string { return &s.AdminTokenFile }),
		"file with tokens of operators, who may change rules; one per line, `TOKEN` or `NAME:TOKEN`", "none"},
	{"read_token_file", secretFile(func(s *Server) *string { return &s.AdminReadTokenFile }),
		"file with read-only tokens of the admin API", "none"},
	{"certs", texts("text", bounds.Values, func(s *Server) *[]string { return &s.AdminCerts }),
		"common names of client certificates that may change rules", "none"},
	{"read_certs", texts("text", bounds.Values, func(s *Server) *[]string { return &s.AdminReadCerts }),
		"common names of client certificates that may read rules", "none"},
}}

var auditFields = mapping[Server]{"server_audit", "leave it out", []field[Server]{
	{"to", texts("text", 2, func(s *Server) *[]string { return &s.Audit }),
		"where refusals, bans, costs, operators' changes and outages are recorded: a Redis (`redis` or its URL), a " +
			"file, or both", "nowhere"},
	{"keys", oneWord([]string{"shown", "hashed", "hidden"}, func(s *Server) *string { return &s.AuditKeys }),
		"form of keys in records: `shown`, `hashed` with the secret of `hash_key_file`, or `hidden`", "`shown`"},
	{"keep", number(1, 100_000_000, func(s *Server) *int { return &s.AuditKeep }),
		"1 to 100,000,000: approximate number of refusals in Redis, of bans, and of other records", "`100000`"},
	{"file_size", number(1, 100_000, func(s *Server) *int { return &s.AuditSize }),
		"1 to 100,000: size in MB at which a file is renamed to FILE.1; four older files are kept", "`100`"},
}}

var alertFields = mapping[Server]{"server_alert", "leave it out", []field[Server]{
	{"webhook_file", secretFile(func(s *Server) *string { return &s.AlertWebhookFile }),
		"file with the URL of the webhook", "none"},
	{"secret_file", secretFile(func(s *Server) *string { return &s.AlertSecretFile }),
		"file with the secret that signs messages to the webhook", "none"},
	{"format", oneWord([]string{"json", "slack", "feishu", "dingtalk"},
		func(s *Server) *string { return &s.AlertFormat }),
		"format of messages: `json`, `slack`, `feishu` or `dingtalk`", "`json`"},
	{"language", oneWord([]string{"en", "zh"}, func(s *Server) *string { return &s.AlertLanguage }),
		"language of messages: `en` or `zh`", "`en`"},
}}

var logFields = mapping[Server]{"server_log", "leave it out", []field[Server]{
	{"format", oneWord([]string{"text", "json"}, func(s *Server) *string { return &s.LogFormat }),
		"format of lines: `text` or `json`", "`text`"},
	{"level", alive(oneWord([]string{"debug", "info", "warn", "error"},
		func(s *Server) *string { return &s.LogLevel })),
		"lowest level that is logged: `debug`, `info`, `warn` or `error`", "`info`"},
}}

// headed is a mapping, or the value of its first field alone.
func headed(m *mapping[Server]) value[Server] {
	v := within(m)
	v.headed, v.first = true, &m.fields[0].value.shape
	v.read = func(d *decoder, p place, n *yaml.Node, s *Server) {
		if n.Kind == yaml.MappingNode {
			m.read(d, p, n, s)
			return
		}
		m.fields[0].value.read(d, p, n, s)
	}
	return v
}

// within is a mapping with fields of the same Go type.
func within(m *mapping[Server]) value[Server] {
	return value[Server]{shape: shape{name: m.name}, inner: m,
		read: func(d *decoder, p place, n *yaml.Node, s *Server) { m.read(d, p, n, s) }}
}

// alive marks a field: a change of it is in force without a restart.
func alive(v value[Server]) value[Server] {
	v.live = true
	return v
}

// setting is one value.
func setting(name string, at func(*Server) *string) value[Server] {
	v := text(name, at)
	v.show = func(s *Server) []string { return stateOf(*at(s)) }
	return v
}

func secretFile(at func(*Server) *string) value[Server] { return setting("secret_file", at) }

// stateOf is a value that is set.
func stateOf[T comparable](value T) []string {
	var zero T
	if value == zero {
		return nil
	}
	return []string{fmt.Sprint(value)}
}

// texts is one value, or a list; a command line has commas between its values.
func texts(name string, most int, at func(*Server) *[]string) value[Server] {
	v := list(name, most, at)
	v.commas = true
	v.show = func(s *Server) []string { return *at(s) }
	return v
}

// veiled shows a digest in place of each VALUE of a list of KEY=VALUE, since it may be a secret.
func veiled(v value[Server]) value[Server] {
	show := v.show
	v.show = func(s *Server) (list []string) {
		for _, text := range show(s) {
			key, value, _ := strings.Cut(text, "=")
			list = append(list, fmt.Sprintf("%s=#%.3x", key, sha256.Sum256([]byte(value))))
		}
		return list
	}
	return v
}

// whole marks a list with values that may have commas.
func whole(v value[Server]) value[Server] {
	v.commas = false
	return v
}

// oneWord is one of some words.
func oneWord(allowed []string, at func(*Server) *string) value[Server] {
	v := choice(allowed, at)
	v.show = func(s *Server) []string { return stateOf(*at(s)) }
	v.read = func(d *decoder, p place, n *yaml.Node, s *Server) {
		given := d.text(p, n)
		if given != "" && !slices.Contains(allowed, given) {
			d.wrong(n, "%s is %.80q; %s", p, given, oneOf(given, v.words))
		}
		*at(s) = given
	}
	return v
}

// truth is true or false.
func truth(at func(*Server) *bool) value[Server] {
	return value[Server]{shape: shape{name: "enabled"},
		show: func(s *Server) []string { return stateOf(*at(s)) },
		read: func(d *decoder, p place, n *yaml.Node, s *Server) { *at(s) = d.truth(p, n) }}
}

// number is a whole number.
func number[I int | int64](from, to I, at func(*Server) *I) value[Server] {
	return value[Server]{shape: shape{from: float64(from), to: float64(to)},
		show: func(s *Server) []string { return stateOf(*at(s)) },
		read: func(d *decoder, p place, n *yaml.Node, s *Server) {
			given := d.text(p, n)
			i, err := strconv.ParseInt(given, 10, 64)
			if given != "" && (err != nil || I(i) < from || I(i) > to || given[0] == '+' || quoted(n)) {
				d.wrong(n, "%s is %.80q; allowed: a whole number from %d to %d, unquoted", p, given, from, to)
				return
			}
			*at(s) = I(i)
		}}
}

// share is a part of a whole.
func share(at func(*Server) *float64) value[Server] {
	return value[Server]{shape: shape{name: "share"},
		show: func(s *Server) []string { return stateOf(*at(s)) },
		read: func(d *decoder, p place, n *yaml.Node, s *Server) {
			given := d.text(p, n)
			f, err := strconv.ParseFloat(given, 64)
			if given != "" && (err != nil || !(f > 0 && f <= 1) || quoted(n)) {
				d.wrong(n, "%s is %.80q; allowed: a number above 0 and at most 1, such as 0.8, unquoted", p, given)
				return
			}
			*at(s) = f
		}}
}

// duration is a time.
func duration(from, to time.Duration, at func(*Server) *time.Duration) value[Server] {
	return value[Server]{shape: shape{name: "duration"},
		show: func(s *Server) []string { return stateOf(*at(s)) },
		read: func(d *decoder, p place, n *yaml.Node, s *Server) {
			given := d.text(p, n)
			took, err := time.ParseDuration(given)
			if given != "" && (err != nil || took < from || took > to) {
				d.wrong(n, "%s is %.80q; allowed: a time with its unit from %v to %v, such as 10s or 500ms", p, given,
					inShort(from), inShort(to))
				return
			}
			*at(s) = took
		}}
}

// inShort is a time without zeros at its end: 24h for 24h0m0s.
func inShort(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
