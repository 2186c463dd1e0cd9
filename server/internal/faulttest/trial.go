package faulttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirproject/weir"
)

const (
	felt  = 200             // errors after which a fault was effective
	await = 2 * time.Minute // far beyond the expected seconds
	often = 5 * time.Millisecond

	// hurried is how long a wait for decisions lasts before the load is eased: a machine that does not keep up with it
	// decides nothing in time.
	hurried = 4 * time.Second
)

// A Trial is a fault, and its permitted effects.
type Trial struct {
	Rate   int // decisions a second
	Strike func(*Load)
	Lasts  func() bool // reports the time for Mend; nil: after enough errors
	Mend   func()      // repairs; nil: the servers recover by themselves

	Says      string // text of at least one error
	Unnoticed bool   // errors are not required
	Forgets   bool   // what Redis answered may be forgotten, once
}

// Run injects the fault under load and checks that each answer is in time and of the right kind, that nothing is
// charged twice or granted beyond the bound, that all keys are decided again, and that in the end no slot is held
// (unless the fault forgets).
// The store's calls end after budget. patient opens another store on the same state, for the recount. Keys begin with
// prefix and must be unused.
func (f *Trial) Run(ctx context.Context, store weir.Store, patient func() weir.Store, prefix string,
	budget time.Duration) (Report, error) {
	load := Start(store, prefix, f.Rate, budget)
	defer load.End() // Strike may panic
	back, err := f.breakAndMend(load)
	if !load.End() {
		return load.Report(), errors.Join(err, errors.New("decisions hang"))
	}
	r := load.Report()
	r.Back = back
	if err == nil {
		read := patient()
		err = load.Recount(ctx, read, &r)
		if !f.Forgets { // the answered release of a slot, too, until its time-to-live is over
			err = errors.Join(err, load.slots.free(ctx, read))
		}
	}
	return r, errors.Join(err, f.check(&r))
}

// breakAndMend returns the time from the repair, or else the fault, until each key was decided again.
func (f *Trial) breakAndMend(load *Load) (back time.Duration, err error) {
	if err := wait("the load to exhaust the tight keys",
		easing(load, func() bool { return load.Spent() && load.Flowing(time.Time{}) })); err != nil {
		return 0, err
	}
	before := load.Degraded()
	load.Mark()
	begun := time.Now()
	f.Strike(load)
	if f.Mend != nil {
		lasts := f.Lasts
		if lasts == nil {
			lasts = func() bool { return f.Unnoticed || load.Degraded() > before+felt && load.Failed(f.Says) > 0 }
		}
		if err := wait("enough errors of the fault", lasts); err != nil {
			return 0, err
		}
		begun = time.Now()
		f.Mend()
	}
	for range 2 { // twice, so that they also continue
		since := time.Now()
		if err := wait("decisions to flow", easing(load, func() bool { return load.Flowing(since) })); err != nil {
			return 0, err
		}
		if back == 0 {
			back = time.Since(begun)
		}
	}
	return back, nil
}

// easing is ok, and eases the load each time that it was false for long.
func easing(load *Load, ok func() bool) func() bool {
	last := time.Now()
	return func() bool {
		done := ok()
		if !done && time.Since(last) > hurried {
			last = time.Now()
			load.ease()
		}
		return done
	}
}

func wait(what string, ok func() bool) error {
	for deadline := time.Now().Add(await); !ok(); time.Sleep(often) {
		if time.Now().After(deadline) {
			return fmt.Errorf("timed out after %v waiting for %s", await, what)
		}
	}
	return nil
}

// check returns the violations, whatever the fault.
func (f *Trial) check(r *Report) error {
	var all []error
	bad := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	for _, wrong := range r.Wrong {
		bad("%s", wrong)
	}
	if r.Late > 0 {
		bad("%d of %d answers were too late; the longest took %v", r.Late, r.Asked, r.Max)
	}
	if r.Twice > 0 {
		bad("%d units were charged without a grant", r.Twice)
	}
	most := int64(0)
	if f.Forgets { // once, so each limit starts again once
		most = 1
	}
	if r.Bursts > most {
		bad("a key was granted %d units more than its limit", r.Over)
	}
	if r.Lost > 0 && !f.Forgets {
		bad("%d grants are forgotten", r.Lost)
	}
	if r.Degraded == 0 && !f.Unnoticed {
		bad("no answer was an error: the fault did not strike")
	}
	if !strings.Contains(r.Texts(), f.Says) {
		bad("no error says %q", f.Says)
	}
	return errors.Join(all...)
}
