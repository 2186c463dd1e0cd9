package layers

import "time"

// Drive sets the clock of the refusal cache, and how long it remembers.
func (o *Options) Drive(clock func() time.Duration, longest time.Duration) {
	o.clock, o.longest = clock, longest
}
