package alert

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir/internal/pause"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/internal/timewords"
)

const (
	// maxQueue bounds the messages that wait. The oldest one is dropped for another.
	maxQueue = 100
	// maxAge is how long a message is tried.
	maxAge = 15 * time.Minute
	// postTimeout bounds one attempt.
	postTimeout = 10 * time.Second
	// maxAnswer bounds the reading of an answer.
	maxAnswer = 64 << 10

	firstPause = time.Second
	maxPause   = time.Minute
)

// Formats are the forms of a message: all its values, or a text for people.
var Formats = []string{jsonFormat, "slack", "feishu", "dingtalk"}

const jsonFormat = "json"

// templates are the bodies of the others.
var templates = map[string]string{
	"slack":    `{"text":TEXT}`,
	"feishu":   `{"msg_type":"text","content":{"text":TEXT}}`,
	"dingtalk": `{"msgtype":"text","text":{"content":TEXT}}`,
}

// A WebhookConfig says where messages go.
type WebhookConfig struct {
	URL      string
	Format   string // one of Formats
	Language string // one of Languages
	Secret   string // signs messages; "": they are not signed
	Node     string // that sends
	Log      *slog.Logger
}

// A Webhook sends messages, one after the other, and repeats messages that were not accepted. It is safe for concurrent
// use.
type Webhook struct {
	WebhookConfig
	client *http.Client

	mu    sync.Mutex
	queue []message
	wake  chan struct{}

	cancel context.CancelFunc
	ended  sync.WaitGroup

	sent, failed atomic.Int64
}

// A message is an alert that was raised or resolved.
type message struct {
	telemetry.Alert
	queued time.Time
}

// status is the word for it.
func (m *message) status() string {
	if m.Resolved.IsZero() {
		return "firing"
	}
	return "resolved"
}

// CheckURL returns the mistake in a URL of a webhook. The text has no part of the URL, which may be a secret.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("it is no URL of a webhook; allowed: http:// or https:// with a host")
	}
	return nil
}

