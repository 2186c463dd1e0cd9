// Package ratelimit is what weir has of envoyproxy/ratelimit beside its gRPC service, so that it takes the service's
// place by the name of its image alone: the environment, as settings of a server; /healthcheck, /json, /rlconfig and
// /stats; its series for Prometheus; and its configurations as a source of rules.
package ratelimit

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weirproject/weir/internal/nearest"
	"github.com/weirproject/weir/rules"
)

// Operators is the address of weir's own API, console and metrics, which the service does not have: only this machine
// reaches it, in Kubernetes by kubectl port-forward.
const Operators = "127.0.0.1:6071"

// An Environment is what variables of the service say.
type Environment struct {
	Settings []Setting
	// Notes say what to do about variables without an equal.
	Notes []string
	// OTel are variables of OpenTelemetry that follow, each NAME=value.
	OTel []string
}

// A Setting is a value of a field of the section server, and the variable that it is from.
type Setting struct{ Path, Variable, Value string }

// Read reads the environment, each entry NAME=value. An empty variable counts as unset. The error lists every mistake,
// with the variable, its value and what is allowed.
func Read(environ []string) (*Environment, error) {
	r := &reader{given: make(map[string]string), values: make(map[string]string)}
	for _, entry := range environ {
		if name, value, _ := strings.Cut(entry, "="); value != "" {
			r.given[name] = value
		}
	}
	for i := range variables {
		r.take(&variables[i])
	}
	r.families()
	for _, combine := range []func(){r.listeners, r.tls, r.redis, r.source, r.health, r.answers, r.tracing} {
		combine()
	}
	r.notes()
	return &r.Environment, errors.Join(r.mistakes...)
}

type reader struct {
	Environment
	given    map[string]string // as it is
	values   map[string]string // as settings have them
	mistakes []error
	noted    []note
}

// A note is about some variables.
type note struct {
	text  string
	names []string
}

func (r *reader) wrong(name, allowed string) {
	value := fmt.Sprintf("%.80q", r.given[name])
	switch {
	case r.given[name] == "":
		value = "not set"
	case strings.Contains(name, "AUTH") || strings.Contains(r.given[name], "@"):
		value = "a value with a password"
	case strings.HasSuffix(name, "_HEADERS"):
		value = "a value that may be a secret"
	}
	r.mistakes = append(r.mistakes, fmt.Errorf("%s is %s; allowed: %s", name, value, allowed))
}

func (r *reader) set(path, variable, value string) {
	if err := new(rules.Server).Set(path, value); err != nil {
		r.mistakes = append(r.mistakes, fmt.Errorf("%s: %w", variable, err))
		return
	}
	r.Settings = append(r.Settings, Setting{path, variable, value})
}

func (r *reader) note(name, text string) {
	for i := range r.noted {
		if r.noted[i].text == text {
			r.noted[i].names = append(r.noted[i].names, name)
			return
		}
	}
	r.noted = append(r.noted, note{text, []string{name}})
}

// notes writes the notes, the variables in the order of the table.
func (r *reader) notes() {
	for _, n := range r.noted {
		verb := " has no effect: "
		if len(n.names) > 1 {
			verb = " have no effect: "
		}
		r.Notes = append(r.Notes, strings.Join(n.names, ", ")+verb+n.text)
	}
}

// take reads one variable.
func (r *reader) take(v *variable) {
	value := r.given[v.name]
	if value == "" {
		return
	}
	as, allowed := v.kind(value)
	if allowed != "" {
		r.wrong(v.name, allowed)
		return
	}
	if v.with != "" && !r.on(v.with) {
		r.note(v.name, v.with+" is not true")
		return
	}
	r.values[v.name] = as
	if v.path != "" {
		r.set(v.path, v.name, as)
	}
	if v.note != "" && as != v.harmless {
		r.note(v.name, v.note)
	}
}

// families notes the other variables of the service, and names that are nearly ones.
func (r *reader) families() {
	known := make([]string, len(variables))
	for i := range variables {
		known[i] = variables[i].name
	}
	for name := range r.given {
		if slices.Contains(known, name) {
			continue
		}
		for _, family := range families {
			if strings.HasPrefix(name, family.prefix) {
				r.note(name, family.note)
			}
		}
	}
	for i := range r.noted {
		slices.Sort(r.noted[i].names)
	}
	r.misspelt(known)
}

// misspelt notes names that are nearly those of long variables. Kubernetes adds variables such as REDIS_PORT for its
// services.
func (r *reader) misspelt(known []string) {
	long := slices.DeleteFunc(slices.Clone(known), func(name string) bool { return strings.Count(name, "_") < 2 })
	var names []string
	for name := range r.given {
		if !slices.Contains(known, name) && strings.Count(name, "_") > 1 && nearest.Of(name, long) != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		r.note(name, "it is not known; did you mean "+nearest.Of(name, long)+"?")
	}
}

// on reports whether a variable is true.
func (r *reader) on(name string) bool { return r.values[name] == "true" }

// or is the value of a variable, or its default.
func (r *reader) or(name, unset string) string { return cmp.Or(r.values[name], unset) }

