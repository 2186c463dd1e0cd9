//go:build unix

package cli_test

import (
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
)

// TestRatelimitOverlay: the program as ratelimit with an algorithm for a unit, and an overlay of limits that another file
// has; a bad overlay changes nothing, an element without a limit is said, and Redis that is away is an error or not by domain.
func TestRatelimitOverlay(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	dir := t.TempDir()
	file := write(t, dir, "overlay.yaml", `
overlay:
  - {domain: edge, descriptor: user, mode: shadow, on_store_error: deny}
  - {domain: gone, mode: shadow}
`)
	const config = limitsOfEdge + "  - key: open\n    rate_limit: {unit: minute, requests_per_unit: 1}\n"
	place := newPlace(t, map[string]string{"edge.yaml": config}, "REDIS_URL="+redis.Addr(), "WEIR_OVERLAY="+file,
		"WEIR_ALGORITHM_MINUTE=token_bucket", "FORCE_START_WITHOUT_INITIAL_CONFIG=true")
	p := place.start(t)
	rules := func(want ...string) {
		t.Helper()
		text := ""
		redistest.Await(t, "the rules "+strings.Join(want, ", "), func() bool {
			_, _, text = get(t, p.at("http")+"/v1/admin/rules")
			for _, one := range want {
				if !strings.Contains(text, one) {
					return false
				}
			}
			return true
		})
	}
	rules(`"2/365d epoch"`, `"mode": "shadow"`, `"token_bucket 1/1m"`)
	place.wants(t, "ann", 200, 200, 200, 200)
	for range 2 { // it is not counted
		r := call{in: `{"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": "ann"}], "hitsAddend": "2"}]}`}.run(t,
			"explain", "--server", p.at("http"), "--ratelimit-request", "-")
		if r.code != 0 || !strings.Contains(r.out, "refuses for") || !strings.Contains(r.out, ", shadow") || !strings.Contains(r.out, "edge: user=ann\n") {
			t.Error(r)
		}
	}
	if _, _, stats := get(t, "http://"+place.debug+"/stats"); !strings.Contains(stats, "edge.user.total_hits: 4\n") {
		t.Errorf("/stats says %s", stats)
	}
	if _, _, ready := get(t, p.at("http")+"/readyz"); !strings.Contains(ready, "overlay of domain gone") {
		t.Errorf("/readyz says %s", ready)
	}
	replace(t, file, "overlay: [{domain: edge, mode: dry}]")
	p.logged("mode is")
	place.wants(t, "bob", 200, 200, 200)
	replace(t, file, "overlay: [{domain: edge, descriptor: user, on_store_error: deny, algorithm: sliding_log}]")
	rules(`"2/365d"`, `"algorithm": "sliding_log"`)
	place.wants(t, "cid", 200, 200, 429)
	replace(t, place.dir+"/edge.yaml", strings.ReplaceAll(config, "requests_per_unit: 2", "requests_per_unit: 3"))
	rules(`"3/365d"`, `"algorithm": "sliding_log"`)
	redis.Kill()
	redistest.Await(t, "an error", func() bool { return place.codeOf(t, "dan") == 500 }) // as envoyproxy/ratelimit
	p.end()
	if n := strings.Count(p.logs(), "overlay of domain gone ("); n != 1 {
		t.Errorf("said %d times:\n%s", n, p.logs())
	}
}
