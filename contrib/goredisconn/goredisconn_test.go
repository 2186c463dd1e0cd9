package goredisconn_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/contrib/goredisconn"
	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/internal/redisslot"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/redisstore"
)

func script(text string) *redisconn.Script {
	sum := sha1.Sum([]byte(text))
	return &redisconn.Script{Text: text, SHA: hex.EncodeToString(sum[:])}
}

// charge counts its calls.
func charge() *redisconn.Script {
	return script(`return {redis.call('INCRBY', KEYS[1], ARGV[1]), 'ok'}`)
}

func connect(t *testing.T, client redis.UniversalClient) redisstore.Conn {
	t.Helper()
	t.Cleanup(func() { client.Close() })
	c, err := goredisconn.New(client)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func single(t *testing.T, server *redistest.Server) redisstore.Conn {
	return connect(t, redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true}))
}

func run(t *testing.T, c redisstore.Conn, key string, timeout time.Duration) (int64, error) {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	reply, err := c.Run(ctx, charge(), []string{key}, []string{"1"}, nil)
	if err != nil {
		return 0, err
	}
	return reply[0].Int, nil
}

func mustRun(t *testing.T, c redisstore.Conn, key string) int64 {
	t.Helper()
	n, err := run(t, c, key, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestNewRefusesClientsThatRepeatCalls: such a client could charge a call more than once. Those that would
// wait without bound are refused too. No server listens at the address.
func TestNewRefusesClientsThatRepeatCalls(t *testing.T) {
	const addr = "127.0.0.1:1"
	failover := func(retries int) *redis.FailoverOptions {
		return &redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{addr}, MaxRetries: retries, ContextTimeoutEnabled: true}
	}
	for name, c := range map[string]struct {
		client redis.UniversalClient
		want   string
	}{
		"defaults":         {redis.NewClient(&redis.Options{Addr: addr}), "MaxRetries is 3"},
		"one retry":        {redis.NewClient(&redis.Options{Addr: addr, MaxRetries: 1, ContextTimeoutEnabled: true}), "MaxRetries is 1"},
		"no timeout":       {redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1}), "ContextTimeoutEnabled"},
		"good":             {redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true}), ""},
		"sentinel":         {redis.NewFailoverClient(failover(0)), "MaxRetries is 3"},
		"good sentinel":    {redis.NewFailoverClient(failover(-1)), ""},
		"cluster":          {redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}}), "ContextTimeoutEnabled"},
		"cluster, retries": {redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, MaxRetries: 2, ContextTimeoutEnabled: true}), "MaxRetries is 2"},
		"good cluster":     {redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, MaxRetries: -1, ContextTimeoutEnabled: true}), ""},
		"ring":             {redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": addr}}), "Ring"},
		"nothing":          {nil, "*redis.Client"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.client != nil {
				defer c.client.Close()
			}
			got, err := goredisconn.New(c.client)
			var input *weir.InputError
			switch {
			case c.want == "" && (err != nil || got == nil):
				t.Errorf("refused: %v", err)
			case c.want != "" && (!errors.As(err, &input) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestReplies(t *testing.T) {
	c := single(t, redistest.Start(t))
	run := func(text string) ([]redisconn.Value, error) {
		return c.Run(t.Context(), script(text), []string{"k"}, []string{"\r\n"}, []redisconn.Value{{Int: 7}})
	}
	got, err := run("return {1, -2, 'three', KEYS[1], ARGV[1]}")
	if want := "[{7  false} {1  false} {-2  false} {0 three true} {0 k true} {0 \r\n true}]"; fmt.Sprint(got) != want || err != nil {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	for _, text := range []string{"return {1, false, 3}", "return 5", "return 'x'", "return false", "return {{1}}"} {
		var answer *redisconn.ServerError
		if _, err := run(text); errors.As(err, &answer) || !errors.Is(err, weir.ErrUnavailable) {
			t.Errorf("%s: %v, want weir.ErrUnavailable", text, err)
		}
	}
	for text, want := range map[string]string{
		"return redis.error_reply('WEIR foreign 1')": "WEIR foreign 1",
		"return redis.error_reply('ERR some words')": "some words",
		"return {": "Error compiling script",
	} {
		var answer *redisconn.ServerError
		if _, err := run(text); !errors.As(err, &answer) || !strings.HasPrefix(answer.Text, want) {
			t.Errorf("%s: %v, want a ServerError of %q", text, err, want)
		}
	}
}

func TestScriptFlush(t *testing.T) {
	server := redistest.Start(t)
	c := single(t, server)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range 100 {
				if _, err := run(t, c, "k", 10*time.Second); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 10 {
		server.Do("SCRIPT", "FLUSH", "SYNC")
		time.Sleep(10 * time.Millisecond)
	}
	wg.Wait()
	if got := server.Do("GET", "k"); got != "3200" {
		t.Errorf("charged %v, want 3200", got)
	}
}

// TestStalledServerIsChargedOnce stops the server for longer than the client's own read
// timeout, after which go-redis would send the call again.
func TestStalledServerIsChargedOnce(t *testing.T) {
	server := redistest.Start(t)
	stalled(t, server, connect(t, redis.NewClient(&redis.Options{
		Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true, ReadTimeout: 200 * time.Millisecond,
	})))
}

func stalled(t *testing.T, server *redistest.Server, c redisstore.Conn) {
	t.Helper()
	server.Do("CLIENT", "PAUSE", "10") // so that each of these has a connection of its own
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() { run(t, c, "{k}warm", time.Second) })
	}
	wg.Wait()
	server.Stop()
	_, err := run(t, c, "{k}", 3*time.Second)
	if !errors.Is(err, weir.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a stalled server gives %v", err)
	}
	server.Cont()
	redistest.Await(t, "calls to work again", func() bool {
		_, err := run(t, c, "{k}warm", time.Second)
		return err == nil
	})
	if n := server.Do("GET", "{k}"); n != nil && n != "1" {
		t.Errorf("one call was charged %v times", n)
	}
}

func TestServerGone(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	c := connect(t, client)
	mustRun(t, c, "k")
	server.Kill()
	if _, err := run(t, c, "k", 100*time.Millisecond); !errors.Is(err, weir.ErrUnavailable) {
		t.Errorf("a killed server gives %v", err)
	}
	server.Restart()
	redistest.Await(t, "calls to work again", func() bool {
		_, err := run(t, c, "k", 100*time.Millisecond)
		return err == nil
	})
	c.Close()
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("Close closed the caller's client: %v", err)
	}
	client.Close()
	if _, err := run(t, c, "k", time.Second); !errors.Is(err, weir.ErrUnavailable) || !strings.Contains(err.Error(), "not executed") {
		t.Errorf("a closed client gives %v", err)
	}
}

func TestCluster(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0)
	addrs := make([]string, len(cluster.Nodes))
	for i, node := range cluster.Nodes {
		addrs[i] = node.Addr()
	}
	c := connect(t, redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: addrs, MaxRetries: -1, ContextTimeoutEnabled: true, ReadTimeout: 200 * time.Millisecond,
	}))
	if !c.Cluster() {
		t.Error("a Cluster does not say so")
	}
	mustRun(t, c, "k0")
	loaded := 0
	for _, node := range cluster.Nodes {
		if node.Info("commandstats")["cmdstat_script|load"] != "" {
			loaded++
		}
	}
	if loaded != 1 {
		t.Errorf("for one key the script was loaded on %d nodes", loaded)
	}
	keys := make([]string, 30)
	for i := range keys {
		keys[i] = "k" + strconv.Itoa(i)
		mustRun(t, c, keys[i])
	}
	if err := c.Delete(t.Context(), keys); err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if got := mustRun(t, c, key); got != 1 {
			t.Errorf("after Delete %s counts %d", key, got)
		}
	}
	t.Run("moving", func(t *testing.T) { moving(t, cluster, c) })
	t.Run("stalled", func(t *testing.T) { stalled(t, cluster.Owner(int(redisslot.Of("{k}"))), c) })
}

