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

// TestRejectStormAlertsOnce has a storm at two nodes of one Redis: the webhook gets one message.
func TestRejectStormAlertsOnce(t *testing.T) {
	t.Parallel()
	redis, hook := redistest.Start(t), receive(t)
	env := []string{"WEIR_ALERT_WEBHOOK=" + hook.URL + "/hook", "WEIR_ALERT_SECRET=" + alertSecret}
	var nodes []*process
	for range 2 {
		nodes = append(nodes, call{env: env}.serve(t, "--limit", "20/1h", "--store", redis.URL(), "--set", "server.alerts=minimum=40", "--audit", "redis", "--set", "server.node_name=n1"))
	}
	redistest.Await(t, "the alert", func() bool {
		for _, p := range nodes {
			decide(t, p.at("http"), "203.0.113.7", "")
		}
		return hook.got() != ""
	})
	redistest.Await(t, "the metrics of both", func() bool {
		all := scrape(t, nodes[0]) + scrape(t, nodes[1])
		return strings.Count(all, "weir_alerts_firing 1") == 2 && strings.Count(all, `{result="sent"} 1`) == 1
	})
	redistest.Await(t, "the record", func() bool { return len(audited(t, "--store", redis.URL(), "--outcome", "alert")) > 0 })
	if list := audited(t, "--store", redis.URL(), "--outcome", "alert"); len(list) != 1 || !strings.Contains(list[0], "|limit|") {
		t.Errorf("the audit log has %q", list)
	}
	for _, p := range nodes {
		p.end()
	}
	if got := hook.got(); got != "firing reject_share/limit" {
		t.Errorf("the webhook got %s", got)
	}
	if logs := nodes[0].logs() + nodes[1].logs(); strings.Count(logs, "alert: rule limit refused ") != 1 {
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

// TestStoreThatStopsAlerts: requests are decided by on_store_error.
func TestStoreThatStopsAlerts(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := call{}.serve(t, "--limit", "10/1h", "--store", redis.URL())
	redis.Stop()
	redistest.Await(t, "the alert", func() bool {
		decide(t, p.at("http"), "203.0.113.7", "")
		return strings.Contains(p.logs(), "alert: store is not responding: ")
	})
	redis.Cont()
	p.end()
}
