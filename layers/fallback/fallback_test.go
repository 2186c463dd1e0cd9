package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/layers/fallback"
	"github.com/weirproject/weir/memstore"
)

var background = context.Background()

// faulty is a store that fails as it is told.
type faulty struct {
	weir.Store
	err error
}

func (f *faulty) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	if f.err != nil {
		return 0, f.err
	}
	return f.Store.Decide(ctx, claims, times, d)
}

func (f *faulty) Charge(ctx context.Context, claims []weir.Claim, d []weir.Decision) error {
	if f.err != nil {
		return f.err
	}
	return f.Store.Charge(ctx, claims, d)
}

func (f *faulty) Refund(ctx context.Context, claims []weir.Claim, at weir.Instant, d []weir.Decision) error {
	if f.err != nil {
		return f.err
	}
	return f.Store.Refund(ctx, claims, at, d)
}

func (f *faulty) Reset(ctx context.Context, claims []weir.Claim) error {
	if f.err != nil {
		return f.err
	}
	return f.Store.Reset(ctx, claims)
}

var errAway = fmt.Errorf("%w: gone", weir.ErrUnavailable)

// byName is a policy: a limit's name is its word.
func byName(limit *weir.Limit) fallback.Policy {
	for _, p := range []fallback.Policy{fallback.Allow, fallback.Deny} {
		if limit.Name() == p.String() {
			return p
		}
	}
	return fallback.Local
}

