package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirproject/weir/internal/program"
	"github.com/weirproject/weir/server/internal/listen"
	"github.com/weirproject/weir/server/internal/web"
)

// A serverFlags are the flags of the connection to a running server.
type serverFlags struct {
	url, ca, cert, key, tokenFile string
	timeout                       time.Duration
}

func (f *serverFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.url, "server", "",
		"`URL` of the running server: http://host:port, https://host:port or unix:/path")
	flags.StringVar(&f.ca, "server-ca", "", "PEM `FILE` of the authority of the server's certificate")
	flags.StringVar(&f.cert, "server-cert", "", "PEM `FILE` of the client certificate")
	flags.StringVar(&f.key, "server-key", "", "PEM `FILE` of the client certificate's key")
	flags.DurationVar(&f.timeout, "server-timeout", 3*time.Second, "timeout `TIME` of a request to the server")
}

// A serverClient sends requests to one server.
type serverClient struct {
	base  string
	token string // "": none
	http  *http.Client
}

// maxAnswer is the limit of an answer in bytes: all rules of the largest ledger.
const maxAnswer = 64 << 20

// A serverRequest is one request to a server.
type serverRequest struct {
	method, path string
	query        url.Values
	kind         string // of the body
	body         []byte
	seen         *int64 // revision for If-Match; 0: the entry must not exist; nil: no condition
}

// send sends a request, and returns the whole answer. A connection error names the server, and the flag
// for another one.
func (c *serverClient) send(ctx context.Context, r *serverRequest) (*http.Response, []byte, error) {
	target := c.base + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, r.method, target, bytes.NewReader(r.body))
	if err != nil {
		return nil, nil, err
	}
	if r.kind != "" {
		request.Header.Set("Content-Type", r.kind)
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	switch {
	case r.seen != nil && *r.seen > 0:
		request.Header.Set("If-Match", web.ETag(*r.seen))
	case r.seen != nil:
		request.Header.Set("If-None-Match", "*")
	}
	response, err := c.http.Do(request)
	var failure *url.Error
	if errors.As(err, &failure) {
		err = fmt.Errorf("%s is not responding: %w; use --server to name another server", c.base, failure.Err)
	}
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	return response, text, err
}

func (f *serverFlags) client(s *System) (*serverClient, error) {
	target := f.url
	secure, err := f.tls()
	if err != nil {
		return nil, err
	}
	if target == "" {
		if target, err = s.own(secure); err != nil {
			return nil, err
		}
	}
	transport := &http.Transport{TLSClientConfig: secure}
	if path, ok := strings.CutPrefix(target, "unix:"); ok {
		path, _, _ = strings.Cut(strings.TrimPrefix(path, "//"), "?")
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
		target = "http://localhost"
	}
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, program.Usagef(
			"--server is %.200q; allowed: http://host:port, https://host:port, unix:/path", target)
	}
	return &serverClient{base: strings.TrimSuffix(target, "/"), http: &http.Client{Transport: transport}}, nil
}

// own is the URL of the server with the same environment, such as this container's. With
// TLS the server must present the certificate file of the environment, whatever its names.
func (s *System) own(secure *tls.Config) (target string, err error) {
	listens := s.lookup("WEIR_HTTP")
	if strings.HasPrefix(listens, "unix:") {
		return listens, nil
	}
	scheme := "http://"
	if files := s.lookup("WEIR_HTTP_TLS_CERT"); files != "" {
		scheme = "https://"
		if secure.RootCAs == nil {
			first, _, _ := strings.Cut(files, ",") // which clients get that ask for no name
			err = pin(secure, first)
		}
	}
	if listens == "" {
		listens = "127.0.0.1:8080"
	}
	host, port, splitErr := net.SplitHostPort(listens)
	if ip := net.ParseIP(host); splitErr == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		listens = net.JoinHostPort("127.0.0.1", port)
	}
	return scheme + listens, err
}

// pin trusts a single certificate, compared by its bytes.
func pin(config *tls.Config, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("WEIR_HTTP_TLS_CERT: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return program.Usagef("WEIR_HTTP_TLS_CERT: %s has no certificate in PEM", file)
	}
	config.InsecureSkipVerify = true // VerifyConnection is stricter than names and authorities
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if !bytes.Equal(state.PeerCertificates[0].Raw, block.Bytes) {
			return fmt.Errorf("the server presents another certificate than that of %s", file)
		}
		return nil
	}
	return nil
}

func (f *serverFlags) tls() (*tls.Config, error) {
	config, err := listen.ClientTLS(f.ca, f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("--server-ca, --server-cert, --server-key: %w", err)
	}
	return config, nil
}
