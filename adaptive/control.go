package adaptive

import (
	"math"
	"time"
)

// A control computes the limit from windows of outcomes. It has no clock and no lock.
//
// # The latency without load
//
// It is the mean of a window in which the service has no queue. While the limit is not reached, each window moves
// it. But a service that is overloaded all the time has no such window, and one that has become slower looks like
// one with a queue. Envoy lowers the limit to 3 from time to time, which costs a large service most of its
// throughput for that time. Netflix's Gradient2 takes a mean over a long time, which a long overload shifts. Here
// the limit is halved for a moment, and halved again as long as that lowers the latency, at multiples of 10 s of the
// wall clock at which the limit is reached: all processes before the service do it together, as one alone would
// measure the queue of the others.
//
// A wrong value repairs itself: one that is x times too large leads to a limit with x times the latency, and half of
// that limit is measured.
//
// # Refusals without overload
//
// A service may refuse some requests at any load, because a part of it is broken or switched off. An overloaded service
// that refuses the share s of its requests handles the others, so a limit lowered to 1-s times its value ends the
// overload. If refusals continue, load is not the cause, and the limit is not lowered further; otherwise a client that
// requests the broken part would have all other requests refused.
//
// # The headroom
//
// It is 1.5·√limit, large beside the tolerance of 5 %. With little headroom, a process whose latency without load is
// measured a tenth lower than another's would have a small fraction of the other's limit.
type control struct {
	algorithm  Algorithm
	min, max   float64
	limit      float64
	latency    float64 // ns: mean of the last window
	unloaded   float64 // ns; 0: not known yet
	streak     int     // windows in a row with growth
	why        string  // see State
	next       int64   // time in ns of the next measurement
	measuredAt float64 // limit at the last measurement; half of it is the least until the next
	probe      probe
	start      start
	refusals   refusals
	ceiling    float64       // limit after the last overload; 0: there was none
	hold       int64         // time in ns until which the limit does not grow beyond the ceiling
	ahead      time.Duration // wall clock minus Limiter.now

	// The window.
	from       int64 // Unix time in ns: requests that end before belong to an older limit
	sum        float64
	answered   int
	overloaded int
	peak       int  // requests in flight
	bound      bool // a request found the limit reached
}

// A probe is a measurement of the latency without load.
type probe struct {
	on       bool
	draining bool
	limit    float64
	last     float64 // ns: latency at the limit before
	drained  int64   // time in ns by which requests of the previous limit are taken to have ended
	most     int64   // time in ns at which the measurement ends without a result
}

// Refusals describe consecutive windows with overload.
type refusals struct {
	share float64 // moving mean
	first float64 // of the first window; 0: there is no overload
	limit float64 // in the first window
}

// A start is the time in which the limit doubles, because no window has had a longer latency than the first.
type start struct {
	over bool
	skip int // requests: the first that end are the fastest of those that began together
	sum  float64
	n    int
	last struct { // a window that may have been the first with a queue
		sum float64
		n   int
	}
}

const (
	tolerance  = 1.05 // times the latency without load that a limit may cause without being lowered
	sharpest   = 0.5  // least factor of one window
	sharp      = 0.65 // a larger one is applied by half
	backOff    = 0.9  // factor of a window with overload
	few        = 0.02 // a smaller share of refusals is not overload
	same       = 1.1  // times a latency is the same
	queued     = 0.85 // times the latency: there was a queue
	startUntil = 1.5  // times the latency without load ends the start
	clipAt     = 3    // times the latency without load: longer ones count as so long

	fewSamples   = 10 // of a window that lasts long
	startSamples = 40
	samples      = 100
	shortest     = 20 * time.Millisecond
	longest      = time.Second

	probeShortest = 200 * time.Millisecond
	probeLongest  = 500 * time.Millisecond
	probeEvery    = 10 * time.Second
	holdFor       = 5 * time.Second
	probeSeldom   = time.Minute // if the latency without load is longer than slow
	probeMost     = 10 * time.Second
	slow          = 250 * time.Millisecond
)

func newControl(c Config) control {
	return control{algorithm: c.Algorithm, min: float64(c.Min), max: float64(c.Max), limit: float64(c.Min),
		start: start{skip: 2 * c.Min}}
}

