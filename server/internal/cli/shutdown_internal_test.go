package cli

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir/rules"
)

// shutDown sends SIGTERM to front ends, and returns the error and the time that it took.
func shutDown(timeout time.Duration, frontEnds ...frontEnd) (time.Duration, error) {
	var text bytes.Buffer
	l := &lifecycle{frontEnds: frontEnds, unready: func() {}, log: slog.New(slog.NewTextHandler(&text, nil))}
	l.set(&rules.Server{ShutdownTimeout: timeout})
	signals := make(chan os.Signal, 2)
	signals <- syscall.SIGTERM
	began := time.Now()
	err := l.run(signals)
	return time.Since(began), err
}

func front(name string, shutdown func(context.Context) int) frontEnd {
	return frontEnd{name: name, serve: func() error { return nil }, drain: func() {}, shutdown: shutdown, cut: func() {}}
}

// TestShutdownEndsThoughAFrontEndHangs, and tells the time that really passed.
func TestShutdownEndsThoughAFrontEndHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		defer close(hang)
		hangs := front("grpc", func(context.Context) int {
			<-hang
			return 0
		})
		works := front("http", func(context.Context) int { return 0 })
		took, err := shutDown(10*time.Second, works, hangs)
		if want := "grpc (hangs): requests in flight were cut off after 11s"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if took != 11*time.Second {
			t.Errorf("it took %v", took)
		}
		early := front("http", func(context.Context) int {
			time.Sleep(2 * time.Second)
			return 3
		})
		_, err = shutDown(10*time.Second, early)
		if want := "http (3): requests in flight were cut off after 2s"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	})
}

// TestClosingEndsThoughTheStoreHangs, by itself and at once after a signal.
func TestClosingEndsThoughTheStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		defer close(hang)
		hangs := func() error {
			<-hang
			return nil
		}
		signals := make(chan os.Signal, 1)
		began := time.Now()
		if err := bounded(hangs, closeTime, signals); err == nil || !strings.Contains(err.Error(), "did not close within 10s") {
			t.Error(err)
		}
		if took := time.Since(began); took != closeTime {
			t.Errorf("it took %v", took)
		}
		signals <- syscall.SIGTERM
		if err := bounded(hangs, closeTime, signals); err == nil || time.Since(began) != closeTime {
			t.Errorf("after a signal: %v after %v", err, time.Since(began))
		}
		failure := errors.New("disk full")
		if err := bounded(func() error { return failure }, closeTime, signals); err != failure {
			t.Error(err)
		}
	})
}
