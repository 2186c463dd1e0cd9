//go:build unix

package redissource_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/redissource"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

// A node is a gate whose rules come from Redis, as a server has it.
type node struct {
	t      testing.TB
	gate   *gate.Gate
	keeper *ruleset.Manager

	mu     sync.Mutex
	events []ruleset.Event
}

// start runs a node until the test ends.
func start(t testing.TB, url string, opts ...redissource.Option) *node {
	t.Helper()
	from, err := redissource.New(url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return startFrom(t, from)
}

func startFrom(t testing.TB, from ruleset.Source) *node {
	t.Helper()
	none, err := rules.Compile(&rules.File{Name: "none"})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t}
	if n.gate, err = gate.New(memstore.New(), none, gate.WithLocal(memstore.New())); err != nil {
		t.Fatal(err)
	}
	layers := []ruleset.Layer{{Name: "redis", Source: from, AllowEmpty: true}}
	if n.keeper, err = ruleset.NewManager(layers, n.gate.Swap, ruleset.WithEvents(n.tell), ruleset.WithStartWithin(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.keeper.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n *node) tell(e ruleset.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, e)
}

// told reports whether an event was told of which the text says this.
func (n *node) told(kind ruleset.EventKind, text string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.events, func(e ruleset.Event) bool { return e.Kind == kind && strings.Contains(e.String(), text) })
}

func (n *node) awaitEvent(kind ruleset.EventKind, text string) {
	n.t.Helper()
	redistest.Await(n.t, fmt.Sprintf("%v: %s", kind, text), func() bool { return n.told(kind, text) })
}

// login is a request from an address.
func login(address string) *rules.Request {
	return &rules.Request{Method: "POST", Path: "/login", Client: netip.MustParseAddr(address)}
}

// by is the limits that a request is decided by. It charges nothing.
func (n *node) by(r *rules.Request) string {
	n.t.Helper()
	var v gate.Verdict
	if err := n.gate.Decide(n.t.Context(), r, gate.Ask{}, &v); err != nil {
		n.t.Fatal(err)
	}
	var list []string
	for i := range v.Len() {
		list = append(list, v.At(i).Rule.Name()+" "+v.At(i).Claim.Limit.String())
	}
	return strings.Join(list, ", ")
}

func (n *node) await(want string) {
	n.t.Helper()
	redistest.Await(n.t, "decisions by "+strconv.Quote(want), func() bool { return n.by(login("192.0.2.1")) == want })
}

// stays fails if the decisions come to be by anything else before done.
func (n *node) stays(want string, done func() bool) {
	n.t.Helper()
	redistest.Await(n.t, "the end of what must change nothing", func() bool {
		if got := n.by(login("192.0.2.1")); got != want {
			n.t.Fatalf("decisions are by %q, not by %q", got, want)
		}
		return done()
	})
}

