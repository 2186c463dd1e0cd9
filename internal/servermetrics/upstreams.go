package servermetrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirproject/weir/adaptive"
)

var (
	routeRequests = prometheus.NewDesc("weir_gateway_requests_total",
		"Requests of a gateway by route: forwarded to the service; refused, by a rule, without the store, or because "+
			"too many are in progress; invalid, answered 400 or 413; gone, the client left before the decision.",
		[]string{"route", "service", "outcome"}, nil)
	serviceAttempts = prometheus.NewDesc("weir_gateway_attempts_total",
		"Requests sent to an address of a service, by the status class of the response; failed: the connection ended "+
			"or the response was late; not_connected: there was no connection; broken_off: the response ended early, "+
			"which is counted by its status too.",
		[]string{"service", "address", "outcome"}, nil)
	serviceRetries = prometheus.NewDesc("weir_gateway_retries_total",
		"Requests sent to another address, because the first failed.", []string{"service"}, nil)
	serviceEjections = prometheus.NewDesc("weir_gateway_ejections_total",
		"How often an address was left out after failures.", []string{"service", "address"}, nil)
	serviceHealthy = prometheus.NewDesc("weir_gateway_address_healthy",
		"Whether an address is well: 1 yes, 0 it is left out, or fails and there is no other.",
		[]string{"service", "address"}, nil)
	serviceInProgress = prometheus.NewDesc("weir_gateway_requests_in_progress",
		"Requests in progress at an address.", []string{"service", "address"}, nil)
	concurrencyLimit = prometheus.NewDesc("weir_gateway_concurrency_limit",
		"Requests that may be in progress at a service now, by its adaptive limit.", []string{"service"}, nil)
	concurrencyInFlight = prometheus.NewDesc("weir_gateway_concurrency_in_flight",
		"Requests that a service with an adaptive limit has not answered yet.", []string{"service"}, nil)
	concurrencyWaiting = prometheus.NewDesc("weir_gateway_concurrency_waiting",
		"Requests in the queue of a service.", []string{"service"}, nil)
	concurrencyLatency = prometheus.NewDesc("weir_gateway_concurrency_latency_seconds",
		"Mean time to the head of the response: load=now, of the last window; load=none, without load.",
		[]string{"service", "load"}, nil)
	concurrencyOverload = prometheus.NewDesc("weir_gateway_concurrency_overload_total",
		"Requests that a service with an adaptive limit refused because of its load, or answered too late.",
		[]string{"service"}, nil)
	concurrencyRequests = prometheus.NewDesc("weir_gateway_concurrency_requests_total",
		"Requests by class: admitted to the service, or refused because the adaptive limit is reached.",
		[]string{"service", "class", "outcome"}, nil)
)

// The outcomes of an attempt, besides the first digit of the response's status.
const (
	AttemptFailed       = 0
	AttemptNotConnected = 6
	AttemptBrokenOff    = 7 // counted by its status too
	Attempts            = 8 // number of outcomes
)

var attemptNames = [Attempts]string{AttemptFailed: "failed", 1: "1xx", 2: "2xx", 3: "3xx", 4: "4xx", 5: "5xx",
	AttemptNotConnected: "not_connected", AttemptBrokenOff: "broken_off"}

// A Service is the state of a service behind a gateway.
type Service struct {
	Name      string    `json:"name"`
	Addresses []Address `json:"addresses"`
	Retries   uint64    `json:"retries" doc:"Requests that were sent to another address."`

	Concurrency *Concurrency `json:"concurrency,omitzero" doc:"The limit of requests in progress, of this node."`
}

// A Concurrency is the state of the limit of requests in progress at a service.
type Concurrency struct {
	Adaptive  string             `json:"adaptive" doc:"gradient or aimd."`
	Min       int                `json:"min"`
	Max       int                `json:"max"`
	Limit     int                `json:"limit" doc:"In force now."`
	InFlight  int                `json:"in_flight" doc:"Requests that the service has not answered yet."`
	Waiting   int                `json:"waiting" doc:"Requests in the queue."`
	Latency   float64            `json:"latency" doc:"Seconds to the head of a response; 0: not known."`
	Unloaded  float64            `json:"unloaded" doc:"Seconds, without load; 0: not known."`
	Measuring bool               `json:"measuring,omitzero" doc:"The limit is lowered to measure unloaded."`
	Why       string             `json:"why,omitzero" enum:"start|demand|latency|overload|steady" doc:"Last change."`
	Overload  uint64             `json:"overload" doc:"Requests refused by the service, or answered too late."`
	Classes   []ConcurrencyClass `json:"classes" doc:"The most important first."`
}

