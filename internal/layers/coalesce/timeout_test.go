package coalesce_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/coalesce"
	"github.com/weirproject/weir/memstore"
)

// A frozen store never answers: each call ends with its own timeout, or its context.
type frozen struct {
	weir.Store
	timeout time.Duration
}

func (f *frozen) hang(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	<-ctx.Done()
	return weir.ErrUnavailable
}

func (f *frozen) Decide(ctx context.Context, _ []weir.Claim, _ int64, _ []weir.Decision) (int64, error) {
	return 0, f.hang(ctx)
}

func (f *frozen) DecideBatch(ctx context.Context, requests []weir.Request) {
	err := f.hang(ctx)
	for i := range requests {
		requests[i].Err = err
	}
}

// TestCallersDoNotWaitTwice: a caller that waited for a hanging call has the rest of its timeout.
func TestCallersDoNotWaitTwice(t *testing.T) {
	const timeout = 64 * time.Millisecond
	for _, keys := range []int{1, 100} {
		synctest.Test(t, func(t *testing.T) {
			s := coalesce.New(&frozen{memstore.New(), timeout * 15 / 16}, coalesce.Config{Timeout: timeout})
			limit := weir.MustLimit("limit", weir.PerSecond(1))
			var all sync.WaitGroup
			for i := range 400 {
				all.Go(func() {
					began := time.Now()
					claims := []weir.Claim{{Key: "k" + strconv.Itoa(i%keys), Limit: limit, Cost: 1}}
					_, err := s.Decide(t.Context(), claims, 1, nil)
					if took := time.Since(began); took > timeout || !errors.Is(err, weir.ErrUnavailable) {
						t.Errorf("caller %d of %d keys waited %v: %v", i, keys, took, err)
					}
				})
				time.Sleep(time.Millisecond)
			}
			all.Wait()
			s.Close()
		})
	}
}
