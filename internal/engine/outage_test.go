package engine

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir/internal/telemetry"
)

// TestUnsteadyStoreIsOneOutage checks that a store which fails every two seconds for ten minutes is reported a few
// times, and that a steady one is reported as recovered after a second.
func TestUnsteadyStoreIsOneOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kinds []string
		o := &outage{log: slog.New(slog.NewTextHandler(io.Discard, nil)),
			mark: func(m telemetry.Mark) { kinds = append(kinds, m.Kind) }}
		for range 300 {
			o.fail(context.DeadlineExceeded)
			time.Sleep(1900 * time.Millisecond)
			o.recover()
			time.Sleep(100 * time.Millisecond)
		}
		if want := []string{"degraded", "recovered", "degraded"}; !slices.Equal(kinds, want) {
			t.Errorf("300 failures in ten minutes are told as %v, want %v", kinds, want)
		}
		time.Sleep(longestRecovery)
		o.recover()
		time.Sleep(longestRecovery)
		kinds = nil
		o.fail(context.DeadlineExceeded)
		o.recover()
		time.Sleep(recoveredAfter)
		o.recover()
		if want := []string{"degraded", "recovered"}; !slices.Equal(kinds, want) {
			t.Errorf("an outage after a steady minute is told as %v, want %v", kinds, want)
		}
	})
}
