package resp

import (
	"slices"
	"strconv"
	"strings"
)

// A command is one that the server knows.
type command struct {
	name    string // in small letters; of a subcommand "client|id"
	arity   int    // how many words it has; negative: at least so many
	open    bool   // also before authentication
	now     bool   // it is not queued between MULTI and EXEC
	joins   bool   // it may be decided together with those before and after it: see submit
	firstKV int    // which of its words is a key; 0: none, or not always the same
	group   string
	summary string
	run     func(*conn, [][]byte)
	subs    []*command
	byName  map[string]*command // of subs
}

// commands are all of them, in the order of COMMAND, and by name.
func commands() ([]*command, map[string]*command) {
	list := slices.Concat(deciding(), connecting(), transacting())
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

func deciding() []*command {
	const group = "weir"
	return []*command{
		{name: "cl.throttle", arity: -1, joins: true, firstKV: 1, group: group, run: (*conn).throttle,
			summary: "Rate limit a key by a token bucket, as redis-cell does"},
		{name: "weir.decide", arity: -2, joins: true, group: group, run: (*conn).decide,
			summary: "Decide a request by limits that the caller names, or by the rules in force"},
		{name: "weir.peek", arity: -2, joins: true, group: group, run: (*conn).peek,
			summary: "Say what WEIR.DECIDE would meet, and change nothing"},
		{name: "weir.refund", arity: -3, group: group, run: (*conn).refund,
			summary: "Give back what was charged at an instant"},
		{name: "weir.release", arity: -3, group: group, run: (*conn).release,
			summary: "Give back what is held under a lease"},
		{name: "weir.reset", arity: -2, group: group, run: (*conn).forget,
			summary: "Forget what was charged"},
	}
}

func connecting() []*command {
	const group = "connection"
	return []*command{
		{name: "auth", arity: -2, open: true, group: group, run: (*conn).auth, summary: "Say who you are"},
		{name: "client", arity: -2, group: group, subs: clientSubs(), summary: "What belongs to a connection"},
		{name: "command", arity: -1, group: "server", run: (*conn).commandAll, subs: commandSubs(), summary: "Describe the commands"},
		{name: "echo", arity: 2, group: group, run: (*conn).echo, summary: "Echo the given string"},
		{name: "hello", arity: -1, open: true, group: group, run: (*conn).hello, summary: "Choose a protocol"},
		{name: "info", arity: -1, group: "server", run: (*conn).info, summary: "Describe the server"},
		{name: "ping", arity: -1, group: group, run: (*conn).ping, summary: "Ping the server"},
		{name: "quit", arity: -1, open: true, now: true, group: group, run: (*conn).quit, summary: "Close the connection"},
		{name: "reset", arity: 1, open: true, now: true, group: group, run: (*conn).resetCommand, summary: "Make the connection as new"},
		{name: "select", arity: 2, group: group, run: (*conn).selectDB, summary: "Choose a database: there is only 0"},
	}
}

func clientSubs() []*command {
	const group = "connection"
	return []*command{
		{name: "client|getname", arity: 2, group: group, run: (*conn).clientGetName},
		{name: "client|help", arity: 2, group: group, run: func(c *conn, _ [][]byte) { c.help("client") }},
		{name: "client|id", arity: 2, group: group, run: (*conn).clientID},
		{name: "client|info", arity: 2, group: group, run: (*conn).clientInfo},
		{name: "client|list", arity: -2, group: group, run: (*conn).clientInfo},
		{name: "client|no-evict", arity: 3, group: group, run: (*conn).clientNo},
		{name: "client|no-touch", arity: 3, group: group, run: (*conn).clientNo},
		{name: "client|setinfo", arity: 4, group: group, run: (*conn).clientSetInfo},
		{name: "client|setname", arity: 3, group: group, run: (*conn).clientSetName},
		{name: "client|tracking", arity: -3, group: group, run: (*conn).clientTracking},
	}
}

func commandSubs() []*command {
	const group = "server"
	return []*command{
		{name: "command|count", arity: 2, group: group, run: (*conn).commandCount},
		{name: "command|docs", arity: -2, group: group, run: (*conn).commandDocs},
		{name: "command|help", arity: 2, group: group, run: func(c *conn, _ [][]byte) { c.help("command") }},
		{name: "command|info", arity: -2, group: group, run: (*conn).commandInfo},
		{name: "command|list", arity: -2, group: group, run: (*conn).commandList},
	}
}

// run does what a command says, or says why not, in the order in which Redis looks.
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
	cmd.run(c, args)
}

// accept finds the command, or answers why there is none.
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
		c.reject("ERR a word of '", cmd.name, "' has ", strconv.Itoa(c.in.long), " bytes; allowed: at most ", strconv.Itoa(c.server.max.Bulk))
	default:
		return cmd
	}
	return nil
}

// reject answers an error, after the answers of the commands before it.
func (c *conn) reject(parts ...string) {
	c.settle()
	c.fail(parts...)
}

// find looks a command up by a name in any case.
func find(list map[string]*command, word []byte) *command {
	var small [16]byte
	if len(word) > len(small) {
		return nil
	}
	for i, b := range word {
		if b >= 'A' && b <= 'Z' {
			b += 'a' - 'A'
		}
		small[i] = b
	}
	return list[string(small[:len(word)])]
}

func (c *conn) wrongArity(name string) {
	code := "ERR "
	if name == "exec" { // as Redis has it, the transaction ends
		c.endTransaction()
		code = "EXECABORT Transaction discarded because of: "
	}
	c.fail(code, "wrong number of arguments for '", name, "' command")
}

// unknown quotes no more than 128 bytes of a command and of its arguments, as Redis does.
func (c *conn) unknown(args [][]byte) {
	// A browser was led here: what its header says might be read as commands.
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

// describeCommand is one element of COMMAND: name, arity, flags, keys, categories, tips,
// key specifications, subcommands.
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

// commandDocs is what redis-cli asks for before it shows its prompt.
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
		c.bulk("summary")
		c.bulk(cmd.summary)
		c.bulk("group")
		c.bulk(cmd.group)
	}
}
