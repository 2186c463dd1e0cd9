// Package layers puts the layers of its subpackages before a shared store, in the order in which each does what it
// promises. From the caller to the store:
//
//	warm      the local store counts what the shared one grants
//	ceiling   what one node passes at most, of limits that have one
//	lease     units are taken ahead of need, of limits that may be leased; above recall, which must see what goes back
//	recall    refusals are remembered
//	coalesce  requests that wait at the same moment share a call
//	breaker   a store that does not answer is not waited for
//
// Without terms all of it is exact: each field of each decision is what the shared store would say.
package layers

import (
	"errors"
	"io"
	"slices"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/layers/breaker"
	"github.com/weirproject/weir/layers/ceiling"
	"github.com/weirproject/weir/layers/coalesce"
	"github.com/weirproject/weir/layers/fallback"
	"github.com/weirproject/weir/layers/lease"
	"github.com/weirproject/weir/layers/recall"
)

// Names are those of the layers that can be left out.
var Names = []string{"breaker", "coalesce", "recall", "warm"}

// Terms are what a program says of a limit to the layers. The zero Terms are exact, and count nothing locally.
type Terms struct {
	Lease   lease.Terms
	Ceiling float64 // how many times the limit one node passes at most; 0: no ceiling
	Local   bool    // the local store is asked about it while the shared one does not answer
	Whole   bool    // it is not divided among nodes then
}

// Options say what a stack is made of.
type Options struct {
	// Local is the embedded store that decides while the shared one does not answer, and Nodes how many processes
	// share that one; 0 reads as 1.
	Local weir.Store
	Nodes int
	// Bounds is the embedded store in which ceilings count, made with memstore.WithoutOverflow. Nil: no limit has one.
	Bounds weir.Store
	// Terms is asked about each claim, by many goroutines at once. Nil: all are zero.
	Terms func(*weir.Limit) Terms
	// News carries what is given back to other nodes, and from them. It is closed with the stack if it is an io.Closer.
	News recall.News
	// Without are Names of layers to leave out.
	Without []string

	Breaker  []breaker.Option
	Coalesce []coalesce.Option
	Recall   []recall.Option
}

// A Stack is a shared store and the layers before it. A layer that was left out is nil.
type Stack struct {
	// Store is what to ask. Closing it closes the layers, the shared store, Bounds and News, and not Local.
	Store weir.Store
	// Local is what to ask while Store returns weir.ErrUnavailable.
	Local *fallback.LocalStore

	Breaker  *breaker.Breaker
	Coalesce *coalesce.Store
	Recall   *recall.Store
	Lease    *lease.Store
	Ceiling  *ceiling.Ceiling
}

// New stacks the layers over a shared store, which must decide batches and should tell its timeout, as redisstore
// does. Where it fails the stores stay the caller's.
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
	for _, layer := range []struct {
		name string // "": it does nothing without terms
		add  func(*Options) error
	}{
		{"breaker", s.addBreaker}, {"coalesce", s.addCoalesce}, {"recall", s.addRecall}, {"", s.addLease},
		{"", s.addCeiling}, {"warm", s.addWarm},
	} {
		if slices.Contains(o.Without, layer.name) {
			continue
		}
		if err := layer.add(&o); err != nil {
			return nil, err
		}
	}
	return s, nil
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

// A closing store closes what carries its news as well.
type closing struct {
	*recall.Store
	news io.Closer
}

// Close implements weir.Store.
func (c *closing) Close() error { return errors.Join(c.Store.Close(), c.news.Close()) }
