package grpclimit

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/httplimit"
)

// A Call is the subject of limits: a call, or a message of a stream.
type Call struct {
	Method string // the full method: /package.Service/Method
	// Message is the request of a unary call, and the received message in limits of Options.Messages. It is nil for a
	// stream, which is counted when it is opened, before it has received a message.
	Message any

	received bool // a message of a stream
}

// A Key returns the key that counts a call. An error, or "", means that the call has no key: see Missing in
// [Options]. The keys of this package return httplimit.ErrMissing. The context is the call's, with its peer and
// metadata.
type Key func(context.Context, *Call) (string, error)

// PeerAddress is the address of the connection's peer; for IPv6 its /64, since one subscriber has 2^64 addresses. It
// reads no metadata: behind a proxy all clients share the proxy's address. See [ClientAddress].
func PeerAddress(ctx context.Context, _ *Call) (string, error) {
	return keyOf(addressOf(ctx, new(clientaddr.Extractor)))
}

// ClientAddress is PeerAddress behind trusted proxies: their metadata names the client.
func ClientAddress(proxies *clientaddr.Extractor) Key {
	if proxies == nil {
		proxies = new(clientaddr.Extractor)
	}
	return func(ctx context.Context, _ *Call) (string, error) { return keyOf(addressOf(ctx, proxies)) }
}

func keyOf(address netip.Addr, ok bool) (string, error) {
	if !ok {
		return "", httplimit.ErrMissing
	}
	buffer := append(make([]byte, 0, 64), "ip:"...)
	return string(clientaddr.Mask{}.AppendKey(buffer, address)), nil
}

// addressOf is the address of the client; ok is false if it has no address, as on a Unix socket.
func addressOf(ctx context.Context, proxies *clientaddr.Extractor) (address netip.Addr, ok bool) {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return netip.Addr{}, false
	}
	lines := metadata.ValueFromIncomingContext(ctx, strings.ToLower(proxies.Header()))
	if p.Addr.Network() == "unix" {
		return proxies.FromUnix(lines)
	}
	return proxies.From(p.Addr.String(), lines)
}

// Method is the full method, so that each method has its own budget.
func Method(_ context.Context, call *Call) (string, error) { return "method:" + call.Method, nil }

// Metadata is the first value of a metadata field, such as an API key that was verified before. An unverified value is
// no limit: the client can invent another.
func Metadata(name string) Key {
	name = strings.ToLower(name)
	prefix := "metadata:" + name + ":"
	return func(ctx context.Context, _ *Call) (string, error) {
		values := metadata.ValueFromIncomingContext(ctx, name)
		if len(values) == 0 || values[0] == "" {
			return "", httplimit.ErrMissing
		}
		return prefix + values[0], nil
	}
}

// Joined combines several keys. Each part is prefixed with its length, so that different parts never give the same
// text. If one is missing, the whole key is.
func Joined(keys ...Key) Key {
	return func(ctx context.Context, call *Call) (string, error) {
		var joined []byte
		for _, key := range keys {
			part, err := key(ctx, call)
			if err != nil || part == "" {
				return "", errors.Join(httplimit.ErrMissing, err)
			}
			joined = strconv.AppendInt(joined, int64(len(part)), 10)
			joined = append(append(joined, ':'), part...)
		}
		return string(joined), nil
	}
}
