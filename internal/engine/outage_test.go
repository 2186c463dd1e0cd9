package engine

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
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
		time.Sleep(maxRecovery)
		o.recover()
		time.Sleep(maxRecovery)
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

// TestForeignDataIsNoOutage: the store answers, and another program's key is named, once a minute.
func TestForeignDataIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		o := &outage{log: slog.New(slog.NewTextHandler(&log, nil)), mark: func(m telemetry.Mark) { t.Errorf("marked %v", m) }}
		v := &gate.Verdict{Reason: gate.StoreFailed, Err: fmt.Errorf("%w: key a", weir.ErrForeignState)}
		for range 100 {
			o.verdict(v)
			time.Sleep(time.Second)
		}
		if n := strings.Count(log.String(), "data that is not weir's"); n != 2 || strings.Contains(log.String(), "not responding") {
			t.Errorf("logged %d times in 100 s:\n%s", n, log.String())
		}
	})
}
