package lease

import "github.com/weirproject/weir"

// A state is where units are charged. Leases of several tuples, of several costs, or under
// numbers that have changed may be of one.
type state struct {
	name      string
	algorithm weir.Algorithm
	key       string
}

// accounts are how many units of each state the node holds or has asked for, whichever
// leases they are in. Units count until they are spent, or until their way back is over.
type accounts map[state]int64

func stateOf(c *weir.Claim) state { return state{c.Limit.Name(), c.Limit.Algorithm(), c.Key} }

// book adds n requests of an entry to what the node holds; n below 0 takes them off.
// Under Store.mu.
func (s *Store) book(e *entry, n int64) {
	if n == 0 {
		return
	}
	for i := range e.claims {
		at := stateOf(&e.claims[i])
		if s.accounts[at] += n * e.claims[i].Cost; s.accounts[at] == 0 {
			delete(s.accounts, at)
		}
	}
}

// size is how many requests the next grant of an entry should be for. Under Store.mu.
func (s *Store) size(e *entry) int64 {
	n := min(e.want, e.room.Load())
	for i := 0; n >= least && i < len(e.claims); i++ {
		n = min(n, (e.shares[i].most-s.accounts[stateOf(&e.claims[i])])/e.claims[i].Cost)
	}
	return n
}
