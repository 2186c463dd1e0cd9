package redisstore

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
)

// Redis' clock chooses the period of a calendar, even for a caller whose own is a year off.
func TestCalendarOfACallerWithAWrongClock(t *testing.T) {
	ctx := context.Background()
	store, err := Open(ctx, redistest.Start(t).URL(), WithTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	claims := []weir.Claim{{Key: "key", Cost: 1, Limit: weir.MustLimit("test", weir.Calendar{Limit: 3, Unit: weir.Year})}}
	decisions := make([]weir.Decision, 1)
	right := store.clock
	for want, off := range []int64{0, -3, 3} {
		store.clock = func() int64 { return right() + off*366*24*3600*1e6 }
		granted, err := store.Decide(ctx, claims, 1, decisions)
		if err != nil || granted != 1 || decisions[0].Remaining != int64(2-want) {
			t.Errorf("a clock %d years off: granted %d, %d remain, error %v", off, granted, decisions[0].Remaining, err)
		}
		pair := []weir.Request{{Claims: claimOf("one", claims[0].Limit), Times: 1}, {Claims: claimOf("other", claims[0].Limit), Times: 1, Decisions: decisions}}
		store.DecideBatch(ctx, pair)
		for i := range pair {
			if pair[i].Err != nil || pair[i].Granted != 1 || decisions[0].Remaining != int64(2-want) {
				t.Errorf("a clock %d years off, request %d: granted %d, %d remain, error %v", off, i, pair[i].Granted, decisions[0].Remaining, pair[i].Err)
			}
		}
	}
}

// TestCalendarOfAClockInTheNextPeriodIsOneCall: around the turn of a period many clocks are in the one before or after.
func TestCalendarOfAClockInTheNextPeriodIsOneCall(t *testing.T) {
	server := redistest.Start(t)
	store, err := Open(t.Context(), server.URL(), WithTimeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	claims := claimOf("key", weir.MustLimit("test", weir.Calendar{Limit: 3, Unit: weir.Year}))
	right := store.clock
	for _, off := range []int64{0, -1, 1} {
		store.clock = func() int64 { return right() + off*365*24*3600*1e6 }
		server.Do("CONFIG", "RESETSTAT")
		granted, err := store.Decide(t.Context(), claims, 1, nil)
		scripts := server.Info("commandstats")["cmdstat_evalsha"]
		if granted != 1 || err != nil || off != 0 && !strings.HasPrefix(scripts, "calls=1,") {
			t.Errorf("a clock %d years off: granted %d by the scripts %q, error %v", off, granted, scripts, err)
		}
	}
}

func claimOf(key string, limit *weir.Limit) []weir.Claim {
	return []weir.Claim{{Key: key, Limit: limit, Cost: 1}}
}
