package stories_test

import (
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/stories"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
)

func TestZMem(t *testing.T) {
	stories.Run(t, func(t testing.TB, now func() weir.Instant) weir.Store { return memstore.New(memstore.WithClock(now)) })
}

func TestZRedis(t *testing.T) {
	url := redistest.Start(t).URL()
	stories.Run(t, func(t testing.TB, now func() weir.Instant) weir.Store {
		s, err := redisstore.Open(t.Context(), url, redisstore.WithClock(now), redisstore.WithTimeout(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	})
}
