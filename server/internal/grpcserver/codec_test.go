package grpcserver

import (
	"bytes"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// sent is the bytes of a message in which \xff stands for the text.
func sent(t *testing.T, m proto.Message) mem.BufferSlice {
	t.Helper()
	text, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte("@@"), []byte("\xff\xc3"))
	return mem.BufferSlice{mem.SliceBuffer(text[:len(text)/2]), mem.SliceBuffer(text[len(text)/2:])}
}

// TestStringsThatAreNotUTF8AreRead in every place: in messages, lists and the keys and values of maps.
func TestStringsThatAreNotUTF8AreRead(t *testing.T) {
	descriptor := func(value string) *ratelimit.RateLimitRequest {
		entry := &common.RateLimitDescriptor_Entry{Key: "ua", Value: value}
		return &ratelimit.RateLimitRequest{Domain: value, HitsAddend: 7,
			Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{entry, entry}}}}
	}
	check := func(value string) *auth.CheckRequest {
		http := &auth.AttributeContext_HttpRequest{Method: "GET", Headers: map[string]string{"a": value, "b" + value: "c"},
			RawBody: []byte("@@")}
		return &auth.CheckRequest{Attributes: &auth.AttributeContext{
			Request: &auth.AttributeContext_Request{Http: http}}}
	}
	const repaired = "curl\ufffdx" // a run of invalid bytes is one
	for _, test := range []struct{ given, want, got proto.Message }{
		{descriptor("curl@@x"), descriptor(repaired), new(ratelimit.RateLimitRequest)},
		{check("curl@@x"), check(repaired), new(auth.CheckRequest)},
		{descriptor("ünï"), descriptor("ünï"), new(ratelimit.RateLimitRequest)},
	} {
		if err := newCodec().Unmarshal(sent(t, test.given), test.got); err != nil {
			t.Error(err)
		}
		if c, ok := test.want.(*auth.CheckRequest); ok {
			c.Attributes.Request.Http.RawBody = []byte("\xff\xc3") // bytes stay as they are
		}
		if !proto.Equal(test.got, test.want) {
			t.Errorf("read %v, want %v", test.got, test.want)
		}
	}
	for _, text := range []string{"\xff", "\x0a\x05ab", "\x12\x03\x0a\x05a"} {
		if err := newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(text)}, new(ratelimit.RateLimitRequest)); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

// FuzzCodec: what protobuf can read is read alike, and what it cannot never panics.
func FuzzCodec(f *testing.F) {
	f.Add([]byte("\x0a\x01\xff\x12\x08\x0a\x06\x0a\x01k\x12\x01\xfe"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var got, want ratelimit.RateLimitRequest
		err := newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(text)}, &got)
		if proto.Unmarshal(text, &want) == nil && (err != nil || !proto.Equal(&got, &want)) {
			t.Errorf("%q: %v, %v", text, &got, err)
		}
	})
}
