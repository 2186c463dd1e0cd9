package ratelimit

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/tally"
	"github.com/weirproject/weir/observe"
	"github.com/weirproject/weir/rules"
)

// maxCounts bounds the number of counts by values of requests, and the number of series of each name. Hits with further
// values, or with values that make a long name, count for the limit without values. Hits of further limits count in the
// series (other).
const maxCounts = 2000

// Stats are the counts of the rate limit service, under the names of envoyproxy/ratelimit. They are a
// prometheus.Collector, and answer /stats. They are safe for concurrent use.
type Stats struct {
	limits  *Limits
	metrics *observe.Metrics // has the counts of each rule
	near    float64

	values sync.Map // key with values of a request → *valued
	size   atomic.Int64

	calls, failed atomic.Uint64

	placing sync.Mutex
	placed  map[[3]string]bool // labels that have a series, as long as their limits are in force
}

// A valued is the counts of a limit by values of requests.
type valued struct {
	tally.Rule
	rule string // the name of the limit's rule
}

// NewStats makes stats. Charged hits above near, which is a part of each limit from 0 to 1, count as near_limit.
func NewStats(l *Limits, m *observe.Metrics, near float64) *Stats {
	return &Stats{limits: l, metrics: m, near: near, placed: make(map[[3]string]bool)}
}

// Count counts the hits of a descriptor that was decided.
func (s *Stats) Count(entries []*common.RateLimitDescriptor_Entry, v *gate.Verdict, hits int64) {
	var last *rules.Rule
	for i := range v.Len() {
		check := v.At(i)
		if check.Rule == nil || check.Rule == last || check.Ban || check.Aside || check.Candidate || !check.Decided {
			continue
		}
		last = check.Rule
		s.add(s.of(last, entries), &check, uint64(hits))
	}
	if last == nil && v.Outcome == gate.Denied && v.Rule != nil { // a limit of 0
		n := s.of(v.Rule, entries)
		n.N[tally.Hits+tally.AllHits].Add(uint64(hits))
		n.N[tally.Hits+tally.OverHits].Add(uint64(hits))
	}
}

// of returns the counts of a rule, or its counts by the values of these entries, if the configuration asks for them.
func (s *Stats) of(rule *rules.Rule, entries []*common.RateLimitDescriptor_Entry) *tally.Rule {
	c := s.limits.now.Load()
	if c == nil || !c.values {
		return s.metrics.Of(rule)
	}
	l := c.limits[rule.Name()]
	if l == nil {
		return s.metrics.Of(rule)
	}
	key, ok := l.keyOf(entries)
	if !ok {
		return s.metrics.Of(rule)
	}
	if n, ok := s.values.Load(key); ok {
		return &n.(*valued).Rule
	}
	if s.size.Load() >= maxCounts {
		return s.metrics.Of(rule)
	}
	n, known := s.values.LoadOrStore(key, &valued{rule: rule.Name()})
	if !known {
		s.size.Add(1)
	}
	return &n.(*valued).Rule
}

// add counts hits. A refused hit is not charged, so it never counts as near the limit.
func (s *Stats) add(to *tally.Rule, check *gate.Check, hits uint64) {
	charged := check.Granted > 0
	n := to.N[tally.Hits:]
	n[tally.AllHits].Add(hits)
	if !charged && check.Decision.RetryAfter != 0 {
		n[tally.OverHits].Add(hits)
		if check.Shadow {
			n[tally.ShadowHits].Add(hits)
		}
		return
	}
	n[tally.WithinHits].Add(hits)
	limit := check.Claim.Limit.Units()
	beyond := limit - check.Decision.Remaining - int64(float64(limit)*s.near)
	if charged && beyond > 0 {
		n[tally.NearHits].Add(min(hits, uint64(beyond)))
	}
}

// A Service is the rate limit service, for gRPC and for /json.
type Service struct {
	service.RateLimitServiceServer
	stats *Stats // nil: its calls are not counted
	trace Trace  // nil: they have no spans
}