// setup is a store over a faulty one, with a local one for two nodes.
func setup(t *testing.T, opts ...fallback.Option) (*faulty, *fallback.LocalStore, *fallback.Store) {
	t.Helper()
	shared := &faulty{Store: memstore.New()}
	local := newLocal(t, 2)
	store, err := fallback.New(local.Warm(shared), local, byName, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return shared, local, store
}

func newLocal(t testing.TB, nodes int, opts ...fallback.LocalOption) *fallback.LocalStore {
	t.Helper()
	local, err := fallback.NewLocal(nodes, memstore.New(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return local
}

func claims(names ...string) (list []weir.Claim) {
	for _, name := range names {
		list = append(list, weir.Claim{Key: "key", Limit: weir.MustLimit(name, weir.FixedWindow{Limit: 4, Window: time.Hour}), Cost: 1})
	}
	return list
}

// Every fault beside every policy.
func TestFaultsAndPolicies(t *testing.T) {
	over, cancel := context.WithCancel(background)
	cancel()
	late, cancel := context.WithDeadline(background, time.Unix(0, 0))
	defer cancel()
	input := &weir.InputError{Field: "cost"}
	faults := []struct {
		name     string
		ctx      context.Context
		err      error
		answered bool
	}{
		{"unavailable", background, errAway, true},
		{"unavailable by its own timeout", background, fmt.Errorf("%w: %w", weir.ErrUnavailable, context.DeadlineExceeded), true},
		{"wrong input", background, input, false},
		{"foreign state", background, weir.ErrForeignState, false},
		{"closed", background, weir.ErrClosed, false},
		{"a lease that is gone", background, weir.ErrLeaseGone, false},
		{"an error that nobody knows", background, errors.New("?"), false},
		{"a caller who left", over, fmt.Errorf("%w: %w", weir.ErrUnavailable, context.Canceled), false},
		{"a caller's short deadline", late, fmt.Errorf("%w: %w", weir.ErrUnavailable, context.DeadlineExceeded), false},
	}
	for _, f := range faults {
		for _, p := range []struct {
			limits          []string
			granted, denied bool
			stats           fallback.Stats
		}{
			{[]string{"local"}, true, false, fallback.Stats{Decided: 1}},
			{[]string{"allow"}, true, false, fallback.Stats{Allowed: 1}},
			{[]string{"deny"}, false, true, fallback.Stats{Denied: 1}},
			{[]string{"allow", "local"}, true, false, fallback.Stats{Decided: 1}},
			{[]string{"exhausted", "allow"}, false, false, fallback.Stats{Decided: 1}},
			{[]string{"allow", "local", "deny"}, false, true, fallback.Stats{Denied: 1}},
		} {
			for _, op := range []string{"decide", "charge"} {
				t.Run(fmt.Sprint(f.name, "/", p.limits, "/", op), func(t *testing.T) {
					var told []fallback.Degraded
					shared, local, store := setup(t, fallback.WithObserver(func(d fallback.Degraded) { told = append(told, d) }))
					local.Charge(background, []weir.Claim{{Key: "key", Limit: claims("exhausted")[0].Limit, Cost: 2}}, nil)
					shared.err = f.err
					all := claims(p.limits...)
					d := make([]weir.Decision, len(all))
					granted, err := int64(1), error(nil)
					want := int64(0)
					if op == "decide" {
						granted, err = store.Decide(f.ctx, all, 1, d)
						if p.granted && f.answered {
							want = 1
						}
					} else {
						want, err = 1, store.Charge(f.ctx, all, d)
					}
					switch {
					case !f.answered || p.denied:
						if !errors.Is(err, f.err) && err != f.err || op == "decide" && granted != 0 {
							t.Fatalf("granted %d, %v; want the store's error: %v", granted, err, f.err)
						}
					case err != nil || granted != want:
						t.Fatalf("granted %d, %v; want %d", granted, err, want)
					default:
						wantMarked(t, all, d)
					}
					if !f.answered {
						if store.Stats() != (fallback.Stats{}) || len(told) != 0 {
							t.Errorf("%+v, and %d were told of", store.Stats(), len(told))
						}
						return
					}
					if store.Stats() != p.stats {
						t.Errorf("%+v, want %+v", store.Stats(), p.stats)
					}
					if len(told) != 1 || told[0].Denied != p.denied || told[0].Cause != f.err || told[0].Times != 1 || !slices.Equal(told[0].Claims, all) {
						t.Errorf("the observer was told %+v", told)
					}
				})
			}
		}
	}
}

// wantMarked fails unless all decisions say that they are degraded, and allowed ones that
// everything is left.
func wantMarked(t *testing.T, claims []weir.Claim, decisions []weir.Decision) {
	t.Helper()
	for i := range decisions {
		d := decisions[i]
		if !fallback.IsDegraded(&d) || time.Since((-d.At).Time()).Abs() > time.Minute {
			t.Errorf("decision %d is not marked with its time: %+v", i, d)
		}
		d.At = 0
		if claims[i].Limit.Name() == "allow" && d != (weir.Decision{Remaining: 4}) {
			t.Errorf("what is allowed says %+v", d)
		}
	}
}

// Wrong input is none of the store's business, even where the store does not say so.
func TestWrongInputIsNoWayToPass(t *testing.T) {
	shared, _, store := setup(t)
	shared.err = errAway
	bad := claims("allow")
	bad[0].Cost = -1
	none := claims("allow")
	none[0].Limit = nil
	var input *weir.InputError
	for _, bad := range [][]weir.Claim{bad, none, nil} {
		if granted, err := store.Decide(background, bad, 1, nil); granted != 0 || !errors.As(err, &input) {
			t.Errorf("granted %d, %v", granted, err)
		}
	}
}

func TestAPeekIsAnsweredAndChangesNothing(t *testing.T) {
	shared, _, store := setup(t)
	shared.err = errAway
	all := claims("local", "allow")
	d := make([]weir.Decision, 2)
	for range 2 {
		granted, err := store.Decide(background, all, 0, d)
		if granted != 0 || err != nil || d[0].Remaining != 2 || d[1].Remaining != 4 {
			t.Errorf("granted %d, %v, %+v", granted, err, d)
		}
	}
}

// What was granted comes back to who granted it.
func TestWhoGrantedIsRefunded(t *testing.T) {
	shared, local, store := setup(t)
	one := claims("local")
	d := make([]weir.Decision, 1)
	left := func(s weir.Store) int64 {
		t.Helper()
		d := make([]weir.Decision, 1)
		if _, err := s.Decide(background, one, 0, d); err != nil {
			t.Fatal(err)
		}
		return d[0].Remaining
	}
	store.Decide(background, one, 1, d)
	byShared := d[0].At
	shared.err = errAway
	store.Decide(background, one, 1, d)
	byLocal := d[0].At
	if left(shared.Store) != 3 || left(local) != 0 {
		t.Fatalf("%d and %d are left, want 3 and 0", left(shared.Store), left(local))
	}
	if err := store.Refund(background, one, byShared, nil); !errors.Is(err, weir.ErrUnavailable) || left(local) != 0 {
		t.Errorf("a refund of what the store granted, while it is away: %v, %d are left here", err, left(local))
	}
	shared.err = nil
	if err := store.Refund(background, one, byLocal, d); err != nil || left(shared.Store) != 3 || left(local) != 1 || !fallback.IsDegraded(&d[0]) {
		t.Errorf("a refund of what was granted here: %v, %d and %d are left, want 3 and 1; %+v", err, left(shared.Store), left(local), d[0])
	}
	if err := store.Refund(background, one, byShared, d); err != nil || left(shared.Store) != 4 || fallback.IsDegraded(&d[0]) {
		t.Errorf("a refund of what the store granted: %v, %d are left, want 4", err, left(shared.Store))
	}
}

func TestARefundOfWhatWasAllowed(t *testing.T) {
	shared, local, store := setup(t)
	shared.err = errAway
	both := claims("allow", "local")
	d := make([]weir.Decision, 2)
	if granted, _ := store.Decide(background, both, 1, d); granted != 1 || d[0].At != d[1].At {
		t.Fatalf("granted %d at different times: %+v", granted, d)
	}
	shared.err = nil
	if err := store.Refund(background, both, d[0].At, d); err != nil {
		t.Fatal(err)
	}
	local.Decide(background, both, 0, d)
	if d[0].Remaining != 2 || d[1].Remaining != 2 {
		t.Errorf("%+v left, want 2 each", d)
	}
	if err := store.Refund(background, claims("allow"), -1, nil); err != nil {
		t.Error(err)
	}
	var input *weir.InputError
	if err := store.Refund(background, nil, -1, nil); !errors.As(err, &input) {
		t.Errorf("no claims: %v", err)
	}
}

// A limiter's reservation works across an outage, and so does what is held.
func TestReservationsAcrossAnOutage(t *testing.T) {
	shared, _, store := setup(t)
	limiter, err := weir.New(store, "work", weir.Concurrency{Limit: 2, TTL: time.Hour}, weir.FixedWindow{Limit: 4, Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	before, err := limiter.Reserve(background, "key", 1)
	if err != nil {
		t.Fatal(err)
	}
	shared.err = errAway
	if err := before.Renew(background); err != nil {
		t.Errorf("what is held cannot be kept while the store is away: %v", err)
	}
	if _, err := limiter.Reserve(background, "key", 1); !errors.Is(err, weir.ErrRefused) {
		t.Errorf("a second one beside what is held, of a share of one: %v", err)
	}
	if _, err := limiter.Reserve(background, "other", 1); err != nil {
		t.Errorf("another key: %v", err)
	}
	during, err := limiter.Reserve(background, "third", 1)
	if err != nil {
		t.Fatal(err)
	}
	shared.err = nil
	for _, r := range []*weir.Reservation{before, during} {
		if err := r.Cancel(background); err != nil {
			t.Error(err)
		}
	}
	shared.err = errAway
	for _, key := range []string{"key", "third"} {
		if _, err := limiter.Reserve(background, key, 1); err != nil {
			t.Errorf("%s after it was cancelled: %v", key, err)
		}
	}
}

func TestResetForgetsInBoth(t *testing.T) {
	shared, local, store := setup(t)
	one := claims("local")
	store.Decide(background, one, 2, nil)
	shared.err = errAway
	if err := store.Reset(background, one); !errors.Is(err, weir.ErrUnavailable) {
		t.Errorf("the store that was not reset: %v", err)
	}
	d := make([]weir.Decision, 1)
	local.Decide(background, one, 0, d)
	if d[0].Remaining != 2 {
		t.Errorf("%d left here, want 2", d[0].Remaining)
	}
}

func TestWithoutAPolicyTheLocalStoreDecides(t *testing.T) {
	store, err := fallback.New(&faulty{memstore.New(), errAway}, memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if granted, err := store.Decide(background, claims("deny"), 9, nil); granted != 4 || err != nil {
		t.Errorf("granted %d, %v", granted, err)
	}
	store.Close()
	shut, err := fallback.New(&faulty{memstore.New(), errAway}, store, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shut.Decide(background, claims("x"), 1, nil); !errors.Is(err, weir.ErrUnavailable) {
		t.Errorf("neither store answers, and the error is %v", err)
	}
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	var input *weir.InputError
	_, noNext := fallback.New(nil, memstore.New(), nil)
	_, noLocal := fallback.New(memstore.New(), nil, nil)
	_, noNodes := fallback.NewLocal(0, memstore.New())
	_, many := fallback.NewLocal(fallback.MaxNodes+1, memstore.New())
	_, noStore := fallback.NewLocal(1, nil)
	for _, err := range []error{noNext, noLocal, noNodes, many, noStore} {
		if !errors.As(err, &input) {
			t.Errorf("got %v", err)
		}
	}
}
