package admin

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/telemetry"
	"github.com/weirproject/weir/server/internal/web"
)

// An operation is a method of a path below Prefix.
type operation struct {
	method, path string
	id           string // in the OpenAPI document; clients are generated with these names
	run          func(*handler, context.Context, *call) (any, error)
	answer       any
	summary      string
	query        string // names of parameters
	writes       bool
	ledger       bool // needed
	versioned    bool // If-Match or If-None-Match is required
	store        bool // the ledger or the store is needed, and can be down
	telemetry    bool // needed
	body         map[string]any
	errors       []int // besides those that follow from the other fields
}

var (
	yamlBody = map[string]any{
		"application/yaml": web.Schema{"type": "string"},
		"application/json": web.Schema{"type": "object"},
	}
	jsonBody = map[string]any{"application/json": NewException{}}
)

const (
	get, post, put, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete

	missing, invalid, conflict = http.StatusNotFound, http.StatusUnprocessableEntity, http.StatusConflict
)

// changing completes an operation that changes the ledger at a revision.
func changing(op operation) operation {
	op.writes, op.ledger, op.versioned, op.store = true, true, true, true
	return op
}

// reading completes an operation that reads the telemetry.
func reading(op operation) operation {
	op.method, op.path, op.telemetry = get, "telemetry/"+op.path, true
	return op
}

var reloading = operation{method: post, path: "reload", id: "reload", run: (*handler).reload, answer: Reloaded{},
	writes: true, store: true, errors: []int{invalid},
	summary: "Read all sources of rules, and answer when they are in force"}

func operations() []operation {
	return slices.Concat(ledgerOperations(), keyOperations(), telemetryOperations())
}

func ledgerOperations() []operation {
	return []operation{
		{method: get, path: "rules", id: "listRules", run: (*handler).listRules, answer: Rules{},
			store: true, summary: "List the rules in force, and those of the ledger"},
		{method: get, path: "rules/{name}", id: "getRule", run: (*handler).getRule, answer: Rule{},
			store: true, errors: []int{missing}, summary: "Show a rule, whose ETag is for If-Match"},
		changing(operation{method: put, path: "rules/{name}", id: "putRule", run: (*handler).putRule, answer: Written{},
			query: "why dry_run revert_after", body: yamlBody, summary: "Set a rule"}),
		changing(operation{method: del, path: "rules/{name}", id: "deleteRule", run: (*handler).deleteRule,
			answer: Written{}, query: "why", errors: []int{missing}, summary: "Delete a rule from the ledger"}),
		changing(operation{method: post, path: "rules/{name}/enable", id: "enableRule", run: (*handler).enableRule,
			answer: Written{}, query: "why", errors: []int{missing}, summary: "Enable a rule of the ledger"}),
		changing(operation{method: post, path: "rules/{name}/disable", id: "disableRule", run: (*handler).disableRule,
			answer: Written{}, query: "why", errors: []int{missing}, summary: "Disable a rule of any source"}),
		changing(operation{method: post, path: "rules/{name}/confirm", id: "confirmRule", run: (*handler).confirmRule,
			answer: Written{}, query: "why", errors: []int{missing, conflict, invalid},
			summary: "Keep a change that would revert by itself"}),
		changing(operation{method: post, path: "rules/{name}/rollback", id: "rollbackRule", run: (*handler).rollback,
			answer: Written{}, query: "why to dry_run", errors: []int{missing},
			summary: "Restore a rule to a revision of its history"}),
		{method: get, path: "rules/{name}/compare", id: "compareRule", run: (*handler).compare, answer: Comparison{},
			errors: []int{missing}, summary: "Compare a rule with its candidate"},
		changing(operation{method: post, path: "rules/{name}/promote", id: "promoteRule", run: (*handler).promote,
			answer: Written{}, query: "why dry_run", errors: []int{missing, invalid},
			summary: "Make a rule's candidate its limit"}),
		{method: post, path: "diff", id: "diff", run: (*handler).diff, answer: Written{},
			query: "rule", body: yamlBody, summary: "Show the changes that a rule file, or a rule, would make"},
		{method: get, path: "history", id: "history", run: (*handler).history, answer: History{},
			query: "name most", ledger: true, store: true, errors: []int{invalid},
			summary: "Show the history of changes"},
	}
}

