package lease

import "github.com/weirproject/weir"

// A state is where units are charged. Leases with other claims, costs or numbers may charge the same one.
type state struct {
	name      string
	algorithm weir.Algorithm
	key       string
}

// accounts count the units of each state that the node holds or has asked for, over all leases. Units count
// until they are spent, or their refund has ended.
type accounts map[state]int64

func stateOf(c *weir.Claim) state { return state{c.Limit.Name(), c.Limit.Algorithm(), c.Key} }

// account adds n requests of an entry, possibly negative, to what the node holds. Under Store.mu.
func (s *Store) account(e *entry, n int64) {
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

// size is the number of requests for the next grant of an entry. Under Store.mu.
func (s *Store) size(e *entry) int64 {
	n := min(e.want, e.room.Load())
	for i := 0; n >= least && i < len(e.claims); i++ {
		n = min(n, (e.shares[i].most-s.accounts[stateOf(&e.claims[i])])/e.claims[i].Cost)
	}
	return n
}
