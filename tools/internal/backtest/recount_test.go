package backtest_test

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

const twoRules = `
rules:
  - name: login
    match: {path: /login}
    key: [client.ip]
    limit: sliding_log 5/1m
  - name: all
    key: [client.ip]
    limit: fixed_window 20/30s epoch
`

// A request as this test reads it. It shares nothing with the product.
type request struct {
	at           int64 // µs
	client, path string
	refusedBy    []string
}

var combined = regexp.MustCompile(`^(\S+) \S+ \S+ \[([^\]]+)\] "\S+ ([^ ?"]+)\S* HTTP/1.1" (\d+)`)

// requests reads a log. Those of one second are spread evenly.
func requests(t *testing.T, log string) (list []*request) {
	perSecond := make(map[int64][]*request)
	for line := range strings.Lines(log) {
		m := combined.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("line %q", line)
		}
		at, err := time.Parse("02/Jan/2006:15:04:05 -0700", m[2])
		if err != nil {
			t.Fatal(err)
		}
		r := &request{client: m[1], path: m[3]}
		list = append(list, r)
		perSecond[at.Unix()] = append(perSecond[at.Unix()], r)
	}
	for second, group := range perSecond {
		for i, r := range group {
			r.at = second*1_000_000 + 1_000_000*int64(i)/int64(len(group))
		}
	}
	return list
}

// decide decides by the slowest way: it looks at all requests before.
func decide(list []*request) {
	for i, r := range list {
		inWindow, inMinute := 0, 0
		for _, before := range list[:i] {
			if before.client != r.client || before.refusedBy != nil {
				continue
			}
			if before.at/30_000_000 == r.at/30_000_000 {
				inWindow++
			}
			if before.path == "/login" && before.at > r.at-60_000_000 {
				inMinute++
			}
		}
		if r.path == "/login" && inMinute >= 5 {
			r.refusedBy = append(r.refusedBy, "login")
		}
		if inWindow >= 20 {
			r.refusedBy = append(r.refusedBy, "all")
		}
	}
}

