package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/engine"
	"github.com/weirproject/weir/internal/simulate"
	"github.com/weirproject/weir/rules"
)

// simulateFlags are the flags of simulate.
type simulateFlags struct {
	config  simulate.Config
	latency string
	faults  []string
	loads   []string
	compare []string
	json    bool
}

func newSimulate(s *System) *cobra.Command {
	f := simulateFlags{config: simulate.Config{Prefetch: -1}}
	command := &cobra.Command{
		Use:   "simulate [flags] FILE|DIRECTORY|URL",
		Short: "Simulate nodes and a Redis that fails: what on_store_error, nodes and prefetch do",
		Long: `Run rules on simulated nodes that share a simulated Redis, in computed time, and report which
requests were admitted beyond the limits, refused although the limits had room, or failed. The
gate and the layers are those of weir serve; Redis, network and requests are simulated. The same
flags give the same output.

A load is words: rate=100 (requests a second) keys=100 (clients) zipf=0 burst=5 for=10s every=1m,
and rule=NAME, for a request that the rule matches, or method=GET path=/ host= route= user=
service= client= cost= header.NAME= query.NAME= cookie.NAME= descriptor.NAME=
body.NAME=. In texts {n} is the number of the client. Without a load, each rule has one of 100
requests a second.

A fault is a kind, a time and words:
  down 60s..90s [lose=1s|all]            connections are refused; writes are lost
  hang 60s..90s                          Redis is frozen
  cut 60s..90s [nodes=1,2]               nothing passes the network
  slow 60s..90s by=40ms [nodes=1,2]      round trips take longer
  error 60s..90s share=20% [nodes=1,2]   calls are answered with an error`,
		Example: `  weir simulate --fault 'down 20s..40s' --compare on_store_error weir.yaml
  weir simulate --fault 'cut 20s..40s nodes=1' --compare nodes=1,3,6 weir.yaml
  weir simulate --load 'rule=login rate=200 keys=50 zipf=1' --compare prefetch weir.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("name a rule file, such as: weir simulate weir.yaml")
			}
			return f.run(cmd.Context(), s, args[0])
		},
	}
	c, flags := &f.config, command.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&f.compare, "compare", nil,
		"compare `NAME[=VALUE,…]`: on_store_error, nodes, running, prefetch, store_timeout or without; may be repeated")
	flags.StringArrayVar(&f.faults, "fault", nil, "a `FAULT`, such as 'down 20s..40s'; may be repeated")
	flags.StringArrayVar(&f.loads, "load", nil,
		"a `LOAD`, such as 'rule=login rate=20 keys=50 zipf=1'; may be repeated")
	flags.DurationVar(&c.Duration, "duration", time.Minute, "`TIME` that is simulated")
	flags.IntVar(&c.Nodes, "nodes", 0,
		"what nodes take for the number `N` of nodes, as in serve (default: that of the file, or 3)")
	flags.IntVar(&c.Running, "running", 0, "number `N` of nodes that run (default: --nodes)")
	flags.StringVar(&f.latency, "latency", "p50=500us,p99=3ms", "round trip to Redis: a `TIME`, or p50=TIME,p99=TIME")
	flags.DurationVar(&c.Timeout, "store-timeout", engine.Defaults().Timeout, "timeout `TIME` of a Redis call")
	flags.StringSliceVar(&c.Without, "without", nil, "leave out `LAYERS`, as in serve")
	flags.BoolVar(&c.Sticky, "sticky", false, "send all requests of a client to one node")
	flags.Uint64Var(&c.Seed, "seed", 1, "number `N` that all random numbers depend on")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	return command
}

func (f *simulateFlags) run(ctx context.Context, s *System, name string) error {
	if err := f.read(ctx, s, name); err != nil {
		return err
	}
	variants, err := f.config.Compare(f.compare)
	if err != nil {
		return flagMistake(err)
	}
	report := &simulate.Report{Config: &f.config}
	for _, v := range variants {
		result, err := v.Run(ctx, s.progress(strings.TrimSpace("simulate "+v.Label)))
		if err != nil {
			return flagMistake(err)
		}
		result.Label = v.Label
		report.Results = append(report.Results, result)
	}
	if f.json {
		encoder := json.NewEncoder(s.Out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(struct {
			Results []*simulate.Result `json:"results"`
		}{report.Results})
	}
	return report.Text(s.Out)
}

// flagMistake is an error about a flag as a mistake of use.
func flagMistake(err error) error {
	var input *weir.InputError
	if errors.As(err, &input) {
		return usagef("--%s is %.200q; allowed: %s", input.Field, fmt.Sprint(input.Given), input.Allowed)
	}
	return err
}

// read reads the rules and the flags.
func (f *simulateFlags) read(ctx context.Context, s *System, name string) (err error) {
	c := &f.config
	if c.File, c.Options, err = parsedRules(ctx, s, name); err != nil {
		return err
	}
	if c.Latency, err = simulate.ParseLatency(f.latency); err != nil {
		return flagMistake(err)
	}
	for _, text := range f.faults {
		fault, err := simulate.ParseFault(text)
		if err != nil {
			return flagMistake(err)
		}
		c.Faults = append(c.Faults, fault)
	}
	for _, text := range f.loads {
		load, err := simulate.ParseLoad(text)
		if err != nil {
			return flagMistake(err)
		}
		c.Loads = append(c.Loads, load)
	}
	if c.Nodes == 0 {
		if c.Nodes = c.File.Nodes; c.Nodes == 0 {
			c.Nodes = 3
		}
	}
	if c.Running == 0 {
		c.Running = c.Nodes
	}
	return nil
}

// parsedRules are the rules of a file, a directory or a URL, and the options to compile them.
func parsedRules(ctx context.Context, s *System, name string) (*rules.File, []rules.Option, error) {
	if engine.IsURL(name) || engine.IsDir(name) {
		file, err := engine.ReadOnce(ctx, name)
		return file, nil, err
	}
	shown, text, err := engine.ReadFile(s.In, name)
	if err != nil {
		return nil, nil, err
	}
	options := engine.ListOptions(name)
	file, err := rules.Parse(shown, text, options...)
	return file, options, err
}
