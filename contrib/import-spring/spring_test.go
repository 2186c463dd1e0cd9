package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/ruleimport"
	"github.com/weirproject/weir/tools/ruleimport/importtest"
)

// TestSpringRulesGrantTheSameAtWholeSeconds: its script counts in whole seconds.
func TestSpringRulesGrantTheSameAtWholeSeconds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 6))
		rate, requested := 1+r.Int64N(5), 1+r.Int64N(3)
		capacity := requested + r.Int64N(10)
		_, yaml := importtest.Import(t, "import-spring", spring, fmt.Sprintf(`spring.cloud.gateway.routes:
- id: orders
  uri: http://10.0.0.1
  predicates: [Path=/orders/**]
  filters:
  - name: RequestRateLimiter
    args:
      redis-rate-limiter: {replenishRate: %d, burstCapacity: %d, requestedTokens: %d}
`, rate, capacity, requested))
		rp := importtest.NewReplay(t, yaml)
		type bucket struct{ tokens, at int64 }
		buckets := make(map[string]bucket)
		at := int64(1_700_000_000)
		for i := range 300 {
			at += r.Int64N(3)
			user := []string{"ann", "bob"}[r.IntN(2)]
			b, known := buckets[user]
			if !known {
				b = bucket{capacity, at}
			}
			b = bucket{min(capacity, b.tokens+(at-b.at)*rate), at}
			want := b.tokens < requested
			if !want {
				b.tokens -= requested
			}
			buckets[user] = b
			v := rp.Decide(t, at*1_000_000, &rules.Request{Route: "orders", Service: "orders", User: user})
			if got := v.Outcome == gate.Refused; got != want {
				t.Fatalf("seed %d, request %d: refused %t, Spring %t\n%s", seed, i, got, want, yaml)
			}
		}
	}
}

func TestSpringListsWhatHasNoEqual(t *testing.T) {
	t.Parallel()
	const before = "spring:\n  cloud.gateway:\n    routes:\n    - id: a\n      uri: http://10.0.0.1\n      "
	const limit = "{name: RequestRateLimiter, args: {redis-rate-limiter.replenishRate: 1"
	for source, want := range map[string]string{
		before + "predicates: [After=2020]":                                                                                      "source:6: predicate After",
		before + "filters: [RewritePath=/a]":                                                                                     "source:6: filter RewritePath",
		before + "filters: [\"RequestRateLimiter=1, 2\"]":                                                                        "the short form of RequestRateLimiter",
		before + "filters: [" + limit + ", status-code: 420}}]":                                                                  "status-code: 420",
		before + "filters: [" + limit + ", key-resolver: '#{@ipKeyResolver}'}}]":                                                 "is taken for client.ip",
		before + "filters: [" + limit + ", key-resolver: '#{@tenant}'}}]":                                                        "key-resolver #{@tenant}",
		before + "filters: [" + limit + ", redis-rate-limiter.requestedTokens: 5}}]":                                             "rule a: ",
		strings.Replace(before, "http:", "lb:", 1) + "order: 1":                                                                  `uri "lb://10.0.0.1"`,
		before + "filters: [{name: RequestRateLimiter, args: {redis-rate-limiter.replenishRate: '${RATE:5}'}}]":                  `${RATE:5} is taken for "5"`,
		before + "filters: [{name: RequestRateLimiter, args: {redis-rate-limiter.replenishRate: '${RATE}'}}]":                    "replenishRate ${RATE} of route a",
		before + "filters: [{name: RequestRateLimiter, args: {rate-limiter: '#{@mine}'}}]":                                       "the rate limiter #{@mine} of route a",
		before + "order: 1\n---\nspring.config.activate.on-profile: prod\nspring.cloud.gateway.routes: [{id: b, uri: http://b}]": "the document of the profile prod",
		before + "colour: red": `the field "colour"`,
	} {
		result, _ := importtest.Import(t, "import-spring", spring, source)
		if len(result.Notes) == 0 || !strings.Contains(result.Notes[0].String(), want) {
			t.Errorf("%s\nlists %v, want %s", source, result.Notes, want)
		}
	}
	for source, want := range map[string]string{
		"server: {port: 1}": "spring.cloud.gateway.routes is missing",
		before + "filters: [{name: RequestRateLimiter, args: {}}]":                                     "replenishRate is missing",
		before + "filters: [{name: RequestRateLimiter, args: {redis-rate-limiter.replenishRate: -1}}]": `is "-1"; allowed: a whole number`,
		before + "filters: [StripPrefix=x]":                                                            `StripPrefix is "x"`,
	} {
		_, err := ruleimport.Read("import-spring", spring, []ruleimport.Text{{Name: "source", Data: []byte(source)}}, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", source, err, want)
		}
	}
}

func TestPage(t *testing.T) { importtest.Page(t, "import-spring", spring, "application.yml") }

func FuzzImport(f *testing.F) {
	f.Add("spring: {cloud: {gateway: {routes: [{id: a, uri: http://b, predicates: [Path=/a/**], filters: [RequestRateLimiter=1]}]}}}")
	f.Fuzz(func(t *testing.T, text string) { importtest.Any(t, "import-spring", spring, text) })
}
