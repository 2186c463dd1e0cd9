package redisconn

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestValve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := valve{gap: 10 * time.Millisecond, born: time.Now()}
		for range lostLimit {
			if !v.enter() {
				t.Fatal("it shut too early")
			}
			v.gaveUp()
		}
		entered := 0
		for range 100 { // 100 ms with ten calls in each
			for range 10 {
				if v.enter() {
					entered++
				}
			}
			time.Sleep(time.Millisecond)
		}
		if entered != 10 {
			t.Errorf("%d calls tried in 100ms, want one in 10ms", entered)
		}
		v.answered()
		for range 2 {
			if !v.enter() {
				t.Error("it stays shut after an answer")
			}
		}
	})
}
