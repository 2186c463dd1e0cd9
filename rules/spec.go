package rules

// Ceilings of a file, so that no file can make its reader work without bound.
const (
	MaxFile       = 4 << 20 // bytes of a file
	MaxNodes      = 300_000 // commas, colons, brackets, dashes and lines of a file
	MaxRules      = 20_000  // rules of a file
	MaxLimits     = 8       // limits of a rule
	MaxComponents = 8       // components of a key
	MaxValues     = 64      // values of one condition
	MaxConditions = 16      // conditions of a match besides host and path
	MaxTree       = 1 << 19 // nodes that the alternatives of all matches need
	MaxAttributes = 64      // headers, query parameters and descriptors that a file's matches name
	MaxText       = 1024    // bytes of a value
	MaxProblems   = 100     // mistakes that an Error lists
)

// A File is a set of rules as plain data: what Parse returns, or what a program fills in.
type File struct {
	Name  string // what errors call it
	Rules []Spec
}

// A Spec is one rule as plain data, in the words of a file. See docs/rules.md.
type Spec struct {
	Name         string     // 1 to 128 letters, digits and . _ -, unique
	Match        Match      // which requests; the zero Match is all of them
	Key          []string   // components, such as "client.ip"; none: all requests share one key
	OnMissing    OnMissing  // "" is Anonymous
	Algorithm    string     // a first word of weir.ParseLimit; "" leaves it to each limit's text
	Limit        []string   // texts of weir.ParseLimit, at least one
	Cost         int64      // units a request; 0 is 1
	Mode         Mode       // "" is Enforce
	OnStoreError StoreError // "" is Local
}

// A Match says which requests a rule is for: those that meet every condition which is not
// empty. Several values of one condition are alternatives.
type Match struct {
	Method []string
	Host   []string // a name, or *.name for every name below it
	Path   string   // segments; * and {name} stand for one, a last ** for any number

	// By name. The value "*" stands for any that is not empty.
	Header     map[string][]string
	Query      map[string][]string
	Descriptor map[string][]string
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
