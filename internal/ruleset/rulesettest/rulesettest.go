// Package rulesettest has what tests of sources and of ledgers share.
package rulesettest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/weirproject/weir/internal/ruleset"
	"github.com/weirproject/weir/internal/ruleset/ledger"
)

// A Followed is a source in a bubble of package synctest, and the updates that it sent.
type Followed struct {
	*ruleset.Follower
	t   testing.TB
	End func() // ends the source

	mu      sync.Mutex
	updates []ruleset.Update
	last    string
}

// Follow begins to follow a source.
func Follow(t testing.TB, s ruleset.Source) *Followed {
	f := &Followed{t: t}
	f.Follower = ruleset.Follow(s, f.receive)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan bool)
	go func() { f.Run(ctx); close(ended) }()
	f.End = func() {
		cancel()
		<-ended
	}
	return f
}

// receive records the request, and the rules or error that the Manager would put in force or report.
func (f *Followed) receive(n ruleset.Update, done func(error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := fmt.Sprint(n.Revision, n.Err != nil)
	if done != nil {
		done(n.Err)
	}
	if done != nil || text != f.last {
		f.updates = append(f.updates, n)
	}
	f.last = text
}

// Updates are those since the last call of Sent.
func (f *Followed) Updates() []ruleset.Update {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.updates)
}

// Sent compares the updates since the last call: the limit of the first rule, or "bad: " and a part of the error.
func (f *Followed) Sent(want ...string) {
	f.t.Helper()
	updates := f.Updates()
	f.mu.Lock()
	f.updates = f.updates[len(updates):]
	f.mu.Unlock()
	var got []string
	for _, n := range updates {
		if n.Err != nil {
			got = append(got, "bad: "+n.Err.Error())
		} else {
			got = append(got, n.File.Rules[0].Limit[0])
		}
	}
	same := func(got, want string) bool {
		part, bad := strings.CutPrefix(want, "bad: ")
		return got == want || bad && strings.HasPrefix(got, "bad: ") && strings.Contains(got, part)
	}
	if !slices.EqualFunc(got, want, same) {
		f.t.Errorf("sent was %q, not %q", got, want)
	}
}

// Done returns a function that fails the test unless a change of a ledger was made, and made this revision.
func Done(t testing.TB, want int64) func(int64, error) {
	t.Helper()
	return func(got int64, err error) {
		t.Helper()
		if err != nil || got != want {
			t.Fatalf("revision %d, %v; want %d", got, err, want)
		}
	}
}

// Conflict returns a function that fails the test unless a change of a ledger was refused because the rule is at
// another revision.
func Conflict(t testing.TB, want int64) func(int64, error) {
	t.Helper()
	return func(got int64, err error) {
		t.Helper()
		var c *ledger.ConflictError
		if !errors.As(err, &c) || c.Is != want || got != 0 {
			t.Fatalf("revision %d, %v; want a conflict with %d", got, err, want)
		}
	}
}
