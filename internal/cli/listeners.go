package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"

	"github.com/weirproject/weir/internal/listen"
)

// listeners are where the doors listen; nil where one does not.
type listeners struct{ http, gateway, resp, metrics net.Listener }

const off = "off"

// complete fills in what one flag means for another, and refuses what does not go together.
func (f *serveFlags) complete() error {
	if f.upstream != "" && f.gateway.addr == "" {
		f.gateway.addr = "127.0.0.1:8081"
	}
	if f.upstream == "" && f.gateway.addr != "" && f.gateway.addr != off {
		return usagef("--gateway has nothing to forward to: say --upstream http://host:port, or --upstream demo")
	}
	f.apart = f.metrics.addr != ""
	for _, door := range f.all() {
		if door.connections < 1 {
			return usagef("--%s-max-connections is %d; allowed: 1 or more", door.name, door.connections)
		}
		if door.addr == off {
			door.addr = ""
		}
		if (door.cert == "") != (door.key == "") {
			return usagef("--%s-tls-cert and --%s-tls-key go together", door.name, door.name)
		}
		if door.clientCA != "" && door.cert == "" {
			return usagef("--%s-client-ca asks for client certificates, which needs TLS: give --%s-tls-cert and --%s-tls-key", door.name, door.name, door.name)
		}
	}
	if f.upstreamRequests < 1 {
		return usagef("--upstream-max-requests is %d; allowed: 1 or more", f.upstreamRequests)
	}
	if f.http.addr == "" && f.gateway.addr == "" && f.resp.addr == "" {
		return usagef("no door is open: leave out --http off, or give --resp or --upstream")
	}
	if f.shutdown < 0 || f.drain < 0 {
		return usagef("--shutdown-timeout and --drain must not be below 0")
	}
	return nil
}

func (f *serveFlags) all() []*listenerFlags {
	return []*listenerFlags{&f.http, &f.gateway, &f.resp, &f.metrics}
}

// listen opens all listeners, and refuses those that would be open to everybody.
func (v *server) listen() (l listeners, err error) {
	f := v.flags
	for _, door := range []struct {
		*listenerFlags
		listener *net.Listener
		closed   bool // whoever comes must show something
		ask      string
	}{
		{&f.http, &l.http, v.secrets.token+v.secrets.readToken != "", "a token (--token-file or WEIR_TOKEN; openssl rand -hex 32 makes one)"},
		{&f.gateway, &l.gateway, true, ""},
		{&f.resp, &l.resp, v.secrets.password != "", "a password (--resp-password-file or WEIR_RESP_PASSWORD)"},
		{&f.metrics, &l.metrics, true, ""}, // whoever gave it an address of its own says who reaches it
	} {
		if door.addr == "" {
			continue
		}
		listener, err := v.listenAt(door.listenerFlags)
		if errors.Is(err, syscall.EADDRINUSE) {
			return l, fmt.Errorf("--%s: %w: stop what listens there, or give another address", door.name, err)
		}
		if err != nil {
			return l, fmt.Errorf("--%s: %w", door.name, err)
		}
		v.open = append(v.open, listener)
		switch exposed := !door.closed && door.clientCA == "" && !private(listener, door.listenerFlags); {
		case exposed && f.open:
			v.log.Warn("a door is open to everybody who reaches it", "door", door.name, "address", listener.Addr().String())
		case exposed:
			return l, usagef("the %s door at %s would be open to everybody who reaches it: give it %s or client certificates (--%s-client-ca), or listen on 127.0.0.1; --open starts it as it is",
				door.name, listener.Addr(), door.ask, door.name)
		}
		*door.listener = listener
		v.where = append(v.where, endpoint{name: door.name, address: door.url(listener)})
	}
	return l, nil
}

func (v *server) listenAt(door *listenerFlags) (net.Listener, error) {
	c := listen.Config{Address: door.addr, Cert: door.cert, Key: door.key, ClientCA: door.clientCA,
		ProxyProtocol: door.proxyProtocol, Counts: &door.counts, Log: v.log}
	if door.name != "resp" { // which says so before it closes one that is too many
		c.NextProtos, c.Connections = []string{"h2", "http/1.1"}, door.connections
	}
	if door.proxyProtocol && !strings.HasPrefix(door.addr, "unix:") {
		c.Trusted = v.setup.trusted
	}
	return c.Listen(context.Background())
}

// private reports whether only this machine can reach a listener. Behind a balancer that
// forwards connections it is reached by whomever that lets through.
func private(listener net.Listener, door *listenerFlags) bool {
	return listen.IsLoopbackListener(listener) && !door.proxyProtocol
}

// url is how the door is reached.
func (f *listenerFlags) url(listener net.Listener) string {
	if path, ok := strings.CutPrefix(f.addr, "unix:"); ok {
		path, _, _ = strings.Cut(path, "?")
		return "unix:" + strings.TrimPrefix(path, "//")
	}
	scheme := map[bool]string{false: "http://", true: "https://"}[f.cert != ""]
	if f.name == "resp" {
		scheme = map[bool]string{false: "redis://", true: "rediss://"}[f.cert != ""]
	}
	return scheme + reachable(listener.Addr().String())
}

// reachable is an address that a client on this machine can use.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("localhost", port)
	}
	return address
}
