// Package listen opens the listeners of the server's front ends: on TCP or on a Unix socket, with
// TLS, with client certificates, behind a balancer that speaks the PROXY protocol.
//
// The order on the wire is the one that balancers use: the PROXY header, then TLS, then the
// protocol of the front end.
//
// # The PROXY protocol
//
// A balancer that forwards connections (and not requests) names the client in a header before the
// first byte. The source address of the connection, RemoteAddr, is then the client's. Only trusted
// peers may send that header, versions 1 and 2, and they must: if it were optional, any program
// that can make the balancer's host connect would pass for the balancer. A connection from an
// untrusted peer is closed if it starts with the header; without it, its source address is its own.
//
// Two headers name no client: LOCAL (the balancer's own health checks) and UNKNOWN. The source is
// then the balancer. Do not also trust the balancer's address for X-Forwarded-For, unless it is an
// HTTP proxy as well: that trust then applies to the clients that the header names.
//
// # Connection limit
//
// An idle connection costs a file descriptor, and the process has a limited number of them for all
// its work. Connections are counted where they are accepted, so the limit includes connections that
// an HTTP server hands over (WebSockets). One client may hold a part of them only, or it could shut out
// all others. A few more than the maximum may be reserved for health checks: a server that is full
// and works must not be restarted for that.
//
// # Unix sockets
//
// The mode of the file controls access. The file of a dead process is removed, once a connection to
// it was refused.
package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/clientaddr"
)

// A Config describes a listener. It is plain data.
type Config struct {
	// Address is host:port, such as 127.0.0.1:8080, [::1]:8080 or :8080 for all addresses of the
	// machine; port 0 chooses a free one. Or it is a Unix socket: unix:///run/weir.sock, or
	// unix:///run/weir.sock?mode=0660. The default mode is 0600: only the same user may connect. Or it
	// is fd:NAME, a socket of Passed.
	Address string
	// Passed are sockets that another process opened for this one, by name. Listen takes the one that
	// it opens out of the map, and closes its file.
	Passed map[string]*os.File
	// ReusePort lets other processes of the same user listen on the address too, if they ask for it as well: the next
	// process starts before this one ends, and no connection is refused. It has an effect on host:port alone, on Linux.
	ReusePort bool

	// Certs and Keys are PEM files: certificates with their chains, and the key of each. A client gets
	// the certificate with the name that it asks for, else one with a wildcard that covers it, else the first.
	// Files are reloaded when they change; a pair that cannot be used is logged, and the previous one
	// stays.
	Certs, Keys []string
	// ClientCA is a file of PEM certificates. Clients must present a certificate signed by one of
	// these.
	ClientCA string
	// ClientNames, if not empty, are DNS names, IP addresses and URIs of which a client's certificate must have one.
	ClientNames []string
	// NextProtos are the ALPN protocols of the TLS handshake, such as "h2" and "http/1.1". Leave it
	// empty for protocols without an ALPN name.
	NextProtos []string

	// ProxyProtocol requires PROXY headers from the peers in Trusted; on a Unix socket from all
	// peers, and Trusted must be empty there.
	ProxyProtocol bool
	Trusted       []netip.Prefix
	// HeaderTimeout is the time limit for a PROXY header; 0 is 5 seconds.
	HeaderTimeout time.Duration

	// Connections is the maximum of open connections, counted from accept to close; connections
	// beyond it are closed on accept. 0 is no limit.
	Connections int
	// PerAddress is the maximum of open connections of one address (IPv6: of one /64); 0 is no limit.
	// With the PROXY protocol it is the address that the header names.
	PerAddress int
	// Exempt, if non-nil, reports addresses without that limit.
	Exempt func(netip.Addr) bool
	// Reserve is the number of connections beyond these maxima that are open for health checks, for
	// 2 seconds each. The front end asks [Of], and ends connections that want anything else.
	Reserve int
	// Counts, if non-nil, counts the connections of this listener alone.
	Counts *Counts

	// Log receives certificate reloads, failed ones too, and a reached connection limit; nil is
	// slog.Default().
	Log *slog.Logger
}

