package cli_test

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
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// An authority signs certificates for 127.0.0.1 and localhost into a folder.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, dir string) *authority {
	a := &authority{t: t, dir: dir}
	a.cert, a.key = a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, "ca", "")
	return a
}

// issue writes NAME.pem and KEY.pem, for servers and clients.
func (a *authority) issue(name, key string) {
	a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, name, key)
}

func (a *authority) sign(template *x509.Certificate, name, keyName string) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	write(a.t, a.dir, name+".pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	if keyName != "" {
		text, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			a.t.Fatal(err)
		}
		write(a.t, a.dir, keyName+".pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})))
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name+".pem") }

// TestTLSOnEveryListener asks each listener without a client certificate, and with one. No listener
// needs another proof then, wherever it listens.
func TestTLSOnEveryListener(t *testing.T) {
	t.Parallel()
	a := newAuthority(t, t.TempDir())
	a.issue("server", "server-key")
	a.issue("client", "client-key")
	args := []string{"--upstream", "demo"}
	for _, listener := range []string{"http", "gateway", "resp"} {
		args = append(args, "--"+listener, "127.0.0.1:0", "--"+listener+"-tls-cert", a.file("server"), "--"+listener+"-tls-key", a.file("server-key"), "--"+listener+"-client-ca", a.file("ca"))
	}
	p := call{}.serve(t, args...)
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	pair, err := tls.LoadX509KeyPair(a.file("client"), a.file("client-key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []bool{false, true} {
		config := &tls.Config{RootCAs: pool}
		if shown {
			config.Certificates = []tls.Certificate{pair}
		}
		transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
		for listener, path := range map[string]string{"http": "/readyz", "gateway": "/"} {
			response, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Get(p.at(listener) + path)
			if shown != (err == nil) {
				t.Errorf("%s, certificate shown: %v: %v", listener, shown, err)
			}
			if err == nil {
				if response.Body.Close(); response.StatusCode != 200 || response.ProtoMajor != 2 {
					t.Errorf("%s: %s %s", listener, response.Proto, response.Status)
				}
			}
		}
		transport.CloseIdleConnections()
		redis := []string{"-u", p.at("resp"), "--tls", "--cacert", a.file("ca"), "PING"}
		if shown {
			redis = append([]string{"--cert", a.file("client"), "--key", a.file("client-key")}, redis...)
		}
		out, _ := exec.CommandContext(t.Context(), "redis-cli", redis...).CombinedOutput()
		if shown != strings.Contains(string(out), "PONG") {
			t.Errorf("resp, certificate shown: %v: %s", shown, out)
		}
	}
	health := []string{"health", "--server", p.at("http"), "--server-ca", a.file("ca")}
	if r := (call{}).run(t, health...); r.code != 1 || !strings.Contains(r.err, "certificate required") {
		t.Error(r)
	}
	if r := (call{}).run(t, append(health, "--server-cert", a.file("client"), "--server-key", a.file("client-key"))...); r.code != 0 {
		t.Error(r)
	}
	p.end()
}

// TestHealthOfATLSServer is asked in a container, where nothing but the environment is
// known, and the certificate is for the service's public name.
func TestHealthOfATLSServer(t *testing.T) {
	t.Parallel()
	a := newAuthority(t, t.TempDir())
	a.issue("server", "server-key")
	a.issue("other", "other-key")
	p := call{}.serve(t, "--http-tls-cert", a.file("server"), "--http-tls-key", a.file("server-key"))
	_, address, _ := strings.Cut(p.at("http"), "://")
	for name, want := range map[string]int{"server": 0, "other": 1} {
		env := []string{"WEIR_HTTP=" + address, "WEIR_HTTP_TLS_CERT=" + a.file(name)}
		if r := (call{env: env}).run(t, "health"); r.code != want {
			t.Errorf("%s: %v", name, r)
		}
	}
	p.end()
}

// TestHTTP2WithoutTLS is what gRPC clients speak within a cluster.
func TestHTTP2WithoutTLS(t *testing.T) {
	t.Parallel()
	p := call{}.serve(t, "--limit", "fixed_window 1/1h", "--gateway", "127.0.0.1:0", "--upstream", "demo")
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	for _, want := range []int{200, 429} {
		response, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Get(p.at("gateway"))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want || response.ProtoMajor != 2 {
			t.Errorf("%s %s, want %d", response.Proto, response.Status, want)
		}
	}
	p.end()
}
