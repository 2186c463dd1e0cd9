package lease

import (
	"time"

	"github.com/weirproject/weir"
)

// An Option changes a Store before its first use.
type Option func(*Store)

// WithMaxLeases sets the most leases.
func WithMaxLeases(n int) Option { return func(s *Store) { s.room = n } }

// WithTimeout sets the timeout of calls on behalf of many callers.
func WithTimeout(d time.Duration) Option { return func(s *Store) { s.timeout = d } }

// NewWith is New with options.
func NewWith(next weir.Store, terms func(*weir.Limit) Terms, options ...Option) *Store {
	s := New(next, terms)
	for _, option := range options {
		option(s)
	}
	return s
}
