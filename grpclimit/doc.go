// Package grpclimit limits the calls of a gRPC server, and paces the calls of a gRPC client. It is httplimit for gRPC,
// and shares its policies and events.
//
// [New] makes a [Server] of a weir.Limiter and a [Key], a function that returns the key of a call. [ByRules] makes it
// of a gate, which has the rules of a file, and [ByCall] of a function that returns the limits and keys of a call. The
// methods of a Server are interceptors:
//
//	limits, err := grpclimit.New(limiter, grpclimit.PeerAddress, nil)
//	...
//	grpc.NewServer(grpc.ChainUnaryInterceptor(limits.Unary), grpc.ChainStreamInterceptor(limits.Stream))
//
// # Refusals
//
// A refusal is RESOURCE_EXHAUSTED with the details google.rpc.QuotaFailure, which names the limits that refuse, and
// google.rpc.RetryInfo, unless waiting does not help. Its metadata is retry-after in whole seconds, ratelimit,
// ratelimit-policy, and grpc-retry-pushback-ms: clients with a retryPolicy for RESOURCE_EXHAUSTED repeat the call after
// that wait (gRFC A6). If the wait exceeds the deadline of the call, or a minute, the pushback is -1: a client that
// waits for a retry that cannot succeed in time would get the refusal late.
//
// All metadata of a refusal is in the trailer, so that the response is a single HEADERS frame. The tempting wrong way,
// to send retry-after as a header before, ends the retries of clients: a response with headers is final for them.
// For the same reason the ratelimit fields of a call whose handler fails are in the trailer; those of a call that
// succeeds are in the header.
//
// # Other outcomes
//
// A missing key (with httplimit.Deny) and a deny list are PERMISSION_DENIED; a store that does not respond, if the
// policy is to refuse, UNAVAILABLE, without a wait, because the duration is unknown; a call that rules cannot read
// INVALID_ARGUMENT; invalid input of the program INTERNAL. A call that is canceled while it is decided, or while it
// waits for units that it borrowed, has the status of its context.
//
// # Streams
//
// A stream is counted when it is opened. A concurrency limit is held until the handler returns, also if it panics or
// the client has left; its lease is renewed each third of its time-to-live. Options.Messages limits the messages that a
// stream receives.
//
// # Overload
//
// [Adaptive] limits the calls in progress by the latency of the handlers, as httplimit.Adaptive does.
//
// [Client] is the client side: it waits for its own limiter and as long as servers request.
package grpclimit
