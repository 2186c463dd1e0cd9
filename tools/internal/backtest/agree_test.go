package backtest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirproject/weir/tools/internal/accesslog"
	"github.com/weirproject/weir/tools/internal/backtest"
)

// A limit of three requests an hour answered the log; rules with another one differ by what they refuse otherwise.
func TestRulesAreComparedWithWhatALogAnswered(t *testing.T) {
	t.Parallel()
	const format = `$remote_addr - - [$time_local] "$request" $status $limit_req_status`
	for _, byLimit := range []bool{false, true} {
		var log strings.Builder
		for i := range 10 {
			status, limit := 200, "PASSED"
			if i >= 3 {
				status, limit = 444, "REJECTED"
			}
			if !byLimit && i >= 3 {
				status, limit = 503, "-"
			}
			fmt.Fprintf(&log, "192.0.2.1 - - [20/Nov/2026:09:00:%02d +0000] \"GET /a%d HTTP/1.1\" %d %s\n", i, i, status, limit)
		}
		for limit, want := range map[int]backtest.Agreement{
			3: {Requests: 10, Refused: 7, Both: 7}, 5: {Requests: 10, Refused: 7, Both: 5, OnlyLog: 2},
			1: {Requests: 10, Refused: 7, Both: 7, OnlyRules: 2},
		} {
			rule := fmt.Sprintf("rules:\n  - {name: all, key: [client.ip], limit: fixed_window %d/1h}\n", limit)
			a, err := backtest.Agree(t.Context(), configOf(t, rule, log.String(), accesslog.Options{Format: format}), byLimit)
			if err != nil {
				t.Fatal(err)
			}
			examples := a.Examples
			if a.Examples = nil; fmt.Sprint(*a) != fmt.Sprint(want) || int64(len(examples)) != a.Differs() {
				t.Errorf("%d/1h, by limit %t: %+v, want %+v", limit, byLimit, a, want)
			}
		}
	}
}
