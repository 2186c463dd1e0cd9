package faulttest

import (
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weirproject/weir"
)

const (
	roomyKeys = 32
	tightKeys = 16

	day       = 24 * time.Hour // no window ends and no token is refilled during a test
	freshAsks = 2 * freshUnits // of one fresh key, in a row
)

// Capacities of keys. Roomy keys are never refused, so that the units in Redis can be compared with the grants. Tight
// keys are soon exhausted, so that any further grant is one too many. A fresh key is always about to be exhausted.
const (
	roomyUnits = 1_000_000_000
	tightUnits = 5
	freshUnits = 3
)

// traffic chooses decisions: roomy, tight and fresh keys in turn, and now and then one decision over two roomy
// keys, which in a Cluster are in different slots.
type traffic struct {
	mu       sync.Mutex
	count    int
	prefix   string
	accounts *accounts

	roomyLimit, tightLimit, freshLimit *weir.Limit
	roomy, tight                       []*account
	fresh                              *account
	made                               int // fresh keys
}

// An ask is one decision, and the accounts of its keys.
type ask struct {
	claims   []weir.Claim
	accounts [2]*account // the second is nil for one claim
}

func newTraffic(prefix string, b *accounts) *traffic {
	t := &traffic{
		prefix: prefix, accounts: b,
		roomyLimit: weir.MustLimit("roomy", weir.FixedWindow{Limit: roomyUnits, Window: day}),
		tightLimit: weir.MustLimit("tight", weir.TokenBucket{Capacity: tightUnits, Refill: 1, Period: day}),
		freshLimit: weir.MustLimit("fresh", weir.FixedWindow{Limit: freshUnits, Window: day}),
	}
	for i := range roomyKeys {
		t.roomy = append(t.roomy, b.open(t.key("roomy", i), t.roomyLimit))
	}
	for i := range tightKeys {
		t.tight = append(t.tight, b.open(t.key("tight", i), t.tightLimit))
	}
	b.lasting = slices.Concat(t.roomy, t.tight)
	return t
}

func (t *traffic) key(kind string, i int) string { return t.prefix + kind + strconv.Itoa(i) }

func (t *traffic) next() ask {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.count
	t.count++
	round := n / 8
	switch n % 8 {
	case 0:
		return askOf(t.roomy[round%roomyKeys], t.roomy[(round+1)%roomyKeys])
	case 1, 2, 3:
		return askOf(t.roomy[(3*round+n%8)%roomyKeys])
	case 4, 5:
		return askOf(t.tight[(2*round+n%8)%tightKeys])
	}
	return askOf(t.nextFresh())
}

func (t *traffic) nextFresh() *account {
	if t.fresh == nil || t.fresh.begun == freshAsks {
		t.fresh = t.accounts.open(t.key("fresh", t.made), t.freshLimit)
		t.made++
	}
	t.fresh.begun++
	return t.fresh
}

func askOf(of ...*account) ask {
	var a ask
	for i, b := range of {
		a.claims = append(a.claims, weir.Claim{Key: b.key, Limit: b.limit, Cost: 1})
		a.accounts[i] = b
	}
	return a
}
