// Package certtest makes certificates for tests.
package certtest

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
	"testing"
	"time"
)

// An Authority signs certificates for servers and clients at 127.0.0.1 and localhost. Its folder holds its own as
// ca.pem.
type Authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority of that name.
func New(t testing.TB, dir, name string) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: dir}
	a.cert, a.key = a.sign(name, &x509.Certificate{IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign})
	a.Write("ca", a.PEM())
	return a
}

func (a *Authority) sign(name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.check(err)
	template.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<62))
	template.Subject = pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	a.check(err)
	cert, err := x509.ParseCertificate(der)
	a.check(err)
	return cert, key
}

func (a *Authority) check(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

// Leaf returns a new certificate, for these hosts too, and its key.
func (a *Authority) Leaf(name string, hosts ...string) (cert, key []byte) {
	a.t.Helper()
	leaf, private := a.sign(name, &x509.Certificate{
		DNSNames: append(hosts, "localhost"), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	der, err := x509.MarshalPKCS8PrivateKey(private)
	a.check(err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// Identity returns a new certificate for a tls.Config.
func (a *Authority) Identity(name string) []tls.Certificate {
	a.t.Helper()
	pair, err := tls.X509KeyPair(a.Leaf(name))
	a.check(err)
	return []tls.Certificate{pair}
}

// Issue writes a new certificate, for these hosts too, and its key to the files NAME and KEY.
func (a *Authority) Issue(name, key string, hosts ...string) {
	a.t.Helper()
	cert, private := a.Leaf(name, hosts...)
	a.Write(name, cert)
	a.Write(key, private)
}

// PEM is the authority's own certificate.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// Pool trusts the authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// File is the path of NAME.pem in the folder.
func (a *Authority) File(name string) string { return filepath.Join(a.dir, name+".pem") }

// Write replaces NAME.pem atomically.
func (a *Authority) Write(name string, text []byte) (path string) {
	a.t.Helper()
	path = a.File(name)
	a.check(os.WriteFile(path+".new", text, 0o600))
	a.check(os.Rename(path+".new", path))
	return path
}