// cli is what an operator types.
func cli(t testing.TB, s *redistest.Server, args ...string) {
	t.Helper()
	host, port, _ := strings.Cut(s.Addr(), ":")
	out, err := exec.Command("redis-cli", append([]string{"-e", "-h", host, "-p", port}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("redis-cli %q: %v\n%s", args, err, out)
	}
}

// typed is a line of words for redis-cli.
func typed(t testing.TB, s *redistest.Server, line string) {
	t.Helper()
	cli(t, s, strings.Fields(line)...)
}

const addLogin = "HSET rate_limit_config:login limitType IP limitTarget * limitCount 5 timeWindow 60 strategy SLIDING_WINDOW enabled true"

// never is a refresh that does not come within a test, so that only messages tell.
var never = redissource.WithRefresh(24 * time.Hour)

// TestRedisCLIChangesRules: it adds, changes, disables and deletes one.
// TestLimitCountZeroCloses: as in the script of the articles and in Sentinel; messages have quotes, as Spring sends them.
func TestLimitCountZeroCloses(t *testing.T) {
	server := redistest.Start(t)
	n := start(t, server.URL(), never)
	redistest.Await(t, "a subscription", func() bool { return subscribers(server) == 1 })
	decide := func(want gate.Outcome) {
		t.Helper()
		var v gate.Verdict
		if err := n.gate.Decide(t.Context(), login("192.0.2.1"), gate.Once, &v); err != nil || v.Outcome != want {
			t.Errorf("%v %v, want %v", v.Outcome, err, want)
		}
	}
	typed(t, server, addLogin)
	server.Do("PUBLISH", "rate_limit_config", `"RELOAD_ALL"`)
	n.await("login sliding_log 5/1m")
	decide(gate.Passed)
	server.Do("HSET", "rate_limit_config:login", "limitCount", "0")
	server.Do("PUBLISH", "rate_limit_config", `"RELOAD_ALL"`)
	redistest.Await(t, "a closed rule", func() bool {
		var v gate.Verdict
		return n.gate.Decide(t.Context(), login("192.0.2.1"), gate.Once, &v) == nil && v.Outcome == gate.Denied
	})
	server.Do("PUBLISH", "rate_limit_config", `{"id":"login","limitType":"IP","limitTarget":"*","limitCount":["java.lang.Long",7],`+
		`"timeWindow":["java.lang.Long",60],"strategy":"SLIDING_WINDOW","enabled":true}`)
	n.await("login sliding_log 7/1m")
	decide(gate.Passed)
}

func TestRedisCLIChangesRules(t *testing.T) {
	server := redistest.Start(t)
	n := start(t, server.URL(), never)
	redistest.Await(t, "a subscription", func() bool { return subscribers(server) == 1 })
	typed(t, server, addLogin)
	typed(t, server, "PUBLISH rate_limit_config RELOAD_ALL")
	n.await("login sliding_log 5/1m")

	var v gate.Verdict
	for i := range 6 {
		if err := n.gate.Decide(t.Context(), login("192.0.2.1"), gate.Once, &v); err != nil || (v.Outcome == gate.Passed) != (i < 5) {
			t.Errorf("request %d: %v %v", i+1, v.Outcome, err)
		}
	}
	if err := n.gate.Decide(t.Context(), login("192.0.2.2"), gate.Once, &v); err != nil || v.Outcome != gate.Passed {
		t.Errorf("another address: %v %v", v.Outcome, err)
	}

	typed(t, server, "HSET rate_limit_config:login limitCount 7")
	typed(t, server, "PUBLISH rate_limit_config RELOAD_ALL")
	n.await("login sliding_log 7/1m")
	for i := range 3 { // what was used counts: 5 of 7
		if err := n.gate.Decide(t.Context(), login("192.0.2.1"), gate.Once, &v); err != nil || (v.Outcome == gate.Passed) != (i < 2) {
			t.Errorf("after the change, request %d: %v %v", i+1, v.Outcome, err)
		}
	}

	typed(t, server, "HSET rate_limit_config:login enabled false")
	typed(t, server, "PUBLISH rate_limit_config RELOAD_ALL")
	n.await("")
	typed(t, server, "HSET rate_limit_config:login enabled true")
	typed(t, server, "PUBLISH rate_limit_config RELOAD_ALL")
	n.await("login sliding_log 7/1m")

	typed(t, server, "HSET rate_limit_config:other limitType GLOBAL limitCount 100 timeWindow 1 strategy GCRA enabled 1")
	typed(t, server, "DEL rate_limit_config:login")
	typed(t, server, "PUBLISH rate_limit_config RELOAD_ALL")
	n.await("other 100/1s")
}

// TestOneRuleAsJSON without any hash: the message is applied as it comes.
func TestOneRuleAsJSON(t *testing.T) {
	server := redistest.Start(t)
	n := start(t, server.URL(), never)
	redistest.Await(t, "a subscription", func() bool { return subscribers(server) == 1 })
	for _, step := range []struct{ message, want string }{
		{`{"id":"login","ruleName":"Login","limitType":"IP","limitTarget":"*","limitCount":5,"timeWindow":60,"enabled":true,"strategy":"SLIDING_WINDOW"}`, "login sliding_log 5/1m"},
		{`{"id":"login","limitType":"IP","limitTarget":"*","limitCount":"9","timeWindow":"60","enabled":"1","strategy":"SLIDING_WINDOW"}`, "login sliding_log 9/1m"},
		{`{"id":"login","enabled":false}`, ""},
		{`{"id":"login","enabled":true}`, "login sliding_log 9/1m"},
		{`{"id":"login","deleted":true}`, ""},
	} {
		cli(t, server, "PUBLISH", "rate_limit_config", step.message)
		n.await(step.want)
	}
	cli(t, server, "PUBLISH", "rate_limit_config", "reload_all")
	n.awaitEvent(ruleset.Warned, `message "reload_all": allowed: RELOAD_ALL, or one rule`)
}

func TestALostMessage(t *testing.T) {
	server := redistest.Start(t)
	n := start(t, server.URL(), redissource.WithRefresh(100*time.Millisecond))
	typed(t, server, addLogin)
	n.await("login sliding_log 5/1m")
	typed(t, server, "HSET rate_limit_config:login limitCount 6")
	n.await("login sliding_log 6/1m")
}

// TestRedisBehindTLS is one that only whoever has a certificate may ask, and whose own is of
// an authority of the house.
func TestRedisBehindTLS(t *testing.T) {
	server := redistest.StartTLS(t)
	n := start(t, server.URL(), never, redissource.WithTLS(server.Config()))
	server.Do("HSET", "rate_limit_config:login", "limitType", "INTERFACE", "limitTarget", "/login", "limitCount", "5",
		"timeWindow", "60", "strategy", "SLIDING_WINDOW", "enabled", "true")
	server.Do("PUBLISH", "rate_limit_config", "RELOAD_ALL")
	n.await("login sliding_log 5/1m")
}

func TestAMistakeIsReportedAndChangesNothing(t *testing.T) {
	server := redistest.Start(t)
	typed(t, server, addLogin)
	n := start(t, server.URL(), never)
	n.await("login sliding_log 5/1m")
	typed(t, server, "HSET rate_limit_config:login timeWindow 60s limitCount 3")
	typed(t, server, "HSET rate_limit_config:each limitType USER limitTarget * limitCount 1 timeWindow 1 strategy GCRA enabled 1")
	typed(t, server, "SET rate_limit_config:text x")
	cli(t, server, "HSET", "rate_limit_config:large", "limitType", strings.Repeat("x", 100_000))
	typed(t, server, "PUBLISH rate_limit_config RELOAD_ALL")
	redistest.Await(t, "the good rule beside the bad", func() bool { return len(n.gate.Rules().Rules()) == 2 })
	n.await("login sliding_log 5/1m")
	n.awaitEvent(ruleset.Warned, `rate_limit_config:login: timeWindow is "60s"; allowed: whole seconds from 1 to 4503599627, in digits alone, such as 60 for a minute; the last good version of this rule stays in force`)
	n.awaitEvent(ruleset.Warned, `rate_limit_config:text: is no hash; allowed: a hash with the fields of a rule; this rule is not in force`)
	n.awaitEvent(ruleset.Warned, `rate_limit_config:large: takes 1`)
}

// TestTheBestMatchWins: of each type one rule applies, of all types together several.
func TestTheBestMatchWins(t *testing.T) {
	server := redistest.Start(t)
	for name, text := range map[string]string{
		"all":           "limitType GLOBAL limitTarget *",
		"service":       "limitType SERVICE limitTarget *",
		"orders":        "limitType SERVICE limitTarget orders",
		"interface":     "limitType INTERFACE limitTarget *",
		"api":           "limitType INTERFACE limitTarget /api/**",
		"api-v1":        "limitType INTERFACE limitTarget /api/v1/*",
		"orders-api-v1": "limitType INTERFACE limitTarget orders:/api/v1/*",
		"ip":            "limitType IP limitTarget *",
		"net":           "limitType IP limitTarget 10.0.0.0/8",
		"one":           "limitType IP limitTarget 10.0.0.7",
		"user":          "limitType USER limitTarget *",
		"ann":           "limitType USER limitTarget ann",
	} {
		typed(t, server, "HSET rate_limit_config:"+name+" "+text+" limitCount 5 timeWindow 1 strategy TOKEN_BUCKET enabled 1")
	}
	n := start(t, server.URL())
	redistest.Await(t, "the rules", func() bool { return len(n.gate.Rules().Rules()) == 12 })
	for _, test := range []struct {
		request rules.Request
		want    string
	}{
		{rules.Request{}, "all interface"},
		{rules.Request{Service: "orders", Path: "/api/v1/x", User: "ann", Client: netip.MustParseAddr("10.0.0.7")}, "all ann one orders orders-api-v1"},
		{rules.Request{Service: "carts", Path: "/api/v1/x", User: "bob", Client: netip.MustParseAddr("10.0.0.8")}, "all api-v1 net service user"},
		{rules.Request{Service: "orders", Path: "/api/v2/x", Client: netip.MustParseAddr("192.0.2.1")}, "all api ip orders"},
		{rules.Request{Path: "/"}, "all interface"},
	} {
		var got []string
		for _, limit := range strings.Split(n.by(&test.request), ", ") {
			got = append(got, strings.Fields(limit)[0])
		}
		if got := strings.Join(got, " "); got != test.want {
			t.Errorf("%+v: got %s, want %s", test.request, got, test.want)
		}
	}
}

// TestRedisFreezes: its connections stay open, and nothing comes.
func TestRedisFreezes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	typed(t, server, addLogin)
	n := start(t, server.URL(), never)
	n.await("login sliding_log 5/1m")
	server.Stop()
	n.stays("login sliding_log 5/1m", func() bool { return n.told(ruleset.Down, "the last rules stay in force") })
	server.Cont()
	n.awaitEvent(ruleset.Recovered, "")
	typed(t, server, "HSET rate_limit_config:login limitCount 6")
	typed(t, server, "PUBLISH rate_limit_config RELOAD_ALL")
	n.await("login sliding_log 6/1m")
}

