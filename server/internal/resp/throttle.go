package resp

import (
	"math"
	"strconv"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/server/internal/web"
)

// throttleName is the name of CL.THROTTLE's limits, whatever their numbers: in redis-cell a key is one
// bucket, and the numbers may change from call to call.
const throttleName = "cl.throttle"

// The errors of redis-cell, to the letter; errors that redis-cell does not have begin with cellError.
const (
	cellError = "Cell error: "
	cellStore = cellError + "Store error: "
	cellUsage = cellStore + "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]"
	cellZero  = cellStore + "Zero rates are not supported"
	cellInt   = cellStore + "Couldn't parse as integer: "
)

// errUnanswered is the error of claims that no rule has a policy for.
const errUnanswered = "ERR the store did not answer; whether this was charged is not known"

const errForeign = "WRONGTYPE the state under this key is not weir's"

// throttle is CL.THROTTLE key max_burst count period [quantity].
func (c *conn) throttle(args [][]byte) {
	if len(args) != 5 && len(args) != 6 {
		c.reject(cellUsage)
		return
	}
	words := c.key('t', args[2:5]...)
	known, quantity := c.server.compiled(words), int64(1)
	limit := known
	if known == nil || len(args) == 6 {
		var err string
		if limit, quantity, err = readThrottle(args[2:], known); err != "" {
			c.reject(err)
			return
		}
	}
	if known == nil {
		c.server.remember(words, limit)
	}
	d := c.slot()
	d.limit, d.quantity, d.times = limit, quantity, 1
	// Stores copy keys, so the key may be in the read buffer.
	d.one[0] = weir.Claim{Key: claimKey(args[1]), Limit: limit, Cost: quantity}
	c.submit(d)
}

// readThrottle reads the numbers in the order of redis-cell: its first error is the reply.
func readThrottle(args [][]byte, known *weir.Limit) (limit *weir.Limit, quantity int64, err string) {
	numbers := [4]int64{3: 1}
	for i, arg := range args {
		n, ok := integer(arg)
		if !ok {
			return nil, 0, cellInt + quoted(arg, 128)
		}
		numbers[i] = n
	}
	burst, count, period, quantity := numbers[0], numbers[1], numbers[2], numbers[3]
	if limit = known; limit == nil {
		if limit, err = makeThrottle(burst, count, period); err != "" {
			return nil, 0, err
		}
	}
	if quantity < 0 {
		return nil, 0, cellRange("quantity", quantity, "0 or more; WEIR.REFUND gives back")
	}
	return limit, quantity, ""
}

// makeThrottle makes the limit. Numbers that overflow in redis-cell, or divide by zero, are errors.
func makeThrottle(burst, count, period int64) (*weir.Limit, string) {
	switch {
	case count == 0 || period == 0:
		return nil, cellZero
	case burst < 0:
		return nil, cellRange("max_burst", burst, "0 or more")
	case count < 0:
		return nil, cellRange("count per period", count, "1 or more")
	case period < 0 || period > math.MaxInt64/int64(time.Second):
		return nil, cellRange("period", period, "1 to 4503599627 seconds")
	}
	limit, err := weir.NewLimit(throttleName, weir.Throttle(burst, count, time.Duration(period)*time.Second))
	if err != nil {
		return nil, cellError + err.Error()
	}
	return limit, ""
}

func cellRange(field string, given int64, allowed string) string {
	return cellError + field + " is " + strconv.FormatInt(given, 10) + "; allowed: " + allowed
}

// integer reads a number as redis-cell does: with an optional plus.
func integer(text []byte) (int64, bool) {
	if len(text) > 32 {
		return 0, false
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	return n, err == nil
}

// answerThrottle answers redis-cell's five numbers.
func (c *conn) answerThrottle(d *decision, err error) {
	if err != nil {
		c.fail(cellError, err.Error())
		return
	}
	v := &d.verdict
	if v.Outcome != gate.Failed {
		check, _ := v.Worst()
		c.five(v.Outcome == gate.Passed, d.limit, check.Decision)
		return
	}
	if text, allowed := c.unanswered(v); !allowed {
		c.fail(text)
		return
	}
	unused := fresh(d.limit, d.quantity)
	c.five(unused.RetryAfter == 0, d.limit, &unused)
}

// fresh is the decision of an unused bucket.
func fresh(limit *weir.Limit, cost int64) weir.Decision {
	if cost > limit.Capacity() {
		return weir.Decision{Remaining: limit.Capacity(), RetryAfter: weir.Never}
	}
	whole, rest := limit.Interval().Times(cost)
	if rest > 0 {
		whole++
	}
	return weir.Decision{Remaining: limit.Capacity() - cost, ResetAfter: time.Duration(whole) * time.Microsecond}
}

// five answers: limited, limit, remaining, retry after, reset after.
func (c *conn) five(granted bool, limit *weir.Limit, d *weir.Decision) {
	limited, retry := int64(1), seconds(d.RetryAfter)
	if granted {
		limited, retry = 0, -1
	}
	c.array(5)
	c.integer(limited)
	c.integer(limit.Capacity())
	c.integer(d.Remaining)
	c.integer(retry)
	c.integer(seconds(d.ResetAfter))
}

// seconds rounds up, so that a request after that time is granted. redis-cell does too, but drops the
// part below a millisecond. Never is -1.
func seconds(d time.Duration) int64 {
	if d == weir.Never {
		return -1
	}
	return int64((d + time.Second - 1) / time.Second)
}

// claimKey is the key of a claim, hashed if it is long.
func claimKey(word []byte) string { return web.ShortKey(text(word)) }
