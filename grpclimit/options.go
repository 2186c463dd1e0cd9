package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/httplimit"
)

// Options are the options of [New] and [ByCall]. The zero value, and nil, are the defaults.
type Options struct {
	// Cost is the cost of a call, instead of 1 unit. It is called once per call.
	Cost func(context.Context, *Call) int64
	// CostAfter is the cost of a call after the handler has returned, or panicked: rows read, tokens spent. The call is
	// first charged Cost as an estimate; afterwards a deficit is charged, even beyond the limit, and a surplus is
	// refunded. last is the reply, of a stream the last message sent; nil without a message. A result below 0 or over
	// weir.MaxUnits leaves the estimate. Leases are not affected.
	CostAfter func(call *Call, last any, err error) int64
	// Missing is the policy for calls without a key.
	Missing httplimit.Missing
	// StoreErrors is the policy for calls while the store does not respond; httplimit.FailClosed answers UNAVAILABLE.
	// It does not apply to invalid input (a cost below 0), nor to canceled calls.
	StoreErrors httplimit.Failure
	// Fields selects the metadata that describes the limits.
	Fields httplimit.Fields
	// Messages limits the messages that streams receive, also the single request of a server stream: each is decided by
	// limits that New or ByRules made, before the handler gets it. A refusal ends the stream. A delay, such as
	// a weir.LeakyQueue's, holds the message back, and by gRPC's flow control its sender. Concurrency limits are
	// held until the next message is received. Costs stay as charged.
	Messages *Server
	// Exempt are methods (/grpc.health.v1.Health/Check) and services (/grpc.health.v1.Health/): no limit applies to
	// their calls and messages.
	Exempt []string
	// Observe is called for each call before its handler, for a failed lease renewal on another
	// goroutine, and for a failed settlement or release after the handler. It runs on the call's goroutine and must
	// return fast. Messages are observed by the Server of Messages.
	Observe func(context.Context, *Call, httplimit.Event)
}

// RuleOptions are the options of [ByRules]. The zero value, and nil, are the defaults.
type RuleOptions struct {
	// Clients has the trusted proxies: their metadata names the client; nil: the client is always the peer.
	Clients *clientaddr.Extractor
	// User is the authenticated user of a call, for rules keyed by user; "" without a user.
	User func(context.Context, *Call) string
	// Descriptor is the value of descriptor.NAME in rules; "" is missing.
	Descriptor func(ctx context.Context, call *Call, name string) string
	// Cost is the cost of a call, instead of the cost of rules without a number; a concurrency limit has the cost of
	// its rule, or 1. It is called once per call.
	Cost func(context.Context, *Call) int64
	// Messages, Exempt and Observe are as in [Options].
	Messages *Server
	Exempt   []string
	Observe  func(context.Context, *Call, httplimit.Event)
}

// given are options that do not change.
func given[T any](options *T) *T {
	var own T
	if options != nil {
		own = *options
	}
	return &own
}

// server makes a Server of a decider with these options.
func (o *Options) server(decide func(context.Context, *Call, *admission)) (*Server, error) {
	if o.Fields > httplimit.NoFields || o.Missing > httplimit.Deny || o.StoreErrors > httplimit.FailClosed {
		return nil, errors.New("grpclimit: Options.Fields, Missing or StoreErrors: unknown value")
	}
	return newServer(Server{decide: decide, messages: o.Messages, exempt: o.Exempt, observe: o.Observe,
		isForCalls: o.CostAfter != nil})
}

// newServer makes a Server from what all options have.
func newServer(s Server) (*Server, error) {
	if s.messages != nil && s.messages.isForCalls {
		return nil, errors.New("grpclimit: the limits of Messages have Messages, Exempt or CostAfter, " +
			"which are for calls")
	}
	for _, method := range s.exempt {
		if !strings.HasPrefix(method, "/") || strings.Count(method, "/") != 2 || strings.Contains(method, "//") {
			return nil, fmt.Errorf("grpclimit: Exempt has %q; allowed: a method, /grpc.health.v1.Health/Check, "+
				"or a service, /grpc.health.v1.Health/", method)
		}
	}
	s.isForCalls = s.isForCalls || s.messages != nil || s.exempt != nil
	return &s, nil
}
