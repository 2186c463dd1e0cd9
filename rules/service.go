package rules

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir/adaptive"
	"github.com/weirproject/weir/internal/bounds"
)

// Words of a service; the first is the default.
var (
	balances      = []string{"round_robin", "least_requests"}
	sentHosts     = []string{"", "client", "address"}
	verifications = []string{"full", "none"}
)

// A Service is a checked ServiceSpec. Do not change it.
type Service struct {
	Name          string
	Addresses     []Address // of one scheme
	LeastRequests bool      // otherwise round robin
	Host          string    // "client" or "address"; "": by default
	Connect       time.Duration
	Header, Total time.Duration // 0: no bound
	Idle          time.Duration
	Retries       int
	RetrySafe     bool // GET and HEAD whose connection broke are sent once more
	Failures      int  // in a row that eject an address
	Eject         time.Duration
	EjectMax      time.Duration
	MaxBody       int64  // of its routes that have none; 0: no bound
	CheckPath     string // and query; "": there are no checks
	CheckInterval time.Duration
	CheckStatus   int // of the answer; 0: 200 to 399
	TLS           ServiceTLS
	Concurrency   *adaptive.Config // nil: no limit

	reserve *reserve // of Concurrency
}

// ClassOf is the index of a request's class in Concurrency.Classes; 0 without classes.
func (s *Service) ClassOf(request *Request) int {
	if s.reserve == nil {
		return 0
	}
	class := s.reserve.of(request)
	return slices.IndexFunc(s.reserve.classes, func(c Class) bool { return c.Name == class.Name })
}

// An Address is one of a service.
type Address struct {
	URL    url.URL // scheme and host alone; the scheme is http, https or h2c
	Weight int     // from 1
}

// Services are the services of the file, in order. Do not change the slice.
func (s *Set) Services() []*Service { return s.services }

// services checks the services of a file.
func (b *builder) services(given []ServiceSpec) {
	if !b.count(at(-1, "services"), len(given), bounds.Services) {
		return
	}
	names := make(map[string]int)
	for j := range given {
		p := at(-1, fmt.Sprintf("services[%d]", j))
		b.unique(names, p, given[j].Name, j)
		b.set.services = append(b.set.services, b.service(p, &given[j]))
	}
}

// unique checks the name of a service or a route at a place. names has the earlier ones.
func (b *builder) unique(names map[string]int, in place, name string, j int) {
	p := at(-1, in.field+".name")
	first, taken := names[name]
	switch {
	case name == "" && b.has(p):
	case !groupName.MatchString(name):
		b.add(p, "name is %.80q; allowed: 1 to 128 of a-z A-Z 0-9 and . _ -", name)
	case taken:
		list, _, _ := strings.Cut(in.field, "[")
		b.add(p, "name %q is taken by %s[%d]", name, list, first)
	default:
		names[name] = j
	}
}

func (b *builder) service(p place, given *ServiceSpec) *Service {
	in := func(field string) place { return at(-1, p.field+"."+field) }
	s := &Service{Name: given.Name, Host: word(b, in("host"), given.Host, sentHosts),
		LeastRequests: word(b, in("balance"), given.Balance, balances) == balances[1],
		Retries:       1, Failures: 5, TLS: given.TLS}
	s.Addresses = b.addresses(in("addresses"), given.Addresses)
	s.Connect = b.time(in("timeout.connect"), given.Timeout.Connect, 5*time.Second, time.Millisecond, time.Minute)
	s.Header = b.time(in("timeout.header"), given.Timeout.Header, 0, time.Millisecond, maxTime)
	s.Total = b.time(in("timeout.total"), given.Timeout.Total, 0, time.Millisecond, maxTime)
	s.Idle = b.time(in("timeout.idle"), given.Timeout.Idle, 4*time.Second, 10*time.Millisecond, time.Hour)
	if given.Retries != nil {
		s.Retries = b.between(in("retries"), *given.Retries, 0, bounds.Retries)
	}
	if given.Health.Failures != 0 {
		s.Failures = b.between(in("health.failures"), given.Health.Failures, 1, bounds.Failures)
	}
	s.MaxBody = b.size(in("max_body"), given.MaxBody)
	s.RetrySafe = word(b, in("retry_safe"), given.RetrySafe, safeRetries) == safeRetries[0]
	s.Eject = b.time(in("health.eject"), given.Health.Eject, 10*time.Second, 100*time.Millisecond, maxTime)
	s.EjectMax = b.time(in("health.eject_max"), given.Health.EjectMax, max(5*time.Minute, s.Eject), s.Eject,
		maxTime)
	b.healthCheck(in, s, &given.Health)
	b.serviceTLS(in, s)
	b.concurrency(at(-1, p.field+".concurrency"), s, &given.Concurrency)
	return s
}

