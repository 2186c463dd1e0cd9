package weir_test

import (
	"context"
	"errors"
	"slices"
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
		stop := weir.KeepAlive(ctx, 3*time.Second, lease.Renew,
			func(err error) { t.Errorf("renewing failed: %v", err) })
		leave() // the caller has gone, and the work goes on
		time.Sleep(time.Minute)
		if _, err := l.Acquire(t.Context(), "k"); !errors.Is(err, weir.ErrRefused) {
			t.Errorf("after a minute another caller acquired it: %v", err)
		}
		stop()
		stop()
		time.Sleep(3 * time.Second)
		if _, err := l.Acquire(t.Context(), "k"); err != nil {
			t.Errorf("3 s after stop: %v", err)
		}
	})
}

// A renewing counts renewals and returns answers one by one, the last one repeatedly.
type renewing struct {
	start   time.Time
	answers []error
	takes   time.Duration
	at      []time.Duration // when renewals were asked for
	errs    []error         // of the calls of failed
	errsAt  []time.Duration
}

func (r *renewing) renew(ctx context.Context) error {
	r.at = append(r.at, time.Since(r.start))
	select {
	case <-time.After(r.takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	return r.answers[min(len(r.at), len(r.answers))-1]
}

func (r *renewing) failed(err error) {
	r.errs, r.errsAt = append(r.errs, err), append(r.errsAt, time.Since(r.start))
}

// keep runs KeepAlive for a minute, of a lease of 3 s.
func (r *renewing) keep(t *testing.T) {
	r.start = time.Now()
	stop := weir.KeepAlive(t.Context(), 3*time.Second, r.renew, r.failed)
	time.Sleep(time.Minute)
	stop()
	synctest.Wait()
}

func seconds(of ...float64) (list []time.Duration) {
	for _, s := range of {
		list = append(list, time.Duration(s*float64(time.Second)))
	}
	return list
}

// A third of the time-to-live is left to a lease when three renewals have failed.
func TestKeepAliveRenewsEachThirdAndSoonerAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		no := weir.ErrUnavailable
		r := &renewing{answers: []error{nil, no, no, no, nil, weir.ErrLeaseGone}}
		r.keep(t)
		if want := seconds(1, 2, 2.5, 3, 3.5, 4.5); !slices.Equal(r.at, want) {
			t.Errorf("renewed at %v, want %v", r.at, want)
		}
		if want := seconds(2, 2.5, 3, 4.5); !slices.Equal(r.errsAt, want) || !errors.Is(r.errs[3], weir.ErrLeaseGone) {
			t.Errorf("reported %v at %v, want %v", r.errs, r.errsAt, want)
		}
	})
}

// The loss is reported when the lease has expired, counted from before the last successful renewal
// was sent, also if the store fails or does not answer.
func TestKeepAliveReportsLostLease(t *testing.T) {
	for name, test := range map[string]struct {
		renewing
		want time.Duration
	}{
		"errors after the first renewal, sent after 1 s": {
			renewing{answers: []error{nil, weir.ErrUnavailable}, takes: 100 * time.Millisecond}, 4 * time.Second,
		},
		"no answer": {renewing{takes: time.Hour}, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &test.renewing
				r.keep(t)
				last := len(r.errs) - 1
				if last < 0 || !errors.Is(r.errs[last], weir.ErrLeaseGone) || r.errsAt[last] != test.want {
					t.Errorf("reported %v at %v, want ErrLeaseGone at %v", r.errs, r.errsAt, test.want)
				}
				for _, err := range r.errs[:max(0, last)] {
					if errors.Is(err, weir.ErrLeaseGone) {
						t.Errorf("ErrLeaseGone was reported before the end: %v", err)
					}
				}
			})
		})
	}
}

// The time-to-live counts from before the call that took the lease was sent.
func TestALeaseIsKeptSinceItWasTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{Store: memstore.New()}
		l, err := weir.New(store, "jobs", weir.Concurrency{Limit: 1, TTL: 3 * time.Second},
			weir.Concurrency{Limit: 1, TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for name, take := range map[string]func(key string) (keep func(context.Context, func(error)) func()){
			"lease": func(key string) func(context.Context, func(error)) func() {
				return must[*weir.Lease](t)(l.Acquire(t.Context(), key)).KeepAlive
			},
			"reservation": func(key string) func(context.Context, func(error)) func() {
				return must[*weir.Reservation](t)(l.Reserve(t.Context(), key, 1)).KeepAlive
			},
		} {
			start := time.Now()
			store.takes = time.Second
			keep := take(name)
			store.takes = time.Hour
			lost := make(chan time.Duration, 1)
			stop := keep(t.Context(), func(error) { lost <- time.Since(start) })
			if after := <-lost; after != 3*time.Second {
				t.Errorf("%s: reported after %v, want 3s", name, after)
			}
			stop()
		}
		without := limiterOn(t, memstore.New(), weir.PerHour(1))
		reservation := must[*weir.Reservation](t)(without.Reserve(t.Context(), "k", 1))
		reservation.KeepAlive(t.Context(), nil)() // it holds nothing
	})
}

// A slow store answers after a while, unless the caller gives up.
type slow struct {
	weir.Store
	takes time.Duration
}

func (s *slow) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	select {
	case <-time.After(s.takes):
		return s.Store.Decide(ctx, claims, times, decisions)
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func TestStopCancelsRenewalSilently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		renew := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		stop := weir.KeepAlive(t.Context(), 3*time.Second, renew, func(err error) { t.Errorf("reported: %v", err) })
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
