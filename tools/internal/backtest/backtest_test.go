package backtest_test

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir/tools/internal/accesslog"
	"github.com/weirproject/weir/tools/internal/backtest"
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
	if report.Total.Refused != 0 {
		t.Errorf("%+v", report.Total)
	}
	for _, c.Spread = range []backtest.Spread{backtest.First, backtest.Last} {
		if report = run(t, c); report.Total.Refused != 6 {
			t.Errorf("%s: %+v", c.Spread, report.Total)
		}
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

// limits are those of a proposal.
func limits(p *backtest.Proposal) (list []string) {
	for _, point := range p.Points {
		list = append(list, point.Limit)
	}
	return list
}

// said are the codes of a proposal's reasons.
func said(notes []backtest.Note) (codes []string) {
	for _, one := range notes {
		codes = append(codes, one.Code)
	}
	return codes
}

func TestNothingIsProposedWhereNobodyIsKnownToBeGood(t *testing.T) {
	t.Parallel()
	peaks := people(200, 40)
	peaks["198.51.100.1"], peaks["198.51.100.2"] = 900, 700
	p := propose(t, peaks, "", "sliding_log 5/1m")
	if p.Limit != "" || !slices.Contains(said(p.Why), "nobody_good") || p.GapFrom != 40 || p.GapTo != 700 {
		t.Errorf("%+v", p)
	}
	want := []string{"sliding_log 5/1m", "sliding_log 50/1m", "sliding_log 1200/1m"}
	if got := limits(&p); !slices.Equal(got, want) {
		t.Errorf("limits %q, want %q", got, want)
	}
}

func TestSmallestLimitThatHitsNoGoodClientIsProposed(t *testing.T) {
	t.Parallel()
	peaks := people(200, 40)
	for i := range 60 {
		peaks[fmt.Sprintf("198.51.100.%d", i)] = 41 + 2*i
	}
	p := propose(t, peaks, "192.0.2.0/24", "fixed_window 5/1m")
	if p.Limit != "fixed_window 50/1m" || p.GapTo != 0 {
		t.Errorf("%+v", p)
	}
	for _, point := range p.Points {
		if hit := point.Good.ClientsRefused; (hit == 0) != (point.Units >= 50) || point.Good.Clients != 200 {
			t.Errorf("%s: %+v", point.Limit, point.Good)
		}
	}
}

func TestAFewClientsSayNothing(t *testing.T) {
	t.Parallel()
	p := propose(t, people(20, 40), "", "5/1m")
	if p.Limit != "" || len(p.Points) != 0 || !strings.Contains(p.Why[0].Text, "Only 20 keys") {
		t.Errorf("%+v", p)
	}
}

func TestGoodClientsFarAboveTheOthersAreNamed(t *testing.T) {
	t.Parallel()
	peaks := people(200, 8)
	peaks["192.0.2.250"] = 120
	p := propose(t, peaks, "192.0.2.0/24", "sliding_log 10/1m")
	i := slices.IndexFunc(p.Why, func(n backtest.Note) bool { return n.Code == "good_far_above" })
	if p.Limit != "" || i < 0 || p.Why[i].Values["names"] != "192.0.2.250" || p.Why[i].Values["ratio"] != "15" {
		t.Errorf("%+v", p)
	}
}

func TestPercentileThatIsTheLargestPeakIsCalledThat(t *testing.T) {
	t.Parallel()
	few := propose(t, people(200, 40), "", "5/1m")
	if slices.Contains(said(few.Why), "peaks_999") || !strings.Contains(few.Why[0].Text, "the largest peak is 40") {
		t.Errorf("%+v", few.Why)
	}
}

// stuffing is a log of 300 people, who log in and load pages, and so many programs that guess 120 passwords a minute,
// of names that they do not use twice. form: each program loads the form first.
func stuffing(bots int, form bool) string {
	type line struct {
		at   int
		text string
	}
	var lines []line
	add := func(second int, client, user, request string, status int, agent string) {
		at := begin.Add(time.Duration(second) * time.Second).Format("02/Jan/2006:15:04:05 -0700")
		lines = append(lines, line{second, fmt.Sprintf("%s - %s [%s] \"%s HTTP/1.1\" %d 9 \"-\" \"%s\"\n", client, user, at,
			request, status, agent)})
	}
	for i := range 300 {
		client, agent := fmt.Sprintf("10.1.%d.%d", i/250, i%250), browsers[i%len(browsers)]
		add(i%180, client, "-", "GET /login", 200, agent)
		add(i%180, client, "-", "GET /style.css", 200, agent)
		for n := range 1 + i%7 {
			add(i%180+n, client, "-", "POST /login", map[bool]int{true: 302, false: 401}[n == i%7], agent)
		}
	}
	for i := range bots {
		client := fmt.Sprintf("45.9.%d.%d", i/250, i%250)
		if form {
			add(0, client, "-", "GET /login", 200, browsers[i%len(browsers)])
		}
		for n := range 120 {
			add(1+n/2, client, fmt.Sprintf("user%d-%d", i, n), "POST /login", 401, browsers[i%len(browsers)])
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at - b.at })
	var b strings.Builder
	for i := range lines {
		b.WriteString(lines[i].text)
	}
	return b.String()
}

// However many of the clients guess passwords, the limit that is right is not called wrong.
func TestAdviceDoesNotFollowTheAttackers(t *testing.T) {
	t.Parallel()
	for _, bots := range []int{9, 26, 300} { // 3 %, 8 % and half of the clients
		c := config(t, fmt.Sprintf(loginRule, "sliding_log 10/1m"), stuffing(bots, false))
		if err := c.SetPropose("--propose", []string{"login"}); err != nil {
			t.Fatal(err)
		}
		report := run(t, c)
		p := &report.Proposed[0]
		above := slices.IndexFunc(p.Why, func(n backtest.Note) bool { return n.Code == "gap" })
		if p.Limit != "" || p.GapFrom != 8 || p.GapTo != 120 || above < 0 ||
			p.Why[above].Values["above"] != fmt.Sprint(bots) || !slices.Contains(said(p.Why), "nobody_good") {
			t.Errorf("%d bots: %+v", bots, p)
		}
		for _, point := range p.Points {
			stops := int64(0)
			if point.Units < 120 {
				stops = int64(bots)
			}
			if point.Fails != int64(bots) || point.FailsRefused != stops ||
				point.Units >= 10 && point.Failing != point.Refused ||
				point.Hour != 60*point.Units || point.Day != 24*60*point.Units {
				t.Errorf("%d bots, %s: %+v", bots, point.Limit, point)
			}
		}
		worst := &report.Clients[0]
		if worst.Agents != 1 || worst.Failing != worst.Requests || worst.Names < 100 {
			t.Errorf("%d bots: %+v", bots, worst)
		}
	}
}

// Programs load the form before they guess, with a condition that does not ask for more than that.
func TestGoodClientsDoNotOnlyFail(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"path=/login status<400", "method=POST path=/login status=302"} {
		c := config(t, fmt.Sprintf(loginRule, "sliding_log 10/1m"), stuffing(12, true))
		condition, err := backtest.ParseCondition("--good", text, c.Form)
		if err != nil {
			t.Fatal(err)
		}
		c.Good, c.FalsePositives = &backtest.Legitimate{Condition: condition}, 0.001
		if err := c.SetPropose("--propose", []string{"login"}); err != nil {
			t.Fatal(err)
		}
		report := run(t, c)
		if p := &report.Proposed[0]; p.Limit != "sliding_log 10/1m" || report.Good.Clients != 300 {
			t.Errorf("%s: %+v, good %+v", text, p, report.Good)
		}
		if says := slices.Contains(said(report.Limits), "good_failing"); says != strings.Contains(text, "<400") {
			t.Errorf("%s: notes %v", text, said(report.Limits))
		}
	}
}

