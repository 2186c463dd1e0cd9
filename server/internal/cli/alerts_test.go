package cli_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest"
)

const alertSecret = "0123456789abcdef"

// A receiver is a webhook that checks signatures.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	list []string // status and id of each message
}

func receive(t *testing.T) *receiver {
	r := new(receiver)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		stamp, sign, _ := strings.Cut(request.Header.Get("X-Weir-Signature"), ",v1=")
		mac := hmac.New(sha256.New, []byte(alertSecret))
		io.WriteString(mac, strings.TrimPrefix(stamp, "t=")+"."+string(body))
		if sign != hex.EncodeToString(mac.Sum(nil)) {
			t.Errorf("the signature %s is wrong", request.Header.Get("X-Weir-Signature"))
		}
		var m struct{ Status, ID string }
		if err := json.Unmarshal(body, &m); err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.list = append(r.list, m.Status+" "+m.ID)
	}))
	t.Cleanup(r.Close)
	return r
}

// got is what arrived, with commas.
func (r *receiver) got() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.list, ", ")
}

// TestRejectStormAlertsOnce has a storm at two nodes of one Redis: the webhook gets one message of its begin, and one
// of its end.
func TestRejectStormAlertsOnce(t *testing.T) {
	t.Parallel()
	redis, hook := redistest.Start(t), receive(t)
	env := []string{"WEIR_ALERT_WEBHOOK=" + hook.URL + "/hook", "WEIR_ALERT_SECRET=" + alertSecret}
	var nodes []*process
	for range 2 {
		nodes = append(nodes, call{env: env}.serve(t, "--limit", "20/1h", "--store", redis.URL(), "--alerts",
			"window=10s,minimum=40,resolve=5s,new_top_key=off", "--audit", "redis", "--node-name", "n1"))
	}
	redistest.Await(t, "the alert", func() bool {
		for _, p := range nodes {
			decide(t, p.at("http"), "203.0.113.7", "")
		}
		return hook.got() != ""
	})
	redistest.Await(t, "its end", func() bool { return strings.Contains(hook.got(), "resolved") })
	if got := hook.got(); got != "firing reject_share/limit, resolved reject_share/limit" {
		t.Errorf("the webhook got %s", got)
	}
	redistest.Await(t, "the metrics", func() bool {
		all := scrape(t, nodes[0]) + scrape(t, nodes[1])
		one, both := strings.Count(all, `{result="sent"} 1`), strings.Count(all, `{result="sent"} 2`)
		return strings.Count(all, "weir_alerts_firing 0") == 2 && (one == 2 || both == 1)
	})
	for _, word := range []string{"alert", "resolved"} {
		redistest.Await(t, "the record", func() bool { return len(audited(t, "--store", redis.URL(), "--outcome", word)) > 0 })
		if list := audited(t, "--store", redis.URL(), "--outcome", word); len(list) != 1 || !strings.Contains(list[0], "|limit|") {
			t.Errorf("%s: the audit log has %q", word, list)
		}
	}
	for _, p := range nodes {
		p.end()
	}
	if logs := nodes[0].logs() + nodes[1].logs(); strings.Count(logs, "alert: rule limit refused ") != 1 || strings.Count(logs, "alert resolved: ") != 1 {
		t.Errorf("the logs are\n%s", logs)
	}
}

// scrape is what /metrics says of alerts.
func scrape(t *testing.T, p *process) (lines string) {
	t.Helper()
	response, err := http.Get(p.at("http") + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "weir_alert") {
			lines += line
		}
	}
	return lines
}

// TestConditionsOfAServerAlert has a limit that all share and is nearly used, rules that are wrong, and a Redis that
// stops.
func TestConditionsOfAServerAlert(t *testing.T) {
	t.Parallel()
	redis, dir := redistest.Start(t), t.TempDir()
	write(t, dir, "weir.yaml", "rules:\n  - {name: login, key: [client.ip], limit: fixed_window 10/1h}\n  - {name: site, limit: fixed_window 10/1h}\n")
	p := call{dir: dir}.serve(t, "--config", "weir.yaml", "--store", redis.URL(), "--store-timeout", "2s", "--alerts",
		"minimum=10,window=10s")
	for range 9 {
		decide(t, p.at("http"), "203.0.113.7", "")
	}
	logged := func(text string) {
		t.Helper()
		redistest.Await(t, text, func() bool {
			decide(t, p.at("http"), "203.0.113.7", "")
			time.Sleep(100 * time.Millisecond)
			return strings.Contains(p.logs(), text)
		})
	}
	logged("alert: one key has 100 % of the refusals of rule login")
	logged("% of its limit fixed_window 10/1h, which all its requests share")
	write(t, dir, "weir.yaml", "rules: [{nam: site}]\n")
	logged("alert: rule source config is not in force as it is")
	redis.Stop()
	logged("alert: store is not responding: ")
	redis.Cont()
	p.end()
}
