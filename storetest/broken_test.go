package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirproject/weir"
)

// A recorder is the TB of a check that should fail.
type recorder struct{}

type failed string

func (recorder) Helper()                           {}
func (recorder) Fatalf(format string, args ...any) { panic(failed(fmt.Sprintf(format, args...))) }

// failure is the failure of a check, or "".
func failure(check func(t TB)) (said string) {
	defer func() {
		switch found := recover().(type) {
		case nil:
		case failed:
			said = string(found)
		default:
			panic(found)
		}
	}()
	check(recorder{})
	return ""
}

// A broken store is the model with one thing wrong. Each function replaces a method.
type broken struct {
	*modelStore
	decide func(m *modelStore, claims []weir.Claim, times int64, d []weir.Decision) (int64, error)
	charge func(m *modelStore, claims []weir.Claim, d []weir.Decision) error
	refund func(m *modelStore, claims []weir.Claim, taken weir.Instant, d []weir.Decision) error
	reset  func(m *modelStore, claims []weir.Claim) error
	batch  func(m *modelStore, requests []weir.Request)
}

var bg = context.Background()

func (b *broken) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	if b.decide != nil {
		return b.decide(b.modelStore, claims, times, d)
	}
	return b.modelStore.Decide(ctx, claims, times, d)
}

func (b *broken) Charge(ctx context.Context, claims []weir.Claim, d []weir.Decision) error {
	if b.charge != nil {
		return b.charge(b.modelStore, claims, d)
	}
	return b.modelStore.Charge(ctx, claims, d)
}

func (b *broken) Refund(ctx context.Context, claims []weir.Claim, taken weir.Instant, d []weir.Decision) error {
	if b.refund != nil {
		return b.refund(b.modelStore, claims, taken, d)
	}
	return b.modelStore.Refund(ctx, claims, taken, d)
}

func (b *broken) Reset(ctx context.Context, claims []weir.Claim) error {
	if b.reset != nil {
		return b.reset(b.modelStore, claims)
	}
	return b.modelStore.Reset(ctx, claims)
}

// subject is a store with one thing wrong.
func (b broken) subject() Subject {
	return func(t testing.TB, clock func() weir.Instant) Handle {
		h := modelSubject(t, clock)
		b.modelStore = h.Store.(*modelStore)
		h.Store = &b
		return h
	}
}

// editing changes the results of Decide.
func editing(edit func(*weir.Decision)) broken {
	return broken{decide: func(m *modelStore, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
		granted, err := m.Decide(bg, claims, times, d)
		for i := range d {
			edit(&d[i])
		}
		return granted, err
	}}
}

// renaming asks the model about other claims.
func renaming(rename func(*weir.Claim)) broken {
	renamed := func(claims []weir.Claim) []weir.Claim {
		claims = append([]weir.Claim(nil), claims...)
		for i := range claims {
			if claims[i].Limit != nil && claims[i].Limit.Algorithm() != 0 {
				rename(&claims[i])
			}
		}
		return claims
	}
	return broken{
		decide: func(m *modelStore, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
			return m.Decide(bg, renamed(claims), times, d)
		},
		charge: func(m *modelStore, claims []weir.Claim, d []weir.Decision) error {
			return m.Charge(bg, renamed(claims), d)
		},
		refund: func(m *modelStore, claims []weir.Claim, taken weir.Instant, d []weir.Decision) error {
			return m.Refund(bg, renamed(claims), taken, d)
		},
		reset: func(m *modelStore, claims []weir.Claim) error { return m.Reset(bg, renamed(claims)) },
	}
}

// clocked reads another clock.
func clocked(read func(now weir.Instant) weir.Instant) Subject {
	return func(t testing.TB, clock func() weir.Instant) Handle {
		return modelSubject(t, func() weir.Instant { return read(clock()) })
	}
}

// bucketOf is a claim's limit with an edited token bucket; others stay.
func bucketOf(c *weir.Claim, edit func(*weir.TokenBucket)) {
	if spec, ok := c.Limit.Spec().(weir.TokenBucket); ok {
		edit(&spec)
		c.Limit = weir.MustLimit(c.Limit.Name(), spec)
	}
}

