package extauthz_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/server/internal/extauthz"
)

const perIP = "rules: [{name: per-ip, key: [client.ip], limit: fixed_window 1/1h}]"

// registrar keeps the service, to call it without a connection.
type registrar struct{ auth.AuthorizationServer }

func (r *registrar) RegisterService(_ *grpc.ServiceDesc, service any) {
	r.AuthorizationServer = service.(auth.AuthorizationServer)
}

func serviceOn(t testing.TB, store weir.Store, rules string, trusted ...string) auth.AuthorizationServer {
	t.Helper()
	var prefixes []netip.Prefix
	for _, text := range trusted {
		prefixes = append(prefixes, netip.MustParsePrefix(text))
	}
	clients, err := clientaddr.New(prefixes, clientaddr.WithTrustedUnix())
	if err != nil {
		t.Fatal(err)
	}
	register, err := extauthz.New(gatetest.Of(t, store, gatetest.Rules(t, rules)), &httplimit.RuleOptions{Clients: clients})
	if err != nil {
		t.Fatal(err)
	}
	var r registrar
	register(&r)
	return r
}

// request is one as Envoy describes it.
func request(source, method, path string, headers ...string) *auth.CheckRequest {
	h := &auth.AttributeContext_HttpRequest{Method: method, Path: path, Host: "example.com", Protocol: "HTTP/1.1",
		Headers: map[string]string{":path": path, ":method": method}}
	for i := 0; i < len(headers); i += 2 {
		h.Headers[headers[i]] = headers[i+1]
	}
	return &auth.CheckRequest{Attributes: &auth.AttributeContext{
		Source: &auth.AttributeContext_Peer{Address: &core.Address{Address: &core.Address_SocketAddress{
			SocketAddress: &core.SocketAddress{Address: source, PortSpecifier: &core.SocketAddress_PortValue{PortValue: 5}}}}},
		Request: &auth.AttributeContext_Request{Http: h},
	}}
}

func check(t testing.TB, s auth.AuthorizationServer, r *auth.CheckRequest) *auth.CheckResponse {
	t.Helper()
	answer, err := s.Check(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func header(list []*core.HeaderValueOption, name string) string {
	for _, h := range list {
		if h.Header.Key == name {
			return h.Header.Value
		}
	}
	return ""
}

// TestRefusalsHaveACode: Envoy passes a denied_response with code 0.
func TestRefusalsHaveACode(t *testing.T) {
	s := serviceOn(t, memstore.New(), perIP)
	granted := check(t, s, request("203.0.113.7", "GET", "/"))
	if granted.Status.Code != 0 || header(granted.GetOkResponse().GetResponseHeadersToAdd(), "ratelimit") == "" {
		t.Errorf("granted: %v", granted)
	}
	refused := check(t, s, request("203.0.113.7", "GET", "/"))
	denied := refused.GetDeniedResponse()
	if refused.Status.Code != int32(codes.ResourceExhausted) || denied.GetStatus().GetCode() != 429 ||
		header(denied.GetHeaders(), "retry-after") == "" ||
		header(denied.GetHeaders(), "content-type") != "application/problem+json" || !strings.Contains(denied.GetBody(), `"per-ip"`) {
		t.Errorf("refused: %v", refused)
	}
	toGRPC := check(t, s, request("203.0.113.7", "POST", "/a.B/C", "content-type", "application/grpc+proto"))
	if denied := toGRPC.GetDeniedResponse(); denied.GetBody() != "" || header(denied.GetHeaders(), "content-type") != "" {
		t.Errorf("a gRPC client would get the body as the message of its status: %v", toGRPC)
	}
}

func TestClient(t *testing.T) {
	for name, tt := range map[string]struct {
		source, forwarded string
		want              string // "": counted as the source
	}{
		"an untrusted source":               {"203.0.113.7", "198.51.100.1", ""},
		"a trusted source":                  {"10.0.0.1", "6.6.6.6, 198.51.100.1", "198.51.100.1"},
		"a trusted source that Envoy added": {"10.0.0.1", "198.51.100.1, 10.0.0.1", "198.51.100.1"},
		"Envoy's own address":               {"127.0.0.1", "198.51.100.1,192.0.2.2", "198.51.100.1"},
		"only Envoy's own address":          {"127.0.0.1", "192.0.2.2", ""},
		"Envoy's own, of another source":    {"10.0.0.1", "198.51.100.1,192.0.2.2", "192.0.2.2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serviceOn(t, memstore.New(), perIP, "10.0.0.0/8", "127.0.0.0/8")
			ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("x-forwarded-for", "192.0.2.2"))
			if _, err := s.Check(ctx, request(tt.source, "GET", "/", "x-forwarded-for", tt.forwarded)); err != nil {
				t.Fatal(err)
			}
			want := tt.want
			if want == "" {
				want = tt.source
			}
			if again := check(t, s, request(want, "GET", "/")); again.Status.Code == 0 {
				t.Errorf("it was not counted as %s", want)
			}
		})
	}
}