// Listen opens the listener. Mistakes in the config are of type *[weir.InputError], joined if there
// are several; other errors come from the network and the files.
//
// With TLS the connections are of type *tls.Conn, as http.Server requires for HTTP/2. With the
// PROXY protocol a connection's addresses wait for the header, as its first Read does: call
// RemoteAddr on the connection's own goroutine, not in the accept loop.
func (c Config) Listen(ctx context.Context) (net.Listener, error) {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	at, err := c.check()
	if err != nil {
		return nil, err
	}
	var secured *tls.Config
	if len(c.Certs) > 0 { // before the socket is open
		if secured, err = newReloader(c).config(); err != nil {
			return nil, err
		}
	}
	listener, err := c.open(ctx, at)
	if err != nil {
		return nil, err
	}
	if c.Counts == nil {
		c.Counts = new(Counts)
	}
	// Innermost, so that a connection counts before its first byte is read.
	bounded := c.bounded(listener)
	listener = bounded
	if c.ProxyProtocol {
		listener = &named{Listener: c.behindBalancer(listener), places: c.places(0, c.PerAddress), ceiling: bounded}
	}
	if secured != nil {
		listener = tls.NewListener(listener, secured)
	}
	return listener, nil
}

// bounded adds the limits of connections.
func (c Config) bounded(listener net.Listener) *ceiling {
	bounded := &ceiling{Listener: listener, places: c.places(c.Connections, c.PerAddress), log: c.Log,
		counts: c.Counts, logged: make(map[refusal]time.Time)}
	if c.Reserve > 0 {
		bounded.reserved = c.places(c.Reserve, (c.Reserve+1)/2)
	}
	return bounded
}

func (c Config) places(most, share int) *places {
	return &places{most: most, share: share, exempt: c.Exempt, held: make(map[netip.Prefix]int)}
}

// check reports all mistakes of the config at once.
func (c Config) check() (address, error) {
	at, err := parseAddress(c.Address)
	errs := []error{err}
	wrong := func(when bool, field string, given any, allowed string) {
		if when {
			errs = append(errs, &weir.InputError{Field: field, Given: given, Allowed: allowed})
		}
	}
	wrong(len(c.Certs) != len(c.Keys), "keys", c.Keys,
		fmt.Sprintf("as many files as certificates, which are %d, in the same order", len(c.Certs)))
	wrong(c.ClientCA != "" && len(c.Certs) == 0, "client_ca", c.ClientCA,
		"only with certs and keys: client certificates need TLS")
	wrong(len(c.ClientNames) > 0 && c.ClientCA == "", "client_names", c.ClientNames,
		"only with client_ca: the names of other certificates mean nothing")
	wrong(!c.ProxyProtocol && len(c.Trusted) > 0, "trusted", c.Trusted, "only with the PROXY protocol")
	wrong(c.ProxyProtocol && at.path == "" && len(c.Trusted) == 0, "trusted", c.Trusted,
		"the networks of your balancers, such as 10.0.0.0/8: without them every PROXY header is refused")
	wrong(c.ProxyProtocol && at.path != "" && len(c.Trusted) > 0, "trusted", c.Trusted,
		"none on a Unix socket: its peers have no address, and all must send the PROXY header")
	wrong(c.Connections < 0, "connections", c.Connections, "1 or more, or 0 for no limit")
	wrong(c.PerAddress < 0, "per_address", c.PerAddress, "1 or more, or 0 for no limit")
	wrong(c.Reserve < 0, "reserve", c.Reserve, "0 or more")
	wrong(c.HeaderTimeout < 0, "header_timeout", c.HeaderTimeout, "a time above 0, or 0 for 5s")
	if _, err := clientaddr.New(c.Trusted); err != nil {
		errs = append(errs, err)
	}
	return at, errors.Join(errs...)
}

