package rules

// Ceilings of a file, so that no file can make its reader work without bound.
const (
	MaxFile         = 8 << 20   // bytes of a file
	MaxNodes        = 1_050_000 // commas, colons, brackets, dashes and lines of a file
	MaxRules        = 100_000   // rules; the two before leave room for so many that are short
	MaxLimits       = 8         // limits of a rule
	MaxComponents   = 8         // components of a key
	MaxValues       = 64        // values of one condition
	MaxConditions   = 16        // conditions of a match besides host and path
	MaxGroups       = 128       // groups of a file; those of rules in shadow count by themselves
	MaxTree         = 1 << 20   // nodes that the alternatives of all matches need
	MaxAttributes   = 64        // headers, query parameters and descriptors that a file's matches name
	MaxText         = 1024      // bytes of a value
	MaxBody         = 16_384    // bytes of a response's body
	MaxOverrides    = 10_000    // overrides of a rule
	MaxWildcards    = 64        // overrides of a rule whose keys have wildcards
	MaxAllOverrides = 50_000    // overrides of a file
	MaxSources      = 16        // sources of one allow or deny
	MaxListed       = 100_000   // values of one source of an allow or deny
	MaxAllListed    = 100_000   // values of all allows and denies of a file
	MaxListFile     = 8 << 20   // bytes of a file of values
	MaxListFiles    = 64        // files of values of a file of rules
	MaxSets         = 64        // sets that the lists of a file name
	MaxAllMembers   = 100_000   // members of all those sets
	MaxBans         = 8         // lengths of a rule's bans
	MaxRefusals     = 1000      // refusals that lead to a ban
	MaxWindows      = 16        // windows of a schedule
	MaxProxies      = 256       // trusted proxies
	MaxSharing      = 10_000    // nodes that share a store
	MaxFallbackKeys = 1 << 30   // keys that a node counts beside the store
	MaxLease        = 50        // percent of what remains that a node may take ahead of need
	MaxCeiling      = 100       // times its limit that one node may pass
	MaxProblems     = 100       // mistakes that an Error lists
)

// A File is a set of rules as plain data: what Parse returns, or what a program fills in.
type File struct {
	Name string // what errors call it

	Store          string   // "memory", or the URL of a Redis; "": the file does not say
	Nodes          int      // how many processes share the store; 0: the file does not say
	FallbackKeys   int      // how many keys each of them counts for when it does not answer; 0: the file does not say
	TrustedProxies []string // addresses and networks
	ClientHeader   string   // "X-Forwarded-For", "Forwarded", "X-Real-IP" or "CF-Connecting-IP"; "": the file does not say
	PathForm       []string // words of pathform.Parse: the form that paths have before they are matched; none: strict

	Allow    map[string]List // by component, such as "client.ip"; who is named meets no rule
	Deny     map[string]List // who is named is refused; it beats Allow
	Response Response        // for rules that do not say
	Rules    []Spec

	// Exceptions are laid over the rules. They come from a ledger: no file says them.
	Exceptions []Exception

	// Disabled are names of rules that are not in force, wherever they are from: source.Merge takes
	// them out. They come from a ledger: no file says them.
	Disabled []string

	// Sets are the members of the sets that lists name. They come from a Redis: no file says
	// them. A set that is missing here names nobody; see Set.LeftOut.
	Sets map[string][]string
}

