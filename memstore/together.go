package memstore

import "github.com/weirproject/weir"

// together is one request of several claims on known keys with small states: read all, and if all grant, lock the words
// and write. It waits for nobody: where something is locked or changes meanwhile, a transaction decides.
type together struct {
	store *Store
	now   int64
	holds [4]hold
	count int
}

// hold is a claim's entry as it was read, and what a grant leaves of it.
type hold struct {
	entry  *entry
	owner  *owner
	word   int64
	part   int64
	seq    uint32
	writes bool
	locked bool
	after  state
}

// decideTogether is Decide of a few claims, once. ok is false, and nothing was done, where a transaction must decide.
func (s *Store) decideTogether(claims []weir.Claim, decisions []weir.Decision) (granted int64, ok bool) {
	t := together{store: s, now: s.now(), count: len(claims)}
	if !t.find(claims) {
		return 0, false
	}
	var unwanted weir.Decision
	granted = 1
	for i := range claims {
		d := &unwanted
		if decisions != nil {
			d = &decisions[i]
		}
		if !t.try(i, &claims[i], d) {
			granted = 0
		}
	}
	if granted == 1 {
		return 1, t.write(claims)
	}
	for i := range decisions {
		if t.holds[i].writes { // it would have been granted: this is what it has without
			h := &t.holds[i]
			decide(&claims[i], stateOf(h.word, h.part, nil), t.now, &decisions[i])
		}
	}
	return 0, t.unchanged()
}

func (t *together) find(claims []weir.Claim) bool {
	var a, b uint64
	for i := range claims {
		c, h := &claims[i], &t.holds[i]
		if i == 0 || c.Key != claims[i-1].Key {
			a, b = t.store.keyer.sum(c.Key)
		}
		key := makeID(a, b, c.Limit)
		h.entry = t.store.shard(key.hash).table.Load().find(key, c.Limit)
		if h.entry == nil {
			return false
		}
		h.seq, h.word, h.part = h.entry.seq.Load(), h.entry.word.Load(), h.entry.part.Load()
		h.owner = h.entry.owner.Load()
		if h.word&locked != 0 || h.owner.large != nil {
			return false
		}
		if h.owner.limit != c.Limit && (h.part >= 0 || form(c.Limit, state{}) != h.part) { // of other numbers: see Adopt
			return false
		}
	}
	return true
}

// try is one of the claims, on what was read.
func (t *together) try(i int, c *weir.Claim, d *weir.Decision) (granted bool) {
	h := &t.holds[i]
	h.after, granted = try(c.Limit, stateOf(h.word, h.part, nil), c.Cost, t.now, d)
	h.writes = granted && c.Cost > 0
	return granted
}

// write locks what a grant changes and writes it, if nothing changed since it was read.
func (t *together) write(claims []weir.Claim) (ok bool) {
	ok = true
	for i := range t.count {
		h := &t.holds[i]
		if h.writes && (!ok || !h.entry.holds(form(claims[i].Limit, h.after)) || !h.entry.word.CompareAndSwap(h.word, h.word|locked)) {
			ok = false
			continue
		}
		h.locked = h.writes
	}
	ok = ok && t.unchanged()
	for i := range t.count {
		switch h := &t.holds[i]; {
		case !h.locked:
		case !ok:
			h.entry.word.Store(h.word)
		case h.part < 0:
			h.entry.word.Store(pack(h.after))
		default:
			h.entry.part.Store(h.after.b)
			h.entry.word.Store(h.after.a << 1)
		}
	}
	return ok
}

// unchanged reports whether all entries are as they were read, but for the locks that are held here.
func (t *together) unchanged() bool {
	for i := range t.count {
		h := &t.holds[i]
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
