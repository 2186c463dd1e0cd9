//go:build unix

package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirproject/weir/internal/redistest"
)

// TestARegisterIsBounded: it forgets what ends first, looks through itself for few of its entries,
// and is gone when all of it has ended.
func TestARegisterIsBounded(t *testing.T) {
	server, ctx := redistest.Start(t), t.Context()
	s, err := Open(ctx, server.URL(), WithTimeout(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range maxRegister + 150 {
		if err := s.Register(ctx, "bans", fmt.Sprint("rule key-", i), fmt.Sprint(i), time.Hour+time.Duration(i)*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	notes, err := s.Registered(ctx, "bans")
	if err != nil || len(notes) > maxRegister || len(notes) < maxRegister-maxRegister/10 || notes["rule key-0"] != "" || notes["rule key-1149"] != "1149" {
		t.Errorf("%d notes, %v", len(notes), err)
	}
	stats := server.Info("commandstats")["cmdstat_hgetall"] // calls=3,usec=…
	var calls int
	if _, err := fmt.Sscanf(stats, "calls=%d,", &calls); err != nil || calls > 5 {
		t.Errorf("the register was looked through %d times: %q", calls, stats)
	}
	if err := s.Register(ctx, "bans", "rule key-1149", "", 0); err != nil {
		t.Fatal(err)
	}
	if notes, err = s.Registered(ctx, "bans"); err != nil || notes["rule key-1149"] != "" {
		t.Errorf("%q, %v", notes["rule key-1149"], err)
	}
	if err := s.Register(ctx, "short", "a", "b", time.Millisecond); err != nil {
		t.Fatal(err)
	}
	redistest.Await(t, "the end of the register", func() bool { return server.Do("EXISTS", "weir:register:{short}") == int64(0) })
}
