package extauthz

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	mode "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	process "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
)

// A processor implements ExternalProcessor. It is safe for concurrent use.
type processor struct {
	process.UnimplementedExternalProcessorServer
	service
}

// NewProcessor is New for Envoy's filter ext_proc, which also sends the response to weir, so that Envoy can change
// requests and responses as the gateway does. The middleware runs before a handler that asks Envoy to forward the
// request, and reads the response from Envoy.
func NewProcessor(g *gate.Gate, options *httplimit.RuleOptions) (func(grpc.ServiceRegistrar), error) {
	limited, err := httplimit.ByRules(g, options)
	if err != nil {
		return nil, err
	}
	p := &processor{service: service{limited: limited(http.HandlerFunc(forward))}}
	return func(to grpc.ServiceRegistrar) { process.RegisterExternalProcessorServer(to, p) }, nil
}

// Process implements ExternalProcessor: a call is one request and its response.
func (p *processor) Process(stream process.ExternalProcessor_ProcessServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if err := checkModes(first.GetProtocolConfig()); err != nil {
		return err
	}
	x := &exchange{stream: stream, to: written{header: make(http.Header)}}
	x.buffered = first.GetProtocolConfig().GetRequestBodyMode() == mode.ProcessingMode_BUFFERED
	if x.request, err = p.described(stream.Context(), first); err != nil {
		x.to.status, x.to.out = http.StatusBadRequest, []byte(err.Error()+"\n")
		return x.end()
	}
	if x.bodied = !first.GetRequestHeaders().GetEndOfStream(); x.bodied {
		x.request.Body, x.request.ContentLength = &requestBody{exchange: x}, declared(x.request.Header)
	}
	ctx := context.WithValue(x.request.Context(), exchangeKey{}, x)
	p.limited.ServeHTTP(&x.to, x.request.WithContext(ctx))
	return x.end()
}

// checkModes refuses a configuration by which weir would not see the bodies that rules need.
func checkModes(c *process.ProtocolConfiguration) error {
	if c == nil { // of an older Envoy
		return nil
	}
	request, response := c.GetRequestBodyMode(), c.GetResponseBodyMode()
	if request != mode.ProcessingMode_BUFFERED && request != mode.ProcessingMode_BUFFERED_PARTIAL {
		return status.Errorf(codes.InvalidArgument, "processing_mode.request_body_mode of ext_proc is %s; allowed: "+
			"BUFFERED, BUFFERED_PARTIAL", request)
	}
	if response != mode.ProcessingMode_STREAMED {
		return status.Errorf(codes.InvalidArgument, "processing_mode.response_body_mode of ext_proc is %s; allowed: "+
			"STREAMED", response)
	}
	return nil
}

// described is the request of the first message. Its client is known if the filter has request_attributes:
// [source.address].
func (p *processor) described(ctx context.Context, m *process.ProcessingRequest) (*http.Request, error) {
	sent := &auth.AttributeContext_HttpRequest{HeaderMap: m.GetRequestHeaders().GetHeaders()}
	for _, line := range sent.GetHeaderMap().GetHeaders() {
		value := valueOf(line)
		switch line.GetKey() {
		case ":method":
			sent.Method = value
		case ":path":
			sent.Path = value
		case ":authority":
			sent.Host = value
		}
	}
	attributes := &auth.AttributeContext{Request: &auth.AttributeContext_Request{Http: sent}}
	request, err := p.restore(ctx, attributes)
	if err != nil {
		return nil, err
	}
	request.RemoteAddr, _ = attribute(m, "source.address")
	p.leaveOutEnvoy(ctx, request)
	request.Body, request.ContentLength = http.NoBody, 0
	return request, nil
}

// attribute is a value that the filter adds to a message.
func attribute(m *process.ProcessingRequest, name string) (value string, sent bool) {
	for _, values := range m.GetAttributes() {
		if field, ok := values.GetFields()[name]; ok {
			return field.GetStringValue(), true
		}
	}
	return "", false
}

// declared is the length of a body according to its header; -1: it is not known.
func declared(h http.Header) int64 {
	n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// An exchange is a request and its response, as Envoy shows them. Envoy waits for an answer to each message.
type exchange struct {
	stream    process.ExternalProcessor_ProcessServer
	request   *http.Request // as Envoy got it
	bodied    bool          // a body follows the head
	read      bool          // the body was received: the next answer is for its message, not for the head
	text      []byte        // the body
	buffered  bool          // Envoy never sends a part of a body
	whole     bool
	to        written
	forwarded bool
	cut       bool // the response ends early: see httplimit
	err       error
}

type exchangeKey struct{}

// written holds the output of the middleware: a refusal, or a part of the response.
type written struct {
	header http.Header
	status int
	out    []byte // since the last message
}

// Header implements http.ResponseWriter.
func (w *written) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *written) WriteHeader(status int) { w.status = status }

