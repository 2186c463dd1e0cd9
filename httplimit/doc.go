// Package httplimit limits what an HTTP server lets in and what an HTTP client sends.
//
// [New] makes middleware of a weir.Limiter and a [Key], the function that says whom a
// request is counted against; [Together] makes it of several limits with keys of their
// own, decided in one call of the store: what one of them refuses, none is charged for.
//
//	perAddress, err := httplimit.New(limiter, httplimit.PeerAddress)
//	...
//	http.ListenAndServe(addr, perAddress(mux))
//
// [ByRules] makes it of a gate: of rules, as a file has them, which may change while it
// runs, and say whom they count, how they refuse, and what becomes of requests while the
// store does not answer.
//
//	limited, err := httplimit.ByRules(gate, httplimit.WithClients(clients))
//
// The first two answer for the limits as follows, unless an [Option] says otherwise; with
// rules, they say it:
//
//   - What is refused is answered 429 with Retry-After in whole seconds, rounded up,
//     Cache-Control: no-store, and a body of application/problem+json. A cost that no wait
//     makes grantable has no Retry-After, and the body says why.
//   - Each answer that a limit was asked for, granted or refused, has the fields of
//     draft-ietf-httpapi-ratelimit-headers-11. They are added to what is there already.
//   - A request that has no key shares one key, "anonymous", with all others of the kind.
//   - While the store does not answer, requests pass ([FailOpen]): an outage of the limiter
//     is not to be one of the service. [WithObserver] tells of it.
//
// The ResponseWriter is handed on as it came, so that what it can do beside (flush,
// hijack, push) still works; only where the response must be measured ([WithCostAfter], a
// rule that settles by bytes) it is wrapped, in one that flushes, hijacks and copies files
// too.
//
// A concurrency limit is held until the handler returns. While it runs the lease is renewed
// each third of its time-to-live, so that long requests stay counted; the time-to-live is
// only how long a process that died keeps what it held. A lease that is lost all the same,
// because the store did not answer, is told to the observer and to nobody else. A request
// that borrowed (an overdraft, a leaky queue) sleeps its delay before it is handed on.
//
// What was charged by an estimate is settled when the handler has returned, and what was
// held is released, also if it panicked or the client has gone.
//
// [Transport] is the other side: it paces a client by a limiter of its own and by what
// servers ask for.
package httplimit