func TestAFailover(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	master, replica := sentinel.Servers[0], sentinel.Servers[1]
	typed(t, master, addLogin)
	redistest.Await(t, "the replica to know the rule", func() bool { return replica.Do("EXISTS", "rate_limit_config:login") == int64(1) })
	n := start(t, sentinel.URL(), never)
	n.await("login sliding_log 5/1m")
	master.Kill()
	n.stays("login sliding_log 5/1m", func() bool { return sentinel.Master() == replica && subscribers(replica) == 1 })
	typed(t, replica, "HSET rate_limit_config:login limitCount 6")
	typed(t, replica, "PUBLISH rate_limit_config RELOAD_ALL")
	n.await("login sliding_log 6/1m")
}

// TestAReconnectionReadsAllHashes: a hash changes without an announcement, and the connection ends.
func TestAReconnectionReadsAllHashes(t *testing.T) {
	server := redistest.Start(t)
	typed(t, server, addLogin)
	n := start(t, server.URL(), never)
	n.await("login sliding_log 5/1m")
	typed(t, server, "HSET rate_limit_config:login limitCount 6")
	typed(t, server, "CLIENT KILL TYPE pubsub")
	n.await("login sliding_log 6/1m")
	redistest.Await(t, "a subscription", func() bool { return subscribers(server) == 1 })
	typed(t, server, "HSET rate_limit_config:login limitCount 7")
	typed(t, server, "PUBLISH rate_limit_config RELOAD_ALL")
	n.await("login sliding_log 7/1m")
}

