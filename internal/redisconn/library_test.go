package redisconn

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
)

// broken is a client library that panics, and does not end.
type broken struct{ rueidis.Client }

func (broken) Do(context.Context, rueidis.Completed) rueidis.RedisResult {
	panic("makeslice: len out of range")
}
func (broken) Close() { select {} }

// TestLibraryThatPanicsIsReplaced: the call is an error, later ones are answered, and Close ends.
func TestLibraryThatPanicsIsReplaced(t *testing.T) {
	c := open(t, redistest.Start(t).URL(), Config{})
	mustRun(t, c, "k")
	c.live.Store(&library{broken{c.live.Load().Client}})
	if _, err := run(t, c, "k"); !errors.Is(err, weir.ErrUnavailable) {
		t.Errorf("a panic of the library is %v", err)
	}
	redistest.Await(t, "another library", func() bool {
		_, err := run(t, c, "k")
		return err == nil
	})
}

// TestCloseDoesNotWaitForTheLibrary: SIGTERM ends a program whose library hangs.
func TestCloseDoesNotWaitForTheLibrary(t *testing.T) {
	c := open(t, redistest.Start(t).URL(), Config{})
	t.Parallel()
	c.live.Store(&library{broken{c.live.Load().Client}})
	done := make(chan struct{})
	go func() {
		c.Close()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("Close waits for a library that does not end")
	}
}
