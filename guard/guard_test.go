package guard_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/guard"
	"github.com/weirproject/weir/memstore"
)

type message struct{ phone, text string }

func byPhone(_ context.Context, m message) (string, error) { return "phone:" + m.phone, nil }

func deliver(_ context.Context, m message) (int, error) { return len(m.text), nil }

func ExampleFunc() {
	codes, err := weir.New(memstore.New(), "sms", weir.SlidingLog{Limit: 1, Window: time.Minute})
	if err != nil {
		panic(err)
	}
	send := guard.Func(codes, byPhone, deliver)
	for range 2 {
		sent, err := send(context.Background(), message{"+86 10 5555 0100", "1234"})
		var refused *weir.RefusedError
		if errors.As(err, &refused) {
			fmt.Println("refused by", refused.Answer.Limit, "for", refused.Answer.RetryAfter.Round(time.Minute))
			continue
		}
		fmt.Println(sent, err)
	}
	// Output:
	// 4 <nil>
	// refused by sliding_log 1/1m for 1m0s
}

func limiter(t *testing.T, store weir.Store, spec weir.Spec) *weir.Limiter {
	t.Helper()
	l, err := weir.New(store, "guarded", spec)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestARefusalIsTyped(t *testing.T) {
	send := guard.Func(limiter(t, memstore.New(), weir.PerHour(1)), byPhone, deliver)
	if n, err := send(t.Context(), message{"1", "abc"}); n != 3 || err != nil {
		t.Errorf("granted: %d, %v", n, err)
	}
	n, err := send(t.Context(), message{"1", "abc"})
	var refused *weir.RefusedError
	if n != 0 || !errors.Is(err, weir.ErrRefused) || errors.Is(err, weir.ErrNever) || !errors.As(err, &refused) ||
		refused.Answer.RetryAfter <= 0 {
		t.Errorf("refused: %d, %v", n, err)
	}
	never := &weir.RefusedError{Answer: weir.Answer{Limit: refused.Answer.Limit,
		Decision: weir.Decision{RetryAfter: weir.Never}}}
	if !errors.Is(never, weir.ErrNever) || errors.Is(never, weir.ErrRefused) {
		t.Errorf("%v is not ErrNever", never)
	}
	if n, err := send(t.Context(), message{"2", "abc"}); n != 3 || err != nil {
		t.Errorf("another key: %d, %v", n, err)
	}
}

func TestFunctionIsNotCalledAfterAnError(t *testing.T) {
	store := memstore.New()
	lost := errors.New("no phone")
	failing := func(context.Context, message) (string, error) { return "", lost }
	fatal := func(context.Context, message) (int, error) { t.Error("it was called"); return 0, nil }
	if _, err := guard.Func(limiter(t, store, weir.PerHour(1)), failing, fatal)(t.Context(), message{}); err != lost {
		t.Errorf("the key: %v", err)
	}
	for _, spec := range []weir.Spec{weir.PerHour(1), weir.Concurrency{Limit: 1, TTL: time.Hour}} {
		send := guard.Func(limiter(t, store, spec), byPhone, fatal)
		store.Close()
		if _, err := send(t.Context(), message{}); !errors.Is(err, weir.ErrClosed) {
			t.Errorf("the store: %v", err)
		}
	}
}

func TestALeaseIsHeldDuringTheCall(t *testing.T) {
	l := limiter(t, memstore.New(), weir.Concurrency{Limit: 1, TTL: time.Hour})
	var inner error
	var again func(context.Context, message) (int, error)
	again = guard.Func(l, byPhone, func(ctx context.Context, m message) (int, error) {
		switch m.text {
		case "twice":
			_, inner = again(ctx, message{})
		case "panic":
			panic("in fn")
		}
		return 0, nil
	})
	if _, err := again(t.Context(), message{text: "twice"}); err != nil || !errors.Is(inner, weir.ErrRefused) {
		t.Errorf("outer %v, inner %v", err, inner)
	}
	func() {
		defer func() { recover() }()
		again(t.Context(), message{text: "panic"})
	}()
	ctx, cancel := context.WithCancel(t.Context())
	cancelling := guard.Func(l, byPhone, func(context.Context, message) (int, error) { cancel(); return 0, nil })
	if _, err := cancelling(ctx, message{}); err != nil {
		t.Errorf("after a panic: %v", err)
	}
	if _, err := again(t.Context(), message{}); err != nil {
		t.Errorf("after a cancelled call: %v", err)
	}
}

func TestALongCallKeepsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, memstore.New(), weir.Concurrency{Limit: 1, TTL: 3 * time.Second})
		inside := func(ctx context.Context, m message) (int, error) {
			time.Sleep(time.Minute)
			_, err := l.Acquire(ctx, "phone:")
			if !errors.Is(err, weir.ErrRefused) {
				t.Errorf("a minute later its unit was given to another: %v", err)
			}
			return 0, nil
		}
		if _, err := guard.Func(l, byPhone, inside)(t.Context(), message{}); err != nil {
			t.Error(err)
		}
		if _, err := l.Acquire(t.Context(), "phone:"); err != nil {
			t.Errorf("after the call: %v", err)
		}
	})
}

// away is a store that stops answering once a lease was taken.
type away struct{ weir.Store }

func (a away) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	if claims[0].Renew {
		return 0, weir.ErrUnavailable
	}
	return a.Store.Decide(ctx, claims, times, decisions)
}

func TestACallWhoseLeaseIsLostIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, away{memstore.New()}, weir.Concurrency{Limit: 1, TTL: 3 * time.Second})
		start := time.Now()
		inside := func(ctx context.Context, _ message) (int, error) {
			<-ctx.Done()
			return 0, context.Cause(ctx)
		}
		_, err := guard.Func(l, byPhone, inside)(t.Context(), message{})
		if !errors.Is(err, weir.ErrLeaseGone) || time.Since(start) != 3*time.Second {
			t.Errorf("%v after %v, want ErrLeaseGone after 3s", err, time.Since(start))
		}
	})
}

func TestCancelDuringTheDelayRefundsTheUnit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, memstore.New(), weir.LeakyQueue(1, time.Second, 1))
		send := guard.Func(l, byPhone, deliver)
		if _, err := send(t.Context(), message{}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := send(ctx, message{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if _, err := send(t.Context(), message{}); err != nil {
			t.Errorf("its place is still taken: %v", err)
		}
	})
}

func TestDelayIsSleptBeforeTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		send := guard.Func(limiter(t, memstore.New(), weir.LeakyQueue(1, time.Second, 9)), byPhone, deliver)
		start := time.Now()
		for i := range 3 {
			if _, err := send(t.Context(), message{}); err != nil || time.Since(start) != time.Duration(i)*time.Second {
				t.Errorf("call %d: %v after %v", i, err, time.Since(start))
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := send(ctx, message{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}
