package rules

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/bounds"
	"github.com/weirproject/weir/internal/servicekind"
)

// The tables of this file are the only list of the fields of a file of rules. Parse reads by them, and
// schema.json and the reference tables of docs are generated from them: go test ./rules -update.

// A mapping is the table of the fields of a mapping that T is the Go form of.
type mapping[T any] struct {
	name   string // its definition in the JSON Schema
	empty  string // what to do instead of writing it without fields; "": it may have none
	fields []field[T]
}

// A field of a mapping. about describes it, and unset the behaviour without it, in Markdown.
type field[T any] struct {
	word  string
	value value[T]
	about string
	unset string // "required" if a mapping must have it
}

// A value reads a field into a T.
type value[T any] struct {
	shape
	read func(d *decoder, p place, n *yaml.Node, t *T)

	// Of the section server alone.
	show   func(t *T) []string // the value, as it is written; nil if it is not set
	inner  *mapping[T]         // its fields are of the same Go type
	headed bool                // the first field of inner may be written alone
}

// A shape says for the JSON Schema which values Parse accepts.
type shape struct {
	name     string   // a definition: of shapes.json, or of a mapping
	most     int      // 0: one value; otherwise one, or a list of at most so many
	list     bool     // only a list
	unique   bool     // without equal ones
	words    []string // the allowed values
	from, to float64  // the least and the greatest number

	first  *shape // a mapping, or its first field alone
	commas bool   // of a list: commas separate its values in a command line
	live   bool   // a change is in force without a restart
}

const required = "required"

var fileFields = mapping[File]{"file", "", []field[File]{
	{"server", nested(&serverFields, func(f *File) *Server { return &f.Server }),
		"the [settings of weir serve](server.md)", "the defaults"},
	{"service_kind", choice(servicekind.Names(), func(f *File) *string { return &f.ServiceKind }),
		"`php`, `python`, `servlet`, `aspnet`, `node` or `go`: [how your service " +
			"reads](paths.md#the-kind-of-service) paths, " +
			"parameters and cookies", "what any of them reads"},
	{"allow", namedLists(func(f *File) *map[string][]string { return &f.Allow }),
		"[lists](exceptions.md#lists): named requests meet no rule", "none"},
	{"deny", namedLists(func(f *File) *map[string][]string { return &f.Deny }),
		"[lists](exceptions.md#lists): named requests are refused, also if `allow` names them", "none"},
	{"response", nested(&responseFields, func(f *File) *Response { return &f.Response }),
		"[responses](responses.md#responses) of rules without their own", "see there"},
	{"message", translations(func(f *File) *[]Translation { return &f.Message }),
		"[messages](responses.md#messages) of rules without their own", "weir's own, in English and Chinese"},
	{"rules", value[File]{shape: shape{name: "rule", most: bounds.Rules, list: true}, read: (*decoder).rules},
		"the list of rules; `[]` for none; at most 100,000", "required without `overlay`"},
	{"overlay", value[File]{shape: shape{name: "overlay", most: bounds.Overlays, list: true},
		read: (*decoder).overlay},
		"fields to set in [rules about descriptors](overlay.md) that another file or Envoy's control plane has; at " +
			"most 1,000", "none"},
	{"services", several(&serviceFields, bounds.Services, true, func(f *File) *[]ServiceSpec { return &f.Services }),
		"the [services](services.md) behind the gateway; at most 1,000", "none"},
	{"routes", several(&routeFields, bounds.Routes, true, func(f *File) *[]RouteSpec { return &f.Routes }),
		"which [requests](services.md) are forwarded to which service; at most 1,000",
		"none"},
}}

