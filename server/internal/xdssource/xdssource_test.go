package xdssource

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/ratelimitconf"
	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/rulesettest"
	"github.com/weirproject/weir/rules"
)

func do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// config is a source without TLS, whose rules are the first limit of each domain.
func config() Config {
	return Config{Server: "control-plane:18001", Node: nodeID, Backoff: time.Second, MaxBackoff: time.Minute,
		MaxMessage: 1 << 20, Convert: plain, Log: slog.New(slog.DiscardHandler)}
}

func plain(configs []*ratelimitconf.Config) (*rules.File, error) {
	file := new(rules.File)
	for _, c := range configs {
		if c.Domain == "" {
			return nil, errors.New("domain is missing")
		}
		file.Rules = append(file.Rules, rules.Spec{Name: c.Domain,
			Limit: []string{fmt.Sprintf("%d/1s", c.Descriptors[0].Limit.RequestsPerUnit)}})
	}
	return file, nil
}

var errAway = errors.New("connection refused")

// A rig is a followed source in a bubble of package synctest, and its control plane.
type rig struct {
	*rulesettest.Followed
	t      *testing.T
	source *Source
	*plane             // nil: it is away
	silent atomic.Bool // no byte of the control plane arrives

	mu       sync.Mutex // guards what follows
	listener *bufconn.Listener
	dials    []time.Time                 // of connections
	hang     func(context.Context) error // instead of a connection
}

func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	c := config()
	if change != nil {
		change(&c)
	}
	s, err := New(c)
	do(t, err)
	r := &rig{t: t, source: s}
	s.dialer.connect = func(ctx context.Context, _ string) (net.Conn, error) {
		r.mu.Lock()
		r.dials = append(r.dials, time.Now())
		listener, hang := r.listener, r.hang
		r.mu.Unlock()
		switch {
		case hang != nil:
			return nil, hang(ctx)
		case listener == nil:
			return nil, errAway
		}
		c, err := listener.DialContext(ctx)
		return conn{c, &r.silent}, err
	}
	return r
}

// begin starts the control plane, and start the source. Both are functions of their own, so that one can be first.
func (r *rig) begin() {
	listener := bufconn.Listen(1 << 20)
	r.plane = serve(r.t, listener)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listener = listener
}

func (r *rig) start() { r.Followed = rulesettest.Follow(r.t, r.source) }

// finish stops both.
func (r *rig) finish() {
	r.End()
	if r.plane != nil {
		r.leave()
	}
}

// leave stops the control plane.
func (r *rig) leave() {
	r.mu.Lock()
	r.listener = nil
	r.mu.Unlock()
	r.plane.stop()
	r.plane = nil
}

// gaps are the times between connections since the last call.
func (r *rig) gaps() (list []time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := 1; i < len(r.dials); i++ {
		list = append(list, r.dials[i].Sub(r.dials[i-1]))
	}
	r.dials = r.dials[len(r.dials)-1:]
	return list
}

// bubble runs a test with a control plane that has sent a limit of 5 a second.
func bubble(t *testing.T, test func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.begin()
		r.set("1", limited("a", 5))
		r.start()
		defer r.finish()
		r.Sent("5/1s")
		r.told("asks", "ack 1")
		test(r)
	})
}

// told compares the requests that the control plane has received since the last call.
func (r *rig) told(want ...string) {
	r.t.Helper()
	synctest.Wait()
	if got := r.take(); !slices.Equal(got, want) {
		r.t.Errorf("the control plane was told %q, not %q", got, want)
	}
}

// latest is the last update since the last call of Sent.
func (r *rig) latest() ruleset.Update {
	r.t.Helper()
	updates := r.Updates()
	if len(updates) == 0 {
		r.t.Fatal("no update was sent")
	}
	return updates[len(updates)-1]
}

