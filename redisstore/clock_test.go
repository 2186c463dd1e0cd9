package redisstore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/internal/redistest"
)

// shifted is a connection to a Redis whose clock is ahead by a time.
type shifted struct {
	redisconn.Conn
	ahead time.Duration
}

func (s *shifted) Run(ctx context.Context, script *redisconn.Script, keys, args []string,
	reply []redisconn.Value) ([]redisconn.Value, error) {
	head := fmt.Sprintf(`local function call(command, ...)
  if command ~= 'TIME' then return redis.call(command, ...) end
  local time = redis.call('TIME')
  return {time[1] + %d, time[2]}
end
`, int64(s.ahead/time.Second))
	text := strings.Replace(script.Text, "local call = redis.call\n", head, 1)
	return s.Conn.Run(ctx, redisconn.ScriptOf(text), keys, args, reply)
}

// TestClockThatWasAhead: Redis' clock is thirty days ahead for a while. When it is right again nobody waits for longer
// than a limit can make one wait, whatever it is, alone and in a batch, and people are told.
func TestClockThatWasAhead(t *testing.T) {
	conn, err := redisconn.Open(t.Context(), redistest.Start(t).URL(), redisconn.Config{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	redis := &shifted{Conn: conn}
	var warned []string
	store, err := New(redis, WithTimeout(time.Minute), WithWarn(func(text string) { warned = append(warned, text) }))
	if err != nil {
		t.Fatal(err)
	}
	specs := map[weir.Spec]time.Duration{
		weir.PerMinute(10):           time.Minute,
		weir.GCRA(7, 7, time.Minute): time.Minute,
		weir.TokenBucket{Capacity: 5, Refill: 5, Period: time.Minute, Overdraft: 3}:    2 * time.Minute,
		weir.TokenBucket{Capacity: 7, Refill: 7, Period: time.Minute, Mode: weir.Step}: time.Minute,
		weir.FixedWindow{Limit: 7, Window: time.Minute}:                                time.Minute,
		weir.FixedWindow{Limit: 7, Window: time.Minute, Anchor: weir.Epoch}:            time.Minute,
		weir.Calendar{Limit: 7, Unit: weir.Hour}:                                       time.Hour,
		weir.SlidingLog{Limit: 7, Window: time.Minute}:                                 time.Minute,
		weir.SlidingCounter{Limit: 7, Window: time.Minute, Slices: 6}:                  2 * time.Minute,
		weir.Concurrency{Limit: 7, TTL: time.Minute}:                                   time.Minute,
	}
	limits := make(map[weir.Spec]*weir.Limit)
	for spec := range specs {
		limits[spec] = weir.MustLimit(fmt.Sprint("limit-", len(limits)), spec)
	}
	ask := func(key string, spec weir.Spec, n int) weir.Decision {
		t.Helper()
		claim := weir.Claim{Key: key, Limit: limits[spec], Cost: 1}
		if claim.Limit.Algorithm() == weir.AlgorithmConcurrency {
			claim.Lease = fmt.Sprint(key, n)
		}
		d := make([]weir.Decision, 1)
		if _, err := store.Decide(t.Context(), []weir.Claim{claim}, 1, d); err != nil {
			t.Fatal(err)
		}
		return d[0]
	}
	ask("first", weir.PerMinute(10), 0)
	redis.ahead = 30 * 24 * time.Hour
	for spec := range specs {
		for n := range 20 {
			ask("alone", spec, n)
			ask("batch", spec, n)
			ask("other", spec, n)
		}
	}
	redis.ahead = 0
	for spec, most := range specs {
		if wait := ask("alone", spec, 100).RetryAfter; wait > most {
			t.Errorf("%s: retry after %v, at most %v", spec, wait, most)
		}
		limit := limits[spec]
		requests := []weir.Request{
			{Claims: claimOf("batch", limit), Times: 1, Decisions: make([]weir.Decision, 1)},
			{Claims: claimOf("other", limit), Times: 1, Decisions: make([]weir.Decision, 1)},
		}
		for i := range requests {
			if limit.Algorithm() == weir.AlgorithmConcurrency {
				requests[i].Claims[0].Lease = weir.NewLeaseID()
			}
		}
		store.DecideBatch(t.Context(), requests)
		for i := range requests {
			if r := &requests[i]; r.Err != nil || r.Granted != 0 || r.Decisions[0].RetryAfter > most {
				t.Errorf("%s, in a batch: granted %d, retry after %v, at most %v, error %v", spec, r.Granted,
					r.Decisions[0].RetryAfter, most, r.Err)
			}
		}
	}
	if store.ClockSteps() != 2 || len(warned) != 1 || !strings.Contains(warned[0], "clock of Redis stepped") {
		t.Errorf("%d steps, told %q; want 2, and one told of them", store.ClockSteps(), warned)
	}
}
