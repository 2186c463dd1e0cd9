// Package extauthz answers two filters of Envoy over gRPC. External authorization, envoy.service.auth.v3.Authorization,
// sends the head of a request in a message, which the rules decide as in the gateway. External processing,
// envoy.service.ext_proc.v3.ExternalProcessor, also sends the response: see NewProcessor. The rest of this comment is
// about external authorization.
//
// # Client
//
// The client is source.address, the other end of Envoy's connection. Only where that is a trusted proxy, its header
// names the client, as everywhere in weir. To begin with the header looks simpler, but unless Envoy is configured to
// append to it, the client has written all of it.
//
// # Responses
//
// A request passes with response_headers_to_add. A refusal is a denied_response with status, headers and body, and a
// code that is not 0: Envoy passes a denied_response with code 0. A store that does not answer is one, too, where a
// rule has on_store_error: deny. An error_response, or an error of the call, would be left to Envoy's
// failure_mode_allow, which is about a limiter that does not answer.
//
// # Limitations
//
// Those of package forwardauth: the end of the request is not reported. A concurrency limit is acquired and released
// at once, a cost stays at its estimate, and the delay of a leaky queue passes before the answer.
package extauthz

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/server/internal/web"
)

// A service implements Authorization. It is safe for concurrent use.
type service struct {
	auth.UnimplementedAuthorizationServer
	limited http.Handler
}

// New returns a function that registers the service at a server. The options, which it changes, are the options of
// httplimit.ByRules: their Clients are the trusted proxies before Envoy. context_extensions of Envoy's routes are the
// descriptors of rules.
func New(g *gate.Gate, options *httplimit.RuleOptions) (func(grpc.ServiceRegistrar), error) {
	options.KeepEstimates, options.Descriptor = true, extension
	limited, err := httplimit.ByRules(g, options)
	if err != nil {
		return nil, err
	}
	s := &service{limited: limited(http.HandlerFunc(pass))}
	return func(to grpc.ServiceRegistrar) { auth.RegisterAuthorizationServer(to, s) }, nil
}

// pass answers a granted request.
func pass(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }

// Check implements Authorization. It returns no error: see the package's comment.
func (s *service) Check(ctx context.Context, r *auth.CheckRequest) (*auth.CheckResponse, error) {
	w := &answer{Response: web.NewResponse()}
	request, err := s.restore(ctx, r.GetAttributes())
	if err != nil {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintln(w, err)
		return w.response(), nil
	}
	early, cancel := gate.BeforeDeadline(request.Context())
	defer cancel()
	s.limited.ServeHTTP(w, request.WithContext(early))
	w.bodiless = strings.HasPrefix(request.Header.Get("Content-Type"), "application/grpc")
	return w.response(), nil
}

type extensionsKey struct{}

// extension is a descriptor of a request.
func extension(r *http.Request, name string) string {
	extensions, _ := r.Context().Value(extensionsKey{}).(map[string]string)
	return extensions[name]
}

// restore rebuilds the request that Envoy received.
func (s *service) restore(ctx context.Context, a *auth.AttributeContext) (*http.Request, error) {
	sent := a.GetRequest().GetHttp()
	if sent == nil {
		return nil, &weir.InputError{Field: "attributes.request.http", Given: "missing",
			Allowed: "the request, as Envoy's filter ext_authz sends it"}
	}
	target, err := url.ParseRequestURI(sent.GetPath())
	if err != nil || target.Opaque != "" || target.Host != "" {
		return nil, &weir.InputError{Field: "path", Given: shortened(sent.GetPath()), Allowed: "a path with a query"}
	}
	if len(a.GetContextExtensions()) > 0 {
		ctx = context.WithValue(ctx, extensionsKey{}, a.GetContextExtensions())
	}
	if a.GetSource().GetAddress().GetPipe() != nil {
		ctx = context.WithValue(ctx, http.LocalAddrContextKey, &net.UnixAddr{Net: "unix"})
	}
	request := &http.Request{
		Method:     sent.GetMethod(),
		URL:        target,
		RequestURI: sent.GetPath(),
		Host:       sent.GetHost(),
		Header:     headers(sent),
		RemoteAddr: a.GetSource().GetAddress().GetSocketAddress().GetAddress(),
		Proto:      sent.GetProtocol(), ProtoMajor: 1, ProtoMinor: 1,
	}
	if request.Proto == "HTTP/1.0" {
		request.ProtoMinor = 0
	}
	takeBody(request, sent)
	s.leaveOutEnvoy(ctx, request)
	return request.WithContext(ctx), nil
}