// A Trace begins the span of a call of a method, by a header of the call. It returns the context with the span, and the
// function that ends the span.
type Trace func(ctx context.Context, method string, header func(name string) string) (context.Context, func(error))

// NewService makes a service around the one that register registers. Stats, if non-nil, count its calls, and trace, if
// non-nil, makes their spans.
func NewService(register func(grpc.ServiceRegistrar), stats *Stats, trace Trace) *Service {
	s := &Service{stats: stats, trace: trace}
	register(s)
	return s
}

// RegisterService implements grpc.ServiceRegistrar: NewService receives the service by it.
func (s *Service) RegisterService(_ *grpc.ServiceDesc, implementation any) {
	s.RateLimitServiceServer = implementation.(service.RateLimitServiceServer)
}

// Register registers the service at a gRPC server.
func (s *Service) Register(to grpc.ServiceRegistrar) { service.RegisterRateLimitServiceServer(to, s) }

// ShouldRateLimit implements the service.
func (s *Service) ShouldRateLimit(ctx context.Context, r *service.RateLimitRequest) (*service.RateLimitResponse,
	error) {
	end := func(error) {}
	if s.trace != nil {
		header := func(name string) string { return strings.Join(metadata.ValueFromIncomingContext(ctx, name), ",") }
		ctx, end = s.trace(ctx, "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", header)
	}
	answer, err := s.RateLimitServiceServer.ShouldRateLimit(ctx, r)
	end(err)
	if s.stats == nil {
		return answer, err
	}
	s.stats.calls.Add(1)
	if code := status.Code(err); code != codes.OK && code != codes.Unavailable && code != codes.Canceled {
		s.stats.failed.Add(1)
	}
	return answer, err
}

// A row is the hits of a key.
type row struct {
	key  string
	hits [5]uint64
}

// rows returns the hits of the limits in force, sorted by key. It drops the counts by values of limits that are no
// longer in force, to make room for the limits of later configurations.
func (s *Stats) rows() (list []row) {
	c := s.limits.now.Load()
	if c == nil {
		return nil
	}
	add := func(key string, n *tally.Rule) {
		r := row{key: sanitized(key)}
		for i := range r.hits {
			r.hits[i] = n.N[tally.Hits+i].Load()
		}
		list = append(list, r)
	}
	s.metrics.Read(func(name string, n *tally.Rule) {
		if l := c.limits[name]; l != nil {
			add(l.key, n)
		}
	})
	s.values.Range(func(key, n any) bool {
		if n := n.(*valued); c.limits[n.rule] != nil {
			add(key.(string), &n.Rule)
		} else if s.values.CompareAndDelete(key, n) {
			s.size.Add(-1)
		}
		return true
	})
	slices.SortFunc(list, func(a, b row) int { return cmp.Compare(a.key, b.key) })
	return list
}

var (
	address   = regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)
	separator = strings.NewReplacer(":", "_", "|", "_", "\n", "_")
)

// sanitized makes a key a part of a name: _ replaces colons, bars, line ends, and the dots of IPv4 addresses.
func sanitized(key string) string {
	return address.ReplaceAllStringFunc(separator.Replace(key), func(ip string) string {
		return strings.ReplaceAll(ip, ".", "_")
	})
}

// hitNames are the names of counts of hits, in the order of tally.
var hitNames = [5]string{"total_hits", "over_limit", "near_limit", "within_limit", "shadow_mode"}

// ServeHTTP answers /stats with a line for each count.
func (s *Stats) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	redis, other := s.errors()
	fmt.Fprintf(w, "ratelimit.service.call.should_rate_limit.redis_error: %d\n", redis)
	fmt.Fprintf(w, "ratelimit.service.call.should_rate_limit.service_error: %d\n", other)
	fmt.Fprintf(w, "ratelimit.service.config_load_error: %d\n", s.limits.wrong.Load())
	fmt.Fprintf(w, "ratelimit.service.config_load_success: %d\n", s.limits.loaded.Load())
	for _, r := range s.rows() {
		for i, name := range hitNames {
			fmt.Fprintf(w, "ratelimit.service.rate_limit.%s.%s: %d\n", r.key, name, r.hits[i])
		}
	}
	fmt.Fprintf(w, "ratelimit_server.ShouldRateLimit.total_requests: %d\n", s.calls.Load())
}

