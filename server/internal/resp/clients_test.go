package resp_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/weirproject/weir/server/internal/resp"
)

// cli runs the real redis-cli with lines on its standard input.
func (h *testServer) cli(t *testing.T, lines string, flags ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "redis-cli", append([]string{"--no-raw", "-p", h.port()}, flags...)...)
	command.Stdin = strings.NewReader(lines)
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("redis-cli: %v\n%s", err, out)
	}
	return string(out)
}

func TestRedisCLI(t *testing.T) {
	h := open(t)
	const want = "1) (integer) 0\n2) (integer) 16\n3) (integer) 15\n4) (integer) -1\n5) (integer) 2\n"
	for _, flags := range [][]string{nil, {"-3"}} {
		if got := h.cli(t, "WEIR.RESET LIMIT cl.throttle 1/1s user\nCL.THROTTLE user 15 30 60\n", flags...); got != "(integer) 1\n"+want {
			t.Errorf("%q: %s", flags, got)
		}
	}
	if got := h.cli(t, "WEIR.DECIDE LIMIT sms 2/1h u\n", "-3"); !strings.Contains(got, "1# \"granted\" => (integer) 1\n") || !strings.Contains(got, "2# \"outcome\" => \"passed\"\n") {
		t.Errorf("in RESP3 redis-cli sees no map: %s", got)
	}
	locked := open(t, resp.WithPassword("alice", "wonder"))
	if got := locked.cli(t, "PING\n", "--user", "alice", "--pass", "wonder", "--no-auth-warning"); got != "PONG\n" {
		t.Errorf("with a password: %s", got)
	}
}

func TestGoRedis(t *testing.T) {
	h := open(t, resp.WithPassword("alice", "wonder"))
	for _, protocol := range []int{2, 3} {
		client := redis.NewClient(&redis.Options{Addr: h.addr, Username: "alice", Password: "wonder", Protocol: protocol, ClientName: "test"})
		defer client.Close()
		ctx := t.Context()
		if err := client.Ping(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprint("go-redis", protocol)
		got, err := client.Do(ctx, "CL.THROTTLE", key, 15, 30, 60).Int64Slice()
		if err != nil || fmt.Sprint(got) != "[0 16 15 -1 2]" {
			t.Errorf("RESP%d: CL.THROTTLE: %v, %v", protocol, got, err)
		}
		cmds, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for range 100 {
				p.Do(ctx, "CL.THROTTLE", key, 15, 30, 60)
			}
			return nil
		})
		if err != nil || fmt.Sprint(cmds[99].(*redis.Cmd).Val()) != "[1 16 0 2 32]" {
			t.Errorf("RESP%d: the last of a pipeline: %v, %v", protocol, cmds[99], err)
		}
		if _, err := client.Do(ctx, "CL.THROTTLE", key).Result(); err == nil || !strings.HasPrefix(err.Error(), "Cell error: Store error: Usage") {
			t.Errorf("RESP%d: %v", protocol, err)
		}
		verdict := redis.NewMapStringInterfaceCmd(ctx, "WEIR.DECIDE", "LIMIT", "a", "10/1m", key)
		if err := client.Process(ctx, verdict); err != nil || verdict.Val()["granted"] != int64(1) || verdict.Val()["limit"] != "a" {
			t.Errorf("RESP%d: WEIR.DECIDE: %v", protocol, verdict)
		}
	}
	wrong := redis.NewClient(&redis.Options{Addr: h.addr, Username: "alice", Password: "wander"})
	defer wrong.Close()
	if err := wrong.Ping(t.Context()).Err(); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("a wrong password: %v", err)
	}
}

// TestClientsUseTransactions: clients wrap pipelines in MULTI and EXEC, as redis-py's pipeline()
// does, are answered as by Redis.
func TestClientsUseTransactions(t *testing.T) {
	h := open(t)
	client := redis.NewClient(&redis.Options{Addr: h.addr})
	defer client.Close()
	ctx := t.Context()
	cmds, err := client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for range 20 {
			p.Do(ctx, "CL.THROTTLE", "tx", 15, 30, 60)
		}
		p.Do(ctx, "CL.THROTTLE", "tx", 15, "x", 60)
		p.Do(ctx, "WEIR.DECIDE", "LIMIT", "a", "10/1m", "tx")
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "Couldn't parse as integer: x") {
		t.Errorf("the first error of the commands is %v", err)
	}
	if first, last := cmds[0].(*redis.Cmd).Val(), cmds[19].(*redis.Cmd).Val(); fmt.Sprint(first, last) != "[0 16 15 -1 2] [1 16 0 2 32]" {
		t.Errorf("answered %v and %v", first, last)
	}
	if got := fmt.Sprint(cmds[21].(*redis.Cmd).Val()); !strings.Contains(got, "granted:1") {
		t.Errorf("after an error: %s", got)
	}
}

