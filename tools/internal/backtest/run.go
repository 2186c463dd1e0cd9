package backtest

import (
	"context"
	"fmt"
	"sync"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
	"github.com/weirproject/weir/tools/internal/accesslog"
)

// Run replays the log. The error is the context's, the log's, or one about the config.
func Run(ctx context.Context, c *Config) (*Report, error) {
	first, passes := 1, 1
	if c.Good != nil && c.Good.Condition != nil {
		first, passes = 2, 2
	}
	if len(c.Propose) > 0 {
		passes++
	}
	r, err := newReplay(c, c.Sweeps) // also checks the config
	if err != nil {
		return nil, err
	}
	if first == 2 {
		source, err := c.Open(1, passes)
		if err != nil {
			return nil, err
		}
		if err := c.Good.find(ctx, c, source); err != nil {
			return nil, err
		}
	}
	if err := r.run(ctx, first, passes); err != nil {
		return nil, err
	}
	report := r.report()
	if len(c.Propose) > 0 {
		report.Proposed, err = r.propose(ctx, passes)
	}
	return report, err
}

// A replay is one pass over the log.
type replay struct {
	config    *Config
	main      *replayer
	stats     *stats
	unmatched *unmatched
	reader    *reader
	files     []accesslog.File

	against *comparison
	sweeps  []*sweep
	others  []*other // all replayers beside main

	results []result
	hits    []hits
	err     error
}

// An other is a replayer beside the main one, which decides the same requests.
type other struct {
	*replayer
	rule    int // only requests that this rule of the main replayer matched; −1: all
	bit     int // of clients that it refuses
	count   Count
	failing int64 // refused ones that failed anyway
	good    goodCount
	busiest busiest // second of passed requests
	results []result
	err     error

	// limit is decided for the claims that the main replayer made of the requests; nil: the gate of the replayer
	// decides.
	limit *weir.Limit
	own   *weir.Limit // that of the rule, in the claims
	claim [1]weir.Claim
}

// maxLanes is the number of replayers beside the main one that have a bit.
const maxLanes = 64

func newReplay(c *Config, sweeps []SweepOf) (*replay, error) {
	r := &replay{config: c, reader: newReader(c)}
	var err error
	if r.main, err = newReplayer(c.Set, c); err != nil {
		return nil, err
	}
	bits := 0
	add := func(set *rules.Set, rule int) (*other, error) {
		replayer, err := newReplayer(set, c)
		o := &other{replayer: replayer, rule: rule, bit: bits}
		bits++
		r.others = append(r.others, o)
		return o, err
	}
	if c.Against != nil {
		o, err := add(c.Against, -1)
		if err != nil {
			return nil, err
		}
		r.against = newComparison(o, c)
	}
	for i := range sweeps {
		if err := r.addSweep(&sweeps[i], add); err != nil {
			return nil, err
		}
	}
	if bits > maxLanes {
		return nil, fmt.Errorf("sweeps have %d limits; allowed: %d, with one for --against", bits, maxLanes)
	}
	r.stats = newStats(c.Set, bits)
	r.unmatched = newUnmatched(c, r.stats)
	for _, o := range r.others {
		if o.limit != nil {
			r.stats.rules[o.rule].swept = true
		}
	}
	return r, nil
}

// run reads the log on a separate goroutine while the requests before are decided.
func (r *replay) run(ctx context.Context, pass, passes int) error {
	source, err := r.config.Open(pass, passes)
	if err != nil {
		return err
	}
	defer source.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	full, free := make(chan []event, 2), make(chan []event, 4)
	var reading sync.WaitGroup
	var failed error
	reading.Go(func() {
		defer close(full)
		failed = r.reader.read(ctx, source, func(events []event) ([]event, error) {
			select {
			case full <- events:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			select {
			case events = <-free:
				return events, nil
			default:
				return make([]event, 0, batchSize+1024), nil
			}
		})
	})
	for events := range full {
		if r.err == nil {
			r.err = r.decide(ctx, events)
		}
		if r.err != nil {
			cancel()
		}
		clear(events)
		select {
		case free <- events[:0]:
		default:
		}
	}
	reading.Wait()
	r.files = source.Files()
	if r.err != nil {
		return r.err
	}
	return failed
}

// decide decides a batch: first by the rules, then in the other replayers, each on a separate goroutine.
func (r *replay) decide(ctx context.Context, events []event) error {
	for len(r.hits) < len(events) {
		r.hits, r.results = append(r.hits, hits{}), append(r.results, passed)
	}
	for i := range events {
		e := &events[i]
		result, err := r.main.decide(ctx, e)
		if err != nil {
			return err
		}
		r.results[i] = result
		r.stats.observe(e, r.main.now, r.main.verdicts, result, &r.hits[i])
	}
	var running sync.WaitGroup
	for _, o := range r.others {
		running.Go(func() { o.err = o.replay(ctx, events, r.hits) })
	}
	r.main.sweep()
	for i := range r.stats.rules {
		if keys := r.stats.rules[i].keys; keys != nil {
			keys.count()
		}
	}
	running.Wait()
	for _, o := range r.others {
		if o.err != nil {
			return o.err
		}
	}
	r.stats.clientCounts.touch(events)
	for i := range events {
		if r.results[i] == undecided {
			continue
		}
		e := &events[i]
		var stopping uint64
		for _, o := range r.others {
			if o.results[i].stopped() {
				stopping |= 1 << o.bit
			}
		}
		r.stats.count(e, e.at, r.results[i], &r.hits[i], stopping)
		if r.against != nil {
			r.against.compare(e, r.results[i], i)
		}
	}
	r.unmatched.observe(events)
	return nil
}

// replay decides a batch.
func (o *other) replay(ctx context.Context, events []event, hits []hits) error {
	for len(o.results) < len(events) {
		o.results = append(o.results, passed)
	}
	for i := range events {
		e := &events[i]
		o.results[i] = passed
		if o.rule >= 0 && !hits[i].has(o.rule) {
			continue
		}
		result, err := passed, error(nil)
		if o.limit != nil {
			result, err = o.charge(ctx, e, &hits[i])
		} else {
			result, err = o.decide(ctx, e)
		}
		if err != nil {
			return err
		}
		o.results[i] = result
		if result != undecided {
			o.tally(e, result)
		}
	}
	o.sweep()
	return nil
}

// tally counts a decided request.
func (o *other) tally(e *event, r result) {
	o.count.Requests++
	o.good.add(e, r.stopped())
	if r.stopped() && e.failing() {
		o.failing++
	}
	switch {
	case r.denies():
		o.count.Denied++
	case r.stopped():
		o.count.Refused++
	default:
		o.busiest.add(o.now, second)
	}
}
