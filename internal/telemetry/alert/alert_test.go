package alert

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/tally"
	"github.com/weirproject/weir/internal/telemetry"
)

var quiet = slog.New(slog.DiscardHandler)

// A server is counters that a test drives.
type server struct {
	mu              sync.Mutex
	passed, refused uint64
	Reading
}

func (s *server) read(context.Context) *Reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.Reading
	passed, refused := s.passed, s.refused
	r.Rules = func(each func(string, uint64, uint64)) {
		each("quiet", 1000, 0)
		each("login", passed, refused)
	}
	return &r
}

// run lets a manager watch the server in a bubble, and drive change it each second. It returns what was told: the
// second, and + or − with the id.
func run(t *testing.T, s Settings, seconds int, drive func(second int, of *server)) (told []string) {
	synctest.Test(t, func(t *testing.T) {
		var of server
		began := time.Now()
		m := New(Config{Settings: s, Read: of.read, Log: quiet, Tell: func(a *telemetry.Alert) {
			word := "+"
			if !a.Resolved.IsZero() {
				word = "-"
			}
			told = append(told, fmt.Sprintf("%d%s%s", int(time.Since(began).Seconds()), word, ID(a)))
		}})
		m.Start()
		defer m.Close()
		time.Sleep(time.Second / 2) // the counters change between evaluations
		for second := range seconds {
			of.mu.Lock()
			drive(second, &of)
			of.mu.Unlock()
			time.Sleep(time.Second)
			synctest.Wait()
		}
	})
	return told
}

func expect(t *testing.T, told []string, want string) {
	t.Helper()
	if got := strings.Join(told, " "); got != want {
		t.Errorf("told %s\nwant %s", got, want)
	}
}

func TestRejectStormRaisesOneAlert(t *testing.T) {
	expect(t, run(t, Defaults(), 600, func(second int, of *server) {
		of.passed += 100
		if second >= 61 && second < 241 {
			of.refused += 100
		}
	}), "70+reject_share/login 310-reject_share/login")
}

func TestFewRefusalsRaiseNothing(t *testing.T) {
	for name, drive := range map[string]func(second int, of *server){
		"below the share":   func(_ int, of *server) { of.passed, of.refused = of.passed+91, of.refused+9 },
		"below the minimum": func(_ int, of *server) { of.refused++ },
		"nothing":           func(int, *server) {},
	} {
		if told := run(t, Defaults(), 300, drive); told != nil {
			t.Errorf("%s: told %v", name, told)
		}
	}
}

// TestFlappingDoesNotSpam has a storm of a minute in each three minutes, for an hour.
func TestFlappingDoesNotSpam(t *testing.T) {
	told := run(t, Defaults(), 3600, func(second int, of *server) {
		of.passed += 10
		if second%180 < 60 {
			of.refused += 100
		}
	})
	if len(told) != 3 { // raised, resolved, and raised until the end
		t.Errorf("told %v", told)
	}
}

// TestFlapsAreForgotten has two storms, more than an hour apart.
func TestFlapsAreForgotten(t *testing.T) {
	told := run(t, Defaults(), 10_000, func(second int, of *server) {
		if second%5000 < 60 {
			of.refused += 100
		}
	})
	expect(t, told, "5+reject_share/login 130-reject_share/login 5005+reject_share/login 5130-reject_share/login")
}

func TestConditionsWithoutAReader(t *testing.T) {
	slow := tally.Latency{}
	for name, c := range map[string]struct {
		drive func(second int, of *server)
		want  string
	}{
		"degraded": {func(second int, of *server) {
			if second >= 20 && second < 40 {
				of.Degraded += 5
			}
		}, "30+degraded 100-degraded"},
		"one degraded decision": {func(second int, of *server) { of.Degraded = uint64(min(second, 1)) }, ""},
		"clock":                 {func(second int, of *server) { of.Steps = int64(second / 30) }, "35+clock_step"},
		"source": {func(second int, of *server) {
			of.Sources = nil
			if second < 20 {
				of.Sources = []Source{{Name: "config"}}
			}
		}, "10+source_bad/config 80-source_bad/config"},
		"limit": {func(second int, of *server) {
			of.Limits = []Use{{"site", "100/1d", []float64{0.89, 0.9, 0.75, 0.71}[min(second/20, 3)]}}
		}, "30+near_limit/site 120-near_limit/site"},
		"key": {func(second int, of *server) {
			of.Keys = []TopKey{{"login", "a", 500, 0.6}, {"login", "b", 99, 0.9}, {"login", "c", 500, 0.45}}
			if second > 30 {
				of.Keys = nil
			}
		}, "5+new_top_key/login/a 90-new_top_key/login/a"},
		"key that stays": {func(second int, of *server) {
			of.Keys = nil
			if second%600 < 60 { // in ten minutes it is no new one
				of.Keys = []TopKey{{"login", "a", 500, 0.6}}
			}
		}, "5+new_top_key/login/a 120-new_top_key/login/a"},
		"slow store": {func(second int, of *server) {
			for range 50 {
				took := time.Millisecond
				if second >= 30 && second < 60 {
					took = 40 * time.Millisecond
				}
				slow.Observe(took, 0)
			}
			of.Store, _ = slow.Read()
		}, "40+store_slow 130-store_slow"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, run(t, Defaults(), 900, c.drive), c.want) })
	}
}

