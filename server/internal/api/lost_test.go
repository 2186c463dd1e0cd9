package api_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redistest"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/redisstore"
)

// losing is a store one of whose calls gets no answer: it is not made, or was made all the same.
type losing struct {
	weir.Store
	nth  int // the call, from now on; 0: none
	made bool
}

func (l *losing) call(do func() error) error {
	l.nth--
	if l.nth != 0 {
		return do()
	}
	if l.made {
		do()
	}
	return weir.ErrUnavailable
}

func (l *losing) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (granted int64,
	err error) {
	err = l.call(func() (err error) {
		granted, err = l.Store.Decide(ctx, claims, times, d)
		return err
	})
	return granted, err
}

func (l *losing) Charge(ctx context.Context, claims []weir.Claim, d []weir.Decision) error {
	return l.call(func() error { return l.Store.Charge(ctx, claims, d) })
}

func (l *losing) Refund(ctx context.Context, claims []weir.Claim, at weir.Instant, d []weir.Decision) error {
	return l.call(func() error { return l.Store.Refund(ctx, claims, at, d) })
}

// TestSettleIsDoneOnce: a settlement of which any call was lost, before or after it was made, is
// finished by doing it again, and nothing is charged or given back twice.
func TestSettleIsDoneOnce(t *testing.T) {
	redis, err := redisstore.Open(t.Context(), redistest.Start(t).URL(), redisstore.WithTimeout(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { redis.Close() })
	for name, store := range map[string]weir.Store{"memory": memstore.New(), "redis": redis} {
		for _, made := range []bool{false, true} {
			for nth := 1; nth <= 5; nth++ {
				for _, actual := range []int{0, 100, 300, 700, 2000} {
					once := &settling{T: t, store: &losing{Store: store, made: made}, nth: nth, actual: actual}
					once.key = fmt.Sprint(name, made, nth, actual)
					once.check()
				}
			}
		}
	}
}

type settling struct {
	*testing.T
	store       *losing
	key         string
	nth, actual int
}

func (s *settling) check() {
	h := handler(s, s.store, "rules: []")
	server := serve(s, h)
	claim := func(name, limit string, cost int) string {
		return fmt.Sprintf(`{"name":%q,"limit":%q,"key":%q,"cost":%d}`, name, limit, s.key, cost)
	}
	three := claim("all", "fixed_window 10000/1h", 500) + "," + claim("few", "sliding_log 10000/1h",
		100) + "," + claim("held", "concurrency 9 ttl 1h", 1)
	token := server.post("/v1/reserve", `{"claims":[`+three+`]}`).at("reservation.token")
	s.store.nth = s.nth
	a := server.post("/v1/settle", settle(token, s.actual))
	if a.status == 503 {
		a = server.post("/v1/settle", settle(token, s.actual))
	}
	if a.status != 200 && a.status != 409 {
		s.Errorf("%s: status %d: %s", s.key, a.status, a.text)
	}
	s.store.nth = 0
	server.post("/v1/settle", settle(token, s.actual)).has(s, 409)
	left := float64(10000 - s.actual)
	peek := server.post("/v1/peek", `{"claims":[`+three+`]}`)
	for i, want := range []float64{left, left, 9} {
		if got := peek.at(fmt.Sprintf("checks.%d.remaining", i)); got != want {
			s.Errorf("%s: claim %d has %v left, want %v", s.key, i, got, want)
		}
	}
}
