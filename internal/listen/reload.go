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

// A reloader has the TLS configuration of the current files. At each handshake it compares their
// times and sizes, which costs a thousandth of a handshake, and reads them again if one changed.
type reloader struct {
	cert, key, clientCA string
	nextProtos          []string
	log                 *slog.Logger

	mu    sync.Mutex
	now   *tls.Config
	files []os.FileInfo // at the last attempt to read them, successful or not
}

func newReloader(c Config) *reloader {
	return &reloader{cert: c.Cert, key: c.Key, clientCA: c.ClientCA, nextProtos: slices.Clone(c.NextProtos), log: c.Log}
}

// config is the outer configuration of the listener, which selects the current one per handshake.
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

// current reads the files again if they changed. Files that cannot be used (a half-written
// certificate, a missing key) are logged once, and tried again at the next change.
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
			r.log.Info("TLS certificate reloaded", "cert", r.cert)
			return r.now
		}
	}
	if r.files != nil || files != nil {
		r.log.Warn("TLS certificate changed and cannot be used: the previous one stays", "error", err)
	}
	r.files = files
	return r.now
}

func unchanged(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// stat returns the current state of the files, or nil if one is missing.
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
		return nil, &weir.InputError{Field: "client_ca", Given: r.clientCA,
			Allowed: "a file with PEM certificates; it has none"}
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	// A session ticket would outlive the removal of its CA from the file.
	config.SessionTicketsDisabled = true
	return config, nil
}