// TestTransactionChargesAtExec: queued, discarded and aborted commands charge nothing.
func TestTransactionChargesAtExec(t *testing.T) {
	h := open(t)
	c := h.dial()
	take, look := w("CL.THROTTLE k 15 30 60"), w("CL.THROTTLE k 15 30 60 0")
	other := h.dial()
	c.want("OK", "MULTI")
	c.want("QUEUED", take...)
	c.want("QUEUED", take...)
	other.want("[0 16 16 -1 0]", look...)
	c.want("OK", "DISCARD")
	c.want("OK", "MULTI")
	c.want("QUEUED", take...)
	c.want("-ERR unknown command 'GET', with args beginning with: 'k' ", "GET", "k")
	c.want("QUEUED", take...)
	c.want("-EXECABORT Transaction discarded because of previous errors.", "EXEC")
	other.want("[0 16 16 -1 0]", look...)
	c.want("OK", "MULTI")
	c.want("QUEUED", take...)
	c.want("QUEUED", "CL.THROTTLE", "k")
	c.want("QUEUED", take...)
	c.want("QUEUED", "PING")
	c.want("[[0 16 15 -1 2] -Cell error: Store error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>] [0 16 14 -1 4] PONG]", "EXEC")
	other.want("[0 16 14 -1 4]", look...)
	c.want("-ERR WATCH is not supported: no key here can be read, so there is nothing to compare; use MULTI and EXEC without it", "WATCH", "k")
	c.want("OK", "UNWATCH")
}

func TestTransactionsAreBounded(t *testing.T) {
	c := open(t, resp.WithLimits(resp.Limits{Transaction: 1000})).dial()
	c.want("OK", "MULTI")
	c.want("QUEUED", "ECHO", strings.Repeat("a", 500))
	c.want("-ERR the transaction is too large: the words between MULTI and EXEC may have 1000 bytes, 32 more for each word", "ECHO", strings.Repeat("a", 500))
	c.want("-EXECABORT Transaction discarded because of previous errors.", "EXEC")
	c.want("OK", "MULTI")
	c.want("QUEUED", "ECHO", strings.Repeat("a", 500))
	c.want("["+strings.Repeat("a", 500)+"]", "EXEC")
}

func TestRueidis(t *testing.T) {
	h := open(t)
	for name, option := range map[string]rueidis.ClientOption{
		"default":      {},
		"no cache":     {DisableCache: true},
		"RESP2":        {AlwaysRESP2: true, DisableCache: true},
		"named":        {ClientName: "test", ClientNoEvict: true, ClientNoTouch: true},
		"broadcasting": {ClientTrackingOptions: []string{"BCAST", "NOLOOP"}},
	} {
		t.Run(name, func(t *testing.T) {
			option.InitAddress = []string{h.addr}
			option.ForceSingleClient = true
			client, err := rueidis.NewClient(option)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			got, err := client.Do(t.Context(), client.B().Arbitrary("CL.THROTTLE").Keys(t.Name()).Args("15", "30", "60").Build()).AsIntSlice()
			if err != nil || fmt.Sprint(got) != "[0 16 15 -1 2]" {
				t.Errorf("CL.THROTTLE: %v, %v", got, err)
			}
			verdict, err := client.Do(t.Context(), client.B().Arbitrary("WEIR.DECIDE").Args("LIMIT", "a", "10/1m", t.Name()).Build()).AsMap()
			if err != nil {
				t.Fatal(err)
			}
			remaining := verdict["remaining"]
			if n, err := remaining.AsInt64(); err != nil || n != 9 {
				t.Errorf("WEIR.DECIDE: %v, %v", verdict, err)
			}
			err = client.Do(t.Context(), client.B().Get().Key("k").Build()).Error()
			if told, ok := rueidis.IsRedisErr(err); !ok || !strings.HasPrefix(told.Error(), "unknown command 'GET'") {
				t.Errorf("GET, which this server is not for: %v", err)
			}
		})
	}
}

func TestAnyListenerCanHaveTLS(t *testing.T) {
	h := open(t)
	certified := httptest.NewTLSServer(nil)
	defer certified.Close()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certified.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	go h.server.Serve(listener)
	trusted := certified.Client().Transport.(*http.Transport).TLSClientConfig
	client := redis.NewClient(&redis.Options{Addr: listener.Addr().String(), TLSConfig: &tls.Config{RootCAs: trusted.RootCAs}})
	defer client.Close()
	if got, err := client.Do(t.Context(), "CL.THROTTLE", "k", 15, 30, 60).Int64Slice(); err != nil || fmt.Sprint(got) != "[0 16 15 -1 2]" {
		t.Errorf("CL.THROTTLE: %v, %v", got, err)
	}
}
