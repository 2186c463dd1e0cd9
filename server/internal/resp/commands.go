package resp

import (
	"slices"
	"strconv"
	"strings"
)

// A command is one that the server has.
type command struct {
	name    string // in lower case; of a subcommand "client|id"
	arity   int    // number of words, the name included; negative: at least that many
	open    bool   // allowed before authentication
	now     bool   // not queued between MULTI and EXEC
	joins   bool   // may be decided together with adjacent commands: see submit
	firstKV int    // index of the word that is a key; 0: none, or it varies
	group   string
	summary string
	run     func(*conn, [][]byte)
	subs    []*command
	byName  map[string]*command // of subs
}

// commands are all of them, in the order of COMMAND, and by name.
func commands() ([]*command, map[string]*command) {
	list := slices.Concat(decidingCommands(), connectionCommands(), transactionCommands())
	all := byName(list, "")
	for _, c := range list {
		c.byName = byName(c.subs, c.name+"|")
	}
	return list, all
}

func byName(list []*command, prefix string) map[string]*command {
	m := make(map[string]*command, len(list))
	for _, c := range list {
		m[strings.TrimPrefix(c.name, prefix)] = c
	}
	return m
}

// inGroup sets the group of commands without one.
func inGroup(group string, list ...*command) []*command {
	for _, c := range list {
		if c.group == "" {
			c.group = group
		}
	}
	return list
}

func decidingCommands() []*command {
	return inGroup("weir",
		&command{name: "cl.throttle", arity: -1, joins: true, firstKV: 1, run: (*conn).throttle,
			summary: "Rate limit a key by a token bucket, as redis-cell does"},
		&command{name: "weir.decide", arity: -2, joins: true, run: (*conn).decide,
			summary: "Decide a request by limits that the caller names, or by the rules in force"},
		&command{name: "weir.peek", arity: -2, joins: true, run: (*conn).peek,
			summary: "Answer as WEIR.DECIDE would, and change nothing"},
		&command{name: "weir.refund", arity: -3, run: (*conn).refund,
			summary: "Refund the charges of a decision"},
		&command{name: "weir.release", arity: -3, run: (*conn).release,
			summary: "Release the units that a lease holds"},
		&command{name: "weir.reset", arity: -2, run: (*conn).resetState,
			summary: "Delete the state of keys"},
	)
}

func connectionCommands() []*command {
	return inGroup("connection",
		&command{name: "auth", arity: -2, open: true, run: (*conn).auth, summary: "Authenticate the connection"},
		&command{name: "client", arity: -2, subs: clientCommands(), summary: "Describe the connection"},
		&command{name: "command", arity: -1, group: "server", run: (*conn).commandAll, subs: commandCommands(),
			summary: "Describe the commands"},
		&command{name: "echo", arity: 2, run: (*conn).echo, summary: "Echo the given string"},
		&command{name: "hello", arity: -1, open: true, run: (*conn).hello, summary: "Choose a protocol"},
		&command{name: "info", arity: -1, group: "server", run: (*conn).info, summary: "Describe the server"},
		&command{name: "ping", arity: -1, run: (*conn).ping, summary: "Ping the server"},
		&command{name: "quit", arity: -1, open: true, now: true, run: (*conn).quit, summary: "Close the connection"},
		&command{name: "reset", arity: 1, open: true, now: true, run: (*conn).resetCommand,
			summary: "Reset the connection"},
		&command{name: "select", arity: 2, run: (*conn).selectDB, summary: "Choose a database: there is only 0"},
	)
}

func clientCommands() []*command {
	return inGroup("connection",
		&command{name: "client|getname", arity: 2, run: (*conn).clientGetName},
		&command{name: "client|help", arity: 2, run: func(c *conn, _ [][]byte) { c.help("client") }},
		&command{name: "client|id", arity: 2, run: (*conn).clientID},
		&command{name: "client|info", arity: 2, run: (*conn).clientInfo},
		&command{name: "client|list", arity: -2, run: (*conn).clientInfo},
		&command{name: "client|no-evict", arity: 3, run: (*conn).clientSwitch},
		&command{name: "client|no-touch", arity: 3, run: (*conn).clientSwitch},
		&command{name: "client|setinfo", arity: 4, run: (*conn).clientSetInfo},
		&command{name: "client|setname", arity: 3, run: (*conn).clientSetName},
		&command{name: "client|tracking", arity: -3, run: (*conn).clientSwitch},
	)
}

func commandCommands() []*command {
	return inGroup("server",
		&command{name: "command|count", arity: 2, run: (*conn).commandCount},
		&command{name: "command|docs", arity: -2, run: (*conn).commandDocs},
		&command{name: "command|help", arity: 2, run: func(c *conn, _ [][]byte) { c.help("command") }},
		&command{name: "command|info", arity: -2, run: (*conn).commandInfo},
		&command{name: "command|list", arity: -2, run: (*conn).commandList},
	)
}

// run executes a command, or answers why not; the checks are in the order of Redis.
func (c *conn) run(args [][]byte) {
	cmd := c.accept(args)
	switch {
	case cmd == nil:
		c.aborted = c.multi
	case c.multi && !cmd.now:
		c.enqueue(cmd, args)
	default:
		c.execute(cmd, args)
	}
}

