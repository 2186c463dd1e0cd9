package redisstore_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/redisstore"
)

// lacking is by how many microseconds a key ends too early: the millisecond of a bucket's is the last in which it is
// there, and others live one longer.
const lacking = `local raw, ends, spare = redis.call('GET', KEYS[1]), 0, -1
if not raw then return 0 end
local form = raw:sub(1, 1)
if form == '-' then
  ends, spare = -raw, 1
elseif form == 'w' then
  local _, stop = struct.unpack('<i8i8', raw, 2)
  ends = stop
elseif form == 'c' then
  ends, spare = struct.unpack('<i8', raw, 2), 1
elseif form == '4' or form == '8' then
  local newest, width = struct.unpack('<i8i8', raw, 2)
  ends = (newest + (#raw - 25) / form) * width
end
return math.max(0, ends - (redis.call('PEXPIRETIME', KEYS[1]) + spare) * 1000)`

// Where a write keeps a key's time, the key lives as long as it would with one of its own: under changing limits, with
// refunds and settlements, by one call and in batches.
func TestKeysOutliveWhatTheyCount(t *testing.T) {
	t.Parallel()
	r := single(t)
	store := r.open(t, redisstore.WithTimeout(time.Minute))
	random := rand.New(rand.NewPCG(1, 2))
	for name, specs := range map[string][]weir.Spec{
		"bucket": {weir.PerSecond(1000), weir.GCRA(9, 1, time.Second), weir.GCRA(90, 7, 3*time.Millisecond),
			weir.TokenBucket{Capacity: 9, Refill: 2, Period: 5 * time.Millisecond, Mode: weir.Step}},
		"window":   {weir.FixedWindow{Limit: 5, Window: 3 * time.Millisecond}, weir.FixedWindow{Limit: 50, Window: time.Hour}},
		"epoch":    {weir.FixedWindow{Limit: 5, Window: 4 * time.Millisecond, Anchor: weir.Epoch}, weir.FixedWindow{Limit: 9, Window: time.Second}},
		"calendar": {weir.Calendar{Limit: 90, Unit: weir.Minute}, weir.Calendar{Limit: 90, Unit: weir.Day}},
		"counter": {weir.SlidingCounter{Limit: 99, Window: 9 * time.Millisecond, Slices: 3},
			weir.SlidingCounter{Limit: 1 << 40, Window: time.Hour, Slices: 6}, weir.SlidingCounter{Limit: 9, Window: 6 * time.Millisecond, Slices: 2}},
	} {
		taken := weir.Instant(0)
		for i := range 250 {
			limit := weir.MustLimit(name, specs[random.IntN(len(specs))])
			claims := []weir.Claim{{Key: "key", Limit: limit, Cost: 1 + random.Int64N(3)}}
			decisions := make([]weir.Decision, 1)
			var err error
			switch random.IntN(6) {
			case 0:
				claims[0].Settle = random.IntN(2) == 0
				err = store.Charge(t.Context(), claims, decisions)
			case 1:
				err = store.Refund(t.Context(), claims, taken, nil)
			case 2:
				requests := []weir.Request{{Claims: claims, Times: 1, Decisions: decisions}, askFor(limit, 1, "other")[0]}
				store.DecideBatch(t.Context(), requests)
				err = requests[0].Err
			default:
				_, err = store.Decide(t.Context(), claims, 1, decisions)
			}
			if err != nil {
				t.Fatal(err)
			}
			if at := decisions[0].At; at != 0 {
				taken = at
			}
			if n := r.all[0].Do("EVAL", lacking, "1", redisstore.KeyOf(store, &claims[0])); n != int64(0) {
				t.Fatalf("%s: after %d calls the key ends %d µs too early", name, i+1, n)
			}
		}
	}
}