var ruleFields = mapping[Spec]{"rule", "", []field[Spec]{
	{"name", text("name", func(s *Spec) *string { return &s.Name }),
		"1 to 128 of a-z A-Z 0-9 and `. _ -`, unique; state is stored under it", required},
	{"label", text("label", func(s *Spec) *string { return &s.Label }),
		"a text of up to 100 characters in any script, for `weir rules list`, the metric `weir_rule_info` and the " +
			"JSON body of a refusal. Counts do not depend on it", "none"},
	{"description", value[Spec]{shape: shape{name: "description"}, read: func(d *decoder, p place, n *yaml.Node,
		s *Spec) {
		s.Description = d.long(p, n, bounds.Description)
	}}, "a text of up to 1,024 bytes, perhaps of several lines, for the admin API and the console", "none"},
	{"labels", value[Spec]{shape: shape{name: "labels"}, read: (*decoder).labels},
		"at most 16 names, each with a value, for the admin API and the console: 1 to 128 of a-z A-Z 0-9 and `. _ -`",
		"none"},
	{"enabled", value[Spec]{shape: shape{name: "enabled"}, read: (*decoder).enabled},
		"`true`, or `false`: the rule is [disabled](rollout.md#disabled-rules)", "`true`"},
	{"preset", choice(presetWords, func(s *Spec) *string { return &s.Preset }),
		"`mcp`: the rule limits what [agents](../howto/agents.md#what-the-preset-stands-for) ask of a server of the " +
			"Model Context Protocol; `openai`, `anthropic`, `gemini`, `ollama`: the rule limits the tokens of a " +
			"[model API](../howto/llm.md). `weir check` shows the fields that it stands for", "none"},
	{"match", nested(&matchFields, func(s *Spec) *Match { return &s.Match }),
		"which [requests](matching.md#match)", "all"},
	{"group", text("name", func(s *Spec) *string { return &s.Group }),
		"a name: of the rules of a group only [the best match](matching.md#groups-the-best-match-applies) " +
			"applies", "none"},
	{"schedule", several(&windowFields, bounds.Windows, false, func(s *Spec) *[]Window { return &s.Schedule }),
		"[when](exceptions.md#schedule) the rule applies", "always"},
	{"allow", namedLists(func(s *Spec) *map[string][]string { return &s.Allow }),
		"[lists](exceptions.md#lists): the rule does not apply to named requests", "none"},
	{"deny", namedLists(func(s *Spec) *map[string][]string { return &s.Deny }),
		"[lists](exceptions.md#lists): named requests are refused, also if `allow` names them", "none"},
	{"key", list("component", bounds.Components, func(s *Spec) *[]string { return &s.Key }),
		"a list of [components](keys.md#key)", "all requests share one key"},
	{"on_missing", choice(onMissing, func(s *Spec) *OnMissing { return &s.OnMissing }),
		"treatment of a request without a component: `anonymous` (all such requests are counted together), `skip` " +
			"(the rule does not apply), `deny`", "`anonymous`"},
	{"algorithm", choice(algorithms, func(s *Spec) *string { return &s.Algorithm }),
		"first word of the limits and of those in overrides: `token_bucket`, `gcra`, `leaky_bucket`, `leaky_queue`, " +
			"`fixed_window`, `calendar`, `sliding_log`, `sliding_counter`, `concurrency`",
		"each limit's own, or a token bucket"},
	{"limit", list("limit", bounds.Limits, func(s *Spec) *[]string { return &s.Limit }),
		"one limit or a list of at most 8, as [limits.md](limits.md) has them; `unlimited` grants everything and " +
			"counts nothing, `none` grants nothing", required},
	{"overrides", several(&overrideFields, bounds.Overrides, true, func(s *Spec) *[]Override { return &s.Overrides }),
		"[other limits](exceptions.md#overrides) for some keys", "none"},
	{"cost", value[Spec]{shape: shape{name: "cost_or_units"}, read: (*decoder).cost},
		"units of a request: a number, or [its origin](counting.md#cost)", "1, and callers may state another"},
	{"unit", text("unit", func(s *Spec) *string { return &s.Unit }),
		"what the [units](counting.md#units) are, such as `tokens`, or `USD/1000000` for millionths of one", "no name"},
	{"reserve", nested(&reserveFields, func(s *Spec) *Reserve { return &s.Reserve }),
		"parts of the limits that [less important requests](counting.md#reserve) leave to others", "none"},
	{"fair", nested(&fairFields, func(s *Spec) *Fair { return &s.Fair }),
		"who shares the limits of the rule [fairly](fair.md#in-rules)", "nobody"},
	{"stream", nested(&streamFields, func(s *Spec) *Stream { return &s.Stream }),
		"how [streams](../howto/llm.md#streams) are counted", "by `cost.settle`"},
	{"count_if", nested(&countIfFields, func(s *Spec) *CountIf { return &s.CountIf }),
		"which [responses](counting.md#counting-by-response) count: the units of other requests are given back",
		"every request counts"},
	{"charge", choice(charges, func(s *Spec) *Charge { return &s.Charge }),
		"`fitting`: a request passes if its cost is left; `full`: while [anything is " +
			"left](counting.md#charge-full), and its " +
			"whole cost is charged, beyond the limit too; `as_it_streams`: as `fitting`, and a streamed response is " +
			"[charged as it passes](../howto/llm.md#charge-as-it-streams)", "`fitting`"},
	{"mode", choice(modes, func(s *Spec) *Mode { return &s.Mode }),
		"`enforce`, or `shadow`: refusals are counted and requests pass", "`enforce`"},
	{"once", nested(&onceFields, func(s *Spec) *Once { return &s.Once }),
		"requests with [one id](repeated-requests.md#repeated-requests) count once", "each request counts"},
	{"ban", nested(&banFields, func(s *Spec) *Ban { return &s.Ban }),
		"[bans](exceptions.md#bans) after repeated refusals", "none"},
	{"candidate", nested(&candidateFields, func(s *Spec) *Candidate { return &s.Candidate }),
		"a [possible change](rollout.md#candidates), compared with the rule", "none"},
	{"enforce_percent", zeroTo(100, func(s *Spec) **int { return &s.EnforcePercent }),
		"0 to 100: [percentage of keys](rollout.md#shadow-and-percentages) for which the rule is enforced", "100"},
	{"lease_percent", count(bounds.Lease, func(s *Spec) *int { return &s.LeasePercent }),
		"1 to 50: the largest part of the remaining units that a node may [prefetch](../howto/layers.md#lease); all " +
			"enforced rules of a request must have it", "no prefetch"},
	{"hold_until", choice(releases, func(s *Spec) *string { return &s.HoldUntil }),
		"of `concurrency` limits: when a request is released whose client leaves: `disconnect`, at once, or `done`, " +
			"at the end of [the service's work](../howto/gateway.md#sizing)", "`disconnect`"},
	{"local_ceiling", value[Spec]{shape: shape{name: "factor"}, read: (*decoder).factor},
		"1 to 100, such as 1.2: bound of one node, as a [multiple](../howto/layers.md#ceiling) of what the limit " +
			"grants at once, whatever the store grants", "none"},
	{"on_store_error", choice(onStoreError, func(s *Spec) *StoreError { return &s.OnStoreError }),
		"while the store does not answer: `local` (this process counts by itself), `allow`, `deny` (use it for a " +
			"lock: each node may grant a `concurrency` limit once more)", "`local`"},
	{"alias", text("text", func(s *Spec) *string { return &s.Alias }),
		"a name for `replaces` of [other rules](rules.md#requests-of-one-call); several rules may have it", "none"},
	{"replaces", list("text", bounds.Values, func(s *Spec) *[]string { return &s.Replaces }),
		"at most 64 aliases: [rules that do not apply](rules.md#requests-of-one-call) to a request that this rule " +
			"applies to, or to the other requests of its call", "none"},
	{"quota", value[Spec]{shape: shape{name: "enabled"}, read: func(d *decoder, p place, n *yaml.Node, s *Spec) {
		s.Quota = d.truth(p, n)
	}},
		"`true`: of the [requests of a call](rules.md#requests-of-one-call) with such a rule, one that passes suffices",
		"`false`"},
	{"metadata", value[Spec]{shape: shape{name: "metadata"}, read: (*decoder).metadata},
		"names with values of any form, at most 4,096 bytes as JSON, for [answers](../howto/envoy-filters.md) of the " +
			"rate limit service that pass", "none"},
	{"response", nested(&responseFields, func(s *Spec) *Response { return &s.Response }),
		"the [response](responses.md#responses) of refusals", "the file's"},
	{"message", translations(func(s *Spec) *[]Translation { return &s.Message }),
		"the [message](responses.md#messages) of refusals: a text with placeholders, or one for each " +
			"language", "the file's"},
}}