func (r *reader) listeners() {
	at := func(host, port, unset string) string {
		return net.JoinHostPort(strings.Trim(r.or(host, "0.0.0.0"), "[]"), r.or(port, unset))
	}
	r.set("envoy.http", "HOST, PORT", at("HOST", "PORT", "8080"))
	r.set("envoy.debug", "DEBUG_HOST, DEBUG_PORT", at("DEBUG_HOST", "DEBUG_PORT", "6070"))
	switch socket := r.values["GRPC_UDS"]; {
	case socket == "":
		r.set("grpc", "GRPC_HOST, GRPC_PORT", at("GRPC_HOST", "GRPC_PORT", "8081"))
	case !filepath.IsAbs(socket):
		r.wrong("GRPC_UDS", "an absolute path, such as /run/ratelimit.sock")
	default:
		r.set("grpc", "GRPC_UDS", (&url.URL{Scheme: "unix", Path: socket}).String())
	}
	if r.on("USE_PROMETHEUS") && r.values["PROMETHEUS_ADDR"] == "" {
		r.set("metrics", "USE_PROMETHEUS", ":9090")
	}
	r.set("http", "weir ratelimit", Operators)
	for _, listener := range []string{"grpc", "envoy.http", "envoy.debug", "metrics", "http"} {
		r.set(listener+".reuse_port", "weir ratelimit", "true") // as the service: a restart has no gap
	}
	r.set("open", "weir ratelimit", "true") // as the service: the network is what restricts who asks
}

func (r *reader) tls() {
	pair := func(use, cert, key string) {
		if r.on(use) && r.values[cert] == "" {
			r.wrong(cert, "a PEM file, where "+use+" is true")
		}
		if r.on(use) && r.values[key] == "" {
			r.wrong(key, "a PEM file, where "+use+" is true")
		}
	}
	pair("GRPC_SERVER_USE_TLS", "GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY")
	if r.values["CONFIG_GRPC_XDS_CLIENT_TLS_CERT"]+r.values["CONFIG_GRPC_XDS_CLIENT_TLS_KEY"] != "" {
		pair("CONFIG_GRPC_XDS_SERVER_USE_TLS", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY")
	}
	if r.values["GRPC_CLIENT_TLS_SAN"] != "" && r.values["GRPC_CLIENT_TLS_CACERT"] == "" {
		r.wrong("GRPC_CLIENT_TLS_SAN", "with GRPC_CLIENT_TLS_CACERT alone: other certificates are not verified")
	}
}

func (r *reader) source() {
	if r.values["CONFIG_TYPE"] == "grpc_xds_sotw" {
		r.set("envoy.xds", "CONFIG_GRPC_XDS_SERVER_URL", r.or("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000"))
		return
	}
	r.set("envoy.config", "RUNTIME_ROOT", filepath.Join(r.or("RUNTIME_ROOT", "/srv/runtime_data/current"),
		r.values["RUNTIME_SUBDIRECTORY"], r.or("RUNTIME_APPDIRECTORY", "config")))
	if !r.on("RUNTIME_IGNOREDOTFILES") {
		r.set("envoy.dot_files", "RUNTIME_IGNOREDOTFILES", "true")
	}
}

func (r *reader) health() {
	var words []string
	if !r.on("FORCE_START_WITHOUT_INITIAL_CONFIG") {
		words = append(words, "config")
	}
	if r.on("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED") {
		words = append(words, "domain")
	}
	if r.on("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION") {
		words = append(words, "store")
	}
	if len(words) > 0 {
		r.set("envoy.health", "FORCE_START_WITHOUT_INITIAL_CONFIG", strings.Join(words, ","))
	}
}

// answers makes weir answer as the service does. Where Redis does not answer, it answers an error, and Envoy's
// failure_mode_deny decides.
func (r *reader) answers() {
	r.set("rls.no_body", "weir ratelimit", "true")
	r.set("rls.unavailable", "weir ratelimit", "true")
	if !r.on("LIMIT_RESPONSE_HEADERS_ENABLED") {
		r.set("rls.no_headers", "LIMIT_RESPONSE_HEADERS_ENABLED", "true")
		return
	}
	r.set("envoy.headers", "LIMIT_LIMIT_HEADER", strings.Join([]string{r.or("LIMIT_LIMIT_HEADER", "RateLimit-Limit"),
		r.or("LIMIT_REMAINING_HEADER", "RateLimit-Remaining"), r.or("LIMIT_RESET_HEADER", "RateLimit-Reset")}, ","))
}

func (r *reader) tracing() {
	if !r.on("TRACING_ENABLED") {
		return
	}
	r.set("otlp", "TRACING_ENABLED", "env")
	var attributes []string
	for _, one := range []struct{ name, attribute string }{{"TRACING_SERVICE_NAMESPACE", "service.namespace"},
		{"TRACING_SERVICE_INSTANCE_ID", "service.instance.id"}} {
		if value := r.values[one.name]; value != "" {
			attributes = append(attributes, one.attribute+"="+url.PathEscape(value))
		}
	}
	if given := r.given["OTEL_RESOURCE_ATTRIBUTES"]; given != "" {
		attributes = append(attributes, given)
	}
	for name, value := range map[string]string{
		"OTEL_SERVICE_NAME":        r.or("TRACING_SERVICE_NAME", "RateLimit"),
		"OTEL_TRACES_SAMPLER":      "parentbased_traceidratio",
		"OTEL_TRACES_SAMPLER_ARG":  r.or("TRACING_SAMPLING_RATE", "1"),
		"OTEL_METRICS_EXPORTER":    "none",
		"OTEL_RESOURCE_ATTRIBUTES": strings.Join(attributes, ","),
	} {
		if value != "" && (r.given[name] == "" || name == "OTEL_RESOURCE_ATTRIBUTES") {
			r.OTel = append(r.OTel, name+"="+value)
		}
	}
	slices.Sort(r.OTel)
}