func TestAlertsThatAreOff(t *testing.T) {
	s, err := Parse("off")
	if err != nil {
		t.Fatal(err)
	}
	s.Window, s.Resolve = time.Minute, time.Minute
	if told := run(t, s, 120, func(_ int, of *server) {
		of.refused += 100
		of.Degraded++
		of.Sources = []Source{{Name: "config"}}
		of.Keys = []TopKey{{"login", "a", 500, 1}}
		of.Limits = []Use{{"site", "", 1}}
	}); told != nil {
		t.Errorf("told %v", told)
	}
}

func TestTooManyAlertsAreBounded(t *testing.T) {
	w := newWatch(Defaults())
	for range 3 {
		var r Reading
		r.Rules = func(each func(string, uint64, uint64)) {
			for i := range 2 * maxFiring {
				each(fmt.Sprint(i), 0, uint64(1000*(w.turn+1)))
			}
		}
		if list := evaluate(w, &r, time.Now()); len(list) != 1 || list[0].Count != maxFiring || w.leftOut != maxFiring {
			t.Fatalf("%d fire, %d are left out", len(list), w.leftOut)
		}
	}
}

func TestRemovedRulesAreForgotten(t *testing.T) {
	w := newWatch(Defaults())
	count := func(rules ...string) *Reading {
		return &Reading{Rules: func(each func(string, uint64, uint64)) {
			for _, rule := range rules {
				each(rule, uint64(100*w.turn), 0)
			}
		}}
	}
	evaluate(w, count("a", "b"), time.Now())
	evaluate(w, count("a", "b"), time.Now())
	evaluate(w, count("b"), time.Now())
	if len(w.rules) != 1 || w.rules["b"] == nil {
		t.Errorf("%v", w.rules)
	}
	for range 30 { // no more requests
		evaluate(w, &Reading{Rules: func(each func(string, uint64, uint64)) { each("b", 1000, 0) }}, time.Now())
	}
	if w.rules["b"].steps != nil {
		t.Error("an idle rule keeps its window")
	}
}

func TestParse(t *testing.T) {
	s, err := Parse("reject_share=20%, store_slow=off,minimum=10,window=30s,degraded=off,resolve=5s,near_limit=99.5%")
	want := Defaults()
	want.RejectShare, want.StoreSlow, want.Minimum, want.Window, want.Degraded, want.Resolve, want.NearLimit =
		0.2, 0, 10, 30*time.Second, false, 5*time.Second, 0.995
	if err != nil || s != want {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := Parse("on"); err != nil || s != Defaults() {
		t.Errorf("on: %+v, %v", s, err)
	}
	for text, says := range map[string]string{
		"":                   `a setting is ""; allowed: on, off, or with commas NAME=VALUE of reject_share, new_top_key`,
		"loud":               `a setting is "loud"; allowed: on, off`,
		"reject_share":       `reject_share is ""; allowed: a percentage above 0% up to 100%, or off`,
		"reject_share=0%":    `reject_share is "0%"; allowed`,
		"reject_share=101%":  `reject_share is "101%"; allowed`,
		"reject_share=NaN%":  `reject_share is "NaN%"; allowed`,
		"reject_share=0.1":   `reject_share is "0.1"; allowed`,
		"window=5s":          `window is "5s"; allowed: a time from 10s to 10m`,
		"window=off":         `window is "off"; allowed`,
		"minimum=0":          `minimum is "0"; allowed: a whole number from 1 to 1000000000`,
		"degraded=yes":       `degraded is "yes"; allowed: on or off`,
		"store_slow=1h":      `store_slow is "1h"; allowed: a time from 1ms to 10s, or off`,
		"resolve=1s":         `resolve is "1s"; allowed: a time from 5s to 1h`,
		"window=1m,,degrade": `a setting is ""; allowed`,
	} {
		if _, err := Parse(text); err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%q: %v, want %s", text, err, says)
		}
	}
}

