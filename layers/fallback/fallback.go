// Package fallback answers in the place of a store that does not.
//
//	local, err := fallback.NewLocal(nodes, memstore.New())
//	store, err := fallback.New(local.Warm(shared), local, policy)
//
// [NewLocal] makes a store in this process that decides by the node's share of each limit: the
// limit divided by how many nodes there are. [LocalStore.Warm] lets it count while the shared
// store is well. Package gate takes such a store (gate.WithLocal) and asks it by each rule's
// on_store_error; [New] is for programs without a gate.
//
// # A node's share
//
//	token bucket      capacity and overdraft divided; the refill of a period takes nodes periods
//	  in steps        units of a step divided, and the period so much longer that the rate is
//	windows, logs, counters, calendars, concurrency: units divided
//
// What is divided is rounded up, so that each node grants at least one unit: all nodes together
// may grant more than the limit, by less than one unit for each node. A bucket whose period
// would get too long keeps its period, and what no division makes a limit stays as it is.
//
// While nodes decide by themselves, in each window (or, of a bucket, at once and then at the
// limit's rate) they grant nodes × ⌈L/nodes⌉ together. In the window in which they switch, what
// the shared store had granted comes on top where it was not spread evenly: a node knows only
// of its own, so at most one share for each node that had granted less than that.
package fallback

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
)

// A Policy says what becomes of a limit's claims while the store does not answer.
type Policy uint8

const (
	Local Policy = iota // the local store decides
	Allow               // they are granted, and charged nowhere
	Deny                // whoever asks gets the store's error
)

// String is the policy's word: "local", "allow", "deny".
func (p Policy) String() string {
	switch p {
	case Local:
		return "local"
	case Allow:
		return "allow"
	}
	return "deny"
}

// A Degraded answer is what an observer is told. It is to keep nothing of the claims.
type Degraded struct {
	Claims  []weir.Claim
	Times   int64
	Granted int64 // by the local store, or by those that are allowed
	Denied  bool  // the answer was the error
	Cause   error // why the store did not answer
}

// Store is a weir.Store that answers by policy while the one behind it is unavailable. Make one
// with New.
type Store struct {
	next    weir.Store
	local   weir.Store
	policy  func(*weir.Limit) Policy
	observe func(Degraded)
	counts  struct{ decided, allowed, denied atomic.Int64 }
}

// An Option changes what New makes.
type Option func(*Store)

// WithObserver has observe told of each degraded answer, before the caller gets it. It must be
// quick and safe for concurrent use.
func WithObserver(observe func(Degraded)) Option { return func(s *Store) { s.observe = observe } }

// New answers in the place of next whenever that says weir.ErrUnavailable: by policy, which is
// asked about the limit of each claim. If one says Deny the answer is next's error. Else those
// that say Local are decided together, by local; those that say Allow are left out. Without a
// policy all are Local.
//
// Every other error is returned as it is, and so is any while the caller's context is over:
// wrong input and a short deadline must not be a way to pass.
//
// The decisions of a degraded answer have an At below 0: minus the instant, by this process'
// clock (see [IsDegraded]). By it Refund knows who granted. What is allowed says that
// everything is left.
//
// Charge is answered likewise. Refund gives units back to who granted them: while that is next,
// and next is away, it fails, and nobody is given anything. Reset forgets in both, and fails
// where next did not.
//
// It is above what gathers requests, and so no weir.Batcher. Closing it closes next and local.
func New(next, local weir.Store, policy func(*weir.Limit) Policy, opts ...Option) (*Store, error) {
	switch {
	case next == nil:
		return nil, bad("next", "nil", "a store")
	case local == nil:
		return nil, bad("local store", "nil", "a store in this process, such as NewLocal's")
	}
	s := &Store{next: next, local: local, policy: policy}
	for _, opt := range opts {
		opt(s)
	}
	return s, nil
}

// IsDegraded reports whether a decision was made without the store.
func IsDegraded(d *weir.Decision) bool { return d.At < 0 }

// Stats are counts of degraded answers since the store was made.
type Stats struct {
	Decided int64 // by the local store
	Allowed int64 // because every limit allows
	Denied  int64 // because one denies: errors
}

// Stats counts.
func (s *Store) Stats() Stats {
	return Stats{s.counts.decided.Load(), s.counts.allowed.Load(), s.counts.denied.Load()}
}

