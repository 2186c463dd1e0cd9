// Package chance compares a Go twin with a simple model over random schedules: clocks
// that step back, costs of 0 and beyond the capacity, exact edges. It is for tests.
package chance

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
	"github.com/weirproject/weir/internal/algorithm/stories/model"
)

// A Twin is a Go twin with its state, for one limit.
type Twin interface {
	Available(now int64) int64
	Charge(n, now int64)
	Refund(n, takenAt, now int64)
	Back(now int64) // before an operation that may write
	Decision(cost, now int64) weir.Decision
}

// A canceler is a Twin whose grants may have a delay.
type canceler interface {
	Cancel(n, due, now int64)
}

// A Pair is a twin and a model that one schedule is applied to.
type Pair struct {
	Limit *weir.Limit
	Twin  Twin
	model model.Model
}

// NewPair is a pair of a limit that was not used yet.
func NewPair(limit *weir.Limit, twin Twin) Pair { return Pair{limit, twin, model.New(limit)} }

// Check applies random schedules to pairs of a limit's twin and model.
func Check(t *testing.T, draw func(*rapid.T) Pair) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) { play(t, draw(t)) })
}

// Fuzz is Check with numbers and schedules made of the fuzzer's bytes.
func Fuzz(f *testing.F, draw func(*rapid.T) Pair) {
	f.Helper()
	Seed(f)
	f.Fuzz(rapid.MakeFuzz(func(t *rapid.T) { play(t, draw(t)) }))
}

// Seed adds inputs that are long enough for a whole schedule: shorter ones end early.
func Seed(f *testing.F) {
	for i := range byte(8) {
		source, bytes := rand.NewChaCha8([32]byte{i}), make([]byte, 8<<10)
		source.Read(bytes) // never fails
		f.Add(bytes)
	}
}

// player is one schedule in progress.
type player struct {
	Pair
	t     *rapid.T
	now   int64
	taken int64 // an instant at which something was charged
	last  weir.Decision
}

// Begin is the first instant of every schedule: in 2026, and no multiple of a period.
const Begin = 1_790_443_553_057_798

func play(t *rapid.T, pair Pair) {
	p := &player{Pair: pair, t: t, now: Begin, taken: Begin}
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		p.now = max(0, p.now+p.tick())
		p.step()
	}
}

// retry is the last wait in microseconds, 0 if no wait helps.
func (p *player) retry() int64 {
	if p.last.RetryAfter == weir.Never {
		return 0
	}
	return p.last.RetryAfter.Microseconds()
}

// tick is the next step of the clock: mostly to an instant of change, sometimes back.
func (p *player) tick() int64 {
	span := max(1, p.last.ResetAfter.Microseconds())
	switch rapid.SampledFrom(ticks).Draw(p.t, "tick") {
	case "micro":
		return 1
	case "retry":
		return p.retry()
	case "almost retry":
		return max(0, p.retry()-1)
	case "reset":
		return p.last.ResetAfter.Microseconds()
	case "almost reset":
		return max(0, p.last.ResetAfter.Microseconds()-1)
	case "forward":
		return rapid.Int64Range(0, span).Draw(p.t, "forward")
	case "idle":
		return rapid.Int64Range(span, 4*span).Draw(p.t, "idle")
	case "back":
		return -rapid.Int64Range(1, span).Draw(p.t, "back")
	case "far back":
		return -rapid.Int64Range(span, 4*span).Draw(p.t, "far back")
	}
	return 0
}

var ticks = []string{
	"same", "same", "micro", "retry", "almost retry", "reset", "almost reset",
	"forward", "forward", "forward", "idle", "back", "far back",
}

func (p *player) step() {
	cost, floor := p.cost(), p.floor()
	op := rapid.SampledFrom([]string{"take", "take", "take", "take", "peek", "charge", "refund"}).Draw(p.t, "op")
	if op != "peek" && cost > 0 {
		p.Twin.Back(p.now)
		p.model.Back(p.Limit, p.now)
	}
	switch op {
	case "take":
		p.take(cost, floor, rapid.SampledFrom([]int64{1, 1, 1, 2, 5, 17, 1 << 40}).Draw(p.t, "times"))
	case "charge":
		p.charge(cost)
	case "refund":
		p.refund(cost, rapid.SampledFrom([]int64{0, 0, 0, 1, -1}).Draw(p.t, "off"))
	}
	p.describe(cost, floor)
}

// refund gives units back; every other time, if the algorithm has delays, those of a grant that
// still waits.
func (p *player) refund(cost, off int64) {
	twin, ok := p.Twin.(canceler)
	if ok && rapid.Bool().Draw(p.t, "waits") {
		wait := p.last.Delay.Microseconds()
		due := p.now + rapid.SampledFrom([]int64{wait, wait / 2, wait / 3, 2*wait + 1}).Draw(p.t, "due") + off
		twin.Cancel(cost, due, p.now)
		if due > p.now { // what was charged after the grant stays
			cost -= min(cost, p.model.(model.Indebted).After(p.Limit, due))
		}
	} else {
		p.Twin.Refund(cost, p.taken+off, p.now)
	}
	if cost > 0 {
		p.model.Refund(p.Limit, cost, p.taken+off, p.now)
	}
}

func (p *player) cost() int64 {
	most := p.Limit.Most()
	switch rapid.SampledFrom([]string{"one", "one", "none", "few", "all", "beyond", "any"}).Draw(p.t, "cost") {
	case "none":
		return 0
	case "few":
		return rapid.Int64Range(1, min(7, most)).Draw(p.t, "few")
	case "all":
		return most
	case "beyond":
		return min(most+1, weir.MaxUnits)
	case "any":
		return rapid.Int64Range(0, min(2*most, weir.MaxUnits)).Draw(p.t, "any")
	}
	return 1
}

// floor is mostly none, and at times more than the limit can hold.
func (p *player) floor() int64 {
	most := p.Limit.Most()
	return rapid.SampledFrom([]int64{0, 0, 0, 1, most / 5, most / 2, most - 1, most, most + 1}).Draw(p.t, "floor")
}

func (p *player) charge(n int64) {
	p.Twin.Charge(n, p.now)
	if n > 0 {
		p.model.Charge(p.Limit, n, p.now)
	}
	p.taken = p.now
}

func (p *player) take(cost, floor, times int64) {
	if cost > 1 {
		times = min(times, weir.MaxUnits/cost)
	}
	granted := algorithm.Fit(p.Twin.Available(p.now)-floor, cost, times)
	read := p.model.Clone()
	read.Back(p.Limit, p.now)
	want := model.First(func(k int64) bool { return k >= times || !read.Fits(p.Limit, cost*(k+1)+floor, p.now) })
	if granted != want {
		p.t.Fatalf("%s at %d: %d × %d units, floor %d: granted %d, want %d", p.Limit, p.now, times, cost,
			floor, granted, want)
	}
	if granted > 0 {
		p.charge(cost * granted)
	}
}

// describe compares the decision with the definitions of its fields.
func (p *player) describe(cost, floor int64) {
	p.last = p.Twin.Decision(cost+floor, p.now)
	p.last.Remaining = algorithm.LessFloor(p.last.Remaining, floor)
	if want := model.Describe(p.model, p.Limit, cost, floor, p.now); p.last != want {
		p.t.Fatalf("%s at %d: for a cost of %d, floor %d\n got %+v\nwant %+v", p.Limit, p.now, cost, floor, p.last,
			want)
	}
}