var matchFields = mapping[Match]{"match", "", slices.Concat(conditionFields, []field[Match]{
	{"any", several(&alternativeFields, bounds.Alternatives, false, func(m *Match) *[]Match { return &m.Any }),
		"at least one of up to 16 [alternatives](matching.md#regular-expressions-any-not), each with conditions as " +
			"these", ""},
	{"not", several(&alternativeFields, bounds.Alternatives, false, func(m *Match) *[]Match { return &m.Not }),
		"none of up to 16 alternatives", ""},
})}

// alternativeFields are the conditions of an alternative of any or not.
var alternativeFields = mapping[Match]{"alternative", "write a condition, or leave it out", conditionFields}

var regexFields = mapping[Expressions]{"regex", "leave it out", []field[Expressions]{
	{"path", list("expression", bounds.Values, func(e *Expressions) *[]string { return &e.Path }),
		"expressions for the path", "none"},
	{"header", table(func(e *Expressions) *map[string][]string { return &e.Header }), "names, each with expressions",
		"none"},
	{"descriptor", table(func(e *Expressions) *map[string][]string { return &e.Descriptor }),
		"the same, of descriptors", "none"},
	{"mcp", nested(&mcpFields, func(e *Expressions) *MCP { return &e.MCP }), "the same, of messages of the Model " +
		"Context Protocol", "none"},
}}

var mcpFields = mapping[MCP]{"mcp", "leave it out", []field[MCP]{
	{"method", list("text", bounds.Values, func(m *MCP) *[]string { return &m.Method }),
		"methods such as `tools/call`", "any"},
	{"tool", list("text", bounds.Values, func(m *MCP) *[]string { return &m.Tool }),
		"names of tools, which only messages with the method `tools/call` have", "any"},
}}

