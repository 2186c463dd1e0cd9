package servermetrics

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	httpRequests = prometheus.NewDesc("weir_http_requests_total",
		"HTTP requests, by server and status class; unread: those that were malformed, too large or cut off in their "+
			"head, or in the TLS handshake, so that no rule saw them.", []string{"server", "status"}, nil)
	httpInFlight = prometheus.NewDesc("weir_http_requests_in_flight",
		"HTTP requests in progress.", []string{"server"}, nil)
	connections = prometheus.NewDesc("weir_connections",
		"Open connections.", []string{"server"}, nil)
	refusedAtOnce = prometheus.NewDesc("weir_connections_refused_total",
		"Connections closed because the connection limit of the server, or the share of one address, was reached.",
		[]string{"server"}, nil)
)

// statusClasses are the label values, indexed by the first digit of the status.
var statusClasses = [...]string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"}

// A Server counts the traffic of one listener. Its methods are safe for concurrent use.
type Server struct {
	name          string
	answers       [len(statusClasses)]atomic.Uint64
	inFlight      atomic.Int64
	unread        atomic.Uint64
	open, refused func() int64
	unsettled     *prometheus.CounterVec
	untrusted     *prometheus.CounterVec
}

// Began counts the start of an HTTP request.
func (s *Server) Began() { s.inFlight.Add(1) }

// Ended counts the end of an HTTP request by its status; 0 means that no response was sent.
func (s *Server) Ended(status int) {
	s.inFlight.Add(-1)
	s.answers[min(max(status/100, 0), len(statusClasses)-1)].Add(1)
}

// Unread counts an HTTP request that failed before a handler had it.
func (s *Server) Unread() { s.unread.Add(1) }

// InFlight returns the number of HTTP requests in progress.
func (s *Server) InFlight() int64 { return s.inFlight.Load() }

// Unsettled counts a granted request whose follow-up failed: "settle", "release" or "renew".
func (s *Server) Unsettled(operation string) { s.unsettled.WithLabelValues(operation).Inc() }

// Untrusted counts a request whose untrusted peer sent an identity: a "client_header" or a "user_header", or is on
// a "unix_socket".
func (s *Server) Untrusted(said string) { s.untrusted.WithLabelValues(said).Inc() }

// Server adds a listener with a unique name. open and refused return its open and its refused
// connections; nil omits the metric.
func (m *Metrics) Server(name string, open, refused func() int64) *Server {
	label := prometheus.Labels{"server": name}
	s := &Server{name: name, open: open, refused: refused,
		unsettled: m.unsettled.MustCurryWith(label), untrusted: m.untrusted.MustCurryWith(label)}
	m.servers.add(s)
	return s
}

// servers collects the metrics of all listeners.
type servers struct {
	mu   sync.Mutex
	list []*Server
}

func (l *servers) add(s *Server) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, s)
}

// Describe implements prometheus.Collector.
func (l *servers) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{httpRequests, httpInFlight, connections, refusedAtOnce} {
		to <- d
	}
}

// Collect implements prometheus.Collector. A status class or a failure that never occurred has no
// series.
func (l *servers) Collect(to chan<- prometheus.Metric) {
	l.mu.Lock()
	list := l.list
	l.mu.Unlock()
	for _, s := range list {
		s.collect(to)
	}
}

func (s *Server) collect(to chan<- prometheus.Metric) {
	served := false
	for class := range s.answers {
		if n := s.answers[class].Load(); n > 0 {
			served = true
			to <- counter(httpRequests, n, s.name, statusClasses[class])
		}
	}
	if n := s.unread.Load(); n > 0 {
		to <- counter(httpRequests, n, s.name, "unread")
	}
	if inFlight := s.inFlight.Load(); served || inFlight > 0 {
		to <- gauge(httpInFlight, float64(inFlight), s.name)
	}
	if s.open != nil {
		to <- gauge(connections, float64(s.open()), s.name)
	}
	if s.refused != nil {
		to <- counter(refusedAtOnce, uint64(s.refused()), s.name)
	}
}

func counter(d *prometheus.Desc, n uint64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

func gauge(d *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

// A GRPC counts the calls of the gRPC server. Its methods are safe for concurrent use.
type GRPC struct {
	calls    *prometheus.CounterVec
	panics   prometheus.Counter
	inFlight atomic.Int64
}

// GRPC registers the metrics of the gRPC server. Call it once.
func (m *Metrics) GRPC() *GRPC {
	g := &GRPC{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_grpc_requests_total",
			Help: "gRPC calls, by method (unknown: no service has it) and status code."}, []string{"method", "code"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_grpc_panics_total",
			Help: "gRPC calls that panicked and were answered with Internal."}),
	}
	m.Registry().MustRegister(g.calls, g.panics)
	m.Gauge("weir_grpc_requests_in_flight", "gRPC calls in progress.", g.inFlight.Load)
	return g
}

// Began counts the start of a call.
func (g *GRPC) Began() { g.inFlight.Add(1) }

// Ended counts the end of a call by its method, which must be one of a bounded number, and its status code.
func (g *GRPC) Ended(method, code string) {
	g.inFlight.Add(-1)
	g.calls.WithLabelValues(method, code).Inc()
}

// Panicked counts a call that panicked.
func (g *GRPC) Panicked() { g.panics.Inc() }

// upstreamDurations are histogram buckets in seconds, from a service on the same machine to an
// unusably slow one.
var upstreamDurations = []float64{1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

// A Gateway counts the requests that a gateway forwards.
type Gateway struct {
	took     prometheus.Histogram
	failures *prometheus.CounterVec
}

// Gateway registers the metrics of the gateway. Call it once.
func (m *Metrics) Gateway() *Gateway {
	g := &Gateway{
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "weir_gateway_upstream_duration_seconds",
			Help:    "Latency of the upstream, from the forwarded request to its response header.",
			Buckets: upstreamDurations,
		}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_gateway_failures_total",
			Help: "Forwarded requests without a response from the upstream, by status: 400 unreadable body, " +
				"413 body too large, 499 client disconnected, 502 upstream failed, 503 too many requests in " +
				"progress, 504 upstream timeout.",
		}, []string{"status"}),
	}
	m.Registry().MustRegister(g.took, g.failures)
	return g
}

// Answered records the latency of a response of the upstream.
func (g *Gateway) Answered(took time.Duration) { g.took.Observe(took.Seconds()) }

// Failed counts a response that the gateway sent in place of its upstream.
func (g *Gateway) Failed(status string) { g.failures.WithLabelValues(status).Inc() }
