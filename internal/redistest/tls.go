//go:build unix

package redistest

import (
	"crypto/tls"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest/certtest"
)

// A TLSServer is a server that speaks TLS only and asks for a client certificate. Its
// own certificate is for 127.0.0.1 and localhost.
type TLSServer struct {
	*Server
	CA, Cert, Key string // files of the authority and the client, PEM
	config        *tls.Config
}

// StartTLS is Start for a server that speaks TLS only.
func StartTLS(t testing.TB, args ...string) *TLSServer {
	t.Helper()
	a := certtest.New(t, t.TempDir(), "authority")
	a.Issue("server", "server-key")
	a.Issue("client", "client-key")
	pair, err := tls.LoadX509KeyPair(a.File("client"), a.File("client-key"))
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{RootCAs: a.Pool(), Certificates: []tls.Certificate{pair}}
	server := start(t, func(s *Server) {
		s.args = append(plain(0, "--tls-port", strconv.Itoa(s.port), "--tls-auth-clients", "yes",
			"--tls-ca-cert-file", a.File("ca"),
			"--tls-cert-file", a.File("server"), "--tls-key-file", a.File("server-key")), args...)
		s.url = "rediss://" + s.Addr()
		s.dial = func() (net.Conn, error) {
			return tls.DialWithDialer(&net.Dialer{Timeout: time.Second}, "tcp", s.Addr(), config)
		}
	})
	return &TLSServer{server, a.File("ca"), a.File("client"), a.File("client-key"), config}
}

// Config is the TLS configuration of a client.
func (s *TLSServer) Config() *tls.Config { return s.config.Clone() }
