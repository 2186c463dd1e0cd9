package layers

import (
	"errors"
	"slices"
	"testing"
)

// The begin and the end of an outage are reported, and not each attempt between.
func TestBreakerChanged(t *testing.T) {
	var opened []bool
	o := &Options{BreakerChanged: func(open bool, cause error) {
		if opened = append(opened, open); open != (cause != nil) {
			t.Errorf("open %v because of %v", open, cause)
		}
	}}
	from, failure := stateClosed, errors.New("connection refused")
	for _, to := range []breakerState{stateOpen, stateHalfOpen, stateOpen, stateHalfOpen, stateClosed} {
		change := breakerChange{From: from, To: to}
		if to == stateOpen {
			change.Cause = failure
		}
		o.changed(change)
		from = to
	}
	if want := []bool{true, false}; !slices.Equal(opened, want) {
		t.Errorf("reported %v, want %v", opened, want)
	}
}
