package weir_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// Crawlers leave half of the limit to others.
func ExampleLimiter_WithFloor() {
	ctx := context.Background()
	pages, err := weir.New(memstore.New(), "pages", weir.FixedWindow{Limit: 4, Window: time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	crawled, err := pages.WithFloor(2)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		answer, _ := crawled.Allow(ctx, "all")
		fmt.Println("crawler", answer.Allowed, answer.Remaining)
	}
	answer, _ := pages.Allow(ctx, "all")
	fmt.Println("visitor", answer.Allowed, answer.Remaining)
	// Output:
	// crawler true 1
	// crawler true 0
	// crawler false 0
	// visitor true 1
}

// TestWithFloorInEachCall: every way to ask keeps the floor, with one floor or several.
func TestWithFloorInEachCall(t *testing.T) {
	ctx := t.Context()
	window := weir.FixedWindow{Limit: 10, Window: time.Hour}
	for name, take := range map[string]func(l *weir.Limiter) error{
		"Allow": func(l *weir.Limiter) error { return allowed(l.Allow(ctx, "k")) },
		"AllowEach": func(l *weir.Limiter) error {
			return allowed(l.AllowEach(ctx, "k", []int64{1, 1}[:len(l.Limits())]...))
		},
		"AllowOnce": func(l *weir.Limiter) error {
			return allowed(l.AllowOnce(ctx, "k", 1, weir.NewLeaseID(), time.Minute))
		},
		"AllowAtMost": func(l *weir.Limiter) error {
			n, answer, err := l.AllowAtMost(ctx, "k", 1)
			if n == 0 && err == nil {
				err = allowed(answer, nil)
			}
			return err
		},
		"Reserve": func(l *weir.Limiter) error { _, err := l.Reserve(ctx, "k", 1); return err },
		"Wait": func(l *weir.Limiter) error {
			hurried, cancel := context.WithTimeout(ctx, time.Minute) // the window is longer
			defer cancel()
			return l.Wait(hurried, "k")
		},
	} {
		for _, specs := range [][]weir.Spec{{window}, {window, weir.SlidingLog{Limit: 10, Window: time.Hour}}} {
			all, err := weir.New(memstore.New(), "limit", specs...)
			if err != nil {
				t.Fatal(err)
			}
			low, err := all.WithFloor([]int64{4, 6}[:len(specs)]...)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 12 {
				err := take(low)
				if most := []int{6, 4}[len(specs)-1]; (err == nil) != (i < most) || err != nil && !errors.Is(err, weir.ErrRefused) {
					t.Errorf("%s of %v, %d: %v", name, specs, i, err)
				}
			}
			if err := take(all); err != nil {
				t.Errorf("%s of %v without a floor: %v", name, specs, err)
			}
		}
	}
}

func allowed(answer weir.Answer, err error) error {
	if err == nil && !answer.Allowed {
		return fmt.Errorf("%w: %+v", weir.ErrRefused, answer)
	}
	return err
}

func TestLeasesLeaveTheFloor(t *testing.T) {
	jobs, err := weir.New(memstore.New(), "jobs", weir.Concurrency{Limit: 3, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	low, err := jobs.WithFloor(2)
	if err != nil {
		t.Fatal(err)
	}
	first, err := low.Acquire(t.Context(), "all")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := low.Acquire(t.Context(), "all"); !errors.Is(err, weir.ErrRefused) {
		t.Errorf("the second lease: %v", err)
	}
	second, err := jobs.Acquire(t.Context(), "all")
	if err != nil {
		t.Fatalf("without a floor: %v", err)
	}
	if err := errors.Join(first.Release(t.Context()), second.Release(t.Context())); err != nil {
		t.Error(err)
	}
}

func TestFloorsAreChecked(t *testing.T) {
	l, err := weir.New(memstore.New(), "l", weir.PerHour(5), weir.PerDay(9))
	if err != nil {
		t.Fatal(err)
	}
	for _, units := range [][]int64{{}, {1, 2, 3}, {-1}, {1, weir.MaxUnits + 1}} {
		if _, err := l.WithFloor(units...); !errors.As(err, new(*weir.InputError)) {
			t.Errorf("WithFloor(%v): %v", units, err)
		}
	}
	claim := weir.Claim{Key: "k", Limit: l.Limits()[0], Cost: 1}
	for _, floor := range []int64{-1, weir.MaxUnits + 1} {
		claim.Floor = floor
		if err := weir.Check([]weir.Claim{claim}, 1, nil); !errors.As(err, new(*weir.InputError)) {
			t.Errorf("a floor of %d: %v", floor, err)
		}
	}
	claim.Floor, claim.Once = 1, true
	if err := weir.Check([]weir.Claim{claim}, 1, nil); !errors.As(err, new(*weir.InputError)) {
		t.Errorf("the floor of an id: %v", err)
	}
}
