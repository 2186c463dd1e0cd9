package listen_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/listen"
)

// An authority signs certificates for 127.0.0.1.
type authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key = a.issue(name, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) issue(name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<62))
	template.Subject = pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// leaf returns a new certificate for a server and a client.
func (a *authority) leaf(name string) (cert, key []byte) {
	a.t.Helper()
	leaf, private := a.issue(name, &x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// write replaces a file atomically.
func (a *authority) write(name string, text []byte) (path string) {
	a.t.Helper()
	path = filepath.Join(a.dir, name)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		a.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		a.t.Fatal(err)
	}
	return path
}

func (a *authority) config(name string) listen.Config {
	cert, key := a.leaf(name)
	return listen.Config{Cert: a.write("cert.pem", cert), Key: a.write("key.pem", key), NextProtos: []string{"h2", "http/1.1"}}
}

func (a *authority) identity(name string) []tls.Certificate {
	pair, err := tls.X509KeyPair(a.leaf(name))
	if err != nil {
		a.t.Fatal(err)
	}
	return []tls.Certificate{pair}
}

// shake returns the name in the server's certificate, after a handshake that both sides finish.
func shake(listener net.Listener, config *tls.Config) (name string, err error) {
	connection, err := (&tls.Dialer{Config: config}).DialContext(context.Background(), "tcp", listener.Addr().String())
	if err != nil {
		return "", err
	}
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(10 * time.Second))
	io.WriteString(connection, get)
	if _, err = connection.Read(make([]byte, 1)); err != nil {
		return "", err
	}
	return connection.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

func TestTLSSpeaksHTTP2(t *testing.T) {
	a := newAuthority(t, "root")
	listener := serve(t, open(t, a.config("one")))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.pool()}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get("https://" + listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); response.ProtoMajor != 2 || !strings.HasSuffix(string(body), " HTTP/2.0") {
		t.Errorf("%s %s", response.Proto, body)
	}
	if _, err := shake(listener, &tls.Config{RootCAs: a.pool(), MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
	if answer := ask(t, listener, get); !strings.HasPrefix(answer, "HTTP/1.0 400 ") {
		t.Errorf("without TLS: %q", answer)
	}
}

// logged is a log that can be read while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

func TestCertificatesAreReloaded(t *testing.T) {
	a := newAuthority(t, "root")
	var log logged
	c := a.config("one")
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	listener := serve(t, open(t, c))
	trusting := &tls.Config{RootCAs: a.pool(), ClientSessionCache: tls.NewLRUClientSessionCache(8)}
	want := func(name, when string) {
		t.Helper()
		if got, err := shake(listener, &tls.Config{RootCAs: a.pool()}); got != name || err != nil {
			t.Errorf("%s: %q is shown, %v; want %q", when, got, err, name)
		}
		if _, err := shake(listener, trusting); err != nil {
			t.Errorf("%s, resumed: %v", when, err)
		}
	}
	want("one", "at first")
	cert, key := a.leaf("two")
	a.write("cert.pem", cert)
	want("one", "the key is not there yet")
	want("one", "nor now")
	if n := log.count("cannot be used"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	a.write("key.pem", key)
	want("two", "both are there")
	if err := os.Remove(c.Key); err != nil {
		t.Fatal(err)
	}
	want("two", "a file is gone")
	want("two", "and stays away")
	if n := log.count("cannot be used"); n != 2 {
		t.Errorf("logged %d times", n)
	}
	a.write("key.pem", key)
	a.write("cert.pem", []byte("junk"))
	want("two", "junk")
	cert, key = a.leaf("three")
	a.write("cert.pem", cert)
	a.write("key.pem", key)
	want("three", "all is well again")
}

func TestClientCertificates(t *testing.T) {
	a, b := newAuthority(t, "root"), newAuthority(t, "other")
	c := a.config("server")
	c.ClientCA = a.write("ca.pem", a.pem())
	listener := serve(t, open(t, c))
	cached := tls.NewLRUClientSessionCache(8)
	as := func(identity []tls.Certificate) error {
		_, err := shake(listener, &tls.Config{RootCAs: a.pool(), Certificates: identity, ClientSessionCache: cached})
		return err
	}
	mine := a.identity("client")
	if err := as(mine); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	if err := as(nil); err == nil {
		t.Error("none is needed")
	}
	if err := as(b.identity("stranger")); err == nil {
		t.Error("a stranger's is enough")
	}
	a.write("ca.pem", b.pem())
	if err := as(mine); err == nil {
		t.Error("what signed the certificate was taken off the list, and it is still good")
	}
	a.write("ca.pem", []byte("none"))
	if err := as(b.identity("friend")); err != nil {
		t.Errorf("the old list does not stay: %v", err)
	}
	c.Address = "127.0.0.1:0"
	if _, err := c.Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "client_ca is") {
		t.Errorf("a file without certificates: %v", err)
	}
	c.Key = c.ClientCA
	if _, err := c.Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "key") {
		t.Errorf("a file without a key: %v", err)
	}
}

// The order on the wire: the PROXY header, then TLS.
func TestPROXYHeaderPrecedesTLS(t *testing.T) {
	a := newAuthority(t, "root")
	c := a.config("one")
	c.ProxyProtocol, c.Trusted = true, prefixes("127.0.0.0/8")
	listener := serve(t, open(t, c))
	for header, want := range map[string]string{version: "198.51.100.7:4711 ", "PROXY UNKNOWN\r\n": "127.0.0.1:", "": ""} {
		connection, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		connection.SetDeadline(time.Now().Add(10 * time.Second))
		io.WriteString(connection, header)
		secured := tls.Client(connection, &tls.Config{RootCAs: a.pool(), ServerName: "127.0.0.1"})
		io.WriteString(secured, get)
		answer, _ := io.ReadAll(secured)
		_, body, _ := strings.Cut(string(answer), "\r\n\r\n")
		if !strings.HasPrefix(body, want) || (want == "") != (len(answer) == 0) {
			t.Errorf("%q: %q", header, answer)
		}
	}
}
