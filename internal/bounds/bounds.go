// Package bounds has the largest sizes of rule sets and of their parts, so that no file and no message can make
// its reader work without bound. Package rules checks them; sources of rules stop reading beyond them.
package bounds

// Bounds of a file of rules.
const (
	File         = 8 << 20   // bytes of a file
	Nodes        = 1_050_000 // commas, colons, brackets, dashes and lines of a file
	Rules        = 100_000   // rules; File and Nodes suffice for so many short ones
	Groups       = 128       // groups of a file; those of shadow rules count separately
	Programs     = 100_000   // steps of all regular expressions
	Work         = 1 << 20   // steps of the regular expressions that one request may meet, times the bytes of a text
	Tree         = 1 << 20   // nodes that the alternatives of all matches need
	Attributes   = 64        // headers, query parameters and descriptors that a file's matches name
	AllOverrides = 50_000    // overrides of a file
	Proxies      = 256       // trusted proxies
	Sharing      = 10_000    // nodes that share a store
	FallbackKeys = 1 << 30   // keys that a node counts beside the store
	Exceptions   = 1000      // exceptions of operators
	Overlays     = 1000      // elements of an overlay
	Problems     = 100       // mistakes that an error lists
)

// WorkPerMillisecond is about the Work that a core of 2023 does in a millisecond.
const WorkPerMillisecond = 150_000

// Bounds of a rule.
const (
	Label        = 100    // characters of a label
	Description  = 1024   // bytes of a description
	Labels       = 16     // of a rule
	Metadata     = 4096   // bytes of a rule's metadata, as JSON
	Message      = 1000   // characters of a message
	Languages    = 16     // languages of a message
	Limits       = 8      // limits of a rule
	Components   = 8      // components of a key
	Unit         = 32     // bytes of the name of a unit
	Terms        = 16     // of a cost, and alternatives of a term
	Values       = 64     // values of one condition
	Alternatives = 16     // alternatives of any and of not
	Expression   = 512    // bytes of a regular expression
	Program      = 256    // steps of its compiled form
	Conditions   = 16     // conditions of a match besides host and path
	Text         = 1024   // bytes of a value
	Body         = 16_384 // bytes of a response's body
	Overrides    = 10_000 // overrides of a rule
	Wildcards    = 64     // overrides of a rule whose keys have wildcards
	Bans         = 8      // lengths of a rule's bans
	Refusals     = 1000   // refusals that lead to a ban
	Repeats      = 100    // repetitions of a request at no charge
	Classes      = 16     // classes of the requests of a rule
	Windows      = 16     // windows of a schedule
	Lease        = 50     // percent of the remaining units that a node may prefetch
	Ceiling      = 100    // multiple of its limit that one node may pass
)

// Bounds of a gateway's services.
const (
	Services   = 1000      // services of a file
	Routes     = 1000      // routes of a file
	Addresses  = 64        // addresses of a service
	Weight     = 100       // weight of an address
	InProgress = 1_000_000 // requests in progress at a service
	Waiting    = 100_000   // requests that wait for a service
	Retries    = 3         // retries of a request
	Failures   = 1000      // consecutive failures that eject an address
)

// Bounds of lists.
const (
	Sources   = 16      // sources of one allow or deny
	Listed    = 100_000 // values of one source of an allow or deny
	AllListed = 100_000 // values of all allows and denies of a file
	ListFile  = 8 << 20 // bytes of a file of values
	ListFiles = 64      // files of values of a file of rules
)

// Bounds of keys.
const (
	PlainKey  = 256  // bytes of the longest key that is kept as it is; longer keys are hashed
	Endpoints = 1000 // paths that a key component endpoint distinguishes
)