// keyOperations are about keys: exceptions, counts, bans.
func keyOperations() []operation {
	return []operation{
		{method: get, path: "exceptions", id: "listExceptions", run: (*handler).listExceptions, answer: Exceptions{},
			ledger: true, store: true, summary: "List overrides, blocks and allows"},
		changing(operation{method: post, path: "exceptions", id: "postException", run: (*handler).postException,
			answer: Exception{}, body: jsonBody,
			summary: "Make an exception, or replace one of the same kind, rule and values"}),
		{method: get, path: "exceptions/{id}", id: "getException", run: (*handler).getException, answer: Exception{},
			ledger: true, store: true, errors: []int{missing}, summary: "Show an exception"},
		changing(operation{method: del, path: "exceptions/{id}", id: "deleteException", run: (*handler).deleteException,
			answer: Written{}, query: "why", errors: []int{missing}, summary: "End an exception before it expires"}),
		{method: post, path: "restore", id: "restoreLedger", run: (*handler).restore, answer: Restored{},
			query: "why dry_run forget", writes: true, ledger: true, store: true, errors: []int{invalid},
			summary: "Write back changes that the ledger has lost, or accept the loss"},
		{method: get, path: "keys", id: "getKey", run: (*handler).getKey, answer: gate.ExplainedRule{},
			query: "rule key value", store: true, errors: []int{missing, invalid},
			summary: "Show the remaining units of a key under a rule"},
		{method: post, path: "keys/reset", id: "resetKey", run: (*handler).resetKey, answer: gate.ExplainedRule{},
			query: "rule key value why", writes: true, store: true, errors: []int{missing, conflict, invalid},
			summary: "Reset the counts of a key"},
		{method: post, path: "rules/{name}/reset", id: "resetRule", run: (*handler).resetRule, answer: RuleReset{},
			query: "cursor why", writes: true, store: true, errors: []int{missing, conflict, invalid},
			summary: "Reset the counts of keys of a rule, and go on with the cursor until all are"},
		{method: get, path: "bans", id: "listBans", run: (*handler).listBans, answer: Bans{},
			store: true, summary: "List up to 1,000 bans in force"},
		{method: post, path: "bans/lift", id: "liftBan", run: (*handler).liftBan, answer: Lifted{},
			query: "rule key value why", writes: true, store: true, errors: []int{missing, conflict, invalid},
			summary: "Lift a ban on all nodes, and forget earlier bans"},
		{method: post, path: "explain", id: "explain", run: (*handler).explain, answer: Explanation{},
			body:    map[string]any{"application/json": Question{}},
			summary: "Show the rules, limits, bans and exceptions of a key, an address or a request"},
		{method: get, path: "services", id: "listServices", run: (*handler).listServices, answer: Services{},
			summary: "Show the services and routes of this server's gateway, with the health of addresses"},
		reloading,
		{method: get, path: "openapi.json", id: "openapi", run: (*handler).openAPI,
			answer: web.Schema{"type": "object"}, summary: "This document"},
	}
}

func telemetryOperations() []operation {
	return []operation{
		reading(operation{path: "overview", id: "telemetryOverview", run: (*handler).overview,
			answer: telemetry.Overview{}, query: "from until node most", store: true,
			summary: "Show the traffic of all rules"}),
		reading(operation{path: "rules/{name}", id: "telemetryRule", run: (*handler).ruleReport,
			answer: telemetry.RuleReport{}, query: "from until node most", errors: []int{missing},
			store: true, summary: "Show the traffic and the keys of a rule"}),
		reading(operation{path: "key", id: "telemetryKey", run: (*handler).keyHistory, answer: telemetry.KeyHistory{},
			query: "key from until node", store: true,
			summary: "Show the traffic of a key in the minutes in which it was among the most refused or the busiest"}),
		reading(operation{path: "nodes", id: "telemetryNodes", run: (*handler).nodes, answer: Nodes{},
			store: true, summary: "Show the servers that share the store"}),
		reading(operation{path: "marks", id: "telemetryMarks", run: (*handler).marks, answer: Marks{},
			query: "from until node most", store: true, summary: "Show changes and incidents, the latest first"}),
		reading(operation{path: "recent", id: "telemetryRecent", run: (*handler).recent, answer: Samples{},
			query:   "rule key outcome request most",
			summary: "Show samples of this server's decisions, the latest first"}),
		{method: get, path: "audit", id: "searchAudit", run: (*handler).searchAudit, answer: AuditRecords{},
			query: "request_id key rule outcome method path node from until most", store: true,
			summary: "Search the audit log: refusals, bans and changes of all servers, the latest first"},
	}
}