var conditionFields = []field[Match]{
	{"method", alternatives("method", func(m *Match) *[]string { return &m.Method }),
		"the same method, in any case, and `HEAD` for `GET`, because it costs a service the same; to exempt it: " +
			"`allow: {method: HEAD}`", ""},
	{"host", alternatives("host", func(m *Match) *[]string { return &m.Host }),
		"the same name, in any case, or for `*.example.com` every name below it, at any depth, but not " +
			"`example.com`", ""},
	{"path", text("path", func(m *Match) *string { return &m.Path }),
		"the same segments: `*` and `{name}` stand for one that is not empty; a last `**` for any number, including " +
			"none: `/api/**` is `/api` and all below it", ""},
	{"client", list("network", bounds.Values, func(m *Match) *[]string { return &m.Client }),
		"an address in one of these addresses and networks; IPv4 within IPv6 is IPv4, zones are dropped", ""},
	{"country", alternatives("country", func(m *Match) *[]string { return &m.Country }),
		"the client's [country](matching.md#country-and-network-operator), such as `CN`; `\"*\"` stands for any " +
			"that is known",
		""},
	{"asn", alternatives("asn", func(m *Match) *[]string { return &m.ASN }),
		"the number of the client's autonomous system, such as `64512`; likewise", ""},
	{"service", alternatives("text", func(m *Match) *[]string { return &m.Service }),
		"the same text, from the front end; `\"*\"` stands for any that is not empty", ""},
	{"user", alternatives("text", func(m *Match) *[]string { return &m.User }),
		"the same, of the authenticated user", ""},
	{"route", alternatives("text", func(m *Match) *[]string { return &m.Route }),
		"the same, of the router's route", ""},
	{"header", table(func(m *Match) *map[string][]string { return &m.Header }),
		"names, each with its exact values; `\"*\"` stands for any that is not empty", ""},
	{"query", table(func(m *Match) *map[string][]string { return &m.Query }), "the same, of query parameters", ""},
	{"json", table(func(m *Match) *map[string][]string { return &m.JSON }),
		"the same, of [paths in a JSON body](keys.md#json-bodies) such as `model`", ""},
	{"descriptor", table(func(m *Match) *map[string][]string { return &m.Descriptor }),
		"the same, of descriptors from the front end", ""},
	{"mcp", nested(&mcpFields, func(m *Match) *MCP { return &m.MCP }),
		"the method and the tool of a [message of the Model Context Protocol](../howto/agents.md); likewise", ""},
	{"descriptor_keys", list("text", bounds.Values, func(m *Match) *[]string { return &m.DescriptorKeys }),
		"all [entries of the descriptor](matching.md#descriptors), in order: `KEY`, or `KEY=VALUE`, in which each " +
			"`*` stands for any text", ""},
	{"regex", nested(&regexFields, func(m *Match) *Expressions { return &m.Regex }),
		"[regular expressions](matching.md#regular-expressions-any-not) for `path`, `header`, `descriptor` " +
			"and `mcp`", ""},
}

var serviceFields = mapping[ServiceSpec]{"service", "", []field[ServiceSpec]{
	{"name", text("name", func(s *ServiceSpec) *string { return &s.Name }),
		"1 to 128 of a-z A-Z 0-9 and `. _ -`, unique", required},
	{"addresses", list("address", bounds.Addresses, func(s *ServiceSpec) *[]string { return &s.Addresses }),
		"1 to 64 URLs without a path, of one scheme: `http`, `https` or `h2c`; each perhaps with a weight from 1 to " +
			"100: `http://10.0.0.1:8080 weight 3`", required},
	{"balance", choice(balances, func(s *ServiceSpec) *string { return &s.Balance }),
		"`round_robin`, or `least_requests`: the address with the fewest requests in progress; both by weight",
		"`round_robin`"},
	{"host", choice(sentHosts, func(s *ServiceSpec) *string { return &s.Host }),
		"the `Host` that the service gets: `client`, the client's, or `address`, that of the address",
		"`client`, or by `server.upstream.host`"},
	{"timeout", nested(&timeoutFields, func(s *ServiceSpec) *Timeout { return &s.Timeout }),
		"how long a request may take", "see below"},
	{"retries", zeroTo(bounds.Retries, func(s *ServiceSpec) **int { return &s.Retries }),
		"0 to 3: other addresses for a request that [was sent nowhere](#retries); with 0 none, otherwise each that " +
			"is healthy, and this many of those that are left out", "1"},
	{"retry_safe", choice(safeRetries, func(s *ServiceSpec) *string { return &s.RetrySafe }),
		"GET and HEAD requests [whose connection broke](#retries): sent `once` more, to another address, or `never`",
		"`once`"},
	{"max_body", text("size", func(s *ServiceSpec) *string { return &s.MaxBody }),
		"`max_body` of routes that have none", "no bound"},
	{"health", nested(&healthFields, func(s *ServiceSpec) *Health { return &s.Health }),
		"when an address is [left out](#health)", "see below"},
	{"tls", nested(&tlsFields, func(s *ServiceSpec) *ServiceTLS { return &s.TLS }), "of `https` addresses",
		"certificates of the system"},
	{"concurrency", nested(&concurrencyFields, func(s *ServiceSpec) *Concurrency { return &s.Concurrency }),
		"a [limit of the requests in progress](#concurrency) that follows the service, of each node", "no limit"},
}}

var concurrencyFields = mapping[Concurrency]{"concurrency", "leave it out", []field[Concurrency]{
	{"adaptive", choice(adaptives, func(c *Concurrency) *string { return &c.Adaptive }),
		"`gradient`: the limit follows the latency; `aimd`: the limit follows refusals and errors", required},
	{"min", count(bounds.InProgress, func(c *Concurrency) *int { return &c.Min }),
		"1 to 1,000,000: the least limit, with which it starts", "20"},
	{"max", count(bounds.InProgress, func(c *Concurrency) *int { return &c.Max }),
		"`min` to 1,000,000: the largest limit", "1,000, or `min`"},
	{"queue", nested(&queueFields, func(c *Concurrency) *Queue { return &c.Queue }),
		"requests that wait for a short time when the limit is reached", "none"},
	{"reserve", nested(&reserveFields, func(c *Concurrency) *Reserve { return &c.Reserve }),
		"parts of the limit that [less important requests](#classes) leave to others", "none"},
}}

