package redisstore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/internal/redisslot"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/storetest"
)

// byBatches decides all by batches of two: what is asked, and the same of other keys, so
// that the scripts of batches pass the whole suite.
// It is no weir.Batcher: the batches of the suite are TestStore's.
type byBatches struct{ weir.Store }

// beside marks keys that nobody asked for.
const beside = "~beside"

func (s byBatches) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	if err := weir.Check(claims, times, decisions); err != nil {
		return s.Store.Decide(ctx, claims, times, decisions)
	}
	asked := weir.Request{Claims: claims, Times: times}
	if decisions != nil && times <= 1000 {
		asked.Decisions = make([]weir.Decision, len(claims)*int(max(1, times)))
	}
	other := weir.Request{Times: times}
	for _, c := range claims {
		c.Key = c.Key[:min(len(c.Key), weir.MaxKey-len(beside))] + beside
		other.Claims = append(other.Claims, c)
	}
	requests := []weir.Request{other, asked}
	s.Store.(weir.Batcher).DecideBatch(ctx, requests)
	asked = requests[1]
	copy(decisions, asked.Decisions[max(0, len(asked.Decisions)-len(claims)):])
	if decisions != nil && asked.Decisions == nil && asked.Err == nil {
		_, asked.Err = s.Store.Decide(ctx, claims, 0, decisions)
	}
	return asked.Granted, asked.Err
}

func TestStoreByBatches(t *testing.T) {
	t.Parallel()
	r := single(t)
	subject := func(t testing.TB, clock func() weir.Instant) storetest.Handle {
		h := r.subject(t, clock)
		h.Store = byBatches{h.Store}
		peer := h.Peer
		h.Peer = func() weir.Store { return byBatches{peer()} }
		return h
	}
	t.Run("vectors", func(t *testing.T) { storetest.Vectors(t, subject) })
	storetest.Run(t, subject)
}

// askFor is a request of each of some keys.
func askFor(limit *weir.Limit, times int64, keys ...string) []weir.Request {
	requests := make([]weir.Request, len(keys))
	for i, key := range keys {
		claims := []weir.Claim{{Key: key, Limit: limit, Cost: 1}}
		requests[i] = weir.Request{Claims: claims, Times: times, Decisions: make([]weir.Decision, max(1, times))}
	}
	return requests
}

func names(prefix string, n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = prefix + strconv.Itoa(i)
	}
	return keys
}

// wantAll fails unless all requests were granted so often.
func wantAll(t *testing.T, when string, requests []weir.Request, granted int64) {
	t.Helper()
	for i := range requests {
		if r := &requests[i]; r.Err != nil || r.Granted != granted {
			t.Errorf("%s: request %d, %s: granted %d of %d, error %v; want %d", when, i, r.Claims[0].Key, r.Granted, r.Times, r.Err, granted)
		}
	}
}

// calls is how many calls of scripts a server has counted.
func calls(server *redistest.Server) int {
	stats := server.Info("commandstats")["cmdstat_evalsha"]
	_, rest, _ := strings.Cut(stats, "calls=")
	number, _, _ := strings.Cut(rest, ",")
	n, _ := strconv.Atoi(number)
	return n
}

