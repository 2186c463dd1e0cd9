package listen_test

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/redistest/certtest"
	"github.com/weirproject/weir/server/internal/listen"
)

func newAuthority(t testing.TB, name string) *certtest.Authority {
	t.Helper()
	return certtest.New(t, t.TempDir(), name)
}

func config(a *certtest.Authority, name string) listen.Config {
	a.Issue(name, "key")
	return listen.Config{Certs: []string{a.File(name)}, Keys: []string{a.File("key")}, NextProtos: []string{"h2", "http/1.1"}}
}

// shake returns the name in the server's certificate, after a handshake that both sides finish.
func shake(listener net.Listener, config *tls.Config) (name string, err error) {
	connection, err := (&tls.Dialer{Config: config}).DialContext(context.Background(), "tcp", listener.Addr().String())
	if err != nil {
		return "", err
	}
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(time.Minute))
	io.WriteString(connection, get)
	if _, err = connection.Read(make([]byte, 1)); err != nil {
		return "", err
	}
	return connection.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

func TestTLSSpeaksHTTP2(t *testing.T) {
	a := newAuthority(t, "root")
	listener := serve(t, open(t, config(a, "one")))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.Pool()}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get("https://" + listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); response.ProtoMajor != 2 || !strings.HasSuffix(string(body), " HTTP/2.0") {
		t.Errorf("%s %s", response.Proto, body)
	}
	if _, err := shake(listener, &tls.Config{RootCAs: a.Pool(), MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
	if answer := ask(t, listener, get); !strings.HasPrefix(answer, "HTTP/1.0 400 ") {
		t.Errorf("without TLS: %q", answer)
	}
}

func TestCertificatesAreReloaded(t *testing.T) {
	a := newAuthority(t, "root")
	var log redistest.Log
	c := config(a, "one")
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	listener := serve(t, open(t, c))
	trusting := &tls.Config{RootCAs: a.Pool(), ClientSessionCache: tls.NewLRUClientSessionCache(8)}
	want := func(name, when string) {
		t.Helper()
		if got, err := shake(listener, &tls.Config{RootCAs: a.Pool()}); got != name || err != nil {
			t.Errorf("%s: %q is shown, %v; want %q", when, got, err, name)
		}
		if _, err := shake(listener, trusting); err != nil {
			t.Errorf("%s, resumed: %v", when, err)
		}
	}
	want("one", "at first")
	cert, key := a.Leaf("two")
	a.Write("one", cert)
	want("one", "the key is not there yet")
	want("one", "nor now")
	if n := strings.Count(log.String(), "cannot be used"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	a.Write("key", key)
	want("two", "both are there")
	if err := os.Remove(c.Keys[0]); err != nil {
		t.Fatal(err)
	}
	want("two", "a file is gone")
	want("two", "and stays away")
	if n := strings.Count(log.String(), "cannot be used"); n != 2 {
		t.Errorf("logged %d times", n)
	}
	a.Write("key", key)
	a.Write("one", []byte("junk"))
	want("two", "junk")
	cert, key = a.Leaf("three")
	a.Write("one", cert)
	a.Write("key", key)
	want("three", "all is well again")
}

func TestCertificateIsChosenByName(t *testing.T) {
	a := newAuthority(t, "root")
	a.Issue("first", "first-key", "first.example")
	a.Issue("wild", "wild-key", "*.example.com")
	a.Issue("exact", "exact-key", "API.example.com")
	files := func(names ...string) (paths []string) {
		for _, name := range names {
			paths = append(paths, a.File(name))
		}
		return paths
	}
	var log redistest.Log
	listener := serve(t, open(t, listen.Config{Certs: files("first", "wild", "exact"),
		Keys: files("first-key", "wild-key", "exact-key"), Log: slog.New(slog.NewTextHandler(&log, nil))}))
	want := func(host, name string) {
		t.Helper()
		// The first certificate has none of the other names: a client that verifies refuses it, as it should.
		got, err := shake(listener, &tls.Config{RootCAs: a.Pool(), ServerName: host, InsecureSkipVerify: true})
		if got != name || err != nil {
			t.Errorf("%q: %q is shown, %v; want %q", host, got, err, name)
		}
	}
	for host, name := range map[string]string{"first.example": "first", "api.example.com": "exact", "other.example.com": "wild",
		"a.other.example.com": "first", "example.com": "first", "stranger.example": "first", "": "first"} {
		want(host, name)
	}
	a.Write("wild", []byte("half"))
	cert, key := a.Leaf("renewed", "api.example.com")
	a.Write("exact", cert)
	a.Write("exact-key", key)
	want("api.example.com", "renewed")
	want("other.example.com", "wild")
	if n := strings.Count(log.String(), "wild.pem"); n == 0 {
		t.Error("a pair that cannot be used is not named")
	}
}

func TestUncoveredHosts(t *testing.T) {
	a := newAuthority(t, "root")
	a.Issue("one", "key", "*.example.com", "example.org")
	a.Issue("other", "other-key")
	hosts := []string{"api.example.com", "*.example.com", "EXAMPLE.org", "*.eu.example.com", "example.com"}
	missed, err := listen.Uncovered([]string{a.File("one")}, []string{a.File("key")}, hosts)
	if err != nil || !slices.Equal(missed, hosts[3:]) {
		t.Errorf("uncovered: %q, %v; want %q", missed, err, hosts[3:])
	}
	_, err = listen.Uncovered([]string{a.File("one")}, []string{a.File("other-key")}, nil)
	if err == nil || !strings.Contains(err.Error(), a.File("other-key")) {
		t.Errorf("the key of another certificate: %v", err)
	}
}

func TestClientCertificates(t *testing.T) {
	a, b := newAuthority(t, "root"), newAuthority(t, "other")
	c := config(a, "server")
	c.ClientCA = a.Write("ca", a.PEM())
	listener := serve(t, open(t, c))
	cached := tls.NewLRUClientSessionCache(8)
	as := func(identity []tls.Certificate) error {
		_, err := shake(listener, &tls.Config{RootCAs: a.Pool(), Certificates: identity, ClientSessionCache: cached})
		return err
	}
	mine := a.Identity("client")
	if err := as(mine); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	if err := as(nil); err == nil {
		t.Error("none is needed")
	}
	if err := as(b.Identity("stranger")); err == nil {
		t.Error("a stranger's is enough")
	}
	a.Write("ca", b.PEM())
	if err := as(mine); err == nil {
		t.Error("what signed the certificate was taken off the list, and it is still good")
	}
	a.Write("ca", []byte("none"))
	if err := as(b.Identity("friend")); err != nil {
		t.Errorf("the old list does not stay: %v", err)
	}
	c.Address = "127.0.0.1:0"
	if _, err := c.Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "client_ca is") {
		t.Errorf("a file without certificates: %v", err)
	}
	c.Keys = []string{c.ClientCA}
	if _, err := c.Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "key") {
		t.Errorf("a file without a key: %v", err)
	}
}

