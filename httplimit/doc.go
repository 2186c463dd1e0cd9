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
// Both answer for the limits as follows, unless an [Option] says otherwise:
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
// hijack, push) still works. A concurrency limit is held until the handler returns, but
// not beyond its time-to-live: choose that longer than the longest request. A request
// that borrowed (an overdraft, a leaky queue) sleeps its delay before it is handed on.
//
// [Transport] is the other side: it paces a client by a limiter of its own and by what
// servers ask for.
package httplimit
