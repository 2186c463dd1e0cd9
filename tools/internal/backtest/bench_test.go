package backtest_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/tools/internal/backtest"
)

// benchLog is a log of 400 requests a second, of clients whose frequencies are those of words.
func benchLog(lines int) string {
	r := rand.New(rand.NewPCG(1, 2))
	clients := rand.NewZipf(r, 1.1, 50, 200_000)
	paths := []string{"/", "/login", "/api/v1/users", "/api/v1/orders", "/static/app.js", "/static/app.css", "/search?q=a"}
	var b strings.Builder
	for i := range lines {
		c := clients.Uint64()
		fmt.Fprintf(&b, "10.%d.%d.%d - - [%s] \"GET %s HTTP/1.1\" 200 %d \"https://example.com/\" \"Mozilla/5.0 (X11; Linux "+
			"x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/%d.0.0.0 Safari/537.36\"\n", c>>16&255, c>>8&255, c&255,
			begin.Add(time.Duration(i/400)*time.Second).Format("02/Jan/2006:15:04:05 -0700"), paths[r.IntN(len(paths))],
			r.IntN(50_000), 100+c%40)
	}
	return b.String()
}

// tenRules are a rule for all requests by address, one by network, and eight by path, of which a request meets one.
func tenRules(limit string) string {
	text := fmt.Sprintf("rules:\n  - {name: ip, key: [client.ip], limit: %[1]s}\n"+
		"  - {name: net, key: [client.ip v4/24], limit: %[1]s}\n", limit)
	for i, path := range []string{"/login", "/api/v1/users", "/api/v1/orders", "/api/v2/**", "/static/**", "/search",
		"/page/*", "/admin/**"} {
		text += fmt.Sprintf("  - {name: p%d, match: {path: %s}, key: [client.ip], limit: %s}\n", i, path, limit)
	}
	return text
}

// BenchmarkReplay reports lines a second, with all threads that Go may run: -cpu 1 is a core's.
func BenchmarkReplay(b *testing.B) {
	log := benchLog(200_000)
	for _, limit := range []string{"token_bucket 100/1m", "fixed_window 100/1m", "sliding_log 100/1m", "sliding_counter 100/1m"} {
		b.Run(limit, func(b *testing.B) {
			lines := 0
			for b.Loop() {
				c := config(b, tenRules(limit), log)
				if _, err := backtest.Run(b.Context(), c); err != nil {
					b.Fatal(err)
				}
				lines += 200_000
			}
			b.ReportMetric(float64(lines)/b.Elapsed().Seconds(), "lines/s")
		})
	}
}
