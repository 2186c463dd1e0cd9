package rules

import "github.com/weirproject/weir/internal/bounds"

// Bounds of a file of rules.
const (
	MaxFile  = bounds.File  // bytes
	MaxRules = bounds.Rules // rules
)

// A File is a rule set as plain data: the result of Parse, or made by a program.
type File struct {
	Name string // its name in errors

	Server             // the settings of weir serve
	ServiceKind string // how the service reads requests, such as "php"; "": not known

	Allow    map[string][]string // by component, such as "client.ip"; a named request meets no rule
	Deny     map[string][]string // a named request is refused; it takes precedence over Allow
	Response Response            // for rules without one
	Message  []Translation       // of rules without one
	Rules    []Spec
	Overlay  []OverlaySpec // what to set in rules, also of other files: see Overlaid

	Services []ServiceSpec // of a gateway, with unique names
	Routes   []RouteSpec   // which of them a request is forwarded to

	// Exceptions take precedence over the rules. They come from a ledger, not from files.
	Exceptions []Exception

	// Disabled are names of rules that are not in force, from any earlier source: ruleset.Merge removes them. They
	// come from a ledger or from hashes, not from files.
	Disabled []string
}

// A Spec is one rule as plain data, with the values of a file. See docs/reference/rules.md.
type Spec struct {
	Name         string              // 1 to 128 of a-z A-Z 0-9 and . _ -, unique
	Label        string              // a text for people; nothing depends on it
	Description  string              // likewise, of several lines perhaps
	Labels       map[string]string   // likewise, for programs: names and values are as those of rules
	Preset       string              // "mcp": see Expanded; "": none
	Enabled      *bool               // false: the rule is checked, and applies to no request; nil: true
	Match        Match               // the zero Match is all requests
	Group        string              // of one group only the best match applies; "": the rule is in none
	Schedule     []Window            // when; none: always
	Allow        map[string][]string // by component; the rule does not apply to named requests
	Deny         map[string][]string // named requests are refused; it takes precedence over Allow
	Key          []string            // components, such as "client.ip"; none: all requests share one key
	OnMissing    OnMissing           // "" is Anonymous
	Algorithm    string              // first word of weir.ParseLimit; "": from each limit's text
	Limit        []string            // texts of weir.ParseLimit, at least one; or "none" or "unlimited" alone
	Overrides    []Override          // other limits for some keys
	Unit         string              // such as "tokens", or "USD/1000000" for a millionth: see Unit; "": it has no name
	Cost         Cost                // the zero Cost is 1, and callers may state another
	Reserve      Reserve             // the zero Reserve is none
	Fair         Fair                // the zero Fair is none
	Stream       Stream              // how streams are counted
	CountIf      CountIf             // the zero CountIf counts every request
	Charge       Charge              // "" is ChargeFitting
	Mode         Mode                // "" is Enforce
	OnStoreError StoreError          // "" is Local
	Response     Response            // fields that differ from the file's
	Message      []Translation       // of refusals; the first is the default; none: the file's

	Once           Once      // the zero Once is none
	Ban            Ban       // the zero Ban is none
	Candidate      Candidate // the zero Candidate is none
	EnforcePercent *int      // 0 to 100: percentage of keys for which the rule is enforced; nil: all

	LeasePercent int     // 1 to bounds.Lease: percentage of the remaining units that a node may prefetch; 0: none
	HoldUntil    string  // "done": see Rule.HoldUntilDone; or "disconnect", as also ""
	LocalCeiling float64 // 1 to bounds.Ceiling: multiple of its limit that one node may pass; 0: no bound

	// Of requests that one call decides together, such as the descriptors of the rate limit service.
	Alias    string         // a name for Replaces of other rules, shared perhaps; "": none
	Replaces []string       // aliases of the rules that do not apply where this rule does
	Quota    bool           // of the requests of a call with such a rule, one that passes suffices
	Metadata map[string]any // for the front end's answer: texts, float64, bool, nil, []any, map[string]any
}

// IsEnabled reports whether the rule applies to requests.
func (s *Spec) IsEnabled() bool { return s.Enabled == nil || *s.Enabled }

