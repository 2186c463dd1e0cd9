package rls_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/server/internal/rls"
)

const theirs = `
rules:
  - {name: d.user, alias: by user, match: {service: kit, descriptor_keys: user}, key: [descriptor.user], limit: fixed_window 3/1m epoch}
  - {name: d.plan, replaces: by user, match: {service: kit, descriptor_keys: plan}, key: [descriptor.plan], limit: fixed_window 9/1h epoch, metadata: {a: {x: 1}, b: plan}}
  - {name: d.free, match: {service: kit, descriptor_keys: free}, limit: unlimited}
  - {name: d.exempt, match: {service: kit, descriptor_keys: user=root}, mode: shadow, limit: unlimited}
  - {name: d.off, alias: closed, match: {service: kit, descriptor_keys: off}, deny: {service: kit}, limit: fixed_window 1/1d epoch}
  - {name: d.offtry, match: {service: kit, descriptor_keys: offtry}, mode: shadow, deny: {service: kit}, limit: fixed_window 1/1d epoch}
  - {name: d.try, match: {service: kit, descriptor_keys: try}, key: [descriptor.try], mode: shadow, limit: fixed_window 2/1h epoch, metadata: {a: {x: 2, y: 2}, b: try}}
  - {name: d.near, match: {service: kit, descriptor_keys: near}, quota: true, limit: fixed_window 1/30d epoch}
  - {name: d.far, match: {service: kit, descriptor_keys: far}, quota: true, limit: fixed_window 2/365d epoch}
  - {name: d.tokens, match: {service: kit, descriptor_keys: tokens}, key: [descriptor.tokens], limit: fixed_window 10/1h epoch}
  - {name: d.week, match: {service: kit, descriptor_keys: week}, limit: fixed_window 5/7d epoch}
`

// At 1e12 µs a minute ends in 20 s and an hour in 800 s.
var theirAnswers = map[string][]step{
	"the alias is the name, and a window of the clock the reset": {
		one("OK, OK by user 2 of 3 t=20", of("user", "a")), one("OK, OK by user 0 of 3 t=20", hits(of("user", "a"), 2)),
		one("OVER_LIMIT, OVER_LIMIT by user 0 of 3 t=20", of("user", "a")), one("OK, OK  0 of 0 t=0", of("no", "rule")),
	},
	"a limit that another one replaces": {
		one("OK, OK  0 of 0 t=0, OK  8 of 9 t=800", of("user", "b"), of("plan", "x")),
		one("OK, OK  7 of 9 t=800, OK  0 of 0 t=0", of("plan", "x"), of("user", "b")), one("OK, OK by user 2 of 3 t=20", of("user", "b")),
	},
	"unlimited":                    {one(fmt.Sprintf("OK, OK  %d of 0 t=0", uint32(math.MaxUint32)), of("free", "x"))},
	"a descriptor without a limit": {one("OK, OK  0 of 0 t=0", of("user", "root"))},
	"a shadow limit is shown": {
		one("OK, OK  1 of 2 t=800", of("try", "x")), one("OK, OK  0 of 2 t=800, OK by user 2 of 3 t=20", of("try", "x"), of("user", "s")),
		one("OK, OK  0 of 2 t=800", of("try", "x")), one("OVER_LIMIT, OK  2 of 2 t=800, OVER_LIMIT by user 0 of 3 t=20", hits(of("try", "y"), 0), hitsOf(of("user", "s"), 4)),
	},
	"one quota that is left suffices": {
		one("OK, OK  0 of 1 t=1592000, OK  1 of 2 t=30536000", of("near", "x"), of("far", "x")),
		one("OK, OVER_LIMIT  0 of 1 t=1592000, OK  0 of 2 t=30536000", of("near", "x"), of("far", "x")),
		one("OVER_LIMIT, OVER_LIMIT  0 of 1 t=1592000, OVER_LIMIT  0 of 2 t=30536000, OK by user 3 of 3 t=20", of("near", "x"), of("far", "x"), of("user", "q")),
	},
	"all or nothing": {
		one("OVER_LIMIT, OVER_LIMIT by user 0 of 3 t=20, OK  5 of 5 t=209600", hitsOf(of("user", "n"), 4), of("week", "n")),
		one("OK, OK by user 2 of 3 t=20, OK  4 of 5 t=209600", of("user", "n"), of("week", "n")),
	},
	"hits that a descriptor states may be spent already": {
		one("OK, OK  10 of 10 t=800", hits(of("tokens", "x"), 0)), one("OK, OK  1 of 10 t=800", hits(of("tokens", "x"), 9)),
		one("OVER_LIMIT, OVER_LIMIT  0 of 10 t=800, OK by user 2 of 3 t=20", hits(of("tokens", "x"), 2), hits(of("user", "t"), 1)),
		one("OVER_LIMIT, OVER_LIMIT  0 of 10 t=800", hits(of("tokens", "x"), 0)), one("OK, OK by user 1 of 3 t=20", of("user", "t")),
	},
	"all that is left may be used": {
		one("OK, OK  0 of 10 t=800", hits(of("tokens", "y"), 10)), one("OK, OK  0 of 10 t=800", hits(of("tokens", "y"), 0)),
	},
	"a limit of the request is the only one": {
		one("OK, OK  1 of 2 t=800", limited(of("free", "x"), 2, hour, 0)), one("OK, OK  0 of 2 t=800", limited(of("free", "x"), 2, hour, 0)),
		one("OVER_LIMIT, OVER_LIMIT  0 of 2 t=800", limited(of("free", "x"), 2, hour, 0)), one("OK, OK  0 of 1 t=20", limited(of("free", "x"), 1, minute, 0)),
		one("OVER_LIMIT, OVER_LIMIT  0 of 0 t=20", limited(of("try", "x"), 0, minute, 0)), one("OK, OK  8 of 9 t=1592000", limited(of("off", "x"), 9, envoytype.RateLimitUnit_MONTH, 0)),
	},
}