// execute runs a command that was accepted.
func (c *conn) execute(cmd *command, args [][]byte) {
	if !cmd.joins {
		c.settle()
	}
	c.worked = c.worked || cmd.group == "weir" || cmd.group == "transactions"
	cmd.run(c, args)
}

// accept finds the command, or answers the mistake.
func (c *conn) accept(args [][]byte) *command {
	cmd := find(c.server.byName, args[0])
	if cmd == nil {
		c.settle()
		c.unknown(args)
		return nil
	}
	if len(cmd.subs) > 0 && len(args) > 1 {
		sub := find(cmd.byName, args[1])
		if sub == nil {
			c.reject("ERR unknown subcommand '", quoted(args[1], 128), "'. Try ", strings.ToUpper(cmd.name), " HELP.")
			return nil
		}
		cmd = sub
	}
	switch {
	case len(args) < -cmd.arity || cmd.arity > 0 && len(args) != cmd.arity:
		c.settle()
		c.wrongArity(cmd.name)
	case c.user == "" && !cmd.open:
		c.reject(errNoAuth)
	case c.in.long > 0:
		c.reject("ERR a word of '", cmd.name, "' has ", strconv.Itoa(c.in.long), " bytes; allowed: at most ",
			strconv.Itoa(c.server.max.Bulk))
	default:
		return cmd
	}
	return nil
}

// reject answers an error, after the pending answers.
func (c *conn) reject(parts ...string) {
	c.settle()
	c.fail(parts...)
}

// find looks a command up by a name in any case.
func find(list map[string]*command, word []byte) *command {
	var folded [16]byte
	if len(word) > len(folded) {
		return nil
	}
	for i, b := range word {
		folded[i] = lower(b)
	}
	return list[string(folded[:len(word)])]
}

func lower(b byte) byte {
	if b >= 'A' && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}

func (c *conn) wrongArity(name string) {
	code := "ERR "
	if name == "exec" { // the transaction ends, as in Redis
		c.endTransaction()
		code = "EXECABORT Transaction discarded because of: "
	}
	c.fail(code, "wrong number of arguments for '", name, "' command")
}

// unknown quotes at most 128 bytes of a command and of its arguments, as Redis does.
func (c *conn) unknown(args [][]byte) {
	// A browser: a page made it send HTTP here, and the body might be read as commands.
	if is(args[0], "post") || is(args[0], "host:") {
		c.done = true
		return
	}
	var rest []byte
	for _, arg := range args[1:] {
		if len(rest) >= 128 {
			break
		}
		most := min(len(arg), 128-len(rest))
		rest = append(append(append(rest, '\''), arg[:most]...), "' "...)
	}
	c.fail("ERR unknown command '", quoted(args[0], 128), "', with args beginning with: ", string(rest))
}

func (c *conn) help(name string) {
	cmd := c.server.byName[name]
	c.array(1 + len(cmd.subs))
	c.simple(strings.ToUpper(name) + " <subcommand> [<arg> ...]. Subcommands are:")
	for _, sub := range cmd.subs {
		c.simple(strings.ToUpper(strings.TrimPrefix(sub.name, name+"|")))
	}
}

func (c *conn) commandCount([][]byte) { c.integer(int64(len(c.server.commands))) }

func (c *conn) commandAll([][]byte) {
	c.array(len(c.server.commands))
	for _, cmd := range c.server.commands {
		c.describeCommand(cmd)
	}
}

func (c *conn) commandList(args [][]byte) {
	if len(args) > 2 {
		c.fail(errSyntax) // no filters
		return
	}
	c.array(len(c.server.commands))
	for _, cmd := range c.server.commands {
		c.bulk(cmd.name)
	}
}

func (c *conn) commandInfo(args [][]byte) {
	if len(args) == 2 {
		c.commandAll(args)
		return
	}
	c.array(len(args) - 2)
	for _, name := range args[2:] {
		if cmd := find(c.server.byName, name); cmd != nil {
			c.describeCommand(cmd)
		} else {
			c.null()
		}
	}
}

// describeCommand answers one element of COMMAND: name, arity, flags, keys, categories, tips, key
// specifications, subcommands.
func (c *conn) describeCommand(cmd *command) {
	c.array(10)
	c.bulk(cmd.name)
	c.integer(int64(cmd.arity))
	c.set(1)
	if cmd.group == "weir" {
		c.simple("write")
	} else {
		c.simple("fast")
	}
	for _, position := range []int{cmd.firstKV, cmd.firstKV, min(cmd.firstKV, 1)} {
		c.integer(int64(position))
	}
	c.set(1)
	c.simple("@" + cmd.group)
	c.set(0)
	c.set(0)
	c.array(len(cmd.subs))
	for _, sub := range cmd.subs {
		c.describeCommand(sub)
	}
}

// commandDocs answers COMMAND DOCS, which redis-cli sends before its prompt.
func (c *conn) commandDocs(args [][]byte) {
	list := c.server.commands
	if len(args) > 2 {
		list = nil
		for _, name := range args[2:] {
			if cmd := find(c.server.byName, name); cmd != nil {
				list = append(list, cmd)
			}
		}
	}
	c.fields(len(list))
	for _, cmd := range list {
		c.bulk(cmd.name)
		c.fields(2)
		c.word("summary", cmd.summary)
		c.word("group", cmd.group)
	}
}
