package redisstore

import (
	"encoding/binary"
	"strconv"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
	"github.com/weirproject/weir/internal/algorithm/bucket"
	"github.com/weirproject/weir/internal/algorithm/concurrency"
	"github.com/weirproject/weir/internal/algorithm/slidingcounter"
	"github.com/weirproject/weir/internal/algorithm/slidinglog"
	"github.com/weirproject/weir/internal/algorithm/window"
	"github.com/weirproject/weir/internal/redisconn"
)

// kind is how a limit is decided in Lua: a twin, its arguments, and the decoding of its reply. A claim with a floor is
// sent as one of a limit that grants so many units less: no script has more to do for it. decide describes the state
// for a request of its cost and floor; the floor is still part of Remaining.
type kind struct {
	letter byte
	twin   string
	values int // of the reply
	args   func(a *arguments, c *weir.Claim)
	decide func(c *weir.Claim, reply []redisconn.Value, now int64) weir.Decision
	bucket func(reply []redisconn.Value) bucket.State // nil for other algorithms

	standing func(c *weir.Claim, reply []redisconn.Value, now int64) weir.Standing // nil for limits without members
}

// before is the decision before the last n of the granted units; last is that after them.
func (k *kind) before(c *weir.Claim, reply []redisconn.Value, last weir.Decision, n, now int64) weir.Decision {
	if k.bucket != nil {
		d := bucket.Before(c.Limit, k.bucket(reply), n, algorithm.Needs(c), now)
		d.Remaining = algorithm.LessFloor(d.Remaining, c.Floor)
		return d
	}
	return algorithm.Before(last, n)
}

// arguments are the arguments of a script, with space for its reply. They are reused, because allocating
// them took a quarter of the caller's time of a decision. Keys and arguments are cut from one
// string, which is not reused: it may be sent after the caller has given up.
type arguments struct {
	kinds []*kind
	words []string // keys, then the script's arguments
	reply []redisconn.Value
	// numbers are the numbers of a packed reply.
	numbers []redisconn.Value
	times   int64
	behind  bool         // Redis' clock was ahead of its present time
	units   bool         // the ladder of a refund has rungs of units: some of them may stay charged
	now     func() int64 // the caller's clock, for the bounds of calendars; Redis' decides
	sent    int64        // the time that a driven store sent

	text []byte
	ends []int // of the words in text
}

func (a *arguments) add(numbers ...int64) {
	for _, n := range numbers {
		a.text = strconv.AppendInt(a.text, n, 10)
		a.end()
	}
}

// addClaim adds the arguments of a claim.
func (a *arguments) addClaim(k *kind, c *weir.Claim) {
	if k.args(a, c); a.behind {
		a.addCaps(k, c)
	}
}

func (a *arguments) addText(text string) {
	a.text = append(a.text, text...)
	a.end()
}

func (a *arguments) end() { a.ends = append(a.ends, len(a.text)) }

// cut turns the added text into words.
func (a *arguments) cut() {
	text, from := string(a.text), 0
	for _, end := range a.ends {
		a.words = append(a.words, text[from:end])
		from = end
	}
	a.text, a.ends = a.text[:0], a.ends[:0]
}

// roomy is the most bytes of text that are kept for reuse.
const roomy = 16 << 10

// empty drops the references of the last call.
func (a *arguments) empty() {
	clear(a.words)
	clear(a.reply)
	a.kinds, a.words, a.reply, a.units = a.kinds[:0], a.words[:0], a.reply[:0], false
	if a.text, a.ends = a.text[:0], a.ends[:0]; cap(a.text) > roomy {
		a.text = nil
	}
}

const (
	plainLetter    = 'q'
	bucketLetter   = 'b'
	rationalLetter = 'r'
	partsLetter    = 'p'
)

// The kinds are constant tables.
var (
	plainKind  = kind{plainLetter, "plain", 1, plainArgs, bucketDecision, bucketState, nil}
	bucketKind = kind{bucketLetter, "bucket", 1, bucketArgs, bucketDecision, bucketState, nil}
	// rationalKind is partsKind in batches.
	rationalKind = kind{rationalLetter, "rational", 2, rationalArgs, partsDecision, partsState, nil}
	partsKind    = kind{partsLetter, "parts", 2, partsArgs, partsDecision, partsState, nil}
	stepKind     = kind{'s', "step", 2, stepArgs, partsDecision, partsState, nil}
	windowKind   = kind{'w', "window", 3, windowArgs, windowDecision, nil, nil}
	logKind      = kind{'l', "log", 3, logArgs, logDecision, nil, nil}
	counterKind  = kind{'c', "counter", 7, counterArgs, counterDecision, nil, nil}
	leaseKind    = kind{'h', "leases", 4, leaseArgs, leaseDecision, nil, nil}
)

