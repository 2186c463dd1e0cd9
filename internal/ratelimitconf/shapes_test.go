package ratelimitconf_test

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/internal/ratelimitconf"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// A limiter decides descriptors by configurations, at a time that stands still until a test changes it.
type limiter struct {
	t    testing.TB
	now  atomic.Int64 // microseconds
	gate *gate.Gate
}

func limiterOf(t testing.TB, o ratelimitconf.Options, texts ...string) *limiter {
	t.Helper()
	var configs []*ratelimitconf.Config
	for i, text := range texts {
		config, err := ratelimitconf.Parse(fmt.Sprintf("%d.yaml", i), []byte(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		configs = append(configs, config)
	}
	file, err := ratelimitconf.Compile(configs, o)
	if err != nil {
		t.Fatalf("%v\n%s", err, texts)
	}
	set, err := rules.Compile(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, texts)
	}
	l := &limiter{t: t}
	l.now.Store(1_700_000_000_000_000)
	store := memstore.New(memstore.WithClock(func() weir.Instant { return weir.Instant(l.now.Load()) }))
	t.Cleanup(func() { store.Close() })
	l.gate = gatetest.Of(t, store, set)
	return l
}

// request is that of a text such as "key=value other=value", whose domain is before a slash.
func request(text string) *rules.Request {
	domain, entries, _ := strings.Cut(text, "/ ")
	r := &rules.Request{Service: domain}
	for _, one := range strings.Fields(entries) {
		key, value, _ := strings.Cut(one, "=")
		r.DescriptorKeys, r.DescriptorValues = append(r.DescriptorKeys, key), append(r.DescriptorValues, value)
	}
	return r
}

// passes decides descriptors in one call.
func (l *limiter) passes(texts ...string) bool {
	l.t.Helper()
	questions, verdicts := make([]gate.Question, len(texts)), make([]gate.Verdict, len(texts))
	for i, text := range texts {
		questions[i] = gate.Question{Request: request(text), Ask: gate.Once, Verdict: &verdicts[i]}
	}
	if err := l.gate.DecideTogether(l.t.Context(), questions); err != nil {
		l.t.Fatal(err)
	}
	for i := range verdicts {
		if verdicts[i].Outcome != gate.Passed {
			return false
		}
	}
	return true
}

// always is more than any limit of the tests.
const always = math.MaxInt

// A step is how often a call passes until one is refused.
type step struct {
	call  string // descriptors, separated by +
	times int
}

// shapes are the eleven examples of the README of the service, and the configurations of its tests, each in the same
// shape with other names and numbers.
var shapes = map[string]struct {
	config string
	steps  []step
}{
	"values of a key": {`
domain: db
descriptors:
  - {key: table, value: users, rate_limit: {unit: second, requests_per_unit: 5}}
  - {key: table, value: orders, rate_limit: {unit: second, requests_per_unit: 7}}
`, []step{{"db/ table=users", 5}, {"db/ table=orders", 7}, {"db/ table=carts", always}, {"other/ table=users", always}}},
	"nested": {`
domain: sms
descriptors:
  - key: kind
    value: ad
    descriptors:
      - {key: number, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: number, rate_limit: {unit: day, requests_per_unit: 9}}
`, []step{{"sms/ kind=ad number=1 + sms/ number=1", 2}, {"sms/ kind=ad number=2", 2}, {"sms/ number=1", 7},
		{"sms/ kind=bill number=1", always}, {"sms/ kind=ad", always}, {"sms/ number=2 kind=ad", always}}},
	"a value that is closed": {`
domain: edge
descriptors:
  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 3}}
  - {key: remote_address, value: 192.0.2.5, rate_limit: {unit: second, requests_per_unit: 0}}
`, []step{{"edge/ remote_address=192.0.2.1", 3}, {"edge/ remote_address=192.0.2.2", 3},
		{"edge/ remote_address=192.0.2.5", 0}}},
	"as many entries as levels": {`
domain: depth
descriptors:
  - {key: a, value: x, rate_limit: {unit: second, requests_per_unit: 3}}
  - {key: b, value: x, descriptors: [{key: c, rate_limit: {unit: second, requests_per_unit: 3}}]}
`, []step{{"depth/ a=x c=1", always}, {"depth/ b=x c=1", 3}, {"depth/ b=x", always}, {"depth/ a=x", 3}}},
	"unlimited": {`
domain: in
descriptors:
  - {key: ldap, rate_limit: {unlimited: true}}
  - {key: ldap, value: slow, rate_limit: {unit: minute, requests_per_unit: 4}}
`, []step{{"in/ ldap=x", always}, {"in/ ldap=slow", 4}}},
	"shadow": {`
domain: soft
descriptors:
  - key: service
    descriptors:
      - {key: user, value: a, rate_limit: {unit: second, requests_per_unit: 1}, shadow_mode: true}
      - {key: user, value: b, rate_limit: {unit: second, requests_per_unit: 2}}
      - {key: user, rate_limit: {unit: second, requests_per_unit: 3}}
`, []step{{"soft/ service=s user=a", always}, {"soft/ service=s user=b", 2}, {"soft/ service=s user=c", 3}}},
	"replaces": {`
domain: two
descriptors:
  - key: one
    value: x
    descriptors:
      - {key: user, value: ann, rate_limit: {name: narrow, unit: second, requests_per_unit: 3}}
  - key: two
    value: x
    descriptors:
      - {key: user, value: ann, rate_limit: {replaces: [{name: narrow}], unit: second, requests_per_unit: 6}}
`, []step{{"two/ one=x user=ann + two/ two=x user=ann", 6}, {"two/ one=x user=ann", 3}}},
	"metrics of values": {`
domain: seen
descriptors:
  - {key: a, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: a, value: x, rate_limit: {unit: minute, requests_per_unit: 4}}
  - key: route
    value_to_metric: true
    descriptors: [{key: id, rate_limit: {unit: minute, requests_per_unit: 3}}]
`, []step{{"seen/ a=y", 2}, {"seen/ a=z", 2}, {"seen/ a=x", 4}, {"seen/ route=r id=1", 3}, {"seen/ route=s id=1", 3}}},
	"a wildcard": {`
domain: wild
descriptors:
  - {key: a, value: v*, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: b, value: "v*w", rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: c, value: "s*ep*c", share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 4}}
  - key: d
    value: x
    descriptors: [{key: a, value: "g*", rate_limit: {unit: minute, requests_per_unit: 5}}]
  - {key: e, value: "1*", rate_limit: {unit: minute, requests_per_unit: 6}}
  - {key: e, value: "12*", rate_limit: {unit: minute, requests_per_unit: 7}}
  - {key: e, value: "123", rate_limit: {unit: minute, requests_per_unit: 8}}
`, []step{{"wild/ a=v1", 2}, {"wild/ a=v2", 2}, {"wild/ a=w", always}, {"wild/ b=vw", 3}, {"wild/ b=v", always},
		{"wild/ c=s-ep-c", 4}, {"wild/ c=sepc", 0}, {"wild/ c=ecs", always}, {"wild/ d=x a=g1", 5},
		{"wild/ e=124", 6}, {"wild/ e=123", 8}, {"wild/ e=2", always}}},
	"a shared count": {`
domain: files
descriptors:
  - {key: path, value: "pub/*", share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 4}}
  - {key: path, value: "own/*", rate_limit: {unit: hour, requests_per_unit: 4}}
  - {key: path, value: pub/one, rate_limit: {unit: hour, requests_per_unit: 2}}
  - key: path
    value: "deep/*"
    share_threshold: true
    descriptors:
      - key: path
        value: "in/*"
        descriptors: [{key: kind, rate_limit: {unit: hour, requests_per_unit: 3}}]
`, []step{{"files/ path=pub/one", 2}, {"files/ path=own/a", 4}, {"files/ path=own/b", 4},
		{"files/ path=pub/a", 4}, {"files/ path=pub/b", 0},
		{"files/ path=deep/1 path=in/1 kind=x", 3}, {"files/ path=deep/2 path=in/1 kind=x", 0},
		{"files/ path=deep/2 path=in/2 kind=x", 3}}},
	"the tree of all units": {`
domain: units
descriptors:
  # A value without a limit is exempt.
  - {key: a, value: free}
  - {key: a, rate_limit: {unit: week, requests_per_unit: 2}}
  - {key: b, rate_limit: {unit: MONTH, requests_per_unit: 3}}
  - {key: c, rate_limit: {unit: Year, requests_per_unit: 4}}
  - {key: d, rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 5}}
  - key: e
    value: x
    rate_limit: {unit: day, requests_per_unit: 6}
    descriptors: [{key: f, value: x, rate_limit: {unit: day, requests_per_unit: 7}}]
  - {key: e, descriptors: [{key: f, rate_limit: {unit: day, requests_per_unit: 8}}]}
  - {key: e/f g, rate_limit: {unit: day, requests_per_unit: 9}}
  - {key: g, metadata: {tier: {name: gold, ranks: [1, true, null]}}, rate_limit: {unit: hour, requests_per_unit: 1}}
`, []step{{"units/ a=free", always}, {"units/ a=x", 2}, {"units/ b=x", 3}, {"units/ c=x", 4}, {"units/ d=x", 5},
		{"units/ e=x", 6}, {"units/ e=x f=x", 7}, {"units/ e=x f=y", always}, {"units/ e=y f=x", 8}, {"units/ e=y", always},
		{"units/ g=x", 1}}},
	"quota": {`
domain: quota
descriptors:
  - {key: model, value: a, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: model, value: b, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 3}}
`, []step{{"quota/ model=a + quota/ model=b", 3}}},
	"aliases": {`
domain: anchored
descriptors:
  - {key: a, rate_limit: &limit {unit: minute, requests_per_unit: 3}}
  - {key: b, rate_limit: *limit}
  - {key: c, rate_limit: {<<: *limit, requests_per_unit: 1}}
`, []step{{"anchored/ a=1", 3}, {"anchored/ b=1", 3}, {"anchored/ c=1", 1}}},
}

func TestConfigurationsDecide(t *testing.T) {
	t.Parallel()
	for name, shape := range shapes {
		l := limiterOf(t, ratelimitconf.Options{}, shape.config)
		for _, s := range shape.steps {
			n := 0
			for n < 50 && l.passes(strings.Split(s.call, " + ")...) {
				n++
			}
			if n == 50 {
				n = always
			}
			if n != s.times {
				t.Errorf("%s: %s passes %d times, want %d", name, s.call, n, s.times)
			}
		}
	}
}

// TestWindowsAreAligned: a month of 30 days and a year of 365 begin at multiples since 1970, as those of the service.
func TestWindowsAreAligned(t *testing.T) {
	t.Parallel()
	l := limiterOf(t, ratelimitconf.Options{}, shapes["the tree of all units"].config)
	for key, seconds := range map[string]int64{"a": 7 * 86400, "b": 30 * 86400, "c": 365 * 86400, "d": 300} {
		call := "units/ " + key + "=y"
		begin := (1_700_000_000/seconds + 1) * seconds
		for _, at := range []int64{begin*1_000_000 - 1, begin * 1_000_000, (begin+seconds)*1_000_000 - 1} {
			l.now.Store(at)
			passed := 0
			for passed < 10 && l.passes(call) {
				passed++
			}
			fresh := at != (begin+seconds)*1_000_000-1
			if (passed > 0) != fresh {
				t.Errorf("%s: %d pass at %d of the window", call, passed, at-begin*1_000_000)
			}
		}
	}
}

func TestDomainsAreMergedIfAsked(t *testing.T) {
	t.Parallel()
	one := "domain: a\ndescriptors: [{key: x, rate_limit: {unit: day, requests_per_unit: 2}}, {key: y, value: '1*', rate_limit: {unit: day, requests_per_unit: 3}}]"
	two := "domain: a\ndescriptors: [{key: y, value: '12*', rate_limit: {unit: day, requests_per_unit: 4}}, {key: z, rate_limit: {unit: day, requests_per_unit: 5}}]"
	l := limiterOf(t, ratelimitconf.Options{Merge: true}, one, two)
	for call, want := range map[string]int{"a/ x=1": 2, "a/ y=12": 3, "a/ z=1": 5} {
		n := 0
		for n < 50 && l.passes(call) {
			n++
		}
		if n != want {
			t.Errorf("%s passes %d times, want %d", call, n, want)
		}
	}
	configs := []*ratelimitconf.Config{parsed(t, one), parsed(t, two), parsed(t, "domain: a\ndescriptors: [{key: x}]")}
	_, err := ratelimitconf.Compile(configs[:2], ratelimitconf.Options{})
	if err == nil || !strings.Contains(err.Error(), `f:1:1: domain "a" occurs twice; allowed: one configuration of a domain`) {
		t.Error(err)
	}
	_, err = ratelimitconf.Compile(configs, ratelimitconf.Options{Merge: true})
	if err == nil || !strings.Contains(err.Error(), `f:2:15: a descriptor with key "x" and value "" occurs twice`) {
		t.Error(err)
	}
}
