// Package command has the commands of the binary weir that work on rules without a server: backtest, import and test,
// and the reviews of check. They reach no server and no Redis.
package command

import (
	"context"
	"io"

	"github.com/spf13/pflag"

	"github.com/weirproject/weir/clientaddr"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/pathform"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/internal/review"
	"github.com/weirproject/weir/tools/internal/ruletest"
)

// A Host is the program that has the commands. It reads rules as its server does.
type Host struct {
	In  io.Reader
	Out io.Writer // results
	Err io.Writer // errors and progress

	Report   func(error) // prints an error
	ReadFile func(name string) (shown string, text []byte, err error)
	// Lists are the options for lists that a file of rules names, relative to it.
	Lists func(name string) []rules.Option
	// File reads the rules of a file, a directory or a URL.
	File func(ctx context.Context, name string) (*rules.File, error)
	// Settings adds flags of fields of the section server. The result reads rules with these settings, and prints
	// warnings unless it is to be quiet.
	Settings func(flags *pflag.FlagSet, paths ...string) Reader
}

// A Reader reads the rules of a file, a directory or a URL, with settings of flags.
type Reader func(ctx context.Context, name string, quiet bool) (*Setup, error)

// A Setup is a rule set with what a server would decide with beside it.
type Setup struct {
	File      *rules.File
	Set       *rules.Set // of File
	Clients   *clientaddr.Extractor
	Form      pathform.Form
	Geo       gate.Geo // nil: places of clients are unknown
	AnyMethod bool     // methods that are not registered are accepted
	MaxKeys   int      // of the store
}

// A Review says how much the rules of a file let through.
type Review = review.Report

// ReviewOf reviews a rule set, which is compiled from the file with the name.
func ReviewOf(name string, file *rules.File, set *rules.Set) *Review {
	return review.Of(name, file, set)
}

// TestSchema is the JSON Schema of files of tests.
func TestSchema() ([]byte, error) { return ruletest.Schema() }
