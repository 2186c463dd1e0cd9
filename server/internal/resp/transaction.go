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

	// errWatch is an error because OK would promise that EXEC has no effect once the key has changed.
	errWatch = "ERR WATCH is not supported: no key here can be read, so there is nothing to compare; " +
		"use MULTI and EXEC without it"

	// queuedWord is the memory of a word of a queued command besides its bytes.
	queuedWord = 32
)

// A queued command runs at EXEC. Its words are copies.
type queued struct {
	cmd  *command
	args [][]byte
}

func transactionCommands() []*command {
	return inGroup("transactions",
		&command{name: "discard", arity: 1, now: true, run: (*conn).discard,
			summary: "Drop the commands queued since MULTI"},
		&command{name: "exec", arity: 1, now: true, run: (*conn).exec, summary: "Run the commands queued since MULTI"},
		&command{name: "multi", arity: 1, now: true, run: (*conn).begin,
			summary: "Queue the commands that follow, until EXEC"},
		&command{name: "unwatch", arity: 1, run: func(c *conn, _ [][]byte) { c.ok() },
			summary: "Accepted: no keys are watched"},
		&command{name: "watch", arity: -2, now: true, run: (*conn).watch, summary: "Not supported: no key can be read"},
	)
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

// enqueue queues a copy of a command for EXEC: the words are in the read buffer.
func (c *conn) enqueue(cmd *command, args [][]byte) {
	c.settle()
	size := 0
	for _, arg := range args {
		size += len(arg) + queuedWord
	}
	if c.queuedBytes+size > c.server.max.Transaction {
		c.aborted = true
		c.fail("ERR the transaction is too large: the words between MULTI and EXEC may have ",
			strconv.Itoa(c.server.max.Transaction), " bytes, 32 more for each word")
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

// exec runs the queued commands in order. There is no isolation: other connections are served
// meanwhile, and after an error of one command the others run.
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