// A Match selects the requests that meet every condition which is not empty. Several values of one condition
// are alternatives.
type Match struct {
	Method []string
	Host   []string // a name, or *.name for every name below it
	Path   string   // segments; * and {name} stand for one, a last ** for any number
	Client []string // addresses and networks

	// Of the client, by its address. The value "*" stands for any that is known.
	Country []string // codes of ISO 3166
	ASN     []string // numbers of autonomous systems

	// From the front end. The value "*" stands for any that is not empty.
	Service, User, Route []string

	// By name. The value "*" stands for any that is not empty.
	Header     map[string][]string
	Query      map[string][]string
	JSON       map[string][]string // by path in the body, such as "model"
	Descriptor map[string][]string

	MCP MCP // of messages of the Model Context Protocol

	// DescriptorKeys are all entries of the descriptor, in order; empty: any. Each is a text of DescriptorEntry. Of the
	// rules with the same other conditions only those with the closest entries apply: see docs/reference/matching.md.
	DescriptorKeys []string

	Regex Expressions // must match too
	Any   []Match     // at least one of them must be met too; they have no Any and Not
	Not   []Match     // none of them may be met; likewise
}

// Expressions are regular expressions in the syntax of RE2. For each attribute, one of its expressions must match its
// whole text.
type Expressions struct {
	Path       []string
	Header     map[string][]string
	Descriptor map[string][]string
	MCP        MCP
}

// An MCP has conditions on a message of the Model Context Protocol. The value "*" stands for any that is not empty.
type MCP struct {
	Method []string // such as "tools/call"
	Tool   []string // that a message with the method tools/call names
}

// A Cost is the number of units of a request. Units alone is a fixed cost that neither callers nor responses
// change; the other fields are used without it.
type Cost struct {
	Units   int64  // 0: it is not fixed
	From    string // header.NAME, query.NAME, descriptor.NAME or a sum such as "json.max_tokens + 0.25 * bytes"
	Default int64  // without From's value; 0 is 1
	Max     int64  // largest value of From; required with it, and only there
	Settle  string // header.NAME, "bytes" or a sum: parts of a response that state the actual cost

	By   string           // a component with the values of Each; Default is the cost of others; not with From
	Each map[string]int64 // units by value

	OnMissing string // of a request without From's value: "default", as also "", or "deny"

	// Learn is "key" or a component: the estimate is learned from the settled costs of a key, or of a key and a value.
	// "" is none; it goes with From and Settle.
	Learn string
}

// A Reserve has the parts of a rule's limits that less important requests leave to more important ones.
type Reserve struct {
	By        string             // a component, whose values are the classes; "": all classes are in Match
	Classes   map[string]string  // the part that a class leaves to others, "0%" to "99%", by name
	Match     map[string][]Match // requests of a class, by its name: alternatives, which have no Any and Not
	Otherwise string             // the class of other requests; "": the one with the largest part
}

// A Fair says how members share the limits of a rule: see weir.Fair.
type Fair struct {
	By       []string         // components that name the member
	Above    string           // the part of the limit that is for anybody, "0%" to "100%"; "": 50%
	Weights  map[string]int64 // 1 to weir.MaxWeight by value; that of others is 1
	WeightBy string           // a component, whose values have the weights; "": the one in By
	MaxKeys  int              // members that are told apart; 0: weir.MaxFairKeys
}

// A CountIf selects responses by every condition that is not empty: only their requests count. A request is charged
// before its response is known; then its units are kept or given back.
type CountIf struct {
	Status []string            // each a status (401), a class (4xx) or a range (400-499)
	Header map[string][]string // by name, the exact values; "*" stands for any that is not empty
}

// An Override is other limits for the keys that it names: exactly, or by wildcards.
type Override struct {
	Key   []string // a value for each component of the rule's key, in order
	Limit []string // as a rule's
}

// A Ban refuses a key for some time after too many refusals, whatever remains of its limits.
type Ban struct {
	After  string   // such as "5 refusals within 1m"; with CountIf "5 counted within 10m"
	For    string   // length of the first ban
	Then   []string // lengths of the next ones; the last repeats
	Forget string   // time after which one ban no longer counts; "" is 7d
}

// A Once says that requests with one id count once.
type Once struct {
	By      string // a component with the id; a request without it is decided as ever
	For     string // how long an id is kept
	Repeats int    // how often a request is repeated at no charge; 0: 3
	Repeat  string // of a repeated request: "pass", as also "", or "refuse"
}

// A Candidate is a possible change of a rule: it decides the same requests, and differences are counted.
type Candidate struct {
	Limit     []string // as a rule's
	Algorithm string   // "": the rule's
	Key       []string // as a rule's; none: the rule's
}

// A Window is a part of the week. Its rule applies only then.
type Window struct {
	Days  []string // mon, tue, … sun, or mon-fri; none: every day
	Hours string   // 09:00-18:00, without its end; "": all day
	Zone  string   // an IANA name such as Asia/Shanghai; "" is UTC
}

