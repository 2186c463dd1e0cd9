package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

func ExampleLocal() {
	perUser := memstore.NewLocal(weir.PerMinute(2))
	fmt.Println(perUser.Allow("ann"), perUser.Allow("ann"), perUser.Allow("ann"), perUser.Allow("bob"))
	// Output: true true false true
}

func TestLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memstore.NewLocal(weir.PerSecond(1))
		begun := time.Now()
		if !l.Allow("key") || l.Allow("key") || l.Allow("") {
			t.Error("not one of two, or a key that is none")
		}
		if err := l.Wait(t.Context(), "key"); err != nil || time.Since(begun) != time.Second {
			t.Errorf("Wait: %v after %v", err, time.Since(begun))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Wait(ctx, "key"); !errors.Is(err, context.Canceled) || l.Limiter() == nil {
			t.Errorf("Wait of a caller that has gone: %v", err)
		}
	})
	defer func() {
		if recover() == nil {
			t.Error("a wrong limit is no panic")
		}
	}()
	memstore.NewLocal(weir.PerSecond(0))
}