func TestAnEmptyRedisIsNotAccepted(t *testing.T) {
	server := redistest.Start(t)
	typed(t, server, addLogin)
	doubting, trusting := start(t, server.URL(), never), start(t, server.URL(), never, redissource.WithAllowEmpty())
	doubting.await("login sliding_log 5/1m")
	trusting.await("login sliding_log 5/1m")
	typed(t, server, "DEL rate_limit_config:login")
	typed(t, server, "PUBLISH rate_limit_config RELOAD_ALL")
	trusting.await("")
	doubting.awaitEvent(ruleset.Refused, `it has no rules any more; to delete them, send for each: {"id":…,"deleted":true}; the last rules stay in force`)
	doubting.await("login sliding_log 5/1m")
	cli(t, server, "PUBLISH", "rate_limit_config", `{"id":"login","deleted":true}`) // this is one rule by name
	doubting.await("")
}

func TestTooManyRulesAreRefused(t *testing.T) {
	server := redistest.Start(t)
	typed(t, server, addLogin)
	n := start(t, server.URL(), never, redissource.WithMaxRules(2))
	n.await("login sliding_log 5/1m")
	for i := range 3 {
		typed(t, server, strings.Replace(addLogin, "login", fmt.Sprint("a", i), 1))
	}
	typed(t, server, "PUBLISH rate_limit_config RELOAD_ALL")
	n.awaitEvent(ruleset.Refused, "there are over 2 keys rate_limit_config:*; delete some, or allow more")
	n.await("login sliding_log 5/1m")
	typed(t, server, "DEL rate_limit_config:a0 rate_limit_config:a1 rate_limit_config:a2")
	typed(t, server, "PUBLISH rate_limit_config RELOAD_ALL")
	n.awaitEvent(ruleset.Recovered, "")
}

