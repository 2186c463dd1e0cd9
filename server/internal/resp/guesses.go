package resp

import (
	"sync"
	"time"

	"github.com/weirproject/weir/internal/pause"
)

const (
	// maxWrongPasswords is how many wrong passwords one connection may send.
	maxWrongPasswords = 5
	// freeGuesses is how many wrong passwords of all connections together are not delayed; each is
	// forgotten after guessForgotten.
	freeGuesses    = 20
	guessForgotten = 100 * time.Millisecond
	// guessDelay delays each password after more of them, right or wrong: otherwise the time of the
	// answer would tell which it is.
	guessDelay = time.Second
)

// guesses counts wrong passwords. They are delayed, not refused: refusing would let anyone lock out
// everyone.
type guesses struct {
	mu  sync.Mutex
	end time.Time // when the last of them is forgotten
}

// note counts a wrong password.
func (g *guesses) note(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.end.Before(now) {
		g.end = now
	}
	if next := g.end.Add(guessForgotten); next.Sub(now) <= 2*freeGuesses*guessForgotten {
		g.end = next
	}
}

// many reports whether there were more than freeGuesses.
func (g *guesses) many(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.end.Sub(now) >= freeGuesses*guessForgotten
}

// delayGuess waits before a password is checked, if there were many wrong ones.
func (s *Server) delayGuess() {
	if len(s.users) > 0 && s.guesses.many(time.Now()) {
		pause.For(guessDelay, s.ctx.Done())
	}
}