func TestAPipeIsAUnixSocket(t *testing.T) {
	s := serviceOn(t, memstore.New(), perIP)
	r := request("", "GET", "/", "x-forwarded-for", "198.51.100.1")
	r.Attributes.Source.Address.Address = &core.Address_Pipe{Pipe: &core.Pipe{Path: "/run/in.sock"}}
	check(t, s, r)
	if check(t, s, request("198.51.100.1", "GET", "/")).Status.Code == 0 {
		t.Error("the header of a trusted Unix socket does not name the client")
	}
}

func TestRawHeadersAndDescriptors(t *testing.T) {
	s := serviceOn(t, memstore.New(), `rules: [
  {name: key, match: {header: {X-Key: "*"}}, key: [header.X-Key], limit: fixed_window 1/1h},
  {name: plan, match: {descriptor: {plan: free}}, limit: fixed_window 1/1h}]`)
	raw := func(value string) *auth.CheckRequest {
		r := request("203.0.113.7", "GET", "/")
		h := r.Attributes.Request.Http
		h.Headers, h.HeaderMap = nil, &core.HeaderMap{Headers: []*core.HeaderValue{{Key: ":path", RawValue: []byte("/")},
			{Key: "x-key", RawValue: []byte(value)}}}
		return r
	}
	for i, want := range []bool{true, false} {
		if got := check(t, s, raw("a\xff")).Status.Code == 0; got != want {
			t.Errorf("request %d passes: %v", i, got)
		}
		r := request("203.0.113.7", "GET", "/")
		r.Attributes.ContextExtensions = map[string]string{"plan": "free"}
		if got := check(t, s, r).Status.Code == 0; got != want {
			t.Errorf("request %d of a plan passes: %v", i, got)
		}
	}
	twice := raw("b")
	h := twice.Attributes.Request.Http.HeaderMap
	h.Headers = append(h.Headers, &core.HeaderValue{Key: "x-key", RawValue: []byte("c")})
	if got := check(t, s, twice).GetDeniedResponse().GetStatus().GetCode(); got != 400 {
		t.Errorf("two values of a key: %v, want 400", got)
	}
}

func TestUnreadableRequestsAreDenied(t *testing.T) {
	s := serviceOn(t, memstore.New(), perIP)
	for name, r := range map[string]*auth.CheckRequest{
		"nothing":        {},
		"no request":     {Attributes: &auth.AttributeContext{}},
		"no path":        request("203.0.113.7", "GET", ""),
		"a relative one": request("203.0.113.7", "GET", "x"),
		"another host":   request("203.0.113.7", "GET", "http://other/"),
	} {
		if answer := check(t, s, r); answer.Status.Code == 0 || answer.GetDeniedResponse().GetStatus().GetCode() != 400 {
			t.Errorf("%s: %v", name, answer)
		}
	}
}

// frozen is a store that never answers.
type frozen struct{ weir.Store }

func (frozen) Decide(ctx context.Context, _ []weir.Claim, _ int64, _ []weir.Decision) (int64, error) {
	<-ctx.Done()
	return 0, fmt.Errorf("%w: %w", weir.ErrUnavailable, ctx.Err())
}

