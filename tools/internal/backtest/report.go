package backtest

import "time"

// A Report describes the outcome of the requests of a log under a set of rules. weir backtest --format json
// prints it, and the HTML page draws it.
type Report struct {
	Rules string `json:"rules"` // the names of the files
	Log   Log    `json:"log"`
	Total Count  `json:"total"`
	// Limits are notes on the limits of the figures, such as the resolution of the log's time; severe ones first.
	Limits   []Note     `json:"limits"`
	Timeline Timeline   `json:"timeline"`
	ByRule   []Rule     `json:"by_rule"` // in the order of the set
	Clients  []Client   `json:"clients"` // those with the most refusals first, at most Config.Top
	Good     *Good      `json:"good,omitempty"`
	Sweeps   []Sweep    `json:"sweeps,omitempty"`
	Proposed []Proposal `json:"proposed,omitempty"`
	Against  *Against   `json:"against,omitempty"`
}

// A Log describes the requests that were read.
type Log struct {
	Files      []File    `json:"files"`
	Lines      int64     `json:"lines"`
	Unread     int64     `json:"unread"`   // lines that could not be read
	Late       int64     `json:"late"`     // requests decided at the time of the request before them
	Dropped    int64     `json:"dropped"`  // requests left out: by --where, --from, --to and --retries drop
	Requests   int64     `json:"requests"` // decided
	Clients    int64     `json:"clients"`
	From       time.Time `json:"from"`
	To         time.Time `json:"to"`
	Resolution string    `json:"resolution"` // of the log's time, such as 1s
	TimeIs     string    `json:"time_is"`    // start, end, start or end (it is not known which), or mixed
	Spread     string    `json:"spread"`
	Refused    int64     `json:"refused"` // requests that the log says were answered 429 or 503
}

// A File is one of the log.
type File struct {
	Name   string `json:"name"`
	Format string `json:"format"`
	Lines  int64  `json:"lines"`
	Unread int64  `json:"unread"`
	// Examples are the first lines that could not be read, with the reason.
	Examples []Unread `json:"examples,omitempty"`
}

// An Unread is a line that could not be read.
type Unread struct {
	Line int64  `json:"line"`
	Text string `json:"text"`
	Why  string `json:"why"`
}

// A Count is of requests and of the clients that sent them.
type Count struct {
	Requests       int64 `json:"requests"`
	Refused        int64 `json:"refused"`
	Denied         int64 `json:"denied"` // by a list or a ban
	Clients        int64 `json:"clients"`
	ClientsRefused int64 `json:"clients_refused"`
}

// Stopped are the requests that do not reach their service.
func (c *Count) Stopped() int64 { return c.Refused + c.Denied }

// A Timeline has a value for each step of time.
type Timeline struct {
	Start   time.Time `json:"start"`
	Step    string    `json:"step"` // a duration, such as 1m0s
	Passed  []int64   `json:"passed"`
	Refused []int64   `json:"refused"` // denied ones too
}

// A Rule is what one rule would have done.
type Rule struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Limit       string `json:"limit"`
	Shadow      bool   `json:"shadow,omitempty"` // it refuses nothing; what it would refuse is counted
	Count              // Requests are those that match
	Keys        int64  `json:"keys"`
	// Failing is how many of the refused requests the log says were answered 400 or above, but for 429 and 503.
	Failing int64     `json:"failing"`
	First   time.Time `json:"first,omitzero"` // the first refusal
	Last    time.Time `json:"last,omitzero"`
	Peak    Peak      `json:"peak"`   // the minute with the most refusals
	Series  []int64   `json:"series"` // refusals by the steps of the report's timeline
	// Peaks is how many keys had which largest number of units in a window of the limit, ascending. A bar ends at
	// Units.
	Peaks  []Bar  `json:"peaks"`
	Window string `json:"window,omitempty"` // of Peaks
	Units  int64  `json:"units,omitempty"`  // of the limit, in that window
	Good   *Good  `json:"good,omitempty"`
	// Worst are the keys with the most refusals, of a rule that does not count by clients.
	Worst []Key `json:"worst,omitempty"`
}

