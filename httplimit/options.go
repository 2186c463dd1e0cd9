package httplimit

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/rules"
)

// An Option sets what New, Together and ByRules make. Some are for New and Together, some
// for ByRules; given to the other they are an error.
type Option func(*config)

type config struct {
	cost    func(*http.Request) int64
	observe func(*http.Request, Event)
	body    Body
	mistake string // an option that was given to whom it does not concern
	kind    kind

	// For limits.
	status    int
	fields    Fields
	missing   Missing
	failure   Failure
	partition func(limit *weir.Limit, key string) []byte
	after     costAfter

	// For rules.
	form       *pathform.Form // nil: that of the rules
	registered bool           // methods that are not are refused
	clients    *clientaddr.Extractor
	user       func(*http.Request) string
	service    func(*http.Request) string
	descriptor func(r *http.Request, name string) string
	estimated  bool
}

// A kind is what middleware is made of.
type kind uint8

const (
	forLimits kind = iota
	forRules
)

func configure(options []Option, made kind) (config, error) {
	c := config{status: http.StatusTooManyRequests, body: Problem, clients: new(clientaddr.Extractor), kind: made}
	for _, option := range options {
		option(&c)
	}
	switch {
	case c.mistake != "":
		return c, fmt.Errorf("httplimit: %s is %s", c.mistake, [...]string{
			forLimits: "for ByRules: take the key and the cost from the request yourself",
			forRules:  "for New and Together: with ByRules, the rules say it",
		}[made])
	case c.status < 400 || c.status > 599:
		return c, fmt.Errorf("httplimit: the status of a refusal is %d; allowed: 400 to 599", c.status)
	case c.body == nil:
		return c, errors.New("httplimit: the body is nil; use Problem, PlainJSON, Template or a function of your own")
	case c.fields > NoFields || c.missing > Deny || c.failure > FailClosed:
		return c, errors.New("httplimit: an option is none of its constants")
	case c.clients == nil:
		return c, errors.New("httplimit: the clients are nil; leave WithClients out if there is no trusted proxy")
	}
	return c, nil
}

// option is one for one kind of middleware.
func option(of kind, name string, set func(*config)) Option {
	return func(c *config) {
		if c.kind != of {
			c.mistake = name
			return
		}
		set(c)
	}
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
func WithStoreErrors(f Failure) Option {
	return option(forLimits, "WithStoreErrors", func(c *config) { c.failure = f })
}

// WithMissing says what becomes of requests that have no key. A [Part] has a policy of its own.
func WithMissing(m Missing) Option {
	return option(forLimits, "WithMissing", func(c *config) { c.missing = m })
}

// WithStatus sets the status of a refusal, 400 to 599, instead of 429.
func WithStatus(status int) Option {
	return option(forLimits, "WithStatus", func(c *config) { c.status = status })
}

// WithBody sets the body of refusals, instead of [Problem].
func WithBody(b Body) Option { return option(forLimits, "WithBody", func(c *config) { c.body = b }) }

// WithFields sets which fields tell of the limits, instead of [Draft].
func WithFields(f Fields) Option {
	return option(forLimits, "WithFields", func(c *config) { c.fields = f })
}

// WithCost sets what a request costs, instead of 1 unit, or with ByRules instead of what
// those rules say that do not state a number. It is asked once a request.
func WithCost(cost func(*http.Request) int64) Option { return func(c *config) { c.cost = cost } }

// WithPartitionKeys adds the draft's pk to its fields, which tells clients that act for
// several users which of them a quota is of. Strangers read it: do not give the key away
// if it is a secret. No bytes are no pk. Keys over 256 bytes arrive here hashed.
func WithPartitionKeys(pk func(limit *weir.Limit, key string) []byte) Option {
	return option(forLimits, "WithPartitionKeys", func(c *config) { c.partition = pk })
}

// WithCostAfter sets what a request has cost when it is over: bytes that were sent, tokens
// that were spent. What WithCost says, or 1, is charged first, as an estimate; then what
// was missing is charged, even beyond the limit, or what was too much is given back. It is
// asked once the handler has returned, also if it panicked (the status is 0 then if it had
// not answered yet), with the header as the handler left it, trailers included, and how
// many bytes of body it wrote. What is below 0 or over weir.MaxUnits leaves the estimate.
// Leases and the parts with a cost of their own are not concerned.
//
// Only then the handler gets a ResponseWriter that is not the server's own. It flushes,
// hijacks and copies files as that one does, and unwraps for http.ResponseController.
func WithCostAfter(cost func(r *http.Request, status int, header http.Header, bytes int64) int64) Option {
	return option(forLimits, "WithCostAfter", func(c *config) { c.after = cost })
}

// WithClients says which peers are proxies whose word on the client's address counts.
// Without it the client is always the peer.
func WithClients(e *clientaddr.Extractor) Option {
	return option(forRules, "WithClients", func(c *config) { c.clients = e })
}

// WithPathForm sets which form paths are given before they are matched and handed on, instead of
// that of the rules (path_form), which their patterns have.
func WithPathForm(f pathform.Form) Option {
	return option(forRules, "WithPathForm", func(c *config) { c.form = &f })
}

// WithRegisteredMethods answers 400 to methods that IANA has not registered, or that are not in
// capitals: for gateways, whose upstreams may take post for POST, or do what no rule speaks of.
func WithRegisteredMethods() Option {
	return option(forRules, "WithRegisteredMethods", func(c *config) { c.registered = true })
}

// WithUser says who was authenticated, for rules that are counted by user; "" is nobody.
func WithUser(user func(*http.Request) string) Option {
	return option(forRules, "WithUser", func(c *config) { c.user = user })
}

// WithService says which service the request is for.
func WithService(service func(*http.Request) string) Option {
	return option(forRules, "WithService", func(c *config) { c.service = service })
}

// WithDescriptors says what rules call descriptor.NAME; "" is missing.
func WithDescriptors(descriptor func(r *http.Request, name string) string) Option {
	return option(forRules, "WithDescriptors", func(c *config) { c.descriptor = descriptor })
}

// WithoutSettling leaves costs at what was charged first, whatever the response says: for
// handlers that only answer whether somebody else may serve the request.
func WithoutSettling() Option {
	return option(forRules, "WithoutSettling", func(c *config) { c.estimated = true })
}

// WithObserver is told of each request, before it is answered; of a lease that could not
// be renewed, from another goroutine; and of what could not be settled or released, after.
// It runs in the request's way: it must be quick.
func WithObserver(observe func(*http.Request, Event)) Option {
	return func(c *config) { c.observe = observe }
}

// An Event is what became of a request.
type Event struct {
	Outcome Outcome
	Answer  weir.Answer // the limit that decided, if one did
	Rule    *rules.Rule // that decided, with ByRules, if one did
	Err     error       // of Denied (by a missing key), Failed and what is below it; with ByRules, the store's also where its rules answered instead
}

// Outcome says what became of a request.
type Outcome uint8

// What becomes of a request.
const (
	Passed     Outcome = iota // every limit granted it
	Refused                   // a limit refused it
	Skipped                   // no limit was asked: it had no key, or no rule is for it
	Denied                    // by a list; or it had no key, and the policy is Deny
	Failed                    // the store did not answer, or the input was wrong
	Unreleased                // it is over, but its lease stays held until its time-to-live
	Unrenewed                 // it goes on, but its lease was not renewed; weir.ErrLeaseGone: it is lost
	Unsettled                 // it is over, but what it has cost is not known, or was not charged
)
