package lease

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
)

// An entry is a lease: a sequence of grants for the same claims.
type entry struct {
	hash   uint64
	next   atomic.Pointer[entry] // in its bucket
	claims []weir.Claim          // with copied keys
	grant  atomic.Pointer[grant] // nil: none yet

	shares []share
	hold   time.Duration
	room   atomic.Int64 // requests that the shares of the last known remainder allow
	seen   atomic.Int64 // when a caller last found no grant to spend

	// Under Store.mu:
	want      int64   // requests in half a holding time, by the key's rate
	flight    *flight // the call for the next grant, if under way
	rests     int64   // until then it takes no grant, but is kept
	gone      bool    // removed from the table
	forgotten []bool  // claims that were reset: their charges are void
}

// A share bounds what a claim of an entry may take.
type share struct {
	part float64 // fraction of the remainder
	most int64   // units that the node may hold
}

func (e *entry) is(claims []weir.Claim) bool {
	if len(claims) != len(e.claims) {
		return false
	}
	for i := range claims {
		own, c := &e.claims[i], &claims[i]
		if own.Limit != c.Limit || own.Cost != c.Cost || own.Key != c.Key || c.Lease != "" || c.Renew {
			return false
		}
	}
	return true
}

// spend decides a request from the grant.
func (e *entry) spend(now int64, decisions []weir.Decision) bool {
	g := e.grant.Load()
	left, ok := g.spend(now)
	if ok {
		g.describe(e.claims, left, now, decisions)
	}
	return ok
}

// spendOne is spend of an entry of one claim, of whose grant no request has a Delay.
func (e *entry) spendOne(now int64) (remaining int64, retryAfter, resetAfter time.Duration, at weir.Instant, ok bool) {
	g := e.grant.Load()
	if g == nil || g.delayed {
		return 0, 0, 0, 0, false
	}
	left, ok := g.spend(now)
	if !ok {
		return 0, 0, 0, 0, false
	}
	d := &g.decisions[0]
	if left == 0 {
		retryAfter = d.RetryAfter
	}
	return d.Remaining + left*e.claims[0].Cost, retryAfter, d.ResetAfter, d.At, true
}

// share is the number of requests that the shares of the remainder allow.
func (e *entry) share(decisions []weir.Decision) int64 {
	n := int64(weir.MaxUnits)
	for i := range e.shares {
		n = min(n, part(e.shares[i].part, decisions[i].Remaining)/e.claims[i].Cost)
	}
	return n
}

// growth bounds the size of a grant relative to the last: a burst is not a rate.
const growth = 8

// learn adapts the next size to how fast the grant was used. Under Store.mu.
func (e *entry) learn(g *grant, left, now int64) {
	used, took := g.size-left, max(now-g.landed, 1)
	want := float64(used) * float64(e.hold/2) / float64(took)
	e.want = int64(min(want, float64(growth*g.size)))
}

// hash returns the hash of claims; ok is false where one can never be leased.
func (s *Store) hash(claims []weir.Claim) (hash uint64, ok bool) {
	for i := range claims {
		c := &claims[i]
		if c.Limit == nil || c.Cost == 0 || c.Once {
			return 0, false
		}
		hash = s.seed.Claim(hash, c.Key, c.Limit, c.Cost)
	}
	return hash, len(claims) > 0
}

func (s *Store) bucket(hash uint64) *atomic.Pointer[entry] {
	return &s.buckets[hash&uint64(len(s.buckets)-1)]
}

func (s *Store) find(hash uint64, claims []weir.Claim) *entry {
	e := s.bucket(hash).Load()
	for e != nil && !(e.hash == hash && e.is(claims)) {
		e = e.next.Load()
	}
	return e
}

// findOne is find for one claim.
func (s *Store) findOne(hash uint64, key string, l *weir.Limit, cost int64) *entry {
	for e := s.bucket(hash).Load(); e != nil; e = e.next.Load() {
		if e.hash == hash && len(e.claims) == 1 && e.claims[0].Limit == l && e.claims[0].Cost == cost &&
			e.claims[0].Key == key {
			return e
		}
	}
	return nil
}

// newEntry copies the claims, whose memory is the caller's.
func newEntry(hash uint64, claims []weir.Claim, shares []share, hold time.Duration) *entry {
	e := &entry{hash: hash, shares: shares, hold: hold, forgotten: make([]bool, len(claims))}
	for _, c := range claims {
		c.Key = strings.Clone(c.Key)
		e.claims = append(e.claims, c)
	}
	return e
}

// link puts an entry into the table, whose readers take no lock. Under Store.mu.
func (s *Store) link(e *entry) {
	head := s.bucket(e.hash)
	e.next.Store(head.Load())
	head.Store(e)
	s.stats.Leases++
}

// unlink removes entries from the table; calls under way for them finish. Under Store.mu.
func (s *Store) unlink(which func(*entry) bool) (out []*entry) {
	for i := range s.buckets {
		link := &s.buckets[i]
		for e := link.Load(); e != nil; e = link.Load() {
			if !which(e) {
				link = &e.next
				continue
			}
			link.Store(e.next.Load())
			e.gone = true
			s.stats.Leases--
			out = append(out, e)
		}
	}
	return out
}
