//go:build unix

package faulttest_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/redisstore/goredisconn"
)

// A strictness is a way to have a grant outlive its master.
type strictness struct {
	name string
	args []string // of the master
	conn func(*testing.B, *redistest.Server) redisstore.Conn
}

var strictnesses = []strictness{
	{"none", nil, pooled},
	{"min-replicas 1, lag 1s", []string{"--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"}, pooled},
	{"WAIT 1", nil, func(b *testing.B, s *redistest.Server) redisstore.Conn {
		return &waiting{pooled(b, s), client(b, s)}
	}},
}

// BenchmarkStrictness kills a master under as much load as there is, once with a replica
// that follows, once with one that has stood still for three seconds, and counts what the
// replica has not heard of. All ways use the same client, with a connection for each call:
// WAIT holds its connection up, so that weir's own single one would show that alone.
func BenchmarkStrictness(b *testing.B) {
	for _, s := range strictnesses {
		for _, lag := range []time.Duration{0, 3 * time.Second} {
			b.Run(s.name+"/replica "+lag.String()+" behind", func(b *testing.B) {
				for b.Loop() {
					s.measure(b, lag)
				}
			})
		}
	}
}

const crew = 64

func (s strictness) measure(b *testing.B, lag time.Duration) {
	master := redistest.Start(b, append([]string{"--repl-diskless-sync-delay", "0"}, s.args...)...)
	replica := redistest.StartReplica(b, master)
	store, err := redisstore.New(s.conn(b, master), redisstore.WithTimeout(time.Second))
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	ask(store, 100*time.Millisecond) // scripts, connections
	before := ask(store, time.Second)
	b.ReportMetric(float64(before.granted)/time.Second.Seconds(), "decisions/s")

	redistest.Await(b, "the replica to follow", func() bool { return taken(replica) == taken(master) })
	base := taken(replica)
	if lag > 0 {
		replica.Stop()
	}
	time.AfterFunc(max(lag, time.Second), master.Kill)
	last := ask(store, max(lag, time.Second)+100*time.Millisecond)
	replica.Cont()
	replica.Do("REPLICAOF", "NO", "ONE")
	b.ReportMetric(float64(max(0, last.granted-(taken(replica)-base))), "lost")
	b.ReportMetric(float64(last.failed), "failed")
	b.ReportMetric(0, "ns/op")
}

// asked is what came of decisions.
type asked struct{ granted, failed int64 }

// ask has a crew ask as fast as it is answered, each of its own key.
func ask(store weir.Store, during time.Duration) (sum asked) {
	limit := weir.MustLimit("strict", weir.FixedWindow{Limit: 1 << 40, Window: 24 * time.Hour})
	end := time.Now().Add(during)
	var mu sync.Mutex
	var wait sync.WaitGroup
	for i := range crew {
		wait.Go(func() {
			claims := []weir.Claim{{Key: strconv.Itoa(i), Limit: limit, Cost: 1}}
			var one asked
			for time.Now().Before(end) {
				granted, err := store.Decide(context.Background(), claims, 1, nil)
				one.granted += granted
				if err != nil {
					one.failed++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			sum.granted += one.granted
			sum.failed += one.failed
		})
	}
	wait.Wait()
	return sum
}

// taken is how many units a server knows of.
func taken(s *redistest.Server) int64 {
	const script = `local n = 0
for _, key in ipairs(redis.call('KEYS', 'weir:strict:*')) do
  n = n + struct.unpack('<i8', string.sub(redis.call('GET', key), 18, 25))
end
return n`
	return s.Do("EVAL", script, "0").(int64)
}

func client(b *testing.B, s *redistest.Server) *redis.Client {
	redis.SetLogger(quiet{}) // it would tell of each attempt to reach the dead master
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true, PoolSize: crew})
	b.Cleanup(func() { c.Close() })
	return c
}

func pooled(b *testing.B, s *redistest.Server) redisstore.Conn {
	conn, err := goredisconn.New(client(b, s))
	if err != nil {
		b.Fatal(err)
	}
	return conn
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// waiting has each call wait for a replica, on the same connection.
type waiting struct {
	redisstore.Conn
	client *redis.Client
}

var errAlone = errors.New("no replica has it")

func (w *waiting) Run(ctx context.Context, script *redisstore.Script, keys, args []string, reply []redisstore.Value) ([]redisstore.Value, error) {
	given := make([]any, len(args))
	for i, arg := range args {
		given[i] = arg
	}
	pipe := w.client.Pipeline()
	run := pipe.EvalSha(ctx, script.SHA, keys, given...)
	wait := pipe.Do(ctx, "WAIT", 1, 500)
	pipe.Exec(ctx)
	numbers, err := run.Slice()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return w.Conn.Run(ctx, script, keys, args, reply)
	}
	if n, _ := wait.Int64(); err == nil && n == 0 {
		err = errAlone
	}
	for _, n := range numbers {
		number, _ := n.(int64)
		reply = append(reply, redisstore.Value{Int: number})
	}
	return reply, err
}
