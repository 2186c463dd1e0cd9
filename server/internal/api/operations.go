package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/server/internal/web"
)

// An operation is what one path does.
type operation struct {
	method  string
	writes  bool // a read-only token is not enough
	run     func(*api, context.Context, *call) error
	body    *object // nil: none
	batch   bool    // the body may be a batch of these objects
	answers []any
	errors  []int
	summary string

	members []field // of the body, or of a batch
}

// decides reports whether the answer is a decision, so that deny_status is supported.
func (op *operation) decides() bool { return op.body != nil && op.errors == nil }

func operations() map[string]*operation {
	const post = http.MethodPost
	unsettled := []int{http.StatusConflict, http.StatusServiceUnavailable}
	all := map[string]*operation{
		"/v1/decide": {
			method: post, writes: true, run: (*api).decide, body: decideBody(), batch: true,
			answers: []any{answer{}, batchAnswer{}},
			summary: "Decide whether a request passes, and charge it",
		},
		"/v1/peek": {
			method: post, run: (*api).peek, batch: true,
			body:    askBody("Peek", claims("Claim", weir.MaxClaims, claimOf()...), cost()),
			answers: []any{answer{}, batchAnswer{}},
			summary: "Decide whether a request would pass; nothing is charged",
		},
		"/v1/reserve": {
			method: post, writes: true, run: (*api).reserve, body: reserveBody(), answers: []any{reserveAnswer{}},
			summary: "Charge an estimate, which is settled later",
		},
		"/v1/settle": {
			method: post, writes: true, run: (*api).settle, body: settleBody(), answers: []any{settled{}},
			errors:  unsettled,
			summary: "Settle a reservation at its actual cost, once",
		},
		"/v1/acquire": {
			method: post, writes: true, run: (*api).acquire,
			body:    askBody("Acquire", claims("Claim", weir.MaxClaims, claimOf()...), slots(), lease()),
			answers: []any{answer{}},
			summary: "Hold units of concurrency limits",
		},
		"/v1/renew": {
			method: post, writes: true, run: (*api).renew, body: tokenBody(), answers: []any{renewed{}},
			errors: unsettled, summary: "Extend a lease by its time-to-live",
		},
		"/v1/release": {
			method: post, writes: true, run: (*api).release, body: tokenBody(), answers: []any{released{}},
			errors: unsettled, summary: "Release a lease; the counts of windows and buckets stay",
		},
		"/v1/reset": {
			method: post, writes: true, run: (*api).reset, body: askBody("Reset", claims("ResetClaim", weir.MaxClaims)),
			answers: []any{resetAnswer{}}, errors: []int{http.StatusServiceUnavailable},
			summary: "Reset the counts of the keys of a request or of claims",
		},
		"/v1/openapi.json": {
			method: http.MethodGet, run: (*api).openAPI, answers: []any{web.Schema{"type": "object"}},
			summary: "This document",
		},
	}
	for _, op := range all {
		if op.body != nil {
			op.members = op.body.members
		}
		if op.batch {
			op.members = append(slices.Clone(op.members), batchOf(op.body))
		}
	}
	return all
}

// Document returns the OpenAPI document.
func Document() []byte {
	d := web.API{
		Title: "weir",
		Doc: "Decides whether requests may pass. Durations whose name ends in _us are whole microseconds; " +
			"units and durations are whole numbers below 2^53.",
		Statuses: map[int]string{
			http.StatusConflict: "The reservation or lease is settled, released or expired; nothing was done.",
		},
		Schemas: map[string]web.Schema{},
	}
	for path, op := range operations() {
		d.Operations = append(d.Operations, op.describe(path, d.Schemas))
	}
	return d.Document()
}

func (op *operation) describe(path string, schemas map[string]web.Schema) web.Operation {
	id, _, _ := strings.Cut(strings.TrimPrefix(path, "/v1/"), ".")
	o := web.Operation{Method: op.method, Path: path, ID: id, Summary: op.summary, Answers: op.answers,
		Errors: append([]int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden}, op.errors...)}
	if op.body != nil {
		o.Errors = append(o.Errors, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
		bodies := []any{op.body.register(schemas)}
		if op.batch {
			batch := object{name: op.body.name + "Batch", members: []field{batchOf(op.body)}}
			batch.required = []string{"requests"}
			bodies = append(bodies, batch.register(schemas))
		}
		o.Body = map[string]any{"application/json": bodies}
	}
	if op.decides() {
		o.Errors = append(o.Errors, http.StatusServiceUnavailable)
		o.Refusal = "The decision is negative, and deny_status is this status."
		o.Parameters = append(o.Parameters, web.Parameter{Name: "deny_status", In: "query",
			Schema: web.Schema{"type": "integer", "minimum": 400, "maximum": 599},
			Doc:    "The status of negative decisions, with Retry-After, instead of 200."},
			web.Parameter{Name: "answer", In: "query", Schema: web.Schema{"type": "string", "enum": []string{"http"}},
				Doc: "Answers have the whole response to the client of the request."})
	}
	return o
}
