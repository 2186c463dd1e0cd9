package resp

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"
)

const (
	defaultUser = "default"

	// redisVersion is the version that has these connection commands. Clients choose by it the commands
	// that they send.
	redisVersion = "7.0.15"

	maxNameLength = 512 // bytes of CLIENT SETNAME
)

const (
	errSyntax    = "ERR syntax error"
	errNotInt    = "ERR value is not an integer or out of range"
	errWrongPass = "WRONGPASS invalid username-password pair or user is disabled."
	errNoAuth    = "NOAUTH Authentication required."
	errHelloAuth = "NOAUTH HELLO must be called with the client already authenticated, otherwise the " +
		"HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the " +
		"RESP protocol version at the same time"
	errNoPass = "ERR AUTH <password> called without any password configured for the default user. " +
		"Are you sure your configuration is correct?"
	errName = "ERR Client names cannot contain spaces, newlines or special characters."
)

// credentials are hashes of a user's name and password. All have one length, so that the time of a
// comparison does not depend on them.
type credentials struct{ user, password [sha256.Size]byte }

// known reports whether a pair is valid. It compares with every pair.
func (s *Server) known(user, password []byte) bool {
	name, word := sha256.Sum256(user), sha256.Sum256(password)
	good := 0
	for i := range s.users {
		u := &s.users[i]
		good |= subtle.ConstantTimeCompare(name[:], u.user[:]) & subtle.ConstantTimeCompare(word[:], u.password[:])
	}
	// Without passwords, any password of the default user is valid.
	return good == 1 || len(s.users) == 0 && string(user) == defaultUser
}

func (c *conn) auth(args [][]byte) {
	switch {
	case len(args) > 3:
		c.fail(errSyntax)
	case len(args) == 2 && len(c.server.users) == 0:
		c.fail(errNoPass)
	case len(args) == 2:
		args = [][]byte{args[0], []byte(defaultUser), args[1]}
		fallthrough
	default:
		if c.login(args[1], args[2]) {
			c.ok()
		}
	}
}

// login authenticates the client, or answers that the password is wrong. A failed attempt does not end
// an earlier authentication; too many end the connection.
func (c *conn) login(user, password []byte) bool {
	c.server.delayGuess()
	if !c.server.known(user, password) {
		c.server.guesses.note(time.Now())
		c.wrongPasswords++
		c.done = c.wrongPasswords == maxWrongPasswords
		c.fail(errWrongPass)
		return false
	}
	c.become(string(user))
	return true
}

// hello is HELLO [protover [AUTH user password] [SETNAME name]]. A mistake in one part leaves all of it
// undone.
func (c *conn) hello(args [][]byte) {
	h := greeting{proto: c.proto}
	if !c.readHello(args, &h) {
		return
	}
	if h.user != nil && !c.login(h.user, h.password) {
		return
	}
	if c.user == "" {
		c.fail(errHelloAuth)
		return
	}
	if h.named {
		c.name = h.name
	}
	c.proto = h.proto
	c.greet()
}

type greeting struct {
	proto          int
	user, password []byte
	named          bool
	name           string
}

func (c *conn) readHello(args [][]byte, h *greeting) bool {
	if len(args) == 1 {
		return true
	}
	n, err := strconv.ParseInt(string(args[1]), 10, 64)
	if err != nil {
		c.fail("ERR Protocol version is not an integer or out of range")
		return false
	}
	if n != 2 && n != 3 {
		c.fail("NOPROTO unsupported protocol version")
		return false
	}
	h.proto = int(n)
	for rest := args[2:]; len(rest) > 0; {
		switch {
		case is(rest[0], "auth") && len(rest) >= 3:
			h.user, h.password, rest = rest[1], rest[2], rest[3:]
		case is(rest[0], "setname") && len(rest) >= 2:
			if !plain(rest[1]) {
				c.fail(errName)
				return false
			}
			h.named, h.name, rest = true, string(rest[1]), rest[2:]
		default:
			c.fail("ERR Syntax error in HELLO option '", quoted(rest[0], 128), "'")
			return false
		}
	}
	return true
}

