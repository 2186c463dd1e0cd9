package gateway_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/server/internal/gateway"
)

// logged is what an access log has of these requests, once it is closed.
func logged(t *testing.T, c gateway.AccessConfig, upstream string, requests ...string) *gateway.AccessLog {
	t.Helper()
	c.Clients, c.Log = new(clientaddr.Extractor), slog.New(slog.DiscardHandler)
	log := gateway.NewAccessLog(c)
	g := gatetest.New(t, memstore.New(), "rules: [{name: login, match: {path: /login}, key: [client.ip], limit: 1/1h}]")
	limit, err := httplimit.ByRules(g, &httplimit.RuleOptions{Observe: log.Decided})
	if err != nil {
		t.Fatal(err)
	}
	server := front(t, log.Wrap(newGateway(t, upstream, limit)))
	for _, request := range requests {
		raw(t, server, strings.ReplaceAll(request, "|", "\r\n")+"\r\n\r\n")
	}
	server.Close() // its handlers have returned
	log.Close()
	return log
}

func TestAccessLogHasEachRequest(t *testing.T) {
	up := open(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") })
	var out bytes.Buffer
	log := logged(t, gateway.AccessConfig{Out: &out, Every: 1}, up.URL,
		"GET /login?a=%22 HTTP/1.1|Host: a|X-Request-Id: r1|User-Agent: x", "POST /login HTTP/1.1|Host: a|Content-Length: 0", "TRACE / HTTP/1.1|Host: a")
	var lines []map[string]any
	for line := range strings.Lines(out.String()) {
		one := map[string]any{}
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if id, _ := one["request_id"].(string); id != "r1" && len(id) != 32 || one["request_time"].(float64) <= 0 || one["client"] != "127.0.0.1" {
			t.Errorf("%s", line)
		}
		for _, name := range []string{"start_time", "request_time", "client", "host", "proto"} {
			delete(one, name)
		}
		lines = append(lines, one)
	}
	if len(lines) != 3 || log.Written() != 3 || log.Lost() != 0 {
		t.Fatalf("%d lines, %d written, %d lost", len(lines), log.Written(), log.Lost())
	}
	lines[1]["request_id"], lines[2]["request_id"], lines[1]["bytes"], lines[2]["bytes"] = "", "", 0, 0
	got, _ := json.Marshal(lines)
	want := `[{"bytes":5,"method":"GET","outcome":"passed","request_id":"r1","request_uri":"/login?a=%22","rule":"login","status":200,"user_agent":"x"},` +
		`{"bytes":0,"method":"POST","outcome":"refused","request_id":"","request_uri":"/login","rule":"login","status":429},` +
		`{"bytes":0,"method":"TRACE","request_id":"","request_uri":"/","status":501}]`
	if string(got) != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestAccessLogInTheCombinedFormat(t *testing.T) {
	var out bytes.Buffer
	logged(t, gateway.AccessConfig{Out: &out, Every: 1, Combined: true}, dead[0], "GET /a HTTP/1.1|Host: a|X-Request-Id: r1|User-Agent: a\"b\\c\xff")
	want := regexp.MustCompile(`^127\.0\.0\.1 - - \[[^]]+\] "GET /a HTTP/1\.1" 502 [0-9]+ "-" "a\\x22b\\x5Cc\\xFF"\n$`)
	if !want.MatchString(out.String()) {
		t.Errorf("%q", out.String())
	}
}

func TestAccessLogLeavesOutWhatPassed(t *testing.T) {
	up := open(t, func(w http.ResponseWriter, r *http.Request) {})
	var out bytes.Buffer
	passes, refused := "GET /a HTTP/1.1|Host: a", "GET /login HTTP/1.1|Host: a"
	logged(t, gateway.AccessConfig{Out: &out, Every: 3}, up.URL, refused, passes, passes, refused, passes, refused)
	if got := strings.Count(out.String(), "\n"); got != 3 || strings.Count(out.String(), `"status":429`) != 2 {
		t.Errorf("%d lines:\n%s", got, out.String())
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space") }

func TestAccessLogCountsLostLines(t *testing.T) {
	if log := logged(t, gateway.AccessConfig{Out: full{}, Every: 1}, dead[0], "GET /a HTTP/1.1|Host: a"); log.Lost() != 1 || log.Written() != 0 {
		t.Errorf("%d lost, %d written", log.Lost(), log.Written())
	}
}
