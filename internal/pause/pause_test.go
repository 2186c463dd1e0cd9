package pause_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir/internal/pause"
)

func TestForEndsWithItsTimeOrWithDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		for _, test := range []struct {
			d, closed, want time.Duration
			passed          bool
		}{{-1, time.Hour, 0, true}, {0, time.Hour, 0, true}, {time.Second, time.Hour, time.Second, true},
			{time.Hour, time.Second, time.Second, false}} {
			began := time.Now()
			timer := time.AfterFunc(test.closed, func() { close(done) })
			passed := pause.For(test.d, done)
			timer.Stop()
			if took := time.Since(began); passed != test.passed || took != test.want {
				t.Errorf("For(%v), with an end after %v, is %v after %v", test.d, test.closed, passed, took)
			}
		}
	})
}
