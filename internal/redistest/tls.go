//go:build unix

package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// A TLSServer is a server that speaks TLS only and asks for a client certificate. Its
// own certificate is for 127.0.0.1 and localhost.
type TLSServer struct {
	*Server
	CA, Cert, Key string // files of the authority and the client, PEM
}

// StartTLS is Start for a server that speaks TLS only.
func StartTLS(t testing.TB, args ...string) *TLSServer {
	t.Helper()
	dir := t.TempDir()
	ca := newAuthority(t, dir)
	ca.issue("server", x509.ExtKeyUsageServerAuth)
	ca.issue("client", x509.ExtKeyUsageClientAuth)
	file := func(name string) string { return filepath.Join(dir, name) }
	config := clientConfig(t, file("ca.crt"), file("client.crt"), file("client.key"))
	server := start(t, func(s *Server) {
		s.args = append(plain(0, "--tls-port", strconv.Itoa(s.port), "--tls-auth-clients", "yes",
			"--tls-ca-cert-file", file("ca.crt"),
			"--tls-cert-file", file("server.crt"), "--tls-key-file", file("server.key")), args...)
		s.url = "rediss://" + s.Addr()
		s.dial = func() (net.Conn, error) {
			return tls.DialWithDialer(&net.Dialer{Timeout: time.Second}, "tcp", s.Addr(), config)
		}
	})
	return &TLSServer{Server: server, CA: file("ca.crt"), Cert: file("client.crt"), Key: file("client.key")}
}

// Config is the TLS configuration of a client.
func (s *TLSServer) Config() *tls.Config { return clientConfig(s.t, s.CA, s.Cert, s.Key) }

func clientConfig(t testing.TB, ca, cert, key string) *tls.Config {
	t.Helper()
	text, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}
}

// authority signs certificates and writes them to a directory.
type authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	last int64 // serial number given
}

func newAuthority(t testing.TB, dir string) *authority {
	a := &authority{t: t, dir: dir, key: newKey(t)}
	a.cert = a.template("weir test authority")
	a.cert.IsCA, a.cert.BasicConstraintsValid, a.cert.KeyUsage = true, true, x509.KeyUsageCertSign
	a.sign("ca", a.cert, a.key)
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) template(name string) *x509.Certificate {
	a.last++
	return &x509.Certificate{
		SerialNumber: big.NewInt(a.last),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
}

func (a *authority) issue(name string, usage x509.ExtKeyUsage) {
	cert := a.template("weir test " + name)
	cert.KeyUsage, cert.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{usage}
	cert.DNSNames, cert.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	a.sign(name, cert, newKey(a.t))
}

// sign writes name.crt and name.key.
func (a *authority) sign(name string, cert *x509.Certificate, key *ecdsa.PrivateKey) {
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".crt", "CERTIFICATE", der)
	a.write(name+".key", "PRIVATE KEY", secret)
}

func (a *authority) write(file, kind string, der []byte) {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(filepath.Join(a.dir, file), text, 0o600); err != nil {
		a.t.Fatal(err)
	}
}
