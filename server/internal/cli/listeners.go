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
	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/server/internal/listen"
)

const off = "off"

// complete sets defaults that depend on other flags, and refuses flags that contradict each other.
// routes reports whether the rule file has some.
func (f *serveFlags) complete(routes bool) error {
	if (f.upstream != "" || routes) && f.gateway.addr == "" {
		f.gateway.addr = "127.0.0.1:8081"
	}
	if f.upstream == "" && f.gateway.addr != "" && f.gateway.addr != off && !f.rules.asked() {
		return usagef("--gateway has no upstream: give --upstream http://host:port, or --upstream demo, or a " +
			"--config with routes")
	}
	f.apart = f.metrics.addr != ""
	for _, d := range f.all() {
		if d.connections < 1 {
			return usagef("--%s-max-connections is %d; allowed: 1 or more", d.name, d.connections)
		}
		if d.addr == off {
			d.addr = ""
		}
		if err := d.checkPairs(); err != nil {
			return err
		}
		if d.clientCA != "" && len(d.certs) == 0 {
			return usagef("--%[1]s-client-ca needs TLS: give --%[1]s-tls-cert and --%[1]s-tls-key", d.name)
		}
	}
	if err := f.access.check(); err != nil {
		return err
	}
	if f.upstreamRequests < 1 {
		return usagef("--upstream-max-requests is %d; allowed: 1 or more", f.upstreamRequests)
	}
	if f.http.addr+f.gateway.addr+f.resp.addr+f.grpc.addr == "" {
		return usagef("no listener is on: leave out --http off, or give --resp, --grpc or --upstream")
	}
	if f.shutdown < 0 || f.drain < 0 {
		return usagef("--shutdown-timeout and --drain must not be below 0")
	}
	return nil
}

func (f *serveFlags) all() []*listenerFlags {
	return []*listenerFlags{&f.http, &f.gateway, &f.resp, &f.grpc, &f.metrics}
}

// listen opens all listeners, and refuses public ones without authentication.
func (v *server) listen(setup *engine.Setup) error {
	f := v.flags
	const askToken = "a token (--token-file or WEIR_TOKEN; openssl rand -hex 32 makes one)"
	tokens := v.secrets.token+v.secrets.readToken != ""
	passed, err := v.system.passed()
	if err != nil {
		return err
	}
	for _, d := range []struct {
		*listenerFlags
		closed bool // callers must authenticate, or access is public on purpose
		ask    string
	}{
		{&f.http, tokens, askToken},
		{&f.gateway, true, ""},
		{&f.resp, v.secrets.password != "", "a password (--resp-password-file or WEIR_RESP_PASSWORD)"},
		{&f.grpc, tokens, askToken},
		{&f.metrics, true, ""}, // its address is given only to make it reachable
	} {
		if d.addr == "" {
			continue
		}
		d.listener, err = v.listenAt(d.listenerFlags, passed, setup)
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("--%s: %w: stop the program that listens there, or give another address", d.name, err)
		}
		if err != nil {
			return fmt.Errorf("--%s: %w", d.name, err)
		}
		switch exposed := !d.closed && d.clientCA == "" && !d.private(); {
		case exposed && f.open:
			v.log.Warn("listener without authentication on a public address",
				"listener", d.name, "address", d.listener.Addr().String())
		case exposed:
			return usagef("the %[1]s listener at %[2]s would be open without authentication: give it %[3]s "+
				"or client certificates (--%[1]s-client-ca), or listen on 127.0.0.1; --open allows it",
				d.name, d.listener.Addr(), d.ask)
		}
		v.where = append(v.where, endpoint{name: d.name, address: d.url()})
	}
	for name, file := range passed {
		v.log.Warn("systemd passed a socket that no listener has; fd:"+name+" is its address", "socket", name)
		file.Close()
	}
	return nil
}

func (v *server) listenAt(d *listenerFlags, passed map[string]*os.File, setup *engine.Setup) (net.Listener, error) {
	c := listen.Config{Address: d.addr, Passed: passed, Certs: d.certs, Keys: d.keys, ClientCA: d.clientCA,
		ProxyProtocol: d.proxyProtocol, Counts: &d.counts, Log: v.log,
		PerAddress: (d.connections + 1) / 2, Exempt: exempt(setup.Clients)}
	switch d.name {
	case "resp": // it counts connections itself, to send an error before closing one
	case "grpc":
		c.NextProtos, c.Connections = []string{"h2"}, d.connections
	default:
		c.NextProtos, c.Connections = []string{"h2", "http/1.1"}, d.connections
	}
	if d.name == "http" || d.name == "metrics" {
		c.Reserve = min(max(d.connections/16, 2), 16)
	}
	if d.proxyProtocol && !strings.HasPrefix(d.addr, "unix:") {
		c.Trusted = setup.Trusted
	}
	return c.Listen(context.Background())
}

// exempt returns the addresses that may have all connections of a listener: a trusted proxy, which has those of many
// clients, and this machine, where it is a proxy in the same pod.
func exempt(clients *clientaddr.Extractor) func(netip.Addr) bool {
	return func(client netip.Addr) bool { return client.IsLoopback() || clients.Trusts(client) }
}

// private reports whether only this machine can reach a listener. With the PROXY protocol a load
// balancer forwards connections from elsewhere.
func (f *listenerFlags) private() bool {
	return listen.IsLoopbackListener(f.listener) && !f.proxyProtocol
}

// url is the URL of the listener.
func (f *listenerFlags) url() string {
	if at, ok := f.listener.Addr().(*net.UnixAddr); ok {
		return "unix:" + at.Name
	}
	scheme := map[string]string{"resp": "redis", "grpc": "grpc"}[f.name]
	if scheme == "" {
		scheme = "http"
	}
	if len(f.certs) > 0 {
		scheme += "s"
	}
	return scheme + "://" + reachable(f.listener.Addr().String())
}

// reachable is the address for a client on this machine.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("localhost", port)
	}
	return address
}