// TestTheAnswerComesBeforeTheDeadline: a late one would be an error for Envoy, whatever on_store_error says.
func TestTheAnswerComesBeforeTheDeadline(t *testing.T) {
	for policy, want := range map[string]int32{"allow": 0, "deny": int32(codes.Unavailable)} {
		synctest.Test(t, func(t *testing.T) {
			s := serviceOn(t, frozen{memstore.New()}, strings.Replace(perIP, "1/1h", "1/1h, on_store_error: "+policy, 1))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			answer, err := s.Check(ctx, request("203.0.113.7", "GET", "/"))
			if err != nil || answer.Status.Code != want || answer.GetErrorResponse() != nil || ctx.Err() != nil {
				t.Errorf("%s: %v, %v, %v", policy, answer, err, ctx.Err())
			}
			if want != 0 && answer.GetDeniedResponse().GetStatus().GetCode() != 503 {
				t.Errorf("%s: %v, want 503", policy, answer)
			}
		})
	}
}

// FuzzCheck: each message has an answer that Envoy can read, and that is a refusal unless its code is 0.
func FuzzCheck(f *testing.F) {
	seed := func(r *auth.CheckRequest) {
		text, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	seed(request("203.0.113.7", "GET", "/a?b=c", "cookie", "a=b", "x-forwarded-for", "1.2.3.4"))
	seed(&auth.CheckRequest{})
	s := serviceOn(f, memstore.New(), `rules: [
  {name: all, key: [client.ip, header.X, cookie.a, query.b], limit: 1/1h}]`, "203.0.113.0/24")
	f.Fuzz(func(t *testing.T, text []byte) {
		r := new(auth.CheckRequest)
		if proto.Unmarshal(text, r) != nil {
			return
		}
		answer := check(t, s, r)
		if _, err := proto.Marshal(answer); err != nil {
			t.Error(err)
		}
		denied := answer.GetDeniedResponse()
		if (answer.Status.Code != 0) != (denied != nil) || denied != nil && denied.GetStatus().GetCode() < 400 {
			t.Errorf("%v", answer)
		}
		if !utf8.ValidString(denied.GetBody()) {
			t.Errorf("%q", denied.GetBody())
		}
	})
}

// TestBodies: rules read a body that Envoy sends whole. They refuse a request whose body is missing or cut, also where a
// client says that it is whole.
func TestBodies(t *testing.T) {
	s := serviceOn(t, memstore.New(), "rules: [{name: large, match: {json: {model: large}}, cost: {from: json.n, max: 5}, limit: fixed_window 5/1h}]")
	const large = `{"model":"large","n":3}`
	for i, test := range []struct {
		method, body string
		partial      []string
		want         uint32
	}{
		{"POST", large, []string{"false"}, 0}, {"POST", large, []string{"false"}, 429}, {"POST", `{"model":"small"}`, []string{"false"}, 0},
		{"POST", large, []string{"true"}, 400}, {"POST", large, nil, 400}, {"POST", "", []string{"false"}, 400},
		{"POST", "", nil, 400}, {"DELETE", "", nil, 400}, {"GET", "", nil, 0}, {"HEAD", "", []string{"false"}, 0},
	} {
		for _, packed := range []bool{false, true} {
			if packed && test.body == large && len(test.partial) > 0 && test.partial[0] == "false" {
				continue // it would be charged twice
			}
			r := request("203.0.113.7", test.method, "/")
			sent := r.Attributes.Request.Http
			if sent.Body = test.body; packed {
				sent.Body, sent.RawBody = "", []byte(test.body)
			}
			for _, line := range test.partial {
				sent.Headers["x-envoy-auth-partial-body"] = line
			}
			if got := uint32(check(t, s, r).GetDeniedResponse().GetStatus().GetCode()); got != test.want {
				t.Errorf("%d, packed %v: %d, want %d", i, packed, got, test.want)
			}
		}
	}
}
