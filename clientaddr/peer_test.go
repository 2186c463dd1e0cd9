package clientaddr_test

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"github.com/weirproject/weir/clientaddr"
)

// The connection decides, not a header.
func TestTrustsPeer(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	plain, err := clientaddr.New(trusted)
	if err != nil {
		t.Fatal(err)
	}
	unix, err := clientaddr.New(trusted, clientaddr.WithTrustedUnix())
	if err != nil {
		t.Fatal(err)
	}
	socket := context.WithValue(t.Context(), http.LocalAddrContextKey, &net.UnixAddr{Name: "/run/s", Net: "unix"})
	for _, tt := range []struct {
		name       string
		ctx        context.Context
		remote     string
		plain, too bool // plain, and with Unix sockets
	}{
		{"a proxy", t.Context(), "10.1.2.3:4", true, true},
		{"one in IPv6's spelling", t.Context(), "[::ffff:10.1.2.3]:4", true, true},
		{"an untrusted address", t.Context(), "192.0.2.1:4", false, false},
		{"no address", t.Context(), "@", false, false},
		{"a socket", socket, "@", false, true},
		{"a socket that middleware gave an address", socket, "10.1.2.3:4", false, true},
	} {
		r := (&http.Request{RemoteAddr: tt.remote,
			Header: http.Header{"X-Forwarded-For": {"10.1.2.3"}}}).WithContext(tt.ctx)
		if a, b := plain.TrustsPeer(r), unix.TrustsPeer(r); a != tt.plain || b != tt.too {
			t.Errorf("%s: %v, with sockets %v", tt.name, a, b)
		}
		if new(clientaddr.Extractor).TrustsPeer(r) {
			t.Errorf("%s: the zero Extractor trusts it", tt.name)
		}
	}
}