// Decide implements weir.Store.
func (s *Store) Decide(ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision) (int64, error) {
	granted, err := s.next.Decide(ctx, claims, times, decisions)
	if err == nil || !stands(ctx, err) {
		return granted, err
	}
	return s.answer(claims, times, decisions, err, func(mine []weir.Claim, d []weir.Decision) (int64, error) {
		return s.local.Decide(ctx, mine, times, d)
	})
}

// Charge implements weir.Store.
func (s *Store) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	err := s.next.Charge(ctx, claims, decisions)
	if err == nil || !stands(ctx, err) {
		return err
	}
	_, err = s.answer(claims, 1, decisions, err, func(mine []weir.Claim, d []weir.Decision) (int64, error) {
		return 1, s.local.Charge(ctx, mine, d)
	})
	return err
}

// stands reports whether somebody stands in for the store that failed so.
func stands(ctx context.Context, err error) bool {
	return errors.Is(err, weir.ErrUnavailable) && ctx.Err() == nil
}

// answer answers by policy. ask asks the local store.
func (s *Store) answer(claims []weir.Claim, times int64, decisions []weir.Decision, cause error,
	ask func([]weir.Claim, []weir.Decision) (int64, error)) (int64, error) {
	if err := weir.Check(claims, times, decisions); err != nil {
		return 0, err
	}
	granted, err := times, error(nil)
	mine, places, denied := s.sort(claims)
	switch {
	case denied:
		granted, err = 0, cause
		s.counts.denied.Add(1)
	case len(mine) == 0:
		allow(claims, decisions, -weir.Instant(time.Now().UnixMicro()))
		s.counts.allowed.Add(1)
	default:
		d := make([]weir.Decision, len(mine))
		if granted, err = ask(mine, d); err != nil {
			return 0, errors.Join(cause, err)
		}
		allow(claims, decisions, -d[0].At)
		tell(decisions, d, places)
		s.counts.decided.Add(1)
	}
	if s.observe != nil {
		s.observe(Degraded{Claims: claims, Times: times, Granted: granted, Denied: denied, Cause: cause})
	}
	return granted, err
}

// sort finds the claims that the local store decides, and their places.
func (s *Store) sort(claims []weir.Claim) (mine []weir.Claim, places []int, denied bool) {
	for i := range claims {
		switch s.of(claims[i].Limit) {
		case Local:
			mine, places = append(mine, claims[i]), append(places, i)
		case Allow:
		default:
			denied = true
		}
	}
	return mine, places, denied
}

func (s *Store) of(limit *weir.Limit) Policy {
	if s.policy == nil {
		return Local
	}
	return s.policy(limit)
}

// allow says of each claim what is true of one that is always granted: everything is left.
func allow(claims []weir.Claim, decisions []weir.Decision, at weir.Instant) {
	for i := range decisions {
		decisions[i] = weir.Decision{Remaining: claims[i].Limit.Most(), At: at}
	}
}

// tell puts the local store's decisions, marked, where the caller wants them.
func tell(decisions, local []weir.Decision, places []int) {
	if decisions == nil {
		return
	}
	for j, i := range places {
		decisions[i] = local[j]
		decisions[i].At = -local[j].At
	}
}

// Refund implements weir.Store.
func (s *Store) Refund(ctx context.Context, claims []weir.Claim, takenAt weir.Instant, decisions []weir.Decision) error {
	if takenAt >= 0 {
		return s.next.Refund(ctx, claims, takenAt, decisions)
	}
	if err := weir.Check(claims, 1, decisions); err != nil {
		return err
	}
	mine, places, _ := s.sort(claims)
	d := make([]weir.Decision, len(mine))
	at, err := takenAt, error(nil)
	if len(mine) > 0 {
		if err = s.local.Refund(ctx, mine, -takenAt, d); err != nil && !errors.Is(err, weir.ErrLeaseGone) {
			return err
		}
		at = -d[0].At
	}
	allow(claims, decisions, at)
	tell(decisions, d, places)
	return err
}

// Reset implements weir.Store.
func (s *Store) Reset(ctx context.Context, claims []weir.Claim) error {
	return errors.Join(s.next.Reset(ctx, claims), s.local.Reset(ctx, claims))
}

// Close implements weir.Store.
func (s *Store) Close() error { return errors.Join(s.next.Close(), s.local.Close()) }
