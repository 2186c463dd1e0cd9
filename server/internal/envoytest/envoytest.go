// Package envoytest runs a real Envoy in tests. make tools installs the one that requirements.txt names.
package envoytest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/redistest"
)

// version is that of requirements.txt and of the Makefile.
const version = "1.40.0"

// An Envoy is a process that runs until its test ends.
type Envoy struct {
	t         testing.TB
	admin     string            // host:port
	listeners map[string]string // host:port, by name
	log       redistest.Log
}

// binary is the installed program. WEIR_ENVOY names another one, or is "skip" to skip the tests that need it.
func binary(t testing.TB) string {
	t.Helper()
	switch given := os.Getenv("WEIR_ENVOY"); given {
	case "":
	case "skip":
		t.Skip("WEIR_ENVOY is skip")
	default:
		return given
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(cache, "weir", "envoy-"+version, "envoy", "_bin", "envoy")
	if _, err := os.Stat(name); err != nil {
		t.Fatalf("Envoy is not installed: run make tools, or set WEIR_ENVOY to an Envoy %s, or to skip: %v",
			version, err)
	}
	return name
}

// Start starts Envoy with a bootstrap configuration in YAML, whose listeners should have the port 0 and a name each,
// and waits until it is live. The pairs are texts of the configuration with their replacements, such as the addresses
// in a page's example with those of the test; each must occur.
func Start(t testing.TB, config string, pairs ...string) *Envoy {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(config, pairs[i]) {
			t.Fatalf("the configuration has no %q:\n%s", pairs[i], config)
		}
	}
	e := &Envoy{t: t}
	e.run(strings.NewReplacer(pairs...).Replace(config))
	redistest.Await(t, "Envoy to be live", e.live)
	e.readListeners()
	return e
}

func (e *Envoy) run(config string) {
	e.t.Helper()
	dir := e.t.TempDir()
	file, admin := filepath.Join(dir, "envoy.yaml"), filepath.Join(dir, "admin")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		e.t.Fatal(err)
	}
	command := exec.Command(binary(e.t), "--disable-hot-restart", "--concurrency", "1", "-l", "warning",
		"--admin-address-path", admin, "-c", file, "--config-yaml",
		`{"admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}}}`)
	command.Stdout, command.Stderr, command.SysProcAttr = &e.log, &e.log, redistest.DieWithParent()
	if err := command.Start(); err != nil {
		e.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		command.Wait()
		close(ended)
	}()
	e.t.Cleanup(func() {
		command.Process.Kill()
		<-ended
		if e.t.Failed() {
			e.t.Logf("Envoy's log:\n%s", e.log.String())
		}
	})
	redistest.Await(e.t, "Envoy's admin address", func() bool {
		select {
		case <-ended:
			e.t.Fatalf("Envoy ended:\n%s\n%s", e.log.String(), config)
		default:
		}
		text, err := os.ReadFile(admin)
		e.admin = string(text)
		return err == nil && len(text) > 0
	})
}

func (e *Envoy) live() bool {
	response, err := http.Get("http://" + e.admin + "/ready")
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func (e *Envoy) readListeners() {
	var all struct {
		Statuses []struct {
			Name    string `json:"name"`
			Address struct {
				Socket struct {
					Address string `json:"address"`
					Port    int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal([]byte(e.Admin("/listeners?format=json")), &all); err != nil {
		e.t.Fatal(err)
	}
	e.listeners = make(map[string]string)
	for _, l := range all.Statuses {
		e.listeners[l.Name] = net.JoinHostPort(l.Address.Socket.Address, fmt.Sprint(l.Address.Socket.Port))
	}
}

// Address is the host:port of a listener.
func (e *Envoy) Address(listener string) string {
	e.t.Helper()
	address := e.listeners[listener]
	if address == "" {
		e.t.Fatalf("Envoy has no listener %q, but %v", listener, e.listeners)
	}
	return address
}

// Admin reads a page of the administration, such as /stats?filter=ratelimit.
func (e *Envoy) Admin(path string) string {
	e.t.Helper()
	response, err := http.Get("http://" + e.admin + path)
	if err != nil {
		e.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return string(text)
}