// TestAMessageIsNotTheFirstSet: where what there is cannot be believed, one rule that somebody
// sends is not all of it, and whoever waits for the first rules goes on waiting.
func TestAMessageIsNotTheFirstSet(t *testing.T) {
	server := redistest.Start(t)
	for i := range 3 {
		typed(t, server, strings.Replace(addLogin, "login", fmt.Sprint("a", i), 1))
	}
	n := start(t, server.URL(), never, redissource.WithMaxRules(2))
	n.awaitEvent(ruleset.Refused, "there are over 2 keys")
	cli(t, server, "PUBLISH", "rate_limit_config", `{"id":"a0","limitType":"IP","limitTarget":"*","limitCount":9,"timeWindow":60,"strategy":"GCRA","enabled":true}`)
	typed(t, server, "DEL rate_limit_config:a2")
	typed(t, server, "PUBLISH rate_limit_config RELOAD_ALL")
	n.awaitEvent(ruleset.Recovered, "")
	if n.told(ruleset.InForce, "1 rules") || !n.told(ruleset.InForce, "2 rules") {
		t.Errorf("in force was what the message said alone: %v", n.events)
	}
}

// TestAStormIsCoalesced: however many messages ask for all hashes, they are read at most
// once in ten milliseconds, and after the last message.
func TestAStormIsCoalesced(t *testing.T) {
	server := redistest.Start(t)
	typed(t, server, addLogin)
	n := start(t, server.URL(), never)
	n.await("login sliding_log 5/1m")
	began := time.Now()
	for i := range 2000 {
		server.Do("HSET", "rate_limit_config:login", "limitCount", strconv.Itoa(i+10))
		server.Do("PUBLISH", "rate_limit_config", "RELOAD_ALL")
	}
	n.await("login sliding_log 2009/1m")
	most := int(time.Since(began)/(10*time.Millisecond)) + 3
	if calls := scans(server); calls > most {
		t.Errorf("%d readings; at most %d", calls, most)
	}
	for i := range 2000 { // messages that are rules are many more than fit into the queue
		server.Do("PUBLISH", "rate_limit_config", fmt.Sprintf(`{"id":"x","limitType":"GLOBAL","limitCount":%d,"timeWindow":1,"strategy":"GCRA","enabled":true}`, i+1))
	}
	redistest.Await(t, "the last message, or a reading that has undone it", func() bool {
		got := n.by(login("192.0.2.1"))
		return strings.HasSuffix(got, "x 2000/1s") || !strings.Contains(got, "x ")
	})
}

