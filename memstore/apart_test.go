package memstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

// TestWithoutOverflow: newcomers to a full store share nothing: they read as never used, and are not charged.
func TestWithoutOverflow(t *testing.T) {
	store := memstore.New(memstore.WithMaxKeys(1), memstore.WithoutOverflow())
	limit := weir.MustLimit("limit", weir.SlidingLog{Limit: 2, Window: time.Hour})
	held, newcomer := []weir.Claim{{Key: "held", Limit: limit, Cost: 1}}, []weir.Claim{{Key: "newcomer", Limit: limit, Cost: 1}}
	if granted, err := store.Decide(t.Context(), held, 1, nil); granted != 1 || err != nil {
		t.Fatal(granted, err)
	}
	d := make([]weir.Decision, 1)
	for range 3 {
		if granted, err := store.Decide(t.Context(), newcomer, 1, d); granted != 0 || !errors.Is(err, memstore.ErrFull) || !errors.Is(err, weir.ErrUnavailable) {
			t.Errorf("a newcomer: granted %d, %v; want ErrFull", granted, err)
		}
		if err := store.Charge(t.Context(), newcomer, nil); !errors.Is(err, memstore.ErrFull) {
			t.Errorf("a charge of a newcomer: %v, want ErrFull", err)
		}
		if _, err := store.Decide(t.Context(), newcomer, 0, d); err != nil || d[0].Remaining != 2 {
			t.Errorf("a look at a newcomer: %+v, %v; want 2 left", d[0], err)
		}
	}
	if s := store.Stats(); s.Keys != 1 || s.Overflow != 0 {
		t.Errorf("%+v, want one key and no overflow", s)
	}
	store.Reset(t.Context(), held)
	if granted, err := store.Decide(t.Context(), newcomer, 1, d); granted != 1 || err != nil {
		t.Errorf("once there is room: granted %d, %v", granted, err)
	}
}