// concurrency checks the limit of a service.
func (b *builder) concurrency(p place, s *Service, given *Concurrency) {
	if reflect.ValueOf(*given).IsZero() {
		return
	}
	in := func(field string) place { return at(-1, p.field+"."+field) }
	c := &adaptive.Config{Min: cmp.Or(given.Min, 20)}
	switch i := slices.Index(adaptives, given.Adaptive); {
	case given.Adaptive == "" && b.has(in("adaptive")):
	case i < 0:
		b.add(in("adaptive"), "%s is %.80q; allowed: gradient, aimd", in("adaptive").field, given.Adaptive)
	default:
		c.Algorithm = adaptive.Algorithm(i)
	}
	b.between(in("min"), c.Min, 1, bounds.InProgress)
	c.Max = b.between(in("max"), cmp.Or(given.Max, max(1000, c.Min)), c.Min, bounds.InProgress)
	if given.Queue != (Queue{}) {
		c.Queue.For = b.time(in("queue.for"), given.Queue.For, 0, time.Millisecond, time.Minute)
		c.Queue.Most = b.between(in("queue.most"), cmp.Or(given.Queue.Most, 100), 1, bounds.Waiting)
		if given.Queue.For == "" && !b.has(in("queue.for")) {
			b.add(in("queue"), "queue.for is missing: how long a request may wait, such as for: 50ms")
		}
	}
	if s.reserve = b.classes(in("reserve"), &given.Reserve, ""); s.reserve != nil {
		if by := s.reserve.by; by != nil && !by.source.known() {
			b.add(in("reserve.by"), "%s is %.80q; allowed: header.NAME, query.NAME, cookie.NAME, user, client.ip, "+
				"route, service, method or host, which are known before a request is forwarded",
				in("reserve.by").field, given.Reserve.By)
		}
		for _, name := range slices.Sorted(maps.Keys(given.Reserve.Match)) {
			if slices.ContainsFunc(given.Reserve.Match[name], func(m Match) bool { return !m.known() }) {
				b.add(in("reserve.match."+name), "%s has conditions of bodies, descriptors, countries or networks; "+
					"allowed: those that are known before a request is forwarded", in("reserve.match."+name).field)
			}
		}
		for _, class := range s.reserve.classes {
			c.Classes = append(c.Classes, adaptive.Class{Name: class.Name, Reserve: float64(class.Share) / 100})
		}
	}
	s.Concurrency = c
}

// adaptives are the words of adaptive, in the order of adaptive.Algorithm.
var adaptives = []string{"gradient", "aimd"}

// known reports whether the source is a part of requests that gateways have without a rule.
func (s source) known() bool {
	switch s {
	case sourceHeader, sourceQuery, sourceCookie, sourceUser, sourceIP, sourceRoute, sourceService, sourceMethod,
		sourceHost:
		return true
	}
	return false
}

// known reports whether the gateway knows every value that the match reads, without a rule that reads it.
func (m *Match) known() bool {
	return len(m.JSON) == 0 && !m.describes() && !m.asksMCP() && m.geo() == 0
}

// checkPath is the target of a check, in the characters of a path and a query (RFC 3986, sections 3.3 and 3.4).
var checkPath = regexp.MustCompile("^/[!$%&'()*+,./0-9:;=?@A-Z_a-z~-]{0,999}$")

func (b *builder) healthCheck(in func(string) place, s *Service, given *Health) {
	s.CheckInterval = b.time(in("health.interval"), given.Interval, 5*time.Second, 100*time.Millisecond, time.Hour)
	s.CheckPath = given.Path
	_, err := url.Parse(given.Path)
	if given.Path != "" && (err != nil || !checkPath.MatchString(given.Path) || strings.HasPrefix(given.Path, "//")) {
		b.add(in("health.path"), "health.path is %.200q; allowed: a path, and perhaps a query, such as /healthz",
			given.Path)
	}
	if given.Path == "" && (given.Interval != "" || given.Status != 0) {
		b.add(in("health"), "health.interval and health.status are of checks; add their path, such as path: /healthz")
	}
	if given.Status != 0 {
		s.CheckStatus = b.between(in("health.status"), given.Status, 100, 599)
	}
}

// safeRetries are the words of retry_safe.
var safeRetries = []string{"once", "never"}

// maxTime is the longest time of a service.
const maxTime = 24 * time.Hour