func TestInvalidMessagesAreReportedRarely(t *testing.T) {
	server := redistest.Start(t)
	n := start(t, server.URL(), never)
	redistest.Await(t, "a subscription", func() bool { return subscribers(server) == 1 })
	began := time.Now()
	for i := range 500 {
		server.Do("PUBLISH", "rate_limit_config", fmt.Sprint("nonsense ", i))
	}
	typed(t, server, addLogin)
	typed(t, server, "PUBLISH rate_limit_config RELOAD_ALL")
	n.awaitEvent(ruleset.Warned, "and ")
	n.await("login sliding_log 5/1m")
	most := int(time.Since(began)/time.Second) + 3
	n.mu.Lock()
	defer n.mu.Unlock()
	warned := 0
	for _, e := range n.events {
		if e.Kind == ruleset.Warned {
			warned++
		}
	}
	if warned > most {
		t.Errorf("told of nonsense %d times; at most %d", warned, most)
	}
}

// scans is how often a server was asked for its keys.
func scans(s *redistest.Server) (n int) {
	for field := range strings.SplitSeq(s.Info("commandstats")["cmdstat_scan"], ",") {
		if calls, ok := strings.CutPrefix(field, "calls="); ok {
			n, _ = strconv.Atoi(calls)
		}
	}
	return n
}

// subscribers is how many listen for changes.
func subscribers(s *redistest.Server) int64 {
	return s.Do("PUBSUB", "NUMSUB", "rate_limit_config").([]any)[1].(int64)
}

func TestClusterIsReadFromItsMasters(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	const many = 30
	add := func(i int, count string) {
		key := fmt.Sprint("rate_limit_config:r", i)
		slot := int(cluster.Nodes[0].Do("CLUSTER", "KEYSLOT", key).(int64))
		cluster.Owner(slot).Do("HSET", key, "limitType", "USER", "limitTarget", fmt.Sprint("u", i), "limitCount", count,
			"timeWindow", "1", "strategy", "GCRA", "enabled", "1")
	}
	for i := range many {
		add(i, "5")
	}
	setUser, url := user(t, "weir", cluster.URL())
	for _, server := range cluster.Nodes {
		server.Do(setUser...)
	}
	n := start(t, url, never)
	redistest.Await(t, "the rules of all masters", func() bool { return len(n.gate.Rules().Rules()) == many })
	for i := range many {
		add(i, "6")
	}
	cluster.Nodes[1].Do("PUBLISH", "rate_limit_config", "RELOAD_ALL")
	redistest.Await(t, "the changes of all masters", func() bool {
		for i := range many {
			if n.by(&rules.Request{User: fmt.Sprint("u", i)}) != fmt.Sprintf("r%d 6/1s", i) {
				return false
			}
		}
		return true
	})
	for i, server := range cluster.Nodes {
		if asked := scans(server) > 0; asked != (i < 3) {
			t.Errorf("node %d: asked is %v", i, asked)
		}
	}
	slot := int(cluster.Nodes[0].Do("CLUSTER", "KEYSLOT", "rate_limit_config:r0").(int64))
	cluster.MoveSlot(slot, cluster.Owner((slot+5461)%16384))
	cluster.Nodes[2].Do("PUBLISH", "rate_limit_config", "RELOAD_ALL")
	cluster.Nodes[2].Do("PUBLISH", "rate_limit_config", `{"id":"r1","deleted":true}`)
	redistest.Await(t, "the message", func() bool { return n.by(&rules.Request{User: "u1"}) == "" })
	if n.by(&rules.Request{User: "u0"}) == "" {
		t.Error("a rule that moved to another master is gone")
	}
	clusterLedger(t, cluster)
	cluster.Nodes[0].Kill()
	cluster.Nodes[1].Do("PUBLISH", "rate_limit_config", "RELOAD_ALL") // if the subscription was not with the dead node
	n.awaitEvent(ruleset.Down, "")
	if got := len(n.gate.Rules().Rules()); got < many-1 {
		t.Errorf("%d rules are left while a master is gone", got)
	}
	n.awaitEvent(ruleset.Recovered, "") // its replica has taken over
}