func TestChangesAreAcknowledged(t *testing.T) {
	bubble(t, func(r *rig) {
		r.set("2", limited("a", 6))
		r.Sent("6/1s")
		r.told("ack 2")
		r.set("3", limited("a", 7), limited("b", 8))
		r.Sent("7/1s")
		r.told("ack 3")
	})
}

// TestVersionWithoutAChange: go-control-plane sends resources in any order.
func TestVersionWithoutAChange(t *testing.T) {
	bubble(t, func(r *rig) {
		converted := 0
		r.source.Convert = func(list []*ratelimitconf.Config) (*rules.File, error) {
			converted++
			return plain(list)
		}
		all := []*ratelimit.RateLimitConfig{limited("a", 1), limited("b", 2), limited("c", 3), limited("d", 4)}
		for i := range 20 {
			r.set(fmt.Sprint("all ", i), all...)
			r.told(fmt.Sprint("ack all ", i))
		}
		r.Sent("1/1s")
		if converted != 1 {
			t.Errorf("converted %d times", converted)
		}
	})
}

func TestMistakeIsToldAndLastGoodRulesStay(t *testing.T) {
	bubble(t, func(r *rig) {
		r.set("2", limited("", 6))
		if n := r.latest(); n.Revision == "" {
			t.Error("a refused configuration counts as one that cannot be read")
		}
		r.Sent("bad: domain is missing")
		r.told("nack 1: domain is missing")
		r.set("3", limited("a", 5)) // as before the mistake
		time.Sleep(repeatAfter)
		r.Sent("5/1s")
		r.told("nack 1: domain is missing", "ack 3")
	})
}

// TestMistakeThatIsSentAgain: go-control-plane answers a refusal at once, with what was refused.
func TestMistakeThatIsSentAgain(t *testing.T) {
	bubble(t, func(r *rig) {
		converted := 0
		r.source.Convert = func(list []*ratelimitconf.Config) (*rules.File, error) {
			converted++
			return plain(list)
		}
		r.set("2", limited("", 6))
		time.Sleep(time.Minute)
		r.Sent("bad: domain is missing")
		if n := len(r.take()); n < 12 || n > 14 || converted != 1 {
			t.Errorf("refused %d times in a minute, converted %d times", n, converted)
		}
	})
}

func TestControlPlaneThatRefusesStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.begin()
		r.refuses = status.Error(codes.PermissionDenied, "who are you?")
		r.start()
		defer r.finish()
		time.Sleep(10 * time.Minute)
		r.Sent("bad: control-plane:18001: PermissionDenied: who are you?")
		slower(t, r.gaps())
	})
}

// slower checks that pauses double, from half a second, up to half a minute; each may be twice as long.
func slower(t *testing.T, gaps []time.Duration) {
	t.Helper()
	least := 500 * time.Millisecond
	different := make(map[time.Duration]bool)
	for i, gap := range gaps {
		if gap < least || gap > 2*least {
			t.Errorf("pause %d is %v; want %v to %v", i, gap, least, 2*least)
		}
		different[gap] = true
		least = min(2*least, 30*time.Second)
	}
	if len(gaps) < 10 || len(different) < len(gaps)/2 {
		t.Errorf("%d pauses, %d different ones", len(gaps), len(different))
	}
}

func TestLongErrorIsShortened(t *testing.T) {
	bubble(t, func(r *rig) {
		r.source.Convert = func([]*ratelimitconf.Config) (*rules.File, error) {
			return nil, errors.New(strings.Repeat("é\xff", 5000))
		}
		r.set("2", limited("a", 6))
		synctest.Wait()
		if got := r.take(); len(got) != 1 || len(got[0]) > maxDetail+20 || !strings.HasPrefix(got[0], "nack 1: é?é?") {
			t.Errorf("it was told %.100q", got)
		}
	})
}

