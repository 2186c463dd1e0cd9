package redisstore

import "github.com/weirproject/weir/internal/redisconn"

// largest is the largest whole number that a script replies: Lua's numbers are doubles.
const largest = 1 << 53

// integers returns an error if an element of a reply is no whole number of a script.
func integers(reply []redisconn.Value) error {
	for i := range reply {
		if v := &reply[i]; v.IsText || v.Int > largest || v.Int < -largest {
			return redisconn.Malformed("element %d is no whole number below 2^53", i+1)
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

// isCode reports whether a reply is the code of a script that changed no state, and its time.
func isCode(reply []redisconn.Value) bool {
	return len(reply) == 2 && !reply[0].IsText && (reply[0].Int == otherPeriod || reply[0].Int == otherForm)
}

// check returns an error if a reply does not have the shape of the call's.
func (c *call) check(kinds []*kind, reply []redisconn.Value) error {
	head := 2
	if c.op == opTake {
		head = 1
	}
	if want := head + width(kinds); len(reply) != want && !isCode(reply) {
		return redisconn.Malformed("it has %d elements, not %d", len(reply), want)
	}
	return integers(reply)
}

// inRange returns an error if no script grants that number of requests, at that time.
func (c *call) inRange(driven bool) error {
	if c.granted < 0 || c.granted > c.times {
		return redisconn.Malformed("%d of %d requests are granted", c.granted, c.times)
	}
	return timely(c.at, driven)
}

// earliest is the least plausible time of a clock, in µs: one that was never set counts from 1970.
const earliest = 1_000_000_000

// timely returns an error for a time that no clock of Redis shows.
func timely(now int64, driven bool) error {
	if now < earliest && !driven {
		return redisconn.Malformed("the time is %d", now)
	}
	return nil
}