// hitsOf is a descriptor of a call that has hits, as an addend of the call.
func hitsOf(d *common.RateLimitDescriptor, n int) *common.RateLimitDescriptor {
	for range n {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: hitsOfCall})
	}
	return d
}

const hitsOfCall = "hits of the call"

// askTheirs asks with the hits that hitsOf has left in the descriptors.
func askTheirs(t *testing.T, client ratelimit.RateLimitServiceClient, domain string, descriptors ...*common.RateLimitDescriptor) *ratelimit.RateLimitResponse {
	t.Helper()
	r := &ratelimit.RateLimitRequest{Domain: domain, Descriptors: descriptors}
	for _, d := range descriptors {
		for n := len(d.GetEntries()); n > 0 && d.Entries[n-1].Key == hitsOfCall; n-- {
			d.Entries = d.Entries[:n-1]
			r.HitsAddend++
		}
	}
	answer, err := client.ShouldRateLimit(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func dialTheirs(t *testing.T, options rls.Ratelimit) ratelimit.RateLimitServiceClient {
	t.Helper()
	clock := memstore.WithClock(func() weir.Instant { return 1e12 })
	return dial(t, memstore.New(clock), theirs, rls.Options{Ratelimit: &options})
}

func TestAnswersLikeTheirs(t *testing.T) {
	for name, steps := range theirAnswers {
		t.Run(name, func(t *testing.T) {
			client := dialTheirs(t, rls.Ratelimit{})
			for i, s := range steps {
				r := askTheirs(t, client, "kit", s.descriptors...)
				if got := said(r); got != s.want {
					t.Errorf("call %d: %s\nwant %s", i, got, s.want)
				}
				if len(r.GetResponseHeadersToAdd()) > 0 || len(r.GetRawBody()) > 0 || len(r.ProtoReflect().GetUnknown()) > 0 {
					t.Errorf("call %d: more than statuses: %v", i, r)
				}
			}
		})
	}
}

// TestALimitOfZero: a list that denies is shown as a limit of 0, whose window ends by the clock of this process.
func TestALimitOfZero(t *testing.T) {
	client := dialTheirs(t, rls.Ratelimit{})
	for descriptor, want := range map[string]string{"off": "OVER_LIMIT, OVER_LIMIT closed 0 of 0 DAY", "offtry": "OK, OK  0 of 0 DAY"} {
		r := askTheirs(t, client, "kit", of(descriptor, "x"))
		s := r.GetStatuses()[0]
		got := fmt.Sprintf("%v, %v %s %d of %d %v", r.GetOverallCode(), s.GetCode(), s.GetCurrentLimit().GetName(), s.GetLimitRemaining(),
			s.GetCurrentLimit().GetRequestsPerUnit(), s.GetCurrentLimit().GetUnit())
		left := s.GetDurationUntilReset().GetSeconds()
		now := time.Now().Unix()
		if got != want || (left+now)%86400 > 1 {
			t.Errorf("%s, in %d s, at %d\nwant %s", got, left, now, want)
		}
	}
}

func TestUnits(t *testing.T) {
	client := dialTheirs(t, rls.Ratelimit{})
	for name, want := range map[string]string{"near": "MONTH", "far": "YEAR", "week": "WEEK", "plan": "HOUR", "user": "MINUTE"} {
		l := askTheirs(t, client, "kit", of(name, "x")).GetStatuses()[0].GetCurrentLimit()
		if l.GetUnit().String() != want || l.GetUnitMultiplier() != nil {
			t.Errorf("%s: %v, want %s", name, l, want)
		}
	}
}

func TestErrorsLikeTheirs(t *testing.T) {
	loaded := false
	client := dialTheirs(t, rls.Ratelimit{Loaded: func() bool { return loaded }})
	for want, r := range map[string]*ratelimit.RateLimitRequest{
		"rate limit domain must not be empty":          {Descriptors: []*common.RateLimitDescriptor{of("a", "b")}},
		"rate limit descriptor list must not be empty": {Domain: "kit"},
		"no rate limit configuration loaded":           {Domain: "kit", Descriptors: []*common.RateLimitDescriptor{of("a", "b")}},
	} {
		_, err := client.ShouldRateLimit(t.Context(), r)
		if status.Code(err) != codes.Unknown || status.Convert(err).Message() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	loaded = true
	if got := said(askTheirs(t, client, "other", limited(of("a", "b"), 1, hour, 0))); got != "OK, OK  0 of 0 t=0" {
		t.Errorf("a limit for a domain without rules: %s", got)
	}
}

func TestHeadersLikeTheirs(t *testing.T) {
	client := dialTheirs(t, rls.Ratelimit{Headers: [3]string{"L", "R", "T"}})
	for i, c := range []struct {
		descriptors []*common.RateLimitDescriptor
		want        string
	}{
		{[]*common.RateLimitDescriptor{of("week", "x"), of("user", "x"), of("free", "x")}, "L: 3, R: 2, T: 20"},
		{[]*common.RateLimitDescriptor{hits(of("user", "x"), 5), of("week", "x")}, "L: 3, R: 0, T: 20"},
		{[]*common.RateLimitDescriptor{of("user", "x"), hits(of("week", "x"), 9)}, "L: 5, R: 0, T: 209600"},
		{[]*common.RateLimitDescriptor{of("free", "x")}, ""}, {[]*common.RateLimitDescriptor{of("no", "x")}, ""},
	} {
		got := ""
		for j, h := range askTheirs(t, client, "kit", c.descriptors...).GetResponseHeadersToAdd() {
			if j > 0 {
				got += ", "
			}
			got += h.GetKey() + ": " + h.GetValue()
		}
		if got != c.want {
			t.Errorf("call %d: %s, want %s", i, got, c.want)
		}
	}
}

// TestMetadataLikeTheirs: that of the limits that grant, of which the first has precedence.
func TestMetadataLikeTheirs(t *testing.T) {
	client := dialTheirs(t, rls.Ratelimit{Metadata: true})
	r := askTheirs(t, client, "kit", of("plan", "x"), hits(of("try", "x"), 2), hits(of("off", "y"), 1))
	described(t, r, "map[descriptors:[map[entries:[plan=x]] map[entries:[try=x] hitsAddend:2] map[entries:[off=y] hitsAddend:1]] "+
		"domain:kit metadata:map[a:map[x:1 y:2] b:plan]]")
	described(t, askTheirs(t, client, "kit", of("plan", "x")), "map[descriptors:[map[entries:[plan=x]]] domain:kit metadata:map[a:map[x:1] b:plan]]")
	described(t, askTheirs(t, client, "kit", hits(of("plan", "x"), 99)), "map[descriptors:[map[entries:[plan=x] hitsAddend:99]] domain:kit]")
	described(t, askTheirs(t, client, "kit", hitsOf(of("try", "z"), 1)), "map[descriptors:[map[entries:[try=z]]] domain:kit hitsAddend:1 "+
		"metadata:map[a:map[x:2 y:2] b:try]]")
}

// TestShadowAndQuotaOfAll: each descriptor is decided alone.
func TestShadowAndQuotaOfAll(t *testing.T) {
	for want, options := range map[string]rls.Ratelimit{
		"OK, OVER_LIMIT by user 0 of 3 t=20, OK  4 of 5 t=209600; OK, OVER_LIMIT by user 0 of 3 t=20":         {Shadow: true},
		"OK, OVER_LIMIT by user 0 of 3 t=20, OK  4 of 5 t=209600; OVER_LIMIT, OVER_LIMIT by user 0 of 3 t=20": {Quota: true},
	} {
		client := dialTheirs(t, options)
		got := said(askTheirs(t, client, "kit", hits(of("user", "x"), 4), of("week", "x")))
		got += "; " + said(askTheirs(t, client, "kit", of("user", "x")))
		if got != want {
			t.Errorf("%+v: %s\nwant %s", options, got, want)
		}
	}
}

// TestADescriptorWithoutALimitIsDecidedOnce: nothing is known of it that a second decision could show.
func TestADescriptorWithoutALimitIsDecidedOnce(t *testing.T) {
	decisions := 0
	client := dial(t, memstore.New(), theirs, rls.Options{Ratelimit: &rls.Ratelimit{}},
		gate.WithObserver(func(*gate.Verdict) { decisions++ }))
	askTheirs(t, client, "kit", of("user", "root"))
	if decisions != 1 {
		t.Errorf("%d decisions", decisions)
	}
}
