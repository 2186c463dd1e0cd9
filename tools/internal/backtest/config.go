package backtest

import (
	"time"

	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/internal/accesslog"
)

// A Source is a log that is read once, such as an *accesslog.Log.
type Source interface {
	// Next reads the next request. Times do not go back. The error at the end is io.EOF.
	Next(*accesslog.Record) error
	// Files are the files found so far.
	Files() []accesslog.File
	Close() error
}

// A Config describes a replay.
type Config struct {
	// Open opens the log. It is called for each pass, from 1: one, one before it for a Good with a condition, and one
	// after it for Propose.
	Open func(pass, passes int) (Source, error)

	Name      string // of the rules
	File      *rules.File
	Set       *rules.Set // of File
	Clients   *clientaddr.Extractor
	Form      pathform.Form
	Geo       gate.Geo // countries and autonomous systems of clients; nil: none
	AnyMethod bool     // accept methods that are not registered
	MaxKeys   int      // of each store, as of that of weir serve
	Top       int      // clients in the report

	From, To    time.Time  // zero: no bound; requests at To are left out
	Where       *Condition // nil: all requests
	Spread      Spread
	DropRetries bool // leave out requests that the log says were refused
	Good        *Legitimate
	Sweeps      []SweepOf
	Propose     []string // names of rules
	// FalsePositives is the share of good clients that a proposal may refuse, such as 0.001.
	FalsePositives float64
	AgainstName    string
	Against        *rules.Set // nil: none
}