// A node is a manager's part that agrees with others.
type node struct {
	*Manager
	told []string
}

func newNode(t *testing.T, url string) *node {
	n := &node{Manager: New(Config{Settings: Defaults(), Log: quiet, Shared: NewShared(url, "weir:alerts")})}
	t.Cleanup(n.Shared.close)
	return n
}

// step tells the others what fires here.
func (n *node) step(t *testing.T, names ...string) (all []string) {
	t.Helper()
	var own []telemetry.Alert
	for _, name := range names {
		own = append(own, telemetry.Alert{Name: name, Rule: "login", Text: "text"})
	}
	firing, changes := n.agree(t.Context(), own, time.Now())
	slices.SortFunc(changes, func(a, b telemetry.Alert) int { return strings.Compare(a.Name, b.Name) })
	for _, a := range changes {
		word := "+"
		if !a.Resolved.IsZero() {
			word = "-"
		}
		n.told = append(n.told, word+a.Name)
	}
	for _, a := range firing {
		all = append(all, a.Name)
	}
	return all
}

func TestNodesTellAnAlertOnce(t *testing.T) {
	redis := redistest.Start(t)
	a, b, c := newNode(t, redis.URL()), newNode(t, redis.URL()), newNode(t, redis.URL())
	c.step(t)
	a.step(t, "x")
	b.step(t, "x", "y")
	if all := c.step(t); len(all) != 2 {
		t.Errorf("the third node sees %v", all)
	}
	a.step(t) // b still has it
	expect(t, a.told, "+x")
	b.step(t)
	expect(t, b.told, "+y -x -y")
	if expect(t, c.told, ""); c.step(t) != nil {
		t.Errorf("something fires")
	}
	b.step(t, "x")
	expect(t, b.told, "+y -x -y +x")
}

func TestAlertsOfAKilledNodeEnd(t *testing.T) {
	redis := redistest.Start(t)
	a, b := newNode(t, redis.URL()), newNode(t, redis.URL())
	a.step(t, "x")
	if all := b.step(t); len(all) != 1 || b.told != nil {
		t.Errorf("sees %v, told %v", all, b.told)
	}
	redis.Do("HSET", "weir:alerts", "node x%2Flogin "+a.Shared.node, "1") // its word ended long ago
	b.step(t)
	expect(t, b.told, "-x")
}

func TestNodesTellTheirOwnDuringAnOutage(t *testing.T) {
	redis := redistest.Start(t)
	a, b := newNode(t, redis.URL()), newNode(t, redis.URL())
	a.step(t, "x")
	b.step(t, "x")
	redis.Kill()
	for _, n := range []*node{a, b} {
		if all := n.step(t, "x", "degraded"); len(all) != 2 {
			t.Errorf("fire %v", all)
		}
	}
	expect(t, a.told, "+x +degraded")
	expect(t, b.told, "+degraded") // a told of x
	redis.Restart()
	redistest.Await(t, "the connections", func() bool {
		a.step(t, "x", "degraded")
		b.step(t, "x", "degraded")
		return !a.apart && !b.apart
	})
	expect(t, a.told, "+x +degraded")
	expect(t, b.told, "+degraded")
	a.step(t)
	b.step(t)
	expect(t, append(a.told, b.told...), "+x +degraded +degraded -degraded -x")
}

