package memstore

import (
	"sync"
)

// maxLoans bounds the grants on overflow keys that are remembered.
const maxLoans = 4096

// loans are the latest grants on overflow keys, so that a refund finds the key it was taken from. The refund of an
// older grant goes to the key itself: such misplaced refunds are at most the grants of the overflow key.
type loans struct {
	mu     sync.Mutex
	units  map[loan]int64
	recent []loan // a ring
	next   int
}

type loan struct {
	hash uint64 // of the key and its limit
	at   int64
}

func (l *loans) add(hash uint64, at, units int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.units == nil {
		l.units, l.recent = make(map[loan]int64), make([]loan, maxLoans)
	}
	one := loan{hash, at}
	if _, known := l.units[one]; !known {
		delete(l.units, l.recent[l.next])
		l.recent[l.next] = one
		l.next = (l.next + 1) % maxLoans
	}
	l.units[one] += units
}

// settle reports whether units were taken from the overflow key, and counts them as given back.
func (l *loans) settle(hash uint64, at, units int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	left, known := l.units[loan{hash, at}]
	if !known || left < units {
		return false
	}
	l.units[loan{hash, at}] = left - units
	return true
}
