package weir_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

type message struct{ phone, text string }

func byPhone(_ context.Context, m message) ([]string, error) {
	return []string{"phone:" + m.phone}, nil
}

func deliver(_ context.Context, m message) (int, error) { return len(m.text), nil }

func ExampleGuard() {
	codes, err := weir.New(memstore.New(), "sms", weir.SlidingLog{Limit: 1, Window: time.Minute})
	if err != nil {
		panic(err)
	}
	send := weir.Guard(codes, byPhone, deliver, nil)
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

func guarded(t *testing.T, store weir.Store, spec weir.Spec) *weir.Limiter {
	t.Helper()
	l, err := weir.New(store, "guarded", spec)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestARefusalIsTyped(t *testing.T) {
	send := weir.Guard(guarded(t, memstore.New(), weir.PerHour(1)), byPhone, deliver, nil)
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
	if !errors.Is(never, weir.ErrNever) || !errors.Is(never, weir.ErrRefused) {
		t.Errorf("%v is not ErrNever and ErrRefused", never)
	}
	if n, err := send(t.Context(), message{"2", "abc"}); n != 3 || err != nil {
		t.Errorf("another key: %d, %v", n, err)
	}
}

func TestFunctionIsNotCalledAfterAnError(t *testing.T) {
	store := memstore.New()
	lost := errors.New("no phone")
	failing := func(context.Context, message) ([]string, error) { return nil, lost }
	fatal := func(context.Context, message) (int, error) { t.Error("it was called"); return 0, nil }
	if _, err := weir.Guard(guarded(t, store, weir.PerHour(1)), failing, fatal, nil)(t.Context(), message{}); err != lost {
		t.Errorf("the key: %v", err)
	}
	for _, spec := range []weir.Spec{weir.PerHour(1), weir.Concurrency{Limit: 1, TTL: time.Hour}} {
		send := weir.Guard(guarded(t, store, spec), byPhone, fatal, nil)
		store.Close()
		if _, err := send(t.Context(), message{}); !errors.Is(err, weir.ErrClosed) {
			t.Errorf("the store: %v", err)
		}
	}
}

func TestALeaseIsHeldDuringTheCall(t *testing.T) {
	l := guarded(t, memstore.New(), weir.Concurrency{Limit: 1, TTL: time.Hour})
	var inner error
	var again func(context.Context, message) (int, error)
	again = weir.Guard(l, byPhone, func(ctx context.Context, m message) (int, error) {
		switch m.text {
		case "twice":
			_, inner = again(ctx, message{})
		case "panic":
			panic("in fn")
		}
		return 0, nil
	}, nil)
	if _, err := again(t.Context(), message{text: "twice"}); err != nil || !errors.Is(inner, weir.ErrRefused) {
		t.Errorf("outer %v, inner %v", err, inner)
	}
	func() {
		defer func() { recover() }()
		again(t.Context(), message{text: "panic"})
	}()
	ctx, cancel := context.WithCancel(t.Context())
	cancelling := weir.Guard(l, byPhone, func(context.Context, message) (int, error) { cancel(); return 0, nil }, nil)
	if _, err := cancelling(ctx, message{}); err != nil {
		t.Errorf("after a panic: %v", err)
	}
	if _, err := again(t.Context(), message{}); err != nil {
		t.Errorf("after a cancelled call: %v", err)
	}
}

func TestALongCallKeepsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := guarded(t, memstore.New(), weir.Concurrency{Limit: 1, TTL: 3 * time.Second})
		inside := func(ctx context.Context, m message) (int, error) {
			time.Sleep(time.Minute)
			_, err := l.Acquire(ctx, "phone:")
			if !errors.Is(err, weir.ErrRefused) {
				t.Errorf("a minute later its unit was given to another: %v", err)
			}
			return 0, nil
		}
		if _, err := weir.Guard(l, byPhone, inside, nil)(t.Context(), message{}); err != nil {
			t.Error(err)
		}
		if _, err := l.Acquire(t.Context(), "phone:"); err != nil {
			t.Errorf("after the call: %v", err)
		}
	})
}

// away is a store that stops responding after it has granted a lease.
type away struct{ weir.Store }

func (a away) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	if claims[0].Renew {
		return 0, weir.ErrUnavailable
	}
	return a.Store.Decide(ctx, claims, times, decisions)
}

func TestACallWhoseLeaseIsLostIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := guarded(t, away{memstore.New()}, weir.Concurrency{Limit: 1, TTL: 3 * time.Second})
		start := time.Now()
		inside := func(ctx context.Context, _ message) (int, error) {
			<-ctx.Done()
			return 0, context.Cause(ctx)
		}
		_, err := weir.Guard(l, byPhone, inside, nil)(t.Context(), message{})
		if !errors.Is(err, weir.ErrLeaseGone) || time.Since(start) != 3*time.Second {
			t.Errorf("%v after %v, want ErrLeaseGone after 3s", err, time.Since(start))
		}
	})
}