// A batch costs a call for 64 keys of each kind of limit, however often each is asked for;
// so does one of many limits, and of requests of several claims.
func TestCallsOfABatch(t *testing.T) {
	r := single(t)
	store := r.open(t, redisstore.WithTimeout(time.Minute))
	bucket, window := weir.MustLimit("bucket", weir.PerHour(1_000_000)), weir.MustLimit("window", weir.FixedWindow{Limit: 1_000_000, Window: time.Hour})
	other := weir.MustLimit("other", weir.PerMinute(1_000_000))
	both := askFor(bucket, 2, names("k", 34)...)
	for i := range both {
		both[i].Claims = append(both[i].Claims, weir.Claim{Key: both[i].Claims[0].Key, Limit: window, Cost: 1})
		both[i].Decisions = make([]weir.Decision, 4)
	}
	mixed := append(askFor(bucket, 1, names("m", 30)...), askFor(other, 3, names("m", 30)...)...)
	for name, test := range map[string]struct {
		requests []weir.Request
		calls    int
	}{
		"64 keys":             {askFor(bucket, 1, names("k", 64)...), 1},
		"65 keys":             {askFor(bucket, 1, names("k", 65)...), 2},
		"a hot key":           {askFor(bucket, 10_000, "hot"), 1},
		"a hot key among 60":  {append(askFor(bucket, 10_000, "hot"), askFor(bucket, 1, names("k", 59)...)...), 1},
		"two limits":          {mixed, 1},
		"a key twice":         {append(askFor(bucket, 1, "a", "b", "a"), askFor(bucket, 1, "b", "a")...), 1},
		"windows":             {askFor(window, 1, names("k", 64)...), 1},
		"two claims each":     {both, 2},
		"two kinds":           {append(askFor(window, 1, names("k", 20)...), askFor(bucket, 1, names("k", 20)...)...), 2},
		"one":                 {askFor(bucket, 1, "one"), 1},
		"what is wrong":       {append(askFor(bucket, 1, "a", "b"), weir.Request{Times: -1}), 1},
		"none that is proper": {[]weir.Request{{}, {}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			store.DecideBatch(t.Context(), test.requests) // loads the scripts
			before := calls(r.owner(""))
			store.DecideBatch(t.Context(), test.requests)
			if got := calls(r.owner("")) - before; got != test.calls {
				t.Errorf("%d calls, want %d", got, test.calls)
			}
			for i := range test.requests {
				if req := &test.requests[i]; len(req.Claims) > 0 && (req.Err != nil || req.Granted != req.Times) {
					t.Errorf("request %d: granted %d of %d, error %v", i, req.Granted, req.Times, req.Err)
				}
			}
		})
	}
	if scripts := r.owner("").Info("memory")["number_of_cached_scripts"]; scripts != "6" {
		t.Errorf("Redis keeps %s scripts: one a kind of request, whatever their number, limits and keys: 6", scripts)
	}
}

// Requests that differ in the first of many claims are not of one kind.
func TestBatchOfManyClaims(t *testing.T) {
	store := single(t).open(t, redisstore.WithTimeout(time.Minute))
	bucket := weir.MustLimit("bucket", weir.PerHour(5))
	requests := append(askFor(weir.MustLimit("window", weir.FixedWindow{Limit: 5, Window: time.Hour}), 1, "a"),
		askFor(weir.MustLimit("log", weir.SlidingLog{Limit: 5, Window: time.Hour}), 1, "b")...)
	for i := range requests {
		for _, key := range names(requests[i].Claims[0].Key, 8) {
			requests[i].Claims = append(requests[i].Claims, weir.Claim{Key: key, Limit: bucket, Cost: 1})
		}
		requests[i].Decisions = make([]weir.Decision, 9)
	}
	store.DecideBatch(t.Context(), requests)
	wantAll(t, "of nine claims", requests, 1)
	for i := range requests {
		if _, err := store.Decide(t.Context(), requests[i].Claims, 0, requests[i].Decisions); err != nil {
			t.Errorf("request %d: %v", i, err)
		}
		for j, d := range requests[i].Decisions {
			if d.Remaining != 4 {
				t.Errorf("request %d, claim %d: %d remain of 5", i, j, d.Remaining)
			}
		}
	}
}

// A batch whose scripts are flushed again and again is decided once.
func TestBatchAfterAFlush(t *testing.T) {
	r := single(t)
	store := r.open(t, redisstore.WithTimeout(time.Minute))
	limit, log := weir.MustLimit("limit", weir.PerHour(10)), weir.MustLimit("log", weir.SlidingLog{Limit: 10, Window: time.Hour})
	for round := range 3 {
		r.owner("").Do("SCRIPT", "FLUSH")
		requests := append(askFor(limit, 2, names("k", 200)...), askFor(log, 2, names("k", 100)...)...)
		store.DecideBatch(t.Context(), requests)
		wantAll(t, "after a flush", requests, 2)
		for i := range requests {
			if left := requests[i].Decisions[1].Remaining; left != int64(8-2*round) {
				t.Fatalf("round %d: %d remain of 10", round, left)
			}
		}
	}
}

