package review_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/internal/review"
)

func compiled(t testing.TB, text string) (*rules.File, *rules.Set) {
	t.Helper()
	file, err := rules.Parse("weir.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%s\n%v", text, err)
	}
	set, err := rules.Compile(file)
	if err != nil {
		t.Fatalf("%s\n%v", text, err)
	}
	return file, set
}

// A server decides by a rule set with a driven clock.
type server struct {
	t    testing.TB
	now  weir.Instant
	gate *gate.Gate
}

func serve(t testing.TB, set *rules.Set) *server {
	t.Helper()
	s := &server{t: t, now: 1_700_000_000_000_000}
	store := memstore.New(memstore.WithClock(func() weir.Instant { return s.now }))
	t.Cleanup(func() { store.Close() })
	var err error
	if s.gate, err = gate.New(store, set, gate.WithLocal(store)); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *server) passes(r *rules.Request) bool {
	s.t.Helper()
	var v gate.Verdict
	if err := s.gate.Decide(s.t.Context(), r, gate.Ask{Times: 1}, &v); err != nil {
		s.t.Fatal(err)
	}
	return v.Outcome == gate.Passed
}

func reviewed(t testing.TB, text string) *review.Report {
	t.Helper()
	file, set := compiled(t, text)
	return review.Of("weir.yaml", file, set)
}