// TestClusterWithoutAMasterKeepsItsRules lets the others go on: then the rules of the one that is gone
// would look deleted, or as if they had never been.
func TestClusterWithoutAMasterKeepsItsRules(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	for i, server := range cluster.Nodes {
		server.Do("CONFIG", "SET", "cluster-require-full-coverage", "no")
		key := "rate_limit_config:"
		for n := 0; cluster.Owner(int(server.Do("CLUSTER", "KEYSLOT", key).(int64))) != server; n++ {
			key = fmt.Sprint("rate_limit_config:r", i, "-", n)
		}
		server.Do("HSET", key, "limitType", "GLOBAL", "limitCount", "5", "timeWindow", "1", "strategy", "GCRA", "enabled", "1")
	}
	cluster.Nodes[0].Kill()
	from, err := redissource.New(cluster.URL(), never)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	redistest.Await(t, "a word on the master", func() bool {
		n := from.Load(t.Context(), false)
		if n.Err == nil {
			t.Fatalf("told of %d rules, which are not all", len(n.File.Rules))
		}
		return strings.Contains(n.Err.Error(), "1 of the Cluster's masters do not answer")
	})
}

// user is one that docs/howto/redis-rules.md shows, with what it may do, and how it is opened.
func user(t testing.TB, name, url string) (setUser []string, asUser string) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/howto/redis-rules.md")
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(page), "\nuser "+name+" ")
	line, _, _ = strings.Cut(line, "\n")
	words := append([]string{name}, strings.Fields(strings.Replace(line, "PASSWORD", "secret", 1))...)
	return append([]string{"ACL", "SETUSER"}, words...), strings.Replace(url, "://", "://"+words[0]+":secret@", 1)
}

// TestPermissionsToReadHashes grants what docs/howto/redis-rules.md says, and nothing else.
func TestPermissionsToReadHashes(t *testing.T) {
	server := redistest.Start(t)
	setUser, url := user(t, "weir", server.URL())
	server.Do(setUser...)
	typed(t, server, addLogin)
	n := start(t, url, never)
	n.await("login sliding_log 5/1m")
	typed(t, server, "HSET rate_limit_config:login limitCount 6")
	typed(t, server, "PUBLISH rate_limit_config RELOAD_ALL")
	n.await("login sliding_log 6/1m")
	server.Do(append(setUser, "-hgetall")...)
	typed(t, server, "PUBLISH rate_limit_config RELOAD_ALL")
	n.awaitEvent(ruleset.Down, "NOPERM")
	n.await("login sliding_log 6/1m")
}

func TestReload(t *testing.T) {
	server := redistest.Start(t)
	typed(t, server, addLogin)
	n := start(t, server.URL(), never)
	n.await("login sliding_log 5/1m")
	typed(t, server, "HSET rate_limit_config:login limitCount 8")
	if err := n.keeper.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := n.by(login("192.0.2.1")); got != "login sliding_log 8/1m" {
		t.Errorf("after Reload decisions are by %q", got)
	}
	if err := n.keeper.Reload(t.Context()); err != nil { // nothing has changed
		t.Fatal(err)
	}
	typed(t, server, "FLUSHALL")
	if err := n.keeper.Reload(t.Context()); !errors.Is(err, ruleset.ErrEmpty) {
		t.Errorf("got %v", err)
	}
	server.Kill()
	if err := n.keeper.Reload(t.Context()); err == nil {
		t.Error("no error without Redis")
	}
}

