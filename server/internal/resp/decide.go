package resp

import (
	"errors"
	"slices"
	"strconv"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/wording"
	"github.com/weirproject/weir/rules"
)

// decide is WEIR.DECIDE: see docs/reference/resp.md.
func (c *conn) decide(args [][]byte) {
	if d := c.readQuestion(args[1:], anything); d != nil {
		d.times = d.q.times
		c.submit(d)
	}
}

// peek is WEIR.PEEK: the same question without a charge.
func (c *conn) peek(args [][]byte) {
	if d := c.readQuestion(args[1:], claimsAndMore); d != nil {
		d.times = 0
		c.submit(d)
	}
}

// readQuestion reads a question; after a mistake it answers the error and returns nil.
func (c *conn) readQuestion(words [][]byte, may permission) *decision {
	d := c.slot()
	if err := d.q.read(c, words, may); err != nil {
		c.settle()
		c.failWith(err)
		return nil
	}
	return d
}

func (c *conn) failWith(err error) { c.fail("ERR ", err.Error()) }

// answerQuestion answers WEIR.DECIDE and WEIR.PEEK.
func (c *conn) answerQuestion(d *decision, err error) {
	if err != nil {
		c.failWith(err)
		return
	}
	if v := &d.verdict; v.Outcome == gate.Failed && v.Rule == nil {
		text, allowed := c.unanswered(v)
		if !allowed {
			c.fail(text)
			return
		}
		v.Outcome, v.Granted = gate.Passed, d.times
	}
	c.answerVerdict(&d.verdict, d.q.asked())
}

// unanswered is the answer if the store failed and no rule has a policy.
func (c *conn) unanswered(v *gate.Verdict) (text string, allowed bool) {
	switch {
	case errors.Is(v.Err, weir.ErrForeignState):
		return errForeign, false
	case c.server.failOpen:
		return "", true
	}
	return errUnanswered, false
}

// answerVerdict answers a map, or in RESP2 its names and values in turn.
func (c *conn) answerVerdict(v *gate.Verdict, r *rules.Request) {
	var limit string
	var d weir.Decision
	if check, ok := v.Worst(); ok {
		limit, d = check.Claim.Limit.Name(), *check.Decision
	}
	rule := ""
	if v.Rule != nil {
		rule = v.Rule.Name()
	}
	message, _, said := wording.OwnOf(v, r)
	c.fields(12 + int(oneIf(said)+oneIf(v.Found)))
	c.number("granted", v.Granted)
	c.word("outcome", v.Outcome.String())
	c.word("reason", v.Reason.String())
	c.word("rule", rule)
	c.word("limit", limit)
	c.number("remaining", d.Remaining)
	c.number("retry_after_us", microseconds(d))
	c.number("reset_after_us", d.ResetAfter.Microseconds())
	c.number("delay_us", v.Delay.Microseconds())
	c.word("lease", v.Lease())
	c.number("at_us", int64(d.At))
	c.number("degraded", oneIf(v.Degraded()))
	if said {
		c.word("message", message)
	}
	if v.Found {
		c.number("repeated", 1)
	}
}

func (c *conn) number(name string, n int64) {
	c.bulk(name)
	c.integer(n)
}

func oneIf(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

func (c *conn) word(name, text string) {
	c.bulk(name)
	c.bulkOrNull(text)
}

func microseconds(d weir.Decision) int64 {
	if d.RetryAfter == weir.Never {
		return -1
	}
	return d.RetryAfter.Microseconds()
}

// refund is WEIR.REFUND at_us question: it refunds the charges of that instant.
func (c *conn) refund(args [][]byte) {
	at, err := strconv.ParseInt(string(args[1]), 10, 64)
	if err != nil {
		c.fail("ERR at_us is not an integer: give the at_us that WEIR.DECIDE answered")
		return
	}
	d := c.readQuestion(args[2:], claimsAndMore)
	if d == nil {
		return
	}
	defer d.reset()
	receipt, ok := c.receipt(d)
	if !ok {
		return
	}
	receipt = slices.DeleteFunc(receipt, isLease)
	for i := range receipt {
		receipt[i].Taken = weir.Instant(at)
	}
	c.count(len(receipt), c.server.gate.Settle(c.server.ctx, receipt, 0))
}

// release is WEIR.RELEASE lease question.
func (c *conn) release(args [][]byte) {
	lease := string(args[1])
	d := c.readQuestion(args[2:], claimsOfOne)
	if d == nil {
		return
	}
	defer d.reset()
	receipt, ok := c.receipt(d)
	if !ok {
		return
	}
	receipt = slices.DeleteFunc(receipt, isNoLease)
	if len(receipt) == 0 {
		c.fail("ERR the question has no concurrency limit: only those have leases")
		return
	}
	for i := range receipt {
		receipt[i].Claim.Lease = lease
	}
	err := c.server.gate.Release(c.server.ctx, receipt)
	if onlyGone(err) {
		c.integer(0)
		return
	}
	c.count(len(receipt), err)
}

func isLease(c gate.Charged) bool { return c.Claim.Limit.Leases() }

func isNoLease(c gate.Charged) bool { return !isLease(c) }

// onlyGone reports whether all errors are that a lease had ended.
func onlyGone(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		isOther := func(one error) bool { return !errors.Is(one, weir.ErrLeaseGone) }
		return !slices.ContainsFunc(joined.Unwrap(), isOther)
	}
	return errors.Is(err, weir.ErrLeaseGone)
}

// resetState is WEIR.RESET question.
func (c *conn) resetState(args [][]byte) {
	d := c.readQuestion(args[1:], claimsOnly)
	if d == nil {
		return
	}
	defer d.reset()
	receipt, ok := c.receipt(d)
	if !ok {
		return
	}
	claims := make([]weir.Claim, len(receipt))
	for i := range receipt {
		claims[i] = receipt[i].Claim
	}
	var err error
	if len(claims) > 0 {
		err = c.server.store.Reset(c.server.ctx, claims)
	}
	c.count(len(claims), err)
}

// receipt is the claims of a question: the ones that it names, and the claims of the rules, which a decision
// without a charge finds.
func (c *conn) receipt(d *decision) (list gate.Receipt, ok bool) {
	if d.q.asked() == nil {
		for _, claim := range d.q.claims {
			list = append(list, gate.Charged{Claim: claim})
		}
		return list, true
	}
	d.times = 0
	q := d.question()
	if err := c.server.gate.Decide(c.server.ctx, q.Request, q.Ask, q.Verdict); err != nil {
		c.failWith(err)
		return nil, false
	}
	v := &d.verdict
	if v.Err != nil {
		c.fail(errUnanswered)
		return nil, false
	}
	for i := range v.Len() {
		check := v.At(i)
		list = append(list, gate.Charged{Rule: check.Rule, Claim: *check.Claim, Local: check.Local})
	}
	return list, true
}

// count answers the number of limits, or the error.
func (c *conn) count(n int, err error) {
	var input *weir.InputError
	switch {
	case err == nil:
		c.integer(int64(n))
	case errors.As(err, &input):
		c.failWith(err)
	case errors.Is(err, weir.ErrForeignState):
		c.fail(errForeign)
	default:
		c.fail(errUnanswered)
	}
}
