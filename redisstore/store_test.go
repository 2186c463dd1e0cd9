package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/stories"
	"github.com/weirproject/weir/internal/redisslot"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/redisstore"
	"github.com/weirproject/weir/storetest"
)

// redis is one server or a cluster, as the suite needs it.
type redis struct {
	url   string
	owner func(key string) *redistest.Server
	all   []*redistest.Server
}

func single(t testing.TB) redis {
	server := redistest.Start(t)
	return redis{server.URL(), func(string) *redistest.Server { return server }, []*redistest.Server{server}}
}

func clustered(t testing.TB) redis {
	cluster := redistest.StartCluster(t, 3, 0)
	owner := func(key string) *redistest.Server { return cluster.Owner(int(redisslot.Of(key))) }
	return redis{cluster.URL(), owner, cluster.Nodes}
}

func (r redis) open(t testing.TB, options ...redisstore.Option) *redisstore.Store {
	t.Helper()
	store, err := redisstore.Open(context.Background(), r.url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

// subject opens stores with prefixes of their own, patient ones: a busy machine stands still for seconds.
func (r redis) subject(t testing.TB, clock func() weir.Instant) storetest.Handle {
	prefix := weir.NewLeaseID() + ":"
	options := []redisstore.Option{redisstore.WithPrefix(prefix), redisstore.WithTimeout(time.Minute), redisstore.WithClock(clock)}
	store := r.open(t, options...)
	return storetest.Handle{
		Store:   store,
		Peer:    func() weir.Store { return r.open(t, options...) },
		Foreign: r.foreign(store),
		Keys:    func() (live, everlasting int) { return r.count(prefix) },
		Work:    r.work,
	}
}

// foreign plants what another program, or a newer weir, might keep under a key.
func (r redis) foreign(store *redisstore.Store) map[string]func(weir.Claim) func() bool {
	plants := make(map[string]func(weir.Claim) func() bool)
	for name, command := range map[string][]string{
		"a counter":     {"SET", "", "17"},
		"a fraction":    {"SET", "", "-1.5"},
		"a text":        {"SET", "", "garbage"},
		"a newer state": {"SET", "", "9\x01\x02\x03\x04\x05\x06\x07\x08\x01\x02\x03\x04\x05\x06\x07\x08"},
		"a hash":        {"HSET", "", "tokens", "5"},
		"a list":        {"RPUSH", "", "one", "two", "three"},
		"a sorted set":  {"ZADD", "", "1", "member"},
	} {
		plants[name] = func(c weir.Claim) func() bool {
			key := redisstore.KeyOf(store, &c)
			server := r.owner(key)
			server.Do("DEL", key)
			server.Do(append([]string{command[0], key}, command[2:]...)...)
			before := server.Do("DUMP", key)
			return func() bool { return server.Do("DUMP", key) == before }
		}
	}
	return plants
}

// count counts in Redis: a command for each of 70,000 keys takes too long. Keys that byBatches made up do not count.
func (r redis) count(prefix string) (live, everlasting int) {
	const script = `local live, everlasting = 0, 0
for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
  local ttl = redis.call('PTTL', key)
  if ttl ~= -2 and not key:find(ARGV[2], 1, true) then live = live + 1 end
  if ttl == -1 then everlasting = everlasting + 1 end
end
return {live, everlasting}`
	for _, server := range r.all {
		counts := server.Do("EVAL", script, "0", prefix, beside).([]any)
		live += int(counts[0].(int64))
		everlasting += int(counts[1].(int64))
	}
	return live, everlasting
}

func TestVectors(t *testing.T)          { storetest.Vectors(t, single(t).subject) }
func TestStore(t *testing.T)            { storetest.Run(t, single(t).subject) }
func TestVectorsOnCluster(t *testing.T) { storetest.Vectors(t, clustered(t).subject) }
func TestStoreOnCluster(t *testing.T)   { storetest.Run(t, clustered(t).subject) }

func TestCosts(t *testing.T) { storetest.Costs(t, single(t).subject) }

// work is what scripts have cost, by Redis' own account.
func (r redis) work() (w storetest.Work) {
	var usec int64
	for _, server := range r.all {
		if _, err := fmt.Sscanf(server.Info("commandstats")["cmdstat_evalsha"], "calls=%d,usec=%d", &w.Calls, &usec); err != nil {
			return storetest.Work{} // none yet
		}
	}
	w.Time = time.Duration(usec) * time.Microsecond
	return w
}

func TestStories(t *testing.T) {
	r := single(t)
	stories.Run(t, func(t testing.TB, clock func() weir.Instant) weir.Store { return r.subject(t, clock) })
}

// claimsApart are claims of keys that live on all three masters.
func claimsApart(limits ...*weir.Limit) []weir.Claim {
	claims := make([]weir.Claim, len(limits))
	for i, limit := range limits {
		claims[i] = weir.Claim{Key: fmt.Sprintf("key-%d", i), Limit: limit, Cost: 1}
		if limit.Algorithm() == weir.AlgorithmConcurrency {
			claims[i].Lease = weir.NewLeaseID()
		}
	}
	return claims
}

// A decision may have as many claims of any algorithm as of another.
// TestClaimsOfAllKindsFitAScript: the functions that twins share take room for locals too.
func TestClaimsOfAllKindsFitAScript(t *testing.T) {
	store := single(t).open(t, redisstore.WithTimeout(time.Minute))
	specs := []weir.Spec{weir.SlidingCounter{Limit: 50, Window: time.Hour, Slices: 10},
		weir.SlidingLog{Limit: 50, Window: time.Hour}, weir.Concurrency{Limit: 50, TTL: time.Hour}}
	for n := 2; n <= 14; n++ {
		for most, spec := range specs { // of this kind all claims but two
			var claims []weir.Claim
			for i := range n + 1 {
				if i > 0 && i < len(specs) {
					spec = specs[(most+i)%len(specs)]
				} else {
					spec = specs[most]
				}
				claims = append(claims, claimsApart(weir.MustLimit(fmt.Sprint("fit-", most), spec))[0])
				claims[i].Key = fmt.Sprint("key-", n, "-", i)
			}
			granted, err := store.Decide(t.Context(), claims, 1, nil)
			if err != nil || granted != 1 {
				t.Fatalf("%d claims, most of %v: granted %d, %v", n, specs[most], granted, err)
			}
			if err := store.Charge(t.Context(), claims, nil); err != nil {
				t.Errorf("%d claims, most of %v: charge: %v", n, specs[most], err)
			}
			if err := store.Refund(t.Context(), claims, 0, nil); err != nil {
				t.Errorf("%d claims, most of %v: refund: %v", n, specs[most], err)
			}
		}
	}
}

func TestMostClaims(t *testing.T) {
	store := single(t).open(t, redisstore.WithTimeout(time.Minute))
	for n, spec := range []weir.Spec{
		weir.PerHour(5), weir.GCRA(5, 7, time.Hour), weir.TokenBucket{Capacity: 5, Refill: 1, Period: time.Hour, Mode: weir.Step},
		weir.FixedWindow{Limit: 5, Window: time.Hour}, weir.SlidingLog{Limit: 5, Window: time.Hour},
		weir.SlidingCounter{Limit: 5, Window: time.Hour, Slices: 10}, weir.Concurrency{Limit: 5, TTL: time.Hour},
	} {
		claims := make([]weir.Claim, weir.MaxClaims)
		for i := range claims {
			claims[i] = claimsApart(weir.MustLimit(fmt.Sprint("most-", n), spec))[0]
			claims[i].Key = fmt.Sprint("key-", i)
		}
		left := func(want int64) {
			t.Helper()
			decisions := make([]weir.Decision, len(claims))
			if _, err := store.Decide(t.Context(), claims, 0, decisions); err != nil {
				t.Fatalf("%s: %v", spec, err)
			}
			for i, d := range decisions {
				if d.Remaining != want {
					t.Errorf("%s: %d remain of key %d, want %d", spec, d.Remaining, i, want)
				}
			}
		}
		granted, err := store.Decide(t.Context(), claims, 1, nil)
		if err != nil || granted != 1 {
			t.Fatalf("%s: granted %d, error %v", spec, granted, err)
		}
		left(4)
		refund, charge := store.Refund(t.Context(), claims, 0, nil), store.Charge(t.Context(), claims, nil)
		if refund != nil || charge != nil {
			t.Fatalf("%s: errors %v, %v", spec, refund, charge)
		}
		for i := range claims {
			claims[i].Delay = time.Hour
		}
		if err := store.Refund(t.Context(), claims, 0, nil); err != nil && spec.String() != "concurrency 5 ttl 1h" {
			t.Fatalf("%s: of grants that wait: %v", spec, err)
		}
	}
}

// Units of a request that one slot refuses are given back by the others.
func TestClusterGivesBack(t *testing.T) {
	t.Parallel()
	store := clustered(t).open(t, redisstore.WithTimeout(time.Minute))
	claims := claimsApart(
		weir.MustLimit("a", weir.PerHour(10)),
		weir.MustLimit("b", weir.FixedWindow{Limit: 3, Window: time.Hour}),
		weir.MustLimit("c", weir.SlidingLog{Limit: 10, Window: time.Hour}),
		weir.MustLimit("d", weir.SlidingCounter{Limit: 10, Window: time.Hour, Slices: 10}),
	)
	decisions := make([]weir.Decision, len(claims))
	granted, err := store.Decide(t.Context(), claims, 5, decisions)
	if err != nil || granted != 3 {
		t.Fatalf("granted %d of 5, error %v; want 3", granted, err)
	}
	for i, want := range []int64{7, 0, 7, 7} {
		if decisions[i].Remaining != want {
			t.Errorf("claim %d: %d remain, want %d", i, decisions[i].Remaining, want)
		}
	}
	if granted, err := store.Decide(t.Context(), claims, 1, decisions); err != nil || granted != 0 {
		t.Fatalf("granted %d, error %v; the second limit is exhausted", granted, err)
	}
	for i, want := range []int64{7, 0, 7, 7} {
		if decisions[i].Remaining != want {
			t.Errorf("after the refusal, claim %d: %d remain, want %d", i, decisions[i].Remaining, want)
		}
	}
}

// Where most decisions over several slots are refused, as in an attack, a refusal charges nothing
// anywhere, and what is granted is charged once.
func TestClusterRefusalsWriteNothing(t *testing.T) {
	t.Parallel()
	r := clustered(t)
	store := r.open(t, redisstore.WithTimeout(time.Minute))
	claims := claimsApart(
		weir.MustLimit("a", weir.SlidingLog{Limit: 1000, Window: time.Hour}),
		weir.MustLimit("b", weir.FixedWindow{Limit: 1, Window: time.Hour}),
		weir.MustLimit("c", weir.PerHour(1000)),
	)
	decisions := make([]weir.Decision, len(claims))
	decide := func(want int64) {
		t.Helper()
		if granted, err := store.Decide(t.Context(), claims, 1, decisions); err != nil || granted != want {
			t.Fatalf("granted %d, error %v; want %d", granted, err, want)
		}
	}
	decide(1)
	for range 8 { // it learns
		decide(0)
	}
	writes := func() (n int) {
		for _, node := range r.all {
			changes, err := strconv.Atoi(node.Info("persistence")["rdb_changes_since_last_save"])
			if err != nil {
				t.Fatal(err)
			}
			n += changes
		}
		return n
	}
	before := writes()
	for range 50 {
		decide(0)
		if decisions[0].Remaining != 999 || decisions[1].Remaining != 0 || decisions[2].Remaining != 999 {
			t.Fatalf("remain %v", decisions)
		}
	}
	if n := writes() - before; n != 0 {
		t.Errorf("50 refusals wrote %d times", n)
	}
	claims[1].Key = "key-1b"
	decide(1)
	if decisions[0].Remaining != 998 {
		t.Errorf("%d remain after the second grant, want 998", decisions[0].Remaining)
	}
}

// A lease that was held before a refused decision is held after it; a new one is not.
func TestClusterGivesLeasesBack(t *testing.T) {
	t.Parallel()
	store := clustered(t).open(t, redisstore.WithTimeout(time.Minute))
	held := weir.MustLimit("held", weir.Concurrency{Limit: 5, TTL: time.Hour})
	claims := claimsApart(held, weir.MustLimit("b", weir.PerHour(1)))
	decisions := make([]weir.Decision, 2)
	for want, lease := range []string{"first", "second", "first"} {
		claims[0].Lease = lease
		granted, err := store.Decide(t.Context(), claims, 1, decisions)
		if err != nil || granted != int64(1-min(want, 1)) {
			t.Fatalf("%s: granted %d, error %v", lease, granted, err)
		}
		if decisions[0].Remaining != 4 {
			t.Errorf("after %s %d remain; only the first was granted", lease, decisions[0].Remaining)
		}
	}
}

// Many callers of limits in several slots never get more than each limit has, and what
// was not granted is free again when all is quiet.
func TestClusterNeverAdmitsTooMuch(t *testing.T) {
	t.Parallel()
	store := clustered(t).open(t, redisstore.WithTimeout(time.Minute))
	claims := claimsApart(
		weir.MustLimit("a", weir.FixedWindow{Limit: 100, Window: time.Hour}),
		weir.MustLimit("b", weir.FixedWindow{Limit: 60, Window: time.Hour}),
		weir.MustLimit("c", weir.FixedWindow{Limit: 80, Window: time.Hour}),
	)
	var granted atomic.Int64
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			for range 20 {
				n, err := store.Decide(context.Background(), claims, 1, nil)
				if err != nil {
					t.Error(err)
					return
				}
				granted.Add(n)
			}
		})
	}
	group.Wait()
	if granted.Load() > 60 {
		t.Errorf("%d were granted, the second limit has 60", granted.Load())
	}
	decisions := make([]weir.Decision, len(claims))
	if _, err := store.Decide(t.Context(), claims, 0, decisions); err != nil {
		t.Fatal(err)
	}
	for i, limit := range []int64{100, 60, 80} {
		if left := decisions[i].Remaining; left != limit-granted.Load() {
			t.Errorf("limit %d: %d remain of %d after %d grants", i, left, limit, granted.Load())
		}
	}
}

