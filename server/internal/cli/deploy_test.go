package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest"
)

// TestPrometheusRules runs the tests of deploy/prometheus.
func TestPrometheusRules(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"check", "rules", "weir.rules.yml"}, {"test", "rules", "weir.rules.test.yml"}} {
		command := exec.Command("promtool", args...)
		command.Dir = "../../../deploy/prometheus"
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// Each alert leads to its part of the page that says what to do.
func TestAlertsHaveRunbooks(t *testing.T) {
	rules, err := os.ReadFile("../../../deploy/prometheus/weir.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/howto/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range strings.Split(string(rules), "- alert: ")[1:] {
		name, rest, _ := strings.Cut(rule, "\n")
		if !strings.Contains(rest, "/docs/howto/operating.md#"+strings.ToLower(name)+"\n") {
			t.Errorf("%s has no runbook_url of its own", name)
		}
		if !strings.Contains(string(page), "\n### "+name+"\n") {
			t.Errorf("docs/howto/operating.md does not say what to do about %s", name)
		}
	}
}

// expressions are those of the dashboard, by panel, and those of the alert rules.
func expressions(t *testing.T) (dashboard map[string][]string, alerts []string) {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/grafana/weir.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	dashboard = make(map[string][]string)
	variables := strings.NewReplacer("$__rate_interval", "10s", "$job", ".*", "$instance", ".*")
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			dashboard[p.Title] = append(dashboard[p.Title], variables.Replace(target.Expr))
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("the panel %s shows nothing", p.Title)
		}
	}
	if text, err = os.ReadFile("../../../deploy/prometheus/weir.rules.yml"); err != nil {
		t.Fatal(err)
	}
	for _, expr := range regexp.MustCompile(`(?s)expr: (.*?)\n        (?:for|labels):`).FindAllStringSubmatch(string(text), -1) {
		alerts = append(alerts, strings.TrimPrefix(expr[1], "|"))
	}
	return dashboard, alerts
}

// TestDashboardShowsARunningServer has a real Prometheus scrape a server under load: each expression of the dashboard
// returns data, and each metric of an alert rule is there.
func TestDashboardShowsARunningServer(t *testing.T) {
	t.Parallel()
	redis, dir := redistest.Start(t), t.TempDir()
	write(t, dir, "weir.yaml", `rules:
  - {name: ip, key: [client.ip], limit: 5/1s, ban: {after: 100 refusals within 1m, for: 1s}}
  - {name: trial, mode: shadow, key: [client.ip], limit: 1/1s}
`)
	p := call{dir: dir}.serve(t, "--config", "weir.yaml", "--store", redis.URL(), "--upstream", "demo", "--gateway", "127.0.0.1:0", "--audit", "redis")
	stop, load := make(chan struct{}), sync.WaitGroup{}
	defer load.Wait()
	defer close(stop)
	load.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				if response, err := http.Get(p.at("gateway")); err == nil {
					response.Body.Close()
				}
			}
		}
	})
	prometheus := startPrometheus(t, dir, strings.TrimPrefix(p.at("http"), "http://"))
	dashboard, alerts := expressions(t)
	if len(dashboard) < 20 || len(alerts) < 10 {
		t.Fatalf("%d panels, %d alert rules", len(dashboard), len(alerts))
	}
	redistest.Await(t, "a scrape", func() bool { return len(query(t, prometheus, `sum(rate(weir_bans_total[10s])) > 0`)) > 0 })
	for title, list := range dashboard {
		for _, expr := range list {
			redistest.Await(t, title+": "+expr, func() bool { return len(query(t, prometheus, expr)) > 0 })
		}
	}
	for _, expr := range alerts {
		for _, name := range regexp.MustCompile(`\bweir_[a-z_]+|\bup\b`).FindAllString(expr, -1) {
			if len(query(t, prometheus, name)) == 0 {
				t.Errorf("the alert rule %s uses %s, which the server does not have", expr, name)
			}
		}
		query(t, prometheus, expr) // it is valid
	}
}