// takeBody gives the request its body, if Envoy sends it whole: by with_request_body Envoy says so in a header. A
// client may send that header too, but then there is no body, or the header has two lines.
func takeBody(r *http.Request, sent *auth.AttributeContext_HttpRequest) {
	const field = "X-Envoy-Auth-Partial-Body"
	partial := r.Header[field]
	delete(r.Header, field)
	body := sent.GetRawBody()
	if body == nil {
		body = []byte(sent.GetBody())
	}
	if len(partial) != 1 || partial[0] != "false" || len(body) == 0 {
		web.WithoutBody(r)
		return
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
}

func shortened(text string) string { return text[:min(len(text), 80)] }

// headers are the headers of a request. With encode_raw_headers each line comes separately, else lines of one name are
// joined.
func headers(sent *auth.AttributeContext_HttpRequest) http.Header {
	h := fieldsOf(sent.GetHeaderMap())
	for name, value := range sent.GetHeaders() {
		addField(h, name, value)
	}
	return h
}

// fieldsOf are lines of a header, without the pseudo-fields.
func fieldsOf(sent *core.HeaderMap) http.Header {
	h := make(http.Header, len(sent.GetHeaders())+1)
	for _, line := range sent.GetHeaders() {
		addField(h, line.GetKey(), valueOf(line))
	}
	return h
}

func valueOf(line *core.HeaderValue) string {
	if raw := line.GetRawValue(); raw != nil {
		return string(raw)
	}
	return line.GetValue()
}

func addField(h http.Header, name, value string) {
	if !strings.HasPrefix(name, ":") {
		name = http.CanonicalHeaderKey(name)
		h[name] = append(h[name], value)
	}
}

// leaveOutEnvoy removes Envoy's own address from the end of X-Forwarded-For. With use_remote_address Envoy appends the
// address of its peer, or, if that is a loopback address, its own, which it also names in the metadata of the call.
func (s *service) leaveOutEnvoy(ctx context.Context, r *http.Request) {
	const name = "X-Forwarded-For"
	peer, err := netip.ParseAddr(r.RemoteAddr)
	lines := r.Header[name]
	own := metadata.ValueFromIncomingContext(ctx, name)
	if err != nil || !peer.Unmap().IsLoopback() || len(lines) == 0 || len(own) != 1 {
		return
	}
	last := len(lines) - 1
	before, hop := "", lines[last]
	if comma := strings.LastIndexByte(hop, ','); comma >= 0 {
		before, hop = hop[:comma], hop[comma+1:]
	}
	if strings.TrimSpace(hop) != own[0] {
		return
	}
	if r.Header[name] = lines[:last]; before != "" {
		r.Header[name] = append(lines[:last], before)
	}
}

// An answer is the response of the middleware.
type answer struct {
	*web.Response
	bodiless bool // the client speaks gRPC, and would get the body as the message of its status
}

// response is the answer in Envoy's words.
func (w *answer) response() *auth.CheckResponse {
	if w.Status == http.StatusOK {
		return &auth.CheckResponse{Status: &rpc.Status{}, HttpResponse: &auth.CheckResponse_OkResponse{
			OkResponse: &auth.OkHttpResponse{ResponseHeadersToAdd: options(w.Header())}}}
	}
	if w.bodiless {
		w.Body = ""
		w.Header().Del("Content-Type")
	}
	return &auth.CheckResponse{Status: &rpc.Status{Code: int32(codeOf(w.Status))},
		HttpResponse: &auth.CheckResponse_DeniedResponse{DeniedResponse: &auth.DeniedHttpResponse{
			Status:  &envoytype.HttpStatus{Code: envoytype.StatusCode(w.Status)},
			Headers: options(w.Header()),
			Body:    strings.ToValidUTF8(w.Body, "\uFFFD"),
		}}}
}

// codeOf is the code of a refusal, for Envoy's access log. It is never OK.
func codeOf(status int) codes.Code {
	switch status {
	case http.StatusTooManyRequests:
		return codes.ResourceExhausted
	case http.StatusBadRequest:
		return codes.InvalidArgument
	case http.StatusConflict:
		return codes.AlreadyExists
	case http.StatusServiceUnavailable:
		return codes.Unavailable
	}
	return codes.PermissionDenied
}

// options are header fields. They replace the service's fields of the same names.
func options(h http.Header) (list []*core.HeaderValueOption) {
	for name, lines := range h {
		action := core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
		for _, line := range lines {
			list = append(list, &core.HeaderValueOption{AppendAction: action, Header: &core.HeaderValue{
				Key: strings.ToLower(name), Value: strings.ToValidUTF8(line, "\uFFFD")}})
			action = core.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
		}
	}
	slices.SortStableFunc(list, func(a, b *core.HeaderValueOption) int {
		return strings.Compare(a.Header.Key, b.Header.Key)
	})
	return list
}
