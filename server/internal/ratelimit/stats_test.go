package ratelimit_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	service "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/internal/ratelimitconf"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/observe"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/ratelimit"
	"github.com/weirproject/weir/server/internal/rls"
)

const counting = `
domain: edge
descriptors:
  - key: a
    rate_limit: {unit: year, requests_per_unit: 10}
  - key: b
    value: x
    shadow_mode: true
    rate_limit: {unit: year, requests_per_unit: 1}
  - key: b
    detailed_metric: true
    rate_limit: {unit: year, requests_per_unit: 100}
  - key: c
    value_to_metric: true
    descriptors:
      - key: d
        value: "y*"
        rate_limit: {unit: year, requests_per_unit: 100}
  - key: shut
    rate_limit: {unit: second, requests_per_unit: 0}
  - key: free
    rate_limit: {unlimited: true}
`

// A counter is a service with the counts of a configuration.
type counter struct {
	*ratelimit.Service
	t      testing.TB
	limits *ratelimit.Limits
	stats  *ratelimit.Stats
	series *observe.Metrics
	gate   *gate.Gate
}

func newCounter(t testing.TB, text string) *counter {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "edge.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &counter{t: t, limits: new(ratelimit.Limits)}
	source, err := c.limits.Source(&engine.Config{Server: rules.Server{EnvoyConfig: dir, ConfigPoll: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Close)
	n := source.Load(t.Context(), false)
	if n.Err != nil {
		t.Fatal(n.Err)
	}
	set, err := rules.Compile(n.File)
	if err != nil {
		t.Fatal(err)
	}
	metrics := observe.New("1")
	g, err := gate.New(memstore.New(), set, gate.WithObserver(metrics.Verdict))
	if err != nil {
		t.Fatal(err)
	}
	metrics.Rules(set, time.Now())
	c.limits.InForce()
	c.stats = ratelimit.NewStats(c.limits, metrics, 0.8)
	metrics.Registry().MustRegister(c.stats)
	c.series, c.gate = metrics, g
	options := rls.Options{Ratelimit: &rls.Ratelimit{Count: c.stats.Count, Loaded: c.limits.Loaded}}
	c.Service = ratelimit.NewService(rls.New(g, options), c.stats, nil)
	return c
}

// ask sends descriptors, each KEY=VALUE with commas between entries.
func (c *counter) ask(hits uint64, descriptors ...string) {
	c.t.Helper()
	request := &service.RateLimitRequest{Domain: "edge"}
	for _, text := range descriptors {
		d := &common.RateLimitDescriptor{HitsAddend: wrapperspb.UInt64(hits)}
		for _, entry := range strings.Split(text, ",") {
			key, value, _ := strings.Cut(entry, "=")
			d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		request.Descriptors = append(request.Descriptors, d)
	}
	if _, err := c.ShouldRateLimit(c.t.Context(), request); err != nil {
		c.t.Fatal(err)
	}
}

// count are the hits of a key at /stats: all, over, near, within, shadow.
func (c *counter) count(key string) string {
	answer := httptest.NewRecorder()
	ratelimit.Debug(c.limits, c.stats).ServeHTTP(answer, httptest.NewRequest("GET", "/stats", nil))
	var all []string
	for _, name := range []string{"total_hits", "over_limit", "near_limit", "within_limit", "shadow_mode"} {
		found := regexp.MustCompile(`(?m)^ratelimit\.service\.rate_limit\.` + regexp.QuoteMeta(key+"."+name) + `: (\d+)$`).
			FindStringSubmatch(answer.Body.String())
		if found == nil {
			return "none"
		}
		all = append(all, found[1])
	}
	return strings.Join(all, " ")
}

// TestStats has the counts of the service by its names.
func TestStats(t *testing.T) {
	c := newCounter(t, counting)
	c.ask(7, "a=1")        // within
	c.ask(2, "a=1")        // the ninth is near
	c.ask(2, "a=1", "b=x") // over both
	c.ask(1, "b=x")
	c.ask(1, "b=x") // over in shadow mode
	c.ask(3, "b=10.1.2.3:80")
	c.ask(1, "c=v|1,d=yes")
	c.ask(1, "c=w,d=yes")
	c.ask(1, "shut=1")
	c.ask(0, "a=2")
	for key, want := range map[string]string{
		"edge.a":             "11 2 1 9 0",
		"edge.b_x":           "4 3 1 1 3",
		"edge.b_10_1_2_3_80": "3 0 0 3 0",
		"edge.c_v_1.d_y*":    "1 0 0 1 0",
		"edge.c_w.d_y*":      "1 0 0 1 0",
		"edge.c.d_y*":        "0 0 0 0 0",
		"edge.shut":          "1 1 0 0 0",
	} {
		if got := c.count(key); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}

// TestRlconfig has a line for each limit.
func TestRlconfig(t *testing.T) {
	c := newCounter(t, counting)
	answer := httptest.NewRecorder()
	ratelimit.Debug(c.limits, c.stats).ServeHTTP(answer, httptest.NewRequest("GET", "/rlconfig", nil))
	want := `edge.a: unit=YEAR requests_per_unit=10, shadow_mode: false, quota_mode: false
edge.b_x: unit=YEAR requests_per_unit=1, shadow_mode: true, quota_mode: false
edge.b: unit=YEAR requests_per_unit=100, shadow_mode: false, quota_mode: false
edge.c.d_y*: unit=YEAR requests_per_unit=100, shadow_mode: false, quota_mode: false
edge.shut: unit=SECOND requests_per_unit=0, shadow_mode: false, quota_mode: false
edge.free: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false
`
	if got := answer.Body.String(); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
}

// TestDebugIndex names what the port answers.
func TestDebugIndex(t *testing.T) {
	c := newCounter(t, counting)
	for path, want := range map[string]int{"/": 200, "/other": 404, "/debug/pprof/heap": 200} {
		answer := httptest.NewRecorder()
		ratelimit.Debug(c.limits, c.stats).ServeHTTP(answer, httptest.NewRequest("GET", path, nil))
		if answer.Code != want || path == "/" && !strings.Contains(answer.Body.String(), "/rlconfig: ") {
			t.Errorf("%s: %d %.100s", path, answer.Code, answer.Body)
		}
	}
}

// TestStatsAreBounded: values of requests make no more than 2000 names and series.
func TestStatsAreBounded(t *testing.T) {
	c := newCounter(t, "domain: edge\ndescriptors: [{key: b, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 100}}]")
	for i := range 2100 {
		c.ask(1, fmt.Sprint("b=", i))
	}
	if got := c.count("edge.b"); got != "100 0 0 100 0" {
		t.Errorf("beyond the bound: %s", got)
	}
	families, err := c.series.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if n := len(f.GetMetric()); n != 2001 && strings.HasPrefix(f.GetName(), "ratelimit_service_rate_limit_") {
			t.Errorf("%s has %d series", f.GetName(), n)
		}
	}
}

// TestLongNamesAreNotCounted for themselves: values of requests may be as large as a call.
func TestLongNamesAreNotCounted(t *testing.T) {
	c := newCounter(t, "domain: edge\ndescriptors: [{key: b, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 100}}]")
	short, long := strings.Repeat("x", 505), strings.Repeat("x", 506)
	c.ask(1, "b="+short)
	c.ask(2, "b="+long)
	for key, want := range map[string]string{"edge.b_" + short: "1 0 0 1 0", "edge.b_" + long: "none", "edge.b": "2 0 0 2 0"} {
		if got := c.count(key); got != want {
			t.Errorf("%.10s of %d bytes: %s, want %s", key, len(key), got, want)
		}
	}
}

// TestLimitsThatAreGoneLeaveRoom for the counts and series of other limits.
func TestLimitsThatAreGoneLeaveRoom(t *testing.T) {
	const text = "domain: edge\ndescriptors: [{key: KEY, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 100}}]"
	c := newCounter(t, strings.Replace(text, "KEY", "old", 1))
	for i := range 2000 {
		c.ask(1, fmt.Sprint("old=", i))
	}
	gather := func() (names string) {
		families, err := c.series.Registry().Gather()
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(families)
	}
	gather()
	config, err := ratelimitconf.Parse("edge.yaml", []byte(strings.Replace(text, "KEY", "new", 1)))
	if err != nil {
		t.Fatal(err)
	}
	file, err := c.limits.Convert(&engine.Config{})([]*ratelimitconf.Config{config})
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Compile(file)
	if err == nil {
		err = c.gate.Swap(set)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.series.Rules(set, time.Now())
	c.limits.InForce()
	gather()
	c.ask(1, "new=x")
	if got := c.count("edge.new_x"); got != "1 0 0 1 0" {
		t.Errorf("a value of a new limit: %s", got)
	}
	if text := gather(); !strings.Contains(text, "new_x") || strings.Contains(text, `"domain" value:"(other)"`) || strings.Contains(text, "old_1") {
		t.Errorf("series: %.2000s", text)
	}
}
