package weir_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
)

func TestRequestWithAnIDIsChargedOnce(t *testing.T) {
	l, clock := drive(t, weir.SlidingLog{Limit: 3, Window: time.Hour}, weir.PerDay(100))
	for _, step := range []struct {
		key, id           string
		n                 int64
		after             time.Duration
		allowed, repeated bool
		left              int64
	}{
		{"a", "order-1", 2, 0, true, false, 1},
		{"a", "order-1", 2, 0, true, true, 1},
		{"a", "order-1", 1, 0, true, false, 0}, // another cost
		{"b", "order-1", 2, 0, true, false, 1}, // another key
		{"a", "order-2", 1, 0, false, false, 0},
		{"a", "order-1", 2, 10*time.Minute - time.Microsecond, true, true, 0}, // what is left does not matter
		{"a", "order-1", 2, time.Microsecond, false, false, 0},                // the id has ended
	} {
		clock.advance(step.after)
		answer, err := l.AllowOnce(t.Context(), step.key, step.n, step.id, 10*time.Minute)
		if err != nil || answer.Allowed != step.allowed || answer.Repeated != step.repeated ||
			answer.Remaining != step.left || answer.Limit != l.Limits()[0] {
			t.Errorf("%+v: %+v, %v", step, answer, err)
		}
	}
}

func TestIDsAreChecked(t *testing.T) {
	l, _ := drive(t, weir.PerDay(5))
	leases, _ := drive(t, weir.Concurrency{Limit: 5, TTL: time.Hour})
	most := strings.Repeat("x", 256)
	for _, c := range []struct {
		l       *weir.Limiter
		key, id string
		keep    time.Duration
		want    string
	}{
		{l, "a", most, time.Second, ""},
		{l, strings.Repeat("k", weir.MaxKey), most, 24 * time.Hour, ""},
		{l, "a", "", time.Minute, `weir: id is "0 bytes"; allowed: 1 to 256 bytes`},
		{l, "a", most + "x", time.Minute, `weir: id is "257 bytes"; allowed: 1 to 256 bytes`},
		{l, "a", "1", time.Second - 1, `weir: for is 999.999999ms; allowed: 1s to 24h: how long an id is kept`},
		{l, "a", "1", 24*time.Hour + 1, `weir: for is 24h0m0.000000001s; allowed: 1s to 24h: how long an id is kept`},
		{leases, "a", "1", time.Minute,
			`weir: id is "1"; allowed: none beside a concurrency limit, whose lease has an id`},
	} {
		answer, err := c.l.AllowOnce(t.Context(), c.key, 1, c.id, c.keep)
		if c.want == "" && (err != nil || !answer.Allowed) || c.want != "" && (err == nil || err.Error() != c.want) {
			t.Errorf("%.10q for %v: %v; want %s", c.id, c.keep, err, c.want)
		}
	}
	claims := make([]weir.Claim, weir.MaxClaims)
	if _, err := weir.Once(claims, "1", time.Minute); err == nil {
		t.Error("an id beside the most claims is one claim too many, and no error")
	}
}

// TestIDIsNoClaim: a client that chooses ids cannot write one that stands for another limit, too.
func TestIDIsNoClaim(t *testing.T) {
	cheap := weir.Claim{Key: "ann", Limit: weir.MustLimit("cheap", weir.PerDay(9)), Cost: 1}
	dear := weir.Claim{Key: "all", Limit: weir.MustLimit("dear", weir.PerDay(9)), Cost: 1}
	written := string([]byte{byte(dear.Limit.Algorithm()), 4}) + "dear\x03all\x02" + "order"
	one, err := weir.Once([]weir.Claim{cheap}, written, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	both, err := weir.Once([]weir.Claim{cheap, dear}, "order", time.Minute)
	if err != nil || one.Key == both.Key {
		t.Errorf("one id of two claims is another id of the first: %q, %v", one.Key, err)
	}
}
