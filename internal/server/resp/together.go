package resp

import (
	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
)

// mostTogether is how many commands of a connection go to the store together: as many keys as
// one script of Redis decides.
const mostTogether = 64

// mostBatches is how many batches are at the store at a time. The time that the store has runs from
// the call, and the calls of many long pipelines queue in Redis: more at a time would be no faster,
// and answered too late. The others wait here, where nothing is charged yet.
const mostBatches = 16

// A decision is what one command asks for, and all that its answer is made of. It is used again.
type decision struct {
	verdict gate.Verdict
	times   int64

	// Of CL.THROTTLE. limit is nil where q is asked instead.
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
	ask := gate.Ask{Times: d.times, Cost: d.q.cost, Lease: d.q.lease, Claims: d.q.claims}
	return gate.Question{Request: d.q.asked(), Ask: ask, Verdict: &d.verdict}
}

// slot is an empty decision, behind those that wait.
func (c *conn) slot() *decision {
	if c.waiting == len(c.decisions) {
		c.decisions = append(c.decisions, new(decision))
	}
	d := c.decisions[c.waiting]
	d.reset()
	return d
}

// submit decides and answers, or lets the decision wait for the commands that came with it, if
// those can be decided in the same call of the store.
func (c *conn) submit(d *decision) {
	c.waiting++
	if !c.server.together || !c.more || c.waiting == mostTogether {
		c.settle()
	}
}

// settle decides what waits, and answers in the order in which the commands came. It must be
// called before anything else is answered, and before the buffer is read into: keys lie in it.
func (c *conn) settle() {
	waiting := c.decisions[:c.waiting]
	c.waiting = 0
	switch len(waiting) {
	case 0:
		return
	case 1:
		q := waiting[0].question()
		c.tellDecision(waiting[0], c.server.gate.Decide(c.server.ctx, q.Request, q.Ask, q.Verdict))
		return
	}
	for _, d := range waiting {
		c.questions = append(c.questions, d.question())
	}
	c.server.decideBatch(c.questions)
	for i, d := range waiting {
		c.tellDecision(d, c.questions[i].Err)
	}
	clear(c.questions)
	c.questions = c.questions[:0]
}

// decideBatch waits for its turn, or for the end of the server, whose context makes it an error.
func (s *Server) decideBatch(questions []gate.Question) {
	select {
	case s.batches <- struct{}{}:
		defer func() { <-s.batches }()
	case <-s.ctx.Done():
	}
	s.gate.DecideBatch(s.ctx, questions)
}

func (c *conn) tellDecision(d *decision, err error) {
	if d.limit != nil {
		c.answerThrottle(d, err)
	} else {
		c.answerQuestion(d, err)
	}
	d.reset()
}
