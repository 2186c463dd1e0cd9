package redisstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir/internal/deadline"
)

func TestBoundEndsInTime(t *testing.T) {
	const timeout = 50 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		b := newBound(timeout)
		for range 100 {
			start := time.Now()
			ctx, stop := b.limit(context.Background())
			end, ok := ctx.Deadline()
			if left := end.Sub(start); !ok || left > timeout*15/16 || left < timeout*14/16 {
				t.Fatalf("a call has %v, want 14/16 to 15/16 of %v", left, timeout)
			}
			stop()
			time.Sleep(timeout / 37)
		}
		ctx, stop := b.limit(context.Background())
		defer stop()
		<-ctx.Done()
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Errorf("the call ended with %v", ctx.Err())
		}
	})
}

func TestBoundIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBound(time.Second)
		one, _ := b.limit(context.Background())
		two, _ := b.limit(context.Background())
		time.Sleep(time.Second / 16)
		three, _ := b.limit(context.Background())
		if one != two || one == three {
			t.Error("calls share a context within a sixteenth of the timeout, and only there")
		}
		<-three.Done()
	})
}

func TestBoundKeepsTheCallersContext(t *testing.T) {
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		b := newBound(50 * time.Millisecond)
		early, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if ctx, _ := b.limit(early); ctx != early {
			t.Error("an earlier deadline is not the call's")
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if ctx, _ := b.limit(gone); ctx.Err() != context.Canceled {
			t.Errorf("a context that is over gives %v", ctx.Err())
		}
		traced, stop := b.limit(context.WithValue(t.Context(), key{}, "trace"))
		defer stop()
		if traced.Value(key{}) != "trace" {
			t.Error("the caller's values are lost")
		}
		<-traced.Done()
	})
}

func TestBoundOfALongTimeoutHeedsCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithCancel(t.Context())
		ctx, stop := newBound(deadline.Short + 1).limit(parent)
		defer stop()
		cancel()
		if ctx.Err() != context.Canceled {
			t.Errorf("after the caller left, the call's context says %v", ctx.Err())
		}
	})
}

func TestBoundAllocates(t *testing.T) {
	b := newBound(time.Hour)
	request, cancel := context.WithCancel(t.Context())
	defer cancel()
	b.Timeout = deadline.Short
	for _, c := range []struct {
		ctx  context.Context
		most float64
	}{{context.Background(), 0}, {request, 1}} {
		if n := testing.AllocsPerRun(1000, func() { b.limit(c.ctx) }); n > c.most {
			t.Errorf("%v: %v allocations a call, want at most %v", c.ctx, n, c.most)
		}
	}
}