func (c *conn) greet() {
	c.fields(7)
	c.word("server", "weir")
	c.word("version", redisVersion)
	c.number("proto", int64(c.proto))
	c.number("id", c.id)
	c.word("mode", "standalone")
	c.word("role", "master")
	c.bulk("modules")
	c.array(0)
}

func (c *conn) ping(args [][]byte) {
	switch len(args) {
	case 1:
		c.simple("PONG")
	case 2:
		c.bulk(string(args[1]))
	default:
		c.wrongArity("ping")
	}
}

func (c *conn) echo(args [][]byte) { c.bulk(string(args[1])) }

func (c *conn) quit([][]byte) {
	c.ok()
	c.done = true
}

func (c *conn) resetCommand([][]byte) {
	c.reset()
	c.simple("RESET")
}

// selectDB is SELECT. There is one database, as in a Cluster.
func (c *conn) selectDB(args [][]byte) {
	switch n, err := strconv.ParseInt(string(args[1]), 10, 32); {
	case err != nil:
		c.fail(errNotInt)
	case n != 0:
		c.fail("ERR DB index is out of range")
	default:
		c.ok()
	}
}

// info is INFO, with what clients read when they connect.
func (c *conn) info(args [][]byte) {
	for _, section := range args[1:] {
		for _, all := range []string{"server", "default", "all", "everything"} {
			if is(section, all) {
				args = args[:1]
			}
		}
	}
	if len(args) > 1 {
		c.verbatim("")
		return
	}
	c.verbatim(fmt.Sprintf("# Server\r\nredis_version:%s\r\nserver_name:weir\r\nredis_mode:standalone\r\nos:%s\r\n",
		redisVersion, runtime.GOOS))
}

func (c *conn) clientID([][]byte)      { c.integer(c.id) }
func (c *conn) clientGetName([][]byte) { c.bulkOrNull(c.name) }
func (c *conn) clientInfo([][]byte)    { c.verbatim(c.describe()) }

func (c *conn) clientSetName(args [][]byte) {
	if !plain(args[2]) {
		c.fail(errName)
		return
	}
	c.name = string(args[2])
	c.ok()
}

// clientSetInfo is CLIENT SETINFO: libraries give their names with it. It is checked and not kept.
func (c *conn) clientSetInfo(args [][]byte) {
	switch {
	case !is(args[2], "lib-name") && !is(args[2], "lib-ver"):
		c.fail("ERR Unrecognized option '", quoted(args[2], 128), "'")
	case !plain(args[3]):
		c.fail("ERR ", strings.ToLower(string(args[2])), " cannot contain spaces, newlines or special characters.")
	default:
		c.ok()
	}
}

// clientSwitch is CLIENT TRACKING, which announces changes of keys that the client has read, NO-EVICT and NO-TOUCH.
// No key can be read, so they are accepted and have no effect.
func (c *conn) clientSwitch(args [][]byte) {
	if !is(args[2], "on") && !is(args[2], "off") {
		c.fail(errSyntax)
		return
	}
	for _, word := range args[3:] {
		if !is(word, "optin") && !is(word, "optout") && !is(word, "noloop") && !is(word, "bcast") {
			c.fail(errSyntax)
			return
		}
	}
	c.ok()
}

// describe is the line of CLIENT INFO. CLIENT LIST has it alone: clients do not see each other.
func (c *conn) describe() string {
	return fmt.Sprintf("id=%d addr=%s laddr=%s name=%s age=%d idle=0 flags=N db=0 user=%s resp=%d\n",
		c.id, c.nc.RemoteAddr(), c.nc.LocalAddr(), c.name, int64(c.now.Sub(c.began)/time.Second), c.user, c.proto)
}

// plain reports whether CLIENT LIST can show a name.
func plain(name []byte) bool {
	for _, b := range name {
		if b < '!' || b > '~' {
			return false
		}
	}
	return len(name) <= maxNameLength
}

// is compares a word of a command in any case.
func is(word []byte, want string) bool {
	return len(word) == len(want) && strings.EqualFold(text(word), want)
}