// A Redis that is full, or is made a replica, answers what writes nothing; what would
// write is an error, and not a part of it is charged.
func TestBatchWhereNothingCanBeWritten(t *testing.T) {
	for word, shut := range map[string][2][]string{
		"OOM":      {{"CONFIG", "SET", "maxmemory", "1"}, {"CONFIG", "SET", "maxmemory", "0"}},
		"READONLY": {{"REPLICAOF", "127.0.0.1", "1"}, {"REPLICAOF", "NO", "ONE"}},
	} {
		t.Run(word, func(t *testing.T) {
			r := single(t)
			server, store := r.owner(""), r.open(t, redisstore.WithTimeout(time.Minute))
			limits := []*weir.Limit{weir.MustLimit("bucket", weir.PerHour(3)), weir.MustLimit("odd", weir.GCRA(3, 7, time.Hour)),
				weir.MustLimit("log", weir.SlidingLog{Limit: 3, Window: time.Hour}), weir.MustLimit("window", weir.FixedWindow{Limit: 3, Window: time.Hour})}
			ask := func(times int64) (granting, refusing []weir.Request) {
				for _, limit := range limits {
					granting = append(granting, askFor(limit, times, names("new", 3)...)...)
					refusing = append(refusing, askFor(limit, 3, names("used", 3)...)...)
				}
				for i := range granting {
					pair := append(granting[i].Claims, weir.Claim{Key: granting[i].Claims[0].Key, Limit: weir.MustLimit("pair", weir.PerHour(100)), Cost: 1})
					granting = append(granting, weir.Request{Claims: pair, Times: times})
				}
				return granting, refusing
			}
			_, used := ask(0)
			store.DecideBatch(t.Context(), used)
			wantAll(t, "before", used, 3)
			server.Do(shut[0]...)
			granting, refusing := ask(1)
			peeking, _ := ask(0)
			store.DecideBatch(t.Context(), append(append(slices.Clone(granting), refusing...), peeking...))
			store.DecideBatch(t.Context(), granting)
			store.DecideBatch(t.Context(), refusing)
			store.DecideBatch(t.Context(), peeking)
			wantAll(t, "refused", refusing, 0)
			wantAll(t, "peeks", peeking, 0)
			for i := range granting {
				if r := &granting[i]; !errors.Is(r.Err, weir.ErrUnavailable) || !strings.Contains(r.Err.Error(), word) || r.Granted != 0 {
					t.Errorf("request %d: granted %d, error %v", i, r.Granted, r.Err)
				}
			}
			server.Do(shut[1]...)
			peeking, _ = ask(0)
			for i := range peeking {
				peeking[i].Decisions = make([]weir.Decision, len(peeking[i].Claims))
			}
			store.DecideBatch(t.Context(), peeking)
			for i := range peeking {
				for _, d := range peeking[i].Decisions {
					if d.ResetAfter != 0 {
						t.Errorf("request %d was charged: %+v", i, d)
					}
				}
			}
		})
	}
}

// Buckets that refill in a fraction of a microsecond are read by one command too.
func TestABatchReadsBucketsByOneCommand(t *testing.T) {
	r := single(t)
	store := r.open(t, redisstore.WithTimeout(time.Minute))
	for name, spec := range map[string]weir.Spec{
		"whole":    weir.PerHour(1_000),
		"fraction": weir.TokenBucket{Capacity: 1_000, Refill: 7, Period: time.Hour},
	} {
		requests := askFor(weir.MustLimit(name, spec), 2, names("k", 64)...)
		store.DecideBatch(t.Context(), requests)
		r.owner("").Do("CONFIG", "RESETSTAT")
		store.DecideBatch(t.Context(), requests)
		wantAll(t, name, requests, 2)
		stats := r.owner("").Info("commandstats")
		if stats["cmdstat_get"] != "" || !strings.HasPrefix(stats["cmdstat_mget"], "calls=1,") {
			t.Errorf("%s: GET %q, MGET %q; want one MGET", name, stats["cmdstat_get"], stats["cmdstat_mget"])
		}
	}
}