// Write implements http.ResponseWriter.
func (w *written) Write(b []byte) (int, error) {
	w.out = append(w.out, b...)
	return len(b), nil
}

// A requestBody is the body of a request. It is received when a rule needs it.
type requestBody struct {
	*exchange
	at int
}

// Read implements io.Reader.
func (b *requestBody) Read(p []byte) (n int, err error) {
	if !b.read {
		if b.receive() != nil {
			return 0, io.ErrUnexpectedEOF // io.EOF would be the end of the body
		}
	}
	n = copy(p, b.text[b.at:])
	switch b.at += n; {
	case n > 0 || len(p) == 0:
		return n, nil
	case !b.whole: // with BUFFERED_PARTIAL
		return 0, io.ErrUnexpectedEOF
	}
	return 0, io.EOF
}

// Close implements io.Closer.
func (b *requestBody) Close() error { return nil }

// receive receives the body of the request.
func (x *exchange) receive() error {
	x.read = true
	err := x.stream.Send(&process.ProcessingResponse{Response: &process.ProcessingResponse_RequestHeaders{
		RequestHeaders: &process.HeadersResponse{}}})
	if err != nil {
		return err
	}
	m, err := x.stream.Recv()
	if err != nil {
		return err
	}
	body := m.GetRequestBody()
	if body == nil {
		return errors.New("another message came in place of the body")
	}
	x.text = body.GetBody()
	x.whole = x.buffered || body.GetEndOfStream() // trailers may follow the whole body
	return nil
}

// forward is the handler after the middleware: it has Envoy forward the request, and writes the response of the
// service.
func forward(w http.ResponseWriter, r *http.Request) {
	x := r.Context().Value(exchangeKey{}).(*exchange)
	x.forwarded = true
	own := x.to.header.Clone() // the fields to add to the response
	err := x.goOn(r)
	for err == nil {
		var m *process.ProcessingRequest
		if m, err = x.stream.Recv(); err != nil {
			break
		}
		answer, ended := x.take(w, m, own)
		if x.err = x.stream.Send(answer); ended || x.cut {
			return
		}
	}
	httplimit.Unfinished(w) // the client left, or the connection to the service broke
}

// goOn tells Envoy to forward the request, with the changes of the middleware.
func (x *exchange) goOn(r *http.Request) error {
	changed := &process.CommonResponse{HeaderMutation: &process.HeaderMutation{SetHeaders: rawOptions(x.changed(r))}}
	if !x.read {
		return x.stream.Send(&process.ProcessingResponse{Response: &process.ProcessingResponse_RequestHeaders{
			RequestHeaders: &process.HeadersResponse{Response: changed}}})
	}
	if text, err := io.ReadAll(r.Body); err == nil && !bytes.Equal(text, x.text) {
		changed.BodyMutation = &process.BodyMutation{Mutation: &process.BodyMutation_Body{Body: text}}
	}
	return x.stream.Send(&process.ProcessingResponse{Response: &process.ProcessingResponse_RequestBody{
		RequestBody: &process.BodyResponse{Response: changed}}})
}

// changed are the fields of the request that the middleware changed, and its path in the form that rules matched.
func (x *exchange) changed(r *http.Request) http.Header {
	h := make(http.Header)
	for name, lines := range r.Header {
		if !slices.Equal(lines, x.request.Header[name]) {
			h[name] = lines
		}
	}
	if target := r.URL.RequestURI(); target != x.request.URL.RequestURI() {
		h[":path"] = []string{target}
	}
	return h
}

