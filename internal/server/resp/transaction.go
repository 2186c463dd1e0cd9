package resp

import (
	"bytes"
	"strconv"
)

const (
	errNested  = "ERR MULTI calls can not be nested"
	errNoExec  = "ERR EXEC without MULTI"
	errNoDrop  = "ERR DISCARD without MULTI"
	errAborted = "EXECABORT Transaction discarded because of previous errors."
	errWatched = "ERR WATCH inside MULTI is not allowed"

	// errWatch: OK would promise that EXEC does nothing once the key has changed.
	errWatch = "ERR WATCH is not supported: no key here can be read, so there is nothing to compare; use MULTI and EXEC without it"

	// queuedWord is what a word of a queued command costs besides its bytes.
	queuedWord = 32
)

// A queued command waits for EXEC. Its words are its own.
type queued struct {
	cmd  *command
	args [][]byte
}

func transacting() []*command {
	const group = "transactions"
	return []*command{
		{name: "discard", arity: 1, now: true, group: group, run: (*conn).discard, summary: "Forget the commands queued since MULTI"},
		{name: "exec", arity: 1, now: true, group: group, run: (*conn).exec, summary: "Run the commands queued since MULTI"},
		{name: "multi", arity: 1, now: true, group: group, run: (*conn).begin, summary: "Queue the commands that follow, until EXEC"},
		{name: "unwatch", arity: 1, group: group, run: func(c *conn, _ [][]byte) { c.ok() }, summary: "Forget watched keys: there are none"},
		{name: "watch", arity: -2, now: true, group: group, run: (*conn).watch, summary: "Not supported: no key here can be read"},
	}
}

// begin is MULTI.
func (c *conn) begin([][]byte) {
	if c.multi {
		c.fail(errNested)
		return
	}
	c.multi = true
	c.ok()
}

func (c *conn) watch([][]byte) {
	if c.multi {
		c.fail(errWatched)
		return
	}
	c.fail(errWatch)
}

// enqueue keeps a command for EXEC. The words lie in the buffer that is read into: it copies them.
func (c *conn) enqueue(cmd *command, args [][]byte) {
	c.settle()
	size := 0
	for _, arg := range args {
		size += len(arg) + queuedWord
	}
	if c.queuedBytes+size > c.server.max.Transaction {
		c.aborted = true
		c.fail("ERR the transaction is too large: the words between MULTI and EXEC may have ", strconv.Itoa(c.server.max.Transaction), " bytes, 32 more for each word")
		return
	}
	c.queuedBytes += size
	own := make([][]byte, len(args))
	for i, arg := range args {
		own[i] = bytes.Clone(arg)
	}
	c.queue = append(c.queue, queued{cmd, own})
	c.simple("QUEUED")
}

// exec runs what was queued, in order. It is no isolation: other connections are served meanwhile,
// and an error of one command does not keep the others from running.
func (c *conn) exec([][]byte) {
	queue, aborted := c.queue, c.aborted
	switch {
	case !c.multi:
		c.fail(errNoExec)
		return
	case aborted:
		c.endTransaction()
		c.fail(errAborted)
		return
	}
	c.endTransaction()
	c.array(len(queue))
	for i, q := range queue {
		c.more = i+1 < len(queue)
		c.execute(q.cmd, q.args)
		if len(c.buf) >= flushAt && !c.flush() {
			c.done = true
			return
		}
	}
	c.settle()
}

func (c *conn) discard([][]byte) {
	if !c.multi {
		c.fail(errNoDrop)
		return
	}
	c.endTransaction()
	c.ok()
}

func (c *conn) endTransaction() {
	c.multi, c.aborted, c.queue, c.queuedBytes = false, false, nil, 0
}
