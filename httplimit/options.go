package httplimit

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/weirproject/weir"
)

// An Option sets what New and Together make.
type Option func(*config)

type config struct {
	status    int
	fields    Fields
	body      Body
	missing   Missing
	failure   Failure
	cost      func(*http.Request) int64
	partition func(limit *weir.Limit, key string) []byte
	observe   func(*http.Request, Event)
}

func configure(options []Option) (config, error) {
	c := config{status: http.StatusTooManyRequests, body: Problem}
	for _, option := range options {
		option(&c)
	}
	switch {
	case c.status < 400 || c.status > 599:
		return c, fmt.Errorf("httplimit: the status of a refusal is %d; allowed: 400 to 599", c.status)
	case c.body == nil:
		return c, errors.New("httplimit: the body is nil; use Problem, PlainJSON, Template or a function of your own")
	case c.fields > NoFields || c.missing > Deny || c.failure > FailClosed:
		return c, errors.New("httplimit: an option is none of its constants")
	}
	return c, nil
}

// Failure says what becomes of requests while the store does not answer.
type Failure uint8

const (
	// FailOpen lets them pass. It is the default.
	FailOpen Failure = iota
	// FailClosed answers 503.
	FailClosed
)

// WithStoreErrors says what becomes of requests while the store does not answer. It is not
// asked where the input was wrong (a cost below 0): that is answered 500, or whoever could
// provoke it would pass. Nor where the request's context is over: that is answered 503.
func WithStoreErrors(f Failure) Option { return func(c *config) { c.failure = f } }

// WithMissing says what becomes of requests that have no key. A [Part] has a policy of its own.
func WithMissing(m Missing) Option { return func(c *config) { c.missing = m } }

// WithStatus sets the status of a refusal, 400 to 599, instead of 429.
func WithStatus(status int) Option { return func(c *config) { c.status = status } }

// WithBody sets the body of refusals, instead of [Problem].
func WithBody(b Body) Option { return func(c *config) { c.body = b } }

// WithFields sets which fields tell of the limits, instead of [Draft].
func WithFields(f Fields) Option { return func(c *config) { c.fields = f } }

// WithCost sets what a request costs, instead of 1 unit. It is asked once a request.
func WithCost(cost func(*http.Request) int64) Option { return func(c *config) { c.cost = cost } }

// WithPartitionKeys adds the draft's pk to its fields, which tells clients that act for
// several users which of them a quota is of. Strangers read it: do not give the key away
// if it is a secret. No bytes are no pk. Keys over 256 bytes arrive here hashed.
func WithPartitionKeys(pk func(limit *weir.Limit, key string) []byte) Option {
	return func(c *config) { c.partition = pk }
}

// WithObserver is told of each request, before it is answered, and of a lease that could
// not be released, after. It runs in the request's way: it must be quick.
func WithObserver(observe func(*http.Request, Event)) Option {
	return func(c *config) { c.observe = observe }
}

// An Event is what became of a request.
type Event struct {
	Outcome Outcome
	Answer  weir.Answer // the limit that decided, if one did
	Err     error       // of Failed, Denied and Unreleased
}

// Outcome says what became of a request.
type Outcome uint8

// What becomes of a request.
const (
	Passed     Outcome = iota // every limit granted it
	Refused                   // a limit refused it
	Skipped                   // no limit was asked: it had no key
	Denied                    // it had no key, and the policy is Deny
	Failed                    // the store did not answer: see WithStoreErrors
	Unreleased                // it is over, but its lease stays held until its time-to-live
)
