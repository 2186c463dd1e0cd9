package page

import (
	"fmt"
	"math"
	"time"

	"github.com/weirproject/weir/tools/internal/backtest"
)

var start = time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)

// sample is a report of so many rules, with everything that a report can have.
func sample(rules int) *backtest.Report {
	r := &backtest.Report{
		Rules: "rules.yaml",
		Log: backtest.Log{Files: []backtest.File{{Name: "access.log", Format: "combined", Lines: 1_204_331, Unread: 12,
			Examples: []backtest.Unread{{Line: 17, Text: "GET / HTTP/1.1", Why: "the line has no time"}}}},
			Lines: 1_204_331, Unread: 12, Dropped: 40, Requests: 1_204_279, Clients: 18_220, From: start, To: start.Add(24 * time.Hour),
			Resolution: "1s", TimeIs: "end", Spread: "even", Refused: 301},
		Total: backtest.Count{Requests: 1_204_279, Refused: 41_201, Denied: 55, Clients: 18_220, ClientsRefused: 214},
		Limits: []backtest.Note{{Code: "time_end", Text: "The log's time is when a request ended.", Chinese: "日志时间是请求结束的时间。"},
			{Code: "late", Severe: true, Text: "5 % of the requests stand too late.", Chinese: "5 % 的请求位置过晚。"}},
		Timeline: backtest.Timeline{Start: start, Step: "5m0s"},
		Good:     &backtest.Good{Clients: 9_000, ClientsRefused: 3, Requests: 800_000, RequestsRefused: 41, Examples: []string{"198.51.100.9"}},
	}
	for i := range 288 {
		wave := 3000 + 1500*math.Sin(float64(i)/40)
		refused := int64(0)
		if i > 150 && i < 170 {
			refused = 2000
		}
		r.Timeline.Passed = append(r.Timeline.Passed, int64(wave))
		r.Timeline.Refused = append(r.Timeline.Refused, refused)
	}
	for i := range rules {
		r.ByRule = append(r.ByRule, sampleRule(i))
	}
	evidence := backtest.Evidence{Requests: 33_400, First: start, Last: start.Add(40 * time.Minute),
		Agent: "python-requests/2.31", Paths: 3, Names: 812, Failing: 33_000, Addresses: 1}
	for i := range 3 {
		one := evidence
		one.Refused, one.Agents = int64(31_009/(i+1)), int64(1+i*60)
		r.Clients = append(r.Clients, backtest.Client{Client: fmt.Sprintf("203.0.113.%d", i), Rules: []string{"rule-0"}, Evidence: one})
	}
	if rules == 0 {
		return r
	}
	sweep := backtest.Sweep{Rule: "rule-0"}
	for _, units := range []int64{5, 10, 20, 40, 80, 120, 160, 200, 400} {
		c := r.Total
		c.Refused, c.ClientsRefused = 400_000/units, 2_000/units
		sweep.Points = append(sweep.Points, backtest.Point{Limit: fmt.Sprintf("%d/1m", units), Units: units, Count: c, Peak: 30 + units,
			Good: &backtest.Good{Clients: 9_000, ClientsRefused: 900 / units}})
	}
	r.Sweeps = []backtest.Sweep{sweep}
	points := sweep.Points[3:6]
	for i := range points {
		p := &points[i]
		p.Failing, p.Fails, p.FailsRefused, p.Hour, p.Day = p.Refused, 80, int64(80-i), 60*p.Units, 1440*p.Units
	}
	r.Proposed = []backtest.Proposal{{Rule: "rule-0", Old: "100/1m", Limit: "180/1m", GapFrom: 165, GapTo: 410, Points: points,
		Why: []backtest.Note{{Code: "gap", Text: "The widest gap is 165 … 410.", Chinese: "最大的空档是 165 … 410。"}}}}
	r.Against = &backtest.Against{Rules: "old.yaml", Total: r.Total, NewlyRefused: 55, NoLongerRefused: 10, BothRefused: 40_000,
		ByRule: []backtest.Change{{Rule: "rule-0", NewlyRefused: 55, NoLongerRefused: 10}},
		Examples: []backtest.Different{{File: "access.log", Line: 99, Time: start, Client: "203.0.113.7", Target: "GET /login",
			Old: "passed", New: "rule-0"}}}
	return r
}

func sampleRule(i int) backtest.Rule {
	rule := backtest.Rule{Name: fmt.Sprintf("rule-%d", i), Description: "What it is for.", Limit: "100/1m", Shadow: i%5 == 4,
		Count: backtest.Count{Requests: 1_204_279, Refused: int64(41_201 / (i + 1)), Clients: 18_220, ClientsRefused: int64(214 / (i + 1))},
		Keys:  18_220, Failing: 12_000, First: start, Last: start.Add(20 * time.Hour), Peak: backtest.Peak{Start: start, Requests: 1_920},
		Window: "1m0s", Units: 100, Good: &backtest.Good{Clients: 9_000, ClientsRefused: 3, RequestsRefused: 41, Examples: []string{"198.51.100.9"}}}
	for n := range int64(288) {
		rule.Series = append(rule.Series, max(0, n-200)*int64(i%3))
	}
	if i == 1 {
		rule.Worst = []backtest.Key{{Key: "ann", Evidence: backtest.Evidence{Requests: 40, Refused: 9, Addresses: 2, Agents: 1, Names: 1}}}
	}
	for peak := int64(1); peak < 100; peak += 1 + peak/4 {
		rule.Peaks = append(rule.Peaks, backtest.Bar{From: peak, To: peak, Keys: 9_000 / (peak * peak)})
	}
	rule.Peaks = append(rule.Peaks, backtest.Bar{From: 400, To: 499, Keys: 9}, backtest.Bar{From: 3_000, To: 3_999, Keys: 2})
	return rule
}
