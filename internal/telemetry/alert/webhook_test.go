package alert

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/telemetry"
)

// answers is a transport that gives answers in turn, and the last one for ever: a status, or 0 for a lost connection.
type answers struct {
	mu     sync.Mutex
	list   []int
	texts  []string
	times  []time.Time
	bodies []string
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	a.bodies, a.times = append(a.bodies, string(body)), append(a.times, time.Now())
	code, text := a.list[0], "{}"
	if len(a.texts) > 0 {
		text = a.texts[0]
	}
	if len(a.list) > 1 {
		a.list = a.list[1:]
	}
	if len(a.texts) > 1 {
		a.texts = a.texts[1:]
	}
	if code == 0 {
		return nil, errors.New("connection refused")
	}
	return &http.Response{StatusCode: code, Status: fmt.Sprint(code), Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
}

func webhook(a *answers, format string) *Webhook {
	w := NewWebhook(WebhookConfig{URL: "http://secret.example/token", Format: format, Node: "n1", Log: quiet})
	w.client.Transport = a
	return w
}

func named(name string) *telemetry.Alert { return &telemetry.Alert{Name: name, Text: "text"} }

func TestMessagesAreRepeated(t *testing.T) {
	for _, c := range []struct {
		list         []int
		texts        []string
		format       string
		sent, failed int64
		posts        int
	}{
		{[]int{200}, nil, "json", 1, 0, 1},
		{[]int{204}, nil, "slack", 1, 0, 1},
		{[]int{0, 503, 429, 408, 200}, nil, "json", 1, 0, 5},
		{[]int{400}, nil, "json", 0, 1, 1},
		{[]int{302}, nil, "json", 0, 1, 1},
		{[]int{500}, nil, "json", 0, 1, 20}, // for fifteen minutes
		{[]int{200}, []string{`{"code":19021,"msg":"sign match fail"}`, `{"code":0}`}, "feishu", 1, 0, 2},
		{[]int{200}, []string{`{"errcode":310000}`, `{"errcode":0,"errmsg":"ok"}`}, "dingtalk", 1, 0, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &answers{list: c.list, texts: c.texts}
			w := webhook(a, c.format)
			defer w.Close()
			w.Send(named("a"))
			time.Sleep(20 * time.Minute)
			if sent, failed := w.Counts(); sent != c.sent || failed != c.failed || len(a.bodies) != c.posts {
				t.Errorf("%v %v: %d sent, %d failed after %d posts", c.list, c.texts, sent, failed, len(a.bodies))
			}
			for i := 2; i < len(a.times); i++ {
				if before, gap := a.times[i-1].Sub(a.times[i-2]), a.times[i].Sub(a.times[i-1]); gap < before || gap > maxPause {
					t.Errorf("a pause of %v after one of %v", gap, before)
				}
			}
		})
	}
}

func TestQueueIsBoundedAndWithoutRepetitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{list: []int{500, 500, 500, 200}}
		w := webhook(a, "json")
		defer w.Close()
		w.Send(named("first"))
		synctest.Wait() // it is tried
		resolved := named("x")
		resolved.Resolved = time.Now()
		for range 3 {
			w.Send(named("x"))
			w.Send(resolved)
		}
		for i := range maxQueue {
			w.Send(named(fmt.Sprint(i)))
		}
		time.Sleep(time.Hour)
		sent, failed := w.Counts()
		if sent != maxQueue+1 || failed != 2 || !strings.Contains(a.bodies[len(a.bodies)-1], `"id":"99"`) {
			t.Errorf("%d sent, %d dropped, the last is %s", sent, failed, a.bodies[len(a.bodies)-1])
		}
	})
}

