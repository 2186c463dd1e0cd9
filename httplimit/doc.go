// Package httplimit limits the requests of an HTTP server, and paces the requests of an HTTP client.
//
// [New] makes middleware of a weir.Limiter and a [Key], a function that returns the key of a request. [Together] makes
// it of several limits with separate keys, decided in one call of the store: a request that one of them refuses is not
// charged. [ByRequest] makes it of a function that returns the limits and keys of a request, such as the limits of a
// customer's plan.
//
//	perAddress, err := httplimit.New(limiter, httplimit.PeerAddress, nil)
//	...
//	http.ListenAndServe(addr, perAddress(mux))
//
// [ByRules] makes it of a gate, which has the rules of a file. The rules can be replaced at run
// time; they define the keys, the refusals, and the failure policy.
//
//	limited, err := httplimit.ByRules(gate, &httplimit.RuleOptions{Clients: clients})
//
// New, Together and ByRequest have these defaults, which [Options] change; with ByRules the rules define
// them:
//
//   - A refusal is 429 with Retry-After in whole seconds, rounded up, Cache-Control: no-store, and
//     a body of application/problem+json. A cost above the limit's maximum has no Retry-After, and
//     the body gives the reason.
//   - Each response that a limit decided, granted or refused, has the fields of
//     draft-ietf-httpapi-ratelimit-headers-11. They are added to existing fields.
//   - All requests without a key share one key, "anonymous".
//   - While the store does not respond, requests pass ([FailOpen]), so that an outage of the
//     limiter is not one of the service. Options.Observe reports it.
//
// The handler gets the server's own ResponseWriter, so that flush, hijack and push work. Only where
// the response must be measured (CostAfter, a rule that settles by bytes) it is wrapped, in
// one that flushes, hijacks and copies files too.
//
// A concurrency limit is held until the handler returns. Its lease is renewed each third of its
// time-to-live, so that long requests stay counted; the time-to-live only bounds how long a dead
// process holds units. A lease that is lost, because the store did not respond, is reported to the
// observer alone. A request with a delay (an overdraft, a leaky queue) sleeps it before the handler
// runs.
//
// After the handler returns, costs are settled and leases released, even if it panicked or the
// client has disconnected.
//
// [Transport] is the client side: it waits for the client's limiter and as long as servers request. [TransportByRules]
// is ByRules for a client: a program that calls an API holds its own budget, also of costs that responses state.
package httplimit
