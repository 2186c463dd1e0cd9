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

// An Option configures New, Together and ByRules. Some are for New and Together, some for ByRules;
// given to the other they are an error.
type Option func(*config)

type config struct {
	cost    func(*http.Request) int64
	observe func(*http.Request, Event)
	body    Body
	grpc    bool   // refuse calls of gRPC as gRPC does
	pages   bool   // refuse browsers with a page
	mistake string // name of an option of the other kind
	kind    kind

	// For New and Together.
	status    int
	fields    Fields
	missing   Missing
	failure   Failure
	partition func(limit *weir.Limit, key string) []byte
	after     costAfter

	// For ByRules.
	form       *pathform.Form // nil: that of the rules
	registered bool           // refuse unregistered methods
	clients    *clientaddr.Extractor
	user       func(*http.Request) string
	country    func(*http.Request) string
	service    func(*http.Request) string
	rules      func(*http.Request) *rules.Set // nil: those in force
	descriptor func(r *http.Request, name string) string
	estimated  bool // do not settle

	descriptorKeys func(*http.Request) []string
}

// A kind is the kind of middleware to make.
type kind uint8

const (
	forLimits kind = iota
	forRules
)

func configure(options []Option, made kind) (*config, error) {
	c := &config{status: http.StatusTooManyRequests, body: Problem, clients: new(clientaddr.Extractor), kind: made}
	for _, option := range options {
		option(c)
	}
	switch {
	case c.mistake != "":
		return c, fmt.Errorf("httplimit: %s is %s", c.mistake, [...]string{
			forLimits: "for ByRules: with New and Together, use the Key, WithCost and WithMissing",
			forRules:  "for New and Together: with ByRules, the rules define it",
		}[made])
	case c.status < 400 || c.status > 599:
		return c, fmt.Errorf("httplimit: the status of a refusal is %d; allowed: 400 to 599", c.status)
	case c.body == nil:
		return c, errors.New("httplimit: the body is nil; use Problem, PlainJSON, Template or a function of your own")
	case c.fields > NoFields || c.missing > Deny || c.failure > FailClosed:
		return c, errors.New("httplimit: WithFields, WithMissing or WithStoreErrors: unknown value")
	case c.clients == nil:
		return c, errors.New("httplimit: the clients are nil; leave WithClients out if there is no trusted proxy")
	}
	return c, nil
}

// option makes an option for one kind of middleware.
func option(of kind, name string, set func(*config)) Option {
	return func(c *config) {
		if c.kind != of {
			c.mistake = name
			return
		}
		set(c)
	}
}

// Failure is the policy for requests while the store does not respond.
type Failure uint8

const (
	// FailOpen lets requests pass. It is the default.
	FailOpen Failure = iota
	// FailClosed answers 503.
	FailClosed
)

// WithStoreErrors sets the policy for requests while the store does not respond. It does not apply
// to invalid input (a cost below 0), which is answered 500: a client that could provoke it would
// pass. Nor to canceled requests, which are answered 503.
func WithStoreErrors(f Failure) Option {
	return option(forLimits, "WithStoreErrors", func(c *config) { c.failure = f })
}

// WithMissing sets the policy for requests without a key. A [Part] has a policy of its own.
func WithMissing(m Missing) Option {
	return option(forLimits, "WithMissing", func(c *config) { c.missing = m })
}

// WithStatus sets the status of a refusal, 400 to 599, instead of 429.
func WithStatus(status int) Option {
	return option(forLimits, "WithStatus", func(c *config) { c.status = status })
}

// WithBody sets the body of refusals, instead of [Problem].
func WithBody(b Body) Option { return option(forLimits, "WithBody", func(c *config) { c.body = b }) }

// WithGRPCStatus refuses calls of gRPC, by their Content-Type, with a status of gRPC: RESOURCE_EXHAUSTED with
// RetryInfo and grpc-retry-pushback-ms for an exceeded limit. A gRPC client takes 429 for UNAVAILABLE, which it may
// retry at once. The HTTP status is then 200: never use it where a proxy asks by a request, as forward-auth does.
func WithGRPCStatus() Option { return func(c *config) { c.grpc = true } }

// WithPages refuses clients whose Accept prefers text/html to JSON, such as browsers, with a page in English or
// Chinese where the rules state no body.
func WithPages() Option { return option(forRules, "WithPages", func(c *config) { c.pages = true }) }

// WithFields selects the fields that describe the limits, instead of [Draft].
func WithFields(f Fields) Option {
	return option(forLimits, "WithFields", func(c *config) { c.fields = f })
}

// WithCost sets the cost of a request: instead of 1 unit, or, with ByRules, instead of the cost of
// rules without a number. It is called once per request.
func WithCost(cost func(*http.Request) int64) Option { return func(c *config) { c.cost = cost } }