// TestBatchesOfFractionsAgreeWithTheEmbeddedStore: two limits of other denominators share keys.
func TestBatchesOfFractionsAgreeWithTheEmbeddedStore(t *testing.T) {
	now := int64(1_790_000_000_123_456)
	clock := func() weir.Instant { return weir.Instant(now) }
	inRedis := single(t).open(t, redisstore.WithTimeout(time.Minute), redisstore.WithClock(clock))
	inMemory := memstore.New(memstore.WithClock(clock))
	defer inMemory.Close()
	draw := rand.New(rand.NewPCG(7, 3))
	for round := range 300 {
		var requests [2][]weir.Request
		for key := range 20 {
			limit := weir.MustLimit("shared", weir.TokenBucket{
				Capacity: 9 + draw.Int64N(2), Refill: 6 + draw.Int64N(2), Period: 50 * time.Microsecond, Overdraft: draw.Int64N(2),
			})
			claims := []weir.Claim{{Key: strconv.Itoa(key), Limit: limit, Cost: 1 + draw.Int64N(4)}}
			times := 1 + max(0, draw.Int64N(8)-4)
			for i := range requests {
				requests[i] = append(requests[i], weir.Request{Claims: claims, Times: times, Decisions: make([]weir.Decision, times)})
			}
		}
		inRedis.DecideBatch(t.Context(), requests[0])
		inMemory.DecideBatch(t.Context(), requests[1])
		for i := range requests[0] {
			a, b := requests[0][i], requests[1][i]
			if a.Granted != b.Granted || a.Err != b.Err || !slices.Equal(a.Decisions, b.Decisions) {
				t.Fatalf("round %d, %+v:\n  in Redis  %+v\n  in memory %+v", round, a.Claims[0], a, b)
			}
		}
		now += draw.Int64N(30) - 2
	}
}