// behindBalancer adds the reading of PROXY headers.
func (c Config) behindBalancer(listener net.Listener) net.Listener {
	timeout := c.HeaderTimeout
	if timeout == 0 {
		timeout = 5 * time.Second
	}
	trusted, _ := clientaddr.New(c.Trusted) // validated by check
	return &proxyproto.Listener{
		Listener: listener, ReadHeaderTimeout: timeout, ValidateHeader: namesAClient,
		ConnPolicy: func(o proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
			peer, ok := o.Upstream.(*net.TCPAddr)
			if !ok || trusted.Trusts(peer.AddrPort().Addr()) {
				return proxyproto.REQUIRE, nil
			}
			return proxyproto.REJECT, nil
		},
	}
}

// namesAClient refuses headers with a source other than TCP. A Unix socket as source would look like a
// peer on a Unix socket of this server, which may be trusted.
func namesAClient(h *proxyproto.Header) error {
	if h.Command.IsLocal() || h.TransportProtocol == proxyproto.TCPv4 || h.TransportProtocol == proxyproto.TCPv6 {
		return nil
	}
	return proxyproto.ErrUnsupportedAddressFamilyAndProtocol
}

// An address is a path, the name of a passed socket, or a host and a port.
type address struct {
	path       string
	passed     string
	mode       os.FileMode
	host, port string
}

const allowedAddress = "host:port such as 127.0.0.1:8080 or :8080, unix:///path?mode=0660, or fd:NAME, a passed socket"

func parseAddress(text string) (address, error) {
	if strings.HasPrefix(text, "unix:") {
		return parseUnix(text)
	}
	if name, ok := strings.CutPrefix(text, "fd:"); ok && name != "" {
		return address{passed: name}, nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return address{}, &weir.InputError{Field: "address", Given: text, Allowed: allowedAddress}
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return address{}, &weir.InputError{Field: "address", Given: text,
			Allowed: "a port from 0 (any free one) to 65535"}
	}
	return address{host: host, port: port}, nil
}

func parseUnix(text string) (address, error) {
	wrong := func(allowed string) (address, error) {
		return address{}, &weir.InputError{Field: "address", Given: text, Allowed: allowed}
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "unix" || u.Host != "" || u.Opaque != "" || u.Fragment != "" ||
		len(u.Path) < 2 || strings.HasSuffix(u.Path, "/") {
		return wrong("an absolute path, as in unix:///run/weir.sock")
	}
	if len(u.Path) > maxSocketPath {
		return wrong(fmt.Sprintf("a path of at most %d bytes, the maximum for sockets", maxSocketPath))
	}
	at := address{path: u.Path, mode: 0o600}
	if u.RawQuery == "" && !u.ForceQuery {
		return at, nil
	}
	digits, ok := strings.CutPrefix(u.RawQuery, "mode=")
	mode, err := strconv.ParseUint(digits, 8, 32)
	if !ok || err != nil || mode > 0o777 || len(digits) < 3 || len(digits) > 4 {
		return wrong("after the path nothing, or ?mode= with the octal digits of a file's mode, such as ?mode=0660")
	}
	at.mode = os.FileMode(mode)
	return at, nil
}

func (c Config) open(ctx context.Context, at address) (net.Listener, error) {
	switch {
	case at.path != "":
		return at.openUnix(ctx)
	case at.passed != "":
		return c.openPassed(at.passed)
	}
	var config net.ListenConfig
	if c.ReusePort {
		config.Control = reusePort
	}
	return config.Listen(ctx, "tcp", net.JoinHostPort(at.host, at.port))
}

// IsLoopbackListener reports whether only this machine can reach a listener: it is on a Unix socket
// or on a loopback address. It reads the bound address: a name in the config may resolve
// differently by now.
func IsLoopbackListener(l net.Listener) bool {
	switch at := l.Addr().(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		return at.AddrPort().Addr().Unmap().IsLoopback()
	}
	return false
}
