package memstore

import (
	"math/bits"

	"github.com/weirproject/weir"
)

// transaction is one decision over several claims: read without locks, and if something
// is to change, under the mutexes of all its shards.
type transaction struct {
	store  *Store
	claims []weir.Claim
	few    [8]place // one a claim; in itself, so that it need not be allocated
	more   []place  // those beyond
	now    int64
	shards uint64 // a bit for each that is locked
}

// place is where a claim is decided.
type place struct {
	key     string // the claim's, or "" for the overflow key of its limit
	hash    uint64
	node    *node // nil: a key never used
	claimed bool  // room was made for a key that is not there yet
	twin    int   // 1 + the first claim on the same overflow key; 0: this is it, or there is none
	word    int64 // the node's, as it was read without a lock
	seq     uint32
	held    *large // under its read lock
	state   state
}

// start finds what the claims are decided on.
func (t *transaction) start(s *Store, claims []weir.Claim) {
	t.begun(s, claims)
	for i := range claims {
		t.find(i, claims[i].Key)
		if t.place(i).node == nil && claims[i].Lease == "" && s.full(t.now) {
			t.overflow(i)
		}
	}
}

// startRefund finds what the claims were taken from at an instant: the overflow key for a newcomer to a store that
// was full then, even if there is room for the key by now.
func (t *transaction) startRefund(s *Store, claims []weir.Claim, takenAt int64) {
	t.begun(s, claims)
	for i := range claims {
		t.find(i, claims[i].Key)
		if s.overflow.Load() > 0 && s.loans.settle(t.place(i).hash, takenAt, claims[i].Cost) {
			t.share(i)
		}
	}
}

func (t *transaction) begun(s *Store, claims []weir.Claim) {
	t.store, t.claims, t.now = s, claims, s.now()
	if len(claims) > len(t.few) {
		t.more = make([]place, len(claims)-len(t.few))
	}
}

func (t *transaction) place(i int) *place {
	if i < len(t.few) {
		return &t.few[i]
	}
	return &t.more[i-len(t.few)]
}

func (t *transaction) find(i int, key string) {
	p := t.place(i)
	p.key, p.hash = key, t.store.hash(key, t.claims[i].Limit)
	t.findAgain(i)
}

func (t *transaction) findAgain(i int) {
	p := t.place(i)
	p.node = t.store.shard(p.hash).table.Load().find(p.hash, p.key, t.claims[i].Limit)
}

// overflow sends a claim to the key that newcomers of its limit share.
func (t *transaction) overflow(i int) {
	t.store.overflow.Add(1)
	t.share(i)
}

// share has a claim decided on the overflow key.
func (t *transaction) share(i int) {
	t.find(i, "")
	for j := range i {
		if t.place(j).key == "" && t.place(j).twin == 0 && t.claims[j].Limit.SameState(t.claims[i].Limit) {
			t.place(i).twin = j + 1
		}
	}
}

// refuse answers without a mutex if nothing is to change: a refusal, a peek, a cost of 0.
func (t *transaction) refuse(times int64, decisions []weir.Decision) (granted int64, ok bool) {
	read := 0
	for read < len(t.claims) && t.read(read) {
		read++
	}
	if ok = read == len(t.claims); ok {
		granted = t.fit(times)
		if ok = granted == 0 || !t.changes(); ok {
			t.decide(decisions)
		}
	}
	for i := range read {
		ok = t.release(i) && ok
	}
	return granted, ok
}

// read takes a place's state without the mutex, a large one under its read lock. ok is
// false if it is being written.
func (t *transaction) read(i int) (ok bool) {
	p := t.place(i)
	if p.twin != 0 {
		p.state = t.place(t.root(i)).state
		return true
	}
	if p.node == nil {
		p.state = state{large: t.store.empty}
		return true
	}
	p.seq, p.word, p.held = p.node.seq.Load(), p.node.word.Load(), p.node.large()
	if p.seq&1 != 0 || p.word&locked != 0 {
		return false
	}
	if p.held != nil {
		p.held.mu.RLock()
	}
	s := state{a: p.word >> 1, b: p.node.part.Load(), large: p.held}
	p.state = adopt(p.node.limit.Load(), t.claims[i].Limit, s, t.now)
	return true
}

// release ends what read began. It reports whether the place stayed as it was: if all
// did, what was read was one state, because a writer locks all its nodes before it
// changes one. A key that was not there must not be there yet.
func (t *transaction) release(i int) bool {
	p := t.place(i)
	if p.twin != 0 {
		return true
	}
	if p.node == nil {
		t.findAgain(i)
		return p.node == nil
	}
	if p.held != nil {
		p.held.mu.RUnlock()
	}
	return p.node.seq.Load() == p.seq && p.node.word.Load() == p.word
}

// lock makes room for the keys that are new, and locks. The error is ErrFull.
func (t *transaction) lock() error {
	for i := range t.claims {
		if p := t.place(i); p.node != nil || p.key == "" {
			continue
		}
		if err := t.makeRoom(i); err != nil {
			return err
		}
	}
	t.lockShards()
	return nil
}

// lockShards takes the mutexes of the shards, in order, then the words of the nodes.
func (t *transaction) lockShards() {
	for i := range t.claims {
		t.shards |= 1 << (t.place(i).hash >> (64 - shardBits))
	}
	for rest := t.shards; rest != 0; rest &= rest - 1 {
		t.store.shards[bits.TrailingZeros64(rest)].mu.Lock()
	}
	for i := range t.claims {
		t.findAgain(i)
		t.load(i)
	}
}