// adopt takes over what another control has learned.
func (c *control) adopt(old *control) {
	c.latency, c.unloaded, c.next, c.start, c.ahead = old.latency, old.unloaded, old.next, old.start, old.ahead
	c.refusals, c.ceiling, c.hold = old.refusals, old.ceiling, old.hold
	c.set(old.limit)
	c.measuredAt = c.limit
}

func (c *control) set(limit float64) { c.limit = min(max(limit, c.min), c.max) }

// allowed is the number of requests that are allowed now, and that are without a measurement.
func (c *control) allowed() (now, whole int) {
	if c.probe.on {
		return int(c.probe.limit), int(c.limit)
	}
	return int(c.limit), int(c.limit)
}

// done records the end of a request, after which so many are in flight. It reports whether allowed may have changed.
func (c *control) done(now int64, outcome Outcome, took float64, inFlight int) (changed bool) {
	if p := &c.probe; p.draining && (float64(inFlight) <= p.limit || now >= p.drained) {
		p.draining = false
		c.begin(now + int64(c.latency))
	}
	switch {
	case c.probe.on && now > c.probe.most: // too few requests for a result
		c.endProbe(now)
		return true
	case outcome == Ignored, c.probe.draining, now < c.from:
		return false
	case outcome == Abandoned && !(c.unloaded > 0 && took > c.unloaded):
		return false
	}
	if c.start.skip > 0 {
		c.start.skip--
		return false
	}
	if outcome == Overloaded {
		c.overloaded++
	} else {
		if c.unloaded > 0 {
			took = min(took, clipAt*max(c.unloaded, c.latency))
		}
		c.sum += took
		c.answered++
	}
	if !c.full(now) {
		return false
	}
	c.close(now)
	return true
}

// full reports whether the window has enough requests and time: at least the mean latency.
func (c *control) full(now int64) bool {
	n, age := c.answered+c.overloaded, time.Duration(now-c.from)
	if n < fewSamples || age < shortest {
		return false
	}
	enough, least, most := samples, shortest, longest
	switch {
	case 2*c.overloaded > n:
		enough = fewSamples // more samples would mean more refused requests
	case !c.start.over:
		enough = startSamples
	case c.probe.on:
		least, most = probeShortest, probeLongest
	default:
		enough = min(max(4*int(c.limit), 2*fewSamples), samples)
	}
	return age >= most || n >= enough && age >= least && float64(age)*float64(c.answered) >= c.sum
}

// begin begins a window at a time.
func (c *control) begin(at int64) {
	c.from, c.sum, c.answered, c.overloaded, c.peak, c.bound = at, 0, 0, 0, 0, false
}

// close ends a window.
func (c *control) close(now int64) {
	if c.answered > 0 {
		c.latency = c.sum / float64(c.answered)
	}
	if c.probe.on {
		c.measured(now)
		return
	}
	c.learn()
	begin := now
	if before := c.limit; c.min < c.max {
		c.adapt(now)
		if math.Abs(c.limit-before) > before/10 {
			begin += int64(c.latency) // the requests of the limit before end first
		}
	}
	switch due := c.bound && now >= c.next; {
	case !c.start.over:
		c.next = c.after(now, time.Second) // the start measures with few requests
	case due && c.algorithm == Gradient && c.min < c.max && c.answered > 0:
		c.probe = probe{on: true, limit: c.limit, last: c.latency}
		c.descend(now)
		return
	}
	c.begin(begin)
}

// learn moves the latency without load: fast to less, slowly to more, and to more only if the limit was not reached.
func (c *control) learn() {
	switch s := &c.start; {
	case c.answered == 0:
	case !s.over && (s.n == 0 || c.latency < startUntil*c.unloaded):
		c.unloaded = s.add(c.sum, c.answered)
	case c.latency < c.unloaded/same:
		c.unloaded += (c.latency - c.unloaded) / 8
	case !c.bound:
		c.unloaded += (c.latency - c.unloaded) / 64
	}
}

// add adds a window, and returns the mean of those before it.
func (s *start) add(sum float64, n int) (mean float64) {
	if s.n == 0 {
		s.sum, s.n = sum, n
	} else {
		s.sum, s.n = s.sum+s.last.sum, s.n+s.last.n
		s.last.sum, s.last.n = sum, n
	}
	return s.sum / float64(s.n)
}

