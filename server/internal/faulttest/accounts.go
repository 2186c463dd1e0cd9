package faulttest

import (
	"errors"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/weirproject/weir"
)

// An account records one key. Guarded by accounts.mu.
type account struct {
	key   string
	limit *weir.Limit
	begun int // decisions begun; only for fresh keys, under traffic.mu

	granted int64 // each is one unit
	unknown int64 // failed decisions that may have been charged
	refused int64
	last    time.Time     // when Redis last decided
	gap     time.Duration // the longest time without a decision since the mark
}

// accounts collect all answers.
type accounts struct {
	lasting []*account // of the keys that are used all the time: fixed before the load begins

	mu  sync.Mutex
	all []*account

	asked, granted, refused, failed int64
	times                           histogram
	failures                        map[string]int64
	wrong                           []string
}

const (
	mostWrong = 8 // wrong answers that are reported

)

func newAccounts() *accounts { return &accounts{failures: make(map[string]int64)} }

func (b *accounts) open(key string, limit *weir.Limit) *account {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := &account{key: key, limit: limit}
	b.all = append(b.all, one)
	return one
}

func (b *accounts) mark() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.all {
		one.gap = 0
	}
}

// enter records an answer.
func (b *accounts) enter(a ask, begun time.Time, granted int64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now() // under the lock, so that times are ordered
	b.asked++
	b.times.add(now.Sub(begun))
	switch {
	case err != nil:
		b.fail(a, err)
		return
	case granted == 1:
		b.granted++
	case a.accounts[0].limit.Capacity() == roomyUnits:
		b.report("a key with room was refused: " + a.accounts[0].key)
	default:
		b.refused++
		a.accounts[0].refused++
	}
	for _, one := range a.accounts {
		if one != nil {
			one.decided(now, granted)
		}
	}
}

func (b *account) decided(now time.Time, granted int64) {
	b.granted += granted
	if !b.last.IsZero() {
		b.gap = max(b.gap, now.Sub(b.last))
	}
	b.last = now
}

// fail records an error. In a decision over two keys, each of them may have been charged: one was, and its
// refund failed.
func (b *accounts) fail(a ask, err error) {
	if !errors.Is(err, weir.ErrUnavailable) {
		b.report("an error that is not weir.ErrUnavailable: " + err.Error())
		return
	}
	b.failed++
	b.failures[pattern(err)]++
	for _, one := range a.accounts {
		if one != nil && (a.accounts[1] != nil || perhapsCharged(err)) {
			one.unknown++
		}
	}
}

// perhapsCharged reports whether an error says that the call may have been executed, rather than that it was
// refused by Redis or never sent.
func perhapsCharged(err error) bool {
	return strings.Contains(err.Error(), "it is unknown whether the call was executed")
}

func (b *accounts) report(what string) {
	if len(b.wrong) < mostWrong {
		b.wrong = append(b.wrong, what)
	}
}

var numbers = regexp.MustCompile(`[0-9a-f]{40}|[0-9]+`)

// pattern is the text of an error without its addresses and numbers.
func pattern(err error) string {
	text := strings.TrimPrefix(err.Error(), weir.ErrUnavailable.Error())
	text = strings.TrimPrefix(text, ": ")
	return numbers.ReplaceAllString(text, "#")
}

func (b *accounts) flowing(since time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.lasting {
		if !one.last.After(since) {
			return false
		}
	}
	return true
}

func (b *accounts) spent() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.lasting[roomyKeys:] {
		if one.refused == 0 {
			return false
		}
	}
	return true
}

func (b *accounts) degraded() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}
