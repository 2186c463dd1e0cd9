package cli_test

import (
	"crypto/tls"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest/certtest"
)

// TestTLSOnEveryListener asks each listener without a client certificate, and with one. No listener
// needs another proof then, wherever it listens.
func TestTLSOnEveryListener(t *testing.T) {
	t.Parallel()
	a := certtest.New(t, t.TempDir(), "authority")
	a.Issue("server", "server-key")
	a.Issue("client", "client-key")
	args := []string{"--upstream", "demo"}
	for _, listener := range []string{"http", "gateway", "resp"} {
		args = append(args, "--"+listener, "127.0.0.1:0", "--set", "server."+listener+".tls_cert="+a.File("server"),
			"--set", "server."+listener+".tls_key="+a.File("server-key"), "--set", "server."+listener+".client_ca="+a.File("ca"))
	}
	p := call{}.serve(t, args...)
	pair, err := tls.LoadX509KeyPair(a.File("client"), a.File("client-key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []bool{false, true} {
		config := &tls.Config{RootCAs: a.Pool()}
		if shown {
			config.Certificates = []tls.Certificate{pair}
		}
		transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
		for listener, path := range map[string]string{"http": "/readyz", "gateway": "/"} {
			response, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get(p.at(listener) + path)
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
		redis := []string{"-u", p.at("resp"), "--tls", "--cacert", a.File("ca"), "PING"}
		if shown {
			redis = append([]string{"--cert", a.File("client"), "--key", a.File("client-key")}, redis...)
		}
		out, _ := exec.CommandContext(t.Context(), "redis-cli", redis...).CombinedOutput()
		if shown != strings.Contains(string(out), "PONG") {
			t.Errorf("resp, certificate shown: %v: %s", shown, out)
		}
	}
	health := []string{"health", "--server", p.at("http"), "--server-ca", a.File("ca")}
	if r := (call{}).run(t, health...); r.code != 1 || !strings.Contains(r.err, "certificate required") {
		t.Error(r)
	}
	if r := (call{}).run(t, append(health, "--server-cert", a.File("client"), "--server-key", a.File("client-key"))...); r.code != 0 {
		t.Error(r)
	}
	p.end()
}

// TestHostsWithoutCertificates are reported by check, by flags and by the environment of the server, and by serve.
func TestHostsWithoutCertificates(t *testing.T) {
	t.Parallel()
	a := certtest.New(t, t.TempDir(), "authority")
	a.Issue("one", "one-key", "*.example.com")
	a.Issue("two", "two-key", "example.org")
	in := "rules: []\nservices: [{name: s, addresses: http://127.0.0.1:1}]\n" +
		"routes: [{name: all, host: [api.example.com, Example.org], service: s}]\n"
	both := []string{"WEIR_GATEWAY_TLS_CERT=" + a.File("one") + "," + a.File("two"),
		"WEIR_GATEWAY_TLS_KEY=" + a.File("one-key") + "," + a.File("two-key")}
	if r := (call{env: both, in: in}).run(t, "check", "-"); r.code != 0 {
		t.Errorf("both names are covered: %+v", r)
	}
	for key, want := range map[string]string{"one-key": "the host Example.org, which no certificate covers: " + a.File("one"),
		"two-key": "key \"" + a.File("two-key") + "\", which must be PEM files of one certificate"} {
		r := (call{in: in}).run(t, "check", "--set", "server.gateway.tls_cert="+a.File("one"), "--set", "server.gateway.tls_key="+a.File(key), "-")
		if r.code != 1 || !strings.Contains(r.out, want) {
			t.Errorf("%+v; want %s", r, want)
		}
	}
	if r := (call{in: in}).run(t, "check", "--set", "server.gateway.tls_cert="+a.File("one"), "-"); r.code != 2 {
		t.Errorf("a certificate without its key: %+v", r)
	}
	file := write(t, t.TempDir(), "weir.yaml", in)
	p := call{}.serve(t, "--config", file, "--gateway", "127.0.0.1:0", "--set", "server.gateway.tls_cert="+a.File("one"),
		"--set", "server.gateway.tls_key="+a.File("one-key"))
	p.logged("covers these hosts of routes\" hosts=[Example.org]")
	replace(t, file, strings.Replace(in, "Example.org", "example.net", 1))
	p.logged("covers these hosts of routes\" hosts=[example.net]")
	p.end()
}

// TestHealthOfATLSServer: in a container weir health knows only the environment of the server.
func TestHealthOfATLSServer(t *testing.T) {
	t.Parallel()
	a := certtest.New(t, t.TempDir(), "authority")
	a.Issue("server", "server-key")
	a.Issue("other", "other-key")
	p := call{}.serve(t, "--set", "server.http.tls_cert="+a.File("server"), "--set", "server.http.tls_key="+a.File("server-key"))
	_, address, _ := strings.Cut(p.at("http"), "://")
	for name, want := range map[string]int{"server": 0, "other": 1} {
		env := []string{"WEIR_HTTP=" + address, "WEIR_HTTP_TLS_CERT=" + a.File(name) + ",second.pem"}
		if r := (call{env: env}).run(t, "health"); r.code != want {
			t.Errorf("%s: %v", name, r)
		}
	}
	p.end()
}

// TestHTTP2WithoutTLS, as gRPC clients within a cluster speak it.
func TestHTTP2WithoutTLS(t *testing.T) {
	t.Parallel()
	p := call{}.serve(t, "--limit", "fixed_window 1/1h", "--gateway", "127.0.0.1:0", "--upstream", "demo")
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	for _, want := range []int{200, 429} {
		response, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get(p.at("gateway"))
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