// take writes the part of the response that a message has, and returns the answer to the message. ended reports whether
// the message is the last one.
func (x *exchange) take(w http.ResponseWriter, m *process.ProcessingRequest, own http.Header) (
	answer *process.ProcessingResponse, ended bool) {
	answer = new(process.ProcessingResponse)
	details, known := attribute(m, "response.code_details")
	switch m := m.GetRequest().(type) {
	case *process.ProcessingRequest_RequestBody:
		answer.Response = &process.ProcessingResponse_RequestBody{RequestBody: &process.BodyResponse{}}
	case *process.ProcessingRequest_RequestTrailers:
		answer.Response = &process.ProcessingResponse_RequestTrailers{RequestTrailers: &process.TrailersResponse{}}
	case *process.ProcessingRequest_ResponseHeaders:
		code := x.head(w.Header(), m.ResponseHeaders.GetHeaders())
		if unseen(code, details, known) {
			httplimit.Unfinished(w)
		}
		w.WriteHeader(code)
		ended = m.ResponseHeaders.GetEndOfStream()
		answer.Response = &process.ProcessingResponse_ResponseHeaders{ResponseHeaders: &process.HeadersResponse{
			Response: &process.CommonResponse{HeaderMutation: &process.HeaderMutation{SetHeaders: rawOptions(own)}}}}
	case *process.ProcessingRequest_ResponseBody:
		ended = m.ResponseBody.GetEndOfStream()
		answer.Response = &process.ProcessingResponse_ResponseBody{ResponseBody: x.part(w, m.ResponseBody.GetBody())}
	case *process.ProcessingRequest_ResponseTrailers:
		for name, lines := range fieldsOf(m.ResponseTrailers.GetTrailers()) {
			w.Header()[http.TrailerPrefix+name] = lines
		}
		ended = true
		answer.Response = &process.ProcessingResponse_ResponseTrailers{ResponseTrailers: &process.TrailersResponse{}}
	}
	return answer, ended
}

// head adds the fields of the response, and returns its status.
func (x *exchange) head(h http.Header, sent *core.HeaderMap) (code int) {
	for name, lines := range fieldsOf(sent) {
		h[name] = append(h[name], lines...)
	}
	for _, line := range sent.GetHeaders() {
		if line.GetKey() == ":status" {
			code, _ = strconv.Atoi(valueOf(line))
		}
	}
	return max(code, http.StatusContinue)
}

// notSent has prefixes of the details of Envoy's own responses to requests that the service did not get.
var notSent = []string{"no_healthy_upstream", "cluster_not_found", "maintenance_mode", "overload", "direct_response",
	unconnected + "local_connection_failure", unconnected + "remote_connection_failure",
	unconnected + "connection_timeout", unconnected + "connection_failure", unconnected + "overflow",
	unconnected + "remote_refused_stream_reset"}

const unconnected = "upstream_reset_before_response_started{"

// unseen reports whether the response is Envoy's own although the service may have got the request, as after a timeout.
// Without details, each 502, 503 and 504 counts as unseen.
func unseen(code int, details string, known bool) bool {
	if !known {
		return code >= http.StatusBadGateway && code <= http.StatusGatewayTimeout
	}
	failed := code >= http.StatusInternalServerError || code == http.StatusRequestTimeout
	return failed && details != "via_upstream" &&
		!slices.ContainsFunc(notSent, func(begin string) bool { return strings.HasPrefix(details, begin) })
}

// part writes a part of the body. If the response ends early, its last event replaces the part.
func (x *exchange) part(w http.ResponseWriter, text []byte) *process.BodyResponse {
	x.to.out = x.to.out[:0]
	if len(text) > 0 {
		_, err := w.Write(text)
		x.cut = err != nil
	}
	if !x.cut {
		return &process.BodyResponse{}
	}
	return &process.BodyResponse{Response: &process.CommonResponse{BodyMutation: &process.BodyMutation{
		Mutation: &process.BodyMutation_Body{Body: bytes.Clone(x.to.out)}}}}
}

// rawOptions are header fields as ext_proc reads them.
func rawOptions(h http.Header) []*core.HeaderValueOption {
	list := options(h)
	for _, option := range list {
		option.Header.RawValue, option.Header.Value = []byte(option.Header.Value), ""
	}
	return list
}

// end ends the call. A request that was not forwarded gets its refusal. A response that was cut is aborted only when
// the service sends more: the client has received the last event by then.
func (x *exchange) end() error {
	switch {
	case x.err != nil || x.forwarded && !x.cut:
		return x.err
	case x.cut:
		if _, err := x.stream.Recv(); err != nil {
			return nil
		}
		x.to = written{status: http.StatusTooManyRequests}
	}
	return x.stream.Send(&process.ProcessingResponse{Response: &process.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &process.ImmediateResponse{
			Status:  &envoytype.HttpStatus{Code: envoytype.StatusCode(x.to.status)},
			Headers: &process.HeaderMutation{SetHeaders: rawOptions(x.to.header)},
			Body:    x.to.out,
		}}})
}
