package rls_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/rls"
)

const kit = `
deny: {descriptor.user: mallory}
rules:
  - {name: generic, match: {service: kit, descriptor_keys: generic_key}, key: [descriptor.generic_key], limit: fixed_window 3/1h}
  - {name: remote, match: {service: kit, descriptor: {remote_address: "*"}}, key: [client.ip], limit: fixed_window 2/1h}
  - {name: masked, match: {service: kit, descriptor: {masked_remote_address: "*"}}, key: [descriptor.masked_remote_address], limit: fixed_window 2/1h}
  - {name: narrow, match: {service: kit, descriptor: {narrow: "*"}}, key: [descriptor.narrow], limit: fixed_window 2/1h}
  - {name: wide, match: {service: kit, descriptor: {wide: "*"}}, key: [descriptor.wide], limit: fixed_window 5/1h}
  - {name: weight, match: {service: kit, descriptor: {weight: "*"}}, key: [descriptor.weight], limit: fixed_window 10/1h}
  - {name: tokens, match: {service: kit, descriptor: {tokens: "*"}}, key: [descriptor.tokens], charge: full, limit: fixed_window 100/1h}
  - {name: plain, match: {service: kit, descriptor: {plain: "*"}}, key: [descriptor.plain], limit: fixed_window 100/1h}
  - {name: override, match: {service: kit, descriptor: {override: "*"}}, key: [descriptor.override, descriptor.more], limit: fixed_window 100/1h}
  - {name: short, match: {service: kit, descriptor: {short: "*"}}, key: [descriptor.short], limit: fixed_window 1/90s}
  - {name: tried, match: {service: kit, descriptor: {shadow: "*"}}, mode: shadow, limit: fixed_window 1/1h}
  - {name: banning, match: {service: kit, descriptor: {banning: "*"}}, limit: fixed_window 1/1h, ban: {after: 1 refusals within 1h, for: 2h}}
  - {name: collide, match: {service: kit, descriptor_keys: a}, key: [descriptor.a], limit: fixed_window 1/1h}
  - {name: collide2, match: {service: kit, descriptor_keys: a_b}, key: [descriptor.a_b], limit: fixed_window 1/1h}
  - {name: strict, match: {service: kit, descriptor: {strict: "*"}}, on_store_error: deny, limit: fixed_window 5/1h}
`

// dial serves the rules, and returns a client.
func dial(t testing.TB, store weir.Store, text string, options rls.Options, opts ...gate.Option) ratelimit.RateLimitServiceClient {
	t.Helper()
	set, err := rules.Load("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	g, err := gate.New(store, set, append([]gate.Option{gate.WithLocal(memstore.New())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	listener, server := bufconn.Listen(1<<20), grpc.NewServer()
	rls.New(g, options)(server)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return ratelimit.NewRateLimitServiceClient(conn)
}

// of is a descriptor with these keys and values.
func of(pairs ...string) *common.RateLimitDescriptor {
	d := new(common.RateLimitDescriptor)
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

func hits(d *common.RateLimitDescriptor, n uint64) *common.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(n)
	return d
}

func negative(d *common.RateLimitDescriptor) *common.RateLimitDescriptor {
	d.IsNegativeHits = true
	return d
}

func limited(d *common.RateLimitDescriptor, n uint32, unit envoytype.RateLimitUnit, multiplier uint32) *common.RateLimitDescriptor {
	d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: n, Unit: unit}
	if multiplier > 0 {
		d.Limit.UnitMultiplier = wrapperspb.UInt32(multiplier)
	}
	return d
}

