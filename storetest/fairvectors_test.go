package storetest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/weirproject/weir"
)

var update = flag.Bool("update", false, "write testdata/fair.jsonl by the model")

// TestVectorsOfFairLimitsMatchTheModel: testdata/fair.jsonl has the answers of the slow model, which shares no code with
// the stores. Other implementations read that file.
func TestVectorsOfFairLimitsMatchTheModel(t *testing.T) {
	const file = "testdata/fair.jsonl"
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	lines.SetEscapeHTML(false)
	for i := range uint64(48) {
		d := drawer{rand.New(rand.NewPCG(15, i)), open(t, modelSubject)}
		if err := lines.Encode(d.trace(int(i))); err != nil {
			t.Fatal(err)
		}
	}
	if *update {
		if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(want, text.Bytes()) {
		t.Errorf("%s has other answers than the model, or other steps than are drawn here (%v): see -update", file, err)
	}
}

// A drawer draws traces, and asks the model for the answers.
type drawer struct {
	*rand.Rand
	b *fixture
}

func oneOf[T any](d *drawer, of ...T) T { return of[d.IntN(len(of))] }

// trace draws windows and calendars by turns with leases, and each fourth time two limits in one decision.
func (d *drawer) trace(number int) (tr trace) {
	tr.Name = fmt.Sprintf("fair-%02d", number)
	if number%3 == 2 {
		limit := d.leases()
		tr.Limit = &limit
	} else {
		tr.Limits = []vectorLimit{d.window()}
		if number%4 == 3 {
			tr.Limits = append(tr.Limits, d.second())
		}
	}
	claims, err := tr.claims(d.b)
	if err != nil {
		panic(err)
	}
	now, last, taken := int64(epoch), make([]weir.Decision, len(claims)), []int64{epoch}
	for range 24 {
		now += d.wait(claims[0].Limit, &last[0])
		s := d.step(claims, tr.Limit != nil, taken[d.IntN(len(taken))])
		s.At = now
		d.b.clock.set(now)
		last = d.answer(&s, claims)
		if s.Op == "charge" || s.Op == "take" && *s.Granted > 0 {
			taken = append(taken, now)
		}
		tr.Steps = append(tr.Steps, s)
	}
	return tr
}

func (d *drawer) shared(algorithm string) vectorLimit {
	return vectorLimit{Algorithm: "fair_" + algorithm, Limit: oneOf[int64](d, 1, 4, 10, 10, 60, 1000),
		Above: oneOf(d, 0, 20, 50, 80, 100), MaxKeys: oneOf[int64](d, 1, 2, 3, 10_000)}
}

func (d *drawer) window() (v vectorLimit) {
	if d.IntN(3) == 0 {
		v = d.shared("calendar")
		v.Unit, v.Zone = oneOf(d, "minute", "hour", "day"), oneOf(d, "", "Europe/Berlin", "Asia/Kathmandu")
		return v
	}
	v = d.shared("fixed_window")
	v.WindowUs, v.Anchor = oneOf[int64](d, 7, 1_000, 1_000_000, 60_000_000, 3600_000_000), oneOf(d, "first", "epoch")
	return v
}

func (d *drawer) second() vectorLimit {
	if d.IntN(2) == 0 {
		return d.window()
	}
	return vectorLimit{Algorithm: "token_bucket", Capacity: 10, Refill: 3, PeriodUs: 1_000_000}
}

func (d *drawer) leases() vectorLimit {
	v := d.shared("concurrency")
	v.TTLUs = oneOf[int64](d, 1_000_000, 60_000_000)
	return v
}

// wait is how long the clock goes on: none, at random, to the instant of retry-after or just before, and at times back.
func (d *drawer) wait(l *weir.Limit, last *weir.Decision) int64 {
	period := cmp.Or(l.Period(), 60_000_000) // calendars have none
	retry := max(0, waitMicros(last.RetryAfter))
	return oneOf(d, 0, 0, 1+d.Int64N(period/50+1), 1+d.Int64N(period/5+1), 1+d.Int64N(2*period), retry, max(0, retry-1),
		last.ResetAfter.Microseconds(), -d.Int64N(period/100+1))
}

func (d *drawer) step(claims []weir.Claim, leases bool, taken int64) (s vectorStep) {
	if leases {
		s.Op, s.ID = oneOf(d, "acquire", "acquire", "acquire", "release", "release", "renew"), fmt.Sprint("lease-", d.IntN(6))
		s.Units = oneOf[int64](d, 1, 1, 2, 5)
		if s.Op != "acquire" {
			s.Units = 0
		}
	} else if s.Op = oneOf(d, "take", "take", "take", "take", "peek", "charge", "refund"); s.Op == "take" {
		s.Times = oneOf[int64](d, 1, 1, 1, 3)
	} else if s.Op == "refund" {
		s.TakenAt = taken
	}
	for i := range claims {
		l := claims[i].Limit
		if !leases {
			s.Costs = append(s.Costs, oneOf(d, 1, 1, 1, 2, 3, max(1, l.Most()/2)))
		}
		s.Floors = append(s.Floors, oneOf[int64](d, 0, 0, 0, 0, 1, (l.Most()+4)/5))
		member, weight := "", int64(0)
		if l.Whole() != nil {
			member, weight = oneOf(d, "red", "green", "blue", "black"), oneOf[int64](d, 1, 1, 1, 3)
		}
		s.Members, s.Weights = append(s.Members, member), append(s.Weights, weight)
	}
	return s
}

// answer asks the model, and writes what it says into the step.
func (d *drawer) answer(s *vectorStep, claims []weir.Claim) []weir.Decision {
	got := make([]weir.Decision, len(claims))
	granted, err := s.do(d.b.Store, s.claims(claims), got)
	if err != nil {
		panic(err)
	}
	for _, g := range got {
		v := vectorDecision{g.Remaining, waitMicros(g.RetryAfter), g.ResetAfter.Microseconds(), nil}
		if s.ID == "" {
			delay := g.Delay.Microseconds()
			v.DelayUs = &delay
		}
		s.Decisions = append(s.Decisions, v)
	}
	switch {
	case s.ID != "":
		ok := granted == 1
		s.OK, s.Decision, s.Decisions = &ok, &s.Decisions[0], nil
	case s.Op == "take":
		s.Granted = &granted
	}
	return got
}
