// Package api is the door for programs that ask over HTTP, in JSON:
//
//	POST /v1/decide                         may it pass? one request, or a batch
//	POST /v1/peek                           the same, and nothing is charged
//	POST /v1/reserve, /v1/settle            charge an estimate, settle the true cost, once
//	POST /v1/acquire, /v1/renew, /v1/release  hold units of a concurrency limit
//	POST /v1/reset                          forget what was counted
//	GET  /v1/openapi.json                   the words of all these
//
// It parses and renders; the gate decides. docs/api.md shows each by an example.
//
// # What it keeps
//
// Nothing about its callers: what a reservation or a lease consists of lies in a token that
// the caller keeps, so that any node can settle it. A token is no secret and is not signed:
// who may use it may charge, refund and reset anything in any case.
package api