func ask(t testing.TB, client ratelimit.RateLimitServiceClient, descriptors ...*common.RateLimitDescriptor) *ratelimit.RateLimitResponse {
	t.Helper()
	r, err := client.ShouldRateLimit(context.Background(), &ratelimit.RateLimitRequest{Domain: "kit", Descriptors: descriptors})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// said is an answer as text: the overall code, then of each status the code, the limit's name, what is left, and the
// seconds.
func said(r *ratelimit.RateLimitResponse) string {
	text := r.GetOverallCode().String()
	for _, s := range r.GetStatuses() {
		text += fmt.Sprintf(", %v %s %d of %d t=%d", s.GetCode(), s.GetCurrentLimit().GetName(), s.GetLimitRemaining(),
			s.GetCurrentLimit().GetRequestsPerUnit(), s.GetDurationUntilReset().GetSeconds())
	}
	return text
}

type step struct {
	descriptors []*common.RateLimitDescriptor
	want        string
}

func one(want string, d ...*common.RateLimitDescriptor) step { return step{d, want} }

const hour, minute = envoytype.RateLimitUnit_HOUR, envoytype.RateLimitUnit_MINUTE

var answers = map[string][]step{
	"the client is remote_address": {
		one("OK, OK remote 1 of 2 t=3600", of("remote_address", "203.0.113.7")), one("OK, OK remote 0 of 2 t=3600", of("remote_address", "203.0.113.7")),
		one("OVER_LIMIT, OVER_LIMIT remote 0 of 2 t=3600", of("remote_address", "203.0.113.7")), one("OK, OK remote 1 of 2 t=3600", of("remote_address", "2001:db8::7")),
	},
	"a masked address is a text": {
		one("OK, OK masked 1 of 2 t=3600", of("masked_remote_address", "203.0.113.0/24")), one("OK, OK masked 1 of 2 t=3600", of("masked_remote_address", "2001:db8::/64")),
	},
	"all or nothing": {
		one("OK, OK narrow 1 of 2 t=3600, OK wide 4 of 5 t=3600", of("narrow", "x"), of("wide", "x")),
		one("OK, OK narrow 0 of 2 t=3600, OK wide 3 of 5 t=3600", of("narrow", "x"), of("wide", "x")),
		one("OVER_LIMIT, OVER_LIMIT narrow 0 of 2 t=3600, OK wide 3 of 5 t=3600", of("narrow", "x"), of("wide", "x")),
		one("OK, OK wide 2 of 5 t=3600", of("wide", "x")),
	},
	"hits": {
		one("OK, OK weight 3 of 10 t=3600", hits(of("weight", "x"), 7)), one("OVER_LIMIT, OVER_LIMIT weight 3 of 10 t=3600", hits(of("weight", "x"), 4)),
		one("OK, OK weight 0 of 10 t=3600", hits(of("weight", "x"), 3)), one("OVER_LIMIT, OVER_LIMIT weight 0 of 10 t=3600", hits(of("weight", "x"), 0)),
	},
	"hits of 0 look": {
		one("OK, OK weight 10 of 10 t=0", hits(of("weight", "z"), 0)), one("OK, OK weight 10 of 10 t=0", hits(of("weight", "z"), 0)),
		one("OK, OK weight 0 of 10 t=3600", hits(of("weight", "z"), 10)), one("OVER_LIMIT, OVER_LIMIT weight 0 of 10 t=3600", hits(of("weight", "z"), 0)),
		one("OVER_LIMIT, OVER_LIMIT weight 0 of 10 t=3600, OK wide 5 of 5 t=0", hits(of("weight", "z"), 0), of("wide", "looked")),
		one("OK, OK wide 4 of 5 t=3600", of("wide", "looked")),
	},
	"a budget ends in debt, by the rule": {
		one("OK, OK tokens 30 of 100 t=3600", hits(of("tokens", "b"), 70)), one("OK, OK tokens 30 of 100 t=3600", hits(of("tokens", "b"), 0)),
		one("OK, OK tokens 0 of 100 t=3600", hits(of("tokens", "b"), 70)), one("OVER_LIMIT, OVER_LIMIT tokens 0 of 100 t=3600", hits(of("tokens", "b"), 0)),
		one("OVER_LIMIT, OVER_LIMIT tokens 0 of 100 t=3600", hits(of("tokens", "b"), 7)),
		one("OK, OK tokens 0 of 100 t=3600", negative(hits(of("tokens", "b"), 40))), one("OK, OK tokens 1 of 100 t=3600", negative(hits(of("tokens", "b"), 1))),
	},
	"a budget ends in debt, by the entry": {
		one("OK, OK plain 30 of 100 t=3600", hits(of("plain", "b", "weir.charge", "full"), 70)),
		one("OK, OK plain 0 of 100 t=3600", hits(of("generic_key", "weir.charge=full", "plain", "b"), 70)),
		one("OVER_LIMIT, OVER_LIMIT plain 0 of 100 t=3600", hits(of("plain", "b"), 0)),
	},
	"negative hits give back": {
		one("OK, OK weight 4 of 10 t=3600", hits(of("weight", "n"), 6)), one("OK, OK weight 9 of 10 t=3600", negative(hits(of("weight", "n"), 5))),
		one("OK, OK weight 3 of 10 t=3600", hits(of("weight", "n"), 6)), one("OK, OK weight 10 of 10 t=0", negative(hits(of("weight", "n"), 1000))),
		one("OVER_LIMIT, OVER_LIMIT weight 10 of 10 t=0", hits(of("weight", "n"), 11)),
	},
	"an override": {
		one("OK, OK override 1 of 2 t=3600", limited(of("override", "x"), 2, hour, 0)), one("OK, OK override 0 of 2 t=3600", limited(of("override", "x"), 2, hour, 0)),
		one("OVER_LIMIT, OVER_LIMIT override 0 of 2 t=3600", limited(of("override", "x"), 2, hour, 0)),
		one("OK, OK override 0 of 1 t=1800", limited(of("override", "x", "more", "m"), 1, minute, 30)),
		one("OVER_LIMIT, OVER_LIMIT override 0 of 1 t=1800", limited(of("override", "x", "more", "m"), 1, minute, 30)),
		one("OK, OK envoy-limit 0 of 1 t=60", limited(of("no", "rule"), 1, minute, 0)), one("OVER_LIMIT, OVER_LIMIT envoy-limit 0 of 1 t=60", limited(of("no", "rule"), 1, minute, 0)),
		one("OK, OK envoy-limit 0 of 1 t=60", limited(of("nor", "ule"), 1, minute, 0)), one("OVER_LIMIT, OVER_LIMIT envoy-limit 0 of 0 t=0", limited(of("none", "x"), 0, minute, 0)),
	},
	"one key twice": {
		one("OVER_LIMIT, OVER_LIMIT weight 10 of 10 t=0, OVER_LIMIT weight 10 of 10 t=0", hits(of("weight", "twice"), 6), hits(of("weight", "twice"), 6)),
		one("OK, OK weight 10 of 10 t=0", hits(of("weight", "twice"), 0)),
	},
	"no collision": {
		one("OK, OK collide 0 of 1 t=3600", of("a", "b_c")), one("OK, OK collide2 0 of 1 t=3600", of("a_b", "c")),
		one("OVER_LIMIT, OVER_LIMIT collide 0 of 1 t=3600", of("a", "b_c")), one("OK, OK  0 of 0 t=0", of("a", "b_c", "x", "y")),
	},
	"no rule":     {one("OK, OK  0 of 0 t=0", of("nothing", "matches")), one("OK, OK  0 of 0 t=0", of())},
	"a deny list": {one("OVER_LIMIT, OVER_LIMIT  0 of 0 t=0", of("user", "mallory")), one("OK, OK  0 of 0 t=0", of("user", "ann"))},
	"a shadow rule shows nothing": {
		one("OK, OK  0 of 0 t=0", of("shadow", "x")), one("OK, OK  0 of 0 t=0", of("shadow", "x")),
	},
	"a ban": {
		one("OK, OK banning 0 of 1 t=3600", of("banning", "x")), one("OVER_LIMIT, OVER_LIMIT banning 0 of 1 t=7200", of("banning", "x")),
		one("OVER_LIMIT, OVER_LIMIT banning 0 of 1 t=7200", of("banning", "x")),
	},
}

func TestAnswers(t *testing.T) {
	for name, steps := range answers {
		t.Run(name, func(t *testing.T) {
			clock := memstore.WithClock(func() weir.Instant { return 1e12 })
			client := dial(t, memstore.New(clock), kit, rls.Options{})
			for i, s := range steps {
				if got := said(ask(t, client, s.descriptors...)); got != s.want {
					t.Errorf("call %d: %s\nwant %s", i, got, s.want)
				}
			}
		})
	}
}

func TestRequestHitsAreForDescriptorsWithout(t *testing.T) {
	client := dial(t, memstore.New(), kit, rls.Options{})
	r, err := client.ShouldRateLimit(t.Context(), &ratelimit.RateLimitRequest{Domain: "kit", HitsAddend: 4,
		Descriptors: []*common.RateLimitDescriptor{of("weight", "1"), hits(of("weight", "2"), 2)}})
	if err != nil || r.GetStatuses()[0].GetLimitRemaining() != 6 || r.GetStatuses()[1].GetLimitRemaining() != 8 {
		t.Errorf("%s %v", said(r), err)
	}
}

func TestWrongRequestsAreInvalidAndChargeNothing(t *testing.T) {
	client := dial(t, memstore.New(), kit, rls.Options{})
	good := of("weight", "w")
	var many []*common.RateLimitDescriptor
	for i := range 10_000 {
		many = append(many, of("weight", fmt.Sprint(i)))
	}
	with := func(d *common.RateLimitDescriptor) *ratelimit.RateLimitRequest {
		return &ratelimit.RateLimitRequest{Domain: "kit", Descriptors: []*common.RateLimitDescriptor{good, d}}
	}
	year := envoytype.RateLimitUnit_YEAR
	for want, r := range map[string]*ratelimit.RateLimitRequest{
		"domain is none":                                     {Descriptors: []*common.RateLimitDescriptor{good}},
		"descriptors is none":                                {Domain: "kit"},
		"descriptors[1].limit.unit is UNKNOWN":               with(limited(of("override", "x"), 1, 0, 0)),
		"descriptors[1].limit.unit is 99":                    with(limited(of("a", "x"), 1, 99, 0)),
		"descriptors[1].limit.unit_multiplier is 4294967295": with(limited(of("a", "x"), 1, year, math.MaxUint32)),
		"descriptors[1].hits_addend is 18446744073709551615": with(hits(of("a", "x"), math.MaxUint64)),
		"descriptors[1].weir.charge is half":                 with(of("weir.charge", "half")),
		"claims is more than 32":                             {Domain: "kit", Descriptors: append(many, good)},
		"cost is 4503599627370497":                           with(hits(of("weight", "w"), 1<<52)),
	} {
		_, err := client.ShouldRateLimit(t.Context(), r)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(strings.ReplaceAll(err.Error(), `"`, ""), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if got := ask(t, client, good); got.GetStatuses()[0].GetLimitRemaining() != 9 {
		t.Errorf("the wrong calls were charged: %s", said(got))
	}
}

// header is the only value of a header; "" if there is none.
func header(t *testing.T, r *ratelimit.RateLimitResponse, name string) (value string) {
	t.Helper()
	for _, h := range r.GetResponseHeadersToAdd() {
		if h.GetKey() == name {
			if value != "" {
				t.Errorf("%s occurs twice", name)
			}
			value = h.GetValue()
		}
	}
	return value
}

// described checks the metadata of an answer.
func described(t *testing.T, r *ratelimit.RateLimitResponse, want string) {
	t.Helper()
	if got := fmt.Sprint(r.GetDynamicMetadata().AsMap()); got != want {
		t.Errorf("metadata %s, want %s", got, want)
	}
}

func TestHeadersBodyAndMetadata(t *testing.T) {
	client := dial(t, memstore.New(memstore.WithClock(func() weir.Instant { return 1e12 })), kit, rls.Options{})
	r := ask(t, client, of("short", "x"), of("weight", "a"), hits(of("weight", "b"), 4))
	if got := header(t, r, "ratelimit"); got != `"short";r=0;t=90, "weight";r=6;t=3600` {
		t.Errorf("ratelimit: %s", got)
	}
	if got := header(t, r, "ratelimit-policy"); got != `"short";q=1;w=90, "weight";q=10;w=3600` {
		t.Errorf("ratelimit-policy: %s", got)
	}
	if r.GetRawBody() != nil || header(t, r, "retry-after") != "" {
		t.Errorf("a pass has the body %s", r.GetRawBody())
	}
	described(t, r, "map[limit:short outcome:passed reason:within_limits retry_after_us:0 rule:short]")
	r = ask(t, client, of("weight", "a"), of("short", "x"))
	if got := header(t, r, "retry-after") + " " + header(t, r, "content-type"); got != "90 application/problem+json" {
		t.Errorf("retry-after and content-type: %s", got)
	}
	if limit := r.GetStatuses()[1].GetCurrentLimit(); limit.GetUnit() != ratelimit.RateLimitResponse_RateLimit_SECOND ||
		limit.GetUnitMultiplier().GetValue() != 90 {
		t.Errorf("90 s are %v", limit)
	}
	var problem struct {
		Type     string
		Status   int
		Detail   string
		Violated []string `json:"violated-policies"`
	}
	if err := json.Unmarshal(r.GetRawBody(), &problem); err != nil || problem.Status != 429 || len(problem.Violated) != 1 ||
		problem.Violated[0] != "short" || !strings.Contains(problem.Detail, "1 minute 30 seconds") {
		t.Errorf("%s: %v", r.GetRawBody(), err)
	}
	described(t, r, "map[limit:short outcome:refused reason:limit_exceeded retry_after_us:9e+07 rule:short]")
	described(t, ask(t, client, of("shadow", "x")), "map[outcome:passed reason:no_rule retry_after_us:0]")
	described(t, ask(t, client, of("shadow", "x")), "map[outcome:passed reason:no_rule retry_after_us:0 shadow:[tried]]")
}

// TestBodyHasTheMessageOfTheRule: in its first language, because Envoy sends none.
func TestBodyHasTheMessageOfTheRule(t *testing.T) {
	client := dial(t, memstore.New(), `rules: [{name: r, limit: fixed_window 1/1h, message: {zh: "每 {window} {limit} 次", en: no}}]`, rls.Options{})
	ask(t, client, of("a", "b"))
	if r := ask(t, client, of("a", "b")); !strings.Contains(string(r.GetRawBody()), `"detail":"每 1小时 1 次"`) {
		t.Errorf("%s", r.GetRawBody())
	}
}

func TestOptionsLeaveOutHeadersAndBody(t *testing.T) {
	client := dial(t, memstore.New(), kit, rls.Options{NoHeaders: true, NoBody: true})
	ask(t, client, of("short", "x"))
	r := ask(t, client, of("short", "x"))
	if len(r.GetResponseHeadersToAdd()) > 0 || r.GetRawBody() != nil || r.GetOverallCode() != ratelimit.RateLimitResponse_OVER_LIMIT {
		t.Errorf("without headers and body: %v", r)
	}
}

func TestLimitsAsEnvoyShowsThem(t *testing.T) {
	for limit, want := range map[string]string{
		"fixed_window 7/1m": "7 MINUTE", "fixed_window 7/30s": "7 SECOND×30", "100/1m": "100 MINUTE", "100/1m burst 10": "10 SECOND×6",
		"fixed_window 7/2w": "7 WEEK×2", "calendar 9/month": "9 MONTH", "calendar 9/week in Europe/Berlin": "9 WEEK", "concurrency 4 ttl 1m": "4 UNKNOWN",
		"fixed_window 5/100ms": "50 SECOND", "fixed_window 3/1500ms": "2 SECOND", "fixed_window 4503599627370496/1d": "4294967295 DAY",
		"sliding_counter 60/3h slices 6": "60 HOUR×3",
	} {
		client := dial(t, memstore.New(), `rules: [{name: r, limit: `+limit+`}]`, rls.Options{})
		l := ask(t, client, of("a", "b")).GetStatuses()[0].GetCurrentLimit()
		got := fmt.Sprint(l.GetRequestsPerUnit(), " ", l.GetUnit())
		if m := l.GetUnitMultiplier(); m != nil {
			got += fmt.Sprint("×", m.GetValue())
		}
		if got != want {
			t.Errorf("%s is shown as %s, want %s", limit, got, want)
		}
	}
}

// unwell is a store that does not answer.
type unwell struct{ weir.Store }

func (unwell) Decide(context.Context, []weir.Claim, int64, []weir.Decision) (int64, error) {
	return 0, errors.New("gone")
}

func TestWithoutTheStore(t *testing.T) {
	client := dial(t, unwell{memstore.New()}, kit, rls.Options{})
	want := "OVER_LIMIT, OVER_LIMIT  0 of 0 t=0, OK  0 of 0 t=0"
	if got := said(ask(t, client, of("strict", "x"), of("weight", "x"))); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for i, want := range []string{"OK, OK narrow 1 of 2", "OK, OK narrow 0 of 2", "OVER_LIMIT, OVER_LIMIT narrow 0 of 2"} {
		if got := said(ask(t, client, of("narrow", "x"))); !strings.HasPrefix(got, want) {
			t.Errorf("the local store, call %d: %s, want %s", i, got, want)
		}
	}
	client = dial(t, unwell{memstore.New()}, kit, rls.Options{Unavailable: true})
	_, err := client.ShouldRateLimit(t.Context(), &ratelimit.RateLimitRequest{Domain: "kit",
		Descriptors: []*common.RateLimitDescriptor{of("strict", "x")}})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("with Unavailable: %v", err)
	}
}

func FuzzCalls(f *testing.F) {
	client := dial(f, memstore.New(), kit, rls.Options{})
	f.Add("kit", "weight", "x", uint64(3), false, uint32(0), int32(0), uint32(0), 1)
	f.Add("", "", "", uint64(math.MaxUint64), true, uint32(1), int32(7), uint32(math.MaxUint32), 40)
	f.Add("kit", "generic_key", "weir.charge=full", uint64(0), true, uint32(0), int32(3), uint32(1), 2)
	f.Add("kit", "weir.charge", "\xff", uint64(1<<52), false, uint32(9), int32(-1), uint32(0), 3)
	f.Add("kit", "remote_address", strings.Repeat("9", 1<<20), uint64(1), false, uint32(9), int32(1), uint32(7), 10_000)
	f.Fuzz(func(t *testing.T, domain, key, value string, n uint64, back bool, per uint32, unit int32, times uint32, count int) {
		d := hits(of(key, value), n)
		if d.IsNegativeHits = back; per > 0 {
			d = limited(d, per-1, envoytype.RateLimitUnit(unit), times)
		}
		r := &ratelimit.RateLimitRequest{Domain: domain, HitsAddend: times}
		for range min(max(count, 0), 10_000) {
			if len(r.Descriptors)*len(value) > 1<<21 {
				break
			}
			r.Descriptors = append(r.Descriptors, d, of(value, key))
		}
		got, err := client.ShouldRateLimit(t.Context(), r)
		switch status.Code(err) {
		case codes.OK:
			if len(got.GetStatuses()) != len(r.Descriptors) || got.GetOverallCode() == ratelimit.RateLimitResponse_UNKNOWN {
				t.Errorf("%d statuses of %d, overall %v", len(got.GetStatuses()), len(r.Descriptors), got.GetOverallCode())
			}
		case codes.InvalidArgument, codes.ResourceExhausted: // the message is too large for the transport
		case codes.Internal: // the text is not UTF-8
			if !strings.Contains(err.Error(), "UTF-8") {
				t.Error(err)
			}
		default:
			t.Error(err)
		}
	})
}

// TestAConcurrencyLimitHoldsNothing: Envoy does not report the end of a request.
func TestAConcurrencyLimitHoldsNothing(t *testing.T) {
	client := dial(t, memstore.New(), `rules: [{name: busy, limit: concurrency 1 ttl 1h}]`, rls.Options{})
	for i := range 3 {
		if got := ask(t, client, of("a", "x"), of("b", "x")).GetOverallCode(); got != ratelimit.RateLimitResponse_OVER_LIMIT {
			t.Errorf("call %d of two descriptors, which need two units: %v", i, got)
		}
		if got := ask(t, client, of("a", "x")).GetOverallCode(); got != ratelimit.RateLimitResponse_OK {
			t.Errorf("call %d: %v", i, got)
		}
	}
}

// A registrar keeps the service that is registered.
type registrar struct {
	service ratelimit.RateLimitServiceServer
}

func (r *registrar) RegisterService(_ *grpc.ServiceDesc, service any) {
	r.service = service.(ratelimit.RateLimitServiceServer)
}

// TestRefusalHasTheIDThatObserversRead: made for each refused request, and told in a header.
func TestRefusalHasTheIDThatObserversRead(t *testing.T) {
	var seen []string
	watch := gate.WithObserver(func(v *gate.Verdict) { seen = append(seen, strings.Clone(v.RequestID())) })
	service := serviceOf(t, "rules: [{name: a, match: {service: kit}, limit: 1/1h}]", rls.Options{}, watch)
	request := &ratelimit.RateLimitRequest{Domain: "kit", Descriptors: []*common.RateLimitDescriptor{of("a", "b")}}
	for i := range 3 {
		r, err := service.ShouldRateLimit(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		if id := header(t, r, "x-request-id"); id != seen[i] || len(id) != 32*min(i, 1) || i == 2 && id == seen[1] {
			t.Errorf("request %d: Envoy is told %q, observers %q", i, id, seen)
		}
	}
}

// serviceOf is the service itself, without a connection.
func serviceOf(t *testing.T, text string, options rls.Options, more ...gate.Option) ratelimit.RateLimitServiceServer {
	t.Helper()
	set, err := rules.Load("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	g, err := gate.New(memstore.New(), set, append(more, gate.WithLocal(memstore.New()))...)
	if err != nil {
		t.Fatal(err)
	}
	var r registrar
	rls.New(g, options)(&r)
	return r.service
}

// TestALeakyQueueDelaysTheAnswer: until the turn of the request, or for three quarters of the time that its caller
// waits.
func TestALeakyQueueDelaysTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := serviceOf(t, `rules: [{name: queue, limit: leaky_queue 1/1s queue 9}]`, rls.Options{})
		for i, want := range []time.Duration{0, time.Second, 1500 * time.Millisecond} {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			began := time.Now()
			r, err := service.ShouldRateLimit(ctx, &ratelimit.RateLimitRequest{Domain: "kit",
				Descriptors: []*common.RateLimitDescriptor{hits(of("a", "x"), []uint64{1, 1, 3}[i])}})
			if cancel(); err != nil || r.GetOverallCode() != ratelimit.RateLimitResponse_OK || time.Since(began) != want {
				t.Errorf("call %d: %s %v after %v, want %v", i, said(r), err, time.Since(began), want)
			}
		}
	})
}

// TestBodiesAreNotKnown: a call that meets a rule by a JSON body is a mistake, not a call without a limit.
func TestBodiesAreNotKnown(t *testing.T) {
	c := dial(t, memstore.New(), "rules: [{name: a, match: {service: kit, json: {model: large}}, limit: 1/1h}]", rls.Options{})
	_, err := c.ShouldRateLimit(t.Context(), &ratelimit.RateLimitRequest{Domain: "kit", Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: "a", Value: "b"}}}}})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "json.model") {
		t.Error(err)
	}
}
