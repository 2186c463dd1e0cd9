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
	felt  = 200              // errors of which a fault is felt
	await = 30 * time.Second // for what comes within seconds
	often = 5 * time.Millisecond
)

// A Trial is a fault, and what may come of it.
type Trial struct {
	Rate   int // decisions a second
	Strike func(*Load)
	Lasts  func() bool // until when, while nothing is mended; nil: until the fault was felt
	Mend   func()      // nil: it mends itself

	Says      string // what some error must say
	Unnoticed bool   // no answer need be an error
	Forgets   bool   // grants may be forgotten, once: all, or what was not replicated
}

// Run tries a store, whose calls end after budget: whatever breaks, each answer is there in
// time and of the right kind, nothing is charged twice or granted beyond the bound, and
// decisions flow again. patient opens another on the same state, for the recount. Keys
// begin with prefix, and are not used before.
func (f *Trial) Run(ctx context.Context, store weir.Store, patient func() weir.Store, prefix string, budget time.Duration) (Report, error) {
	load := Start(store, prefix, f.Rate, budget)
	defer load.End() // where a fault cannot be made, Strike does not return
	back, err := f.breakAndMend(load)
	if !load.End() {
		return load.Report(), errors.Join(err, errors.New("decisions hang"))
	}
	r := load.Report()
	r.Back = back
	if err == nil {
		err = load.Recount(ctx, patient(), &r)
	}
	return r, errors.Join(err, f.check(&r))
}

// breakAndMend says how long it took, from the mending on, until each key was decided again.
func (f *Trial) breakAndMend(load *Load) (back time.Duration, err error) {
	if err := wait("the load to spend what is there", func() bool { return load.Spent() && load.Flowing(time.Time{}) }); err != nil {
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
		if err := wait("the fault to be felt", lasts); err != nil {
			return 0, err
		}
		begun = time.Now()
		f.Mend()
	}
	for range 2 { // and go on flowing
		since := time.Now()
		if err := wait("decisions to flow", func() bool { return load.Flowing(since) }); err != nil {
			return 0, err
		}
		if back == 0 {
			back = time.Since(begun)
		}
	}
	return back, nil
}

func wait(what string, ok func() bool) error {
	for deadline := time.Now().Add(await); !ok(); time.Sleep(often) {
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %v in vain for %s", await, what)
		}
	}
	return nil
}

// check is what may not be, however the fault went.
func (f *Trial) check(r *Report) error {
	var all []error
	bad := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	for _, wrong := range r.Wrong {
		bad("%s", wrong)
	}
	if r.Late > 0 {
		bad("%d of %d answers came too late; the longest took %v", r.Late, r.Asked, r.Max)
	}
	if r.Twice > 0 {
		bad("%d units were charged that nobody was granted", r.Twice)
	}
	most := int64(0)
	if f.Forgets { // once, so that a limit begins anew once
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
