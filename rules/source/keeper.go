package source

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

// How long a Keeper waits. News that follow each other closely become one law: the first
// waits until it is quiet for quietTime, but never longer than maxDelay.
const (
	quietTime    = 5 * time.Millisecond
	maxDelay     = 50 * time.Millisecond
	firstPause   = time.Second // before a source that ended is run again; then doubled
	longestPause = time.Minute
	startWithin  = 10 * time.Second
)

// A Keeper keeps the law: it listens to sources, and puts in force what they say. Its
// methods are safe for concurrent use; Run is called once.
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
	start    error // why it is not all that it should be at ready
}

// An Option changes how a Keeper works.
type Option func(*Keeper)

// WithTell has each event reported, one after the other. It is waited for: it must be quick.
func WithTell(onEvent func(Event)) Option { return func(k *Keeper) { k.onEvent = onEvent } }

// WithCompile replaces rules.Compile without options.
func WithCompile(compile func(*rules.File) (*rules.Set, error)) Option {
	return func(k *Keeper) { k.compile = compile }
}

// WithRest has rest called again and again while many rules are compared, as rules.WithRest
// has it called while they are compiled.
func WithRest(rest func()) Option { return func(k *Keeper) { k.rest = rest } }

// WithStartWithin says how long the first law waits for layers that say nothing, instead
// of 10 seconds. What they say later is a change like any other.
func WithStartWithin(d time.Duration) Option { return func(k *Keeper) { k.startWithin = d } }

// NewKeeper makes a keeper of layers, which are in order of precedence: a later one
// replaces what earlier ones say. swap puts a law in force, such as gate.Gate.Swap; where
// it returns an error nothing may have changed, and the update is refused for it.
func NewKeeper(layers []Layer, swap func(*rules.Set) error, opts ...Option) (*Keeper, error) {
	k := &Keeper{layers: layers, swap: swap, onEvent: func(Event) {}, rest: func() {}, startWithin: startWithin,
		compile:  func(f *rules.File) (*rules.Set, error) { return rules.Compile(f) },
		received: make(chan received), ready: make(chan struct{})}
	for _, opt := range opts {
		opt(k)
	}
	if swap == nil {
		return nil, &weir.InputError{Field: "swap", Given: "nil", Allowed: "what puts rules in force, such as a gate's Swap"}
	}
	if len(layers) == 0 {
		return nil, &weir.InputError{Field: "layers", Given: 0, Allowed: "at least one"}
	}
	names := make(map[string]bool)
	status := new(Status)
	for _, y := range layers {
		if y.Name == "" || names[y.Name] || y.Source == nil {
			return nil, &weir.InputError{Field: "layers", Given: y.Name, Allowed: "names of their own, each with a source"}
		}
		names[y.Name] = true
		status.Layers = append(status.Layers, LayerStatus{Name: y.Name, Err: errSilent})
	}
	k.status.Store(status)
	return k, nil
}

var errSilent = errors.New("it has not said anything yet")

// Status is how things stand. Do not change what it points to.
func (k *Keeper) Status() *Status { return k.status.Load() }

// Wait waits until all layers were heard, or the time for it is over, and what they said
// was tried. It returns nil if all of it is in force. The error says what is missing, and
// whether to serve without is the caller's to decide: the Keeper goes on either way.
func (k *Keeper) Wait(ctx context.Context) error {
	select {
	case <-k.ready:
		return k.start
	case <-ctx.Done():
		return fmt.Errorf("waiting for the first rules: %w", context.Cause(ctx))
	}
}

// Reload has all sources that can (see Reloader) look at once, and waits until what they
// found is in force. The error says which of it is not, and why.
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

// Run listens until ctx is over, and then until all sources have ended. It returns nil
// then, and an error at once where it was called before.
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

// heard is update and whose it is.
type received struct {
	layer int
	Update
}

// listen runs a source, again and again where it ends.
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

// runOnce receives all that a source sends until it has ended: none waits for long with a
// send, also when nobody listens to the Keeper any more.
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
