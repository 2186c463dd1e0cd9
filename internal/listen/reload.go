package listen

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"

	"github.com/weirproject/weir"
)

// A reloader has the TLS of the files as they are now. At each handshake it asks for their
// times and sizes, which is a thousandth of what a handshake costs, and reads them again
// if one changed.
type reloader struct {
	cert, key, clientCA string
	nextProtos          []string
	log                 *slog.Logger

	mu    sync.Mutex
	now   *tls.Config
	files []os.FileInfo // as they were when they were read, if they could be or not
}

func newReloader(c Config) *reloader {
	return &reloader{cert: c.Cert, key: c.Key, clientCA: c.ClientCA, nextProtos: slices.Clone(c.NextProtos), log: c.Log}
}

// config is the one to serve with.
func (r *reloader) config() (*tls.Config, error) {
	files, err := r.stat()
	if err != nil {
		return nil, err
	}
	if r.now, err = r.read(); err != nil {
		return nil, err
	}
	r.files = files
	outer := r.now.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return r.current(), nil }
	return outer, nil
}

// current reads the files again if they changed. What cannot be used (a certificate that
// is half written, whose key is not there yet) is told once, and tried again at the next
// change.
func (r *reloader) current() *tls.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	files, err := r.stat()
	if err == nil && slices.EqualFunc(files, r.files, unchanged) {
		return r.now
	}
	if err == nil {
		var fresh *tls.Config
		if fresh, err = r.read(); err == nil {
			r.now, r.files = fresh, files
			r.log.Info("the certificate was read again", "cert", r.cert)
			return r.now
		}
	}
	if r.files != nil || files != nil {
		r.log.Warn("the certificate changed and cannot be used; the old one stays", "error", err)
	}
	r.files = files
	return r.now
}

func unchanged(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// stat is of the files that there are; nil if one is gone.
func (r *reloader) stat() (files []os.FileInfo, err error) {
	for _, name := range []string{r.cert, r.key, r.clientCA} {
		if name == "" {
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		files = append(files, info)
	}
	return files, nil
}

func (r *reloader) read() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(r.cert, r.key)
	if err != nil {
		return nil, fmt.Errorf("cert %q and key %q, which must be PEM files of one certificate: %w", r.cert, r.key, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: r.nextProtos}
	if r.clientCA == "" {
		return config, nil
	}
	text, err := os.ReadFile(r.clientCA)
	if err != nil {
		return nil, err
	}
	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(text) {
		return nil, &weir.InputError{Field: "client_ca", Given: r.clientCA, Allowed: "a file with certificates in PEM; there is none in it"}
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	// A ticket would let in whom a changed file no longer does.
	config.SessionTicketsDisabled = true
	return config, nil
}
