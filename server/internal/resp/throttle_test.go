package resp_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/server/internal/resp"
)

// TestThrottleEqualsRedisCell is the table of redis-cell's own test of its arithmetic
// (it_rate_limits), with durations as its command replies them.
func TestThrottleEqualsRedisCell(t *testing.T) {
	h := open(t)
	c := h.dial()
	// The clock stands where the case says; replies are limited, limit, remaining, retry
	// after, reset after.
	for i, step := range []struct {
		at       time.Duration
		quantity string
		want     string
	}{
		{0, "6", "[1 5 5 -1 0]"}, // never more than the maximum
		{0, "1", "[0 5 4 -1 1]"},
		{0, "1", "[0 5 3 -1 2]"},
		{0, "1", "[0 5 2 -1 3]"},
		{0, "1", "[0 5 1 -1 4]"},
		{0, "1", "[0 5 0 -1 5]"},
		{0, "1", "[1 5 0 1 5]"},
		{3 * time.Second, "1", "[0 5 2 -1 3]"},
		{3100 * time.Millisecond, "1", "[0 5 1 -1 4]"},
		{4 * time.Second, "1", "[0 5 1 -1 4]"},
		{8 * time.Second, "1", "[0 5 4 -1 1]"},
		{9500 * time.Millisecond, "1", "[0 5 4 -1 1]"},
		{9500 * time.Millisecond, "0", "[0 5 4 -1 1]"}, // looks only
		{9500 * time.Millisecond, "2", "[0 5 2 -1 3]"},
		{9500 * time.Millisecond, "5", "[1 5 2 3 3]"},
	} {
		h.clock.Store(int64(start) + step.at.Microseconds())
		c.words("CL.THROTTLE", "foo", "4", "1", "1", step.quantity)
		if got := c.reply(); got != step.want {
			t.Errorf("case %d: quantity %s at %v: %s, want %s", i, step.quantity, step.at, got, step.want)
		}
	}
}

func TestThrottleErrorsEqualRedisCell(t *testing.T) {
	h := open(t)
	c := h.dial()
	const usage = "-Cell error: Store error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]"
	for _, test := range []struct{ words, want string }{
		{"CL.THROTTLE", usage},
		{"cl.throttle k 1 1", usage},
		{"cl.throttle k 1 1 1 1 1", usage},
		{"cl.throttle k x y z q", "-Cell error: Store error: Couldn't parse as integer: x"},
		{"cl.throttle k 1 1.5 z q", "-Cell error: Store error: Couldn't parse as integer: 1.5"},
		{"cl.throttle k 1 1 1s q", "-Cell error: Store error: Couldn't parse as integer: 1s"},
		{"cl.throttle k 1 0 1 q", "-Cell error: Store error: Couldn't parse as integer: q"},
		{"cl.throttle k 9223372036854775808 1 1", "-Cell error: Store error: Couldn't parse as integer: 9223372036854775808"},
		{"cl.throttle k 1 0 1", "-Cell error: Store error: Zero rates are not supported"},
		{"cl.throttle k 1 1 0 1", "-Cell error: Store error: Zero rates are not supported"},
		// These wrap around or divide by zero there.
		{"cl.throttle k -1 1 1", "-Cell error: max_burst is -1; allowed: 0 or more"},
		{"cl.throttle k 1 -1 1", "-Cell error: count per period is -1; allowed: 1 or more"},
		{"cl.throttle k 1 1 -1", "-Cell error: period is -1; allowed: 1 to 4503599627 seconds"},
		{"cl.throttle k 1 1 9223372037", "-Cell error: period is 9223372037; allowed: 1 to 4503599627 seconds"},
		{"cl.throttle k 1 1 1 -1", "-Cell error: quantity is -1; allowed: 0 or more; WEIR.REFUND gives back"},
		{"cl.throttle k 9223372036854775807 1 1", "-Cell error: weir: capacity is 4503599627370497; allowed: 1 to 4503599627370496 (2^52)"},
		{"cl.throttle k 15 30 60 9223372036854775807", "-Cell error: weir: cost is 9223372036854775807; allowed: 0 to 4503599627370496 (2^52)"},
		{"cl.throttle k +15 30 60", "[0 16 15 -1 2]"},
		{"cl.throttle fast 15 2000000000 1", "[0 16 15 -1 1]"}, // a zero rate there: a unit takes less than a nanosecond
	} {
		c.want(test.want, w(test.words)...)
	}
	c.want("-Cell error: Store error: Couldn't parse as integer: ", "CL.THROTTLE", "k", "", "1", "1")
	c.want("-Cell error: Store error: Couldn't parse as integer: 1  2", "CL.THROTTLE", "k", "1\r\n2", "1", "1")
	c.want(`-Cell error: weir: key is "0 bytes"; allowed: 1 to 65536 bytes`, "CL.THROTTLE", "", "1", "1", "1")
	c.want("-Cell error: Store error: Couldn't parse as integer: "+strings.Repeat("1", 128), "CL.THROTTLE", "k", strings.Repeat("1", 500), "1", "1")
}

