package gateway

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// NewTransport returns the default transport of a gateway. Change its fields before passing it to
// WithTransport:
//
//   - connecting takes at most 5 seconds, the TLS handshake another 5;
//   - ResponseHeaderTimeout is 0: a response may take until the client disconnects. If it is set, a
//     slower response becomes a 504;
//   - MaxConnsPerHost is 0, which is no limit. If it is set, requests wait for a free connection,
//     also behind WebSockets, which keep theirs;
//   - at most 512 idle connections are kept, for 4 seconds each: servers such as Node.js close them after 5, and a
//     request that is then on its way fails;
//   - bodies are neither compressed nor decompressed;
//   - HTTP_PROXY is ignored: it concerns outgoing requests of the process, not forwarded ones.
func NewTransport(upstream *url.URL) *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	t := &http.Transport{
		DialContext:            connects(dialer),
		TLSHandshakeTimeout:    5 * time.Second,
		MaxIdleConnsPerHost:    512,
		IdleConnTimeout:        4 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 1 << 20,
		DisableCompression:     true,
		Protocols:              new(http.Protocols),
	}
	if upstream.Scheme == h2c {
		t.Protocols.SetUnencryptedHTTP2(true)
		return t
	}
	t.Protocols.SetHTTP1(true)
	t.Protocols.SetHTTP2(true)
	return t
}

// connects returns a DialContext with errors of the type notConnected.
func connects(dialer *net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, &notConnected{err}
		}
		return conn, nil
	}
}

// bufferSize is the size of the buffers that ReverseProxy would allocate for each response.
const bufferSize = 32 << 10

// buffers pools buffers as pointers to arrays: a slice would be copied to the heap each time it is
// put back.
type buffers struct{ pool sync.Pool }

// Get returns a buffer of bufferSize.
func (b *buffers) Get() []byte {
	if array, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return array[:]
	}
	return new([bufferSize]byte)[:]
}

// Put returns a buffer to the pool.
func (b *buffers) Put(buffer []byte) { b.pool.Put((*[bufferSize]byte)(buffer)) }
