package resp

import (
	"sync"
	"time"
)

const (
	// mostWrong is how many wrong passwords one connection may send.
	mostWrong = 5
	// freeGuesses is how many wrong passwords, of all connections together, cost no time; each
	// is forgiven after guessForgiven.
	freeGuesses   = 20
	guessForgiven = 100 * time.Millisecond
	// guessDelay is what each password costs while there were more: right or wrong, or the time
	// of the answer would tell.
	guessDelay = time.Second
)

// guesses counts wrong passwords. Refusing them instead of slowing them down would let anybody
// lock out everybody.
type guesses struct {
	mu     sync.Mutex
	before time.Time // when the last of those that were noted is forgiven
}

// note counts a wrong password.
func (g *guesses) note(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.before.Before(now) {
		g.before = now
	}
	if next := g.before.Add(guessForgiven); next.Sub(now) <= 2*freeGuesses*guessForgiven {
		g.before = next
	}
}

// many reports whether more were noted than cost no time.
func (g *guesses) many(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.before.Sub(now) >= freeGuesses*guessForgiven
}

// slowGuessing waits before a password is looked at, while many wrong ones come.
func (s *Server) slowGuessing() {
	if len(s.users) == 0 || !s.guesses.many(time.Now()) {
		return
	}
	wait := time.NewTimer(guessDelay)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-s.ctx.Done():
	}
}
