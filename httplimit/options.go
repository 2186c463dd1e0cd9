package httplimit

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/rules"
)

// Options are the options of [New], [Together] and [ByRequest]. The zero value, and nil, are the defaults.
type Options struct {
	// Cost is the cost of a request, instead of 1 unit. It is called once per request.
	Cost func(*http.Request) int64
	// CostAfter is the cost of a request after the response: bytes sent, tokens spent. The request is first charged
	// Cost as an estimate; afterwards a deficit is charged, even beyond the limit, and a surplus is refunded. The
	// function is called after the handler has returned, or panicked (the status is then 0 if no head was sent), with
	// the header as the handler left it, trailers included, and the number of body bytes written. A result below 0 or
	// over weir.MaxUnits leaves the estimate. Leases and parts with a Cost are not affected.
	//
	// Only with this option the handler gets a wrapped ResponseWriter. It flushes, hijacks and copies
	// files like the server's, and unwraps for http.ResponseController.
	CostAfter func(r *http.Request, status int, header http.Header, bytes int64) int64
	// Missing is the policy for requests without a key. A [Part] has a separate policy.
	Missing Missing
	// StoreErrors is the policy for requests while the store does not respond. It does not apply
	// to invalid input (a cost below 0), which is answered 500: a client that could provoke it would
	// pass. Nor to canceled requests, which are answered 503.
	StoreErrors Failure
	// Status is the status of a refusal, 400 to 599; 0 is 429.
	Status int
	// Body makes the body of refusals; nil is [Problem].
	Body Body
	// Fields selects the fields that describe the limits.
	Fields Fields
	// PartitionKey adds the draft's pk to the fields, which tells a client that acts for several users which user has
	// the quota. The client reads it: do not reveal a secret key. Empty bytes omit it. Keys over 256 bytes arrive
	// hashed.
	PartitionKey func(limit *weir.Limit, key string) []byte
	// GRPCStatus refuses calls of gRPC, by their Content-Type, with a status of gRPC: RESOURCE_EXHAUSTED with
	// RetryInfo and grpc-retry-pushback-ms for an exceeded limit. A gRPC client takes 429 for UNAVAILABLE, which it may
	// retry at once. The HTTP status is then 200: never use it where a proxy asks by a request, as forward-auth does.
	GRPCStatus bool
	// Observe is called for each request before the response, for a failed
	// lease renewal on another goroutine, and for a failed settlement or release after the response. It
	// runs on the request's goroutine and must return fast.
	Observe func(*http.Request, Event)
}

// RuleOptions are the options of [ByRules]. The zero value, and nil, are the defaults.
type RuleOptions struct {
	// Clients has the trusted proxies: their headers name the client; nil: the client is always the peer.
	Clients *clientaddr.Extractor
	// PathForm is the form of paths for matching and for the handler; nil is the form of the rules (path_form), which
	// their patterns have.
	PathForm *pathform.Form
	// RegisteredMethods answers 400 to methods that IANA has not registered or that are not in capitals: for gateways:
	// their upstreams may read post as POST, or have methods that no rule covers.
	RegisteredMethods bool
	// User is the authenticated user of a request, for rules keyed by user; "" if there is no user.
	User func(*http.Request) string
	// Service is the service of a request, for rules that match or key by service.
	Service func(*http.Request) string
	// Country is the country of a request's client, a code of ISO 3166 in capitals, as a trusted proxy may state it;
	// "" leaves it to the gate. Check the peer: any client can send a header.
	Country func(*http.Request) string
	// Descriptor is the value of descriptor.NAME in rules; "" is missing.
	Descriptor func(r *http.Request, name string) string
	// DescriptorKeys are the names of all descriptors of a request, in their order. Without it, no rule with
	// match.descriptor_keys matches.
	DescriptorKeys func(*http.Request) []string
	// Read returns the parts of a request that a gateway before the middleware has read, so that they are not read
	// again: the rules that chose the route, which then decide (see gate.Ask; nil: the rules in force), and a request
	// that has its Client, and Path and Host in their form. Without a request the middleware reads it.
	Read func(*http.Request) (*rules.Set, *rules.Request)
	// Cost is the cost of a request, instead of the cost of rules without a number; a concurrency limit has the cost of
	// its rule, or 1. It is called once per request.
	Cost func(*http.Request) int64
	// Decoders read responses of which the body states the cost and is compressed. gzip is known.
	Decoders Decoders
	// KeepEstimates keeps costs as charged, regardless of the response: for handlers that only
	// authorize a request that another server serves.
	KeepEstimates bool
	// GRPCStatus is the same as in [Options].
	GRPCStatus bool
	// Pages refuses clients that prefer text/html to JSON in Accept, such as browsers, with a page in English or
	// Chinese where the rules state no body.
	Pages bool
	// Explain, if non-nil, is called with each verdict before the response, and requests are not charged: for tools
	// that show how a request would be answered, and why. It must not keep its arguments.
	Explain func(*rules.Request, *gate.Verdict)
	// Observe is the same as in [Options].
	Observe func(*http.Request, Event)
}

// A config is what both kinds of middleware have.
type config struct {
	body      Body
	grpc      bool
	pages     bool
	partition func(limit *weir.Limit, key string) []byte
	observe   func(*http.Request, Event)
}

// configured are options with their defaults.
func configured(given *Options) (*Options, *config, error) {
	var o Options
	if given != nil {
		o = *given
	}
	if o.Status == 0 {
		o.Status = http.StatusTooManyRequests
	}
	if o.Status < 400 || o.Status > 599 {
		return nil, nil, fmt.Errorf("httplimit: Options.Status is %d; allowed: 400 to 599", o.Status)
	}
	if o.Fields > NoFields || o.Missing > Deny || o.StoreErrors > FailClosed {
		return nil, nil, errors.New("httplimit: Options.Fields, Missing or StoreErrors: unknown value")
	}
	if o.Body == nil {
		o.Body = Problem
	}
	return &o, &config{body: o.Body, grpc: o.GRPCStatus, partition: o.PartitionKey, observe: o.Observe}, nil
}

// Failure is the policy for requests while the store does not respond.
type Failure uint8

const (
	// FailOpen lets requests pass. It is the default.
	FailOpen Failure = iota
	// FailClosed answers 503.
	FailClosed
)

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
