package admin_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/weirproject/weir/internal/ruleset/ledger"
	"github.com/weirproject/weir/internal/server/admin"
	"github.com/weirproject/weir/rules"
)

// form is a body with parts, each a name and a text.
func form(t *testing.T, parts ...string) (kind string, body *bytes.Buffer) {
	t.Helper()
	body = new(bytes.Buffer)
	w := multipart.NewWriter(body)
	for i := 0; i < len(parts); i += 2 {
		part, err := w.CreateFormFile(parts[i], "access.log")
		if err == nil {
			_, err = part.Write([]byte(parts[i+1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), body
}

// startBacktests starts a server whose backtests are run.
func startBacktests(t *testing.T, run func(context.Context, *admin.Rehearsal) (any, error)) *client {
	t.Helper()
	backend, err := ledger.NewMemory("")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, fileRules, backend, backend.Source())
	w.server.Backtest = run
	return w.start()
}

func postForm(t *testing.T, ctx context.Context, c *client, query, kind string, body io.Reader) (status int,
	text string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+admin.Prefix+"backtest"+query, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", kind)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(all), err
}

func TestBacktestGetsRulesAndLog(t *testing.T) { replayedLog(t) }

func replayedLog(t *testing.T) *client {
	t.Helper()
	c := startBacktests(t, func(_ context.Context, r *admin.Rehearsal) (any, error) {
		if _, err := r.Log.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		text, err := io.ReadAll(r.Log)
		return map[string]any{"log": string(text), "name": r.Name, "rules": len(r.File.Rules), "against": r.Against != nil,
			"sweep": r.Sweep, "propose": r.Propose, "good": r.Good, "format": r.Format}, err
	})
	kind, body := form(t, "log", "line\n")
	status, text, err := postForm(t, t.Context(), c, "?sweep=a&propose=b&good=c&log_format=d", kind, body)
	want := `{"against":false,"format":"d","good":"c","log":"line\n","name":"access.log","propose":"b","rules":3,"sweep":"a"}`
	if got := strings.Join(strings.Fields(text), ""); err != nil || status != 200 || got != want {
		t.Errorf("%d %v %s, want %s", status, err, got, want)
	}
	kind, body = form(t, "rules", "rules: [{name: other, limit: 5/1m}]", "log", "")
	status, text, err = postForm(t, t.Context(), c, "", kind, body)
	if err != nil || status != 200 || !strings.Contains(text, `"against": true`) {
		t.Errorf("rules to compare: %d %v %s", status, err, text)
	}
	return c
}

func TestBacktestRefusesForms(t *testing.T) { refusedForms(t) }

func refusedForms(t *testing.T) *client {
	t.Helper()
	c := startBacktests(t, func(context.Context, *admin.Rehearsal) (any, error) {
		return nil, errors.New("the format is unknown")
	})
	for name, one := range map[string]struct {
		parts  []string
		status int
		want   string
	}{
		"no log":        {[]string{"rules", ""}, 400, "the form has no part log"},
		"unknown part":  {[]string{"logs", ""}, 400, "allowed: rules, and log as the last one"},
		"wrong rules":   {[]string{"rules", "rules: [{name: a, limit: 3}]", "log", ""}, 422, `"line":1`},
		"large rules":   {[]string{"rules", strings.Repeat(" ", rules.MaxFile+1), "log", ""}, 413, "rules has over"},
		"its own error": {[]string{"log", "x"}, 422, "the format is unknown"},
	} {
		kind, body := form(t, one.parts...)
		status, text, err := postForm(t, t.Context(), c, "", kind, body)
		if err != nil || status != one.status || !strings.Contains(text, one.want) {
			t.Errorf("%s: %d %v %s", name, status, err, text)
		}
	}
	if status, text, _ := postForm(t, t.Context(), c, "", "text/plain", strings.NewReader("x")); status != 415 {
		t.Errorf("text: %d %s", status, text)
	}
	kind, body := form(t, "log", "x")
	if status, text, _ := postForm(t, t.Context(), c, "?speed=1", kind, body); status != 400 {
		t.Errorf("unknown parameter: %d %s", status, text)
	}
	return c
}

// zeros are a log that is too large, which nobody has to keep in memory.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestBacktestHasAMaximumOfBytes(t *testing.T) {
	c := startBacktests(t, func(context.Context, *admin.Rehearsal) (any, error) {
		t.Error("a log that is too large was replayed")
		return nil, nil
	})
	kind, head := form(t, "log", "")
	start, end, _ := strings.Cut(head.String(), "\r\n\r\n")
	body := io.MultiReader(strings.NewReader(start+"\r\n\r\n"), io.LimitReader(zeros{}, 64<<20+1), strings.NewReader(end))
	status, text, err := postForm(t, t.Context(), c, "", kind, body) // without a Content-Length
	if err != nil || status != 413 || !strings.Contains(text, "log has over 67108864 bytes") {
		t.Errorf("%d %v %s", status, err, text)
	}
}

func TestOneBacktestAtATimeEndsWithItsClient(t *testing.T) { simultaneous(t) }

func simultaneous(t *testing.T) *client {
	t.Helper()
	begun, ended := make(chan struct{}), make(chan struct{})
	c := startBacktests(t, func(ctx context.Context, r *admin.Rehearsal) (any, error) {
		close(begun)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	})
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		kind, body := form(t, "log", "x")
		_, _, err := postForm(t, ctx, c, "", kind, body)
		left <- err
	}()
	<-begun
	kind, body := form(t, "log", "x")
	status, text, err := postForm(t, t.Context(), c, "", kind, body)
	if err != nil || status != http.StatusTooManyRequests {
		t.Errorf("a second one: %d %v %s", status, err, text)
	}
	leave()
	if err := <-left; err == nil {
		t.Error("the client has an answer")
	}
	<-ended // the work ends with the client, or the test does not
	return c
}