// algorithms is the table of algorithms, by number: the mark that ends the name in the key of a state, and the kind of
// a limit.
var algorithms = [...]struct {
	mark string
	kind func(*weir.Limit) *kind
}{
	weir.AlgorithmTokenBucket:     {":b", kindOfBucket},
	weir.AlgorithmFixedWindow:     {":w", always(&windowKind)},
	weir.AlgorithmCalendar:        {":c", always(&windowKind)},
	weir.AlgorithmSlidingLog:      {":l", always(&logKind)},
	weir.AlgorithmSlidingCounter:  {":s", always(&counterKind)},
	weir.AlgorithmConcurrency:     {":h", always(&leaseKind)},
	weir.AlgorithmFairWindow:      {":f", always(&fairWindowKind)},
	weir.AlgorithmFairCalendar:    {":g", always(&fairWindowKind)},
	weir.AlgorithmFairConcurrency: {":H", always(&fairLeaseKind)},
}

func always(k *kind) func(*weir.Limit) *kind { return func(*weir.Limit) *kind { return k } }

func kindOf(l *weir.Limit) *kind { return algorithms[l.Algorithm()].kind(l) }

func kindOfBucket(l *weir.Limit) *kind {
	switch {
	case l.Step():
		return &stepKind
	case l.Interval().Num != 0:
		return &partsKind
	}
	return &bucketKind
}

// kindOfTake is the kind that decides an ordinary request if the states are of the usual form.
func kindOfTake(l *weir.Limit) *kind {
	if k := kindOf(l); k != &bucketKind {
		return k
	}
	return &plainKind
}

func plainArgs(a *arguments, c *weir.Claim) {
	unit, _ := c.Limit.Interval().Times(c.Cost)
	span, _ := spanOf(c)
	a.add(unit, span)
}

// spanOf is how far ahead the full instant of a bucket may be after a claim was granted, in µs and a part: less than
// that of its limit by the claim's floor, and -1 for a floor that never fits.
func spanOf(c *weir.Claim) (whole, part int64) {
	if c.Floor == 0 {
		return c.Limit.Span().Whole, c.Limit.Span().Num
	}
	if c.Floor > c.Limit.Most() {
		return -1, 0
	}
	return c.Limit.Interval().Times(c.Limit.Most() - c.Floor)
}

func bucketArgs(a *arguments, c *weir.Claim) {
	span, _ := spanOf(c)
	a.add(c.Cost, c.Limit.Interval().Whole, span)
}

// addCaps adds the arguments of step cap: the limit of a bucket without the claim's floor.
func (a *arguments) addCaps(k *kind, c *weir.Claim) {
	switch k {
	case &bucketKind:
		a.add(c.Limit.Span().Whole)
	case &partsKind:
		a.add(c.Limit.Span().Whole, c.Limit.Span().Num)
	case &stepKind:
		a.add(c.Limit.Most())
	}
}

func bucketDecision(c *weir.Claim, reply []redisconn.Value, now int64) weir.Decision {
	return bucket.Decision(c.Limit, bucketState(reply), algorithm.Needs(c), now)
}

func bucketState(reply []redisconn.Value) bucket.State { return bucket.State{At: reply[0].Int} }

func partsArgs(a *arguments, c *weir.Claim) {
	l := c.Limit
	switch {
	case c.Cost == 0:
		a.addText("")
	case a.units:
		a.addText(ladder(l, 1, c.Cost))
	default:
		a.addText(ladder(l, c.Cost, min(a.times, l.Most()/c.Cost)))
	}
	whole, part := spanOf(c)
	a.add(whole, part, l.Interval().Den, l.Period(), l.Refill())
}

func rationalArgs(a *arguments, c *weir.Claim) {
	l := c.Limit
	a.addText(ladder(l, c.Cost, min(a.times, l.Most()/c.Cost)))
	whole, part := spanOf(c)
	a.add(whole, part, l.Interval().Den)
}

// ladder holds the time that 2^k requests take, for each 2^k up to most, from high to low: the
// script adds and compares, where a product could lose digits.
func ladder(l *weir.Limit, cost, most int64) string {
	top := int64(1)
	for top <= most/2 {
		top *= 2
	}
	var packed []byte
	for k := top; k > 0; k /= 2 {
		whole, part := l.Interval().Times(k * cost)
		packed = pack(packed, k, whole, part)
	}
	return string(packed)
}