// time reads a duration.
func (b *builder) time(p place, text string, usual, least, most time.Duration) time.Duration {
	if text == "" {
		return usual
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most {
		b.add(p, "%s is %.80q; allowed: a time from %v to %v with its unit, such as 500ms, 5s or 1m", p.field, text,
			least, most)
		return usual
	}
	return d
}

// size reads a number of bytes.
func (b *builder) size(p place, text string) int64 {
	if text == "" {
		return 0
	}
	digits, unit := text, uint64(1)
	for i, name := range []string{"KiB", "MiB", "GiB"} {
		if number, ok := strings.CutSuffix(text, name); ok {
			digits, unit = number, 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n < 1 || n > largestBody/unit || digits[0] == '0' {
		b.add(p, "%s is %.80q; allowed: 1 to 1024GiB, as a number of bytes or with the unit KiB, MiB or GiB, such as "+
			"10MiB", p.field, text)
		return 0
	}
	return int64(n * unit)
}

// largestBody is the largest bound of a body, in bytes.
const largestBody = 1 << 40

// between checks a number.
func (b *builder) between(p place, given, least, most int) int {
	if given < least || given > most {
		b.add(p, "%s is %d; allowed: %d to %d", p.field, given, least, most)
		return least
	}
	return given
}

// addresses reads the addresses of a service.
func (b *builder) addresses(p place, given []string) (list []Address) {
	if len(given) == 0 && !b.has(p) {
		b.add(p, "%s is missing, such as addresses: [http://10.0.0.1:8080]", p.field)
	}
	if !b.count(p, len(given), bounds.Addresses) {
		return nil
	}
	for j, text := range given {
		item := place{p.rule, p.field, j}
		if text == "" && b.has(item) {
			continue
		}
		a, allowed := parseAddress(text)
		same := func(o Address) bool { return o.URL == a.URL }
		switch {
		case allowed != "":
			b.add(item, "address %.200q; allowed: %s", text, allowed)
			continue
		case slices.ContainsFunc(list, same):
			b.add(item, "address %.200q occurs twice; give it a weight instead", text)
		case len(list) > 0 && list[0].URL.Scheme != a.URL.Scheme:
			b.add(item, "address %.200q has another scheme than the first; allowed: %s, as there, because the "+
				"addresses of a service are alike", text, list[0].URL.Scheme)
		}
		list = append(list, a)
	}
	return list
}

// parseAddress reads a URL, and perhaps a weight.
func parseAddress(text string) (a Address, allowed string) {
	words := strings.Fields(text)
	a.Weight = 1
	if len(words) == 3 && words[1] == "weight" {
		weight, err := strconv.Atoi(words[2])
		if err != nil || weight < 1 || weight > bounds.Weight || strconv.Itoa(weight) != words[2] {
			return a, fmt.Sprintf("a weight from 1 to %d, as in http://10.0.0.1:8080 weight 3", bounds.Weight)
		}
		a.Weight, words = weight, words[:1]
	}
	if len(words) != 1 {
		return a, "a URL, or a URL and its weight, such as http://10.0.0.1:8080 weight 3"
	}
	u, err := url.Parse(words[0])
	switch {
	case err != nil || u.Opaque != "" || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "h2c":
		return a, "a URL with the scheme http, https or h2c, such as http://10.0.0.1:8080"
	case u.Hostname() == "" || !validPort(u.Port()) || strings.HasSuffix(u.Host, ":"):
		return a, "a host, and a port from 1 to 65535 or none, as in http://10.0.0.1:8080"
	case u.User != nil:
		return a, "a URL without credentials: all clients would act as that user"
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return a, "a URL without path, query and fragment; a route can add a prefix to paths"
	}
	a.URL = url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host)}
	return a, ""
}

func validPort(port string) bool {
	n, err := strconv.Atoi(port)
	return port == "" || err == nil && n > 0 && n < 1<<16
}

// serviceTLS checks the TLS of a service. The files are read when the service is put in force.
func (b *builder) serviceTLS(in func(string) place, s *Service) {
	t := &s.TLS
	if *t == (ServiceTLS{}) {
		return
	}
	if len(s.Addresses) > 0 && s.Addresses[0].URL.Scheme != "https" {
		b.add(in("tls"), "tls is for addresses with the scheme https; the first has %s", s.Addresses[0].URL.Scheme)
	}
	t.Verify = word(b, in("tls.verify"), t.Verify, verifications)
	for _, file := range []struct{ field, path string }{{"tls.ca", t.CA}, {"tls.cert", t.Cert}, {"tls.key", t.Key}} {
		if file.path != "" && !filepath.IsAbs(file.path) {
			b.add(in(file.field), "%s is %.200q; allowed: the absolute path of a PEM file", file.field, file.path)
		}
	}
	if (t.Cert == "") != (t.Key == "") {
		b.add(in("tls"), "tls.cert and tls.key go together")
	}
	if t.Verify == "none" && (t.CA != "" || t.ServerName != "") {
		b.add(in("tls.verify"), "tls.verify is none, so that ca and server_name have no effect; leave them out, or "+
			"verify")
	}
	if t.ServerName != "" && !hostName.MatchString(strings.ToLower(t.ServerName)) {
		b.add(in("tls.server_name"), "tls.server_name is %.200q; allowed: a name such as order.internal", t.ServerName)
	}
}
