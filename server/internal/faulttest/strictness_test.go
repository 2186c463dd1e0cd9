//go:build unix

package faulttest_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/contrib/goredisconn"
	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/redisstore"
)

// A strictness is a way to have a grant outlive its master.
type strictness struct {
	name string
	args []string // of the master
	conn func(*testing.B, *redistest.Server) redisstore.Conn
}

var strictnesses = []strictness{
	{"none", nil, pooled},
	{"min-replicas", []string{"--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"}, pooled},
	{"WAIT", nil, func(b *testing.B, s *redistest.Server) redisstore.Conn {
		return &waiting{pooled(b, s), client(b, s)}
	}},
}

// BenchmarkStrictness has the ways take turns, so that what else the machine does hits all
// alike. All use the same client, with a connection for each call: WAIT holds its connection
// up, so that weir's own single one would show that alone.
func BenchmarkStrictness(b *testing.B) {
	for b.Loop() {
		var stores []weir.Store
		for _, s := range strictnesses {
			master := s.start(b)
			redistest.StartReplica(b, master)
			stores = append(stores, s.open(b, master))
		}
		counts := make([][]int64, len(stores))
		for range 1 + turns {
			for i, store := range stores {
				counts[i] = append(counts[i], ask(store, turn))
			}
		}
		for i, s := range strictnesses {
			of := counts[i][1:] // the first had to connect
			slices.Sort(of)
			b.ReportMetric(float64(of[turns/2])/turn.Seconds(), s.name+"/s")
		}
		b.ReportMetric(0, "ns/op")
	}
}

const (
	turns = 15
	turn  = 200 * time.Millisecond
	crew  = 64
)

// BenchmarkForgotten kills a master under full load, once with a replica in sync and once with one that was
// stopped for three seconds, and counts the grants that the replica did not receive.
func BenchmarkForgotten(b *testing.B) {
	for _, s := range strictnesses {
		for _, lag := range []time.Duration{0, 3 * time.Second} {
			b.Run(s.name+"/replica "+lag.String()+" behind", func(b *testing.B) {
				for b.Loop() {
					s.kill(b, lag)
				}
			})
		}
	}
}

func (s strictness) start(b *testing.B) *redistest.Server {
	return redistest.Start(b, append([]string{"--repl-diskless-sync-delay", "0"}, s.args...)...)
}

func (s strictness) open(b *testing.B, master *redistest.Server) weir.Store {
	store, err := redisstore.New(s.conn(b, master), redisstore.WithTimeout(time.Second))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { store.Close() })
	return store
}

func (s strictness) kill(b *testing.B, lag time.Duration) {
	master := s.start(b)
	replica := redistest.StartReplica(b, master)
	store := s.open(b, master)
	ask(store, turn) // scripts, connections
	redistest.Await(b, "the replica to follow", func() bool { return taken(replica) == taken(master) })
	base := taken(replica)
	if lag > 0 {
		replica.Stop()
	}
	time.AfterFunc(max(lag, time.Second), master.Kill)
	last := ask(store, max(lag, time.Second)+turn)
	replica.Cont()
	replica.Do("REPLICAOF", "NO", "ONE")
	b.ReportMetric(float64(last), "granted")
	b.ReportMetric(float64(max(0, last-(taken(replica)-base))), "forgotten")
	b.ReportMetric(0, "ns/op")
}

// ask has a crew ask as fast as it is answered, each of its own key, and counts grants.
func ask(store weir.Store, during time.Duration) int64 {
	limit := weir.MustLimit("strict", weir.FixedWindow{Limit: 1 << 40, Window: 24 * time.Hour})
	end := time.Now().Add(during)
	var sum atomic.Int64
	var wait sync.WaitGroup
	for i := range crew {
		wait.Go(func() {
			claims := []weir.Claim{{Key: strconv.Itoa(i), Limit: limit, Cost: 1}}
			for time.Now().Before(end) {
				granted, _ := store.Decide(context.Background(), claims, 1, nil)
				sum.Add(granted)
			}
		})
	}
	wait.Wait()
	return sum.Load()
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

func (w *waiting) Run(ctx context.Context, script *redisconn.Script, keys, args []string,
	reply []redisconn.Value) ([]redisconn.Value, error) {
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
		reply = append(reply, redisconn.Value{Int: number})
	}
	return reply, err
}
