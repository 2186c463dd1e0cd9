//go:build unix

package engine

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/tally"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/rules"
)

const truthRules = `
rules:
  - {name: user, key: [user], limit: fixed_window 250/24h}
  - {name: all, limit: fixed_window 100000000/24h}
`

// A client counts the answers that it gets from one node.
type client struct {
	*Engine
	file            string // of the audit log
	mu              sync.Mutex
	passed, refused uint64
}

// openClient opens the engine of a node.
func openClient(t *testing.T, redis *redistest.Server, name string) *client {
	t.Helper()
	dir := t.TempDir()
	c := &client{file: filepath.Join(dir, "audit")}
	var config Config
	config.Rules = filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(config.Rules, []byte(truthRules), 0o600); err != nil {
		t.Fatal(err)
	}
	config.Given = func(s *rules.Server) {
		s.Store, s.StoreTimeout = redis.URL(), time.Minute // on a busy machine Redis may take long
		s.NodeName, s.Nodes, s.Telemetry, s.Alerts = name, 3, TelemetryOn, "off"
		s.Audit, s.AuditSize = []string{InStore, c.file}, 1000
	}
	config.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	var err error
	if c.Engine, err = Read(t.Context(), config); err == nil {
		err = c.Open(t.Context())
	}
	if err == nil {
		err = c.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ask sends batches of requests of random users, from several goroutines, and counts the answers.
func (c *client) ask(t *testing.T, requests, users int) {
	const goroutines, batch = 2, 250
	var all sync.WaitGroup
	for g := range uint64(goroutines) {
		all.Go(func() {
			random := rand.New(rand.NewPCG(g, uint64(len(c.NodeName))))
			questions := make([]gate.Question, batch)
			for i := range questions {
				questions[i] = gate.Question{Ask: gate.Once, Request: new(rules.Request), Verdict: new(gate.Verdict)}
			}
			passed, refused := uint64(0), uint64(0)
			for range requests / goroutines / batch {
				for i := range questions {
					questions[i].Request.User = "user" + strconv.Itoa(random.IntN(users))
				}
				c.Gate.DecideBatch(t.Context(), questions)
				for i := range questions {
					switch v := questions[i].Verdict; {
					case v.Outcome == gate.Passed && v.Err == nil:
						passed++
					case v.Outcome == gate.Refused:
						refused++
					default:
						t.Errorf("%v %v: %v", v.Outcome, v.Reason, v.Err)
					}
				}
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.passed, c.refused = c.passed+passed, c.refused+refused
		})
	}
	all.Wait()
}

// TestDecisionsOnThreeNodesAreCountedExactly: by the metrics and the audit log of each node, and by the
// telemetry that each node reports of all of them. The limits are kept to the unit.
func TestDecisionsOnThreeNodesAreCountedExactly(t *testing.T) {
	each, users := 100_000, 600
	if testing.Short() {
		each, users = 15_000, 90
	}
	redis := redistest.Start(t)
	var nodes []*client
	for i := range 3 {
		nodes = append(nodes, openClient(t, redis, fmt.Sprint("n", i)))
	}
	var all sync.WaitGroup
	for _, c := range nodes {
		all.Go(func() { c.ask(t, each, users) })
	}
	all.Wait()
	var passed, refused uint64
	for _, c := range nodes {
		passed, refused = passed+c.passed, refused+c.refused
		c.checkMetrics(t)
	}
	if want := uint64(users * 250); passed != want || passed+refused != uint64(3*each) {
		t.Errorf("%d of %d passed, the limits grant %d", passed, passed+refused, want)
	}
	for _, c := range nodes[:2] { // the last one reports for them too
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		c.checkAudit(t)
	}
	checkOverview(t, nodes[2], passed, refused)
	if err := nodes[2].Close(); err != nil {
		t.Error(err)
	}
	nodes[2].checkAudit(t)
	checkStream(t, redis, nodes)
}

func (c *client) checkMetrics(t *testing.T) {
	t.Helper()
	byRule := make(map[string]tally.Counts)
	total, took := c.Metrics.Read(func(name string, n *tally.Rule) { byRule[name] = n.Read() })
	user, every := byRule["user"], byRule["all"]
	if total[tally.Passed] != c.passed || total[tally.Refused] != c.refused || took.Total() != c.passed+c.refused ||
		user[tally.Passed] != c.passed || user[tally.Refused] != c.refused || every[tally.Passed] != c.passed ||
		every[tally.Refused] != 0 {
		t.Errorf("%s counted %v, by rule %v; the client %d passed, %d refused", c.NodeName, total, byRule, c.passed, c.refused)
	}
}

// checkAudit compares the audit log of a closed node with the client's count: what was written and what was lost.
func (c *client) checkAudit(t *testing.T) {
	t.Helper()
	text, err := os.Open(c.file)
	if err != nil {
		t.Fatal(err)
	}
	defer text.Close()
	lines, refused := int64(0), int64(0)
	for scanner := bufio.NewScanner(text); scanner.Scan(); lines++ {
		if bytes.Contains(scanner.Bytes(), []byte(`"outcome":"refused"`)) {
			refused++
		}
	}
	counts := c.audit.Counts()
	stream, file := counts[0], counts[1]
	if lines != file.Written || uint64(refused+file.Lost) != c.refused || refused == 0 {
		t.Errorf("%s: %d lines with %d refusals of %d, %+v", c.NodeName, lines, refused, c.refused, file)
	}
	if due := file.Written + file.Lost; stream.Written+stream.Lost != due {
		t.Errorf("%s: %+v, %d were due", c.NodeName, stream, due)
	}
}

// checkOverview compares the telemetry of all nodes, as one of them reports it, with the clients' counts.
func checkOverview(t *testing.T, c *client, passed, refused uint64) {
	t.Helper()
	var o *telemetry.Overview
	redistest.Await(t, "the counts of all nodes", func() bool {
		var err error
		o, err = c.Telemetry().Overview(t.Context(), telemetry.Query{From: time.Now().Add(-time.Hour), To: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		return o.Total.Passed+o.Total.Refused >= passed+refused
	})
	want := telemetry.Counts{Passed: passed, Refused: refused}
	if o.Total != want || len(o.Rules) != 2 || o.Rules[0].Name != "user" || o.Rules[0].Counts != want ||
		o.Rules[1].Counts != (telemetry.Counts{Passed: passed}) {
		t.Errorf("the telemetry reports %+v and %+v; the clients counted %+v", o.Total, o.Rules, want)
	}
}

// checkStream compares the streams with what the nodes say that they wrote to them.
func checkStream(t *testing.T, redis *redistest.Server, nodes []*client) {
	t.Helper()
	written := int64(0)
	for _, c := range nodes {
		written += c.audit.Counts()[0].Written
	}
	if written == 0 {
		t.Error("nothing was written to the stream")
	}
	added := int64(0)
	for _, stream := range []string{AuditStream, "{weir:audit}:bans", "{weir:audit}:events"} {
		if redis.Do("EXISTS", stream) == int64(0) {
			continue
		}
		info := redis.Do("XINFO", "STREAM", stream).([]any)
		i := slices.Index(info, any("entries-added"))
		if i < 0 {
			return // before Redis 7
		}
		added += info[i+1].(int64)
	}
	if added != written {
		t.Errorf("%d entries were added to the streams, the nodes have written %d", added, written)
	}
}
