package weir_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

func TestALeaseThatIsKeptAliveOutlivesItsTimeToLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := weir.New(memstore.New(), "jobs", weir.Concurrency{Limit: 1, TTL: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		lease, err := l.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		stop := weir.KeepAlive(ctx, 3*time.Second, lease.Renew, func(err error) { t.Errorf("renewing failed: %v", err) })
		leave() // who asked has gone, and the work goes on
		time.Sleep(time.Minute)
		if _, err := l.Acquire(t.Context(), "k"); !errors.Is(err, weir.ErrRefused) {
			t.Errorf("after a minute another one got it: %v", err)
		}
		stop()
		stop()
		time.Sleep(3 * time.Second)
		if _, err := l.Acquire(t.Context(), "k"); err != nil {
			t.Errorf("3 s after the end of keeping: %v", err)
		}
	})
}

func TestALeaseThatIsLostIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []error
		answers := []error{weir.ErrUnavailable, nil, weir.ErrLeaseGone}
		calls := 0
		renew := func(context.Context) error { calls++; return answers[calls-1] }
		stop := weir.KeepAlive(t.Context(), 3*time.Second, renew, func(err error) { told = append(told, err) })
		time.Sleep(time.Minute)
		stop()
		synctest.Wait()
		if calls != 3 || len(told) != 2 || told[0] != weir.ErrUnavailable || told[1] != weir.ErrLeaseGone {
			t.Errorf("%d renewals, and told was %v", calls, told)
		}
	})
}

func TestAStoppedRenewalTellsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		renew := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		stop := weir.KeepAlive(t.Context(), 3*time.Second, renew, func(err error) { t.Errorf("told was %v", err) })
		time.Sleep(2 * time.Second)
		stop()
		synctest.Wait()
	})
}

func TestAReservationsLeaseIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := weir.New(memstore.New(), "jobs", weir.Concurrency{Limit: 1, TTL: 3 * time.Second}, weir.PerHour(10))
		if err != nil {
			t.Fatal(err)
		}
		r, err := l.Reserve(t.Context(), "k", 1)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			time.Sleep(2 * time.Second)
			if err := r.Renew(t.Context()); err != nil {
				t.Errorf("renew: %v", err)
			}
		}
		time.Sleep(3 * time.Second)
		if err := r.Renew(t.Context()); !errors.Is(err, weir.ErrLeaseGone) {
			t.Errorf("renewing what expired: %v", err)
		}
	})
}
