package proxy

import (
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// NewTransport is how a gateway reaches its upstream. Change its fields before you hand it
// to WithTransport:
//
//   - a connection must be there within 5 seconds, its TLS within another 5;
//   - ResponseHeaderTimeout is 0: answers may take as long as they want, until the client
//     goes. Where it is set, what takes longer is answered 504;
//   - MaxConnsPerHost is 0: as many connections as there are requests. Where it is set,
//     requests wait for a free one, also behind WebSockets, which keep theirs;
//   - up to 512 idle connections are kept, for a minute each;
//   - bodies stay as they are: nothing is compressed or decompressed on the way;
//   - HTTP_PROXY is not for what comes in.
func NewTransport(upstream *url.URL) *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	t := &http.Transport{
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		MaxIdleConnsPerHost:    512,
		IdleConnTimeout:        time.Minute,
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

// bufferSize is what ReverseProxy itself would allocate for each answer.
const bufferSize = 32 << 10

// buffers are used again. They are kept as pointers to arrays: a slice would be copied to
// the heap each time it is put back.
type buffers struct{ pool sync.Pool }

// Get is a buffer of bufferSize.
func (b *buffers) Get() []byte {
	if array, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return array[:]
	}
	return new([bufferSize]byte)[:]
}

// Put takes one back.
func (b *buffers) Put(buffer []byte) { b.pool.Put((*[bufferSize]byte)(buffer)) }
