package memstore_test

import (
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// A steppedClock is a store whose wall clock steps, from 2000-01-01 12:30:00 on.
type steppedClock struct {
	*testing.T
	store *memstore.Store
	step  atomic.Int64
	told  []string
}

func newSteppedClock(t *testing.T) *steppedClock {
	c := &steppedClock{T: t}
	time.Sleep(12*time.Hour + 30*time.Minute)
	c.store = memstore.New(memstore.WithWarn(func(text string) { c.told = append(c.told, text) }))
	memstore.SetWall(c.store, func(now time.Time) int64 { return now.UnixMicro() + c.step.Load() })
	return c
}

// steps sets the wall clock to so much more than the store's, and waits until it is looked at.
func (c *steppedClock) steps(ahead time.Duration) {
	c.step.Store(ahead.Microseconds())
	time.Sleep(time.Second)
}

// wants asks for a unit of a key, which is granted or not, and compares the time until the window ends.
func (c *steppedClock) wants(limit, key string, granted bool, resets time.Duration) {
	c.Helper()
	spec, err := weir.ParseLimit(limit)
	if err != nil {
		c.Fatal(err)
	}
	l, err := weir.New(c.store, strings.NewReplacer(" ", "-", "/", "-").Replace(limit), spec)
	if err != nil {
		c.Fatal(err)
	}
	answer, err := l.Allow(c.Context(), key)
	if err != nil || answer.Allowed != granted || answer.ResetAfter != resets {
		c.Errorf("%s of %s: %v, resets in %v, %v; want %v, %v", limit, key, answer.Allowed, answer.ResetAfter, err, granted, resets)
	}
}

// Windows of calendars and of the epoch follow the wall clock of a machine that started with a wrong one.
func TestWindowsFollowTheWallClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSteppedClock(t)
		const day, hour, own = "calendar 2/day", "fixed_window 2/1h epoch", "fixed_window 2/1h first"
		c.wants(day, "a", true, 11*time.Hour+30*time.Minute)
		c.wants(hour, "a", true, 30*time.Minute)
		c.wants(own, "a", true, time.Hour)
		c.steps(7*time.Hour + 45*time.Minute) // 20:15:01
		for _, key := range []string{"a", "b"} {
			c.wants(day, key, true, 3*time.Hour+45*time.Minute-time.Second)
		}
		c.wants(day, "a", false, 3*time.Hour+45*time.Minute-time.Second) // nothing is forgotten
		c.wants(hour, "b", true, 45*time.Minute-time.Second)
		c.wants(own, "a", true, time.Hour-time.Second)
		time.Sleep(44 * time.Minute)
		c.wants(hour, "b", true, time.Minute-time.Second)
		time.Sleep(time.Minute)
		c.wants(hour, "b", true, time.Hour-time.Second)
		time.Sleep(3 * time.Hour)
		c.wants(day, "a", true, 24*time.Hour-time.Second)
		if len(c.told) != 1 || !strings.Contains(c.told[0], "stepped by 7h45m0s") {
			t.Errorf("told %q", c.told)
		}
	})
}

// A wall clock that goes to and fro grants no more in a window.
func TestWindowsDoNotGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSteppedClock(t)
		const day = "calendar 1/day"
		c.wants(day, "a", true, 11*time.Hour+30*time.Minute)
		for i := range 10 {
			c.steps([...]time.Duration{-20 * time.Hour, 0, 3 * time.Hour}[i%3])
			ends := [...]time.Duration{7*time.Hour + 30*time.Minute, 11*time.Hour + 30*time.Minute, 8*time.Hour + 30*time.Minute}
			c.wants(day, "a", false, ends[i%3]-time.Duration(i+1)*time.Second)
		}
		if len(c.told) != 10 {
			t.Errorf("told %q", c.told)
		}
	})
}

// A clock that is kept right by little steps is followed once it is a second off. A snapshot has windows by the wall
// clock.
func TestSnapshotsHaveWindowsByTheWallClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSteppedClock(t)
		const day, hour = "calendar 1/day", "fixed_window 1/1h epoch"
		c.steps(900 * time.Millisecond)
		c.wants(day, "a", true, 11*time.Hour+30*time.Minute-time.Second)
		if len(c.told) > 0 {
			t.Errorf("told %q", c.told)
		}
		c.steps(7*time.Hour + 45*time.Minute) // 20:15:02
		c.wants(hour, "a", true, 45*time.Minute-2*time.Second)
		file := filepath.Join(t.TempDir(), "state")
		if err := c.store.Save(file); err != nil {
			t.Fatal(err)
		}
		time.Sleep(7*time.Hour + 45*time.Minute) // a new process, whose clock is right
		c.step.Store(0)
		c.store = memstore.New()
		if err := c.store.Load(file); err != nil {
			t.Fatal(err)
		}
		c.wants(day, "a", false, 3*time.Hour+45*time.Minute-2*time.Second)
		c.wants(hour, "a", false, 45*time.Minute-2*time.Second)
	})
}