// startPrometheus starts a Prometheus that scrapes a server each second, and returns its address.
func startPrometheus(t *testing.T, dir, target string) string {
	t.Helper()
	write(t, dir, "prometheus.yml", fmt.Sprintf("global: {scrape_interval: 1s}\nscrape_configs:\n"+
		"  - {job_name: weir, static_configs: [{targets: [%q]}]}\n", target))
	address := redistest.FreeAddr(t)
	command := exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--web.listen-address="+address,
		"--storage.tsdb.path="+filepath.Join(dir, "prometheus"), "--log.level=error")
	out := new(strings.Builder)
	command.Stderr = out
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		command.Process.Kill()
		if command.Wait(); t.Failed() {
			t.Log(out)
		}
	})
	redistest.Await(t, "Prometheus", func() bool {
		response, err := http.Get("http://" + address + "/-/ready")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return address
}

// query is the result of an expression now: its samples that are numbers.
func query(t *testing.T, prometheus, expr string) (values []string) {
	t.Helper()
	response, err := http.Get("http://" + prometheus + "/api/v1/query?" + url.Values{"query": {expr}}.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct{ Result []struct{ Value [2]any } }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.Status != "success" {
		t.Fatalf("%s: %s, %v", expr, answer.Error, err)
	}
	for _, r := range answer.Data.Result {
		if value := fmt.Sprint(r.Value[1]); value != "NaN" {
			values = append(values, value)
		}
	}
	return values
}

var (
	mount    = regexp.MustCompile(`(\.{1,2}/[^:"]+):(/[^:"]+):ro`)
	settings = regexp.MustCompile(`(?m)^ +(WEIR_\w+): (\S+)`)
)

// TestCompose: the files that deploy/compose mounts are there, Prometheus takes its own, and weir starts with the
// variables.
func TestCompose(t *testing.T) {
	t.Parallel()
	const at = "../../../deploy/compose"
	text, err := os.ReadFile(at + "/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mounts := mount.FindAllStringSubmatch(string(text), -1)
	for _, m := range mounts {
		content, err := os.ReadFile(filepath.Join(at, m[1]))
		if err != nil {
			t.Error(err)
		}
		write(t, dir, filepath.Base(m[2]), string(content))
	}
	if len(mounts) != 6 {
		t.Errorf("%d mounts were found", len(mounts))
	}
	check := exec.Command("promtool", "check", "config", "prometheus.yml")
	check.Dir = dir
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	var env []string
	for _, v := range settings.FindAllStringSubmatch(string(text), -1) {
		name, value := v[1], v[2]
		switch {
		case name == "WEIR_CONFIG":
			value = at + "/weir.yaml"
		case name == "WEIR_STORE":
			value = redistest.Start(t).URL()
		case strings.HasPrefix(value, "0.0.0.0:"):
			value = "127.0.0.1:0"
		case strings.HasPrefix(value, "${WEIR_TOKEN"):
			value = "a-secret-of-this-test"
		case strings.HasPrefix(value, "${WEIR_UPSTREAM"):
			value = "demo"
		}
		env = append(env, name+"="+value)
	}
	running := call{env: env}.serve(t, "--set", "server.store.timeout=5s") // a busy machine is no mistake of the file
	if code, _, body := get(t, running.at("gateway")+"/"); code != http.StatusOK {
		t.Error(code, body)
	}
	if said := running.logs(); strings.Contains(said, "unknown") {
		t.Error(said)
	}
	running.end()
}

// TestFilesOfThePackage: the rules that the Debian package installs are in force as they are.
func TestFilesOfThePackage(t *testing.T) {
	t.Parallel()
	if r := (call{}).run(t, "check", "../../../deploy/debian/weir.yaml"); r.code != 0 {
		t.Error(r)
	}
}
