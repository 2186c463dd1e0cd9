package memstore

import (
	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm/bucket"
)

// together is one request of several claims on known keys: read all, and if all grant, lock the words and write. Large
// states are locked from the start. It never waits: if an entry is locked or changes meanwhile, a transaction
// decides. It has a hold for each claim.
type together []hold

// hold is a claim's entry as it was read, and its state after a grant.
type hold struct {
	entry  *entry
	owner  *owner
	large  *large // nil: a small state
	word   int64
	part   int64
	seq    uint32
	a, b   int64 // the state that a grant leaves
	writes bool  // a grant changes it
	locked bool  // the word, or a large state
}

// fewTogether is the largest number of claims of a decision that needs little of the stack.
const fewTogether = 4

// decideTogether is Decide of several claims, once. ok is false, and no state changed, where a transaction must decide.
func (s *Store) decideTogether(claims []weir.Claim, decisions []weir.Decision) (granted int64, ok bool) {
	if len(claims) > fewTogether {
		return s.decideMany(claims, decisions)
	}
	var holds [fewTogether]hold
	return together(holds[:len(claims)]).run(s, claims, decisions)
}

// decideMany is apart, as clearing its holds takes longer than deciding one claim.
func (s *Store) decideMany(claims []weir.Claim, decisions []weir.Decision) (granted int64, ok bool) {
	var holds [weir.MaxClaims]hold
	return together(holds[:len(claims)]).run(s, claims, decisions)
}

func (t together) run(s *Store, claims []weir.Claim, decisions []weir.Decision) (granted int64, ok bool) {
	now := s.now()
	newer, ok := t.find(s, claims, now)
	if newer {
		now = s.now()
	}
	if ok {
		granted, ok = t.decide(s, claims, decisions, now)
	}
	t.unlock()
	return granted, ok
}

func (t together) decide(s *Store, claims []weir.Claim, decisions []weir.Decision, now moment) (count int64, ok bool) {
	count = 1
	for i := range t {
		if !t[i].try(s, &claims[i], &decisions[i], now) {
			count = 0
		}
	}
	if count == 1 {
		return 1, t.write(s, claims, decisions, now)
	}
	for i := range t {
		if h := &t[i]; h.writes && h.large == nil { // granted by itself: describe it without the charge
			decide(&claims[i], stateOf(h.word, h.part, nil), now, &decisions[i])
		}
	}
	return 0, t.unchanged()
}

// find reads the claims' entries. newer is whether a state is newer than that reading of the clock: see newest.
func (t together) find(s *Store, claims []weir.Claim, now moment) (newer, ok bool) {
	var a, b uint64
	for i := range t {
		c, h := &claims[i], &t[i]
		if i == 0 || c.Key != claims[i-1].Key {
			a, b = s.keyer.sum(c.Key)
		}
		key := makeID(a, b, c.Limit)
		h.entry = s.shard(key.hash).table.Load().find(key, c.Limit)
		if h.entry == nil {
			return false, false
		}
		h.seq, h.word, h.part = h.entry.seq.Load(), h.entry.word.Load(), h.entry.part.Load()
		h.owner = h.entry.owner.Load()
		if h.word&locked != 0 || !h.readable(c) {
			return false, false
		}
		if h.part >= 0 && kindOf(c.Limit).newest(c.Limit, stateOf(h.word, h.part, h.large)) > now.at {
			newer = true
			if kindOf(c.Limit).ahead(c.Limit, stateOf(h.word, h.part, h.large), now) {
				return false, false
			}
		}
	}
	return newer, true
}

// readable reports whether the claim can be tried on the entry; it locks a large state.
func (h *hold) readable(c *weir.Claim) bool {
	if h.owner.limit != c.Limit { // it must be adopted, unless only a bucket's capacity may differ
		return h.part < 0 && form(c.Limit, state{}) == h.part
	}
	if h.large = h.owner.large(); h.large == nil {
		return true
	}
	if kindOf(c.Limit).taker == nil {
		return false
	}
	h.locked = h.entry.tryLarge(h.large)
	return h.locked
}

// try decides one of the claims on the state that was read. It does not charge.
func (h *hold) try(s *Store, c *weir.Claim, d *weir.Decision, now moment) (granted bool) {
	h.a, h.b, granted = h.take(s, c, d, now, true)
	h.writes = granted && c.Cost > 0
	return granted
}

// take decides one of the claims on the state that was read.
func (h *hold) take(s *Store, c *weir.Claim, d *weir.Decision, now moment, peeks bool) (a, b int64, granted bool) {
	st := stateOf(h.word, h.part, h.large)
	d.At, d.Standing = weir.Instant(now.at), nil
	if h.part < 0 { // of a bucket
		after, remaining, retryAfter, resetAfter, delay, granted, ok := bucket.Take(c.Limit, bucketOf(st), c.Cost,
			c.Floor, now.at)
		if ok {
			d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay = remaining, retryAfter, resetAfter, delay
			return after.At, after.Part, granted
		}
	}
	if h.large != nil {
		st = s.asks(c, st)
	}
	k := kindOf(c.Limit)
	a, b, d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay, granted = k.take(c.Limit, st, c.Cost, c.Floor, now, peeks)
	return a, b, granted
}

// write locks the entries that a grant changes and writes them, if they are unchanged since they were read.
func (t together) write(s *Store, claims []weir.Claim, decisions []weir.Decision, now moment) bool {
	for i := range t {
		if h := &t[i]; h.writes && !h.lock(claims[i].Limit) {
			return false
		}
	}
	if !t.unchanged() || s.tight() && !s.spare(t.growth(claims, now.at)) {
		return false
	}
	for i := range t {
		h, c := &t[i], &claims[i]
		switch {
		case !h.writes:
		case h.large != nil:
			grown, _, _ := h.take(s, c, &decisions[i], now, false)
			s.grown(grown)
		case h.part < 0:
			h.word = pack(state{a: h.a, b: h.b})
		default:
			h.entry.part.Store(h.b)
			h.word = h.a << 1
		}
	}
	return true
}

// growth is by how many bytes a grant makes the states larger.
func (t together) growth(claims []weir.Claim, now int64) (bytes int64) {
	for i := range t {
		if h := &t[i]; h.writes && h.large != nil {
			bytes += kindOf(claims[i].Limit).growth(h.large, claims[i].Limit, claims[i].Cost, now)
		}
	}
	return bytes
}

// lock locks an entry if it is unchanged since it was read.
func (h *hold) lock(l *weir.Limit) bool {
	if h.large == nil {
		fits := h.part >= 0 || form(l, state{a: h.a, b: h.b}) == h.part
		h.locked = fits && h.entry.word.CompareAndSwap(h.word, h.word|locked)
	}
	return h.locked
}

// unchanged reports whether all entries are as they were read, but for the locks that are held here.
func (t together) unchanged() bool {
	for i := range t {
		h := &t[i]
		if h.large != nil || h.locked && h.part < 0 { // a narrow word is the whole state
			continue
		}
		word := h.word
		if h.locked {
			word |= locked
		}
		e := h.entry
		if e.word.Load() != word || e.part.Load() != h.part || e.seq.Load() != h.seq || e.owner.Load() != h.owner {
			return false
		}
	}
	return true
}

// unlock publishes written states and releases all locks.
func (t together) unlock() {
	for i := range t {
		switch h := &t[i]; {
		case !h.locked:
		case h.large != nil:
			h.large.mu.Unlock()
		default:
			h.entry.word.Store(h.word)
		}
	}
}
