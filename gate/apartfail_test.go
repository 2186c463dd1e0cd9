package gate_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/memstore"
)

// leaving is a store of a client that hangs up once its nth call was answered.
type leaving struct {
	weir.Store
	after int
	leave context.CancelFunc
}

func (s *leaving) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	granted, err := s.Store.Decide(ctx, claims, times, d)
	if s.after--; s.after == 0 {
		s.leave()
	}
	return granted, err
}

// TestAClientThatHangsUpIsNotChargedForQuotas: a call without an answer has charged no request.
func TestAClientThatHangsUpIsNotChargedForQuotas(t *testing.T) {
	for after := 1; after <= 2; after++ {
		store := memstore.New()
		ctx, cancel := context.WithCancel(t.Context())
		g := open(t, &leaving{Store: store, after: after, leave: cancel}, apart)
		questions := []gate.Question{part(described{"near": "x"}, 1, gate.Decided),
			part(described{"far": "x"}, 1, gate.Decided), part(described{"plain": "x"}, 1, gate.Decided)}
		if err := g.DecideTogether(ctx, questions); err == nil {
			t.Fatalf("after %d: no error", after)
		}
		for key, want := range map[string]int64{"near": 1, "far": 2, "plain": 3} {
			if got := left(t, open(t, store, apart), described{key: "x"}); got != want {
				t.Errorf("after %d calls of the store: %s has %d left, want %d", after, key, got, want)
			}
		}
	}
}

// TestRefusedQuotasCountTowardsBans where no quota passes.
func TestRefusedQuotasCountTowardsBans(t *testing.T) {
	const text = `
rules:
  - {name: q, match: {descriptor: {near: "*"}}, quota: true, key: [descriptor.near], limit: fixed_window 1/100d, ban: {after: 2 refusals within 1d, for: 1h}}
  - {name: p, match: {descriptor: {plain: "*"}}, limit: fixed_window 100/100d}
`
	g := open(t, memstore.New(), text)
	for range 4 {
		together(t, g, part(described{"near": "x"}, 1, gate.Decided), part(described{"plain": "x"}, 1, gate.Decided))
	}
	if bans, err := g.Bans(t.Context()); err != nil || len(bans) != 1 {
		t.Errorf("%d bans, %v; want 1", len(bans), err)
	}
}

// TestSpentUnitsDoNotLengthenABan of the rule that refuses them.
func TestSpentUnitsDoNotLengthenABan(t *testing.T) {
	const text = `
rules:
  - {name: q, match: {descriptor: {near: "*"}}, key: [descriptor.near], limit: fixed_window 1/1h epoch, ban: {after: 2 refusals within 1d, for: 10m}}
`
	now := weir.Instant(1e12)
	g := open(t, memstore.New(memstore.WithClock(func() weir.Instant { return now })), text)
	for range 9 {
		q := part(described{"near": "x"}, 3, gate.Decided)
		q.Ask.Spent = true
		together(t, g, q)
		now++
	}
	bans, err := g.Bans(t.Context())
	if err != nil || len(bans) != 1 {
		t.Fatalf("%d bans, %v; want 1", len(bans), err)
	}
	if long := time.Duration(bans[0].Until-now) * time.Microsecond; long > 10*time.Minute {
		t.Errorf("banned for another %v", long)
	}
}

// TestManyRequestsReplaceEachAliasOnce: otherwise the work of a call would grow with the square of its requests.
func TestManyRequestsReplaceEachAliasOnce(t *testing.T) {
	g := open(t, memstore.New(), apart)
	questions := []gate.Question{part(described{"all": "x"}, 1, gate.Decided)}
	for range 1000 {
		questions = append(questions, part(described{"top": "x"}, 1, gate.Decided))
	}
	if got := together(t, g, questions...)[0].Replaced(); len(got) != 2 {
		t.Errorf("%d aliases, want 2", len(got))
	}
}

// measured notes the largest batch.
type measured struct {
	*memstore.Store
	largest, all int
}

func (m *measured) DecideBatch(ctx context.Context, requests []weir.Request) {
	m.largest, m.all = max(m.largest, len(requests)), m.all+len(requests)
	m.Store.DecideBatch(ctx, requests)
}

// TestManyRequestsApartAreSentInParts, quotas and shadow rules alike, so that the store answers others in between.
func TestManyRequestsApartAreSentInParts(t *testing.T) {
	store := &measured{Store: memstore.New()}
	g := open(t, store, apart)
	var questions []gate.Question
	for range 600 {
		questions = append(questions, part(described{"far": "x"}, 1, gate.Decided), part(described{"tried": "x"}, 1, gate.Decided))
	}
	together(t, g, questions...)
	if store.largest > 256 || store.all < 1200 {
		t.Errorf("%d requests, at most %d at once", store.all, store.largest)
	}
}

// refunding counts refunds.
type refunding struct {
	*memstore.Store
	refunds int
}

func (r *refunding) Refund(ctx context.Context, claims []weir.Claim, at weir.Instant, d []weir.Decision) error {
	r.refunds++
	return r.Store.Refund(ctx, claims, at, d)
}

// TestQuotasAreGivenBackTogether: a refusal waits for one call of the store, also where two requests have one key.
func TestQuotasAreGivenBackTogether(t *testing.T) {
	store := &refunding{Store: memstore.New(memstore.WithClock(func() weir.Instant { return 1e12 }))}
	g := open(t, store, apart)
	together(t, g, part(described{"plain": "x"}, 3, gate.Decided))
	got := told(together(t, g, part(described{"far": "x"}, 1, gate.Decided), part(described{"near": "x"}, 1, gate.Decided),
		part(described{"far": "x"}, 1, gate.Decided), part(described{"plain": "x"}, 1, gate.Decided)))
	if want := "refused other_refused, refused other_refused, refused other_refused, refused limit_exceeded"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if store.refunds != 1 {
		t.Errorf("%d refunds", store.refunds)
	}
	for key, want := range map[string]int64{"near": 1, "far": 2} {
		if got := left(t, g, described{key: "x"}); got != want {
			t.Errorf("%s has %d left, want %d", key, got, want)
		}
	}
}