// makeRoom claims a place for a new key, or sends it to the overflow key.
func (t *transaction) makeRoom(i int) error {
	if t.place(i).claimed = t.store.room(t.now); t.place(i).claimed {
		return nil
	}
	c := &t.claims[i]
	switch {
	case c.Lease == "":
		t.overflow(i)
	case !c.Renew: // a renewal finds nothing, and takes nothing
		return ErrFull
	}
	return nil
}

// load locks a node and reads its state under the numbers of the claim.
func (t *transaction) load(i int) {
	p := t.place(i)
	if p.twin != 0 {
		p.state = t.place(t.root(i)).state
		return
	}
	if p.node == nil {
		p.state = state{large: t.store.empty}
		return
	}
	p.node.lock()
	p.state = adopt(p.node.limit.Load(), t.claims[i].Limit, p.node.state(), t.now)
}

// unlock ends what lock began, also where that failed.
func (t *transaction) unlock() {
	for i := range t.claims {
		if p := t.place(i); p.node != nil && t.shards != 0 {
			p.node.unlock()
		}
		if t.place(i).claimed {
			t.store.keys.Add(-1)
		}
	}
	for rest := t.shards; rest != 0; rest &= rest - 1 {
		t.store.shards[bits.TrailingZeros64(rest)].mu.Unlock()
	}
}

// fit is how many of times requests every claim grants.
func (t *transaction) fit(times int64) int64 {
	for i := range t.claims {
		c := t.claims[i]
		if t.place(i).key == "" {
			c.Cost = t.shared(i)
		}
		times = min(times, fit(&c, t.place(i).state, times, t.now))
	}
	return times
}

// shared is what all claims on the overflow key of claim i cost together.
func (t *transaction) shared(i int) (cost int64) {
	for j := range t.claims {
		if t.place(j).key == "" && t.root(j) == t.root(i) {
			cost = min(cost+t.claims[j].Cost, weir.MaxUnits)
		}
	}
	return cost
}

// root is the claim whose place claim i is decided on.
func (t *transaction) root(i int) int {
	if twin := t.place(i).twin; twin != 0 {
		return twin - 1
	}
	return i
}

// changes reports whether a grant would change anything: a lease is written even when it
// is only renewed.
func (t *transaction) changes() bool {
	for i := range t.claims {
		if t.claims[i].Cost != 0 || t.claims[i].Lease != "" {
			return true
		}
	}
	return false
}

// charge charges each claim its cost times over.
func (t *transaction) charge(times int64) {
	for i := range t.claims {
		c := &t.claims[i]
		if c.Cost == 0 && c.Lease == "" {
			continue
		}
		p := t.place(t.root(i))
		t.begin(p, c.Limit)
		p.state = charge(c, p.state, min(c.Cost*times, weir.MaxUnits), t.now)
		p.end(c.Limit)
		t.place(i).state = p.state
		if p.key == "" {
			t.store.loans.add(t.store.hash(c.Key, c.Limit), t.now, min(c.Cost*times, weir.MaxUnits))
		}
	}
}

// refund gives each claim back. ok is false if a lease was gone.
func (t *transaction) refund(takenAt int64) (ok bool) {
	ok = true
	for i := range t.claims {
		p, c := t.place(t.root(i)), &t.claims[i]
		switch {
		case p.node == nil:
			ok = ok && c.Lease == ""
			continue
		case c.Cost == 0 && c.Lease == "":
			continue
		case !isLarge(c.Limit):
			after, _ := refund(c, p.state, takenAt, t.now)
			if after == p.state {
				continue // not even its limit is written: what others' numbers say stands
			}
		}
		t.begin(p, c.Limit)
		after, held := refund(c, p.state, takenAt, t.now)
		p.state, ok = after, ok && held
		p.end(c.Limit)
		t.place(i).state = p.state
		if p.key != "" {
			t.store.shard(p.hash).entered(p.node, t.now)
		}
	}
	return ok
}

// begin opens a place for a change: readers that began before will see that it changed.
func (t *transaction) begin(p *place, limit *weir.Limit) {
	if p.node == nil {
		t.insert(p, limit)
	}
	p.node.seq.Add(1)
	if p.state.large != nil {
		p.state.large.mu.Lock()
	}
}

func (p *place) end(limit *weir.Limit) {
	if p.state.large != nil {
		p.state.large.mu.Unlock()
	}
	p.node.store(limit, p.state)
	p.node.seq.Add(1)
}

// insert adds a node for a new key, locked from its birth.
func (t *transaction) insert(p *place, limit *weir.Limit) {
	p.node = newNode(p.key, limit)
	p.state.large = p.node.large()
	sh := t.store.shard(p.hash)
	t.store.put(sh, p.hash, p.node)
	if !p.claimed && p.key != "" { // it was there when the search for room began
		t.store.keys.Add(1)
	}
	p.claimed = false
	sh.entered(p.node, t.now)
}

// decide describes each claim's state.
func (t *transaction) decide(decisions []weir.Decision) {
	for i := range decisions {
		decisions[i] = decision(&t.claims[i], t.place(i).state, t.now)
	}
}