// The report counts what a client did, and does not say what it is.
func TestEvidenceOfClients(t *testing.T) {
	t.Parallel()
	var lines []string
	add := func(second float64, client, path, agent string) {
		at := begin.Add(time.Duration(second * float64(time.Second))).Truncate(time.Second)
		lines = append(lines, fmt.Sprintf("%s - - [%s] \"GET %s HTTP/1.1\" 200 1 \"-\" \"%s\"\n", client,
			at.Format("02/Jan/2006:15:04:05 -0700"), path, agent))
	}
	add(0, "198.51.100.2", "/robots.txt", "python-requests/2.32")
	for i := range 1200 { // in the order of time
		at := float64(i)
		if i%3 == 0 {
			add(at, "198.51.100.2", "/login", "python-requests/2.32")
			add(at, "203.0.113.1", "/login", browsers[i/3%len(browsers)]) // an office
		}
		if i%100 < 20 && i < 900 {
			add(at, "192.0.2.1", map[bool]string{true: "/login", false: "/a/Style.CSS?v=1"}[i%2 == 0], browsers[1])
		}
		add(at, fmt.Sprintf("192.0.2.%d", 64+i%5), "/login", fmt.Sprintf("scraper/%d", i%5))
	}
	c := config(t, fmt.Sprintf(loginRule, "2/1m"), strings.Join(lines, ""))
	got := make(map[string]backtest.Evidence)
	for _, client := range run(t, c).Clients {
		got[client.Client] = client.Evidence
	}
	if x := got["198.51.100.2"]; x.Agents != 1 || x.Agent != "python-requests/2.32" {
		t.Errorf("the program: %+v", x)
	}
	if x := got["203.0.113.1"]; x.Agents != int64(len(browsers)) {
		t.Errorf("the office: %+v", x)
	}
}