// peak is the largest number of a client's requests in a window, whether they were refused or not.
func peak(list []*request, client, path string, window int64) (most int64) {
	for i, r := range list {
		if r.client != client || path != "" && r.path != path {
			continue
		}
		n := int64(0)
		for _, before := range list[:i+1] {
			if before.client == client && (path == "" || before.path == path) && before.at > r.at-window {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

func TestFiguresAreThoseOfASlowRecount(t *testing.T) {
	log := traffic(1500, 7)
	list := requests(t, log)
	decide(list)
	report := run(t, config(t, twoRules, log))

	refused, clients, all := make(map[string]int64), make(map[string]map[string]bool), make(map[string]bool)
	failing, minutes := make(map[string]int64), make(map[string]map[int64]int64)
	first := make(map[string]int64)
	var total int64
	for _, r := range list {
		all[r.client] = true
		if r.refusedBy != nil {
			total++
		}
		for _, by := range r.refusedBy {
			refused[by]++
			if clients[by] == nil {
				clients[by], minutes[by], first[by] = make(map[string]bool), make(map[int64]int64), r.at
			}
			clients[by][r.client] = true
			minutes[by][r.at/60_000_000]++
			if r.client == "198.51.100.9" {
				failing[by]++
			}
		}
	}
	if refused["login"] == 0 || refused["all"] == 0 {
		t.Fatalf("the log does not try both rules: %v", refused)
	}
	if report.Total.Refused != total {
		t.Errorf("%d requests are refused, the recount has %d", report.Total.Refused, total)
	}
	if report.Total.Requests != int64(len(list)) || report.Total.Clients != int64(len(all)) {
		t.Errorf("%d requests of %d clients, the recount has %d of %d", report.Total.Requests, report.Total.Clients,
			len(list), len(all))
	}
	for _, rule := range report.ByRule {
		busiest := int64(0)
		for _, n := range minutes[rule.Name] {
			busiest = max(busiest, n)
		}
		var series int64
		for _, n := range rule.Series {
			series += n
		}
		for what, pair := range map[string][2]int64{
			"refused":         {rule.Refused, refused[rule.Name]},
			"clients refused": {rule.ClientsRefused, int64(len(clients[rule.Name]))},
			"failing":         {rule.Failing, failing[rule.Name]},
			"first":           {rule.First.UnixMicro(), first[rule.Name]},
			"busiest minute":  {rule.Peak.Requests, busiest},
			"series":          {series, refused[rule.Name]},
		} {
			if pair[0] != pair[1] {
				t.Errorf("rule %s: %s is %d, the recount has %d", rule.Name, what, pair[0], pair[1])
			}
		}
		path, window := "", int64(30_000_000)
		if rule.Name == "login" {
			path, window = "/login", 60_000_000
		}
		want := make(map[int64]int64)
		for client := range all {
			if n := peak(list, client, path, window); n > 0 {
				want[n]++
			}
		}
		for _, bar := range rule.Peaks {
			if bar.From <= rule.Units && bar.To > rule.Units {
				t.Errorf("rule %s: the bar of %d to %d has peaks on both sides of %d", rule.Name, bar.From, bar.To,
					rule.Units)
			}
			keys := int64(0)
			for n, count := range want {
				if bar.From <= n && n <= bar.To {
					keys += count
					delete(want, n)
				}
			}
			if keys != bar.Keys {
				t.Errorf("rule %s: %d keys have peaks of %d to %d, the recount has %d", rule.Name, bar.Keys, bar.From,
					bar.To, keys)
			}
		}
		if len(want) > 0 {
			t.Errorf("rule %s: no bar has the peaks %v", rule.Name, want)
		}
	}
}

// TestFloorsAndSharesMatchASlowRecount: a class by its path leaves its part, and clients share by weight.
func TestFloorsAndSharesMatchASlowRecount(t *testing.T) {
	log := traffic(1500, 7)
	list := requests(t, log)
	const minute, most = 60_000_000, 40
	floors, shares := int64(0), int64(0)
	type window struct {
		used, usedFairly int64
		own              map[string]int64
	}
	windows := make(map[int64]*window)
	for _, r := range list {
		w := windows[r.at/minute]
		if w == nil {
			w = &window{own: make(map[string]int64)}
			windows[r.at/minute] = w
		}
		floor := int64(20)
		if r.path == "/login" {
			floor = 0
		}
		if w.used+1+floor <= most {
			w.used++
		} else {
			floors++
		}
		passed := r.at % minute * 100 / minute
		open, weights := max(10, (most*passed+99)/100), int64(0)
		for client := range w.own {
			weights += weightOf(client)
		}
		if w.own[r.client] == 0 {
			weights += weightOf(r.client)
		}
		share := most * weightOf(r.client) / weights
		if w.usedFairly+1 <= most && (w.usedFairly+1 <= open || w.own[r.client]+1 <= share) {
			w.usedFairly++
			w.own[r.client]++
		} else {
			shares++
		}
	}
	got := make(map[string]int64)
	for _, rule := range []string{
		"{name: floors, limit: fixed_window 40/1m epoch, reserve: {classes: {a: 0%, b: 50%}, match: {a: {path: /login}}}}",
		"{name: shares, limit: fixed_window 40/1m epoch, fair: {by: [client.ip], above: 25%, weights: {" + heavy + ": 3}}}",
	} {
		for _, one := range run(t, config(t, "rules: ["+rule+"]", log)).ByRule {
			got[one.Name] = one.Refused
		}
	}
	if floors == 0 || shares == 0 || floors == shares || got["floors"] != floors || got["shares"] != shares {
		t.Errorf("refused: %v, the recount has floors %d, shares %d", got, floors, shares)
	}
}

// heavy is a client with three times the weight of others.
const heavy = "198.51.100.9"

func weightOf(client string) int64 {
	if client == heavy {
		return 3
	}
	return 1
}