// parameters are the parameters of the paths and queries.
var parameters = map[string]web.Parameter{
	"name": {Doc: "The rule; of the history also an exception's ID."},
	"id":   {Doc: "The ID of the exception."},
	"why":  {Doc: "The reason of the change, for the history."},
	"dry_run": {Doc: "true: show the changes, and change nothing.",
		Schema: web.Schema{"type": "string", "enum": []string{"true", "false"}}},
	"revert_after": {Doc: "A duration, such as 30m: unless the change is confirmed until then, it is taken back."},
	"forget": {Doc: "true: accept the loss, and write nothing back.",
		Schema: web.Schema{"type": "string", "enum": []string{"true", "false"}}},
	"to": {Doc: "A revision of the rule's history; 0: the rule of another source that it goes before.", Required: true,
		Schema: web.Schema{"type": "integer", "minimum": 0}},
	"from": {Doc: "The beginning: a time of RFC 3339, or a duration before now, such as 15m. The default is an hour " +
		"before the end."},
	"until":      {Doc: "The end, as from. The default is now."},
	"node":       {Doc: "Of this server alone."},
	"outcome":    {Doc: "passed, refused, denied or failed; of the audit log also ban, rules and the like."},
	"request":    {Doc: "The ID of the request."},
	"request_id": {Doc: "The ID of the request: the X-Request-Id of its response."},
	"method":     {Doc: "The method of the request."},
	"path":       {Doc: "The path of the request; /login/* stands for all that begin so."},
	"most": {Doc: "The maximum number of entries of the answer.",
		Schema: web.Schema{"type": "integer", "minimum": 1, "maximum": 1000}},
	"rule":   {Doc: "The name of the rule; of diff: the body is this rule alone."},
	"key":    {Doc: "The key as lists of bans print it, or the value of a key with one component."},
	"cursor": {Doc: "The next of the answer before; at first none."},
	"value": {Doc: "A value for each component of the rule's key.",
		Schema: web.Schema{"type": "array", "items": text}},
}

var (
	text = web.Schema{"type": "string"}

	// versions are the conditions of a write.
	versions = []web.Parameter{
		{Name: "If-Match", In: "header", Doc: `The ETag that was read, such as "12".`, Schema: text},
		{Name: "If-None-Match", In: "header", Doc: "The entry is new.",
			Schema: web.Schema{"type": "string", "enum": []string{"*"}}},
	}
	actor = web.Parameter{Name: "X-Weir-Actor", In: "header", Doc: "The user for whom the caller acts.", Schema: text}
)

// Document returns the OpenAPI document, with operations of other handlers below Prefix.
func Document(also ...web.Operation) []byte {
	d := web.API{
		Title: "weir for operators",
		Doc: "Rules and exceptions that change while the server runs. Every write sends the revision that " +
			"was read, and is in the history.",
		Statuses: map[int]string{
			http.StatusConflict:             "The ledger has lost changes, has no such rule, or took the change back.",
			http.StatusPreconditionFailed:   "Another revision is current; nothing was changed.",
			http.StatusUnprocessableEntity:  "The rule, the exception or a parameter is invalid; nothing was changed.",
			http.StatusPreconditionRequired: "If-Match or If-None-Match is missing.",
			http.StatusServiceUnavailable:   "The ledger or the store did not answer.",
		},
	}
	for _, op := range operations() {
		d.Operations = append(d.Operations, op.describe())
	}
	d.Operations = append(d.Operations, also...)
	return d.Document()
}

func (op *operation) describe() web.Operation {
	o := web.Operation{Method: op.method, Path: Prefix + op.path, ID: op.id, Summary: op.summary, Body: op.body,
		Answers: []any{op.answer},
		Errors:  append([]int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden}, op.errors...),
	}
	if _, after, ok := strings.Cut(op.path, "{"); ok {
		name, _, _ := strings.Cut(after, "}")
		o.Parameters = append(o.Parameters, parameter(name, "path"))
	}
	for _, name := range strings.Fields(op.query) {
		o.Parameters = append(o.Parameters, parameter(name, "query"))
	}
	if op.versioned {
		o.Parameters = append(o.Parameters, versions...)
		o.Errors = append(o.Errors, http.StatusConflict, http.StatusPreconditionFailed, http.StatusPreconditionRequired)
	}
	if op.writes {
		o.Parameters = append(o.Parameters, actor)
	}
	if op.body != nil {
		o.Errors = append(o.Errors, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
			http.StatusUnprocessableEntity)
	}
	if op.store {
		o.Errors = append(o.Errors, http.StatusServiceUnavailable)
	}
	return o
}

func parameter(name, in string) web.Parameter {
	p := parameters[name]
	p.Name, p.In = name, in
	if p.Schema == nil {
		p.Schema = text
	}
	return p
}