func one(c weir.Claim) weir.Claim {
	c.Cost = 1
	return c
}

func countsRefusals(m *modelStore, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	granted, err := m.Decide(bg, claims, times, d)
	if err == nil && granted < times {
		for _, c := range claims {
			err = errors.Join(err, m.Charge(bg, []weir.Claim{one(c)}, nil))
		}
	}
	return granted, err
}

func chargesPeeks(m *modelStore, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	if times > 0 {
		return m.Decide(bg, claims, times, d)
	}
	for _, c := range claims {
		if c.Lease == "" {
			m.Decide(bg, []weir.Claim{one(c)}, 1, nil)
		}
	}
	return m.Decide(bg, claims, 0, d)
}

func chargesAllAsked(m *modelStore, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	granted, err := m.Decide(bg, claims, times, d)
	for n := granted; err == nil && n > 0 && n < times && n < 5; n++ {
		err = m.Charge(bg, claims, d)
	}
	return granted, err
}

func chargesOneByOne(m *modelStore, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	if times != 1 {
		return m.Decide(bg, claims, times, d)
	}
	all := int64(1)
	for i := range claims {
		granted, err := m.Decide(bg, claims[i:i+1], 1, nil)
		if err != nil {
			return 0, err
		}
		all = min(all, granted)
	}
	_, err := m.Decide(bg, claims, 0, d)
	return all, err
}

// asksThenTakes lets others in between.
func asksThenTakes(m *modelStore, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	asked := m.snapshot()
	granted, err := asked.Decide(bg, claims, times, d)
	runtime.Gosched()
	for range granted {
		err = errors.Join(err, m.Charge(bg, claims, nil))
	}
	return granted, err
}

// readsKeyByKey answers peeks and refusals without a common instant.
func readsKeyByKey(m *modelStore, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	granted, err := m.Decide(bg, claims, times, nil)
	for i := range claims {
		if _, err := m.Decide(bg, claims[i:i+1], 0, d[i:i+1]); err != nil {
			return 0, err
		}
		runtime.Gosched()
	}
	return granted, err
}

func (m *modelStore) snapshot() *modelStore {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clone(m.clock)
}

// grantsIfAnyIsLeft asks for one where it should ask for all.
func grantsIfAnyIsLeft(m *modelStore, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	if times != 1 || len(claims) > 1 || claims[0].Renew {
		return m.Decide(bg, claims, times, d)
	}
	granted, err := m.Decide(bg, []weir.Claim{one(claims[0])}, 1, d)
	if rest := claims[0]; granted == 1 && rest.Cost > 1 && rest.Lease == "" {
		rest.Cost--
		err = m.Charge(bg, []weir.Claim{rest}, d)
	}
	return granted, err
}

// countsInstantsOnce charges nothing where the instant was charged already.
func countsInstantsOnce() broken {
	last := make(map[string]weir.Instant)
	return broken{decide: func(m *modelStore, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
		if now := m.clock(); times == 1 && last[claims[0].Key] != now {
			last[claims[0].Key] = now
			return m.Decide(bg, claims, 1, d)
		}
		_, err := m.Decide(bg, claims, 0, d)
		return min(times, 1), err
	}}
}

// keepsBytes knows keys by strings that it did not copy.
func keepsBytes() broken {
	var kept []string
	return renaming(func(c *weir.Claim) {
		i := slices.Index(kept, c.Key)
		if i < 0 {
			i = len(kept)
			kept = append(kept, c.Key)
		}
		c.Key = fmt.Sprint("key ", i)
	})
}

// forgetsOthers keeps the state of few keys.
func forgetsOthers(m *modelStore, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	m.mu.Lock()
	if len(m.models) > 1000 {
		clear(m.models)
	}
	m.mu.Unlock()
	return m.Decide(bg, claims, times, d)
}

func failsWhenBusy() broken {
	var busy sync.Mutex
	return broken{decide: func(m *modelStore, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
		if !busy.TryLock() {
			return 0, errors.New("too much contention")
		}
		defer busy.Unlock()
		runtime.Gosched()
		return m.Decide(bg, claims, times, d)
	}}
}