func TestNoResourcesAreAnEmptyConfiguration(t *testing.T) {
	bubble(t, func(r *rig) {
		r.set("2")
		r.told("ack 2")
		if n := r.latest(); n.Err != nil || len(n.File.Rules) != 0 {
			t.Errorf("%v, %v", n.File, n.Err)
		}
	})
}

// TestControlPlaneRestarts and counts its versions from 1 again.
func TestControlPlaneRestarts(t *testing.T) {
	bubble(t, func(r *rig) {
		time.Sleep(time.Hour)
		r.leave()
		time.Sleep(10 * time.Second)
		r.Sent("bad: control-plane:18001: Error while dialing: connection refused") // the last rules stay in force
		r.begin()
		r.set("1", limited("a", 9))
		time.Sleep(time.Minute)
		r.Sent("9/1s")
		r.told("asks", "ack 1")
		r.leave()
		time.Sleep(10 * time.Second)
		r.Sent("bad: control-plane")
		r.begin()
		r.set("1", limited("a", 9))
		time.Sleep(time.Minute)
		r.Sent("9/1s") // so that it is known to be back
	})
}

// TestStreamThatEndsIsNoFailure where the next one succeeds.
func TestStreamThatEndsIsNoFailure(t *testing.T) {
	bubble(t, func(r *rig) {
		time.Sleep(time.Hour)
		r.leave()
		r.begin()
		r.set("7", limited("a", 5))
		time.Sleep(time.Second)
		r.Sent()
		r.told("asks", "ack 7")
	})
}

func TestBackoff(t *testing.T) {
	bubble(t, func(r *rig) {
		time.Sleep(time.Hour)
		r.leave()
		r.gaps()
		time.Sleep(time.Hour)
		slower(r.t, r.gaps()[1:]) // without the hour before
		r.Sent("bad: connection refused")
	})
}

// TestStreamsThatEndAtOnce are failures although each has sent the configuration.
func TestStreamsThatEndAtOnce(t *testing.T) {
	bubble(t, func(r *rig) {
		for range 3600 {
			time.Sleep(time.Second)
			r.leave()
			r.begin()
			r.set("1", limited("a", 5))
		}
		if n := len(r.gaps()); n > 200 {
			t.Errorf("%d connections in an hour", n)
		}
	})
}

func TestStartWithoutAControlPlane(t *testing.T) {
	for _, optional := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.Optional = optional })
			r.start()
			defer r.finish()
			synctest.Wait()
			if n := r.latest(); optional != (n.Err == nil) {
				t.Errorf("optional %v: %v", optional, n.Err)
			} else if optional && (len(n.File.Rules) > 0 || !strings.Contains(n.Warning.Error(), "no limits yet")) {
				t.Errorf("it starts with %v, %v", n.File, n.Warning)
			}
			time.Sleep(5 * time.Second)
			if n := r.latest(); n.Err == nil {
				t.Errorf("optional %v: it is not down", optional)
			}
			r.begin()
			r.set("1", limited("a", 5))
			time.Sleep(10 * time.Second)
			if n := r.latest(); n.Err != nil || n.Warning != nil || len(n.File.Rules) != 1 {
				t.Errorf("optional %v: afterwards %v, %v, %v", optional, n.File, n.Err, n.Warning)
			}
		})
	}
}

func TestControlPlaneWithoutAConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.begin()
		r.start()
		defer r.finish()
		time.Sleep(time.Hour)
		r.Sent(`bad: it is connected, but has sent no configuration for the node "envoy-ratelimit" within 5s`)
		r.set("1", limited("a", 5))
		r.Sent("5/1s")
		r.told("asks", "ack 1") // on the stream that was open
	})
}

func TestControlPlaneThatDoesNotConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.hang = func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		r.start()
		time.Sleep(4 * time.Second)
		began := time.Now()
		r.finish() // while it connects
		if took := time.Since(began); took > 0 {
			t.Errorf("it ended after %v", took)
		}
		r.start()
		time.Sleep(time.Minute)
		r.Sent("bad: no connection within 5s")
		r.finish()
	})
}