// WithPartitionKeys adds the draft's pk to the fields, which tells a client that acts for several
// users whose quota it is. The client reads it: do not reveal a secret key. Empty bytes omit it.
// Keys over 256 bytes arrive hashed.
func WithPartitionKeys(pk func(limit *weir.Limit, key string) []byte) Option {
	return option(forLimits, "WithPartitionKeys", func(c *config) { c.partition = pk })
}

// WithCostAfter sets the cost of a request after the response: bytes sent, tokens spent. The
// request is first charged WithCost, or 1, as an estimate; afterwards a deficit is charged, even
// beyond the limit, and a surplus is refunded. The function is called after the handler has
// returned, or panicked (the status is then 0 if none was sent), with the header as the handler
// left it, trailers included, and the number of body bytes written. A result below 0 or over
// weir.MaxUnits leaves the estimate. Leases and parts with a Cost are not affected.
//
// Only with this option the handler gets a wrapped ResponseWriter. It flushes, hijacks and copies
// files like the server's, and unwraps for http.ResponseController.
func WithCostAfter(cost func(r *http.Request, status int, header http.Header, bytes int64) int64) Option {
	return option(forLimits, "WithCostAfter", func(c *config) { c.after = cost })
}

// WithClients sets the trusted proxies, whose headers name the client. By default the client is
// always the peer.
func WithClients(e *clientaddr.Extractor) Option {
	return option(forRules, "WithClients", func(c *config) { c.clients = e })
}

// WithPathForm sets the form of paths for matching and for the handler, instead of that of the
// rules (path_form), which their patterns have.
func WithPathForm(f pathform.Form) Option {
	return option(forRules, "WithPathForm", func(c *config) { c.form = &f })
}

// WithRegisteredMethods answers 400 to methods that IANA has not registered or that are not in
// capitals: for gateways, whose upstreams may read post as POST, or have methods that no rule
// covers.
func WithRegisteredMethods() Option {
	return option(forRules, "WithRegisteredMethods", func(c *config) { c.registered = true })
}

// WithCountry sets the country of a request's client, a code of ISO 3166 in capitals, as a trusted proxy may state it;
// "" leaves it to the gate. Check the peer: any client can send a header.
func WithCountry(country func(*http.Request) string) Option {
	return option(forRules, "WithCountry", func(c *config) { c.country = country })
}

// WithUser sets the authenticated user of a request, for rules keyed by user; "" is none.
func WithUser(user func(*http.Request) string) Option {
	return option(forRules, "WithUser", func(c *config) { c.user = user })
}

// WithService sets the service of a request, for rules that match or key by service.
func WithService(service func(*http.Request) string) Option {
	return option(forRules, "WithService", func(c *config) { c.service = service })
}

// WithRules sets the rules that decide a request, instead of those that are in force then: for a gateway, which has
// chosen the route by them. See gate.Ask.
func WithRules(set func(*http.Request) *rules.Set) Option {
	return option(forRules, "WithRules", func(c *config) { c.rules = set })
}

// WithDescriptors sets the values of descriptor.NAME in rules; "" is missing.
func WithDescriptors(descriptor func(r *http.Request, name string) string) Option {
	return option(forRules, "WithDescriptors", func(c *config) { c.descriptor = descriptor })
}

// WithDescriptorKeys sets the names of all descriptors of a request, in their order. Without it, no rule with
// match.descriptor_keys matches.
func WithDescriptorKeys(keys func(*http.Request) []string) Option {
	return option(forRules, "WithDescriptorKeys", func(c *config) { c.descriptorKeys = keys })
}

// WithoutSettling keeps costs as charged, regardless of the response: for handlers that only
// authorize a request that another server serves.
func WithoutSettling() Option {
	return option(forRules, "WithoutSettling", func(c *config) { c.estimated = true })
}

// WithObserver sets a function that is called for each request before the response, for a failed
// lease renewal on another goroutine, and for a failed settlement or release after the response. It
// runs on the request's goroutine and must return fast.
func WithObserver(observe func(*http.Request, Event)) Option {
	return func(c *config) { c.observe = observe }
}

// An Event is the outcome of a request, or of its follow-up.
type Event struct {
	Outcome Outcome
	Answer  weir.Answer // of the deciding limit, if any
	Rule    *rules.Rule // the deciding rule, with ByRules, if any
	// Err is set for Denied (by a missing key), Failed and the outcomes after it. With ByRules it is
	// also set to the store's error if the rules decided in its place.
	Err error
}

// Outcome is the kind of an Event.
type Outcome uint8

// The outcomes.
const (
	Passed     Outcome = iota // every limit granted it
	Refused                   // a limit refused it
	Skipped                   // no limit applied: no key, or no rule
	Denied                    // by a list, or by Deny without a key
	Failed                    // the store did not respond, or the input was invalid
	Unreleased                // the lease was not released, and lasts to its time-to-live
	Unrenewed                 // the lease was not renewed; weir.ErrLeaseGone: it is lost
	Unsettled                 // the cost is unknown or was not charged
)
