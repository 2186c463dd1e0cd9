package otlp

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Sizes of the queue of spans. A span is about 1 KB.
const (
	defaultQueue = 2048
	maxQueue     = 100_000
)

// settings are the variables that the SDK does not read, or reads without an error.
type settings struct {
	url             string // without a slash at its end; "": that of the environment
	traces, metrics bool
	queue           int
}

func (s *settings) off() bool { return !s.traces && !s.metrics }

// variables are the variables with few values. The SDK takes the default where it does not know a value.
var variables = []struct {
	name    string
	allowed []string
}{
	{"OTEL_TRACES_EXPORTER", []string{"otlp", "none"}},
	{"OTEL_METRICS_EXPORTER", []string{"otlp", "none"}},
	{"OTEL_EXPORTER_OTLP_PROTOCOL", protocols},
	{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", protocols},
	{"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", protocols},
	{"OTEL_EXPORTER_OTLP_COMPRESSION", compressions},
	{"OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", compressions},
	{"OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", compressions},
	{"OTEL_TRACES_SAMPLER", []string{"always_on", "always_off", "traceidratio", "parentbased_always_on",
		"parentbased_always_off", "parentbased_traceidratio"}},
}

var (
	protocols    = []string{"http/protobuf", "http/json"}
	compressions = []string{"gzip", "none"}
	endpoints    = []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"}
)

// read reads and checks the settings.
func read(c Config) (s settings, err error) {
	if c.URL != Environment {
		if err := checkURL(c.URL); err != nil {
			return s, fmt.Errorf("%w, or %s for that of %s", err, Environment, endpoints[0])
		}
		s.url = strings.TrimSuffix(c.URL, "/")
	}
	for _, name := range endpoints {
		if value := c.Lookup(name); value != "" && s.url == "" {
			if err := checkURL(value); err != nil {
				return s, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	for _, v := range variables {
		if value := c.Lookup(v.name); value != "" && !slices.Contains(v.allowed, value) {
			return s, fmt.Errorf("%s is %.80q; allowed: %s", v.name, value, strings.Join(v.allowed, ", "))
		}
	}
	s.queue = defaultQueue
	if value := c.Lookup("OTEL_BSP_MAX_QUEUE_SIZE"); value != "" {
		if s.queue, err = strconv.Atoi(value); err != nil || s.queue < 1 || s.queue > maxQueue {
			return s, fmt.Errorf("OTEL_BSP_MAX_QUEUE_SIZE is %.80q; allowed: 1 to %d", value, maxQueue)
		}
	}
	on := !strings.EqualFold(c.Lookup("OTEL_SDK_DISABLED"), "true")
	s.traces = on && c.Lookup("OTEL_TRACES_EXPORTER") != "none"
	s.metrics = on && c.Lookup("OTEL_METRICS_EXPORTER") != "none"
	return s, nil
}

// checkURL returns the mistake in the URL of a collector.
func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("the value is %.200q; allowed: a URL such as http://127.0.0.1:4318, without user, query and "+
			"fragment", text)
	}
	return nil
}