var queueFields = mapping[Queue]{"queue", "leave it out", []field[Queue]{
	{"for", text("duration", func(q *Queue) *string { return &q.For }),
		"1ms to 1m: how long a request may wait", required},
	{"most", count(bounds.Waiting, func(q *Queue) *int { return &q.Most }), "1 to 100,000 requests that wait", "100"},
}}

var timeoutFields = mapping[Timeout]{"timeout", "leave it out", []field[Timeout]{
	{"connect", text("duration", func(t *Timeout) *string { return &t.Connect }),
		"1ms to 1m: to open a connection, with its TLS", "`5s`"},
	{"header", text("duration", func(t *Timeout) *string { return &t.Header }),
		"1ms to 24h: from the end of the request to the header of the response", "none"},
	{"total", text("duration", func(t *Timeout) *string { return &t.Total }),
		"1ms to 24h: for the whole request with both bodies; not for a WebSocket that is open", "none"},
	{"idle", text("duration", func(t *Timeout) *string { return &t.Idle }),
		"10ms to 1h: how long a connection is kept without a request; keep it below that of the service, which else " +
			"closes connections under requests (Node.js, Apache and Uvicorn 5s, Gunicorn 2s)", "`4s`"},
}}

var healthFields = mapping[Health]{"health", "leave it out", []field[Health]{
	{"failures", count(bounds.Failures, func(h *Health) *int { return &h.Failures }),
		"1 to 1,000: failed requests in a row", "5"},
	{"eject", text("duration", func(h *Health) *string { return &h.Eject }),
		"100ms to 24h: how long it is left out at first; doubled each time until it answers", "`10s`"},
	{"eject_max", text("duration", func(h *Health) *string { return &h.EjectMax }),
		"the longest such time, up to 24h", "`5m`, or `eject`"},
	{"path", text("check_path", func(h *Health) *string { return &h.Path }),
		"path of [checks](#checks): each address is asked for it", "no checks"},
	{"interval", text("duration", func(h *Health) *string { return &h.Interval }),
		"100ms to 1h: between two checks of an address; one may take as long, and 10s at most", "`5s`"},
	{"status", count(599, func(h *Health) *int { return &h.Status }),
		"100 to 599: what a check must be answered with", "200 to 399"},
}}

var tlsFields = mapping[ServiceTLS]{"tls", "leave it out", []field[ServiceTLS]{
	{"ca", text("absolute_file", func(t *ServiceTLS) *string { return &t.CA }),
		"PEM file of the authorities of the service's certificate, by its absolute path", "those of the system"},
	{"server_name", text("server_name", func(t *ServiceTLS) *string { return &t.ServerName }),
		"the name in the service's certificate", "the host of the address"},
	{"cert", text("absolute_file", func(t *ServiceTLS) *string { return &t.Cert }),
		"PEM file of the gateway's own certificate, by its absolute path", "none"},
	{"key", text("absolute_file", func(t *ServiceTLS) *string { return &t.Key }),
		"PEM file of its key; both are read again when they change", ""},
	{"verify", choice(verifications, func(t *ServiceTLS) *string { return &t.Verify }),
		"`full`, or `none`: any certificate is accepted, so anybody on the way can read and change everything",
		"`full`"},
}}

var routeFields = mapping[RouteSpec]{"route", "", []field[RouteSpec]{
	{"name", text("name", func(r *RouteSpec) *string { return &r.Name }),
		"1 to 128 of a-z A-Z 0-9 and `. _ -`, unique; `route` of rules", required},
	{"host", alternatives("host", func(r *RouteSpec) *[]string { return &r.Host }),
		"names, or `*.example.com`, as in [rules](matching.md#match)", "any"},
	{"path", text("path", func(r *RouteSpec) *string { return &r.Path }),
		"a pattern as in rules: `/pay`, `/users/{id}/orders`, `/api/**` for a prefix", "any"},
	{"method", alternatives("method", func(r *RouteSpec) *[]string { return &r.Method }),
		"methods; `GET` is also `HEAD`", "any"},
	{"service", text("name", func(r *RouteSpec) *string { return &r.Service }),
		"a service of the same file; `service` of rules", required},
	{"strip_prefix", text("path", func(r *RouteSpec) *string { return &r.StripPrefix }),
		"segments that `path` begins with; they are not forwarded", "none"},
	{"add_prefix", text("path", func(r *RouteSpec) *string { return &r.AddPrefix }),
		"a path that is put before the forwarded one", "none"},
	{"max_body", text("size", func(r *RouteSpec) *string { return &r.MaxBody }),
		"largest [body](#large-bodies) of a request: bytes, or `KiB`, `MiB`, `GiB`, such as `10MiB`", "the service's"},
}}

