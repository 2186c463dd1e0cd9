package faulttest

import (
	"errors"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/weirproject/weir"
)

// A book is what is known of one key. The books' lock guards it.
type book struct {
	key   string
	limit *weir.Limit
	begun int // decisions asked for; of fresh keys, under traffic's lock

	granted int64 // decisions that were answered so: each is one unit
	unknown int64 // failed decisions that may have been charged
	refused int64
	last    time.Time     // when Redis last decided
	gap     time.Duration // the longest time without a decision since the mark
}

// books are what all answers were.
type books struct {
	mu  sync.Mutex
	all []*book

	asked, granted, refused, failed int64
	times                           histogram
	failures                        map[string]int64
	wrong                           []string
}

const (
	mostWrong    = 8  // wrong answers that are told
	mostFailures = 16 // texts of errors that are told apart
)

func newBooks() *books { return &books{failures: make(map[string]int64)} }

func (b *books) open(key string, limit *weir.Limit) *book {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := &book{key: key, limit: limit}
	b.all = append(b.all, one)
	return one
}

// lasting are the keys that are asked for all the time.
func (b *books) lasting() []*book { return b.all[:roomyKeys+tightKeys] }

func (b *books) mark() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.all {
		one.gap = 0
	}
}

// enter writes an answer down.
func (b *books) enter(a ask, begun time.Time, granted int64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now() // under the lock, so that times do not step back
	b.asked++
	b.times.add(now.Sub(begun))
	switch {
	case err != nil:
		b.fail(a, err)
		return
	case granted == 1:
		b.granted++
	case a.books[0].limit.Capacity() == roomyUnits:
		b.tell("a key with room was refused: " + a.books[0].key)
	default:
		b.refused++
		a.books[0].refused++
	}
	for _, one := range a.books {
		if one != nil {
			one.decided(now, granted)
		}
	}
}

func (b *book) decided(now time.Time, granted int64) {
	b.granted += granted
	if !b.last.IsZero() {
		b.gap = max(b.gap, now.Sub(b.last))
	}
	b.last = now
}

// fail writes an error down. Of a decision over two keys it is known of neither whether it
// was charged: one may have been, and the giving back have failed.
func (b *books) fail(a ask, err error) {
	if !errors.Is(err, weir.ErrUnavailable) {
		b.tell("an error that is not weir.ErrUnavailable: " + err.Error())
		return
	}
	b.failed++
	b.failures[pattern(err)]++
	for _, one := range a.books {
		if one != nil && (a.books[1] != nil || perhapsCharged(err)) {
			one.unknown++
		}
	}
}

// perhapsCharged reads what the store says of a call: that it was surely not executed, be
// it because Redis refused it or because it was never sent, or that this is unknown.
func perhapsCharged(err error) bool {
	return strings.Contains(err.Error(), "it is unknown whether the call was executed")
}

func (b *books) tell(what string) {
	if len(b.wrong) < mostWrong {
		b.wrong = append(b.wrong, what)
	}
}

var numbers = regexp.MustCompile(`[0-9a-f]{40}|[0-9]+`)

// pattern is an error without its addresses and numbers.
func pattern(err error) string {
	text := strings.TrimPrefix(err.Error(), weir.ErrUnavailable.Error())
	text = strings.TrimPrefix(text, ": ")
	return numbers.ReplaceAllString(text, "#")
}

func (b *books) flowing(since time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.lasting() {
		if !one.last.After(since) {
			return false
		}
	}
	return true
}

func (b *books) spent() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.lasting()[roomyKeys:] {
		if one.refused == 0 {
			return false
		}
	}
	return true
}

func (b *books) degraded() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}
