package xdssource

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/internal/ratelimitconf"
)

// everything is a configuration with all fields.
func everything() *ratelimit.RateLimitConfig {
	return &ratelimit.RateLimitConfig{Name: "n", Domain: "d", Descriptors: []*ratelimit.RateLimitDescriptor{
		{Key: "a", Value: "b*", ShadowMode: true, DetailedMetric: true,
			RateLimit: &ratelimit.RateLimitPolicy{Unit: ratelimit.RateLimitUnit_WEEK, RequestsPerUnit: 1<<32 - 1,
				Unlimited: true, Name: "x", Replaces: []*ratelimit.RateLimitReplace{{Name: "y"}, {}}},
			Descriptors: []*ratelimit.RateLimitDescriptor{{Key: "c"}, {Key: "ü"}}},
		{},
		{Key: "e", RateLimit: &ratelimit.RateLimitPolicy{Unit: 99}}}}
}

// generated converts what the generated code has read.
func generated(c *ratelimit.RateLimitConfig) *ratelimitconf.Config {
	return &ratelimitconf.Config{Name: c.GetName(), Domain: c.GetDomain(), Descriptors: descriptors(c.GetDescriptors())}
}

func descriptors(from []*ratelimit.RateLimitDescriptor) (list []ratelimitconf.Descriptor) {
	for _, d := range from {
		one := ratelimitconf.Descriptor{Key: d.GetKey(), Value: d.GetValue(), ShadowMode: d.GetShadowMode(),
			DetailedMetric: d.GetDetailedMetric(), Descriptors: descriptors(d.GetDescriptors())}
		if l := d.GetRateLimit(); l != nil {
			one.Limit = &ratelimitconf.Limit{Unit: l.GetUnit().String(), RequestsPerUnit: l.GetRequestsPerUnit(),
				Unlimited: l.GetUnlimited(), Name: l.GetName()}
			for _, r := range l.GetReplaces() {
				one.Limit.Replaces = append(one.Limit.Replaces, r.GetName())
			}
		}
		list = append(list, one)
	}
	return list
}

// FuzzDecode compares the decoder with generated code.
func FuzzDecode(f *testing.F) {
	message, err := proto.Marshal(everything())
	do(f, err)
	f.Add(message)
	f.Add(nested(maxDepth - 1))
	f.Add(nested(maxDepth))
	f.Add([]byte("\x1a\x02\x1a\x00\x1a\x04\x1a\x02\x22\x00\x0b\x0c\x1a\x06\x0b\x1a\x00\x0c\x28\x80\x80\x80\x80\x10"))
	for _, shape := range shapes(f) {
		for _, c := range shape.configs {
			message, err := proto.Marshal(c)
			do(f, err)
			f.Add(message)
		}
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		got, err := newDecoder().config(message)
		var want ratelimit.RateLimitConfig
		wantErr := proto.Unmarshal(message, &want)
		if err != nil && strings.Contains(err.Error(), "more than") {
			return // our bounds
		}
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%v; generated code: %v", err, wantErr)
		}
		if err == nil && !reflect.DeepEqual(got, generated(&want)) {
			t.Fatalf("%+v\ngenerated code: %+v", got, generated(&want))
		}
		if err == nil {
			_, _ = convert([]*ratelimitconf.Config{got})
		}
	})
}

// nested is a configuration with descriptors inside each other.
func nested(depth int) (message []byte) {
	for i := range depth {
		number := protowire.Number(4)
		if i == depth-1 {
			number = 3
		}
		message = protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), message)
	}
	return message
}

func TestHostileResourcesAreBounded(t *testing.T) {
	for _, test := range []struct {
		message []byte
		want    string
	}{
		{nested(maxDepth), ""},
		{nested(maxDepth + 1), "nested more than 32 deep"},
		{nested(5_000), "nested more than 32 deep"},
		{[]byte(strings.Repeat("\x1a\x00", bounds.Rules)), ""},
		{[]byte(strings.Repeat("\x1a\x00", bounds.Rules+1)), "more than 100000 descriptors"},
		{[]byte("\x1a\x02\x0a"), "unexpected EOF"},
		{[]byte("\x0a\x01\xff"), "not UTF-8"},
	} {
		_, err := newDecoder().config(test.message)
		if got := fmt.Sprint(err); (err == nil) != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%.20q…: %v; want %q", test.message, err, test.want)
		}
	}
}

// TestDescriptorsOfAllResourcesCount together.
func TestDescriptorsOfAllResourcesCount(t *testing.T) {
	d := newDecoder()
	for range 2 {
		if _, err := d.config([]byte(strings.Repeat("\x1a\x00", bounds.Rules/2))); err != nil {
			t.Error(err)
		}
	}
	if _, err := d.config([]byte("\x1a\x00")); err == nil {
		t.Error("one more is accepted")
	}
}

// BenchmarkTake is the time from a response to rules that compile, of 10,000 descriptors with limits.
func BenchmarkTake(b *testing.B) {
	limit := &ratelimit.RateLimitPolicy{Unit: ratelimit.RateLimitUnit_SECOND, RequestsPerUnit: 5}
	values, routes := limited("a", 1), limited("b", 1)
	for i := range 10_000 {
		values.Descriptors = append(values.Descriptors, &ratelimit.RateLimitDescriptor{Key: "user",
			Value: fmt.Sprint("user-", i), RateLimit: limit})
		if i%4 == 0 {
			route := fmt.Sprint("httproute/default/route-", i/4)
			routes.Descriptors = append(routes.Descriptors, &ratelimit.RateLimitDescriptor{Key: route, Value: route})
		}
		match := fmt.Sprintf("rule-%d-match-0", i%4)
		last := routes.GetDescriptors()[len(routes.GetDescriptors())-1]
		last.Descriptors = append(last.Descriptors, &ratelimit.RateLimitDescriptor{Key: match, RateLimit: limit})
	}
	for name, c := range map[string]*ratelimit.RateLimitConfig{"values": values, "routes": routes} {
		b.Run(name, func(b *testing.B) {
			resource, err := anypb.New(c)
			do(b, err)
			s := &Source{Config: config()}
			s.Convert = convert
			for b.Loop() {
				r := newResponse(&discovery.DiscoveryResponse{Resources: []*anypb.Any{resource}})
				_, err := s.convert(r.GetResources())
				do(b, err)
			}
		})
	}
}
