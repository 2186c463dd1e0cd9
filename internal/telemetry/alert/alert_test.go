package alert

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir/internal/telemetry"
)

var quiet = slog.New(slog.DiscardHandler)

// A cluster is what nodes read, which a test drives.
type cluster struct {
	rules    map[string][2]uint64 // passed and refused in the window
	degraded uint64
	down     bool // the nodes do not see each other
	nodes    []*node
}

// A node of it; the first of those that are not gone is the oldest.
type node struct {
	*Manager
	*cluster
	gone bool
	told []string // the second, + or − with the id, and what else a test wants to know
}

func (n *node) Overview(_ context.Context, q telemetry.Query) (*telemetry.Overview, error) {
	o := &telemetry.Overview{From: q.From}
	for name, counts := range n.rules {
		r := telemetry.RuleSummary{Name: name, Counts: telemetry.Counts{Passed: counts[0], Refused: counts[1]}}
		r.RefusedShare = float64(counts[1]) / float64(max(1, counts[0]+counts[1]))
		o.Rules = append(o.Rules, r)
	}
	return o, nil
}

func (n *node) Others(context.Context) (others []telemetry.Node, leads bool, err error) {
	if n.down {
		return nil, true, errors.New("down")
	}
	for _, other := range n.nodes {
		if other != n && !other.gone {
			others = append(others, telemetry.Node{Alerts: other.Own()})
		}
	}
	oldest := slices.IndexFunc(n.nodes, func(other *node) bool { return !other.gone })
	return others, n.nodes[oldest] == n, nil
}

func newCluster(s Settings, nodes int) *cluster {
	c := &cluster{rules: map[string][2]uint64{"quiet": {1000, 0}}}
	began := time.Now()
	for range nodes {
		n := &node{cluster: c}
		n.Manager = New(Config{Settings: s, Nodes: n, Degraded: func() uint64 { return c.degraded }, Tell: func(a *telemetry.Alert) {
			word := "+"
			if !a.Resolved.IsZero() {
				word = "-"
			}
			n.told = append(n.told, fmt.Sprintf("%.0f%s%s", time.Since(began).Seconds(), word, ID(a)))
		}})
		c.nodes = append(c.nodes, n)
	}
	return c
}

// pass lets the nodes look for some time.
func (c *cluster) pass(t *testing.T, lasts time.Duration) {
	t.Helper()
	for range lasts / every {
		time.Sleep(every)
		for _, n := range c.nodes {
			if !n.gone {
				n.look(t.Context(), time.Now())
			}
		}
	}
}

// told is what all nodes told, and forgets it.
func (c *cluster) told() string {
	var all []string
	for _, n := range c.nodes {
		all, n.told = append(all, n.told...), nil
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (c *cluster) expect(t *testing.T, want string) {
	t.Helper()
	if got := c.told(); got != want {
		t.Errorf("told %s\nwant %s", got, want)
	}
}

// TestStormIsToldOnce by the oldest node, and its end; all nodes know that it fires. A node that leads after it has gone
// goes on where it was.
func TestStormIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(Defaults(), 3)
		c.rules["login"], c.rules["few"] = [2]uint64{100, 100}, [2]uint64{0, 99}
		c.pass(t, time.Minute)
		c.expect(t, "10+reject_share/login")
		for i, n := range c.nodes {
			if list := n.Firing(); len(list) != 1 || list[0].Total != 200 || list[0].Rule != "login" {
				t.Errorf("node %d knows %+v", i, list)
			}
		}
		c.nodes[0].gone = true
		c.pass(t, time.Minute)
		c.expect(t, "")
		if list := c.nodes[2].Firing(); len(list) != 1 {
			t.Errorf("%+v", list)
		}
		c.rules["login"] = [2]uint64{100, 9} // above 80 % of the threshold
		c.pass(t, time.Hour)
		c.expect(t, "")
		c.rules["login"] = [2]uint64{100, 1}
		c.pass(t, 2*time.Minute)
		c.expect(t, "3780-reject_share/login")
		if list := c.nodes[2].Firing(); len(list) != 0 {
			t.Errorf("%+v", list)
		}
	})
}