// A user who may not call MGET decides batches without it.
func TestBatchWithoutMGET(t *testing.T) {
	server := redistest.StartACL(t, "ann", "secret")
	address := strings.Replace(server.URL(), "redis://", "redis://ann:secret@", 1)
	store := redis{url: address}.open(t, redisstore.WithTimeout(time.Minute))
	client, err := redisconn.OpenClient(t.Context(), address, redisconn.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Do(t.Context(), redisconn.Command{Name: "ACL", Args: []string{"SETUSER", "ann", "-mget"}}).Err(); err != nil {
		t.Fatal(err)
	}
	for name, spec := range map[string]weir.Spec{"whole": weir.PerHour(10), "fraction": weir.PerHour(7)} {
		requests := askFor(weir.MustLimit(name, spec), 3, names("k", 100)...)
		store.DecideBatch(t.Context(), requests)
		wantAll(t, "without MGET", requests, 3)
	}
}

// A Redis that stands still is an error of each request, in time, and charges none twice.
func TestBatchOnAStoppedRedis(t *testing.T) {
	r := single(t)
	store := r.open(t, redisstore.WithTimeout(100*time.Millisecond))
	limit := weir.MustLimit("limit", weir.FixedWindow{Limit: 10, Window: time.Hour})
	ask := func(times int64) []weir.Request { return askFor(limit, times, names("k", 100)...) }
	redistest.Await(t, "the scripts are loaded", func() bool {
		requests := ask(0)
		store.DecideBatch(t.Context(), requests)
		return requests[0].Err == nil && requests[99].Err == nil
	})
	r.owner("").Stop()
	requests := ask(1)
	store.DecideBatch(t.Context(), requests)
	for i := range requests {
		if err := requests[i].Err; !errors.Is(err, weir.ErrUnavailable) || requests[i].Granted != 0 {
			t.Errorf("request %d: granted %d, error %v", i, requests[i].Granted, err)
		}
	}
	r.owner("").Cont()
	redistest.Await(t, "Redis answers again", func() bool {
		requests = ask(0)
		store.DecideBatch(t.Context(), requests)
		return requests[0].Err == nil && requests[99].Err == nil
	})
	for i := range requests {
		if left := requests[i].Decisions[0].Remaining; left < 9 {
			t.Errorf("request %d: %d remain of 10 after one call", i, left)
		}
	}
}

// While a slot moves, keys of it that have moved and others cannot be in one call.
func TestBatchWhileASlotMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	r := redis{url: cluster.URL()}
	store := r.open(t, redisstore.WithTimeout(time.Minute))
	limit, log := weir.MustLimit("limit", weir.PerHour(100)), weir.MustLimit("log", weir.SlidingLog{Limit: 100, Window: time.Hour})
	keys := append(names("{slot}", 20), names("{other}", 20)...)
	round := func(when string, keys ...string) {
		t.Helper()
		requests := append(askFor(limit, 1, keys...), askFor(log, 1, keys...)...)
		store.DecideBatch(t.Context(), requests)
		wantAll(t, when, requests, 1)
	}
	round("before the move", keys...)
	slot := int(redisslot.Of("{slot}"))
	from := cluster.Owner(slot)
	to := cluster.Owner((slot + 16384/3) % 16384)
	if to == from {
		to = cluster.Owner((slot + 2*16384/3) % 16384)
	}
	to.Do("SCRIPT", "FLUSH")
	finish := cluster.OpenMove(slot, to)
	round("in the middle of the move", append(keys, names("{slot}new", 20)...)...)
	finish()
	round("after the move", append(keys, names("{slot}new", 20)...)...)
	requests := append(askFor(limit, 0, keys...), askFor(log, 0, keys...)...)
	store.DecideBatch(t.Context(), requests)
	for i := range requests {
		if left := requests[i].Decisions[0].Remaining; left != 97 {
			t.Errorf("%s: %d remain of 100 after three charges", requests[i].Claims[0].Key, left)
		}
	}
}

// In a Cluster, requests of one slot are one call; others have one each.
func TestCallsOfABatchInACluster(t *testing.T) {
	t.Parallel()
	r := clustered(t)
	store := r.open(t, redisstore.WithTimeout(time.Minute))
	limit := weir.MustLimit("limit", weir.PerHour(100))
	count := func(keys ...string) (n int) {
		for range 2 {
			n = 0
			for _, server := range r.all {
				n -= calls(server)
			}
			requests := askFor(limit, 1, keys...)
			store.DecideBatch(t.Context(), requests)
			wantAll(t, "in a Cluster", requests, 1)
			for _, server := range r.all {
				n += calls(server)
			}
		}
		return n
	}
	if n := count(names("{a}", 20)...); n != 1 {
		t.Errorf("%d calls for keys of one slot, want 1", n)
	}
	if n := count(append(names("{a}", 20), names("{b}", 20)...)...); n != 2 {
		t.Errorf("%d calls for keys of two slots, want 2", n)
	}
	if n := count("a", "b", "c", "d"); n != 4 {
		t.Errorf("%d calls for four keys of four slots, want 4", n)
	}
	pair := askFor(limit, 1, "{a}x", "{a}y")
	for i, apart := range []string{"{b}x", "{c}y"} {
		pair[i].Claims = append(pair[i].Claims, weir.Claim{Key: apart, Limit: limit, Cost: 1})
		pair[i].Decisions = nil
	}
	store.DecideBatch(t.Context(), pair)
	wantAll(t, "of claims in several slots", pair, 1)
}