// trustsAll does without the input check.
func trustsAll(m *modelStore, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	if err := weir.Check(claims, times, d); err != nil {
		return 0, nil
	}
	return m.Decide(bg, claims, times, d)
}

func chargesBeforeItChecks(m *modelStore, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	err := weir.Check(claims, times, d)
	if err != nil && len(claims) > 1 {
		m.Decide(bg, claims[:1], 1, nil)
	}
	if err != nil {
		return 0, err
	}
	return m.Decide(bg, claims, times, d)
}

func keepsRefunds(*modelStore, []weir.Claim, weir.Instant, []weir.Decision) error { return nil }

func refundsWhole(m *modelStore, claims []weir.Claim, taken weir.Instant, d []weir.Decision) error {
	whole := slices.Clone(claims)
	for i := range whole {
		whole[i].Delay = 0
	}
	return m.Refund(bg, whole, taken, d)
}

func refundsTwice(m *modelStore, claims []weir.Claim, taken weir.Instant, d []weir.Decision) error {
	err := m.Refund(bg, claims, taken, nil)
	again := m.Refund(bg, claims, taken, d)
	if errors.Is(again, weir.ErrLeaseGone) {
		again = nil
	}
	return errors.Join(err, again)
}

func never(d *weir.Decision) {
	if d.RetryAfter == weir.Never {
		d.RetryAfter = 1e9
	}
}

func sooner(d *weir.Decision) {
	if d.RetryAfter > 0 && d.RetryAfter != weir.Never {
		d.RetryAfter -= 1000
	}
}

func later(d *weir.Decision) {
	if d.RetryAfter > 0 && d.RetryAfter != weir.Never {
		d.RetryAfter += 1000
	}
}

// drawn runs a property on schedules by chance, without shrinking.
func drawn(kinds []string, p property) func(t TB, b *fixture) { return drawnTimes(300, kinds, p) }

func drawnTimes(times int, kinds []string, p property) func(t TB, b *fixture) {
	return func(t TB, b *fixture) {
		for seed := range times {
			p(t, b, anyKind(kinds).Example(seed))
		}
	}
}

func drawnChanges(from, to string, p func(t TB, b *fixture, c change)) func(t TB, b *fixture) {
	return func(t TB, b *fixture) {
		for seed := range 300 {
			p(t, b, changes(from, to).Example(seed))
		}
	}
}

func raced(t TB, b *fixture) {
	for seed := range uint64(100) {
		isLinearizable(t, b, oneOfEach[:1], rand.New(rand.NewPCG(seed, seed)))
	}
}

var (
	perNumbers = renaming(func(c *weir.Claim) {
		c.Limit = weir.MustLimit("n"+strings.Map(nameRune, c.Limit.String()), c.Limit.Spec())
	})
	nameless     = renaming(func(c *weir.Claim) { c.Limit = weir.MustLimit("same", c.Limit.Spec()) })
	double       = renaming(func(c *weir.Claim) { bucketOf(c, func(s *weir.TokenBucket) { s.Capacity *= 2 }) })
	milliseconds = clocked(func(now weir.Instant) weir.Instant { return now - now%1000 })
	stopped      = clocked(func(weir.Instant) weir.Instant { return epoch })
	trusting     = clocked(func(now weir.Instant) weir.Instant { return max(epoch, 2*epoch-now) })
)

