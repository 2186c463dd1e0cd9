package observe

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	httpRequests  = prometheus.NewDesc("weir_http_requests_total", "HTTP requests by server and class of the answer's status.", []string{"server", "status"}, nil)
	httpInFlight  = prometheus.NewDesc("weir_http_requests_in_flight", "HTTP requests that are being answered.", []string{"server"}, nil)
	connections   = prometheus.NewDesc("weir_connections", "Connections that are open.", []string{"server"}, nil)
	refusedAtOnce = prometheus.NewDesc("weir_connections_refused_total", "Connections that were closed at once, because as many were open as may be.", []string{"server"}, nil)
	untrusted     = prometheus.NewDesc("weir_untrusted_total", "Requests of peers that are not trusted and name a client or a user, or are on a Unix socket: they are counted as the peer's own.", []string{"server", "said"}, nil)
	unsettled     = prometheus.NewDesc("weir_unsettled_total", "Requests that passed and were not accounted for afterwards: settle, their cost is not known or was not charged; release, their lease lasts to its time-to-live; renew, a lease was not renewed.", []string{"server", "operation"}, nil)
)

// statusClasses are the labels of answers, by the first digit of their status.
var statusClasses = [...]string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"}

// An Operation is what is done about a request after it was granted.
type Operation uint8

// What is done after a grant.
const (
	Settle Operation = iota
	Release
	Renew
	operations
)

var operationNames = [operations]string{"settle", "release", "renew"}

// A Claimed is what a peer that is not trusted says.
type Claimed uint8

// What peers say that are not trusted.
const (
	ClientHeader Claimed = iota // who its client is
	UserHeader                  // who the user is
	UnixPeer                    // nothing counts that a peer on a Unix socket says
	allClaimed
)

var claimedNames = [allClaimed]string{"client_header", "user_header", "unix_socket"}

// A Server counts what one listener of the process does. Its methods are safe for concurrent
// use, and allocate nothing.
type Server struct {
	name          string
	answers       [len(statusClasses)]atomic.Uint64
	inFlight      atomic.Int64
	open, refused func() int64
	unsettled     [operations]atomic.Uint64
	untrusted     [allClaimed]atomic.Uint64
}

// Began counts a request of HTTP.
func (s *Server) Began() { s.inFlight.Add(1) }

// Ended counts its answer; a status of 0 is none.
func (s *Server) Ended(status int) {
	s.inFlight.Add(-1)
	s.answers[min(max(status/100, 0), len(statusClasses)-1)].Add(1)
}

// InFlight is how many requests have begun and not ended.
func (s *Server) InFlight() int64 { return s.inFlight.Load() }

// Unsettled counts a request whose settling, release or renewal failed.
func (s *Server) Unsettled(o Operation) { s.unsettled[o].Add(1) }

// Untrusted counts a request of a peer that is not trusted and says something of its caller.
func (s *Server) Untrusted(c Claimed) { s.untrusted[c].Add(1) }

// Server has the metrics count a listener of the process. open and refused say how many
// connections are open, and how many were refused; nil is not known. The name is unique.
func (m *Metrics) Server(name string, open, refused func() int64) *Server {
	s := &Server{name: name, open: open, refused: refused}
	m.servers.add(s)
	return s
}

// servers are a collector.
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
	for _, d := range []*prometheus.Desc{httpRequests, httpInFlight, connections, refusedAtOnce, untrusted, unsettled} {
		to <- d
	}
}

// Collect implements prometheus.Collector. Classes and failures that never were have no series.
func (l *servers) Collect(to chan<- prometheus.Metric) {
	l.mu.Lock()
	list := l.list
	l.mu.Unlock()
	for _, s := range list {
		s.collect(to)
	}
}

func (s *Server) collect(to chan<- prometheus.Metric) {
	spoken := false
	for class := range s.answers {
		if n := s.answers[class].Load(); n > 0 {
			spoken = true
			to <- counter(httpRequests, n, s.name, statusClasses[class])
		}
	}
	if inFlight := s.inFlight.Load(); spoken || inFlight > 0 {
		to <- prometheus.MustNewConstMetric(httpInFlight, prometheus.GaugeValue, float64(inFlight), s.name)
	}
	if s.open != nil {
		to <- prometheus.MustNewConstMetric(connections, prometheus.GaugeValue, float64(s.open()), s.name)
	}
	if s.refused != nil {
		to <- counter(refusedAtOnce, uint64(s.refused()), s.name)
	}
	for c := range s.untrusted {
		if n := s.untrusted[c].Load(); n > 0 {
			to <- counter(untrusted, n, s.name, claimedNames[c])
		}
	}
	for o := range s.unsettled {
		if n := s.unsettled[o].Load(); n > 0 {
			to <- counter(unsettled, n, s.name, operationNames[o])
		}
	}
}

func counter(d *prometheus.Desc, n uint64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

// upstreamDurations are from a service on the same machine to one that is hardly used any more.
var upstreamDurations = []float64{1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

// A Gateway counts what a gateway sends to its upstream.
type Gateway struct {
	took     prometheus.Histogram
	failures *prometheus.CounterVec
}

// Gateway has the metrics count a gateway. It is called once.
func (m *Metrics) Gateway() *Gateway {
	g := &Gateway{
		took: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "weir_gateway_upstream_duration_seconds",
			Help: "How long the upstream took from a request to the head of its answer.", Buckets: upstreamDurations}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_gateway_failures_total",
			Help: "Requests for which the gateway answered instead of its upstream, by status: 502 it failed, 503 as many requests were there as may be, 504 it took too long, 400 and 413 the client's body, 499 the client left."}, []string{"status"}),
	}
	m.registry.MustRegister(g.took, g.failures)
	return g
}

// Answered notes how long the upstream took.
func (g *Gateway) Answered(took time.Duration) { g.took.Observe(took.Seconds()) }

// Failed notes an answer that the gateway gave instead of its upstream.
func (g *Gateway) Failed(status string) { g.failures.WithLabelValues(status).Inc() }