var windowFields = mapping[Window]{"window", "", []field[Window]{
	{"days", list("days", len(weekdays), func(w *Window) *[]string { return &w.Days }),
		"`mon`, `tue`, `wed`, `thu`, `fri`, `sat`, `sun`, or from one to another: `mon-fri`, `sat-mon`", "every day"},
	{"hours", text("hours", func(w *Window) *string { return &w.Hours }),
		"from and to, `HH:MM-HH:MM`, from `00:00` to `24:00`; the end does not belong to the window", "all day"},
	{"zone", text("zone", func(w *Window) *string { return &w.Zone }), "an IANA time zone", "UTC"},
}}

var overrideFields = mapping[Override]{"override", "", []field[Override]{
	{"key", list("text", bounds.Components, func(o *Override) *[]string { return &o.Key }),
		"a value for each component of the rule's key", required},
	{"limit", list("limit", bounds.Limits, func(o *Override) *[]string { return &o.Limit }),
		"the limits of these keys, in place of the rule's", required},
}}

var costFields = mapping[Cost]{"cost", "give it a number, or say where it comes from, or leave it out", []field[Cost]{
	{"from", text("cost_from", func(c *Cost) *string { return &c.From }),
		"where requests state their cost: `header.NAME`, `query.NAME` or `descriptor.NAME`, or a " +
			"[sum](counting.md#sums)", "none"},
	{"default", units(func(c *Cost) *int64 { return &c.Default }), "cost of a request without it", "1"},
	{"max", units(func(c *Cost) *int64 { return &c.Max }), "largest value of `from`, with which it is required", ""},
	{"by", text("component", func(c *Cost) *string { return &c.By }),
		"a [component](keys.md#key) such as `mcp.tool`, with a cost for some of its values; not with `from`", "none"},
	{"each", value[Cost]{shape: shape{name: "cost_table"}, read: (*decoder).costTable},
		"the values of `by`, each with its cost; that of others is `default`", ""},
	{"settle", text("cost_settle", func(c *Cost) *string { return &c.Settle }),
		"where responses state the actual cost: `header.NAME`, also a trailer, `bytes`, the length of the body, or a " +
			"[sum](counting.md#sums)", "none"},
	{"on_missing", choice(costMissing, func(c *Cost) *string { return &c.OnMissing }),
		"of a request that does not state `from`: `default`, or `deny`: it is answered 400", "`default`"},
	{"learn", text("cost_learn", func(c *Cost) *string { return &c.Learn }),
		"`key`, or a [component](keys.md#key) such as `json.model`: the estimate is [learned](counting.md#learned-" +
			"estimates) from what requests of one key, or of one key and value, have cost", "none"},
}}

var reserveFields = mapping[Reserve]{"reserve", "leave it out", []field[Reserve]{
	{"by", text("component", func(r *Reserve) *string { return &r.By }),
		"a [component](keys.md#key) such as `user`, `service` or `descriptor.class`: its values are the classes",
		"required without `match`"},
	{"classes", value[Reserve]{shape: shape{name: "shares"}, read: (*decoder).shares},
		"at most 16 classes, each with the part of the limit that it leaves to others: `0%` to `99%`", required},
	{"match", value[Reserve]{shape: shape{name: "class_matches"}, read: (*decoder).classMatches},
		"[requests of a class](#classes-by-match), by its name: the conditions of a [match](matching.md#match), or " +
			"up to 16 alternatives", "by the value alone"},
	{"otherwise", text("text", func(r *Reserve) *string { return &r.Otherwise }),
		"the class of all other requests", "the class with the largest part"},
}}

var fairFields = mapping[Fair]{"fair", "leave it out", []field[Fair]{
	{"by", list("component", bounds.Components, func(f *Fair) *[]string { return &f.By }),
		"[components](keys.md#key) that name a member, such as a tenant", required},
	{"above", text("percent", func(f *Fair) *string { return &f.Above }),
		"`0%` to `100%`: the part of the limit that is for anybody; beyond it a member has its share", "`50%`"},
	{"weights", value[Fair]{shape: shape{name: "weights"}, read: (*decoder).weights},
		"at most 64 values, each with a weight from 1 to 1000; the weight of others is 1", "all weigh the same"},
	{"weight_by", text("component", func(f *Fair) *string { return &f.WeightBy }),
		"the component with these values, such as the plan of a tenant", "the one in `by`"},
	{"max_keys", count(weir.MaxFairKeys, func(f *Fair) *int { return &f.MaxKeys }),
		"1 to 10000: how many members are told apart; all others have one share", "10000"},
}}

var streamFields = mapping[Stream]{"stream", "leave it out", []field[Stream]{
	{"ask_usage", value[Stream]{shape: shape{name: "enabled"}, read: func(d *decoder, p place, n *yaml.Node,
		s *Stream) {
		s.AskUsage = new(d.truth(p, n))
	}}, "`true`: a request for a stream gets `stream_options.include_usage`, also if it declines it: without, " +
		"OpenAI's API does not state the usage", "`false`"},
	{"count", text("cost_settle", func(s *Stream) *string { return &s.Count }),
		"the units of the part of a response that has passed, a [sum](counting.md#sums): what a stream costs at " +
			"least that breaks off or does not state its cost, and what `charge: as_it_streams` charges",
		"`0.25 * bytes`, or the preset's"},
	{"step", units(func(s *Stream) *int64 { return &s.Step }), "units that are charged at once", "100"},
	{"overrun", choice(overruns, func(s *Stream) *string { return &s.Overrun }),
		"when a step is not left: `finish`, the rest is charged beyond the limit, or `cut`: the stream ends with an " +
			"error event", "`finish`"},
}}