// errors returns the number of calls that Redis did not answer, and the number of calls with mistakes. A call that
// on_store_error decided is a call that Redis did not answer.
func (s *Stats) errors() (redis, other uint64) {
	total, _ := s.metrics.Read(func(string, *tally.Rule) {})
	return total[tally.Degraded], s.failed.Load()
}

var (
	descTotal = prometheus.NewDesc("ratelimit_service_total_requests", "Calls of the rate limit service.",
		[]string{"grpc_method"}, nil)
	descTook = prometheus.NewDesc("ratelimit_service_response_time_seconds",
		"Latency of the decisions about descriptors, including Redis.", []string{"grpc_method"}, nil)
	descError = prometheus.NewDesc("ratelimit_service_should_rate_limit_error",
		"Calls that Redis did not answer (redis_error), and those with mistakes (service_error).",
		[]string{"err_type"}, nil)
	descLoaded = prometheus.NewDesc("ratelimit_service_config_load_success", "Configurations read.", nil, nil)
	descWrong  = prometheus.NewDesc("ratelimit_service_config_load_error", "Configurations with mistakes.", nil, nil)
	descHits   = hitDescs()
)

func hitDescs() (list [5]*prometheus.Desc) {
	for i, help := range []string{"Hits of limits.", "Hits over limits.", "Hits near limits.", "Hits within limits.",
		"Hits over limits in shadow mode."} {
		list[i] = prometheus.NewDesc("ratelimit_service_rate_limit_"+hitNames[i],
			help+" key1 and key2 are the first two descriptors of a limit; deeper ones are added up.",
			[]string{"domain", "key1", "key2"}, nil)
	}
	return list
}

// Describe implements prometheus.Collector.
func (s *Stats) Describe(to chan<- *prometheus.Desc) {
	for _, d := range append(descHits[:], descTotal, descTook, descError, descLoaded, descWrong) {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (s *Stats) Collect(to chan<- prometheus.Metric) {
	redis, other := s.errors()
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	count(descTotal, s.calls.Load(), "ShouldRateLimit")
	count(descError, redis, "redis_error")
	count(descError, other, "service_error")
	count(descLoaded, s.limits.loaded.Load())
	count(descWrong, s.limits.wrong.Load())
	buckets, sum := s.metrics.ReadDecisions()
	to <- prometheus.MustNewConstHistogram(descTook, buckets.Total(), sum.Seconds(), buckets.Cumulative(),
		"ShouldRateLimit")
	for labels, hits := range s.series() {
		for i, d := range descHits {
			count(d, hits[i], labels[:]...)
		}
	}
}

// series returns the hits by domain and the first two descriptors.
func (s *Stats) series() map[[3]string]*[5]uint64 {
	s.placing.Lock()
	defer s.placing.Unlock()
	sums := make(map[[3]string]*[5]uint64)
	rows := s.rows()
	s.unplace(rows)
	for _, r := range rows {
		if r.hits[tally.AllHits] == 0 {
			continue
		}
		labels := r.labels()
		if !s.placed[labels] && len(s.placed) >= maxCounts {
			labels = [3]string{"(other)"}
		} else {
			s.placed[labels] = true
		}
		if sums[labels] == nil {
			sums[labels] = new([5]uint64)
		}
		for i, n := range r.hits {
			sums[labels][i] += n
		}
	}
	return sums
}

// labels are the domain and the first two descriptors.
func (r *row) labels() (list [3]string) {
	copy(list[:], strings.SplitN(r.key, ".", 4))
	return list
}

// unplace forgets the labels that no row has any more.
func (s *Stats) unplace(rows []row) {
	there := make(map[[3]string]bool, len(rows))
	for i := range rows {
		there[rows[i].labels()] = true
	}
	maps.DeleteFunc(s.placed, func(labels [3]string, _ bool) bool { return !there[labels] })
}
