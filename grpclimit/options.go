package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/httplimit"
)

// An Option configures New and ByRules. Some are for one of them; given to the other they are an error.
type Option func(*config)

type config struct {
	cost     func(context.Context, *Call) int64
	observe  func(context.Context, *Call, httplimit.Event)
	messages *Server
	exempt   []string
	mistake  string // name of an option of the other kind
	kind     kind

	// For New.
	fields  httplimit.Fields
	missing httplimit.Missing
	failure httplimit.Failure
	after   func(call *Call, last any, err error) int64

	// For ByRules.
	clients    *clientaddr.Extractor
	user       func(context.Context, *Call) string
	descriptor func(ctx context.Context, call *Call, name string) string
}

// A kind is the kind of Server to make.
type kind uint8

const (
	forLimits kind = iota
	forRules
)

func configure(options []Option, made kind) (*config, error) {
	c := &config{clients: new(clientaddr.Extractor), kind: made}
	for _, option := range options {
		option(c)
	}
	switch {
	case c.mistake != "":
		return c, fmt.Errorf("grpclimit: %s is %s", c.mistake, [...]string{
			forLimits: "for ByRules: with New, use the Key and WithMissing",
			forRules:  "for New: with ByRules, the rules define it",
		}[made])
	case c.fields > httplimit.NoFields || c.missing > httplimit.Deny || c.failure > httplimit.FailClosed:
		return c, errors.New("grpclimit: WithFields, WithMissing or WithStoreErrors: unknown value")
	case c.clients == nil:
		return c, errors.New("grpclimit: the clients are nil; leave WithClients out if there is no trusted proxy")
	case c.messages != nil && c.messages.isForCalls():
		return c, errors.New("grpclimit: the limits of WithMessages have WithMessages, WithExempt or WithCostAfter, " +
			"which are for calls")
	}
	for _, method := range c.exempt {
		if !strings.HasPrefix(method, "/") || strings.Count(method, "/") != 2 || strings.Contains(method, "//") {
			return c, fmt.Errorf("grpclimit: WithExempt has %q; allowed: a method, /grpc.health.v1.Health/Check, "+
				"or a service, /grpc.health.v1.Health/", method)
		}
	}
	return c, nil
}

// isForCalls reports whether there are options that are not for messages.
func (c *config) isForCalls() bool { return c.messages != nil || c.exempt != nil || c.after != nil }

// option makes an option for one kind of Server.
func option(of kind, name string, set func(*config)) Option {
	return func(c *config) {
		if c.kind != of {
			c.mistake = name
			return
		}
		set(c)
	}
}

// WithStoreErrors sets the policy for calls while the store does not respond, instead of httplimit.FailOpen;
// httplimit.FailClosed answers UNAVAILABLE. It does not apply to invalid input (a cost below 0), nor to canceled calls.
func WithStoreErrors(f httplimit.Failure) Option {
	return option(forLimits, "WithStoreErrors", func(c *config) { c.failure = f })
}

// WithMissing sets the policy for calls without a key, instead of httplimit.Anonymous: all of them share one key.
func WithMissing(m httplimit.Missing) Option {
	return option(forLimits, "WithMissing", func(c *config) { c.missing = m })
}

// WithFields selects the metadata that describes the limits, instead of httplimit.Draft.
func WithFields(f httplimit.Fields) Option {
	return option(forLimits, "WithFields", func(c *config) { c.fields = f })
}

// WithCost sets the cost of a call: instead of 1 unit, or, with ByRules, instead of the cost of rules without a number.
// It is called once per call.
func WithCost(cost func(context.Context, *Call) int64) Option {
	return func(c *config) { c.cost = cost }
}

// WithCostAfter sets the cost of a call after the handler has returned, or panicked: rows read, tokens spent. The call
// is first charged WithCost, or 1, as an estimate; afterwards a deficit is charged, even beyond the limit, and a
// surplus is refunded. last is the reply, of a stream the last message sent; nil if there is none. A result below 0 or
// over weir.MaxUnits leaves the estimate. Leases are not affected.
func WithCostAfter(cost func(call *Call, last any, err error) int64) Option {
	return option(forLimits, "WithCostAfter", func(c *config) { c.after = cost })
}

// WithMessages limits the messages that streams receive, also the single request of a server stream: each is decided by
// limits, a Server that New or ByRules made, before the handler gets it. A refusal ends the stream. A delay, such as
// that of a weir.LeakyQueue, holds the message back, and by gRPC's flow control its sender. Concurrency limits are held
// until the next message is received. Costs stay as charged.
func WithMessages(limits *Server) Option { return func(c *config) { c.messages = limits } }

// WithExempt leaves out methods (/grpc.health.v1.Health/Check) and services (/grpc.health.v1.Health/): no limit applies
// to their calls and messages.
func WithExempt(methods ...string) Option {
	return func(c *config) { c.exempt = append(c.exempt, methods...) }
}

// WithClients sets the trusted proxies, whose metadata names the client. By default the client is always the peer.
func WithClients(e *clientaddr.Extractor) Option {
	return option(forRules, "WithClients", func(c *config) { c.clients = e })
}

// WithUser sets the authenticated user of a call, for rules keyed by user; "" is none.
func WithUser(user func(context.Context, *Call) string) Option {
	return option(forRules, "WithUser", func(c *config) { c.user = user })
}

// WithDescriptors sets the values of descriptor.NAME in rules; "" is missing.
func WithDescriptors(descriptor func(ctx context.Context, call *Call, name string) string) Option {
	return option(forRules, "WithDescriptors", func(c *config) { c.descriptor = descriptor })
}

// WithObserver sets a function that is called for each call before its handler, for a failed lease renewal on another
// goroutine, and for a failed settlement or release after the handler. It runs on the call's goroutine and must return
// fast. Messages are observed by the Server of WithMessages.
func WithObserver(observe func(context.Context, *Call, httplimit.Event)) Option {
	return func(c *config) { c.observe = observe }
}
