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
	few    [4]place // one a claim; in itself, so that it need not be allocated
	more   []place  // those beyond
	now    moment
	shards uint64 // a bit for each that is locked
}

// place is where a claim is decided.
type place struct {
	id      id     // of the claim's key, or of the overflow key of its limit
	entry   *entry // nil: a key never used
	shared  bool   // it is the overflow key
	claimed bool   // room was made for a key that is not there yet
	left    bool   // the claim is left out: there is no room for a new id
	twin    int    // 1 + the first claim on the same overflow key; 0: this is it, or there is none
	word    int64  // the entry's, as it was read without a lock
	part    int64
	seq     uint32
	held    *large // locked
	bytes   int64  // of a large state, as it is counted
	state   state
	limit   *weir.Limit // whose numbers the state is read under
}

// start finds the states of the claims.
func (t *transaction) start(s *Store, claims []weir.Claim) {
	t.begun(s, claims)
	for i := range claims {
		t.find(i)
		if t.place(i).entry == nil && s.shares(&claims[i]) && s.full(t.now) {
			t.overflow(i)
		}
	}
	t.pair()
}

// startRefund finds the entries that the claims were taken from at an instant: the overflow key if the store was full
// then, even if there is room for the key by now.
func (t *transaction) startRefund(s *Store, claims []weir.Claim, takenAt int64) {
	t.begun(s, claims)
	for i := range claims {
		t.find(i)
		if s.overflow.Load() > 0 && s.loans.settle(t.place(i).id.hash, takenAt, claims[i].Cost) {
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

func (t *transaction) find(i int) {
	t.place(i).id = t.store.id(t.claims[i].Key, t.claims[i].Limit)
	t.findAgain(i)
}

func (t *transaction) findAgain(i int) {
	p := t.place(i)
	p.entry = t.store.shard(p.id.hash).table.Load().find(p.id, t.claims[i].Limit)
}

// shares reports whether a claim may be decided on the overflow key.
func (s *Store) shares(c *weir.Claim) bool { return c.Lease == "" && !c.Once && !s.apart }

// overflow decides a claim on the overflow key of its limit.
func (t *transaction) overflow(i int) {
	t.store.overflow.Add(1)
	t.share(i)
}

// share makes a claim use the overflow key.
func (t *transaction) share(i int) {
	p := t.place(i)
	p.id, p.shared = t.store.overflowID(t.claims[i].Limit), true
	t.findAgain(i)
}

// pair finds the claims on one overflow key, of which only the first locks the key. Which claims share the key is known
// before a read, and may change when room is made: pair runs both times.
func (t *transaction) pair() {
	for i := range t.claims {
		if p := t.place(i); p.shared {
			p.twin = 1 + t.first(i)
		}
	}
}

// first is the first claim on the overflow key of claim i; −1 if that is i.
func (t *transaction) first(i int) int {
	for j := range i {
		if t.place(j).shared && t.claims[j].Limit.SameState(t.claims[i].Limit) {
			return j
		}
	}
	return -1
}

// run is Decide, once the states of the claims are known.
func (t *transaction) run(times int64, decisions []weir.Decision) (int64, error) {
	if granted, ok := t.refuse(times, decisions); ok {
		return granted, nil
	}
	defer t.unlock()
	if err := t.lock(); err != nil {
		return 0, err
	}
	t.back(times)
	granted := t.fit(times)
	if granted > 0 {
		if err := t.charge(granted); err != nil {
			return 0, err
		}
	}
	t.decide(decisions)
	t.stand(times, decisions)
	return granted, nil
}

// refuse answers without a mutex if the decision changes no state: a refusal, a peek, a cost of 0.
func (t *transaction) refuse(times int64, decisions []weir.Decision) (granted int64, ok bool) {
	read := 0
	for read < len(t.claims) && t.read(read) {
		read++
	}
	if ok = read == len(t.claims) && !t.ahead(times); ok {
		granted = t.fit(times)
		if ok = granted == 0 || !t.changes(); ok {
			t.decide(decisions)
			t.stand(times, decisions)
		}
	}
	for i := range read {
		ok = t.release(i) && ok
	}
	return granted, ok
}

// read takes a place's state without the shard's mutex, and locks a large one. ok is false
// if it is being written: waiting for one lock while others are held could last for ever.
func (t *transaction) read(i int) (ok bool) {
	p, limit := t.place(i), t.claims[i].Limit
	p.limit = limit
	if p.twin != 0 {
		return true
	}
	if p.entry == nil {
		p.state = unused(limit)
		return true
	}
	p.seq, p.word = p.entry.seq.Load(), p.entry.word.Load()
	own := p.entry.owner.Load()
	if p.word&locked != 0 {
		return false
	}
	if p.held = own.large(); p.held != nil && !p.entry.tryLarge(p.held) {
		return false
	}
	p.part = p.entry.part.Load()
	p.state = adopt(own.limit, limit, stateOf(p.word, p.part, p.held), t.now, false)
	return true
}

// release ends a read. It reports whether the place is unchanged: if all places are, the reads form one consistent
// state, because a writer locks all its entries before it changes one. A key that was absent must still be absent.
func (t *transaction) release(i int) bool {
	p := t.place(i)
	if p.twin != 0 {
		return true
	}
	if p.entry == nil {
		t.findAgain(i)
		return p.entry == nil
	}
	if p.held != nil { // it was locked
		p.held.mu.Unlock()
		return true
	}
	return p.entry.seq.Load() == p.seq && p.entry.part.Load() == p.part && p.entry.word.Load() == p.word
}

// lock makes room for the keys that are new, and locks. The error is ErrFull.
func (t *transaction) lock() error {
	for i := range t.claims {
		if p := t.place(i); p.entry != nil || p.shared {
			continue
		}
		if err := t.makeRoom(i); err != nil {
			return err
		}
	}
	t.lockShards()
	return nil
}

// lockShards takes the mutexes of the shards, in order, then the entries.
func (t *transaction) lockShards() {
	for i := range t.claims {
		t.shards |= 1 << (t.place(i).id.hash >> (64 - shardBits))
	}
	for rest := t.shards; rest != 0; rest &= rest - 1 {
		sh := &t.store.shards[bits.TrailingZeros64(rest)]
		sh.mu.Lock()
		t.store.reserve(sh, 2*len(t.claims)) // a new entry, and another one if its state needs another form
	}
	t.pair()
	for i := range t.claims {
		t.findAgain(i)
		if p := t.place(i); p.entry != nil && p.twin == 0 {
			p.entry.lock()
		}
	}
	t.now = t.store.now() // not before: a charge that came in between would be newer, see newest
	for i := range t.claims {
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
	case c.Once: // on the overflow key, one id would stand for all
		t.place(i).left = true
	case t.store.shares(c):
		t.overflow(i)
	case !c.Renew: // a renewal finds nothing, and takes nothing
		return ErrFull
	}
	return nil
}

// load reads the state of a locked entry, under the numbers that wrote it.
func (t *transaction) load(i int) {
	p := t.place(i)
	p.limit = t.claims[i].Limit
	switch {
	case p.twin != 0:
	case p.entry == nil:
		p.state = unused(p.limit)
	default:
		p.state, p.limit = p.entry.read(), p.entry.owner.Load().limit
		p.measure()
	}
}

// measure notes the bytes of a large state, and returns by how many it grew.
func (p *place) measure() (grown int64) {
	if p.state.large == nil {
		return 0
	}
	before := p.bytes
	p.bytes = p.state.large.size()
	return p.bytes - before
}

// unlock ends what lock began, also where that failed.
func (t *transaction) unlock() {
	for i := range t.claims {
		p := t.place(i)
		if p.entry != nil && p.twin == 0 && t.shards != 0 {
			p.entry.unlock()
		}
		if p.claimed {
			t.store.keys.Add(-1)
		}
	}
	for rest := t.shards; rest != 0; rest &= rest - 1 {
		t.store.shards[bits.TrailingZeros64(rest)].mu.Unlock()
	}
}

// ahead reports whether a clock that was wrong wrote the state of a claim that asks for units.
func (t *transaction) ahead(times int64) bool {
	for i := range t.claims {
		if c := &t.claims[i]; times > 0 && c.Cost > 0 && kindOf(c.Limit).ahead(c.Limit, t.view(i), t.now) {
			return true
		}
	}
	return false
}

// back corrects such states. A refusal corrects them too: otherwise it would last for as long as the clock was ahead.
func (t *transaction) back(times int64) {
	for i := range t.claims {
		c, p := &t.claims[i], t.place(t.root(i))
		if times > 0 && c.Cost > 0 && kindOf(c.Limit).ahead(c.Limit, t.view(i), t.now) {
			after, limit := kindOf(c.Limit).back(c.Limit, t.view(i), t.now), c.Limit
			if limit.Itemized() { // nothing is converted, and nothing charged
				limit = p.limit
			}
			t.write(p, limit, after)
			t.entered(p)
		}
	}
}

// entered notes that a key may expire sooner than before.
func (t *transaction) entered(p *place) {
	if !p.shared {
		t.store.shard(p.id.hash).entered(p.entry, t.now.at)
	}
}

// fit is how many of times requests every claim grants.
func (t *transaction) fit(times int64) int64 {
	for i := range t.claims {
		c := t.asked(i)
		times = min(times, fit(&c, t.view(i), times, t.now))
	}
	return times
}

// asked is the claim as it is decided: a claim on an overflow key has the sum of the costs of all claims on that key.
func (t *transaction) asked(i int) weir.Claim {
	c := t.claims[i]
	if !t.place(i).shared {
		return c
	}
	c.Cost = 0
	for j := range t.claims {
		if t.place(j).shared && t.root(j) == t.root(i) {
			c.Cost = min(c.Cost+t.claims[j].Cost, weir.MaxUnits)
		}
	}
	return c
}

// root is the claim that has the place of claim i.
func (t *transaction) root(i int) int {
	if twin := t.place(i).twin; twin != 0 {
		return twin - 1
	}
	return i
}

// view is the state of a claim's place under the claim's own numbers: another claim on the same key may have others.
func (t *transaction) view(i int) state {
	p := t.place(t.root(i))
	return t.store.asks(&t.claims[i], adopt(p.limit, t.claims[i].Limit, p.state, t.now, false))
}

// changes reports whether a grant would change anything: a lease is written even when it is only renewed.
func (t *transaction) changes() bool {
	for i := range t.claims {
		if t.claims[i].Cost != 0 || t.claims[i].Lease != "" {
			return true
		}
	}
	return false
}

// charge charges each claim its cost times over, or no claim at all: the error is ErrFull.
func (t *transaction) charge(times int64) error {
	if t.store.tight() && !t.spare(times) {
		return ErrFull
	}
	for i := range t.claims {
		c := &t.claims[i]
		if c.Cost == 0 && c.Lease == "" {
			continue
		}
		p := t.place(t.root(i))
		if p.entry == nil && p.left {
			continue
		}
		if p.entry == nil {
			t.insert(p, c.Limit)
		}
		units := min(c.Cost*times, weir.MaxUnits)
		switch {
		case c.Settle && p.limit != c.Limit:
			after, limit := settle(c, p.limit, t.store.asks(c, p.state), t.now)
			t.write(p, limit, after)
		default:
			before := t.store.asks(c, adopt(p.limit, c.Limit, p.state, t.now, true))
			t.write(p, c.Limit, kindOf(c.Limit).charge(c.Limit, before, units, t.now, c.Lease))
		}
		if p.shared {
			t.store.loans.add(t.store.id(c.Key, c.Limit).hash, t.now.at, units)
		}
	}
	return nil
}

// spare reports whether there is memory for what grows. A counter does if its numbers have more slices by now.
func (t *transaction) spare(times int64) bool {
	bytes := int64(0)
	for i := range t.claims {
		c, p, after := &t.claims[i], t.place(t.root(i)), t.view(i)
		if c.Renew || after.large == nil || c.Cost == 0 && c.Lease == "" {
			continue
		}
		bytes += kindOf(c.Limit).growth(after.large, c.Limit, c.Cost*times, t.now.at)
		if after.large != p.state.large {
			bytes += after.large.size() - p.bytes
		}
	}
	return t.store.spare(bytes)
}

// allHeld reports whether each lease on which a charge or a refund depends is held.
func (t *transaction) allHeld() bool {
	for i := range t.claims {
		c := &t.claims[i]
		if !c.Renew {
			continue
		}
		p := t.place(t.root(i))
		if p.entry == nil || !live(c, t.view(i), t.now) {
			return false
		}
	}
	return true
}

// spendLeases ends the leases on which a charge depended.
func (t *transaction) spendLeases() {
	for i := range t.claims {
		c := &t.claims[i]
		if !c.Renew {
			continue
		}
		p := t.place(t.root(i))
		after, limit, _ := refund(c, p.limit, t.store.asks(c, p.state), 0, t.now)
		t.write(p, limit, after)
		t.entered(p)
	}
}

// refund gives each claim back. ok is false if a lease was gone.
func (t *transaction) refund(takenAt int64) (ok bool) {
	ok = true
	for i := range t.claims {
		p, c := t.place(t.root(i)), &t.claims[i]
		switch {
		case c.Cost == 0 && c.Lease == "":
			continue
		case p.entry == nil:
			ok = t.found(c, false) && ok
			continue
		}
		after, limit, found := refund(c, p.limit, t.store.asks(c, p.state), takenAt, t.now)
		ok = t.found(c, found) && ok
		if after.large == nil && after == adopt(p.limit, limit, p.state, t.now, false) {
			continue // not even its limit is written: what others' numbers say stands
		}
		t.write(p, limit, after)
		t.entered(p)
	}
	return ok
}

// found counts a claim that had no units to give back. It returns false for a lease that was gone.
func (t *transaction) found(c *weir.Claim, found bool) bool {
	if !found && c.Lease == "" && !c.Limit.Refills() {
		t.store.unfound.Add(1)
	}
	return found || c.Lease == ""
}

// insert adds an entry for a new key, locked from its birth.
func (t *transaction) insert(p *place, limit *weir.Limit) {
	sh := t.store.shard(p.id.hash)
	p.entry = t.store.insert(sh, p.id, limit)
	p.state.large = p.entry.owner.Load().large()
	p.measure()
	if !p.claimed && !p.shared { // it was there when the search for room began
		t.store.keys.Add(1)
	}
	p.claimed = false
	sh.entered(p.entry, t.now.at)
}

// write puts a state into a place's locked entry, or into another one where the entry has not the form for it.
func (t *transaction) write(p *place, limit *weir.Limit, after state) {
	sh := t.store.shard(p.id.hash)
	own := p.entry.owner.Load()
	switch {
	case after.large != nil:
		if after.large.limit != limit {
			after.large = after.large.under(limit)
		}
		if own.large() != after.large {
			p.entry.become(after.large)
		}
	case own.limit != limit:
		p.entry.owner.Store(sh.owner(limit))
	}
	if part := form(limit, after); after.large == nil && !p.entry.holds(part) {
		next := sh.table.Load().put(p.id, sh.owner(limit), locked, part)
		p.entry.word.Store(dead) // not before: who finds neither takes the key for one never used
		sh.table.Load().live--
		p.entry = next
		sh.entered(p.entry, t.now.at)
	}
	after.until = 0
	p.state, p.limit = after, limit
	t.store.large.Add(p.measure())
	p.entry.write(after)
}

// decide describes each claim's state.
func (t *transaction) decide(decisions []weir.Decision) {
	for i := range decisions {
		c := t.asked(i)
		decide(&c, t.view(i), t.now, &decisions[i])
	}
}

// stand fills in the standings of the claims' members, if times is a peek.
func (t *transaction) stand(times int64, decisions []weir.Decision) {
	if times != 0 {
		return
	}
	for i := range decisions {
		c := t.asked(i)
		if kind, ok := kindOf(c.Limit).decider.(sharer); ok {
			standing := kind.standing(c.Limit, t.view(i), t.now)
			decisions[i].Standing = &standing
		}
	}
}