// TestThrottleRetryAfterIsTrue: a request after retry_after is granted, whatever the numbers; a
// microsecond earlier could be too early, which is why a part of a second counts as one.
func TestThrottleRetryAfterIsTrue(t *testing.T) {
	h := open(t)
	c := h.dial()
	for _, numbers := range [][]string{{"0", "3", "10"}, {"2", "7", "60"}, {"0", "999", "1000"}, {"4", "1000000", "3"}} {
		key := strings.Join(numbers, "/")
		for range 5 {
			for {
				c.words(append([]string{"CL.THROTTLE", key}, numbers...)...)
				reply := w(strings.Trim(c.reply(), "[]"))
				if reply[0] == "1" {
					retry, err := strconv.Atoi(reply[3])
					if err != nil || retry < 1 {
						t.Fatalf("%s: refused with retry after %s", key, reply[3])
					}
					h.pass(time.Duration(retry) * time.Second)
					break
				}
			}
			c.words(append([]string{"CL.THROTTLE", key}, numbers...)...)
			if reply := c.reply(); !strings.HasPrefix(reply, "[0 ") {
				t.Errorf("%s: the request after retry_after was refused: %s", key, reply)
			}
		}
	}
	// 0.1 ms short of a unit: redis-cell answers 0 seconds here, and refuses a request then.
	c.want("[0 1 0 -1 1]", w("CL.THROTTLE k 0 1 1")...)
	h.pass(999_900 * time.Microsecond)
	c.want("[1 1 0 1 1]", w("CL.THROTTLE k 0 1 1")...)
}

// TestThrottleNumbersMayChange: one key is one bucket whatever its numbers.
func TestThrottleNumbersMayChange(t *testing.T) {
	c := open(t).dial()
	c.want("[0 10 4 -1 6]", w("CL.THROTTLE k 9 1 1 6")...)
	c.want("[0 20 13 -1 7]", w("CL.THROTTLE k 19 1 1")...)
	c.want("[1 5 0 2 7]", w("CL.THROTTLE k 4 1 1 0")...) // more is used than there is: even a look meets it
	c.want("1", w("WEIR.RESET LIMIT cl.throttle 1/1s k")...)
	c.want("[0 5 5 -1 0]", w("CL.THROTTLE k 4 1 1 0")...)
}

// TestCachedLimitsAreBounded: clients choose any number of different limits.
func TestCachedLimitsAreBounded(t *testing.T) {
	h := open(t)
	c := h.dial()
	for i := range 5000 {
		c.want(fmt.Sprintf("[0 %d %d -1 1]", i+1, i), "CL.THROTTLE", strconv.Itoa(i), strconv.Itoa(i), "1", "1")
	}
	if n := resp.Compiled(h.server); n > 1024 {
		t.Errorf("%d limits are kept", n)
	}
	c.want("[0 3 2 -1 1]", "CL.THROTTLE", "long", strings.Repeat("0", 30)+"2", "1", "1")
}

func TestThrottleWhileTheStoreDoesNotAnswer(t *testing.T) {
	c := openOn(t, broken{memstore.New(), errGone}).dial()
	c.want("-ERR the store did not answer; whether this was charged is not known", w("CL.THROTTLE k 15 30 60")...)

	c = openOn(t, broken{memstore.New(), errGone}, resp.WithFailOpen()).dial()
	c.want("[0 16 15 -1 2]", w("CL.THROTTLE k 15 30 60")...)
	c.want("[0 16 15 -1 2]", w("CL.THROTTLE k 15 30 60")...)
	c.want("[1 16 16 -1 0]", w("CL.THROTTLE k 15 30 60 17")...)

	// State of somebody else's is no outage: it stays, and nobody passes for it.
	c = openOn(t, broken{memstore.New(), weir.ErrForeignState}, resp.WithFailOpen()).dial()
	c.want("-WRONGTYPE the state under this key is not weir's", w("CL.THROTTLE k 15 30 60")...)
}

func TestEachDecisionPassesTheGate(t *testing.T) {
	h := open(t)
	c := h.dial()
	c.want("[0 16 15 -1 2]", w("CL.THROTTLE k 15 30 60")...)
	c.words(w("WEIR.DECIDE LIMIT a 1/1s k")...)
	c.reply()
	c.words(w("WEIR.DECIDE RULES method GET")...)
	c.reply()
	if n := h.seen.Load(); n != 3 {
		t.Errorf("the gate's observer saw %d decisions", n)
	}
}
