package redisstore

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
)

// asVersion makes a script's commands come from a Redis of another version, and its clock
// stand still. From 7.2 on numbers that a script hands to a command are not written by
// printf, and up to 7.2.4 whole ones with many zeros at their end in scientific notation.
const asVersion = `
local redis = {REDIS_VERSION_NUM = VERSION, error_reply = redis.error_reply, call = redis.call}
local function call(...)
  local words = {...}
  if words[1] == 'TIME' then return {NOW} end
  for i = 1, #words do
    local n = words[i]
    if VERSION >= 0x070200 and type(n) == 'number' then
      local digits = string.format('%.0f', math.abs(n))
      if #digits >= #digits:gsub('0+$', '') + 8 then words[i] = string.format('%.8e', n) end
    end
  end
  return redis.call(unpack(words))
end
`

// versioned is a Conn that runs scripts as a Redis of another version would.
type versioned struct {
	Conn
	version string
	now     time.Duration // since the epoch
}

func (v versioned) Run(ctx context.Context, s *Script, keys, args []string, reply []Value) ([]Value, error) {
	now := strconv.Itoa(int(v.now/time.Second)) + "," + strconv.Itoa(int(v.now%time.Second/time.Microsecond))
	head := strings.NewReplacer("VERSION", v.version, "NOW", now).Replace(asVersion)
	return v.Conn.Run(ctx, testScript(strings.Replace(s.Text, "local call = redis.call\n", head, 1)), keys, args, reply)
}

// State that expires at an instant with many zeros can be written. This one is a full hour.
func TestRoundInstants(t *testing.T) {
	const round = 3_600_000_000 * time.Second
	conn := open(t, redistest.Start(t).URL())
	for _, version := range []string{"0x070000", "0x070204"} {
		for _, before := range []time.Duration{time.Second, time.Second + time.Millisecond, 2 * time.Second} {
			store, err := New(versioned{conn, version, round - before}, WithTimeout(time.Minute), WithPrefix(version+before.String()))
			if err != nil {
				t.Fatal(err)
			}
			for i, spec := range []weir.Spec{
				weir.PerSecond(1), weir.GCRA(7, 7, time.Second), weir.TokenBucket{Capacity: 7, Refill: 1, Period: time.Second, Mode: weir.Step},
				weir.FixedWindow{Limit: 7, Window: time.Second}, weir.FixedWindow{Limit: 7, Window: time.Hour, Anchor: weir.Epoch},
				weir.Calendar{Limit: 7, Unit: weir.Hour}, weir.SlidingLog{Limit: 7, Window: time.Second},
				weir.SlidingCounter{Limit: 7, Window: time.Second, Slices: 1}, weir.Concurrency{Limit: 7, TTL: time.Second},
			} {
				useUp(t, store, weir.MustLimit("limit"+strconv.Itoa(i), spec))
			}
		}
	}
}

// useUp charges keys of a limit, alone and in a batch, gives back and finds what is left.
func useUp(t *testing.T, store *Store, limit *weir.Limit) {
	t.Helper()
	for _, units := range []int64{1, limit.Most() - 1} {
		if units == 0 {
			continue
		}
		requests := make([]weir.Request, 2)
		for i := range requests {
			c := weir.Claim{Key: strconv.Itoa(i) + ":" + strconv.Itoa(int(units)), Limit: limit, Cost: units}
			if limit.Algorithm() == weir.AlgorithmConcurrency {
				c.Lease = weir.NewLeaseID()
			}
			requests[i] = weir.Request{Claims: []weir.Claim{c}, Times: 1, Decisions: make([]weir.Decision, 1)}
			if granted, err := store.Decide(t.Context(), requests[i].Claims, 1, requests[i].Decisions); err != nil || granted != 1 {
				t.Fatalf("%s: granted %d, error %v", limit, granted, err)
			}
			at := requests[i].Decisions[0].At
			if err := store.Refund(t.Context(), requests[i].Claims, at, requests[i].Decisions); err != nil || requests[i].Decisions[0].Remaining != limit.Most() {
				t.Fatalf("%s: %d remain after all was given back, error %v", limit, requests[i].Decisions[0].Remaining, err)
			}
		}
		store.DecideBatch(t.Context(), requests)
		for i := range requests {
			if r := &requests[i]; r.Err != nil || r.Granted != 1 || r.Decisions[0].Remaining != limit.Most()-units {
				t.Fatalf("%s, in a batch: granted %d, error %v, %d remain", limit, r.Granted, r.Err, r.Decisions[0].Remaining)
			}
		}
	}
}
