package listen

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/weirproject/weir"
)

// A reloader has the TLS configuration of the current files. At each handshake it compares their
// times and sizes, which costs a thousandth of a handshake for each pair, and reads them again if one changed.
type reloader struct {
	certs, keys []string
	clientCA    string
	clientNames []string
	nextProtos  []string
	log         *slog.Logger

	mu    sync.Mutex
	now   *tls.Config
	files []os.FileInfo // at the last attempt to read them, successful or not; nil is a missing file
}

func newReloader(c Config) *reloader {
	return &reloader{certs: slices.Clone(c.Certs), keys: slices.Clone(c.Keys), clientCA: c.ClientCA,
		clientNames: slices.Clone(c.ClientNames), nextProtos: slices.Clone(c.NextProtos), log: c.Log}
}

// config is the outer configuration of the listener, which selects the current one per handshake.
func (r *reloader) config() (outer *tls.Config, err error) {
	r.files = r.stat()
	if r.now, err = r.read(nil); err != nil {
		return nil, err
	}
	outer = r.now.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return r.current(), nil }
	return outer, nil
}

// current reads the files again if they changed. Files that cannot be used (a half-written
// certificate, a missing key) are logged once, and tried again at the next change.
func (r *reloader) current() *tls.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	files := r.stat()
	if slices.EqualFunc(files, r.files, unchanged) {
		return r.now
	}
	r.files = files
	fresh, err := r.read(r.now)
	r.now = fresh
	if err != nil {
		r.log.Warn("TLS certificate changed and cannot be used: the previous one stays", "error", err)
		return r.now
	}
	r.log.Info("TLS certificates reloaded", "certs", r.certs)
	return r.now
}

func unchanged(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

func (r *reloader) stat() (files []os.FileInfo) {
	for _, name := range slices.Concat(r.certs, r.keys, []string{r.clientCA}) {
		info, err := os.Stat(name)
		if err != nil {
			info = nil
		}
		files = append(files, info)
	}
	return files
}

// read returns the configuration of the files. The previous content of an unusable file stays, and the error names
// the file: a pair that is half-written must not hold up the renewal of another one.
func (r *reloader) read(previous *tls.Config) (config *tls.Config, err error) {
	config = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: r.nextProtos}
	var errs []error
	for i := range r.certs {
		pair, err := loadPair(r.certs[i], r.keys[i])
		if err != nil && previous != nil {
			pair = previous.Certificates[i]
		}
		config.Certificates, errs = append(config.Certificates, pair), append(errs, err)
	}
	if len(r.certs) > 1 {
		config.GetCertificate = exactly(config.Certificates)
	}
	if r.clientCA != "" {
		errs = append(errs, r.requireClients(config, previous))
	}
	return config, errors.Join(errs...)
}

func loadPair(cert, key string) (tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		err = fmt.Errorf("cert %q and key %q, which must be PEM files of one certificate: %w", cert, key, err)
	}
	return pair, err
}

// exactly selects the certificate that has the client's name itself, before one with a wildcard. Without such a
// certificate crypto/tls selects the first one that covers the name, or else the first.
func exactly(pairs []tls.Certificate) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		named := func(name string) bool { return strings.EqualFold(name, hello.ServerName) }
		for i := range pairs {
			pair := &pairs[i]
			if slices.ContainsFunc(pair.Leaf.DNSNames, named) && hello.SupportsCertificate(pair) == nil {
				return pair, nil
			}
		}
		return nil, nil
	}
}

// Uncovered returns the hosts, such as api.example.com and *.example.com, that no certificate covers. The error names
// the files of pairs that cannot be used.
func Uncovered(certs, keys, hosts []string) (missed []string, err error) {
	pairs, err := (&reloader{certs: certs, keys: keys}).read(nil)
	if err != nil {
		return nil, err
	}
	for _, host := range hosts {
		covers := func(pair tls.Certificate) bool { return pair.Leaf.VerifyHostname(host) == nil }
		if !slices.ContainsFunc(pairs.Certificates, covers) {
			missed = append(missed, host)
		}
	}
	return missed, nil
}

// requireClients requires certificates of clients, signed by the authorities in the file.
func (r *reloader) requireClients(config, previous *tls.Config) error {
	config.ClientAuth = tls.RequireAndVerifyClientCert
	if len(r.clientNames) > 0 {
		config.VerifyConnection = anyOf(r.clientNames) // of resumed sessions too, unlike VerifyPeerCertificate
	}
	// A session ticket would outlive the removal of its CA from the file.
	config.SessionTicketsDisabled = true
	var err error
	config.ClientCAs, err = loadAuthorities("client_ca", r.clientCA)
	if err != nil && previous != nil {
		config.ClientCAs = previous.ClientCAs
	}
	return err
}

// anyOf refuses verified certificates that are for none of some names.
func anyOf(names []string) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		leaf := state.PeerCertificates[0]
		for _, name := range names {
			if leaf.VerifyHostname(name) == nil {
				return nil
			}
			if slices.ContainsFunc(leaf.URIs, func(uri *url.URL) bool { return uri.String() == name }) {
				return nil
			}
		}
		return fmt.Errorf("the client's certificate is for %.200q, %v, %v; allowed: one of %q", leaf.DNSNames,
			leaf.IPAddresses, leaf.URIs, names)
	}
}

func loadAuthorities(field, file string) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	text, err := os.ReadFile(file)
	if err == nil && !pool.AppendCertsFromPEM(text) {
		err = &weir.InputError{Field: field, Given: file, Allowed: "a file with PEM certificates; it has none"}
	}
	return pool, err
}

// ClientTLS is the TLS of a client, with the current content of the files. The server's certificate must be signed by
// an authority in the file ca, or of the system if ca is "". Unless cert is "", the client presents that certificate.
func ClientTLS(ca, cert, key string) (config *tls.Config, err error) {
	config = &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		if config.RootCAs, err = loadAuthorities("ca", ca); err != nil {
			return nil, err
		}
	}
	if cert != "" || key != "" {
		pair, err := loadPair(cert, key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