// The order on the wire: the PROXY header, then TLS.
func TestPROXYHeaderPrecedesTLS(t *testing.T) {
	a := newAuthority(t, "root")
	c := config(a, "one")
	c.ProxyProtocol, c.Trusted = true, prefixes("127.0.0.0/8")
	listener := serve(t, open(t, c))
	for header, want := range map[string]string{version: "198.51.100.7:4711 ", "PROXY UNKNOWN\r\n": "127.0.0.1:", "": ""} {
		connection, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		connection.SetDeadline(time.Now().Add(time.Minute))
		io.WriteString(connection, header)
		secured := tls.Client(connection, &tls.Config{RootCAs: a.Pool(), ServerName: "127.0.0.1"})
		io.WriteString(secured, get)
		answer, _ := io.ReadAll(secured)
		_, body, _ := strings.Cut(string(answer), "\r\n\r\n")
		if !strings.HasPrefix(body, want) || (want == "") != (len(answer) == 0) {
			t.Errorf("%q: %q", header, answer)
		}
	}
}

// TestClientNames are asked of certificates that the authority signed.
func TestClientNames(t *testing.T) {
	a := newAuthority(t, "root")
	c := config(a, "one")
	c.ClientCA, c.ClientNames = a.File("ca"), []string{"spiffe://mesh/envoy", "envoy.example.com"}
	listener := serve(t, open(t, c))
	client := func(hosts ...string) error {
		cert, key := a.Leaf("client", hosts...)
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		_, err = shake(listener, &tls.Config{RootCAs: a.Pool(), Certificates: []tls.Certificate{pair}})
		return err
	}
	if err := client("other.example.com"); err == nil {
		t.Error("a certificate for another name is accepted")
	}
	if err := client("envoy.example.com"); err != nil {
		t.Error(err)
	}
	c.ClientCA = ""
	if _, err := c.Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "client_names") {
		t.Errorf("without an authority: %v", err)
	}
}
