//go:build unix

package cli_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest"
)

// articles reads a file of deploy/gateway. The windows are 30 days instead of a second, so that no unit comes back
// while the test runs on a slow machine: of 1000 an hour, one comes back after 3.6 s. The services listen at free ports.
func articles(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/gateway/" + name)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/howto/gateway.md")
	if err != nil || !strings.Contains(string(page), string(text)) {
		t.Errorf("docs/howto/gateway.md does not show %s as it is: %v", name, err)
	}
	changed := strings.NewReplacer("/1s\n", "/30d\n", "timeWindow 1 ", "timeWindow 2592000 ").Replace(string(text))
	for port, name := range map[string]string{"9001": "order", "9002": "order", "9003": "user"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, name, " ", r.URL.Path)
		}))
		t.Cleanup(server.Close)
		changed = strings.ReplaceAll(changed, "http://127.0.0.1:"+port, server.URL)
	}
	return changed
}

// fourLevels sends requests until each level has refused one, and compares the counts and the messages.
func fourLevels(t *testing.T, p *process) {
	t.Helper()
	gateway, ip := p.at("gateway"), 0
	// send sends requests to a path, so many from each of several addresses.
	send := func(path string, requests, each int, want string) {
		t.Helper()
		for n := range requests {
			if n%each == 0 {
				ip++
			}
			from := fmt.Sprintf("198.51.%d.%d", 100+ip/200, 1+ip%200)
			status, _, body := get(t, gateway+path, "X-Forwarded-For", from, "Accept-Language", "en")
			if status != 200 || body != want {
				t.Fatalf("request %d to %s: %d %s", n, path, status, body)
			}
		}
	}
	refused := func(path, english, chinese string, fresh bool) {
		t.Helper()
		if fresh {
			ip++
		}
		from := fmt.Sprintf("198.51.%d.%d", 100+ip/200, 1+ip%200)
		for language, message := range map[string]string{"en": english, "zh-CN": chinese} {
			status, _, body := get(t, gateway+path, "X-Forwarded-For", from, "Accept-Language", language)
			if status != 429 || !strings.Contains(body, message) {
				t.Errorf("%s: %d %s, want %s", path, status, body, message)
			}
		}
	}
	send("/users/1", 20, 20, "user /users/1")
	refused("/users/1", "You send too many requests.", "您的请求过于频繁", false)
	send("/pay", 50, 10, "order /pay")
	refused("/pay", "Too many payments at once.", "支付请求过多，请稍后再试", true)
	send("/orders/7", 450, 20, "order /orders/7")
	refused("/orders/7", "The order service is busy.", "订单服务繁忙，请稍后再试", true)
	send("/users/2", 480, 20, "user /users/2")
	refused("/users/2", "The site is busy.", "全站繁忙，请稍后再试", true)
	if status, _, body := get(t, gateway+"/other"); status != 404 || !strings.Contains(body, "No route") {
		t.Errorf("without a route: %d %s", status, body)
	}
	_, _, state := get(t, p.at("http")+"/v1/admin/services")
	if strings.Count(state, `"healthy": true`) != 3 || !strings.Contains(state, `"forwarded": 450`) {
		t.Errorf("GET services: %s", state)
	}
	_, _, metrics := get(t, p.at("http")+"/metrics")
	for _, line := range []string{
		`weir_gateway_requests_total{outcome="forwarded",route="pay",service="order"} 50`,
		`weir_gateway_requests_total{outcome="refused",route="pay",service="order"} 2`,
		`weir_gateway_requests_total{outcome="forwarded",route="users",service="user"} 500`,
		`weir_decisions_total{outcome="refused",rule="interface-pay"} 2`,
	} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("the metrics have no %s", line)
		}
	}
}

// TestArticlesGatewayByFile is deploy/gateway/weir.yaml, as docs/howto/gateway.md starts it.
func TestArticlesGatewayByFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "weir.yaml", articles(t, "weir.yaml"))
	r := call{dir: dir}.run(t, "check", "weir.yaml")
	if r.code != 0 || !strings.HasPrefix(r.out, "4 rules, no mistakes\nroute pay to service order\n") ||
		!strings.Contains(r.out, "\nservice order at http://127.0.0.1:") {
		t.Errorf("weir check: %v", r)
	}
	p := call{dir: dir}.serve(t, "--config", "weir.yaml", "--gateway", "127.0.0.1:0", "--trusted-proxies", "127.0.0.1")
	fourLevels(t, p)
	p.end()
}

// TestArticlesGatewayByRedisCLI is the services of weir.yaml, and deploy/gateway/weir.redis typed into redis-cli.
func TestArticlesGatewayByRedisCLI(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	dir := t.TempDir()
	services, _, _ := strings.Cut(articles(t, "weir.yaml"), "rules:\n")
	write(t, dir, "weir.yaml", services+"rules: []\n")
	p := call{dir: dir}.serve(t, "--config", "weir.yaml", "--store", redis.URL(), "--rules", "redis",
		"--gateway", "127.0.0.1:0", "--trusted-proxies", "127.0.0.1")
	write(t, dir, "weir.redis", articles(t, "weir.redis"))
	if r := (call{dir: dir}).shell(t, "redis-cli -u "+redis.URL()+" < weir.redis"); r.code != 0 ||
		strings.Contains(r.out, "ERR") {
		t.Fatal(r)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		_, _, metrics := get(t, p.at("http")+"/metrics")
		if strings.Contains(metrics, `weir_source_rules{source="redis"} 4`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the rules are not in force; the logs:\n%s", p.logs())
		}
	}
	fourLevels(t, p)
	redisCLI(t, redis, "HSET rate_limit_config:each-user limitType USER limitTarget '*' limitCount 1 timeWindow 60 strategy GCRA enabled true")
	redisCLI(t, redis, "PUBLISH rate_limit_config RELOAD_ALL")
	const mistake = "rate_limit_config:each-user: limitType is USER, and the gateway knows no users: name the header"
	redistest.Await(t, mistake, func() bool { return strings.Contains(p.logs(), mistake) })
	p.end()
}
