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

// Two tenants share a search: beyond half of the limit each has its share.
func ExampleLimiter_WithMember() {
	ctx := context.Background()
	search, err := weir.New(memstore.New(), "search", weir.Fair{
		Of:    weir.FixedWindow{Limit: 10, Window: time.Hour},
		Above: 50,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ask := func(tenant string, n int64) {
		own, err := search.WithMember(tenant, 1)
		if err != nil {
			fmt.Println(err)
			return
		}
		answer, _ := own.AllowN(ctx, "all", n)
		fmt.Println(tenant, n, answer.Allowed)
	}
	ask("small", 1)
	ask("large", 5)
	ask("large", 1)
	ask("small", 4)
	// Output:
	// small 1 true
	// large 5 true
	// large 1 false
	// small 4 true
}

// TestWithMemberInEachCall: every way to ask is of the member, beside limits without members too, and with a floor.
func TestWithMemberInEachCall(t *testing.T) {
	ctx := t.Context()
	still := func() weir.Instant { return 1 }
	window := weir.Fair{Of: weir.FixedWindow{Limit: 12, Window: time.Hour, Anchor: weir.Epoch}, Above: 0}
	for name, take := range map[string]func(l *weir.Limiter, i int) error{
		"Allow": func(l *weir.Limiter, _ int) error { return allowed(l.Allow(ctx, "k")) },
		"AllowOnce": func(l *weir.Limiter, i int) error {
			answer, err := l.AllowOnce(ctx, "k", 1, fmt.Sprint(i), time.Minute) // members have the same ids
			if answer.Repeated {
				err = errors.New("repeated")
			}
			return errors.Join(err, allowed(answer, err))
		},
		"Reserve": func(l *weir.Limiter, _ int) error {
			r, err := l.Reserve(ctx, "k", 3)
			if err != nil {
				return err
			}
			return r.Settle(ctx, 1)
		},
		"Wait": func(l *weir.Limiter, _ int) error {
			hurried, cancel := context.WithTimeout(ctx, time.Second) // it does not wait: a hundredth of the window is longer
			defer cancel()
			return l.Wait(hurried, "k")
		},
	} {
		for _, specs := range [][]weir.Spec{{window}, {window, weir.PerHour(100)}} {
			all, err := weir.New(memstore.New(memstore.WithClock(still)), "limit", specs...)
			if err != nil {
				t.Fatal(err)
			}
			if err := take(memberOf(t, all, "bob", 1), 0); err != nil {
				t.Errorf("%s of bob: %v", name, err)
			}
			ann, most := memberOf(t, all, "ann", 3), 9
			if name == "Reserve" {
				most = 7 // and then it asks for 3
			}
			for i := range 11 {
				err := take(ann, i)
				if (err == nil) != (i < most) || err != nil && !errors.Is(err, weir.ErrRefused) {
					t.Errorf("%s of ann, %d: %v", name, i, err)
				}
			}
			if err := take(memberOf(t, all, "bob", 1), 1); name != "Reserve" && err != nil {
				t.Errorf("%s of bob, within the share: %v", name, err)
			}
			low, err := memberOf(t, all, "bob", 1).WithFloor(10)
			if err != nil {
				t.Fatal(err)
			}
			if err := take(low, 2); !errors.Is(err, weir.ErrRefused) {
				t.Errorf("%s of bob above a floor: %v", name, err)
			}
		}
	}
}

func memberOf(t *testing.T, l *weir.Limiter, name string, weight int64) *weir.Limiter {
	t.Helper()
	with, err := l.WithMember(name, weight)
	if err != nil {
		t.Fatal(err)
	}
	return with
}

func TestAMembersLeasesAreReleased(t *testing.T) {
	jobs, err := weir.New(memstore.New(), "jobs", weir.Fair{Of: weir.Concurrency{Limit: 2, TTL: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for _, name := range []string{"ann", "bob"} {
			lease, err := memberOf(t, jobs, name, 1).Acquire(t.Context(), "k")
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := lease.Renew(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestMembersAreChecked(t *testing.T) {
	for _, c := range []struct {
		spec   weir.Spec
		name   string
		weight int64
	}{
		{weir.PerHour(5), "ann", 1},
		{weir.Fair{Of: weir.FixedWindow{Limit: 5, Window: time.Hour}}, "ann", 0},
		{weir.Fair{Of: weir.FixedWindow{Limit: 5, Window: time.Hour}}, "ann", weir.MaxWeight + 1},
		{weir.Fair{Of: weir.FixedWindow{Limit: 5, Window: time.Hour}}, string(make([]byte, weir.MaxKey+1)), 1},
	} {
		l, err := weir.New(memstore.New(), "l", c.spec)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.WithMember(c.name, c.weight); !errors.As(err, new(*weir.InputError)) {
			t.Errorf("%v, a weight of %d: %v", c.spec, c.weight, err)
		}
	}
}
