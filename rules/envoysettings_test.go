package rules_test

import (
	"strings"
	"testing"

	"github.com/weirproject/weir/rules"
)

// TestEnvoySettings lists values that no server starts with.
func TestEnvoySettings(t *testing.T) {
	for _, one := range []struct{ path, value, want string }{
		{"envoy.health", "config,redis", `server.envoy.health has "redis"; allowed: config, domain, store`},
		{"envoy.headers", "a,b", "server.envoy.headers has 2 names; allowed: three"},
		{"envoy.headers", "L,R,a b", `server.envoy.headers has "a b"; allowed: names of header fields`},
		{"envoy.headers", ":status,R,T", `server.envoy.headers has ":status"`},
		{"envoy.xds.metadata", "a", `server.envoy.xds.metadata: value 1 is wrong; allowed: KEY=VALUE`},
		{"envoy.xds.headers", "a=b,=c", `server.envoy.xds.headers: value 2 is wrong; allowed: KEY=VALUE`},
		{"envoy.near_limit", "0", `server.envoy.near_limit is "0"; allowed: a number above 0 and at most 1`},
		{"envoy.near_limit", "1.1", `server.envoy.near_limit is "1.1"`},
		{"envoy.near_limit", "NaN", `server.envoy.near_limit is "NaN"`},
		{"metrics.path", "/{a}", `server.metrics.path is "/{a}"; allowed: a path`},
		{"metrics.path", "/livez", `server.metrics.path is "/livez"`},
	} {
		err := new(rules.Server).Set(one.path, one.value)
		if err == nil || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%s=%s: %v, want %s", one.path, one.value, err, one.want)
		}
	}
	var s rules.Server
	for path, value := range map[string]string{"envoy.near_limit": "0.75", "envoy.health": "config,store",
		"envoy.headers": "L,R,T", "envoy.xds": "control:18000"} {
		if err := s.Set(path, value); err != nil {
			t.Error(err)
		}
	}
	s.EnvoyConfig = "/data"
	if err := s.Check(); err == nil || !strings.Contains(err.Error(), "leave one out") {
		t.Errorf("a directory and a control plane: %v", err)
	}
}

// TestHeadersAreNotShown: their values may be secrets. A change of one is seen.
func TestHeadersAreNotShown(t *testing.T) {
	shown := func(value string) string {
		s := &rules.Server{XDSHeaders: []string{"authorization=" + value}}
		if err := s.Check(); err != nil {
			t.Error(err)
		}
		return strings.Join(s.Values()["envoy.xds.headers"], ",")
	}
	one, other := shown("secret"), shown("secret2")
	if !strings.HasPrefix(one, "authorization=#") || strings.Contains(one, "secret") || one == other || one != shown("secret") {
		t.Errorf("shown are %s and %s", one, other)
	}
}
