// Package listen makes the listeners of the server's doors: on TCP or on a Unix socket,
// with TLS, with client certificates, behind a balancer that speaks the PROXY protocol.
//
// What is on the wire comes in this order, as balancers send it: the PROXY header, then
// TLS, then what the door speaks.
//
// # The PROXY protocol
//
// A balancer that forwards connections (and not requests) names the client in a header
// before the first byte: the source address of the connection is then the client's, for
// whoever asks RemoteAddr. Only trusted peers may send that header, versions 1 and 2, and
// they must: if it were optional, whoever can make the balancer's host connect would be
// taken for the balancer. A peer that is not trusted and sends one is hung up on; one that
// sends none is who it is.
//
// Two answers name no client: LOCAL (the balancer's own health checks) and UNKNOWN. The
// source is then the balancer. Do not trust the balancer's address in X-Forwarded-For too,
// unless it also is an HTTP proxy: the trust there is in whom the header names.
//
// # Ceilings
//
// Clients that open connections and say nothing cost a file descriptor each, of which the
// process has only so many for all that it does. A ceiling is counted where connections are
// accepted, so it holds for those too that HTTP hands over (WebSockets).
//
// # Unix sockets
//
// Who may connect is what the file's mode says. A file that a dead process left is
// removed, after nobody answered there.
package listen