func TestForeignReplyIsAnError(t *testing.T) {
	redis := redistest.Start(t)
	a := newNode(t, redis.URL())
	redis.Do("HSET", "weir:alerts", "alert q", "no JSON", "node q z", "99999999999999")
	if _, _, _, err := a.Shared.sync(t.Context(), nil); err == nil {
		t.Error("no error")
	}
	redis.Do("DEL", "weir:alerts")
	redis.Do("SET", "weir:alerts", "a string")
	if _, _, _, err := a.Shared.sync(t.Context(), nil); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// evaluate counts and evaluates a reading.
func evaluate(w *watch, r *Reading, now time.Time) []telemetry.Alert {
	w.count(r)
	return w.step(r, now)
}

// A member is a node whose counters a test drives by hand.
type member struct {
	*Manager
	counts map[string][2]uint64
	told   []string
}

func newMember(t *testing.T, url string) *member {
	n := &member{counts: make(map[string][2]uint64)}
	n.Manager = New(Config{Settings: Defaults(), Log: quiet, Shared: NewShared(url, "weir:alerts"),
		Read: func(context.Context) *Reading {
			return &Reading{Rules: func(each func(string, uint64, uint64)) {
				for rule, c := range n.counts {
					each(rule, c[0], c[1])
				}
			}}
		},
		Tell: func(a *telemetry.Alert) {
			n.told = append(n.told, fmt.Sprint(ID(a), " of ", a.Total, " alone ", a.Alone))
		}})
	t.Cleanup(n.Shared.close)
	return n
}

func inTurn(t *testing.T, nodes ...*member) {
	for range 3 {
		for _, n := range nodes {
			n.Manager.step(t.Context(), time.Now())
		}
	}
}

// TestSumOfTheNodesIsJudged: neither node has enough requests of one rule; one alone has too many refusals of the other.
// While Redis is away each node decides by what it has, and says so.
func TestSumOfTheNodesIsJudged(t *testing.T) {
	redis := redistest.Start(t)
	a, b := newMember(t, redis.URL()), newMember(t, redis.URL())
	inTurn(t, a, b)
	a.counts["few"], b.counts["few"] = [2]uint64{30, 30}, [2]uint64{40, 40}
	a.counts["uneven"], b.counts["uneven"] = [2]uint64{88, 14}, [2]uint64{400, 0}
	inTurn(t, a, b)
	if expect(t, slices.Concat(a.told, b.told), "reject_share/few of 140 alone false"); len(b.Firing()) != 1 {
		t.Errorf("the other node has %v", b.Firing())
	}
	redis.Kill()
	a.told, b.told = nil, nil
	a.counts["uneven"] = [2]uint64{88, 114}
	inTurn(t, a, b)
	expect(t, slices.Concat(a.told, b.told), "reject_share/uneven of 202 alone true")
}

// TestOneCauseIsOneAlert: a flood that 161 rules refuse.
func TestOneCauseIsOneAlert(t *testing.T) {
	w := newWatch(Defaults())
	reading := func(rules int) *Reading {
		return &Reading{Rules: func(each func(string, uint64, uint64)) {
			for i := range rules {
				each(fmt.Sprint("rule-", i), 100*uint64(w.turn), uint64(w.turn*(500+i)))
			}
		}}
	}
	now := time.Now()
	evaluate(w, reading(161), now)
	list := evaluate(w, reading(161), now.Add(every))
	if len(list) != 1 || ID(&list[0]) != "reject_share" || list[0].Count != 161 || len(list[0].Rules) != mostNamed ||
		list[0].Rules[0] != "rule-160" || !strings.Contains(list[0].Text, "; and 160 more like this, such as rule-159, ") {
		t.Errorf("%+v", list)
	}
	now = now.Add(5 * time.Minute)
	if list := evaluate(w, reading(0), now); len(list) != 0 {
		t.Errorf("after the flood: %+v", list)
	}
	if list := evaluate(w, reading(3), now); len(list) != 3 || list[0].Count != 0 || list[0].Rule == "" {
		t.Errorf("three of them: %+v", list)
	}
}

// TestFiguresOfAnAlertAreTheNewest on all nodes, with the time of its begin.
func TestFiguresOfAnAlertAreTheNewest(t *testing.T) {
	redis := redistest.Start(t)
	a, b := newNode(t, redis.URL()), newNode(t, redis.URL())
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i, n := range []*node{a, b} {
		own := []telemetry.Alert{{Name: "x", Value: float64(i), Since: began.Add(time.Duration(i) * time.Hour), Text: `"since":"1"`}}
		all, _ := n.agree(t.Context(), own, began)
		if len(all) != 1 || all[0].Value != float64(i) || !all[0].Since.Equal(began) || all[0].Text != own[0].Text {
			t.Errorf("%+v", all)
		}
	}
}
