package redisstore

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/internal/redistest"
)

// asVersion makes a script's commands come from a Redis of another version, and its clock
// stand still. From 7.2 on numbers that a script hands to a command are not written by
// printf, and up to 7.2.4 whole ones with many zeros at their end in scientific notation.
const asVersion = `
local redis = {REDIS_VERSION_NUM = $version, error_reply = redis.error_reply, call = redis.call}
local function call(...)
  local words = {...}
  if words[1] == 'TIME' then return {$now} end
  for i = 1, #words do
    local n = words[i]
    if $version >= 0x070200 and type(n) == 'number' then
      local digits = string.format('%.0f', math.abs(n))
      if #digits >= #digits:gsub('0+$', '') + 8 then words[i] = string.format('%.8e', n) end
    end
  end
  return redis.call(unpack(words))
end
`

// versioned is a Conn that runs scripts as a Redis of another version would, and none may
// fail, also where the store would then ask by another.
type versioned struct {
	Conn
	t       *testing.T
	version string
	now     time.Duration // since the epoch
}

func (v versioned) Run(ctx context.Context, s *redisconn.Script, keys, args []string, reply []redisconn.Value) ([]redisconn.Value, error) {
	now := strconv.Itoa(int(v.now/time.Second)) + "," + strconv.Itoa(int(v.now%time.Second/time.Microsecond))
	head := strings.NewReplacer("$version", v.version, "$now", now).Replace(asVersion)
	reply, err := v.Conn.Run(ctx, redisconn.ScriptOf(strings.Replace(s.Text, "local call = redis.call\n", head, 1)), keys, args, reply)
	if err != nil {
		v.t.Errorf("version %s, keys %q: %v", v.version, keys, err)
	}
	return reply, err
}

// State that expires at an instant with many zeros can be written. This one is a full hour.
func TestRoundInstants(t *testing.T) {
	const round = 3_600_000_000 * time.Second
	conn, err := redisconn.Open(t.Context(), redistest.Start(t).URL(), redisconn.Config{Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, version := range []string{"0x070000", "0x070204"} {
		for _, before := range []time.Duration{142857 * time.Microsecond, time.Second, 2 * time.Second} {
			store, err := New(versioned{conn, t, version, round - before}, WithTimeout(time.Minute), WithPrefix(version+before.String()))
			if err != nil {
				t.Fatal(err)
			}
			for i, spec := range []weir.Spec{
				weir.PerSecond(1), weir.GCRA(7, 7, time.Second), weir.TokenBucket{Capacity: 7, Refill: 1, Period: time.Second, Mode: weir.Step},
				weir.FixedWindow{Limit: 7, Window: time.Second}, weir.FixedWindow{Limit: 7, Window: time.Hour, Anchor: weir.Epoch},
				weir.Calendar{Limit: 7, Unit: weir.Hour}, weir.SlidingLog{Limit: 7, Window: time.Second},
				weir.SlidingCounter{Limit: 7, Window: time.Second, Slices: 1}, weir.Concurrency{Limit: 7, TTL: time.Second},
			} {
				everyWay(t, store, weir.MustLimit("limit"+strconv.Itoa(i), spec))
			}
		}
	}
}

// everyWay writes state of a limit in every way that there is.
func everyWay(t *testing.T, store *Store, limit *weir.Limit) {
	t.Helper()
	claims, decisions, times := claimOf("key", limit), make([]weir.Decision, 1), 2
	pair := []weir.Request{
		{Claims: claimOf("one", limit), Times: 1, Decisions: make([]weir.Decision, 1)},
		{Claims: claimOf("other", limit), Times: 1, Decisions: make([]weir.Decision, 1)},
	}
	if limit.Algorithm() == weir.AlgorithmConcurrency {
		times = 1 // a lease is one
		claims[0].Lease, pair[0].Claims[0].Lease, pair[1].Claims[0].Lease = weir.NewLeaseID(), weir.NewLeaseID(), weir.NewLeaseID()
	}
	for range times {
		if err := store.Charge(t.Context(), claims, decisions); err != nil {
			t.Fatalf("%s: %v", limit, err)
		}
	}
	for range times {
		if err := store.Refund(t.Context(), claims, decisions[0].At, decisions); err != nil {
			t.Fatalf("%s: %v", limit, err)
		}
	}
	if left := decisions[0].Remaining; left != limit.Most() {
		t.Errorf("%s: %d remain after all was given back", limit, left)
	}
	if granted, err := store.Decide(t.Context(), claims, 1, decisions); err != nil || granted != 1 {
		t.Errorf("%s: granted %d, error %v", limit, granted, err)
	}
	store.DecideBatch(t.Context(), pair)
	for i := range pair {
		if r := &pair[i]; r.Err != nil || r.Granted != 1 || r.Decisions[0].Remaining != limit.Most()-1 {
			t.Errorf("%s, in a batch: granted %d, %d remain, error %v", limit, r.Granted, r.Decisions[0].Remaining, r.Err)
		}
	}
}
