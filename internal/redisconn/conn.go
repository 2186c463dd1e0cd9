// Package redisconn reaches Redis: it opens connections by URL, keeps them, and runs scripts on them.
package redisconn

import (
	"context"
	"crypto/sha1"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/weirproject/weir"
)

// A Conn runs scripts in Redis. It is safe for concurrent use.
//
// A Conn never sends a call twice that may have been executed: it repeats only after answers that say that the call did
// not run (NOSCRIPT, MOVED, ASK, an unknown slot). It bounds each call by the context, which always has a deadline.
type Conn interface {
	// Run executes a script on the node that holds keys (all in one slot) by EVALSHA, and after NOSCRIPT loads it on
	// that node (SCRIPT LOAD) and repeats this call alone; if it was redirected to another, by EVAL. It appends the
	// elements of the script's array reply to reply. It keeps neither slice after it returned, but may still send the
	// strings. An error that Redis itself answered is a *ServerError; any other failure, also a reply that is no array
	// of integers and strings, wraps weir.ErrUnavailable.
	Run(ctx context.Context, script *Script, keys, args []string, reply []Value) ([]Value, error)

	// Delete removes keys, which may lie in different slots.
	Delete(ctx context.Context, keys []string) error

	// Cluster reports whether keys of different slots need separate calls.
	Cluster() bool

	// Close releases the connections that the Conn opened itself.
	Close()
}

// DefaultTimeout is the timeout of a Config without one.
const DefaultTimeout = 50 * time.Millisecond

// A Config says how to connect.
type Config struct {
	Timeout time.Duration     // of a call; 0 is DefaultTimeout
	TLS     *tls.Config       // for a URL with TLS, whose parameters are added to it
	Warn    func(text string) // receives warnings about the server's configuration; nil drops them
}

// A Script is a Lua script and its SHA-1, as EVALSHA names it.
type Script struct {
	Text string
	SHA  string // 40 hex digits
}

// ScriptOf is the Script of a text.
func ScriptOf(text string) *Script {
	sum := sha1.Sum([]byte(text))
	return &Script{Text: text, SHA: hex.EncodeToString(sum[:])}
}

// A Value is one element of a script's reply: an integer, or a string, which may be empty.
type Value struct {
	Int    int64
	Text   string
	IsText bool
}

// A ServerError is an error reply of Redis: the call was not executed, unless the text says otherwise. The
// text is as Redis sent it, without a leading "ERR ", which rueidis removes.
type ServerError struct{ Text string }

func (e *ServerError) Error() string { return "redis: " + e.Text }

// Details of a weir.ErrUnavailable about its call.
var (
	NotExecuted        = weir.ErrNotExecuted
	ErrPerhapsExecuted = errors.New("it is unknown whether the call was executed")
)

// Malformed is the error of a reply that no script of weir gives, such as a reply of a proxy or of
// another kind of server.
func Malformed(format string, args ...any) error {
	why := fmt.Sprintf(format, args...)
	return fmt.Errorf("%w (%w): no script of weir gives this reply: %s", weir.ErrUnavailable, ErrPerhapsExecuted, why)
}