// findings are stores that are wrong, and the checks that were written against them.
var findings = []struct {
	name  string
	store Subject
	check func(t TB, b *fixture)
}{
	{"counts refusals: model", broken{decide: countsRefusals}.subject(), drawn(kinds, equalsModel)},
	{"counts refusals", broken{decide: countsRefusals}.subject(), drawn(kinds, refusalsChangeNothing)},
	{"counts refusals: fault", broken{decide: countsRefusals}.subject(), refusalsAreFree},
	{"counts refusals: debt", broken{decide: countsRefusals}.subject(), debtStays},
	{"charges peeks", broken{decide: chargesPeeks}.subject(), drawn(kinds, refusalsChangeNothing)},
	{"charges all that is asked", broken{decide: chargesAllAsked}.subject(), drawn(kinds, partialGrants)},
	{"charges claims one by one", broken{decide: chargesOneByOne}.subject(),
		drawn([]string{"several"}, refusalsChangeNothing)},
	{"retry 1 µs late", editing(later).subject(), drawn(kinds, retryIsExact)},
	{"retry 1 µs early", editing(sooner).subject(), drawn(kinds, retryIsExact)},
	{"reset 1 µs late", editing(func(d *weir.Decision) { d.ResetAfter += 1000 }).subject(),
		drawn(kinds, resetIsExact)},
	{"reset never", stopped, drawn(kinds, resetIsExact)},
	{"refunds nothing", broken{refund: keepsRefunds}.subject(), drawn(kinds, refundUndoes)},
	{"refunds twice", broken{refund: refundsTwice}.subject(), drawn(kinds, refundUndoes)},
	{"resets nothing", broken{reset: func(*modelStore, []weir.Claim) error { return nil }}.subject(),
		drawn(kinds, neighboursStay)},
	{"state without the limit's name", nameless.subject(), drawn(kinds, neighboursStay)},
	{"twice the capacity", double.subject(), drawn([]string{"continuous bucket"}, staysBounded)},
	{"reads key by key", broken{decide: readsKeyByKey}.subject(), chargedTogether},
	{"asks, then takes", broken{decide: asksThenTakes}.subject(), raced},
	{"no input check", broken{decide: trustsAll}.subject(), badClaims},
	{"no input check of times", broken{decide: trustsAll}.subject(), badDecide},
	{"charges before it checks", broken{decide: chargesBeforeItChecks}.subject(), badClaims},
	{"keys of a fixed length", renaming(func(c *weir.Claim) { c.Key = c.Key[:1] }).subject(), oddKeys},
	{"a cost of 0 charges 1", renaming(func(c *weir.Claim) { c.Cost = max(c.Cost, 1) }).subject(), zeroCosts},

	{"state by numbers", perNumbers.subject(), drawnChanges("continuous bucket", "continuous bucket", usageIsKept)},
	{"state by numbers: windows", perNumbers.subject(),
		drawnChanges("fixed window epoch", "fixed window epoch", usageIsKept)},
	{"state by numbers: log", perNumbers.subject(), drawnChanges("sliding log", "sliding log", usageIsKept)},
	{"state by numbers: counter", perNumbers.subject(),
		drawnChanges("sliding counter", "sliding counter", usageIsKept)},
	{"state by numbers: modes", perNumbers.subject(), drawnChanges("step bucket", "continuous bucket", usageIsKept)},
	{"state by numbers: side by side", perNumbers.subject(),
		drawnChanges("continuous bucket", "continuous bucket", bucketsSideBySide)},
	{"late by 1 µs after a change", editing(later).subject(),
		drawnChanges("sliding log", "sliding log", exactAfterwards)},

	{"one grant an instant", countsInstantsOnce().subject(), instantCountsAll},
	{"a clock that is behind", trusting, slowClockAdmitsNothing},
	{"burst doubled", double.subject(), idlingSavesNothing},
	{"a deficit not refilled", stopped, deficitRefillsToCapacity},
	{"rates in milliseconds", milliseconds, ratesAreExact},
	{"drift in milliseconds", milliseconds, oddRateDoesNotDrift},
	{"tiny periods in milliseconds", milliseconds, tinyPeriodsLimit},
	{"too large with a finite wait", editing(never).subject(), tooLargeIsNever},
	{"9 + 9 of 10", broken{decide: grantsIfAnyIsLeft}.subject(), nineAndNine},
	{"stale slices", stopped, gapsForget},
	{"a ring read modulo", stopped, ringForgets},
	{"remaining one too low", editing(func(d *weir.Decision) { d.Remaining = max(0, d.Remaining-1) }).subject(),
		freshHasAll},
	{"a cancelled wait keeps its unit", broken{refund: keepsRefunds}.subject(), cancelledWaitGivesBack},
	{"a cancelled caller frees the last place", broken{refund: refundsWhole}.subject(), queuesStayEven},
	{"long windows cut short", renaming(func(c *weir.Claim) { c.Cost = int64(int32(c.Cost * 1000)) }).subject(),
		longWindowsFit},
	{"a new burst resets the usage", perNumbers.subject(), newBurstKeepsUsage},
	{"negative costs", broken{decide: trustsAll}.subject(), oddNumbersAreErrors},
	{"errors under contention", failsWhenBusy().subject(), contentionIsNoError},
	{"evicts refused keys", broken{decide: forgetsOthers}.subject(), floodForgetsNobody},
	{"keeps the caller's bytes", keepsBytes().subject(), keysAreCopied},
}

