package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/server/internal/listen"
)

const off = "off"

// A listener is one of the server's, with its settings.
type listener struct {
	name string
	*rules.Listener
	optional bool // the server starts without it where its address is in use
	counts   listen.Counts
	listener net.Listener // nil: off, or not open yet
}

// open reports whether it is open.
func (l *listener) open() bool { return l != nil && l.listener != nil }

// listeners are the listeners of a server.
type listeners struct{ http, gateway, resp, grpc, metrics, envoy, debug *listener }

func listenersOf(s *rules.Server) listeners {
	return listeners{&listener{name: "http", Listener: &s.HTTP}, &listener{name: "gateway", Listener: &s.Gateway},
		&listener{name: "resp", Listener: &s.RESP}, &listener{name: "grpc", Listener: &s.GRPC},
		&listener{name: "metrics", Listener: &s.Metrics}, &listener{name: "envoy.http", Listener: &s.EnvoyHTTP},
		&listener{name: "envoy.debug", Listener: &s.EnvoyDebug}}
}

func (l *listeners) all() []*listener {
	return []*listener{l.http, l.gateway, l.resp, l.grpc, l.metrics, l.envoy, l.debug}
}

// completeListeners sets defaults that depend on other settings, and refuses settings that contradict each other. asked
// reports whether rules, and with them routes, may come from elsewhere.
func completeListeners(s *rules.Server, set *rules.Set, asked bool) error {
	if (s.Upstream != "" || len(set.Routes()) > 0) && s.Gateway.Listen == "" {
		s.Gateway.Listen = "127.0.0.1:8081"
	}
	if s.Upstream == "" && s.Gateway.Listen != "" && s.Gateway.Listen != off && !asked {
		return program.Usagef(
			"server.gateway has no upstream: give --upstream http://host:port, or --upstream demo, or a " +
				"--config with routes")
	}
	all := listenersOf(s)
	for _, l := range all.all() {
		if l.Listen == off {
			l.Listen = ""
		}
		if err := checkPairs(l.name, l.Listener); err != nil {
			return err
		}
	}
	if s.HTTP.Listen+s.Gateway.Listen+s.RESP.Listen+s.GRPC.Listen+s.EnvoyHTTP.Listen == "" {
		return program.Usagef("no listener is on: leave out --http off, or give --resp, --grpc or --upstream")
	}
	return nil
}

// checkPairs refuses certificates without a key, and the reverse.
func checkPairs(name string, l *rules.Listener) error {
	switch {
	case len(l.TLSCert) != len(l.TLSKey):
		return program.Usagef(
			"server.%[1]s.tls_cert has %[2]d files and server.%[1]s.tls_key %[3]d; each certificate needs "+
				"its key, in the same order", name, len(l.TLSCert), len(l.TLSKey))
	case l.ClientCA != "" && len(l.TLSCert) == 0:
		return program.Usagef(
			"server.%[1]s.client_ca needs TLS: give server.%[1]s.tls_cert and server.%[1]s.tls_key", name)
	}
	return nil
}

// listen opens all listeners, and refuses public ones without authentication.
func (v *server) listen() error {
	const askToken = "a token (--token-file or WEIR_TOKEN; openssl rand -hex 32 makes one)"
	tokens := v.secrets.token+v.secrets.readToken != ""
	passed, err := v.system.passed()
	if err != nil {
		return err
	}
	for _, d := range []struct {
		*listener
		closed bool // callers must authenticate, or access is public on purpose
		ask    string
	}{
		{v.http, tokens, askToken},
		{v.gateway, true, ""},
		{v.resp, v.secrets.password != "", "a password (server.resp.password_file or WEIR_RESP_PASSWORD)"},
		{v.grpc, tokens, askToken},
		{v.metrics, true, ""}, // its address is given only to make it reachable
		{v.envoy, tokens, askToken},
		{v.debug, tokens, askToken},
	} {
		if d.Listen == "" {
			continue
		}
		d.listener.listener, err = v.listenAt(d.listener, passed)
		if errors.Is(err, syscall.EADDRINUSE) && d.optional {
			v.log.Warn("listener left out: another program listens there", "listener", d.name, "address", d.Listen)
			d.listener.listener, d.Listen = nil, ""
			continue
		}
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("server.%s: %w: stop the program that listens there, or give another address", d.name,
				err)
		}
		if err != nil {
			return fmt.Errorf("server.%s: %w", d.name, err)
		}
		switch exposed := !d.closed && d.ClientCA == "" && !d.private(); {
		case exposed && v.engine.Server.Open:
			v.log.Warn("listener without authentication on a public address",
				"listener", d.name, "address", d.listener.listener.Addr().String())
		case exposed:
			return program.Usagef("the %[1]s listener at %[2]s would be open without authentication: give it %[3]s "+
				"or client certificates (server.%[1]s.client_ca), or listen on 127.0.0.1; --open allows it",
				d.name, d.listener.listener.Addr(), d.ask)
		}
		v.where = append(v.where, endpoint{name: d.name, address: d.url()})
	}
	for name, file := range passed {
		v.log.Warn("systemd passed a socket that no listener has; fd:"+name+" is its address", "socket", name)
		file.Close()
	}
	return nil
}

func (v *server) listenAt(l *listener, passed map[string]*os.File) (net.Listener, error) {
	c := listen.Config{Address: l.Listen, Passed: passed, Certs: l.TLSCert, Keys: l.TLSKey, ClientCA: l.ClientCA,
		ClientNames: l.ClientNames, ReusePort: l.ReusePort, ProxyProtocol: l.ProxyProtocol,
		Counts: &l.counts, Log: v.log, PerAddress: (l.MaxConnections + 1) / 2, Exempt: exempt(v.engine.Clients)}
	switch l.name {
	case "resp": // it counts connections itself, to send an error before closing one
	case "grpc":
		c.NextProtos, c.Connections = []string{"h2"}, l.MaxConnections
	default:
		c.NextProtos, c.Connections = []string{"h2", "http/1.1"}, l.MaxConnections
	}
	if l.name == "http" || l.name == "metrics" || l.name == "envoy.http" {
		c.Reserve = min(max(l.MaxConnections/16, 2), 16)
	}
	if l.ProxyProtocol && !strings.HasPrefix(l.Listen, "unix:") {
		c.Trusted = v.engine.Trusted
	}
	return c.Listen(context.Background())
}

// exempt returns the addresses that may have all connections of a listener: a trusted proxy, which has connections of
// many clients, and this machine, where it is a proxy in the same pod.
func exempt(clients *clientaddr.Extractor) func(netip.Addr) bool {
	return func(client netip.Addr) bool { return client.IsLoopback() || clients.Trusts(client) }
}

// private reports whether only this machine can reach a listener. With the PROXY protocol a load
// balancer forwards connections from elsewhere.
func (l *listener) private() bool {
	return listen.IsLoopbackListener(l.listener) && !l.ProxyProtocol
}

// url is the URL of the listener.
func (l *listener) url() string {
	if at, ok := l.listener.Addr().(*net.UnixAddr); ok {
		return "unix:" + at.Name
	}
	scheme := map[string]string{"resp": "redis", "grpc": "grpc"}[l.name]
	if scheme == "" {
		scheme = "http"
	}
	if len(l.TLSCert) > 0 {
		scheme += "s"
	}
	return scheme + "://" + reachable(l.listener.Addr().String())
}

// reachable is the address for a client on this machine.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("localhost", port)
	}
	return address
}