func TestErrorsHideTheURL(t *testing.T) {
	w := &Webhook{WebhookConfig: WebhookConfig{URL: "http://127.0.0.1:1/token", Format: "json"}, client: new(http.Client)}
	if _, err := w.post(t.Context(), &message{}); err == nil || strings.Contains(err.Error(), "token") {
		t.Error(err)
	}
	for _, text := range []string{"", "token", "ftp://secret", "http://", "http://a b/token", "://token"} {
		if err := CheckURL(text); err == nil || strings.Contains(err.Error(), "token") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := CheckURL("https://hooks.slack.com/services/T/B/X"); err != nil {
		t.Error(err)
	}
}

// TestMessagesOfEachFormat sends to a real server, and checks signatures as receivers do.
func TestMessagesOfEachFormat(t *testing.T) {
	const secret = "0123456789abcdef"
	since := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	fires := telemetry.Alert{Name: "reject_share", Rule: "login", Text: "refused <50 %> & more", Value: 0.5, Limit: 0.1, Since: since, Total: 200, Window: time.Minute}
	ended := fires
	ended.Resolved = since.Add(90 * time.Second)
	type got struct {
		header, query string
		body          map[string]any
		text          string
	}
	var mu sync.Mutex
	var list []got
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		g := got{header: r.Header.Get("X-Weir-Signature"), query: r.URL.RawQuery, text: string(text)}
		if err := json.Unmarshal(text, &g.body); err != nil || r.Method != "POST" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %v", r.Method, text, err)
		}
		mu.Lock()
		list = append(list, g)
		mu.Unlock()
		io.WriteString(w, `{"code":0}`)
	}))
	defer server.Close()
	language := "en"
	send := func(format string) []got {
		list = nil
		w := NewWebhook(WebhookConfig{URL: server.URL + "/hook?access_token=x", Format: format, Language: language, Secret: secret, Node: "n1", Log: quiet})
		defer w.Close()
		w.Send(&fires)
		w.Send(&ended)
		redistest.Await(t, "two messages", func() bool { sent, _ := w.Counts(); return sent == 2 })
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(list)
	}
	const text = "[weir] reject_share: refused <50 %> & more (on n1)"
	for _, g := range send("json") {
		fields := strings.Split(g.header, ",")
		if len(fields) != 2 || fields[1] != "v1="+hex.EncodeToString(sum(secret, strings.TrimPrefix(fields[0], "t=")+"."+g.text)) {
			t.Errorf("the signature is %s", g.header)
		}
		if !acceptedByThePage(t, secret, g.header, g.text) || acceptedByThePage(t, secret, g.header, g.text+" ") {
			t.Errorf("the receiver of docs/howto/alerts.md takes a signature wrongly: %s", g.header)
		}
	}
	if b := list[0].body; b["id"] != "reject_share/login" || b["status"] != "firing" || b["rule"] != "login" || b["node"] != "n1" || b["value"] != 0.5 || b["resolved"] != nil {
		t.Errorf("json: %v", b)
	}
	if b := list[1].body; b["status"] != "resolved" || b["resolved"] != "2026-11-22T12:01:30Z" {
		t.Errorf("json: %v", b)
	}
	if node, _ := NewWebhook(WebhookConfig{Format: "json", Node: "n1", Log: quiet}).body(&message{Alert: telemetry.Alert{Name: "degraded"}}); !strings.Contains(string(node), `"id":"degraded/n1"`) {
		t.Errorf("each server raises and resolves the alert for itself: %s", node)
	}
	harmless := strings.ReplaceAll(text, "<", "＜")
	if b := send("slack"); b[0].body["text"] != harmless || b[0].header == "" ||
		!strings.HasPrefix(b[1].body["text"].(string), "[weir] resolved after 1m30s: reject_share/login") {
		t.Errorf("slack: %v", b)
	}
	f := send("feishu")[0].body
	if f["msg_type"] != "text" || f["content"].(map[string]any)["text"] != harmless {
		t.Errorf("feishu: %v", f)
	}
	language = "zh"
	z := send("feishu")
	for i, want := range []string{"[weir] reject_share：规则 login 在 1分钟 内拒绝了 200 个请求中的 50%，超过 10%（节点 n1）",
		"[weir] 已恢复（持续1分钟30秒）：reject_share/login（节点 n1：规则 login"} {
		if got := z[i].body["content"].(map[string]any)["text"].(string); !strings.HasPrefix(got, want) {
			t.Errorf("feishu in Chinese: %s", got)
		}
	}
	language = "en"
	d := send("dingtalk")[0]
	if d.body["msgtype"] != "text" || d.body["text"].(map[string]any)["content"] != harmless || d.query != "access_token=x" {
		t.Errorf("dingtalk: %v", d)
	}
}

// TestChineseIsThatOfTheConsole: an alert has one sentence wherever it is read, and each name has one.
func TestChineseIsThatOfTheConsole(t *testing.T) {
	console, err := os.ReadFile("../../static/texts/frame.js")
	if err != nil {
		t.Fatal(err)
	}
	texts := make(map[string]string)
	for _, found := range regexp.MustCompile(`(?m)^\t'alert\.([\w.]+)': \['.*', '(.*)'\],$`).FindAllStringSubmatch(string(console), -1) {
		if name := found[1]; !strings.HasPrefix(name, "title.") && name != "and" {
			texts[name] = found[2]
		}
	}
	if !maps.Equal(texts, chinese) {
		t.Errorf("the console has\n%q\nmessages have\n%q", texts, chinese)
	}
	several := &telemetry.Alert{Name: "reject_share", Value: 0.95, Limit: 0.1, Total: 200, Window: time.Minute, Count: 3,
		Rules: []string{"a", "b {n}", "c"}, Alone: true}
	const want = "规则 a 在 1分钟 内拒绝了 200 个请求中的 95%，超过 10%；另有 2 条，例如 b {n}、c（仅为单个节点的计数：Redis 没有应答）"
	if got := inChinese(several); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got := inChinese(&telemetry.Alert{Name: "later", Text: "text"}); got != "text" {
		t.Errorf("an unknown alert is %q", got)
	}
}

// acceptedByThePage asks the receiver that docs/howto/alerts.md shows whether a message is signed.
func acceptedByThePage(t *testing.T, secret, header, body string) bool {
	t.Helper()
	page, err := os.ReadFile("../../../docs/howto/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(page), "```python\n")
	program, _, _ = strings.Cut(program, "```\n")
	program += "import sys\nprint(is_from_weir(sys.argv[1].encode(), sys.argv[2], sys.argv[3].encode()))\n"
	out, err := exec.Command("python3", "-c", program, secret, header, body).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out) == "True\n"
}
