package redisstore_test

import (
	"sync"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/redisstore"
)

// A thousand callers that wait for one key ask Redis twice a grant at most.
func TestWaitersAskRedisTogether(t *testing.T) {
	const waiters = 1000
	server := redistest.Start(t)
	store := redis{url: server.URL()}.open(t, redisstore.WithTimeout(time.Minute))
	l, err := weir.New(store, "herd", weir.GCRA(10, 1000, time.Second))
	if err != nil {
		t.Fatal(err)
	}
	before := calls(server)
	var all sync.WaitGroup
	for range waiters {
		all.Go(func() {
			if err := l.Wait(t.Context(), "key"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if asked := calls(server) - before; asked < waiters/100 || asked > 2*waiters {
		t.Errorf("%d calls for %d waiters, want at most %d", asked, waiters, 2*waiters)
	}
}
