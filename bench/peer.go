package main

import "time"

// A Quota is the limit that every row enforces, in its own words: Burst units at once,
// then one each Every. Those who count in windows take it as Burst an hour.
type Quota struct {
	Burst int64
	Every time.Duration
}

const window = time.Hour

var (
	// generous is never exhausted in a run, and refills so slowly that no key is full
	// again when it is asked next: then its state would be that of a new key.
	generous = Quota{Burst: 1_000_000_000, Every: time.Second}
	// single is exhausted by the first question.
	single = Quota{Burst: 1, Every: window}
	// handful is what the self-check exhausts.
	handful = Quota{Burst: 5, Every: window}
)

// A Peer is a limiter under measurement, open for one quota.
type Peer interface {
	// Asker makes a question for one goroutine to ask, with buffers of its own.
	Asker() Asker
	Close()
}

// An Asker asks for one unit of a key.
type Asker func(key string) (granted bool, err error)

// A row is one line of a table.
type row struct {
	name string
	open func(Quota) (Peer, error)
	// floor: it limits nothing, and stands there for what cannot be beaten.
	floor bool
	// slack is how many units may come back during the self-check: 1 for a limiter that
	// cannot refill more slowly than once a second.
	slack int64
	// refuses says that the row is measured refusing too.
	refuses bool
}

// peer is a Peer made of its two functions.
type peer struct {
	asker func() Asker
	close func()
}

func (p peer) Asker() Asker { return p.asker() }

func (p peer) Close() {
	if p.close != nil {
		p.close()
	}
}

// shared is a Peer whose goroutines all ask the same question, without buffers.
func shared(ask Asker, close func()) Peer {
	return peer{func() Asker { return ask }, close}
}
