package listen_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/server/internal/listen"
)

func open(t testing.TB, c listen.Config) net.Listener {
	t.Helper()
	if c.Address == "" {
		c.Address = "127.0.0.1:0"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	listener, err := c.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

// serve answers with the address that a request came from, and with its protocol.
func serve(t testing.TB, listener net.Listener) net.Listener {
	t.Helper()
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.RemoteAddr, " ", r.Proto)
		}),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0), ReadHeaderTimeout: 10 * time.Second,
	}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	return listener
}

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func TestConfigErrorsNameTheField(t *testing.T) {
	some := prefixes("10.0.0.0/8")
	for _, c := range []struct {
		config listen.Config
		says   string // "": it is none
	}{
		{listen.Config{Address: "127.0.0.1:0"}, ""},
		{listen.Config{Address: "[::1]:0"}, ""},
		{listen.Config{Address: "localhost:0"}, ""},
		{listen.Config{}, `address is ""; allowed: host:port`},
		{listen.Config{Address: "8080"}, "allowed: host:port"},
		{listen.Config{Address: "::1:80"}, "allowed: host:port"},
		{listen.Config{Address: "127.0.0.1:http"}, "a port from 0"},
		{listen.Config{Address: "127.0.0.1:65536"}, "a port from 0"},
		{listen.Config{Address: "127.0.0.1:-1"}, "a port from 0"},
		{listen.Config{Address: "unix:weir.sock"}, "absolute path"},
		{listen.Config{Address: "unix://run/weir.sock"}, "absolute path"},
		{listen.Config{Address: "unix:///"}, "absolute path"},
		{listen.Config{Address: "unix:///run/weir/"}, "absolute path"},
		{listen.Config{Address: "unix:///" + strings.Repeat("x", 103)}, "at most 103 bytes"},
		{listen.Config{Address: "unix:///run/x?mode=0888"}, "octal"},
		{listen.Config{Address: "unix:///run/x?mode=6"}, "octal"},
		{listen.Config{Address: "unix:///run/x?mode=1777"}, "octal"},
		{listen.Config{Address: "unix:///run/x?perm=0600"}, "?mode="},
		{listen.Config{Address: "unix:///run/x?"}, "?mode="},
		{listen.Config{Address: ":0", Certs: []string{"c.pem"}}, `keys is []; allowed: as many files as certificates`},
		{listen.Config{Address: ":0", Keys: []string{"k.pem"}}, `keys is [k.pem]; allowed: as many files as certificates`},
		{listen.Config{Address: ":0", ClientCA: "ca.pem"}, `client_ca is "ca.pem"; allowed: only with`},
		{listen.Config{Address: ":0", Trusted: some}, "trusted is [10.0.0.0/8]; allowed: only with the PROXY protocol"},
		{listen.Config{Address: ":0", ProxyProtocol: true}, "trusted is []; allowed: the networks of your balancers"},
		{listen.Config{Address: ":0", ProxyProtocol: true, Trusted: prefixes("0.0.0.0/0")}, "trusted[0] is 0.0.0.0/0; allowed"},
		{listen.Config{Address: "unix:///run/x", ProxyProtocol: true, Trusted: some}, "none on a Unix socket"},
		{listen.Config{Address: ":0", ProxyProtocol: true, Trusted: some, HeaderTimeout: -1}, "header_timeout is -1ns"},
		{listen.Config{Address: ":0", PerAddress: -1}, "per_address is -1; allowed: 1 or more"},
		{listen.Config{Address: ":0", Reserve: -1}, "reserve is -1; allowed: 0 or more"},
		{listen.Config{Address: ":0", Connections: -1}, "connections is -1; allowed: 1 or more"},
		{listen.Config{Address: ":0", Certs: []string{"no.pem"}, Keys: []string{"no.pem"}}, "no.pem: no such file"},
	} {
		listener, err := c.config.Listen(t.Context())
		if err == nil {
			listener.Close()
		}
		var input *weir.InputError
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %s", c.config, err, c.says)
		} else if err != nil && !errors.As(err, &input) && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%+v: %T", c.config, err)
		}
	}
	_, err := listen.Config{Address: "x", Certs: []string{"c"}, Trusted: some}.Listen(t.Context())
	for _, field := range []string{"address", "keys", "trusted"} {
		if !strings.Contains(err.Error(), "weir: "+field+" is") {
			t.Errorf("of several mistakes %s is not reported: %v", field, err)
		}
	}
}

func TestPortInUse(t *testing.T) {
	taken := open(t, listen.Config{}).Addr().String()
	if _, err := (listen.Config{Address: taken}).Listen(t.Context()); err == nil || !strings.Contains(err.Error(), taken) {
		t.Errorf("%v", err)
	}
}

func TestUnixSocketMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for query, want := range map[string]os.FileMode{"": 0o600, "?mode=0660": 0o660, "?mode=777": 0o777, "?mode=0000": 0} {
		listener := open(t, listen.Config{Address: "unix://" + path + query})
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", query, info.Mode(), err)
		}
		listener.Close()
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the file stays: %v", query, err)
		}
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false) // like a killed process
	dead.Close()
	alive := open(t, listen.Config{Address: "unix://" + path})
	if _, err := (listen.Config{Address: "unix://" + path}).Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("two listen at one path: %v", err)
	}
	if connection, err := net.Dial("unix", path); err != nil {
		t.Errorf("the first one's file was removed: %v", err)
	} else {
		connection.Close()
	}
	alive.Close()
	datagrams, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (listen.Config{Address: "unix://" + path}).Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "so it is not removed") {
		t.Errorf("at a socket of another kind: %v", err)
	}
	datagrams.Close()
	if err := os.Remove(path); err != nil {
		t.Errorf("it was removed: %v", err)
	}
	for kind, make := range map[string]func() error{
		"file":          func() error { return os.WriteFile(path, []byte("precious"), 0o600) },
		"directory":     func() error { return os.Mkdir(path, 0o700) },
		"symbolic link": func() error { return os.Symlink("/dev/null", path) },
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		if _, err := (listen.Config{Address: "unix://" + path}).Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "this is a "+kind) {
			t.Errorf("%s: %v", kind, err)
		}
		if err := os.Remove(path); err != nil {
			t.Errorf("the %s was removed: %v", kind, err)
		}
	}
}

func TestIsLoopbackListener(t *testing.T) {
	socket := "unix://" + filepath.Join(t.TempDir(), "s")
	for address, want := range map[string]bool{
		"127.0.0.1:0": true, "127.9.9.9:0": true, "[::1]:0": true, "[::ffff:127.0.0.1]:0": true, "localhost:0": true,
		":0": false, "0.0.0.0:0": false, "[::]:0": false, socket: true,
	} {
		if got := listen.IsLoopbackListener(open(t, listen.Config{Address: address})); got != want {
			t.Errorf("listening at %q: %v", address, got)
		}
	}
}

// ask sends bytes and reads the response to its end.
func ask(t testing.TB, listener net.Listener, parts ...string) string {
	t.Helper()
	connection, err := net.Dial(listener.Addr().Network(), listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(time.Minute))
	for _, part := range parts {
		io.WriteString(connection, part)
	}
	answer, err := io.ReadAll(connection)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%q: the connection was not closed", parts)
	}
	return string(answer)
}