func TestKeysThatAreRefusedMostAreNamed(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	for i := range 300 {
		at := begin.Add(time.Duration(i) * time.Second).Format("02/Jan/2006:15:04:05 -0700")
		fmt.Fprintf(&log, "192.0.2.%d - %s [%s] \"GET /a HTTP/1.1\" 200 1 \"-\" \"-\"\n", i%220,
			[]string{"ann", "bob", "bob"}[i%3], at)
	}
	report := run(t, config(t, "rules:\n  - {name: by-user, match: {user: [\"*\"]}, key: [user], limit: sliding_log 5/1m}\n",
		log.String()))
	worst := report.ByRule[0].Worst
	if len(worst) != 2 || worst[0].Key != "bob" || worst[1].Key != "ann" || worst[0].Addresses < 100 ||
		worst[0].Refused+worst[1].Refused != report.ByRule[0].Refused {
		t.Errorf("%+v", worst)
	}
}

// A log with its newest line first, as files in the order of a glob are, is not decided at its own times.
func TestLogInDisorderIsAWarning(t *testing.T) {
	t.Parallel()
	lines := strings.SplitAfter(traffic(600, 5), "\n")
	slices.Reverse(lines)
	report := run(t, config(t, fmt.Sprintf(loginRule, "5/1m"), strings.Join(lines, "")))
	if first := &report.Limits[0]; first.Code != "late" || !first.Severe || report.Log.Late == 0 {
		t.Errorf("%d late, %+v", report.Log.Late, first)
	}
	var text strings.Builder
	if err := report.Text(&text, true); err != nil || !strings.HasPrefix(text.String(), "\x1b[31mwarning\x1b[0m: ") {
		t.Errorf("%v, %.80q", err, text.String())
	}
}

// One odd line does not hide that a rule by host is met by nobody.
func TestRuleThatMatchesNothingIsExplained(t *testing.T) {
	t.Parallel()
	log := traffic(300, 5) + "192.0.2.1 - - [20/Nov/2026:10:09:00 +0000] \"GET http://x/ HTTP/1.1\" 200 1 \"-\" \"-\"\n"
	report := run(t, config(t, "rules:\n  - {name: shop, match: {host: [shop.example.com], path: /login}, limit: 5/1m}\n", log))
	var texts []string
	for _, one := range report.Limits {
		texts = append(texts, one.Text)
	}
	text := strings.Join(texts, "\n")
	for _, want := range []string{"The rule shop matched none of", "path = /login: ", "host = shop.example.com: 0.",
		"have no host, which the rule shop asks for"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nlacks %q", text, want)
		}
	}
}

func TestReportNotesAdaptiveLimits(t *testing.T) {
	t.Parallel()
	const services = "services: [{name: s, addresses: http://s%s}]\nroutes: [{name: r, service: s}]\n"
	for concurrency, want := range map[string]bool{"": false, ", concurrency: {adaptive: gradient}": true} {
		report := run(t, config(t, fmt.Sprintf(services, concurrency)+fmt.Sprintf(loginRule, "5/1m"), traffic(30, 5)))
		noted := slices.ContainsFunc(report.Limits, func(n backtest.Note) bool {
			return n.Code == "adaptive" && strings.Contains(n.Text, "service s ")
		})
		if noted != want {
			t.Errorf("with %q: %+v", concurrency, report.Limits)
		}
	}
}

func TestNotesAreInBothLanguages(t *testing.T) {
	for code, pair := range backtest.Sentences {
		values := func(text string) string {
			found := regexp.MustCompile(`{\w+}`).FindAllString(text, -1)
			slices.Sort(found)
			return strings.Join(slices.Compact(found), " ")
		}
		if pair[0] == "" || pair[1] == "" || values(pair[0]) != values(pair[1]) {
			t.Errorf("%s: %q", code, pair)
		}
	}
}

// A request that begins when another ends finds its place free.
func TestRequestsEndBeforeOthersBegin(t *testing.T) {
	for start, want := range map[string]string{"1000.000": "passed", "999.999": "slots"} {
		log := "192.0.2.1 1000.000 \"GET /a HTTP/1.1\" 200 1.000\n" +
			"192.0.2.1 1001.000 \"GET /b HTTP/1.1\" 200 " + map[string]string{"1000.000": "1.000", "999.999": "1.001"}[start] + "\n"
		c := configOf(t, "rules:\n  - {name: slots, limit: concurrency 1 ttl 1h}\n", log,
			accesslog.Options{Format: `$remote_addr $msec "$request" $status $request_time`})
		if got := decisions(t, c)[2]; got != want {
			t.Errorf("the request that begins at %s: %s, want %s", start, got, want)
		}
	}
}
