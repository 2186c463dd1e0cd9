// Package layers assembles the layers of its subpackages before a shared store, in the order in which each keeps its
// promise. From the caller to the store:
//
//	warm      the local store counts what the shared one grants
//	ceiling   bounds what one node passes, for limits with a ceiling
//	lease     takes units ahead of need, for limits with lease terms; above recall, which must see the refunds
//	recall    remembers refusals
//	coalesce  shares calls among concurrent callers
//	breaker   fails at once while the store is unavailable
//
// Without terms all of it is exact: each field of each decision is the shared store's.
package layers

import (
	"errors"
	"io"
	"slices"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/layers/breaker"
	"github.com/weirproject/weir/internal/layers/ceiling"
	"github.com/weirproject/weir/internal/layers/coalesce"
	"github.com/weirproject/weir/internal/layers/fallback"
	"github.com/weirproject/weir/internal/layers/lease"
	"github.com/weirproject/weir/internal/layers/recall"
)

// Names are the layers that Options.Without can leave out.
var Names = []string{"breaker", "coalesce", "recall", "warm"}

// Terms configure the layers for one limit. The zero Terms are exact, and count nothing locally.
type Terms struct {
	Lease   lease.Terms
	Ceiling float64 // one node passes at most this multiple of the limit; 0: no ceiling
	Local   bool    // the local store decides while the shared one is unavailable
	Whole   bool    // the local store does not divide it among nodes
}

// Options configure a Stack.
type Options struct {
	// Local is the embedded store that decides while the shared one is unavailable, and Nodes the number of processes
	// that share that one; 0 reads as 1.
	Local weir.Store
	Nodes int
	// Bounds is the embedded store of the ceilings, made with memstore.WithoutOverflow. Nil: no limit has one.
	Bounds weir.Store
	// Terms is called for each claim, concurrently. Nil: all are zero.
	Terms func(*weir.Limit) Terms
	// News carries changes of state between nodes. The Stack closes it if it is an io.Closer.
	News recall.News
	// Without are the Names of layers to leave out.
	Without []string

	Breaker  []breaker.Option
	Coalesce []coalesce.Option
	Recall   []recall.Option
}

// A Stack is a shared store and the layers before it. A layer that was left out is nil.
type Stack struct {
	// Store is the store to use. Closing it closes the layers, the shared store, Bounds and News, but not Local.
	Store weir.Store
	// Local is the store to use while Store returns weir.ErrUnavailable.
	Local *fallback.LocalStore

	Breaker  *breaker.Breaker
	Coalesce *coalesce.Store
	Recall   *recall.Store
	Lease    *lease.Store
	Ceiling  *ceiling.Ceiling
}

// New puts the layers before a shared store, which must decide batches and should have a timeout, as redisstore has.
// After an error the stores and the News remain the caller's, and nothing of the stack runs.
func New(shared weir.Store, o Options) (*Stack, error) {
	if o.Terms == nil {
		o.Terms = func(*weir.Limit) Terms { return Terms{} }
	}
	for _, name := range o.Without {
		if !slices.Contains(Names, name) {
			return nil, &weir.InputError{Field: "without", Given: name, Allowed: "breaker, coalesce, recall, warm"}
		}
	}
	s := &Stack{Store: shared}
	var err error
	s.Local, err = fallback.NewLocal(max(1, o.Nodes), o.Local,
		fallback.WithWhole(func(l *weir.Limit) bool { return o.Terms(l).Whole }),
		fallback.WithOnly(func(l *weir.Limit) bool { return o.Terms(l).Local }))
	if err != nil {
		return nil, err
	}
	err = s.build(&o, []step{
		{"breaker", s.addBreaker}, {"coalesce", s.addCoalesce}, {"recall", s.addRecall}, {"", s.addLease},
		{"", s.addCeiling}, {"warm", s.addWarm},
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// A step adds one layer.
type step struct {
	name string // "": a layer without effect unless terms ask for it
	add  func(*Options) error
}

// build takes the steps, from the store upwards. After an error it stops the refusal cache, the only layer that works
// before its first call. (Tempting, and wrong: closing the unfinished stack, which closes the caller's store.)
func (s *Stack) build(o *Options, steps []step) error {
	for _, layer := range steps {
		if slices.Contains(o.Without, layer.name) {
			continue
		}
		if err := layer.add(o); err != nil {
			if s.Recall != nil {
				s.Recall.Stop()
			}
			return err
		}
	}
	return nil
}

func (s *Stack) addBreaker(o *Options) (err error) {
	if s.Breaker, err = breaker.New(s.Store, o.Breaker...); err == nil {
		s.Store = s.Breaker.Store()
	}
	return err
}

func (s *Stack) addCoalesce(o *Options) (err error) {
	if s.Coalesce, err = coalesce.New(s.Store, o.Coalesce...); err == nil {
		s.Store = s.Coalesce
	}
	return err
}

func (s *Stack) addRecall(o *Options) (err error) {
	options := o.Recall
	if o.News != nil {
		options = append(slices.Clone(options), recall.WithNews(o.News))
	}
	if s.Recall, err = recall.New(s.Store, options...); err != nil {
		return err
	}
	s.Store = s.Recall
	if closer, ok := o.News.(io.Closer); ok {
		s.Store = &closing{s.Recall, closer}
	}
	return nil
}

func (s *Stack) addLease(o *Options) (err error) {
	if s.Lease, err = lease.New(s.Store, func(l *weir.Limit) lease.Terms { return o.Terms(l).Lease }); err == nil {
		s.Store = s.Lease
	}
	return err
}

func (s *Stack) addCeiling(o *Options) (err error) {
	if o.Bounds == nil {
		return nil
	}
	s.Ceiling, err = ceiling.New(s.Store, o.Bounds, func(l *weir.Limit) (float64, bool) {
		factor := o.Terms(l).Ceiling
		return factor, factor > 0
	})
	if err == nil {
		s.Store = s.Ceiling.Store()
	}
	return err
}

func (s *Stack) addWarm(*Options) error {
	s.Store = s.Local.Warm(s.Store)
	return nil
}

// A closing store also closes the News of the refusal cache.
type closing struct {
	*recall.Store
	news io.Closer
}

// Close implements weir.Store.
func (c *closing) Close() error { return errors.Join(c.Store.Close(), c.news.Close()) }