// NewConcurrency is the state of a limit with its settings.
func NewConcurrency(settings *adaptive.Config, state adaptive.State) *Concurrency {
	c := &Concurrency{Adaptive: "gradient", Min: settings.Min, Max: settings.Max, Limit: state.Limit,
		InFlight: state.InFlight, Waiting: state.Waiting, Measuring: state.Measuring, Why: state.Why,
		Latency: state.Latency.Seconds(), Unloaded: state.Unloaded.Seconds(), Overload: state.Overloaded}
	if settings.Algorithm == adaptive.AIMD {
		c.Adaptive = "aimd"
	}
	for _, class := range state.Classes {
		c.Classes = append(c.Classes, ConcurrencyClass(class))
	}
	return c
}

// A ConcurrencyClass counts requests of a class.
type ConcurrencyClass struct {
	Name     string `json:"name" doc:"Empty: there are no classes."`
	Room     int    `json:"room" doc:"Requests in flight at which it has to wait now."`
	Admitted uint64 `json:"admitted"`
	Refused  uint64 `json:"refused"`
}

// An Address is the state of an address of a service.
type Address struct {
	URL        string           `json:"url"`
	Weight     int              `json:"weight"`
	Healthy    bool             `json:"healthy" doc:"false: it is left out, or fails and there is no other."`
	EjectedFor float64          `json:"ejected_for,omitzero" doc:"Seconds until it gets requests again."`
	CheckFails bool             `json:"check_fails,omitzero" doc:"Its health checks fail."`
	Failures   int64            `json:"failures" doc:"In a row."`
	Ejections  uint64           `json:"ejections"`
	InProgress int64            `json:"in_progress" doc:"Requests."`
	Attempts   [Attempts]uint64 `json:"-"`
}

// A Route is the state of a route of a gateway.
type Route struct {
	Name      string `json:"name"`
	Service   string `json:"service"`
	Requests  uint64 `json:"requests"`
	Forwarded uint64 `json:"forwarded" doc:"To the service."`
	Refused   uint64 `json:"refused" doc:"By a rule, without the store, or because too many are in progress."`
	Invalid   uint64 `json:"invalid" doc:"Answered 400 or 413."`
	Gone      uint64 `json:"gone" doc:"The client left before the decision."`
}

// Upstreams registers the metrics of services and routes, whose series are those of the rules in force. The functions
// are called at each scrape. Call Upstreams once.
func (m *Metrics) Upstreams(services func() []Service, routes func() []Route) {
	m.Registry().MustRegister(&upstreams{services, routes})
}

type upstreams struct {
	services func() []Service
	routes   func() []Route
}

// Describe implements prometheus.Collector.
func (*upstreams) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{routeRequests, serviceAttempts, serviceRetries, serviceEjections,
		serviceHealthy, serviceInProgress, concurrencyLimit, concurrencyInFlight, concurrencyWaiting,
		concurrencyLatency, concurrencyOverload, concurrencyRequests} {
		to <- d
	}
}

// Collect implements prometheus.Collector. An outcome of attempts that never occurred has no series.
func (u *upstreams) Collect(to chan<- prometheus.Metric) {
	for _, r := range u.routes() {
		to <- counter(routeRequests, r.Forwarded, r.Name, r.Service, "forwarded")
		to <- counter(routeRequests, r.Refused, r.Name, r.Service, "refused")
		to <- counter(routeRequests, r.Invalid, r.Name, r.Service, "invalid")
		to <- counter(routeRequests, r.Gone, r.Name, r.Service, "gone")
	}
	for _, s := range u.services() {
		to <- counter(serviceRetries, s.Retries, s.Name)
		for i := range s.Addresses {
			s.Addresses[i].collect(to, s.Name)
		}
		if s.Concurrency != nil {
			s.Concurrency.collect(to, s.Name)
		}
	}
}

func (a *Address) collect(to chan<- prometheus.Metric, service string) {
	for i, n := range a.Attempts {
		if n > 0 {
			to <- counter(serviceAttempts, n, service, a.URL, attemptNames[i])
		}
	}
	to <- counter(serviceEjections, a.Ejections, service, a.URL)
	to <- gauge(serviceHealthy, number(a.Healthy), service, a.URL)
	to <- gauge(serviceInProgress, float64(a.InProgress), service, a.URL)
}

func (c *Concurrency) collect(to chan<- prometheus.Metric, service string) {
	to <- gauge(concurrencyLimit, float64(c.Limit), service)
	to <- gauge(concurrencyInFlight, float64(c.InFlight), service)
	to <- gauge(concurrencyWaiting, float64(c.Waiting), service)
	to <- gauge(concurrencyLatency, c.Latency, service, "now")
	to <- gauge(concurrencyLatency, c.Unloaded, service, "none")
	to <- counter(concurrencyOverload, c.Overload, service)
	for _, class := range c.Classes {
		to <- counter(concurrencyRequests, class.Admitted, service, class.Name, "admitted")
		to <- counter(concurrencyRequests, class.Refused, service, class.Name, "refused")
	}
}