// cancelBytes is how long the part of a claim in cancelArgs is.
const cancelBytes = 4 * 8

// cancelArgs are, for each claim: back_, the units that are given back; due_, the instant at which their grant was to
// act; room_ and roompart_, the capacity of a bucket as time, in whole microseconds and a fraction, or of a stepped
// bucket in units.
func cancelArgs(c *call) string {
	packed := make([]byte, 0, len(c.claims)*cancelBytes)
	for i := range c.claims {
		claim := &c.claims[i]
		room, part := claim.Limit.Capacity(), int64(0)
		if !claim.Limit.Step() {
			room, part = claim.Limit.Interval().Times(room)
		}
		packed = pack(packed, claim.Cost, max(0, algorithm.Due(claim, int64(c.taken))), room, part)
	}
	return string(packed)
}

func pack(packed []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		packed = binary.LittleEndian.AppendUint64(packed, uint64(n))
	}
	return packed
}

func stepArgs(a *arguments, c *weir.Claim) {
	a.add(c.Cost, c.Limit.Most()-c.Floor, c.Limit.Refill(), c.Limit.Period(), bucket.MostMissing(c.Limit))
}

func partsDecision(c *weir.Claim, reply []redisconn.Value, now int64) weir.Decision {
	return bucket.Decision(c.Limit, partsState(reply), algorithm.Needs(c), now)
}

func partsState(reply []redisconn.Value) bucket.State {
	return bucket.State{At: reply[0].Int, Part: reply[1].Int}
}

func windowArgs(a *arguments, c *weir.Claim) {
	a.add(c.Cost, c.Limit.Capacity()-c.Floor, c.Limit.Period())
	grid := "first"
	if c.Limit.Period() == 0 {
		grid = calendar(c.Limit, a.now())
	} else if c.Limit.Anchor() == weir.Epoch {
		grid = "epoch"
	}
	a.addText(grid)
}

// calendar holds the bounds of the period around now, and of those before and after it.
func calendar(l *weir.Limit, now int64) string {
	start, end := l.Bounds(weir.Instant(now))
	before, _ := l.Bounds(start - 1)
	_, after := l.Bounds(end)
	return string(pack(nil, int64(before), int64(start), int64(end), int64(after)))
}

func windowDecision(c *weir.Claim, reply []redisconn.Value, now int64) weir.Decision {
	state := window.State{Start: reply[0].Int, Count: reply[1].Int, Until: reply[2].Int}
	return window.Decision(c.Limit, state, algorithm.Needs(c), now)
}

func logArgs(a *arguments, c *weir.Claim) {
	a.add(c.Cost, c.Limit.Capacity()-c.Floor, c.Limit.Period())
}

func logDecision(c *weir.Claim, reply []redisconn.Value, now int64) weir.Decision {
	summary := slidinglog.Summary{Used: reply[0].Int, Newest: reply[1].Int, Frees: reply[2].Int}
	return summary.Decision(c.Limit, algorithm.Needs(c), now)
}

func counterArgs(a *arguments, c *weir.Claim) {
	a.add(c.Cost, c.Limit.Capacity()-c.Floor, c.Limit.Slice(), c.Limit.Slices(), c.Limit.Tick())
}

func counterDecision(c *weir.Claim, reply []redisconn.Value, now int64) weir.Decision {
	summary := slidingcounter.Summary{
		Slice: reply[0].Int, Full: reply[1].Int, Fading: reply[2].Int, Last: reply[3].Int,
		Frees: reply[4].Int, FreesFull: reply[5].Int, FreesFading: reply[6].Int,
	}
	return summary.Decision(c.Limit, algorithm.Needs(c), now)
}

func leaseArgs(a *arguments, c *weir.Claim) {
	a.add(c.Cost, c.Limit.Capacity()-c.Floor, c.Limit.Period())
	renew := "0"
	if c.Renew {
		renew = "1"
	}
	a.addText(c.Lease)
	a.addText(renew)
}

func leaseDecision(c *weir.Claim, reply []redisconn.Value, now int64) weir.Decision {
	summary := concurrency.Summary{Held: reply[1].Int, Last: reply[2].Int, Frees: reply[3].Int}
	return summary.Decision(c.Limit, algorithm.Needs(c), now)
}

// leaseExpiry is when the claim's lease would have expired before the call; 0 if it was not held.
func leaseExpiry(reply []redisconn.Value) int64 { return reply[0].Int }
