package xdssource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/server/internal/listen"
)

// TCP notices a dead host within a minute. Pings of HTTP/2 notice a dead process, also behind a proxy; they are rare
// because a server by grpc-go ends connections with pings less than five minutes apart, unless it is told not to.
var probes = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 3}

const (
	pingAfter  = 5*time.Minute + 30*time.Second
	pingWithin = 20 * time.Second
)

// maxDetail is the most bytes of the error that a control plane is told.
const maxDetail = 2000

// A dialer opens streams to a control plane.
type dialer struct {
	config  *Config
	node    *core.Node
	headers metadata.MD
	connect func(ctx context.Context, address string) (net.Conn, error)
}

func newDialer(c *Config) (*dialer, error) {
	d := &dialer{config: c, headers: metadata.MD{}, connect: func(ctx context.Context, at string) (net.Conn, error) {
		return (&net.Dialer{KeepAliveConfig: probes}).DialContext(ctx, "tcp", at)
	}}
	d.node = &core.Node{Id: c.Node, Metadata: &structpb.Struct{Fields: make(map[string]*structpb.Value)},
		UserAgentName: "weir", UserAgentVersionType: &core.Node_UserAgentVersion{UserAgentVersion: c.Version}}
	for _, text := range c.Metadata {
		key, value, _ := strings.Cut(text, "=")
		d.node.Metadata.Fields[key] = structpb.NewStringValue(value)
	}
	for _, text := range c.Headers {
		name, value, _ := strings.Cut(text, "=")
		d.headers.Append(name, value)
	}
	_, err := d.credentials()
	return d, err
}

// check checks the values that are not files. Errors do not repeat headers: they may have secrets.
func (c *Config) check() error {
	var errs []error
	wrong := func(when bool, field string, given any, allowed string) {
		if when {
			errs = append(errs, &weir.InputError{Field: field, Given: given, Allowed: allowed})
		}
	}
	host, port, err := net.SplitHostPort(c.Server)
	wrong(err != nil || host == "" || port == "", "server", c.Server, "host:port, such as envoy-gateway:18001")
	wrong(!utf8.ValidString(c.Node), "node", c.Node, "text in UTF-8")
	for _, text := range c.Metadata {
		key, _, ok := strings.Cut(text, "=")
		wrong(!ok || key == "" || !utf8.ValidString(text), "metadata", text, "KEY=VALUE, in UTF-8")
	}
	for i, text := range c.Headers {
		name, value, _ := strings.Cut(text, "=")
		wrong(!isHeader(name, value), "headers", fmt.Sprintf("number %d", i+1), "NAME=VALUE, the name of letters, "+
			"digits, - and _, without grpc- at its start or -bin at its end; the value of printable ASCII")
	}
	wrong((c.Cert == "") != (c.Key == ""), "cert, key", c.Cert+", "+c.Key, "both, or neither")
	wrong(!c.TLS && c.CA+c.Cert+c.ServerName != "", "tls", c.TLS, "true with ca, cert or server_name")
	wrong(c.Backoff <= 0 || c.MaxBackoff < c.Backoff, "backoff_max", c.MaxBackoff,
		fmt.Sprintf("backoff, which is %v, or more; and that above 0", c.Backoff))
	wrong(c.MaxMessage <= 0, "max_message", c.MaxMessage, "1 byte or more")
	return errors.Join(errs...)
}

func isHeader(name, value string) bool {
	lower := strings.ToLower(name)
	return name != "" && strings.Trim(lower, "abcdefghijklmnopqrstuvwxyz0123456789-_") == "" &&
		!strings.HasPrefix(lower, "grpc-") && !strings.HasSuffix(lower, "-bin") &&
		!strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' })
}