// moving asks for a key on its way to a node that does not know the script, and after.
func moving(t *testing.T, cluster *redistest.Cluster, c redisstore.Conn) {
	slot := int(redisslot.Of("moves"))
	to := cluster.Nodes[0]
	if cluster.Owner(slot) == to {
		to = cluster.Nodes[1]
	}
	to.Do("SCRIPT", "FLUSH")
	finish := cluster.OpenMove(slot, to)
	if got := mustRun(t, c, "moves"); got != 1 {
		t.Errorf("the first charge counts %d", got)
	}
	finish()
	if got := mustRun(t, c, "moves"); got != 2 {
		t.Errorf("after the move the charge counts %d, want 2", got)
	}
}

// TestGuard: a server that announces 2^63 bytes or 2^31 elements costs a call, and no more.
func TestGuard(t *testing.T) {
	for _, reply := range []string{"$9223372036854775807\r\n", "*2147483647\r\n", "$536870912\r\n", "%2147483647\r\n"} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		var answered atomic.Int64
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					for asked := make([]byte, 4096); ; {
						n, err := conn.Read(asked)
						if err != nil {
							return
						}
						answer := "-ERR unknown command\r\n"
						if strings.Contains(string(asked[:n]), "evalsha") {
							answer = reply
							answered.Add(1)
						}
						_, _ = conn.Write([]byte(answer))
					}
				}()
			}
		}()
		c := connect(t, redis.NewClient(&redis.Options{Addr: listener.Addr().String(), MaxRetries: -1, ContextTimeoutEnabled: true,
			DisableIdentity: true, Protocol: 2, Dialer: goredisconn.Guard(nil)}))
		for range 3 {
			if _, err := run(t, c, "key", 5*time.Second); !errors.Is(err, weir.ErrUnavailable) {
				t.Errorf("%q: %v", reply, err)
			}
		}
		if answered.Load() != 3 {
			t.Errorf("%q: the server got %d calls of 3", reply, answered.Load())
		}
	}
}
