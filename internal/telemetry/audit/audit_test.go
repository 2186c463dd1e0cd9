package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/internal/rotated"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

var quiet = slog.New(slog.DiscardHandler)

// open makes a gate in memory by the text of a rule file.
func open(t testing.TB, text string, observers ...func(*gate.Verdict)) *gate.Gate {
	t.Helper()
	store := memstore.New()
	t.Cleanup(func() { store.Close() })
	var opts []gate.Option
	for _, observe := range observers {
		opts = append(opts, gate.WithObserver(observe))
	}
	return gatetest.New(t, store, text, opts...)
}

type headers map[string]string

func (h headers) Header(name string) string { return h[name] }
func (headers) Query(string) string         { return "" }
func (headers) Cookie(string) string        { return "" }
func (headers) Descriptor(string) string    { return "" }

func from(client, id string) *rules.Request {
	return &rules.Request{Method: "POST", Path: "/" + id, Client: netip.MustParseAddr(client), Attributes: headers{"X-Request-Id": id}}
}

// A memory is a sink that keeps what it is given, in writes of at most batch. It fails the writes that fail names.
type memory struct {
	batch int
	mu    sync.Mutex
	list  []Record
	calls int
	fail  func(call int) bool
}

// named are the texts of an entry with a key.
var named = &[texts]string{ofKey: "k"}

func (*memory) Name() string { return "memory" }
func (m *memory) Batch() int { return m.batch }
func (*memory) Close()       {}

func (m *memory) Write(_ context.Context, list []Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if m.fail != nil && m.fail(m.calls) {
		return errors.New("the disk is full")
	}
	m.list = append(m.list, list...)
	return nil
}

func TestWhatDidNotPassIsRecorded(t *testing.T) {
	sink := &memory{batch: 100}
	log := New(Config{Node: "n1", Keys: Shown, Sinks: []Sink{sink}, Log: quiet})
	g := open(t, `
deny: {client.ip: [192.0.2.66]}
rules:
  - {name: login, key: [client.ip], limit: fixed_window 1/1h, ban: {after: 2 refusals within 1h, for: 10m}}
`, log.Verdict)
	decide := func(client, id string, ask gate.Ask) {
		t.Helper()
		var v gate.Verdict
		if err := g.Decide(t.Context(), from(client, id), ask, &v); err != nil {
			t.Fatal(err)
		}
	}
	decide("192.0.2.1", "a", gate.Once) // passes
	decide("192.0.2.1", "b", gate.Once)
	decide("192.0.2.1", "peek", gate.Ask{})
	decide("192.0.2.1", "c", gate.Once) // bans
	decide("192.0.2.1", "d", gate.Once) // banned
	decide("192.0.2.66", "e", gate.Once)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var v gate.Verdict
	g.Decide(ended, from("192.0.2.9", "f"), gate.Once, &v) // in memory it passes
	log.Mark(telemetry.Mark{At: time.Now(), Kind: "override", Rule: "login", Actor: "ann", Text: "500/1m for 2h", Reason: "load test", Key: "192.0.2.7"})
	log.Close()
	var got []string
	for _, r := range sink.list {
		if r.Node != "n1" || r.At.IsZero() {
			t.Errorf("record without node or time: %+v", r)
		}
		if r.Wait > 0 {
			r.Wait = r.Wait.Truncate(time.Minute) + time.Minute // it ends with the window
		}
		got = append(got, strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s %s %s %s %s %v %s %s", r.Outcome, r.Reason, r.Rule, r.Key, r.RequestID, r.Method, r.Path, r.Client,
			r.Wait > 0, r.Actor, r.Text)), " "))
	}
	want := `refused limit_exceeded login client.ip=9:192.0.2.1 b POST /b 192.0.2.1 true
ban login client.ip=9:192.0.2.1 c POST /c 192.0.2.1 true
refused limit_exceeded login client.ip=9:192.0.2.1 c POST /c 192.0.2.1 true
refused banned login client.ip=9:192.0.2.1 d POST /d 192.0.2.1 true
denied deny_list client.ip=10:192.0.2.66 e POST /e 192.0.2.66 false
override login 192.0.2.7 false ann 500/1m for 2h: load test`
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("recorded:\n%s\nwant:\n%s", text, want)
	}
}

