package backtest_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/accesslog"
	"github.com/weirproject/weir/internal/backtest"
)

const loginRule = "rules:\n  - {name: login, match: {path: /login}, key: [client.ip], limit: %s}\n"

func sweep(t *testing.T, c *backtest.Config, text string) {
	t.Helper()
	s, err := backtest.ParseSweep("--sweep", text, c.File)
	if err != nil {
		t.Fatal(err)
	}
	c.Sweeps = append(c.Sweeps, s)
}

// TestPointsOfASweepAreTheRuleWithThatLimit replays the rule alone with each limit by itself. The second rule is one for
// which the gate decides each point.
func TestPointsOfASweepAreTheRuleWithThatLimit(t *testing.T) {
	t.Parallel()
	log := traffic(1800, 11)
	for _, tt := range []struct{ limit, sweep string }{
		{"sliding_log 5/1m", "login=1/1m..40/1m:6"},
		{"5/1m burst 9", "login=1/1m burst 2..40/1m burst 80:5"},
		{"fixed_window 5/1m, overrides: [{key: [198.51.100.9], limit: 2/1m}]", "login=1/1m,9/1m"},
		{"sliding_log 5/1m, count_if: {status: [401]}", "login=2/1m..20/1m:3"},
	} {
		c := config(t, fmt.Sprintf(loginRule, tt.limit)+"  - {name: all, key: [client.ip], limit: 60/1m}\n", log)
		sweep(t, c, tt.sweep)
		points := run(t, c).Sweeps[0].Points
		if len(points) < 2 {
			t.Fatalf("%s: %d points", tt.sweep, len(points))
		}
		_, rest, _ := strings.Cut(tt.limit, ",")
		refused := int64(0)
		for _, p := range points {
			text := fmt.Sprintf(loginRule, p.Limit)
			if rest != "" {
				text = fmt.Sprintf(loginRule, p.Limit+","+rest)
			}
			alone := run(t, config(t, text, log)).ByRule[0]
			if p.Count != alone.Count {
				t.Errorf("%s at %s: %+v, and by itself %+v", tt.limit, p.Limit, p.Count, alone.Count)
			}
			refused += p.Refused
		}
		if refused == 0 || points[0].Refused <= points[len(points)-1].Refused {
			t.Errorf("%s: %+v", tt.limit, points)
		}
	}
}

