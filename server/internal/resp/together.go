package resp

import (
	"slices"
	"sync"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
)

const (
	// maxTogether is how many commands are decided in one batch: as many keys as one script of
	// Redis decides.
	maxTogether = 64

	// maxBatches is how many batches are at the store at a time. The timeout of the store counts
	// from the call, and calls queue in Redis: more at a time would be no faster, and would time
	// out. Further batches wait, and are not charged yet.
	maxBatches = 16
)

// A decision is the request of one command and what its answer is made of. It is reused.
type decision struct {
	verdict gate.Verdict
	times   int64

	// For CL.THROTTLE; limit is nil for the other commands, which use q.
	limit    *weir.Limit
	quantity int64
	one      [1]weir.Claim

	q question
}

func (d *decision) reset() {
	d.limit, d.one[0] = nil, weir.Claim{}
	d.q.reset()
}

func (d *decision) question() gate.Question {
	if d.limit != nil {
		return gate.Question{Ask: gate.Ask{Times: 1, Claims: d.one[:]}, Verdict: &d.verdict}
	}
	ask := gate.Ask{Times: d.times, Cost: d.q.cost, Lease: d.q.lease, Claims: d.q.claims, ID: d.q.id,
		Keep: d.q.keep}
	return gate.Question{Request: d.q.asked(), Ask: ask, Verdict: &d.verdict}
}

// slot is an empty decision, after the pending ones.
func (c *conn) slot() *decision {
	if c.pending == len(c.decisions) {
		c.decisions = append(c.decisions, new(decision))
	}
	d := c.decisions[c.pending]
	d.reset()
	return d
}

// submit decides and answers, or leaves the decision pending for the commands that arrived with it,
// if those can be decided in the same call of the store.
func (c *conn) submit(d *decision) {
	c.pending++
	if !c.server.together || !c.more || c.pending == maxTogether {
		c.settle()
	}
}

// settle decides and answers the pending commands in order. It precedes any other answer, and reading
// into the buffer, which holds their keys.
func (c *conn) settle() {
	pending := c.decisions[:c.pending]
	c.pending = 0
	switch len(pending) {
	case 0:
		return
	case 1:
		q := pending[0].question()
		c.answerDecision(pending[0], c.server.gate.Decide(c.server.ctx, q.Request, q.Ask, q.Verdict))
		return
	}
	for _, d := range pending {
		c.questions = append(c.questions, d.question())
	}
	c.server.batches.run(c.questions)
	for i, d := range pending {
		c.answerDecision(d, c.questions[i].Err)
	}
	clear(c.questions)
	c.questions = c.questions[:0]
}

func (c *conn) answerDecision(d *decision, err error) {
	if d.limit != nil {
		c.answerThrottle(d, err)
	} else {
		c.answerQuestion(d, err)
		if d.verdict.Holds() && d.q.lease == "" {
			c.unsent = append(c.unsent, slices.DeleteFunc(d.verdict.Receipt(), isNoLease))
		}
	}
	d.reset()
}

// batches decide the batches of all connections, at most maxBatches at a time. Waiting ones are
// joined.
type batches struct {
	decide  func([]gate.Question)
	mu      sync.Mutex
	running int
	waiting []waitingBatch
}

type waitingBatch struct {
	questions []gate.Question
	done      chan struct{}
}

// run returns when the questions are decided.
func (b *batches) run(questions []gate.Question) {
	b.mu.Lock()
	if b.running < maxBatches {
		b.running++
		b.mu.Unlock()
		b.decide(questions)
		b.next()
		return
	}
	w := waitingBatch{questions, make(chan struct{})}
	b.waiting = append(b.waiting, w)
	b.mu.Unlock()
	<-w.done
}

// next decides the first waiting batches, as many as fit into one, in place of a batch that has ended.
func (b *batches) next() {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, size := 0, 0
	for n < len(b.waiting) && (n == 0 || size+len(b.waiting[n].questions) <= maxTogether) {
		size += len(b.waiting[n].questions)
		n++
	}
	if n == 0 {
		b.running--
		return
	}
	go b.join(slices.Clone(b.waiting[:n]))
	b.waiting = slices.Delete(b.waiting, 0, n)
}

func (b *batches) join(list []waitingBatch) {
	var all []gate.Question
	for _, w := range list {
		all = append(all, w.questions...)
	}
	b.decide(all)
	for _, w := range list {
		all = all[copy(w.questions, all):] // with the errors
		close(w.done)
	}
	b.next()
}
