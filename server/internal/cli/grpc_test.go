package cli_test

import (
	"context"
	"crypto/tls"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/redistest/certtest"
)

// dialGRPC connects to the gRPC listener; a nil config is without TLS.
func dialGRPC(t *testing.T, p *process, config *tls.Config) *grpc.ClientConn {
	t.Helper()
	target, secured := p.at("grpc"), insecure.NewCredentials()
	if _, address, ok := strings.Cut(target, "://"); ok {
		target = address
	}
	if config != nil {
		secured = credentials.NewTLS(config)
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(secured))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// grpcHealth is the state of the server, or the error.
func grpcHealth(t *testing.T, conn *grpc.ClientConn) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	answer, err := healthpb.NewHealthClient(conn).Check(ctx, new(healthpb.HealthCheckRequest))
	if err != nil {
		return err.Error()
	}
	return answer.Status.String()
}

func TestGRPCOverTLS(t *testing.T) {
	t.Parallel()
	a := certtest.New(t, t.TempDir(), "authority")
	a.Issue("server", "server-key")
	a.Issue("client", "client-key")
	p := call{}.serve(t, "--grpc", "127.0.0.1:0", "--set", "server.grpc.tls_cert="+a.File("server"), "--set", "server.grpc.tls_key="+a.File("server-key"),
		"--set", "server.grpc.client_ca="+a.File("ca"))
	pair, err := tls.LoadX509KeyPair(a.File("client"), a.File("client-key"))
	if err != nil {
		t.Fatal(err)
	}
	with := &tls.Config{RootCAs: a.Pool(), Certificates: []tls.Certificate{pair}}
	if got := grpcHealth(t, dialGRPC(t, p, with)); got != "SERVING" {
		t.Error(got)
	}
	if got := grpcHealth(t, dialGRPC(t, p, &tls.Config{RootCAs: a.Pool()})); !strings.Contains(got, "Unavailable") {
		t.Errorf("without a certificate: %s", got)
	}
	p.end()
}

func TestGRPCOnAUnixSocketDrains(t *testing.T) {
	t.Parallel()
	p := call{}.serve(t, "--grpc", "unix://"+filepath.Join(t.TempDir(), "weir.sock"), "--set", "server.drain=1h")
	conn := dialGRPC(t, p, nil)
	if got := grpcHealth(t, conn); got != "SERVING" {
		t.Error(got)
	}
	for _, line := range []string{`weir_connections{server="grpc"} 1`,
		`weir_grpc_requests_total{code="OK",method="/grpc.health.v1.Health/Check"} 1`} {
		if _, _, text := get(t, p.at("http")+"/metrics"); !strings.Contains(text, line+"\n") {
			t.Errorf("no %s in\n%s", line, text)
		}
	}
	p.signal(syscall.SIGTERM)
	redistest.Await(t, "NOT_SERVING", func() bool { return grpcHealth(t, conn) == "NOT_SERVING" })
	p.signal(syscall.SIGTERM)
	p.code()
}

func TestPublicGRPCNeedsAToken(t *testing.T) {
	t.Parallel()
	r := call{}.run(t, "serve", "--http", "off", "--grpc", "0.0.0.0:0")
	if r.code == 0 || !strings.Contains(r.err, "grpc listener") || !strings.Contains(r.err, "--token-file") {
		t.Error(r)
	}
}