// TestRefusalsAreWrittenOrCounted decides a million requests: for each sink, the records in it and those that were lost
// are the refusals, exactly.
func TestRefusalsAreWrittenOrCounted(t *testing.T) {
	server := redistest.Start(t)
	name := filepath.Join(t.TempDir(), "audit.log")
	file, err := NewFileSink(name, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	failing := &memory{batch: 64, fail: func(call int) bool { return call%100 == 0 }}
	stream := NewStreamSink(server.URL(), "audit", 10_000_000)
	log := New(Config{Node: "n1", Keys: Shown, Sinks: []Sink{file, stream, failing}, Log: quiet})
	var refused atomic.Int64
	g := open(t, `rules: [{name: ip, key: [client.ip], limit: fixed_window 1/1h}]`, log.Verdict, func(v *gate.Verdict) {
		if v.Outcome == gate.Refused {
			refused.Add(1)
		}
	})
	workers, each := 4, 200_000
	if testing.Short() {
		each = 10_000
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			var v gate.Verdict
			r := from("192.0.2.1", "id")
			for i := range each {
				r.Client = netip.AddrFrom4([4]byte{10, byte(w), byte(i >> 8 & 15), byte(i)}) // again and again
				if err := g.Decide(t.Context(), r, gate.Once, &v); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	log.Close()
	lines := int64(0)
	for _, name := range rotated.Names(name) {
		if reader, err := OpenFile(name); err == nil {
			list, _ := reader.Last(t.Context(), &Filter{Outcome: "refused"}, 1<<30)
			lines += int64(len(list))
			reader.Close()
		}
	}
	there := map[string]int64{
		"file":   lines,
		"redis":  server.Do("XLEN", "audit").(int64),
		"memory": int64(len(failing.list)),
	}
	for _, c := range log.Counts() {
		t.Logf("%s: %d written, %d lost of %d", c.Sink, c.Written, c.Lost, refused.Load())
		if c.Written+c.Lost != refused.Load() || c.Written != there[c.Sink] || c.Written == 0 {
			t.Errorf("%s: %+v, and %d are there; want the sum %d", c.Sink, c, there[c.Sink], refused.Load())
		}
	}
}

func TestFullQueueCountsLosses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &memory{batch: 1000}
		var out bytes.Buffer
		log := New(Config{Keys: Shown, Sinks: []Sink{sink}, Log: slog.New(slog.NewTextHandler(&out, nil))})
		rules := open(t, `rules: [{name: ip, limit: fixed_window 1/1h}]`).Rules().Rules()
		const n = 3 * maxQueued // before the next tick
		for range n {
			log.add(&entry{at: time.Now(), rule: rules[0], outcome: uint8(gate.Refused)}, named)
		}
		time.Sleep(11 * time.Second)
		c := log.Counts()[0]
		if c.Written+c.Lost != n || c.Lost < n-maxQueued || c.Written < maxQueued/2 {
			t.Errorf("%+v of %d", c, n)
		}
		if want := fmt.Sprintf("lost=%d", c.Lost); !strings.Contains(out.String(), want) {
			t.Errorf("logged %q, want %s", out.String(), want)
		}
		log.Close()
	})
}

func TestAnOutageLosesNoMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		sink := &memory{batch: 64, fail: func(int) bool { return down.Load() }}
		log := New(Config{Keys: Shown, Sinks: []Sink{sink}, Log: quiet})
		refused := 0
		for range 10 * maxBacklog / 1000 { // more than the backlog
			for range 1000 {
				log.add(&entry{at: time.Now(), outcome: uint8(gate.Refused), reason: uint8(gate.LimitExceeded)}, named)
				refused++
			}
			time.Sleep(every)
		}
		log.Mark(telemetry.Mark{At: time.Now(), Kind: "degraded", Text: "the store does not respond"})
		time.Sleep(time.Minute)
		down.Store(false)
		time.Sleep(time.Minute)
		log.Close()
		c := log.Counts()[0]
		if last := sink.list[len(sink.list)-1]; last.Outcome != "degraded" {
			t.Errorf("the last record is %+v", last)
		}
		if c.Written != int64(len(sink.list)) || c.Written+c.Lost != int64(refused)+1 || c.Written != maxBacklog-forMarks+1 {
			t.Errorf("%+v of %d refusals and a mark; %d are there", c, refused, len(sink.list))
		}
		if sink.calls > 100+maxBacklog/64 {
			t.Errorf("%d attempts in a minute", sink.calls)
		}
	})
}

func TestCloseDoesNotWaitForABrokenSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &memory{batch: 64, fail: func(int) bool { return true }}
		log := New(Config{Keys: Shown, Sinks: []Sink{sink}, Log: quiet})
		log.add(&entry{at: time.Now()}, named)
		began := time.Now()
		log.Close()
		if c := log.Counts()[0]; c.Lost != 1 || time.Since(began) > closeWithin {
			t.Errorf("%+v after %v", c, time.Since(began))
		}
	})
}

func TestRedact(t *testing.T) {
	if got := Shown.Redact("user=1:\xff", nil); got != "user=1:\uFFFD" {
		t.Errorf("shown: %q", got)
	}
	for keys, want := range map[Keys]string{Shown: "POST /é\uFFFD 192.0.2.1", Hidden: "POST", Hashed: "POST hashed: hashed:"} {
		log := &Log{Config: Config{Keys: keys, Secret: []byte("secret")}}
		r := log.record(&entry{client: netip.MustParseAddr("192.0.2.1")}, &[texts]string{ofMethod: "POST", ofPath: "/é\xff"})
		got := regexp.MustCompile("[0-9a-f]{16}").ReplaceAllString(strings.TrimSpace(r.Method+" "+r.Path+" "+r.Client), "")
		if got != want {
			t.Errorf("%s: %q, want %q", keys, got, want)
		}
	}
	if got := Hidden.Redact("user=3:ann", nil); got != "" {
		t.Errorf("hidden: %q", got)
	}
	a, b := Hashed.Redact("user=3:ann", []byte("secret")), Hashed.Redact("user=3:ann", []byte("other"))
	if a == b || a != Hashed.Redact("user=3:ann", []byte("secret")) || strings.Contains(a, "ann") {
		t.Errorf("hashed: %q and %q", a, b)
	}
}

func TestFilter(t *testing.T) {
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	r := Record{At: at, Node: "n1", Outcome: "refused", Rule: "login", Key: "user=3:ann client.ip=9:192.0.2.1", RequestID: "q",
		Method: "POST", Path: "/login/2", Client: "192.0.2.9"}
	for _, c := range []struct {
		f    Filter
		want bool
	}{
		{Filter{}, true},
		{Filter{Node: "n1", Outcome: "refused", Rule: "login", RequestID: "q", Key: "192.0.2.1", Since: at}, true},
		{Filter{Key: r.Key}, true},
		{Filter{Key: "192.0.2.9", Method: "POST", Path: "/login/*"}, true},
		{Filter{Key: "gone", Digest: "192.0.2.9"}, true},
		{Filter{Path: "/login/2"}, true},
		{Filter{Path: "/login"}, false},
		{Filter{Path: "/login/1*"}, false},
		{Filter{Method: "GET"}, false},
		{Filter{Key: "ann"}, true},
		{Filter{Key: "an"}, false},
		{Filter{Key: "192.0.2.10"}, false},
		{Filter{Node: "n2"}, false},
		{Filter{Outcome: "denied"}, false},
		{Filter{Rule: "ip"}, false},
		{Filter{RequestID: "p"}, false},
		{Filter{Since: at.Add(1)}, false},
		{Filter{Until: at}, false},
		{Filter{Until: at.Add(1)}, true},
	} {
		if got := c.f.Matches(&r); got != c.want {
			t.Errorf("%+v selects the record: %v", c.f, got)
		}
	}
	r.Key = "service=4:edge entry.1=3:a=7"
	if value := (Filter{Key: "7"}); !value.Matches(&r) {
		t.Error("a key with entries is not found by a value")
	}
	r.Key = "service=4:edge descriptor.a=1:1"
	if shown := (Filter{Key: "edge: a=1"}); !shown.Matches(&r) {
		t.Error("a key with descriptors is not found as it is shown")
	}
}

func TestNeverIsMinusOne(t *testing.T) {
	log := &Log{Config: Config{Keys: Shown}}
	if r := log.record(&entry{wait: weir.Never}, named); r.Wait != -1 {
		t.Errorf("wait %v", r.Wait)
	}
}
