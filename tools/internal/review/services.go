package review

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weirproject/weir/adaptive"
	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/rules"
)

// services notes settings of adaptive limits that have less effect than expected.
func (v *reviewer) services() {
	for i, s := range v.set.Services() {
		if s.Concurrency == nil {
			continue
		}
		note := func(format string, args ...any) {
			v.Report.note("", "service "+s.Name+": "+fmt.Sprintf(format, args...))
		}
		v.adaptive(s, note)
		v.classesOf(&v.file.Services[i].Concurrency.Reserve, s, note)
		v.holders(s, note)
	}
}

// mostRequests is the default of server.upstream.max_requests.
const mostRequests = 10_000

// adaptive notes settings of a limit that contradict others.
func (v *reviewer) adaptive(s *rules.Service, note func(string, ...any)) {
	c, timeout := s.Concurrency, s.Total
	if timeout == 0 || s.Header > 0 && s.Header < timeout {
		timeout = s.Header
	}
	if c.Min == c.Max {
		note("min and max are equal, so that its limit does not follow the service")
	}
	if most := cmp.Or(v.set.Server().UpstreamRequests, mostRequests); c.Max > most {
		note("max is %d, but the gateway forwards %s at a time, by server.upstream.max_requests, and refuses others "+
			"without a class", c.Max, program.Count(most, "request"))
	}
	if timeout > 0 && c.Queue.For >= timeout {
		note("a request may wait %v in the queue, and %v for its answer: clients that wait so long have mostly left; "+
			"write a shorter queue.for", c.Queue.For, timeout)
	}
	if c.Algorithm == adaptive.AIMD && timeout == 0 {
		note("aimd follows refusals and timeouts, and there is no timeout: unless the service answers 503 to what is "+
			"too much, the limit grows to %d; write timeout.header, or adaptive: gradient", c.Max)
	}
}

// classesOf notes missing classes, and classes that a client can choose.
func (v *reviewer) classesOf(given *rules.Reserve, s *rules.Service, note func(string, ...any)) {
	var names []string
	for _, class := range s.Concurrency.Classes {
		names = append(names, class.Name)
	}
	if len(names) < 2 {
		note("beyond its limit all requests are refused alike, a payment as readily as a crawler; write " +
			"concurrency.reserve, if some are more important")
	}
	chosenClasses(names, given, new(rules.Match), note)
}

// holders notes rules that limit the requests in progress at the service, too.
func (v *reviewer) holders(s *rules.Service, note func(string, ...any)) {
	for _, rule := range v.set.Rules() {
		m := &v.file.Rules[rule.Index()].Match
		here := len(m.Service) == 0 || slices.Contains(m.Service, s.Name)
		if !rule.Enabled() || !here || len(rule.Components()) > 0 || !mayRefuse(rule) {
			continue
		}
		for _, limit := range rule.Limits() {
			if limit.Leases() {
				note("rule %s limits its requests in progress as well, by %s: where that is less, this limit never "+
					"moves, and requests are refused without its classes; give the rule a key, or leave it out",
					rule.Name(), limit)
			}
		}
	}
}
