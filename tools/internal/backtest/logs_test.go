package backtest_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/internal/accesslog"
	"github.com/weirproject/weir/tools/internal/backtest"
)

var begin = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)

// browsers are User-Agents.
var browsers = []string{"Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0", "Mozilla/5.0 (Windows NT 10.0) Chrome/142.0",
	"Mozilla/5.0 (Macintosh) Safari/619.1", "Mozilla/5.0 (iPhone) Mobile/15E148",
	"Mozilla/5.0 (Android 16) Chrome/142.0", "Mozilla/5.0 (X11; Ubuntu) Firefox/139.0"}

// traffic is a log in the combined format: people who load pages with their resources, of whom some log in, an office
// with many of them behind one address, and a program that guesses passwords. Its lines are in the order of their time.
func traffic(lines int, seed uint64) string {
	r := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	at := 0.0
	line := func(client, method, target string, status int, agent string) {
		fmt.Fprintf(&b, "%s - - [%s] \"%s %s HTTP/1.1\" %d 512 \"-\" \"%s\"\n", client,
			begin.Add(time.Duration(at)*time.Second).Format("02/Jan/2006:15:04:05 -0700"), method, target, status,
			agent)
	}
	for n := 0; n < lines; n++ {
		at += r.ExpFloat64() / 4
		person := r.IntN(60)
		client, agent := fmt.Sprintf("192.0.2.%d", person), browsers[person%len(browsers)]
		switch {
		case n > lines/3 && n < lines/2 && r.IntN(2) == 0:
			line("198.51.100.9", "POST", "/login", 401, "python-requests/2.32")
		case r.IntN(5) == 0:
			line("203.0.113.1", "GET", fmt.Sprintf("/page/%d", r.IntN(9)), 200, browsers[r.IntN(len(browsers))])
		case r.IntN(8) == 0:
			line(client, "POST", "/login", 200, agent)
		default:
			for i := range 1 + r.IntN(6) {
				line(client, "GET", fmt.Sprintf("/page/%d?i=%d", r.IntN(9), i), 200, agent)
			}
		}
	}
	return b.String()
}

// config replays a log in memory.
func config(t testing.TB, rule, log string) *backtest.Config {
	return configOf(t, rule, log, accesslog.Options{})
}

func configOf(t testing.TB, rule, log string, o accesslog.Options) *backtest.Config {
	t.Helper()
	file, err := rules.Parse("rules.yaml", []byte(rule))
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.Compile(file)
	if err != nil {
		t.Fatal(err)
	}
	return &backtest.Config{Name: file.Name, File: file, Set: set, Clients: new(clientaddr.Extractor),
		Form: set.PathForm(), MaxKeys: 1 << 20, Top: 10,
		Open: func(int, int) (backtest.Source, error) {
			return accesslog.Open([]string{"-"}, bytes.NewReader([]byte(log)), o)
		}}
}

func run(t *testing.T, c *backtest.Config) *backtest.Report {
	t.Helper()
	report, err := backtest.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return report
}