func TestSweepsHaveHumanNumbers(t *testing.T) {
	c := config(t, fmt.Sprintf(loginRule, "sliding_log 5/1m"), "")
	sweep(t, c, "login=5/1m..200/1m:12")
	var texts []string
	for _, limit := range c.Sweeps[0].Limits {
		texts = append(texts, limit.String())
	}
	want := "sliding_log 5/1m, sliding_log 7/1m, sliding_log 10/1m, sliding_log 15/1m, sliding_log 20/1m, " +
		"sliding_log 25/1m, sliding_log 40/1m, sliding_log 50/1m, sliding_log 80/1m, sliding_log 100/1m, " +
		"sliding_log 150/1m, sliding_log 200/1m"
	if got := strings.Join(texts, ", "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestMistakesNameWhatIsAllowed(t *testing.T) {
	c := config(t, "rules:\n  - {name: login, key: [client.ip], limit: 5/1m}\n  - {name: slots, limit: concurrency 5 ttl 1m}\n", "")
	parse := func(text string) error {
		_, err := backtest.ParseSweep("--sweep", text, c.File)
		return err
	}
	condition := func(text string) error {
		_, err := backtest.ParseCondition("--where", text, c.Form)
		return err
	}
	for want, err := range map[string]error{
		`--sweep is "login"; allowed: RULE=LIMIT..LIMIT:NUMBER`:               parse("login"),
		`--sweep names the rule "a"; allowed: login, slots`:                   parse("a=1/1m..2/1m"),
		`--sweep has the number "1"; allowed: 2 to 60`:                        parse("login=1/1m..2/1m:1"),
		`fewer units in the first`:                                            parse("login=2/1m..2/1m"),
		`the same algorithm and period`:                                       parse("login=2/1m..9/1h"),
		`--sweep: weir: limit is "x"`:                                         parse("login=x..9/1h"),
		`--propose names the rule slots, which has no limit for a time`:       c.SetPropose("--propose", []string{"slots"}),
		`--propose names the rule "b"; allowed: login, slots`:                 c.SetPropose("--propose", []string{"b"}),
		`--where is empty; allowed: conditions`:                               condition(" "),
		`--where has "colour=red"; allowed: conditions`:                       condition("colour=red"),
		`--where has "status<4"; allowed: status with =`:                      condition("status<4"),
		`--where is "path=login": `:                                           condition("path=login"),
		`hosts.txt:2: "x"; allowed: an address or a network in each line`:     networks("192.0.2.1\nx"),
		`hosts.txt has no address; allowed: an address or a network in each `: networks("# none"),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func networks(text string) error {
	_, err := backtest.ReadNetworks("hosts.txt", strings.NewReader(text))
	return err
}

func TestConditionsSelectRequests(t *testing.T) {
	t.Parallel()
	log := traffic(900, 5)
	lines := func(parts ...string) (n int64) {
		for line := range strings.Lines(log) {
			if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
				n++
			}
		}
		return n
	}
	for where, want := range map[string]int64{
		"path=/login":                            lines("/login"),
		"path=/login status=401":                 lines("/login", "401 512"),
		"status<400 path=/login":                 lines("/login", "200 512"),
		"status!=2xx":                            lines("401 512"),
		"method=POST client=192.0.2.0/24":        lines("POST", "192.0.2."),
		"query.i=0":                              lines("i=0"),
		"header.User-Agent=python-requests/2.32": lines("python-requests"),
		"user=*":                                 0,
	} {
		c := config(t, fmt.Sprintf(loginRule, "5/1m"), log)
		var err error
		if c.Where, err = backtest.ParseCondition("--where", where, c.Form); err != nil {
			t.Fatal(err)
		}
		report := run(t, c)
		if report.Total.Requests != want || report.Log.Dropped != report.Log.Lines-want {
			t.Errorf("%s: %d requests, %d left out; want %d", where, report.Total.Requests, report.Log.Dropped, want)
		}
	}
}

func TestTimesAndRetriesLeaveRequestsOut(t *testing.T) {
	log := ""
	for i, status := range []int{200, 429, 503, 200, 404} {
		log += fmt.Sprintf("192.0.2.1 - - [20/Nov/2026:09:00:0%d +0000] \"GET / HTTP/1.1\" %d 1 \"-\" \"-\"\n", i, status)
	}
	c := config(t, fmt.Sprintf(loginRule, "5/1m"), log)
	c.From, c.To = begin.Add(time.Second), begin.Add(4*time.Second)
	if r := run(t, c); r.Total.Requests != 3 || r.Log.Refused != 2 || !r.Log.From.Equal(c.From) {
		t.Errorf("%+v", r.Log)
	}
	c.DropRetries = true
	if r := run(t, c); r.Total.Requests != 1 || r.Log.Dropped != 4 {
		t.Errorf("%+v", r.Log)
	}
}

// Requests of one second: at once they exceed a limit that they do not exceed one after the other.
func TestSpreadMatters(t *testing.T) {
	line := "192.0.2.1 - - [20/Nov/2026:09:00:00 +0000] \"GET /login HTTP/1.1\" 200 1 \"-\" \"-\"\n"
	c := config(t, fmt.Sprintf(loginRule, "sliding_log 2/250ms"), strings.Repeat(line, 8))
	report := run(t, c)
	if report.Total.Refused != 0 || report.Log.SpreadMatters["first"] != 6 || report.Log.SpreadMatters["last"] != 6 {
		t.Errorf("%+v %+v", report.Total, report.Log)
	}
	c.Spread = backtest.Last
	report = run(t, c)
	if report.Total.Refused != 6 || report.Log.SpreadMatters["even"] != -6 || report.Log.SpreadMatters["first"] != 0 {
		t.Errorf("%+v %+v", report.Total, report.Log)
	}
	c.CompareSpread = 0
	if report = run(t, c); report.Log.SpreadMatters != nil {
		t.Errorf("%+v", report.Log)
	}
	// The comparison ends with the batch in which that many requests are decided: what comes after has no part in it.
	c = config(t, fmt.Sprintf(loginRule, "sliding_log 2/250ms"), strings.Repeat(line, 10_000))
	c.CompareSpread = 1
	report = run(t, c)
	log := &report.Log
	if log.SpreadOf == 0 || log.SpreadOf >= 10_000 || log.SpreadMatters["first"] <= 0 ||
		report.Total.Refused <= log.SpreadOf {
		t.Errorf("%+v %+v", report.Total, log)
	}
}

func TestAgainstOtherRules(t *testing.T) {
	t.Parallel()
	log := traffic(1500, 3)
	c := config(t, fmt.Sprintf(loginRule, "sliding_log 5/1m"), log)
	old := config(t, "rules:\n  - {name: before, key: [client.ip], limit: sliding_log 30/1m}\n", log)
	c.AgainstName, c.Against = "old.yaml", old.Set
	now, before := decisions(t, c), decisions(t, old)
	want := make(map[string]int64)
	for line := range now {
		want[fmt.Sprint(before[line] != "passed", now[line] != "passed")]++
	}
	x := run(t, c).Against
	got := map[string]int64{"false true": x.NewlyRefused, "true false": x.NoLongerRefused, "true true": x.BothRefused}
	for kind, n := range got {
		if n == 0 || n != want[kind] {
			t.Errorf("before, now %s: %d, want %d", kind, n, want[kind])
		}
	}
	if x.Total.Refused != x.NoLongerRefused+x.BothRefused {
		t.Errorf("%+v", x.Total)
	}
	for _, change := range x.ByRule {
		if wants := map[string][2]int64{"login": {x.NewlyRefused, 0}, "before": {0, x.NoLongerRefused}}[change.Rule]; wants !=
			[2]int64{change.NewlyRefused, change.NoLongerRefused} {
			t.Errorf("%+v, want %v", change, wants)
		}
	}
	if len(x.Examples) == 0 {
		t.Error("no examples")
	}
	for _, e := range x.Examples {
		if e.Old != before[e.Line] || e.New != now[e.Line] || e.File == "" {
			t.Errorf("%+v, want %s, %s", e, before[e.Line], now[e.Line])
		}
	}
}

func decisions(t *testing.T, c *backtest.Config) map[int64]string {
	t.Helper()
	list, err := backtest.Decisions(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestGoodClientsThatAreRefused(t *testing.T) {
	t.Parallel()
	log := traffic(1500, 3)
	text := "rules:\n  - {name: all, key: [client.ip], limit: sliding_log 25/1m}\n"
	c := config(t, text, log)
	refused, requests := make(map[string]int64), make(map[string]int64)
	list := decisions(t, c)
	good := make(map[string]bool) // by the condition
	n := int64(0)
	for line := range strings.Lines(log) {
		n++
		client, _, _ := strings.Cut(line, " ")
		if requests[client]++; list[n] != "passed" {
			refused[client]++
		}
		good[client] = good[client] || strings.Contains(line, "/login") && strings.Contains(line, " 200 ")
	}
	check := func(t *testing.T, is func(string) bool) {
		report := run(t, c)
		var want backtest.Good
		for client := range requests {
			if is(client) {
				want.Clients++
				want.Requests += requests[client]
				want.RequestsRefused += refused[client]
				want.ClientsRefused += min(1, refused[client])
			}
		}
		for _, got := range []*backtest.Good{report.Good, report.ByRule[0].Good, report.Sweeps[0].Points[1].Good} {
			got := *got
			if got.Examples = nil; got.Clients == 0 || got.ClientsRefused == 0 || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
	}
	sweep(t, c, "all=9/1m,25/1m")
	c.Good = &backtest.Legitimate{Networks: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}}
	check(t, func(client string) bool { return client == "203.0.113.1" })
	condition, err := backtest.ParseCondition("--good", "path=/login status=200", c.Form)
	if err != nil {
		t.Fatal(err)
	}
	c.Good = &backtest.Legitimate{Condition: condition}
	check(t, func(client string) bool { return good[client] })
}

// propose proposes a limit for a log of clients whose largest numbers of requests in a minute are given.
func propose(t *testing.T, peaks map[string]int, good string, limit string) backtest.Proposal {
	t.Helper()
	var lines []string
	for client, n := range peaks {
		for i := range n {
			at := begin.Add(time.Duration(i) * 59 * time.Second / time.Duration(n))
			lines = append(lines, fmt.Sprintf("%s %s - - [%s] \"GET /login HTTP/1.1\" 200 1 \"-\" \"-\"\n", at.Format("15:04:05"),
				client, at.Format("02/Jan/2006:15:04:05 -0700")))
		}
	}
	slices.Sort(lines)
	for i := range lines {
		lines[i] = lines[i][9:]
	}
	c := config(t, fmt.Sprintf(loginRule, limit), strings.Join(lines, ""))
	if good != "" {
		c.Good = &backtest.Legitimate{Networks: []netip.Prefix{netip.MustParsePrefix(good)}}
	}
	c.FalsePositives = 0.001
	if err := c.SetPropose("--propose", []string{"all"}); err != nil {
		t.Fatal(err)
	}
	return run(t, c).Proposed[0]
}

// people are clients with up to so many requests in a minute.
func people(n, most int) map[string]int {
	peaks := make(map[string]int)
	for i := range n {
		peaks[fmt.Sprintf("192.0.2.%d", i)] = 1 + i*(most-1)/(n-1)
	}
	return peaks
}

func TestProposals(t *testing.T) {
	t.Parallel()
	t.Run("above people and below programs", func(t *testing.T) {
		peaks := people(200, 40)
		peaks["198.51.100.1"], peaks["198.51.100.2"] = 900, 700
		p := propose(t, peaks, "", "sliding_log 5/1m")
		if p.Limit != "sliding_log 50/1m" || p.GapFrom != 40 || p.GapTo != 700 || p.ClientsRefused != 2 || p.P999 != 40 {
			t.Errorf("%+v", p)
		}
	})
	t.Run("above good clients where there is no gap", func(t *testing.T) {
		peaks := people(200, 40)
		for i := range 60 {
			peaks[fmt.Sprintf("198.51.100.%d", i)] = 41 + 2*i
		}
		p := propose(t, peaks, "192.0.2.0/24", "fixed_window 5/1m")
		if p.Limit != "fixed_window 50/1m" || p.GapTo != 0 || p.Good == nil || p.Good.ClientsRefused != 0 ||
			p.ClientsRefused != 55 {
			t.Errorf("%+v %+v", p, p.Good)
		}
	})
	t.Run("a burst that refuses nobody else", func(t *testing.T) {
		p := propose(t, people(200, 40), "", "5/1m")
		if p.Limit != "50/1m burst 4" || p.Refused != 0 {
			t.Errorf("%+v", p)
		}
	})
	t.Run("none from a few clients", func(t *testing.T) {
		if p := propose(t, people(20, 40), "", "5/1m"); p.Limit != "" || !strings.Contains(p.Why[0], "Only 20 keys") {
			t.Errorf("%+v", p)
		}
	})
}

func TestWhoLooksLikeWhat(t *testing.T) {
	t.Parallel()
	var lines []string
	add := func(second float64, client, agent string) {
		at := begin.Add(time.Duration(second * float64(time.Second))).Truncate(time.Second)
		lines = append(lines, fmt.Sprintf("%s - - [%s] \"GET /login HTTP/1.1\" 200 1 \"-\" \"%s\"\n", client,
			at.Format("02/Jan/2006:15:04:05 -0700"), agent))
	}
	for i := range 1200 { // in the order of time
		at := float64(i)
		if i%7 == 0 {
			add(at, "198.51.100.1", browsers[0]) // a timer
		}
		if i%3 == 0 {
			add(at, "198.51.100.2", "python-requests/2.32")
			add(at, "203.0.113.1", browsers[i/3%len(browsers)]) // an office
		}
		if i%100 < 20 && i < 900 {
			add(at, "192.0.2.1", browsers[1]) // pages with their resources
		}
		add(at, fmt.Sprintf("192.0.2.%d", 64+i%5), "Mozilla/5.0 (scraper)")
	}
	c := config(t, fmt.Sprintf(loginRule, "2/1m"), strings.Join(lines, ""))
	got := make(map[string]string)
	for _, client := range run(t, c).Clients {
		got[client.Client] = client.Looks
	}
	for client, want := range map[string]string{"198.51.100.1": "program", "198.51.100.2": "program",
		"203.0.113.1": "people", "192.0.2.0/24": "program"} {
		if got[client] != want {
			t.Errorf("%s looks like %q, want %q", client, got[client], want)
		}
	}
	if _, listed := got["192.0.2.66"]; listed {
		t.Error("a client is listed beside its network")
	}
}

// A request that begins when another ends finds its place free.
func TestRequestsEndBeforeOthersBegin(t *testing.T) {
	for start, want := range map[string]string{"1000.000": "passed", "999.999": "slots"} {
		log := "192.0.2.1 1000.000 \"GET /a HTTP/1.1\" 200 1.000\n" +
			"192.0.2.1 1001.000 \"GET /b HTTP/1.1\" 200 " + map[string]string{"1000.000": "1.000", "999.999": "1.001"}[start] + "\n"
		c := configOf(t, "rules:\n  - {name: slots, limit: concurrency 1 ttl 1h}\n", log,
			accesslog.Options{Format: `nginx:$remote_addr $msec "$request" $status $request_time`})
		if got := decisions(t, c)[2]; got != want {
			t.Errorf("the request that begins at %s: %s, want %s", start, got, want)
		}
	}
}
