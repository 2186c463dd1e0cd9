package cli_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestSystemdIsNotified(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	socket.SetReadDeadline(time.Now().Add(time.Minute))
	until := func(pattern string) {
		t.Helper()
		message := make([]byte, 4096)
		for {
			n, err := socket.Read(message)
			if err != nil {
				t.Fatalf("%s does not come: %v", pattern, err)
			}
			if regexp.MustCompile(pattern).Match(message[:n]) {
				return
			}
		}
	}
	p := call{env: []string{"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=300000"}}.serve(t)
	until(`(?s)^READY=1\n.*WATCHDOG=1$`)
	until(`^WATCHDOG=1$`)
	p.signal(syscall.SIGHUP)
	until(`^RELOADING=1\nMONOTONIC_USEC=[1-9][0-9]+$`)
	until(`^READY=1\nSTATUS=ready$`)
	p.signal(syscall.SIGTERM)
	until(`^STOPPING=1$`)
	if code := p.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestSocketsPassedBySystemd(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway")
	var files []*os.File
	address := ""
	for _, network := range []string{"tcp", "unix", "tcp"} {
		listener, err := net.Listen(network, map[string]string{"tcp": "127.0.0.1:0", "unix": path}[network])
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		file, err := listener.(interface{ File() (*os.File, error) }).File()
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if files = append(files, file); address == "" {
			address = listener.Addr().String()
		}
	}
	c := call{env: []string{"LISTEN_FDS=3", "LISTEN_FDNAMES=http:gw:spare"}, files: files}
	p := c.start(t, "sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`, program, "serve", "--http", "fd:http", "--gateway", "fd:gw",
		"--upstream", "demo")
	if got := p.at("http"); got != "http://"+address {
		t.Errorf("the API is at %s, and the socket at %s", got, address)
	}
	if got := p.at("gateway"); got != "unix:"+path {
		t.Errorf("the gateway is at %s, and the socket at %s", got, path)
	}
	dial := func(ctx context.Context, network, at string) (net.Conn, error) {
		if strings.HasPrefix(at, "gateway") {
			network, at = "unix", path
		}
		return new(net.Dialer).DialContext(ctx, network, at)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}, Timeout: time.Minute}
	for _, url := range []string{"http://" + address + "/readyz", "http://gateway/"} {
		response, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		if response.Body.Close(); response.StatusCode != 200 {
			t.Errorf("%s: %s", url, response.Status)
		}
	}
	p.end()
	if !strings.Contains(p.logs(), "fd:spare is its address") {
		t.Errorf("a socket without a listener is not named:\n%s", p.logs())
	}
}