// OnMissing is the treatment of a request that lacks a component of the key.
type OnMissing string

// The treatments of a missing component.
const (
	Anonymous OnMissing = "anonymous" // all that lack it are counted together
	Skip      OnMissing = "skip"      // the rule does not apply
	Deny      OnMissing = "deny"      // the request is refused
)

var onMissing = []OnMissing{Anonymous, Skip, Deny}

// Charge says which requests a rule grants.
type Charge string

// The words of charge.
const (
	ChargeFitting Charge = "fitting" // those whose cost is left
	ChargeFull    Charge = "full"    // all while anything is left; the whole cost is charged, beyond the limit too

	// ChargeStreaming grants the requests whose cost is left, and charges a response while it is streamed: see Stream.
	ChargeStreaming Charge = "as_it_streams"
)

var charges = []Charge{ChargeFitting, ChargeFull, ChargeStreaming}

// The words of a cost's on_missing.
const (
	costDefault = "default"
	costDeny    = "deny"
)

var costMissing = []string{costDefault, costDeny}

// Mode is the mode of a rule.
type Mode string

// The modes of a rule.
const (
	Enforce Mode = "enforce"
	Shadow  Mode = "shadow" // refusals are counted, and requests pass
)

var modes = []Mode{Enforce, Shadow}

// StoreError is the treatment of a request while the store does not answer.
type StoreError string

// The treatments of a store error.
const (
	Local     StoreError = "local" // this process counts by itself
	AllowAll  StoreError = "allow" // the request passes
	RefuseAll StoreError = "deny"  // the request is refused
)

var onStoreError = []StoreError{Local, AllowAll, RefuseAll}

// A ServiceSpec is a service behind a gateway as plain data, with the values of a file. See docs/reference/services.md.
type ServiceSpec struct {
	Name      string
	Addresses []string // URLs of one scheme, each perhaps followed by its weight: "http://10.0.0.1:8080 weight 3"
	Balance   string   // "round_robin", as also "", or "least_requests"
	Host      string   // "client", as also "", or "address": whose name a request has as Host
	Timeout   Timeout
	Retries   *int   // 0 to bounds.Retries; nil: 1
	RetrySafe string // "once", as also "", or "never": GET and HEAD whose connection broke
	MaxBody   string // of its routes that have none, as theirs
	Health    Health
	TLS       ServiceTLS // of https addresses

	Concurrency Concurrency // the zero Concurrency is no limit
}

// A Concurrency limits the requests in progress at a service, by what the service says of its load.
type Concurrency struct {
	Adaptive string  // "gradient", which follows the latency, or "aimd", which follows refusals and errors
	Min, Max int     // of the limit; 0: 20 and 1000
	Queue    Queue   // the zero Queue is none
	Reserve  Reserve // the zero Reserve is none
}

// A Queue holds requests that find a limit reached.
type Queue struct {
	For  string // how long a request may wait, as a duration such as "50ms"
	Most int    // requests
}

// A Timeout has the times that a request may take, as durations such as "5s".
type Timeout struct {
	Connect string // to open a connection, with TLS; "": 5s
	Header  string // from the end of the request to the header of the response; "": no bound
	Total   string // for all of it; "": no bound
	Idle    string // that a connection is kept without a request; "": 4s
}

// A Health says when an address is left out of the balancing.
type Health struct {
	Failures int    // in a row; 0: 5
	Eject    string // for how long, at the first time; "": 10s
	EjectMax string // the longest time, up to which it doubles; "": 5m
	Path     string // of checks, such as /healthz; "": there are no checks
	Interval string // of the checks of an address; "": 5s
	Status   int    // that a check is answered with; 0: 200 to 399
}

// A ServiceTLS is the TLS to a service. Files are named by absolute paths.
type ServiceTLS struct {
	CA         string // file of the certificates that may sign the service's; "": those of the system
	ServerName string // in the service's certificate; "": the host of the address
	Cert, Key  string // files of the client certificate; "": none
	Verify     string // "full", as also "", or "none": any certificate is accepted
}

// A RouteSpec forwards the requests that meet every condition to a service. See docs/reference/services.md.
type RouteSpec struct {
	Name        string
	Host        []string // as in Match; none: any
	Path        string   // as in Match; "": any
	Method      []string // as in Match; none: any
	Service     string   // the name of a service of the file
	StripPrefix string   // segments that Path begins with, and that are not forwarded
	AddPrefix   string   // a path before the forwarded one
	MaxBody     string   // bytes, such as "10MiB", of a request's body; "": the service's, or no bound
}