import (
	"context"
	"crypto/tls"
	"errors"
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

// A Config says what to listen on, and how. It is plain data.
type Config struct {
	// Address is host:port, as 127.0.0.1:8080, [::1]:8080 or :8080 for all addresses of
	// the machine; port 0 chooses a free one. Or it is a Unix socket: unix:///run/weir.sock,
	// or unix:///run/weir.sock?mode=0660. The mode is 0600, if none is given: only the same
	// user may connect.
	Address string

	// Cert and Key are files of PEM: the certificate with its chain, and its key. Both or
	// neither. They are read again when they change: what cannot be used then is logged, and
	// the old one stays.
	Cert, Key string
	// ClientCA is a file of PEM certificates. Clients must show one that these signed.
	ClientCA string
	// NextProtos are the protocols to agree upon in the TLS handshake, such as "h2" and
	// "http/1.1". None is right for protocols that have no name there.
	NextProtos []string

	// ProxyProtocol expects PROXY headers from the peers in Trusted; on a Unix socket from
	// all, and Trusted must be empty there.
	ProxyProtocol bool
	Trusted       []netip.Prefix
	// HeaderTimeout is how long a PROXY header may take; 0 is 5 seconds.
	HeaderTimeout time.Duration

	// Connections is how many may be open at one time, from their first byte, or before it, to
	// their end; those beyond are closed as they come. 0 is no ceiling.
	Connections int
	// Counts, if it is not nil, counts the connections of this listener alone.
	Counts *Counts

	// Log is told of certificates that were read again, and that could not, and of
	// connections that were too many; nil is slog.Default().
	Log *slog.Logger
}

// Listen opens what the config says. Its errors are of type *[weir.InputError] for what is
// wrong in the config, joined if there are several; and those of the network and the files.
//
// With TLS the listener's connections are of type *tls.Conn, as http.Server wants for
// HTTP/2. With the PROXY protocol a connection's addresses wait for the header, as its
// first Read does: ask for them where that holds up nobody else, not in the loop that
// accepts.
func (c Config) Listen(ctx context.Context) (net.Listener, error) {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	at, err := c.check()
	if err != nil {
		return nil, err
	}
	var secured *tls.Config
	if c.Cert != "" { // before anything is open
		if secured, err = newReloader(c).config(); err != nil {
			return nil, err
		}
	}
	listener, err := at.open(ctx)
	if err != nil {
		return nil, err
	}
	if c.Counts == nil {
		c.Counts = new(Counts)
	}
	// Before anything is read from a connection.
	listener = &ceiling{Listener: listener, most: int64(c.Connections), log: c.Log, counts: c.Counts}
	if c.ProxyProtocol {
		listener = c.behindBalancer(listener)
	}
	if secured != nil {
		listener = tls.NewListener(listener, secured)
	}
	return listener, nil
}

// check finds everything that is wrong before anything is opened.
func (c Config) check() (address, error) {
	at, err := parseAddress(c.Address)
	errs := []error{err}
	wrong := func(when bool, field string, given any, allowed string) {
		if when {
			errs = append(errs, &weir.InputError{Field: field, Given: given, Allowed: allowed})
		}
	}
	wrong(c.Cert != "" && c.Key == "", "key", c.Key, "the file of the certificate's key; cert and key go together")
	wrong(c.Cert == "" && c.Key != "", "cert", c.Cert, "the file of the key's certificate; cert and key go together")
	wrong(c.ClientCA != "" && c.Cert == "", "client_ca", c.ClientCA, "only with cert and key: client certificates need TLS")
	wrong(!c.ProxyProtocol && len(c.Trusted) > 0, "trusted", c.Trusted, "only with the PROXY protocol")
	wrong(c.ProxyProtocol && at.path == "" && len(c.Trusted) == 0, "trusted", c.Trusted, "the networks of your balancers, such as 10.0.0.0/8: with none, nobody could send a PROXY header")
	wrong(c.ProxyProtocol && at.path != "" && len(c.Trusted) > 0, "trusted", c.Trusted, "none on a Unix socket: its peers have no address, and all must send the PROXY header")
	wrong(c.Connections < 0, "connections", c.Connections, "1 or more, or 0 for no ceiling")
	wrong(c.HeaderTimeout < 0, "header_timeout", c.HeaderTimeout, "a time above 0, or 0 for 5s")
	if _, err := clientaddr.New(c.Trusted); err != nil {
		errs = append(errs, err)
	}
	return at, errors.Join(errs...)
}

// behindBalancer reads PROXY headers.
func (c Config) behindBalancer(listener net.Listener) net.Listener {
	timeout := c.HeaderTimeout
	if timeout == 0 {
		timeout = 5 * time.Second
	}
	trusted, _ := clientaddr.New(c.Trusted) // check did it too
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

// namesAClient refuses sources that are not of TCP. One on a Unix socket would be taken for
// a peer on a socket of ours, which may be trusted.
func namesAClient(h *proxyproto.Header) error {
	if h.Command.IsLocal() || h.TransportProtocol == proxyproto.TCPv4 || h.TransportProtocol == proxyproto.TCPv6 {
		return nil
	}
	return proxyproto.ErrUnsupportedAddressFamilyAndProtocol
}

// An address is where to listen: a path, or a host and a port.
type address struct {
	path       string
	mode       os.FileMode
	host, port string
}

const allowedAddress = "host:port such as 127.0.0.1:8080 or :8080, or unix:///path?mode=0660"

func parseAddress(text string) (address, error) {
	if strings.HasPrefix(text, "unix:") {
		return parseUnix(text)
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return address{}, &weir.InputError{Field: "address", Given: text, Allowed: allowedAddress}
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return address{}, &weir.InputError{Field: "address", Given: text, Allowed: "a port from 0 (any free one) to 65535"}
	}
	return address{host: host, port: port}, nil
}

func parseUnix(text string) (address, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "unix" || u.Host != "" || u.Opaque != "" || len(u.Path) < 2 || strings.HasSuffix(u.Path, "/") || u.Fragment != "" {
		return address{}, &weir.InputError{Field: "address", Given: text, Allowed: "an absolute path, as in unix:///run/weir.sock"}
	}
	if len(u.Path) > maxSocketPath {
		return address{}, &weir.InputError{Field: "address", Given: text, Allowed: "a path of at most " + strconv.Itoa(maxSocketPath) + " bytes: systems do not take longer ones for sockets"}
	}
	at := address{path: u.Path, mode: 0o600}
	if u.RawQuery == "" && !u.ForceQuery {
		return at, nil
	}
	digits, ok := strings.CutPrefix(u.RawQuery, "mode=")
	mode, err := strconv.ParseUint(digits, 8, 32)
	if !ok || err != nil || mode > 0o777 || len(digits) < 3 || len(digits) > 4 {
		return address{}, &weir.InputError{Field: "address", Given: text, Allowed: "after the path nothing, or ?mode= with the octal digits of a file's mode, such as ?mode=0660"}
	}
	at.mode = os.FileMode(mode)
	return at, nil
}

func (a address) open(ctx context.Context) (net.Listener, error) {
	if a.path != "" {
		return a.openUnix(ctx)
	}
	var config net.ListenConfig
	return config.Listen(ctx, "tcp", net.JoinHostPort(a.host, a.port))
}

// IsLoopback reports whether only this machine can reach an address of a Config: it is a
// Unix socket, a loopback address, or a name all of whose addresses are. What cannot be
// told is not: an address that is wrong, a name that does not resolve.
func IsLoopback(ctx context.Context, text string) bool {
	at, err := parseAddress(text)
	switch {
	case err != nil:
		return false
	case at.path != "":
		return true
	case at.host == "": // all of the machine's
		return false
	}
	if ip, err := netip.ParseAddr(at.host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", at.host)
	for _, ip := range all {
		if !ip.Unmap().IsLoopback() {
			return false
		}
	}
	return err == nil && len(all) > 0
}

// IsLoopbackListener is [IsLoopback] for what is open: no name can mean something else by now.
func IsLoopbackListener(l net.Listener) bool {
	switch at := l.Addr().(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		return at.AddrPort().Addr().Unmap().IsLoopback()
	}
	return false
}
