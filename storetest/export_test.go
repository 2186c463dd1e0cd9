package storetest

import (
	"fmt"

	"github.com/weirproject/weir"
)

// FindsALie reports whether Honest fails a store.
func FindsALie(open func(clock func() weir.Instant) weir.Store, spec weir.Spec) (found bool) {
	var now clock
	now.set(epoch)
	defer func() {
		if recover() != nil {
			found = true
		}
	}()
	honest(panicking{}, &honesty{panicking{}, open(now.read), &now, weir.MustLimit("honest", spec)})
	return false
}

// panicking is a TB whose failure is a panic.
type panicking struct{}

func (panicking) Helper()                           {}
func (panicking) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