var countIfFields = mapping[CountIf]{"count_if", "leave it out", []field[CountIf]{
	{"status", list("status_range", bounds.Values, func(c *CountIf) *[]string { return &c.Status }),
		"of the response: `401`, a class such as `4xx`, a range such as `400-499`, or a list of these", "any"},
	{"header", table(func(c *CountIf) *map[string][]string { return &c.Header }),
		"names of fields of the response, each with its exact values; `\"*\"` stands for any that is not empty", "any"},
}}

var banFields = mapping[Ban]{"ban", "leave it out", []field[Ban]{
	{"after", text("refusals", func(b *Ban) *string { return &b.After }),
		"`N refusals within TIME`: this rule's refusals of one key, exactly counted; at most 1,000. With " +
			"[`count_if`](counting.md#counting-by-response) `N counted within TIME`", required},
	{"for", text("duration", func(b *Ban) *string { return &b.For }), "length of the first ban, 1s to 3650d", required},
	{"then", list("duration", bounds.Bans-1, func(b *Ban) *[]string { return &b.Then }),
		"lengths of the next ones (at most 7); the last repeats", "as the first"},
	{"forget", text("duration", func(b *Ban) *string { return &b.Forget }),
		"time after which one ban no longer counts; longer than any ban", "7d"},
}}

var onceFields = mapping[Once]{"once", "leave it out", []field[Once]{
	{"by", text("component", func(o *Once) *string { return &o.By }),
		"where the id is: a [component](keys.md#key) such as `header.Idempotency-Key`, of a header, query, cookie, " +
			"body, " +
			"path or descriptor; a request without it is decided as ever", required},
	{"for", text("duration", func(o *Once) *string { return &o.For }), "how long an id is kept, 1s to 24h", required},
	{"repeats", count(bounds.Repeats, func(o *Once) *int { return &o.Repeats }),
		"1 to 100: how often a request is repeated at no charge; further ones are charged as new", "3"},
	{"repeat", choice(repeatWords, func(o *Once) *string { return &o.Repeat }),
		"`pass`, or `refuse`: a repeated request is answered 409", "`pass`"},
}}

var candidateFields = mapping[Candidate]{"candidate", "leave it out", []field[Candidate]{
	{"limit", list("limit", bounds.Limits, func(c *Candidate) *[]string { return &c.Limit }),
		"one limit or a list, as the rule's; not `concurrency`", required},
	{"algorithm", choice(unleased, func(c *Candidate) *string { return &c.Algorithm }),
		"the first word of these limits", "the rule's"},
	{"key", list("component", bounds.Components, func(c *Candidate) *[]string { return &c.Key }),
		"a list of components; not with `overrides`", "the rule's"},
}}

var responseFields = mapping[Response]{"response", "leave it out", []field[Response]{
	{"status", value[Response]{shape: shape{from: 400, to: 599},
		read: count(1<<20, func(r *Response) *int { return &r.Status }).read},
		"of a refusal, 400 to 599", "429"},
	{"fields", choice(headerFields, func(r *Response) *string { return &r.Fields }),
		"`draft`: RateLimit-Policy and RateLimit of the IETF's draft; `seconds`: X-RateLimit-Limit, -Remaining, " +
			"-Reset in seconds from now; `unix_time`: the same, with the reset in seconds since 1970; `none`",
		"`draft`"},
	{"body", value[Response]{shape: shape{name: "body"}, read: func(d *decoder, p place, n *yaml.Node, r *Response) {
		r.Body = d.long(p, n, bounds.Body)
	}}, "`problem`: application/problem+json; `json`: `{\"code\":429,\"message\":…,\"retry_after\":…}`; both with " +
		"the rule's `label`, if it has one; anything else is a [text](responses.md#responses) with placeholders",
		"`problem`; of the gateway a [page](forwarding.md#responses) for browsers"},
	{"shape", choice(shapes, func(r *Response) *string { return &r.Shape }),
		"in place of `body`: `mcp`, a [message of the Model Context Protocol](../howto/agents.md#refusals), with the " +
			"status 200 unless `status` states another; `openai`, `anthropic`, `gemini`, `ollama`: an [error of that " +
			"API](../howto/llm.md#refusals); `problem`", "none"},
	{"as", choice(mcpAnswers, func(r *Response) *string { return &r.As }),
		"of the shape `mcp`: `error`, or `result`, a result with `isError` for the calls of tools", "`error`"},
	{"content_type", text("content_type", func(r *Response) *string { return &r.ContentType }),
		"of a text", "`text/plain; charset=utf-8`"},
}}

// A listing is the values of a component as a mapping in a file.
type listing struct {
	values []string
	file   string
}

