package chance

import "testing"

// NoAllocations fails if a twin whose state has its final size allocates, granted or
// refused.
func NoAllocations(t *testing.T, name string, twin Twin) {
	t.Helper()
	now := int64(Begin)
	step := func() {
		now += 100_000
		for range 3 {
			if twin.Available(now) >= 2 {
				twin.Charge(2, now)
			}
			twin.Decision(2, now)
		}
		twin.Refund(1, now, now)
	}
	for range 1000 { // to its final size
		step()
	}
	if n := testing.AllocsPerRun(1000, step); n != 0 {
		t.Errorf("%s: %v allocations", name, n)
	}
}
