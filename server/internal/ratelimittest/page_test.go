//go:build unix

package ratelimittest_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/server/internal/ratelimittest"
)

// envoyPage is docs/howto/envoy.md: the blocks of a kind, in order.
func envoyPage(t *testing.T, kind string, want int) (list []string) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/howto/envoy.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```(\\w+)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if block[1] == kind {
			list = append(list, block[2])
		}
	}
	if len(list) != want {
		t.Fatalf("docs/howto/envoy.md has %d blocks of %s; this test knows %d", len(list), kind, want)
	}
	return list
}

// placed are variables that a place has its own values of.
var placed = []string{"RUNTIME_ROOT", "REDIS_URL", "HOST", "GRPC_HOST"}

var command = regexp.MustCompile(`^curl (?:-d '(.*)' )?http://127\.0\.0\.1:(8080|6070)(/\S*)$`)

// call runs a line with curl.
func call(t *testing.T, p *ratelimittest.Place, line string) (status int, body string) {
	t.Helper()
	parts := command.FindStringSubmatch(line)
	if parts == nil {
		t.Fatalf("the page has a command that this test does not know: %s", line)
	}
	url := "http://" + map[string]string{"8080": p.HTTP, "6070": p.Debug}[parts[2]] + parts[3]
	method := http.MethodGet
	if parts[1] != "" {
		method = http.MethodPost
	}
	r, err := http.NewRequest(method, url, strings.NewReader(parts[1]))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// TestPageOfAPlainEnvoy starts weir by the variables that the page shows, with the file, and runs the commands.
func TestPageOfAPlainEnvoy(t *testing.T) {
	t.Parallel()
	var env []string
	for _, word := range strings.Fields(envoyPage(t, "text", 2)[0]) {
		name, _, ok := strings.Cut(word, "=")
		if ok && !slices.Contains(placed, name) {
			env = append(env, word)
		}
	}
	config := map[string]string{"shop.yaml": envoyPage(t, "yaml", 4)[0]}
	p := ratelimittest.NewPlace(t, redistest.Start(t).Addr(), config, env...)
	p.Start(weir(t)).Await()
	lines := strings.Split(strings.TrimSpace(envoyPage(t, "sh", 1)[0]), "\n")
	if _, body := call(t, p, lines[0]); body != "OK" {
		t.Errorf("%s: %q", lines[0], body)
	}
	if _, body := call(t, p, lines[1]); body != envoyPage(t, "text", 2)[1] {
		t.Errorf("%s: %s", lines[1], body)
	}
	for i, want := range []int{200, 200, 429} {
		if status, body := call(t, p, lines[2]); status != want {
			t.Errorf("request %d at /json: %d %s, want %d", i+1, status, body, want)
		}
	}
}

// TestPageOfAnOverlay starts weir with the overlay of the page: the limit that the controller owns slides, and its domain
// answers errors while Redis is away.
func TestPageOfAnOverlay(t *testing.T) {
	t.Parallel()
	blocks := envoyPage(t, "yaml", 4)
	overlay := filepath.Join(t.TempDir(), "overlay.yaml")
	if err := os.WriteFile(overlay, []byte(blocks[3]), 0o600); err != nil {
		t.Fatal(err)
	}
	redis := redistest.Start(t)
	p := ratelimittest.NewPlace(t, redis.Addr(), map[string]string{"shop.yaml": blocks[0]}, "WEIR_OVERLAY="+overlay)
	p.Start(weir(t)).Await()
	line := strings.Split(strings.TrimSpace(envoyPage(t, "sh", 1)[0]), "\n")[2]
	if status, body := call(t, p, line); status != 200 || !strings.Contains(body, `"durationUntilReset":"60s"`) {
		t.Errorf("a window that begins with its first request: %d %s", status, body)
	}
	redis.Kill()
	redistest.Await(t, "an error without Redis", func() bool {
		status, _ := call(t, p, line)
		return status == 500
	})
}

// A container is as the Deployment of Istio's sample has it.
type container struct {
	Command []string
	Env     []struct{ Name, Value string }
}

// TestPageOfIstio runs the container of the page with a ConfigMap as the kubelet mounts it, and changes the ConfigMap.
func TestPageOfIstio(t *testing.T) {
	t.Parallel()
	var deployment struct{ Containers []container }
	if err := yaml.Unmarshal([]byte(envoyPage(t, "yaml", 4)[1]), &deployment); err != nil {
		t.Fatal(err)
	}
	one := deployment.Containers[0]
	if !slices.Equal(one.Command, []string{"/bin/ratelimit"}) {
		t.Errorf("the page changes the command to %q", one.Command)
	}
	var env []string
	for _, v := range one.Env {
		if !slices.Contains(placed, v.Name) {
			env = append(env, v.Name+"="+v.Value)
		}
	}
	p := ratelimittest.NewPlace(t, redistest.Start(t).Addr(), nil, env...)
	configMap(t, p.Config, "0", "requests_per_unit: few")
	service := p.Start(weir(t))
	redistest.Await(t, "a start without limits", func() bool {
		return strings.Contains(service.Log(), "requests are answered with an error")
	})
	configMap(t, p.Config, "1", "requests_per_unit: 1")
	service.Await()
	configMap(t, p.Config, "2", "requests_per_unit: 7")
	limits(t, p, "requests_per_unit=7")
	configMap(t, p.Config, "3", "requests_per_unit: many")
	redistest.Await(t, "a mistake in the log", func() bool { return strings.Contains(service.Log(), "many") })
	limits(t, p, "requests_per_unit=7")
	configMap(t, p.Config, "4", "requests_per_unit: 8")
	limits(t, p, "requests_per_unit=8")
}

// configMap mounts a version of a ConfigMap, by one renamed link.
func configMap(t *testing.T, dir, version, limit string) {
	t.Helper()
	text := "domain: echo-ratelimit\ndescriptors: [{key: PATH, rate_limit: {unit: minute, " + limit + "}}]\n"
	err := os.MkdirAll(filepath.Join(dir, ".."+version), 0o755)
	for _, step := range []func() error{
		func() error {
			return os.WriteFile(filepath.Join(dir, ".."+version, "config.yaml"), []byte(text), 0o644)
		},
		func() error { return os.Symlink(".."+version, filepath.Join(dir, "..data_tmp")) },
		func() error { return os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")) },
	} {
		if err == nil {
			err = step()
		}
	}
	if version == "0" && err == nil {
		err = os.Symlink("..data/config.yaml", filepath.Join(dir, "config.yaml"))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// limits waits until /rlconfig has a text.
func limits(t *testing.T, p *ratelimittest.Place, want string) {
	t.Helper()
	redistest.Await(t, want, func() bool {
		_, body := call(t, p, "curl http://127.0.0.1:6070/rlconfig")
		return strings.Contains(body, want)
	})
}