func TestRunLeavesNoGoroutine(t *testing.T) {
	server := redistest.Start(t)
	from, err := redissource.New(server.URL(), redissource.WithRefresh(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	updates := make(chan ruleset.Update, 10)
	follower := ruleset.Follow(from, func(n ruleset.Update, _ func(error)) { updates <- n })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan bool)
	go func() { follower.Run(ctx); close(ended) }()
	if first := <-updates; first.Err != nil || first.File == nil || len(first.File.Rules) > 0 || first.Revision == "" {
		t.Errorf("the first update is %+v", first)
	}
	redistest.Await(t, "more readings", func() bool { return scans(server) > 3 })
	cancel()
	<-ended
	redistest.Await(t, "all connections to end", func() bool { return server.Info("clients")["connected_clients"] == "1" })
}

func TestBadOptions(t *testing.T) {
	for want, opt := range map[string]redissource.Option{
		"prefix is":  redissource.WithPrefix(""),
		"channel is": redissource.WithChannel(""),
		"refresh is": redissource.WithRefresh(time.Millisecond),
	} {
		var input *weir.InputError
		if _, err := redissource.New("redis://127.0.0.1:1", opt); !errors.As(err, &input) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	from, err := redissource.New("http://example.com")
	if err != nil {
		t.Fatal(err)
	}
	var input *weir.InputError
	if n := from.Load(t.Context(), false); !errors.As(n.Err, &input) {
		t.Errorf("a URL that cannot be used: %v", n.Err)
	}
}

func TestOtherNames(t *testing.T) {
	server := redistest.Start(t)
	n := start(t, server.URL(), never, redissource.WithPrefix("my[*]:"), redissource.WithChannel("mine"))
	redistest.Await(t, "a subscription", func() bool { return server.Do("PUBSUB", "NUMSUB", "mine").([]any)[1] == int64(1) })
	typed(t, server, strings.Replace(addLogin, "rate_limit_config", "my[*]", 1))
	typed(t, server, strings.Replace(addLogin, "rate_limit_config:login", "my*:other", 1))
	typed(t, server, "PUBLISH mine RELOAD_ALL")
	n.await("login sliding_log 5/1m")
}

var fence = regexp.MustCompile("(?s)```(redis|text)\n(.*?)```")

// TestPagesShowRealSessions types the commands that the pages show, and expects the rules that they say are in force.
func TestPagesShowRealSessions(t *testing.T) {
	for page, least := range map[string]int{"howto/redis-rules.md": 4, "start/articles.md": 1, "zh/articles.md": 1, "zh/redis-rules.md": 4} {
		t.Run(page, func(t *testing.T) {
			text, err := os.ReadFile("../../../docs/" + page)
			if err != nil {
				t.Fatal(err)
			}
			if shown := session(t, string(text)); shown < least {
				t.Errorf("only %d blocks say what is in force", shown)
			}
		})
	}
}

// session runs the blocks of one page on a Redis of its own, and counts those that say what is in force.
func session(t *testing.T, page string) (shown int) {
	server := redistest.Start(t)
	n := start(t, server.URL(), never)
	redistest.Await(t, "a subscription", func() bool { return subscribers(server) == 1 })
	for _, block := range fence.FindAllStringSubmatch(page, -1) {
		switch lines := strings.TrimSpace(block[2]); {
		case block[1] == "redis":
			host, port, _ := strings.Cut(server.Addr(), ":")
			command := exec.Command("redis-cli", "-e", "-h", host, "-p", port)
			command.Stdin = strings.NewReader(lines + "\n")
			if out, err := command.CombinedOutput(); err != nil || strings.Contains(string(out), "ERR") {
				t.Fatalf("%v\n%s", err, out)
			}
		case !strings.HasPrefix(lines, "user "):
			n.await(strings.ReplaceAll(lines, "\n", ", "))
			shown++
		}
	}
	return shown
}

// TestAHostileServerChangesNoRule: at the address of Redis is a server that answers what no Redis answers. Replies that
// would be larger than memory are refused, the last rules stay in force, and new ones are read when Redis is back.
func TestAHostileServerChangesNoRule(t *testing.T) {
	for name, reply := range map[string]string{"an array of 2^31 - 1": "*2147483647\r\n", "a text of 2^63 - 1": "$9223372036854775807\r\n",
		"silence": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			typed(t, redis, addLogin)
			n := start(t, redis.URL())
			n.await("login sliding_log 5/1m")
			redis.Kill()
			hostile := redistest.StartHostile(t, redis.Addr(), redistest.Greeting, func(w io.Writer) error {
				_, err := io.WriteString(w, reply)
				return err
			})
			n.stays("login sliding_log 5/1m", func() bool { return hostile.Answered("SUBSCRIBE") })
			hostile.Stop()
			redis.Restart()
			typed(t, redis, addLogin)
			typed(t, redis, "HSET rate_limit_config:login limitCount 6")
			n.await("login sliding_log 6/1m")
		})
	}
}