// TestTheSuiteCanFail: each check finds the store that was broken for it.
func TestTheSuiteCanFail(t *testing.T) {
	for _, test := range findings {
		t.Run(test.name, func(t *testing.T) {
			b := open(t, test.store)
			said := failure(func(t TB) { test.check(t, b) })
			if said == "" {
				t.Fatal("the check found nothing wrong")
			}
			t.Log(said)
		})
	}
}

func nameRune(r rune) rune {
	if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' {
		return r
	}
	return '-'
}

// planted is a model with state that is not its own.
type planted struct {
	broken
	at         string
	overwrites bool
	spoilsAll  bool // of a batch
}

type plant = func(claim weir.Claim) (unchanged func() bool)

// check opens a fixture on the store, with its Foreign functions.
func (p *planted) check(t testing.TB, check func(b *fixture, plant plant)) {
	b := open(t, func(t testing.TB, clock func() weir.Instant) Handle {
		p.modelStore = newModel(clock)
		return Handle{Store: p}
	})
	check(b, func(claim weir.Claim) func() bool {
		p.at = place(&claim)
		return func() bool { return p.at == place(&claim) }
	})
}

func (p *planted) refuses(claims []weir.Claim) error {
	for i := range claims {
		if place(&claims[i]) == p.at {
			if p.overwrites {
				p.at = ""
			}
			return weir.ErrForeignState
		}
	}
	return nil
}

func (p *planted) Decide(ctx context.Context, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
	if err := p.refuses(claims); err != nil {
		return 0, err
	}
	return p.broken.Decide(ctx, claims, times, d)
}

func (p *planted) Charge(ctx context.Context, claims []weir.Claim, d []weir.Decision) error {
	if err := p.refuses(claims); err != nil {
		return err
	}
	return p.broken.Charge(ctx, claims, d)
}

func (p *planted) Refund(ctx context.Context, claims []weir.Claim, taken weir.Instant, d []weir.Decision) error {
	if err := p.refuses(claims); err != nil {
		return err
	}
	return p.broken.Refund(ctx, claims, taken, d)
}

func TestForeignStateIsChecked(t *testing.T) {
	for overwrites, want := range map[bool]bool{false: false, true: true} {
		p := &planted{overwrites: overwrites}
		said := failure(func(tb TB) {
			p.check(t,
				func(b *fixture, plant plant) { keepsForeign(tb, b, weir.PerSecond(5), plant) })
		})
		if (said != "") != want {
			t.Fatalf("a store that overwrites (%v): the check said %q", overwrites, said)
		}
	}
}

func TestExpiryIsChecked(t *testing.T) {
	forgetful := func() broken {
		calls := 0
		return broken{decide: func(m *modelStore, claims []weir.Claim, times int64, d []weir.Decision) (int64, error) {
			m.mu.Lock()
			if calls++; calls > 150 {
				clear(m.models)
			}
			m.mu.Unlock()
			return m.Decide(bg, claims, times, d)
		}}
	}
	for name, check := range map[string]func(t TB) string{
		"forgets early": func(t TB) string { return failure(func(t TB) { expires(t, handleOf(forgetful()), 100) }) },
		"stays for ever": func(t TB) string {
			h := handleOf(broken{})
			h.Keys = func() (int, int) { return 1 << 20, 1 }
			return failure(func(t TB) { expires(t, h, 10) })
		},
		"forgets parts": func(t TB) string {
			return failure(func(t TB) {
				partsExpireTogether(t,
					handleOf(forgetful()))
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			said := check(t)
			if said == "" {
				t.Fatal("the check found nothing wrong")
			}
			t.Log(said)
		})
	}
}

func handleOf(b broken) Handle { return b.subject()(nil, nil) }
