// Package ruletest tests rules like code: a file has requests at times, and an expectation for each. The gate and the
// embedded store of a server decide them, by a clock that is driven, so that a day takes no longer than its requests.
package ruletest

import (
	"net/netip"
	"time"

	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/rules"
)

// Bounds of a file.
const (
	maxDepth    = 16
	maxRepeat   = 10_000_000
	maxRenewals = 1_000_000                  // of what is held
	maxTime     = 100 * 366 * 24 * time.Hour // after the start
)

// A File is a file of tests.
type File struct {
	Name  string
	Rules string // name of the file, directory or URL with the rules; "": the rules are in this file
	Start time.Time
	Tests []Test

	// Tested are the rules, for reasons why one does not match; nil: there are no reasons.
	Tested *rules.File
	// Cover collects the conditions that tests meet, for Untested.
	Cover bool

	covered map[string]*covered // by rule
	text    []byte              // of the rules in this file
	lines   []string
}

// Inline is the text of the rules in this file. It has their lines and columns.
func (f *File) Inline() []byte { return f.text }

// A Test is a list of requests on fresh counts.
type Test struct {
	Name  string
	Line  int
	Steps []Step
}

// A Step is a request, perhaps repeated, or the end of one that is held.
type Step struct {
	Line, Column int

	At     time.Duration // after the start
	Repeat int
	Every  time.Duration

	Request    rules.Request
	Header     map[string]string // by canonical names
	Query      map[string]string
	Cookie     map[string]string
	Body       map[string]string // fields of a form or a JSON object
	JSON       string            // a body
	Descriptor map[string]string
	MCP        map[string]string // method and tool of a message
	Cost       *int64

	Hold    string // name under which its leases are held
	Release string // name of the request that ends; the step is no request
	Settle  *int64 // actual cost

	Response *gate.Response // as rules with count_if read it; nil: nobody reports it
	Store    string         // down or up: from now on the store does not answer, or does; the step is no request

	Expect *Expect // nil: nothing is expected
}

// An Expect is the expected outcome of a request. Empty fields are not compared.
type Expect struct {
	Passed     *int // how many of the repetitions pass
	Outcome    string
	Reason     string
	Rule       string
	RetryAfter *time.Duration
	Delay      *time.Duration
	Remaining  *int64
	Status     int
	Headers    map[string]string // by names in lower case; "" is absent
	Shadow     map[string]string // what shadow rules and candidates would do, by rule: passed or refused
}

// requests is the number of requests of a test.
func (t *Test) requests() (n int64) {
	for i := range t.Steps {
		n += int64(max(1, t.Steps[i].Repeat))
	}
	return n
}

// anyone is the client of requests without one. They are GET of / otherwise, as in weir explain.
var anyone = netip.MustParseAddr("192.0.2.1")