// The limits of one key share a slot; a key may choose its slot by a hash tag, and no two keys become one by it.
func TestKeysAndSlots(t *testing.T) {
	store := single(t).open(t)
	login, sms := weir.MustLimit("login", weir.PerMinute(5)), weir.MustLimit("sms", weir.SlidingLog{Limit: 1, Window: time.Minute})
	key := func(limit *weir.Limit, key string) string {
		return redisstore.KeyOf(store, &weir.Claim{Key: key, Limit: limit})
	}
	for _, name := range []string{"ip:1", "{a}", "a}b", "}", "{}", "{}x", "{a", "x{y}z"} {
		if a, b := redisslot.Of(key(login, name)), redisslot.Of(key(sms, name)); a != b && name[0] != '}' && name[0] != '{' {
			t.Errorf("%q: its limits are in slots %d and %d", name, a, b)
		}
	}
	if a, b := key(login, "{tenant-7}:a"), key(sms, "{tenant-7}:b"); redisslot.Of(a) != redisslot.Of(b) {
		t.Errorf("%s and %s share a hash tag, but not their slot", a, b)
	}
	seen := make(map[string]string)
	for _, name := range []string{"a", "{a}", "{{a}}", "a}", "{a", "/{a}", ":{a}"} {
		if other, twice := seen[key(login, name)]; twice {
			t.Errorf("%q and %q are one key", name, other)
		}
		seen[key(login, name)] = name
	}
}

// A Redis that stops answering costs a caller the timeout, and no unit is charged twice when it comes back.
func TestStoppedRedis(t *testing.T) {
	r := single(t)
	server := r.owner("")
	store := r.open(t, redisstore.WithTimeout(100*time.Millisecond))
	l, err := weir.New(store, "test", weir.FixedWindow{Limit: 10, Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	redistest.Await(t, "the script is loaded", func() bool {
		_, err := l.Peek(t.Context(), "key")
		return err == nil
	})
	server.Stop()
	for range 3 {
		if _, err := l.Allow(t.Context(), "key"); !errors.Is(err, weir.ErrUnavailable) {
			t.Errorf("a stopped Redis: %v", err)
		}
	}
	server.Cont()
	redistest.Await(t, "Redis answers again", func() bool {
		answer, err := l.Peek(context.Background(), "key")
		return err == nil && answer.Remaining >= 7
	})
}