func TestCancelDuringTheDelayRefundsTheUnit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := guarded(t, memstore.New(), weir.LeakyQueue(1, time.Second, 1))
		send := weir.Guard(l, byPhone, deliver, nil)
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
		send := weir.Guard(guarded(t, memstore.New(), weir.LeakyQueue(1, time.Second, 9)), byPhone, deliver, nil)
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

// TestGuardOfSeveralKeysIsOneDecision: what one limit refuses is not charged to the keys of the others.
func TestGuardOfSeveralKeysIsOneDecision(t *testing.T) {
	l, err := weir.New(memstore.New(), "sms", weir.PerHour(1), weir.PerHour(3), weir.PerHour(4))
	if err != nil {
		t.Fatal(err)
	}
	keys := func(_ context.Context, m message) ([]string, error) {
		return []string{"phone:" + m.phone, "user:" + m.text, "all"}, nil
	}
	send := weir.Guard(l, keys, deliver, nil)
	sent := ""
	for _, m := range []message{
		{"1", "ann"}, {"1", "ann"}, {"1", "ann"}, {"2", "ann"}, {"3", "ann"}, {"4", "ann"}, {"5", "bob"}, {"6", "bob"},
	} {
		if _, err := send(t.Context(), m); err == nil {
			sent += m.phone
		}
	}
	if sent != "1235" { // one for each phone, three of ann, four of all
		t.Errorf("sent to %s", sent)
	}
	var input *weir.InputError
	two := func(context.Context, message) ([]string, error) { return []string{"a", "b"}, nil }
	_, err = weir.Guard(l, two, deliver, nil)(t.Context(), message{})
	if !errors.As(err, &input) || input.Field != "keys" {
		t.Errorf("two keys for three limits: %v", err)
	}
}

func seven(context.Context, message) (int, error) { return 7, nil }

func TestGuardWithoutKeysHasTheNameOfItsFunction(t *testing.T) {
	store := memstore.New()
	l := guarded(t, store, weir.PerHour(1))
	if _, err := weir.Guard(l, nil, deliver, nil)(t.Context(), message{"1", ""}); err != nil {
		t.Fatal(err)
	}
	if _, err := weir.Guard(l, nil, deliver, nil)(t.Context(), message{"2", ""}); !errors.Is(err, weir.ErrRefused) {
		t.Errorf("the same function: %v", err)
	}
	if n, err := weir.Guard(l, nil, seven, nil)(t.Context(), message{}); n != 7 || err != nil {
		t.Errorf("another function: %d, %v", n, err)
	}
	answer, err := l.Peek(t.Context(), "github.com/weirproject/weir_test.deliver")
	if err != nil || answer.Allowed {
		t.Errorf("the key is not the name of the function: %+v, %v", answer, err)
	}
}

// down is a store that does not respond.
type down struct{ weir.Store }

func (down) Decide(context.Context, []weir.Claim, int64, []weir.Decision) (int64, error) {
	return 0, fmt.Errorf("redis: %w", weir.ErrUnavailable)
}

func TestGuardFailurePolicies(t *testing.T) {
	cached := func(_ context.Context, m message, err error) (int, error) {
		if errors.Is(err, weir.ErrUnavailable) {
			return -1, nil
		}
		return -2, nil
	}
	fail := func(context.Context, message) (int, error) { return 0, errors.New("of the function") }
	for _, test := range []struct {
		name     string
		store    weir.Store
		fn       func(context.Context, message) (int, error)
		fallback func(context.Context, message, error) (int, error)
		first    string
		second   string
	}{
		{"fail closed, up", memstore.New(), deliver, nil, "4 <nil>", "refused"},
		{"fail closed, down", down{memstore.New()}, deliver, nil, "unavailable", "unavailable"},
		{"fail open, up", memstore.New(), deliver, weir.FailOpen(deliver), "4 <nil>", "refused"},
		{"fail open, down", down{memstore.New()}, deliver, weir.FailOpen(deliver), "4 <nil>", "4 <nil>"},
		{"fallback, up", memstore.New(), deliver, cached, "4 <nil>", "-2 <nil>"},
		{"fallback, down", down{memstore.New()}, deliver, cached, "-1 <nil>", "-1 <nil>"},
		{"error of the function", memstore.New(), fail, cached, "of the function", "-2 <nil>"},
	} {
		send := weir.Guard(guarded(t, test.store, weir.PerHour(1)), byPhone, test.fn, test.fallback)
		for _, want := range []string{test.first, test.second} {
			n, err := send(t.Context(), message{"1", "code"})
			if got := fmt.Sprint(n, " ", err); !strings.Contains(got, want) {
				t.Errorf("%s: %s, want %s", test.name, got, want)
			}
		}
	}
}

// The name of a closure changes with the program around it: it is no key.
func TestGuardOfAClosureNeedsKeys(t *testing.T) {
	l := limiterOn(t, memstore.New(), weir.PerHour(1))
	calls := 0
	guarded := weir.Guard(l, nil, func(context.Context, int) (int, error) { calls++; return 0, nil }, nil)
	if _, err := guarded(t.Context(), 1); !isInput(err) || !strings.Contains(err.Error(), "give keys") || calls != 0 {
		t.Errorf("a closure without keys: %v, %d calls", err, calls)
	}
}