// adapt computes the limit after a window.
func (c *control) adapt(now int64) {
	gradient := 1.0
	if c.algorithm == Gradient && c.answered > 0 {
		gradient = min(max(tolerance*c.unloaded/c.latency, sharpest), 1)
	}
	starting, headroom := !c.start.over && gradient > tolerance/startUntil, 1.5*math.Sqrt(c.limit)
	down := headroom
	if c.algorithm == AIMD {
		headroom, down = headroom/3, 0
	}
	lower := "latency"
	if c.refuses() {
		gradient, starting, down, lower = min(gradient, backOff), false, 0, "overload"
	}
	c.why = "steady"
	switch used := c.bound || float64(c.peak) > c.limit/2; {
	case starting && c.bound:
		c.why = "start"
		c.set(2 * c.limit)
	case starting:
	case gradient < 1 && used:
		c.start.over, c.streak, c.why = true, 0, lower
		c.shrink(now, gradient, down)
	case gradient == 1 && c.bound:
		c.why = "demand"
		c.grow(now, headroom)
	}
}

// grow raises the limit. A service that refuses excess requests refuses important ones, too, so after overload the
// limit stays for a while at the value where the overload ended, then grows slowly.
func (c *control) grow(now int64, headroom float64) {
	if c.ceiling > 0 {
		headroom = 1
	}
	target := c.limit + min(c.limit/2, headroom*float64(int(1)<<min(c.streak, 20)))
	if now < c.hold {
		c.set(max(c.limit, min(target, c.ceiling)))
		return
	}
	c.set(target)
	if c.algorithm == Gradient || c.ceiling > 0 {
		c.streak++
	}
}

// refuses reports whether the window has overload that a lower limit may end.
func (c *control) refuses() bool {
	r, share := &c.refusals, float64(c.overloaded)/float64(c.answered+c.overloaded)
	r.share += (share - r.share) / 4
	switch {
	case r.first > 0 && r.share < few/2:
		*r = refusals{}
	case r.first == 0 && share > few, r.share > 2*r.first+few:
		*r = refusals{share, share, c.limit}
	}
	return share > few && c.limit > 0.8*(1-r.first)*r.limit
}

// shrink lowers the limit after a window with a gradient below 1. Below half of the last measurement's limit it
// waits for the next one, at the next second: a service that has become slower has the same latency with half of the
// requests.
func (c *control) shrink(now int64, gradient, headroom float64) {
	target := c.limit*gradient + headroom
	if headroom == 0 { // for overload
		c.ceiling, c.hold = (c.limit+target)/2, now+int64(holdFor)
		c.set(target)
		return
	}
	if gradient > sharp {
		target = (c.limit + target) / 2 // windows differ by chance
	}
	if least := c.measuredAt / 2; target < least {
		target, c.next = least, min(c.next, c.after(now, time.Second))
	}
	c.set(target)
}

// descend halves the limit of a measurement.
func (c *control) descend(now int64) {
	p := &c.probe
	p.limit = max(c.min, p.limit/2)
	p.draining, p.drained = true, now+int64(clipAt*c.latency)
	p.most = p.drained + int64(probeMost) + 2*int64(c.latency)
}

// measured ends a step of a measurement.
func (c *control) measured(now int64) {
	switch p := &c.probe; {
	case c.answered == 0:
	case c.latency <= same*c.unloaded:
		c.unloaded += (c.latency - c.unloaded) / 2
	case c.latency < queued*p.last && p.limit > c.min:
		p.last = c.latency
		c.descend(now)
		return
	default:
		c.unloaded = min(c.latency, p.last)
	}
	c.endProbe(now)
}

func (c *control) endProbe(now int64) {
	c.next, c.measuredAt = c.after(now, c.period()), c.limit
	c.probe = probe{}
	c.begin(now + int64(c.latency))
}

// period is the time between measurements. A measurement takes a few times the latency.
func (c *control) period() time.Duration {
	if c.unloaded > float64(slow) {
		return probeSeldom
	}
	return probeEvery
}

// after returns the first multiple of a period, by the wall clock, after a time.
func (c *control) after(now int64, period time.Duration) int64 {
	wall := now + int64(c.ahead)
	return (wall/int64(period)+1)*int64(period) - int64(c.ahead)
}
