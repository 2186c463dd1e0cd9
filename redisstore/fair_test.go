package redisstore_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

// TestMembersOfABatchAreToldApart asks for two members of two keys in one call: arguments that are the same for all
// requests are sent once.
func TestMembersOfABatchAreToldApart(t *testing.T) {
	limit := weir.MustLimit("shared", weir.Fair{Of: weir.FixedWindow{Limit: 10, Window: time.Hour}})
	handle := single(t).subject(t, func() weir.Instant { return 1_790_000_000_000_000 })
	batcher := handle.Store.(weir.Batcher)
	ask := func(key, member string, d []weir.Decision) weir.Request {
		claims := []weir.Claim{{Key: key, Limit: limit, Cost: 3, Member: member}}
		return weir.Request{Claims: claims, Times: 1, Decisions: d}
	}
	var d [4][1]weir.Decision
	requests := []weir.Request{ask("a", "x", d[0][:]), ask("b", "y", d[1][:])}
	batcher.DecideBatch(context.Background(), requests)
	requests = []weir.Request{ask("a", "y", d[2][:]), ask("b", "y", d[3][:])}
	batcher.DecideBatch(context.Background(), requests)
	// On a two members share 10 units: y may have 2 more. On b there is y alone.
	for i, want := range []int64{7, 7, 2, 4} {
		if d[i][0].Remaining != want {
			t.Errorf("request %d: %d remain, want %d", i, d[i][0].Remaining, want)
		}
	}
}

// TestCommandsOfAFairDecision: a window that members share is read by one command and written by one, as a window is. A
// lease of a known member takes two commands more than another.
func TestCommandsOfAFairDecision(t *testing.T) {
	redis := single(t)
	store, ctx := redis.open(t), context.Background()
	limit := func(name string, of weir.Spec) *weir.Limit {
		return weir.MustLimit(name, weir.Fair{Of: of, MaxKeys: 100})
	}
	window := weir.Claim{Key: "k", Limit: limit("w", weir.FixedWindow{Limit: 10, Window: time.Hour}), Cost: 1, Member: "a"}
	lease := weir.Claim{Key: "k", Limit: limit("l", weir.Concurrency{Limit: 10, TTL: time.Hour}), Cost: 1, Member: "a"}
	decide := func(c weir.Claim, cost int64, id string) func() {
		return func() {
			c.Cost, c.Lease = cost, id
			if _, err := store.Decide(ctx, []weir.Claim{c}, 1, make([]weir.Decision, 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	decide(window, 1, "")()
	decide(lease, 1, "first")()
	for _, test := range []struct {
		name string
		call func()
		want map[string]int64
	}{
		{"grant", decide(window, 1, ""), map[string]int64{"time": 1, "hmget": 1, "hset": 1}},
		{"refusal", decide(window, 11, ""), map[string]int64{"time": 1, "hmget": 1}},
		{"lease", decide(lease, 1, "second"), map[string]int64{"time": 1, "zmscore": 2, "zrange": 1,
			"zrangebyscore": 1, "zcard": 1, "zcount": 1, "zadd": 2, "pexpireat": 1}},
	} {
		if got := redis.commands(test.call); !maps.Equal(got, test.want) {
			t.Errorf("%s: commands %v, want %v", test.name, got, test.want)
		}
	}
}

// commands are the commands that the scripts of a call execute, by their number.
func (r redis) commands(call func()) map[string]int64 {
	before := r.all[0].Info("commandstats")
	call()
	count := map[string]int64{}
	for name, text := range r.all[0].Info("commandstats") {
		name = strings.TrimPrefix(name, "cmdstat_")
		if n := callsIn(text) - callsIn(before["cmdstat_"+name]); n > 0 && !slices.Contains(notOfScripts, name) {
			count[name] = n
		}
	}
	return count
}

// notOfScripts are the commands that a client sends.
var notOfScripts = []string{"evalsha", "info", "script|load", "hello", "client|setinfo"}

func callsIn(text string) (n int64) {
	fmt.Sscanf(text, "calls=%d", &n)
	return n
}
