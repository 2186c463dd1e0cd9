package redisstore

import (
	"fmt"

	"github.com/weirproject/weir"
)

// largest is the largest whole number that a script replies: Lua's numbers are doubles.
const largest = 1 << 53

// malformed is the error of a reply that no script of weir gives: a proxy, or a server that
// is none of Redis' kind, has answered.
func malformed(format string, args ...any) error {
	return fmt.Errorf("%w (%s): the reply is none of weir's scripts: %s", weir.ErrUnavailable, perhapsExecuted, fmt.Sprintf(format, args...))
}

// integers reports what in a reply is no whole number of a script.
func integers(reply []Value) error {
	for i := range reply {
		if v := &reply[i]; v.IsText || v.Int > largest || v.Int < -largest {
			return malformed("element %d is no whole number below 2^53", i+1)
		}
	}
	return nil
}

// width is how many numbers describe states of the kinds.
func width(kinds []*kind) (n int) {
	for _, k := range kinds {
		n += k.values
	}
	return n
}

// isCode reports whether a reply says why the script did nothing, and when.
func isCode(reply []Value) bool {
	return len(reply) == 2 && !reply[0].IsText && (reply[0].Int == otherPeriod || reply[0].Int == otherForm)
}

// check finds what is wrong with the shape of a reply, before anything is made of it.
func (c *call) check(kinds []*kind, reply []Value) error {
	head := 2
	if c.op == opTake {
		head = 1
	}
	if want := head + width(kinds); len(reply) != want && !isCode(reply) {
		return malformed("it has %d elements, not %d", len(reply), want)
	}
	return integers(reply)
}

// inRange reports whether a script can have granted so many requests, at that time.
func (c *call) inRange(driven bool) error {
	if c.granted < 0 || c.granted > c.times {
		return malformed("%d of %d requests are granted", c.granted, c.times)
	}
	return timely(c.at, driven)
}

// earliest is the least time that a clock is believed to show, µs: one that was never set counts from 1970.
const earliest = 1_000_000_000

// timely reports a time that no clock of Redis shows.
func timely(now int64, driven bool) error {
	if now < earliest && !driven {
		return malformed("the time is %d", now)
	}
	return nil
}