// A Spec is one rule as plain data, in the words of a file. See docs/rules.md.
type Spec struct {
	Name         string          // 1 to 128 letters, digits and . _ -, unique
	Label        string          // what people call it; nothing depends on it
	Match        Match           // which requests; the zero Match is all of them
	Group        string          // of one group only the best match applies; "": the rule is in none
	Schedule     []Window        // when; none: always
	Allow        map[string]List // by component; the rule does not apply to who is named
	Deny         map[string]List // who is named is refused; it beats Allow
	Key          []string        // components, such as "client.ip"; none: all requests share one key
	OnMissing    OnMissing       // "" is Anonymous
	Algorithm    string          // a first word of weir.ParseLimit; "" leaves it to each limit's text
	Limit        []string        // texts of weir.ParseLimit, at least one
	Overrides    []Override      // other limits for some keys
	Cost         Cost            // the zero Cost is 1, and callers may say another
	Mode         Mode            // "" is Enforce
	OnStoreError StoreError      // "" is Local
	Response     Response        // where it is not as the file's

	Ban            Ban       // the zero Ban is none
	Candidate      Candidate // the zero Candidate is none
	EnforcePercent *int      // 0 to 100: for how many of its keys the rule is enforced; nil: for all

	LeasePercent int       // 1 to MaxLease: of what remains, what a node may take ahead of need; 0: nothing
	HoldUntil    HoldUntil // "" is Disconnect
	LocalCeiling float64   // 1 to MaxCeiling: times its limit that one node may pass; 0: it has no ceiling
}

// A HoldUntil says when a concurrency limit lets go of a request whose client leaves.
type HoldUntil string

// When a unit is free again whose client left.
const (
	Disconnect HoldUntil = "disconnect" // at once: the work is called off
	Done       HoldUntil = "done"       // when the work has ended, or a time-to-live after the client left
)

// A Match says which requests a rule is for: those that meet every condition which is not
// empty. Several values of one condition are alternatives.
type Match struct {
	Method []string
	Host   []string // a name, or *.name for every name below it
	Path   string   // segments; * and {name} stand for one, a last ** for any number
	Client []string // addresses and networks

	// As the door tells them. The value "*" stands for any that is not empty.
	Service, User, Route []string

	// By name. The value "*" stands for any that is not empty.
	Header     map[string][]string
	Query      map[string][]string
	Descriptor map[string][]string
}

// A Cost says how many units a request takes. Units alone is a cost that neither callers
// nor responses change; the other fields go together without it.
type Cost struct {
	Units   int64  // 0: it is not fixed
	From    string // header.NAME, query.NAME or descriptor.NAME: where a request says its cost
	Default int64  // of a request that does not say; 0 is 1
	Max     int64  // the most that a request may say; needed with From, and only there
	Settle  string // header.NAME or "bytes": where a response says what was used
}

// An Override is other limits for the keys that it names: exactly, or by wildcards.
type Override struct {
	Key   []string // a value for each component of the rule's key, in order
	Limit []string // as a rule's
}

// A Ban says that who is refused by a rule again and again is refused for some time whatever
// else there is left.
type Ban struct {
	After  string   // such as "5 refusals within 1m"
	For    string   // how long the first ban is
	Then   []string // and the next ones; the last repeats
	Forget string   // how long it takes until one ban is forgotten; "" is 7d
}

// A Candidate is what a rule may become: it is asked about the same requests, and what would
// be different is counted.
type Candidate struct {
	Limit     []string // as a rule's
	Algorithm string   // "": the rule's
	Key       []string // as a rule's; none: the rule's
}

// A List is the values of one component that an allow or deny names.
type List struct {
	Values []string
	Sets   []string // keys of sets in Redis whose members are values too: see File.Sets
}

// A Window is a part of the week in which a rule applies.
type Window struct {
	Days  []string // mon, tue, … sun, or mon-fri; none: every day
	Hours string   // 09:00-18:00, without its end; "": all day
	Zone  string   // an IANA name such as Asia/Shanghai; "" is UTC
}

// OnMissing says what becomes of a request that lacks a component of the key.
type OnMissing string

// The answers to a missing component.
const (
	Anonymous OnMissing = "anonymous" // all that lack it are counted together
	Skip      OnMissing = "skip"      // the rule does not apply
	Deny      OnMissing = "deny"      // the request is refused
)

// Mode says whether a rule's refusals are acted upon.
type Mode string

// The modes of a rule.
const (
	Enforce Mode = "enforce"
	Shadow  Mode = "shadow" // refusals are counted, and the request passes
)

// StoreError says what becomes of a request when the store does not answer.
type StoreError string

// The answers to a store that fails.
const (
	Local     StoreError = "local" // this process counts by itself meanwhile
	AllowAll  StoreError = "allow" // the request passes
	RefuseAll StoreError = "deny"  // the request is refused
)