// An ads stream has responses without end.
type endless struct {
	discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient
}

func (endless) Recv() (*discovery.DiscoveryResponse, error) {
	return new(discovery.DiscoveryResponse), nil
}

// TestStreamEndsWithAResponse that nobody takes.
func TestStreamEndsWithAResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &stream{ads: endless{}, responses: make(chan *response)}
		s.reading.Go(func() { s.read(ctx) })
		synctest.Wait()
		cancel()
		s.reading.Wait()
	})
}

// TestDeadPeerIsNoticed by a ping of HTTP/2, as there is no TCP here.
func TestDeadPeerIsNoticed(t *testing.T) {
	bubble(t, func(r *rig) {
		r.silent.Store(true)
		time.Sleep(pingAfter + pingWithin + time.Minute)
		r.silent.Store(false)
		r.set("2", limited("a", 6))
		time.Sleep(2 * time.Minute)
		r.Sent("bad: no connection within 5s", "6/1s")
	})
}

// A conn can stop passing on what its peer sends.
type conn struct {
	net.Conn
	silent *atomic.Bool
}

func (c conn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.silent.Load() {
			return n, err
		}
	}
}

func TestMessageOverTheMaximum(t *testing.T) {
	bubble(t, func(r *rig) {
		r.set("2", limited(strings.Repeat("a", 2<<20), 6))
		time.Sleep(time.Minute)
		r.Sent("bad: received message larger than max (4194")
		r.set("3", limited("a", 7))
		time.Sleep(2 * time.Minute)
		r.Sent("7/1s")
	})
}

func TestReloadAsksForTheWholeConfiguration(t *testing.T) {
	bubble(t, func(r *rig) {
		do(r.t, r.Reload(r.t.Context()))
		r.Sent("5/1s")
		r.told("asks", "ack 1")
		r.leave()
		if err := r.Reload(r.t.Context()); err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("reloading without a control plane: %v", err)
		}
	})
}

func TestForeignResources(t *testing.T) {
	s, err := New(config())
	do(t, err)
	message, err := proto.Marshal(limited("a", 5))
	do(t, err)
	for _, test := range []struct{ url, want string }{
		{typeURL, ""},
		{"type.googleapis.com/envoy.config.cluster.v3.Cluster", "a resource has the type"},
		{"", "a resource has the type"},
	} {
		file, err := s.convert([]*anypb.Any{{TypeUrl: test.url, Value: message}})
		if (err == nil) != (test.want == "") || err != nil && (file != nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v", test.url, err)
		}
	}
	if _, err := s.convert([]*anypb.Any{{TypeUrl: typeURL, Value: message[:5]}}); err == nil {
		t.Error("half a message is accepted")
	}
}

func TestConfigMistakes(t *testing.T) {
	for field, change := range map[string]func(*Config){
		"server":       func(c *Config) { c.Server = "control-plane" },
		"node":         func(c *Config) { c.Node = "\xff" },
		"metadata":     func(c *Config) { c.Metadata = []string{"a=b", "c"} },
		"headers":      func(c *Config) { c.Headers = []string{"authorization=secret", "grpc-timeout=secret"} },
		"cert, key":    func(c *Config) { c.Cert, c.TLS = "cert.pem", true },
		"tls":          func(c *Config) { c.CA = "ca.pem" },
		"backoff_max":  func(c *Config) { c.MaxBackoff = time.Millisecond },
		"max_message":  func(c *Config) { c.MaxMessage = 0 },
		"no such file": func(c *Config) { c.TLS, c.CA = true, "no-such.pem" },
	} {
		c := config()
		change(&c)
		_, err := New(c)
		var input *weir.InputError
		if err == nil || !strings.Contains(err.Error(), field) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", field, err)
		} else if errors.As(err, &input) != (field != "no such file") {
			t.Errorf("%s: %T", field, err)
		}
	}
}