// NewWebhook makes a Webhook. Close ends it.
func NewWebhook(c WebhookConfig) *Webhook {
	ctx, cancel := context.WithCancel(context.Background())
	w := &Webhook{WebhookConfig: c, wake: make(chan struct{}, 1), cancel: cancel}
	// A redirect would send the message, and the secret in the URL, to another server.
	w.client = &http.Client{Timeout: postTimeout, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	w.ended.Go(func() { w.run(ctx) })
	return w
}

// Send queues a message. The same alert's message of the same kind that still waits is replaced.
func (w *Webhook) Send(a *telemetry.Alert) {
	m := message{*a, time.Now()}
	if w.Language == "zh" {
		m.Text = inChinese(a)
	}
	w.mu.Lock()
	w.queue = slices.DeleteFunc(w.queue, func(other message) bool {
		return ID(&other.Alert) == ID(a) && other.status() == m.status()
	})
	if len(w.queue) == maxQueue {
		w.failed.Add(1)
		w.Log.Error("webhook: a message is dropped, because too many wait", "alert", ID(&w.queue[0].Alert))
		w.queue = w.queue[1:]
	}
	w.queue = append(w.queue, m)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Counts are the messages that were accepted, and the ones that were given up.
func (w *Webhook) Counts() (sent, failed int64) { return w.sent.Load(), w.failed.Load() }

// Close drops what waits.
func (w *Webhook) Close() {
	w.cancel()
	w.ended.Wait()
}

func (w *Webhook) run(ctx context.Context) {
	for {
		w.mu.Lock()
		var next *message
		if len(w.queue) > 0 {
			next = new(message)
			*next, w.queue = w.queue[0], w.queue[1:]
		}
		w.mu.Unlock()
		if next != nil {
			w.deliver(ctx, next)
			continue
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		}
	}
}

// deliver sends a message until it is accepted, or there is no hope.
func (w *Webhook) deliver(ctx context.Context, m *message) {
	wait := firstPause
	for attempt := 1; ; attempt++ {
		again, err := w.post(ctx, m)
		if err == nil {
			w.sent.Add(1)
			return
		}
		if ctx.Err() != nil {
			return
		}
		if !again || time.Since(m.queued)+wait > maxAge {
			w.failed.Add(1)
			w.Log.Error("webhook: a message was not accepted", "alert", ID(&m.Alert), "status", m.status(), "attempts",
				attempt, "error", err)
			return
		}
		if attempt == 1 {
			w.Log.Warn("webhook: a message was not accepted, and is repeated", "alert", ID(&m.Alert), "error", err)
		}
		pause.For(wait, ctx.Done())
		wait = min(2*wait, maxPause)
	}
}

// post sends a message once. again: a repetition may be accepted.
func (w *Webhook) post(ctx context.Context, m *message) (again bool, err error) {
	request, err := w.request(ctx, m, time.Now())
	if err != nil {
		return false, withoutURL(err)
	}
	response, err := w.client.Do(request)
	if err != nil {
		return true, withoutURL(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	switch code := response.StatusCode; {
	case code >= 500 || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout:
		return true, fmt.Errorf("the answer is %s", response.Status)
	case code < 200 || code > 299:
		return false, fmt.Errorf("the answer is %s: %.200q", response.Status, answer)
	}
	return true, errors.Join(err, refusal(w.Format, answer))
}

// withoutURL removes the URL from an error, because it may be a secret.
func withoutURL(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// refusal is the error in an answer with status 200, as Feishu and DingTalk give it.
func refusal(format string, answer []byte) error {
	var a struct{ Code, StatusCode, ErrCode int }
	if format == jsonFormat || json.Unmarshal(answer, &a) != nil {
		return nil
	}
	if a.Code != 0 || a.StatusCode != 0 || a.ErrCode != 0 {
		return fmt.Errorf("the answer is an error: %.200q", answer)
	}
	return nil
}

// request makes the request of a message. It is signed anew in each attempt, since receivers refuse old timestamps.
func (w *Webhook) request(ctx context.Context, m *message, now time.Time) (*http.Request, error) {
	text, err := w.body(m)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "weir")
	if w.Secret != "" {
		seconds := strconv.FormatInt(now.Unix(), 10)
		sign := hex.EncodeToString(sum(w.Secret, seconds+"."+string(text)))
		request.Header.Set("X-Weir-Signature", "t="+seconds+",v1="+sign)
	}
	return request, nil
}

func sum(key, text string) []byte {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// A Message is the body of format json.
type Message struct {
	ID     string `json:"id"` // the same for all messages of an alert
	Status string `json:"status"`
	Node   string `json:"node"` // that sends it
	telemetry.Alert
}

// id has the node for alerts that each node raises and resolves for itself: a receiver that ends an incident with the
// message "resolved" of one node would miss that another one is still without the store.
func (w *Webhook) id(a *telemetry.Alert) string {
	if a.Name == degraded {
		return ID(a) + "/" + w.Node
	}
	return ID(a)
}

// body is the body of a message in the format of its receiver. A < calls no person in its texts, where <!channel>
// (Slack) and <at user_id="all"> (Feishu) would.
func (w *Webhook) body(m *message) ([]byte, error) {
	template, ok := templates[w.Format]
	if !ok {
		return marshal(Message{ID: w.id(&m.Alert), Status: m.status(), Node: w.Node, Alert: m.Alert})
	}
	text, err := marshal(strings.ReplaceAll(w.text(m), "<", "＜"))
	return []byte(strings.ReplaceAll(template, "TEXT", string(text))), err
}

// text is a message for people.
func (w *Webhook) text(m *message) string {
	resolved := m.status() == "resolved"
	switch {
	case w.Language == "zh" && resolved:
		lasted := timewords.Of("zh").Duration(m.Resolved.Sub(m.Since).Round(time.Second))
		return fmt.Sprintf("[weir] 已恢复（持续%s）：%s（节点 %s：%s）", lasted, ID(&m.Alert), w.Node, m.Text)
	case w.Language == "zh":
		return fmt.Sprintf("[weir] %s：%s（节点 %s）", m.Name, m.Text, w.Node)
	case resolved:
		return fmt.Sprintf("[weir] resolved after %v: %s (on %s: %s)", m.Resolved.Sub(m.Since).Round(time.Second),
			ID(&m.Alert), w.Node, m.Text)
	}
	return fmt.Sprintf("[weir] %s: %s (on %s)", m.Name, m.Text, w.Node)
}

// marshal leaves < and > as they are.
func marshal(body any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(body)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