// credentials reads the certificates.
func (d *dialer) credentials() (credentials.TransportCredentials, error) {
	if !d.config.TLS {
		return insecure.NewCredentials(), nil
	}
	config, err := listen.ClientTLS(d.config.CA, d.config.Cert, d.config.Key)
	if err != nil {
		return nil, err
	}
	config.ServerName = d.config.ServerName
	return credentials.NewTLS(config), nil
}

// A stream receives responses until it ends.
type stream struct {
	dialer    *dialer
	conn      *grpc.ClientConn
	ads       discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	began     time.Time
	cancel    context.CancelFunc
	responses chan *response // closed at the end
	err       error          // why it ended; set before that
	reading   sync.WaitGroup
}

// open connects, and asks for all resources. It opens a connection of its own for each stream, so that a name is
// resolved and certificates are read anew.
func (d *dialer) open(ctx context.Context) (s *stream, err error) {
	secured, err := d.credentials()
	if err != nil {
		return nil, err
	}
	s = &stream{dialer: d, began: time.Now(), responses: make(chan *response)}
	s.conn, err = grpc.NewClient("passthrough:///"+d.config.Server, grpc.WithTransportCredentials(secured),
		grpc.WithContextDialer(d.connect), grpc.WithUserAgent("weir"), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(d.config.MaxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingWithin}))
	if err != nil {
		return nil, err
	}
	var running context.Context
	running, s.cancel = context.WithCancel(metadata.NewOutgoingContext(context.WithoutCancel(ctx), d.headers))
	late := time.AfterFunc(patience, s.cancel)
	ended := context.AfterFunc(ctx, s.cancel)
	s.ads, err = discovery.NewAggregatedDiscoveryServiceClient(s.conn).StreamAggregatedResources(running)
	ended()
	if !late.Stop() && ctx.Err() == nil {
		err = fmt.Errorf("no connection within %v", patience)
	}
	if err != nil {
		s.close()
		return nil, d.because(err)
	}
	s.send(new(discovery.DiscoveryRequest))
	s.reading.Go(func() { s.read(running) })
	return s, nil
}

// read passes responses on until the stream ends.
func (s *stream) read(ctx context.Context) {
	defer close(s.responses)
	for {
		r, err := s.ads.Recv()
		if err != nil {
			s.err = s.dialer.because(err)
			return
		}
		select {
		case s.responses <- newResponse(r):
		case <-ctx.Done():
			s.err = ctx.Err()
			return
		}
	}
}

// answer acknowledges a response or, with an error, refuses it. accepted is the version of the last good one.
func (s *stream) answer(r *response, accepted string, refused error) {
	request := &discovery.DiscoveryRequest{VersionInfo: accepted, ResponseNonce: r.GetNonce()}
	if refused != nil {
		text := refused.Error()
		if len(text) > maxDetail {
			text = text[:maxDetail] + "…"
		}
		request.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument),
			Message: strings.ToValidUTF8(text, "?")}
	}
	s.send(request)
}

// send sends a request with the node, which some control planes want in each. An error ends the stream, and the reader
// returns it.
func (s *stream) send(request *discovery.DiscoveryRequest) {
	request.Node, request.TypeUrl = s.dialer.node, typeURL
	_ = s.ads.Send(request)
}

// close ends the stream and its connection.
func (s *stream) close() {
	s.cancel()
	s.conn.Close()
	s.reading.Wait()
}

// because is the error of a stream in words for its operator.
func (d *dialer) because(err error) error {
	s, ok := status.FromError(err)
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("the control plane ended the stream")
	case !ok:
		return err
	case s.Code() == codes.ResourceExhausted:
		return fmt.Errorf("%s (max_message is %d bytes)", s.Message(), d.config.MaxMessage)
	}
	if quoted, ok := strings.CutPrefix(s.Message(), "connection error: desc = "); ok {
		if text, err := strconv.Unquote(quoted); err == nil {
			return errors.New(strings.TrimPrefix(text, "transport: "))
		}
	}
	return fmt.Errorf("%v: %s", s.Code(), s.Message())
}