func TestBoundsOfRules(t *testing.T) {
	none := "no bound"
	for text, want := range map[string][]string{
		"{name: a, limit: 100/1m}":                                                                         {"199", "6099", "144099"},
		"{name: a, algorithm: sliding_log, limit: [5/1m, 20/1h]}":                                          {"5", "20", "480"},
		"{name: a, limit: [concurrency 5 ttl 1m, concurrency 3 ttl 1m]}":                                   {none, none, none},
		"{name: a, limit: [concurrency 5 ttl 1m, fixed_window 10/1d epoch]}":                               {"20", "20", "20"},
		"{name: a, limit: none}":                                                                           {"0", "0", "0"},
		"{name: a, limit: 5/1m, mode: shadow}":                                                             {none, none, none, "a shadow rule refuses nothing"},
		"{name: a, limit: 5/1m, key: user, enforce_percent: 10}":                                           {"9", "304", "7204", "enforced for 10% of the keys; the others have no bound"},
		"{name: a, limit: 5/1m, key: user, enforce_percent: 0}":                                            {none, none, none, "enforced for no key"},
		"{name: a, limit: 5/1m, schedule: {days: mon}}":                                                    {"9", "304", "7204", "no bound outside of its schedule"},
		"{name: a, limit: 5/1m, allow: {user: root}}":                                                      {"9", "304", "7204", "no bound for requests that its allow names"},
		"{name: a, limit: 5/1m, group: g}":                                                                 {"9", "304", "7204", "only for requests of which it is the best match in group g"},
		"{name: a, limit: 50/1m, cost: 5}":                                                                 {"99", "3049", "72049", "units: a request takes 5"},
		"{name: a, limit: 50/1m, cost: {from: header.X, max: 9}, charge: full}":                            {"99", "3049", "72049", "units: a request takes 1 to 9", "each time that units run out, the cost of a request may exceed them"},
		"{name: a, limit: 50/1m, cost: {default: 1, settle: bytes}}":                                       {"99", "3049", "72049", "units are charged by the response, which may exceed them"},
		"{name: a, limit: sliding_log 5/1m, count_if: {status: 401}}":                                      {"5", "300", "7200", "of requests that count_if counts; the others have no bound"},
		"{name: a, limit: 5/1m, key: user, on_missing: skip}":                                              {"9", "304", "7204", "no bound for requests without user"},
		"{name: a, limit: 5/1m, on_store_error: allow}":                                                    {"9", "304", "7204", "no bound while the store does not answer"},
		"{name: a, limit: 5/1m, key: user, overrides: [{key: ann, limit: 6/1m}, {key: bob, limit: 4/1m}]}": {"9", "304", "7204", "up to 8645 in a day for the key ann, by an override"},
		"{name: a, limit: 5/1m, key: user, overrides: [{key: ann, limit: concurrency 6 ttl 1m}]}":          {"9", "304", "7204", "no bound for the key ann, which has an override"},
	} {
		r := reviewed(t, "server: {path_form: strict}\nrules: ["+text+"]").Rules[0]
		got := []string{}
		for _, n := range []*int64{r.Minute, r.Hour, r.Day} {
			if n == nil {
				got = append(got, none)
			} else {
				got = append(got, fmt.Sprint(*n))
			}
		}
		if got = append(got, r.Remarks...); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	if r := reviewed(t, "rules: [{name: a, limit: [concurrency 5 ttl 1m, concurrency 3 ttl 1m]}, {name: b, enabled: false, limit: 1/1s}]"); len(r.Rules) != 1 || r.Rules[0].AtOnce != 3 {
		t.Errorf("%+v", r.Rules)
	}
}

// TestGreedyClientOfARule: a client that sends many requests, whenever it likes, never gets more from a rule with
// several limits than the review says, and nearly as much from a bucket.
func TestGreedyClientOfARule(t *testing.T) {
	for _, limits := range []string{"3/10s", "[3/10s, 10/1m]", "[sliding_log 4/10s, fixed_window 9/1m]", "[sliding_counter 6/30s, 20/1m burst 3]"} {
		file, set := compiled(t, "server: {path_form: strict}\nrules: [{name: a, key: client.ip, limit: "+limits+"}]")
		most := *review.Of("weir.yaml", file, set).Rules[0].Minute
		best := int64(0)
		for seed := range uint64(20) {
			random := rand.New(rand.NewPCG(seed, 3))
			s := serve(t, set)
			var granted []weir.Instant
			for range 300 {
				s.now += weir.Instant([]int64{0, 1, 333_333, 2_000_000, 9_999_999}[random.IntN(5)])
				if s.passes(&rules.Request{Client: netip.MustParseAddr("192.0.2.1")}) {
					granted = append(granted, s.now)
				}
			}
			for i, from := 0, 0; i < len(granted); i++ {
				for granted[i]-granted[from] >= 60_000_000 {
					from++
				}
				best = max(best, int64(i-from+1))
			}
		}
		if best > most || 2*best < most {
			t.Errorf("%s: %d in a minute, at most %d is said", limits, best, most)
		}
	}
}

func TestKeysOfRules(t *testing.T) {
	for text, want := range map[string]review.Keys{
		"limit: 1/1s":                                                              {Class: "one", Count: 1, Words: "1"},
		"key: constant.x, limit: 1/1s":                                             {Class: "one", Count: 1, Words: "1"},
		"key: client.ip, limit: 1/1s":                                              {Class: "addresses", Words: "2^32 IPv4, 2^64 IPv6 /64"},
		"key: client.ip v4/24 v6/48, limit: 1/1s":                                  {Class: "addresses", Words: "2^24 IPv4 /24, 2^48 IPv6 /48"},
		"key: client.ip, match: {client: 192.0.2.0/24}, limit: 1/1s":               {Class: "bounded", Count: 256, Words: "256 addresses"},
		"key: client.ip, match: {client: [192.0.2.1, 2001:db8::/48]}, limit: 1/1s": {Class: "bounded", Count: 65537, Words: "65537 addresses"},
		"key: method, match: {method: [GET, POST]}, limit: 1/1s":                   {Class: "bounded", Count: 3, Words: "3"},
		"key: method, limit: 1/1s":                                                 {Class: "client", Words: "any method"},
		"key: [user, route], limit: 1/1s":                                          {Class: "users", Words: "users × routes"},
		"key: user, match: {user: [ann, bob]}, limit: 1/1s":                        {Class: "bounded", Count: 2, Words: "2"},
		"key: endpoint, limit: 1/1s":                                               {Class: "bounded", Count: 1001, Words: "endpoints, up to 1,001 that exist"},
		"key: [client.ip, header.X-A lower], limit: 1/1s":                          {Class: "client", Words: "2^32 IPv4, 2^64 IPv6 /64 × any header.X-A"},
		"key: header.X-A, match: {header: {x-a: [p, q]}}, limit: 1/1s":             {Class: "bounded", Count: 2, Words: "2"},
		"key: host, match: {host: '*.example.com'}, limit: 1/1s":                   {Class: "client", Words: "any host"},
		"key: host, match: {host: a.example.com}, limit: 1/1s":                     {Class: "bounded", Count: 1, Words: "1"},
		"key: client.country, limit: 1/1s":                                         {Class: "bounded", Count: 676, Words: "countries"},
		"key: [client.ip, client.asn], limit: 1/1s":                                {Class: "addresses", Words: "2^32 IPv4, 2^64 IPv6 /64 × autonomous systems"},
		"key: client.country, match: {country: [DE, FR]}, limit: 1/1s":             {Class: "bounded", Count: 2, Words: "2"},
		"key: descriptor.d, limit: 1/1s":                                           {Class: "front_end", Words: "any descriptor.d"},
		"key: path.id, match: {path: '/x/{id}'}, limit: 1/1s":                      {Class: "client", Words: "any path.id"},
	} {
		if got := reviewed(t, "server: {path_form: strict}\nrules: [{name: a, "+text+"}]").Rules[0].Keys; got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}
