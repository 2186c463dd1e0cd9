// Package api serves decisions to programs over HTTP, in JSON:
//
//	POST /v1/decide                            decide one request, or a batch
//	POST /v1/peek                              the same without a charge
//	POST /v1/reserve, /v1/settle               charge an estimate, and settle the actual cost, once
//	POST /v1/acquire, /v1/renew, /v1/release   hold units of concurrency limits
//	POST /v1/reset                             reset the counts of keys
//	GET  /v1/openapi.json                      a description of all these
//
// It parses requests and renders verdicts; the gate decides. docs/reference/api.md has an example of each.
//
// # State
//
// The server keeps no state of its callers. A reservation or a lease is a token that the caller
// keeps, so that any node can settle it. A token is no secret and is not signed: a caller that may use
// it may charge, refund and reset anything in any case.
package api
