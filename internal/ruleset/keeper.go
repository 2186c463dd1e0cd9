package ruleset

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/rules"
)

// Delays of a Keeper. Updates that follow each other closely become one rule set: the first waits
// until none came for quietTime, but at most maxDelay.
const (
	quietTime    = 5 * time.Millisecond
	maxDelay     = 50 * time.Millisecond
	firstPause   = time.Second // before a source that returned is run again; doubled each time
	longestPause = time.Minute
	startWithin  = 10 * time.Second
)

// A Keeper keeps a rule set up to date with its sources. Its methods are safe for concurrent use;
// Run is called once.
type Keeper struct {
	layers      []Layer
	swap        func(*rules.Set) error
	compile     func(*rules.File) (*rules.Set, error)
	onEvent     func(Event)
	rest        func()
	startWithin time.Duration

	begun    atomic.Bool
	received chan received
	status   atomic.Pointer[Status]
	ready    chan struct{}
	start    error // the error at the time of ready
}

// An Option changes how a Keeper works.
type Option func(*Keeper)

// WithTell calls tell with each event, sequentially. The Keeper waits for it: tell must return
// quickly.
func WithTell(onEvent func(Event)) Option { return func(k *Keeper) { k.onEvent = onEvent } }

// WithCompile replaces rules.Compile without options.
func WithCompile(compile func(*rules.File) (*rules.Set, error)) Option {
	return func(k *Keeper) { k.compile = compile }
}

// WithRest calls rest repeatedly while many rules are compared, as rules.WithRest does while they
// are compiled.
func WithRest(rest func()) Option { return func(k *Keeper) { k.rest = rest } }

// WithStartWithin sets how long the first rule set waits for layers that have sent nothing, instead
// of 10 seconds. Their updates are later changes like any other.
func WithStartWithin(d time.Duration) Option { return func(k *Keeper) { k.startWithin = d } }

// NewKeeper makes a keeper of layers in order of precedence: a later one replaces rules of earlier
// ones. swap puts a rule set in force, such as gate.Gate.Swap. If it returns an error it must not
// have changed anything, and the updates are refused.
func NewKeeper(layers []Layer, swap func(*rules.Set) error, opts ...Option) (*Keeper, error) {
	k := &Keeper{layers: layers, swap: swap, onEvent: func(Event) {}, rest: func() {}, startWithin: startWithin,
		compile:  func(f *rules.File) (*rules.Set, error) { return rules.Compile(f) },
		received: make(chan received), ready: make(chan struct{})}
	for _, opt := range opts {
		opt(k)
	}
	if swap == nil {
		return nil, &weir.InputError{Field: "swap", Given: "nil",
			Allowed: "what puts rules in force, such as a gate's Swap"}
	}
	if len(layers) == 0 {
		return nil, &weir.InputError{Field: "layers", Given: 0, Allowed: "at least one"}
	}
	names := make(map[string]bool)
	status := new(Status)
	for _, y := range layers {
		if y.Name == "" || names[y.Name] || y.Source == nil {
			return nil, &weir.InputError{Field: "layers", Given: y.Name,
				Allowed: "names of their own, each with a source"}
		}
		names[y.Name] = true
		status.Layers = append(status.Layers, LayerStatus{Name: y.Name, Err: errSilent})
	}
	k.status.Store(status)
	return k, nil
}

var errSilent = errors.New("it has not said anything yet")

// Status returns a snapshot, which must not be changed.
func (k *Keeper) Status() *Status { return k.status.Load() }

// Wait waits until all layers have sent an update, or WithStartWithin has passed, and these updates
// were tried. It returns nil if all of them are in force, or an error that says which are not. The
// caller decides whether to serve without them; the Keeper goes on either way.
func (k *Keeper) Wait(ctx context.Context) error {
	select {
	case <-k.ready:
		return k.start
	case <-ctx.Done():
		return fmt.Errorf("waiting for the first rules: %w", context.Cause(ctx))
	}
}

// Reload makes all sources that are Reloaders read their rules now, and waits until these are in
// force. The error lists the sources that failed.
func (k *Keeper) Reload(ctx context.Context) error {
	errs := make([]error, len(k.layers))
	var all sync.WaitGroup
	for i, y := range k.layers {
		reloader, ok := y.Source.(Reloader)
		if !ok {
			continue
		}
		all.Go(func() {
			if _, err := reloader.Reload(ctx); err != nil {
				errs[i] = fmt.Errorf("%s: %w", y.Name, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Run runs until ctx is done and all sources have returned. It then returns nil. A second call
// returns an error at once.
func (k *Keeper) Run(ctx context.Context) error {
	if k.begun.Swap(true) {
		return errors.New("source: this Keeper was run before; make another one")
	}
	var all sync.WaitGroup
	for i := range k.layers {
		all.Go(func() { k.listen(ctx, i) })
	}
	newReconciler(k).run(ctx)
	all.Wait()
	return nil
}

// A received update, and the index of its layer.
type received struct {
	layer int
	Update
}

// listen runs a source, and again whenever it returns.
func (k *Keeper) listen(ctx context.Context, layer int) {
	pause := firstPause
	for {
		began := time.Now()
		err := k.runOnce(ctx, layer)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("it ended by itself")
		}
		if time.Since(began) > longestPause {
			pause = firstPause
		}
		k.deliver(ctx, layer, Update{Err: fmt.Errorf("%w; it is run again in %v", err, pause)})
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, longestPause)
	}
}

// runOnce receives all updates of a source until it has returned, also when ctx is done, so that no
// send blocks.
func (k *Keeper) runOnce(ctx context.Context, layer int) error {
	updates, ended := make(chan Update), make(chan error, 1)
	go func() { ended <- k.layers[layer].Source.Run(ctx, updates) }()
	for {
		select {
		case n := <-updates:
			k.deliver(ctx, layer, n)
		case err := <-ended:
			return err
		}
	}
}

func (k *Keeper) deliver(ctx context.Context, layer int, n Update) {
	select {
	case k.received <- received{layer, n}:
	case <-ctx.Done():
		n.finish(context.Cause(ctx))
	}
}