// TestNodesThatDoNotSeeEachOther decide by what they have, and say so. When they do again, an alert that goes on at the
// oldest is not resolved by another.
func TestNodesThatDoNotSeeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(Defaults(), 2)
		c.pass(t, time.Minute)
		c.down, c.rules["login"] = true, [2]uint64{100, 100}
		c.degraded++
		c.pass(t, every)
		c.degraded++
		c.pass(t, every)
		c.expect(t, "70+degraded 70+degraded 70+reject_share/login 70+reject_share/login")
		if a := c.nodes[1].Own(); !slices.ContainsFunc(a, func(a telemetry.Alert) bool { return a.Alone && strings.Contains(a.Text, "this node alone") }) {
			t.Errorf("%+v", a)
		}
		c.down = false
		c.pass(t, 10*time.Minute)
		c.expect(t, "130-degraded 130-degraded")
		c.rules["login"] = [2]uint64{200, 0}
		c.pass(t, 2*time.Minute)
		c.expect(t, "730-reject_share/login")
	})
}

// TestAlertsOfOthersAreKnown to a node that looks at its store alone.
func TestAlertsOfOthersAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Defaults()
		s.RejectShare = 0
		c := newCluster(s, 2)
		c.nodes[1].Manager.Degraded = func() uint64 { return 0 }
		for range 4 {
			c.degraded++
			c.pass(t, every)
		}
		if list := c.nodes[1].Firing(); len(list) != 1 || list[0].Name != "degraded" {
			t.Errorf("%+v", list)
		}
	})
}

func TestFlappingDoesNotSpam(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(Defaults(), 1)
		for range 30 {
			c.rules["login"] = [2]uint64{100, 100}
			c.pass(t, time.Minute)
			c.rules["login"] = [2]uint64{100, 0}
			c.pass(t, 90*time.Second)
		}
		if told := c.told(); strings.Count(told, "+") > 3 {
			t.Errorf("told %s", told)
		}
	})
}

// TestOneCauseIsOneAlert: a flood that 161 rules refuse.
func TestOneCauseIsOneAlert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(Defaults(), 1)
		for i := range 161 {
			c.rules[fmt.Sprintf("rule-%03d", i)] = [2]uint64{100, 500 + uint64(i)}
		}
		c.pass(t, time.Minute)
		list := c.nodes[0].Firing()
		if len(list) != 1 || list[0].Count != 161 || len(list[0].Rules) != maxNamed || list[0].Rules[0] != "rule-160" ||
			!strings.Contains(list[0].Text, "; and 160 more like this, such as rule-159, ") {
			t.Errorf("%+v", list)
		}
		c.expect(t, "10+reject_share")
		clear(c.rules)
		c.pass(t, 2*time.Minute)
		c.expect(t, "120-reject_share")
	})
}

func TestAlertsThatAreOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(Settings{Window: time.Minute, Minimum: 1, Resolve: time.Minute}, 1)
		c.rules["login"] = [2]uint64{0, 1000}
		for range 5 {
			c.degraded++
			c.pass(t, every)
		}
		c.expect(t, "")
	})
}

func TestParse(t *testing.T) {
	s, err := Parse("reject_share=20.5%, minimum=10,window=2m,degraded=off,resolve=5s")
	want := Settings{RejectShare: 0.205, Minimum: 10, Window: 2 * time.Minute, Resolve: 5 * time.Second}
	if err != nil || s != want {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := Parse("on"); err != nil || s != Defaults() {
		t.Errorf("on: %+v, %v", s, err)
	}
	for text, says := range map[string]string{
		"":                   `a setting is ""; allowed: on, off, or with commas NAME=VALUE of reject_share, degraded, window`,
		"loud":               `a setting is "loud"; allowed: on, off`,
		"reject_share":       `reject_share is ""; allowed: a percentage above 0% up to 100%, or off`,
		"reject_share=0%":    `reject_share is "0%"; allowed`,
		"reject_share=101%":  `reject_share is "101%"; allowed`,
		"reject_share=NaN%":  `reject_share is "NaN%"; allowed`,
		"reject_share=0.1":   `reject_share is "0.1"; allowed`,
		"window=5s":          `window is "5s"; allowed: a time from 1m to 1h`,
		"window=off":         `window is "off"; allowed`,
		"minimum=0":          `minimum is "0"; allowed: a whole number from 1 to 1000000000`,
		"degraded=yes":       `degraded is "yes"; allowed: on or off`,
		"resolve=1s":         `resolve is "1s"; allowed: a time from 5s to 1h`,
		"window=1m,,degrade": `a setting is ""; allowed`,
	} {
		if _, err := Parse(text); err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%q: %v, want %s", text, err, says)
		}
	}
}