// A Peak is a minute.
type Peak struct {
	Start    time.Time `json:"start,omitzero"`
	Requests int64     `json:"requests"`
}

// A Bar is a part of a histogram: keys with From to To units, both included.
type Bar struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
	Keys int64 `json:"keys"`
}

// A Client is one that would have been refused.
type Client struct {
	Client string   `json:"client"` // an address, or a network /64
	Rules  []string `json:"rules"`  // those that refused it
	Evidence
}

// A Key is one that a rule would have refused.
type Key struct {
	Key string `json:"key"`
	Evidence
}

// Evidence has the facts of the log about a client or key. Agents, paths, names, the addresses of a key, and its
// requests are counted from its first refusal on.
type Evidence struct {
	Requests  int64     `json:"requests"`
	Refused   int64     `json:"refused"`
	Failing   int64     `json:"failing"` // requests answered 400 or above, but for 429 and 503
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
	Agents    int64     `json:"agents"` // distinct User-Agents; 256 are that many or more
	Agent     string    `json:"agent"`  // the most frequent
	Paths     int64     `json:"paths"`
	Names     int64     `json:"names"` // distinct users
	Addresses int64     `json:"addresses"`
}

// Good is what happens to the clients that are certainly legitimate, by --good.
type Good struct {
	Clients         int64    `json:"clients"`
	ClientsRefused  int64    `json:"clients_refused"` // at least once
	Requests        int64    `json:"requests"`
	RequestsRefused int64    `json:"requests_refused"`
	Examples        []string `json:"examples,omitempty"` // of refused clients
}

// A Sweep is what other limits of one rule would have done.
type Sweep struct {
	Rule   string  `json:"rule"`
	Points []Point `json:"points"` // ascending by units
}

// A Point is one limit of a sweep.
type Point struct {
	Limit string `json:"limit"`
	Units int64  `json:"units"`
	Count
	Good *Good `json:"good,omitempty"`
	// Peak is the largest number of requests in a second that pass.
	Peak int64 `json:"peak"`
	// Failing is how many of the refused requests the log says failed, but for 429 and 503.
	Failing int64 `json:"failing"`
	// Fails is how many clients did hardly anything but fail (nine of ten requests, of ten or more), and FailsRefused
	// how many of them are refused.
	Fails        int64 `json:"fails"`
	FailsRefused int64 `json:"fails_refused"`
	// Hour and Day are the most units that the limit grants a key in these times.
	Hour int64 `json:"hour"`
	Day  int64 `json:"day"`
}

// A Proposal compares three limits of a rule.
type Proposal struct {
	Rule   string  `json:"rule"`
	Old    string  `json:"old"`              // the limit in the rules
	Limit  string  `json:"limit"`            // the one that is proposed; "": the log cannot tell
	Points []Point `json:"points,omitempty"` // ascending by units
	Why    []Note  `json:"why"`
	// GapFrom and GapTo are the widest gap in the distribution of peaks.
	GapFrom int64 `json:"gap_from,omitempty"`
	GapTo   int64 `json:"gap_to,omitempty"`
}

// Against is the comparison with other rules on the same requests.
type Against struct {
	Rules           string      `json:"rules"`
	Total           Count       `json:"total"` // of the other rules
	NewlyRefused    int64       `json:"newly_refused"`
	NoLongerRefused int64       `json:"no_longer_refused"`
	BothRefused     int64       `json:"both_refused"`
	ByRule          []Change    `json:"by_rule"`
	Examples        []Different `json:"examples,omitempty"`
}

// A Change is a change of the rule that refuses requests.
type Change struct {
	Rule            string `json:"rule"`
	NewlyRefused    int64  `json:"newly_refused"`
	NoLongerRefused int64  `json:"no_longer_refused"`
}

// A Different request is refused by one of the two sets of rules.
type Different struct {
	File   string    `json:"file"`
	Line   int64     `json:"line"`
	Time   time.Time `json:"time"`
	Client string    `json:"client"`
	Target string    `json:"target"`
	Old    string    `json:"old"` // the rule that refused it, or passed
	New    string    `json:"new"`

	file int32
}