var listFields = mapping[listing]{"listed", "", []field[listing]{
	{"file", text("file_name", func(l *listing) *string { return &l.file }),
		"a file beside the rules or below, such as blocked.txt, with a value in each line. A # begins a comment", ""},
	{"values", value[listing]{shape: shape{name: "text", most: bounds.Listed},
		read: func(d *decoder, p place, n *yaml.Node, l *listing) {
			l.values = d.list(at(p.rule, strings.TrimSuffix(p.field, ".values")), n, bounds.Listed)
		}},
		"values besides those of the file", ""},
}}

// text is one value.
func text[T any](name string, at func(*T) *string) value[T] {
	return value[T]{shape: shape{name: name}, read: func(d *decoder, p place, n *yaml.Node, t *T) {
		*at(t) = d.text(p, n)
	}}
}

// choice is one of some words, which Compile checks. "" among them is the default.
func choice[T any, W ~string](allowed []W, at func(*T) *W) value[T] {
	var words []string
	for _, w := range allowed {
		if w != "" {
			words = append(words, string(w))
		}
	}
	return value[T]{shape: shape{words: words}, read: func(d *decoder, p place, n *yaml.Node, t *T) {
		*at(t) = W(d.text(p, n))
	}}
}

// list is one value, or a list of at most so many.
func list[T any](name string, most int, at func(*T) *[]string) value[T] {
	return value[T]{shape: shape{name: name, most: most}, read: func(d *decoder, p place, n *yaml.Node, t *T) {
		*at(t) = d.list(p, n, most)
	}}
}

// alternatives are the values of a condition, which are different.
func alternatives[T any](name string, at func(*T) *[]string) value[T] {
	v := list(name, bounds.Values, at)
	v.unique = true
	return v
}

// units is a whole number from 1. Only weir bounds it.
func units[T any](at func(*T) *int64) value[T] {
	return value[T]{shape: shape{name: "units"}, read: func(d *decoder, p place, n *yaml.Node, t *T) {
		*at(t) = d.units(p, n)
	}}
}

// count is a whole number from 1. A larger one than most stays larger, and Compile reports it.
func count[T any](most int, at func(*T) *int) value[T] {
	return value[T]{shape: shape{from: 1, to: float64(most)}, read: func(d *decoder, p place, n *yaml.Node, t *T) {
		*at(t) = int(min(d.units(p, n), int64(most)+1))
	}}
}

// zeroTo is a whole number that may be 0.
func zeroTo[T any](most int, at func(*T) **int) value[T] {
	return value[T]{shape: shape{from: 0, to: float64(most)}, read: func(d *decoder, p place, n *yaml.Node, t *T) {
		*at(t) = d.zeroTo(p, n, most)
	}}
}

// table is names, each with its values.
func table[T any](at func(*T) *map[string][]string) value[T] {
	return value[T]{shape: shape{name: "table"}, read: func(d *decoder, p place, n *yaml.Node, t *T) {
		values := make(map[string][]string)
		d.names(p, n, func(p place, name string, n *yaml.Node) {
			if list := d.list(p, n, bounds.Values); len(list) > 0 {
				values[name] = list
			}
		})
		*at(t) = values
	}}
}

// namedLists is components, each with its listed values.
func namedLists[T any](at func(*T) *map[string][]string) value[T] {
	return value[T]{shape: shape{name: "lists"}, read: func(d *decoder, p place, n *yaml.Node, t *T) {
		values := make(map[string][]string)
		d.names(p, n, func(p place, name string, n *yaml.Node) {
			if list := d.listed(p, n); len(list) > 0 {
				values[name] = list
			}
		})
		*at(t) = values
	}}
}

// translations is a text, or a text for each language.
func translations[T any](at func(*T) *[]Translation) value[T] {
	return value[T]{shape: shape{name: "message"}, read: func(d *decoder, p place, n *yaml.Node, t *T) {
		if n.Kind != yaml.MappingNode {
			*at(t) = []Translation{{Text: d.long(p, n, bounds.Body)}}
			return
		}
		d.names(p, n, func(p place, language string, n *yaml.Node) {
			*at(t) = append(*at(t), Translation{language, d.long(p, n, bounds.Body)})
		})
	}}
}

// nested is a mapping.
func nested[T, U any](m *mapping[U], at func(*T) *U) value[T] {
	return value[T]{shape: shape{name: m.name}, read: func(d *decoder, p place, n *yaml.Node, t *T) {
		m.read(d, p, n, at(t))
	}}
}

// several is a list of mappings, or one mapping unless only a list is allowed.
func several[T, U any](m *mapping[U], most int, only bool, at func(*T) *[]U) value[T] {
	return value[T]{shape: shape{name: m.name, most: most, list: only}, read: func(d *decoder, p place, n *yaml.Node,
		t *T) {
		items := []*yaml.Node{n}
		if only || n.Kind == yaml.SequenceNode {
			items = d.items(p, n, most)
		}
		list := make([]U, len(items))
		for j, item := range items {
			m.read(d, p.element(j), item, &list[j])
		}
		*at(t) = list
	}}
}
