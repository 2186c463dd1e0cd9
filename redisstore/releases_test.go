package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/redisconn"
)

var (
	slots    = weir.MustLimit("slots", weir.Concurrency{Limit: 3, TTL: 30 * time.Second})
	minute   = weir.MustLimit("minute", weir.PerMinute(3))
	errLost  = fmt.Errorf("%w (%w): no answer", weir.ErrUnavailable, redisconn.ErrPerhapsExecuted)
	errUnrun = fmt.Errorf("%w (%w): not sent", weir.ErrUnavailable, weir.ErrNotExecuted)
)

func held(key string) weir.Claim {
	return weir.Claim{Key: key, Limit: slots, Cost: 1, Lease: "lease of " + key}
}

// A recipient answers releases and notes when they came.
type recipient struct {
	mu     sync.Mutex
	answer func(n int) error // to the nth call
	calls  []time.Duration   // since begun
	last   weir.Claim
	most   int // calls at one time
	under  int
	begun  time.Time
}

func (r *recipient) send(_ context.Context, claim weir.Claim) error {
	r.mu.Lock()
	n := len(r.calls)
	r.calls, r.last = append(r.calls, time.Since(r.begun)), claim
	r.under++
	r.most = max(r.most, r.under)
	r.mu.Unlock()
	time.Sleep(time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.under--
	return r.answer(n)
}

// from replaces the answer.
func (r *recipient) from(answer func(n int) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

func (r *recipient) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.calls)
}

// releasing makes releases that go to a function.
func releasing(answer func(n int) error) (*releases, *recipient) {
	to := &recipient{answer: answer, begun: time.Now()}
	return newReleases(50*time.Millisecond, to.send), to
}

func wantCounts(t *testing.T, r *releases, pending, done, lost int64) {
	t.Helper()
	if p, d, l := r.pending.Load(), r.done.Load(), r.lost.Load(); p != pending || d != done || l != lost {
		t.Errorf("%d pending, %d done, %d lost; want %d, %d, %d", p, d, l, pending, done, lost)
	}
}

// A release that fails is repeated until Redis answers: one at a time until then.
func TestReleasesAreRepeatedUntilAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, to := releasing(func(int) error { return errLost })
		for i := range 200 {
			r.add(held(fmt.Sprint(i)), false)
		}
		time.Sleep(10 * time.Second)
		if calls := to.count(); calls > releasesAtOnce+30 {
			t.Errorf("%d calls of a Redis that did not answer for 10s", calls)
		}
		wantCounts(t, r, 200, 0, 0)
		to.from(func(n int) error { return []error{nil, weir.ErrLeaseGone}[n%2] })
		time.Sleep(lastPause + 100*time.Millisecond)
		wantCounts(t, r, 0, 200, 0)
		if to.most > releasesAtOnce {
			t.Errorf("%d calls at one time", to.most)
		}
	})
}

// A queued release has copies of its texts, because callers build keys and members in buffers that they reuse.
func TestQueuedReleaseHasCopiesOfItsTexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, to := releasing(func(n int) error { return []error{errLost, nil}[n] })
		buffer := []byte("key-small")
		text := unsafe.String(&buffer[0], len(buffer))
		claim := held(text[:3])
		claim.Member = text[4:]
		r.add(claim, false)
		copy(buffer, "###-large")
		time.Sleep(time.Second)
		wantCounts(t, r, 0, 1, 0)
		if to.last.Key != "key" || to.last.Member != "small" {
			t.Errorf("the lease of %q of %q was released; want that of small of key", to.last.Member, to.last.Key)
		}
	})
}

// An answer to another call ends the pause.
func TestReleasesAreRepeatedWhenRedisAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, to := releasing(func(int) error { return errLost })
		r.add(held("key"), false)
		time.Sleep(10*time.Second + time.Millisecond)
		before := to.count()
		to.from(func(int) error { return nil })
		for range 3 {
			r.answered()
		}
		synctest.Wait()
		time.Sleep(2 * time.Millisecond)
		wantCounts(t, r, 0, 1, 0)
		if to.count() != before+1 {
			t.Errorf("%d calls, want %d", to.count(), before+1)
		}
	})
}

// The release of an acquire may come before the acquire: that a lease is gone counts the second time.
func TestReleaseThatOvertakesItsAcquireIsRepeated(t *testing.T) {
	for name, second := range map[string]error{"taken meanwhile": nil, "never taken": weir.ErrLeaseGone} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, to := releasing(func(n int) error { return []error{weir.ErrLeaseGone, second}[n] })
				r.add(held("key"), true)
				time.Sleep(time.Second)
				wantCounts(t, r, 0, 1, 0)
				if to.count() != 2 || to.calls[1] < minOvertaking {
					t.Errorf("releases were sent after %v; want two, %v apart", to.calls, minOvertaking)
				}
			})
		})
	}
}

// A new release does not wait for the second call of another.
func TestReleasesDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, to := releasing(func(n int) error { return []error{weir.ErrLeaseGone, nil, nil}[n] })
		r.add(held("one"), true)
		time.Sleep(10 * time.Millisecond)
		r.add(held("two"), true)
		time.Sleep(10 * time.Millisecond)
		wantCounts(t, r, 1, 1, 0)
		time.Sleep(time.Second)
		wantCounts(t, r, 0, 2, 0)
		if to.count() != 3 {
			t.Errorf("%d calls, want 3", to.count())
		}
	})
}

// The number, the bytes and the time of releases are bounded.
func TestReleasesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := releasing(func(int) error { return errUnrun })
		for i := range maxReleases + 5 {
			r.add(held(fmt.Sprint(i)), true)
		}
		wantCounts(t, r, maxReleases, 0, 5)
		r.close(time.Second)
		wantCounts(t, r, 0, 0, maxReleases+5)

		r, _ = releasing(func(int) error { return errUnrun })
		long := strings.Repeat("k", weir.MaxKey)
		for range maxReleaseKeys/weir.MaxKey + 5 {
			r.add(held(long), true)
		}
		wantCounts(t, r, maxReleaseKeys/weir.MaxKey, 0, 5)
		r.close(time.Second)

		r, _ = releasing(func(int) error { return errUnrun })
		claim := held("key")
		claim.Member = long
		for range maxReleaseKeys / weir.MaxKey {
			r.add(claim, true)
		}
		wantCounts(t, r, maxReleaseKeys/weir.MaxKey-1, 0, 1)
		r.close(time.Second)

		r, _ = releasing(func(int) error { return errUnrun })
		r.add(held("key"), false)
		time.Sleep(31 * time.Second)
		wantCounts(t, r, 0, 0, 1)
	})
}

// Close sends what is left once more, and then nothing runs.
func TestCloseSendsReleases(t *testing.T) {
	for name, one := range map[string]struct {
		last       error
		done, lost int64
	}{"answered": {weir.ErrLeaseGone, 3, 0}, "not answered": {errLost, 0, 3}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, to := releasing(func(int) error { return errLost })
				for i := range 3 {
					r.add(held(fmt.Sprint(i)), true)
				}
				time.Sleep(10 * time.Millisecond)
				to.from(func(int) error { return one.last })
				r.close(time.Second)
				wantCounts(t, r, 0, one.done, one.lost)
				r.add(held("later"), true)
				wantCounts(t, r, 0, one.done, one.lost+1)
			})
		})
	}
}

// The leases that a failed call leaves depend on the call and on its error.
func TestLeftover(t *testing.T) {
	own, renewed, window := held("own"), held("renewed"), weir.Claim{Key: "window", Limit: minute, Cost: 1}
	own.OwnLease, renewed.Renew = true, true
	refused := explain(&redisconn.ServerError{Text: "READONLY"}, []weir.Claim{window})
	for _, one := range []struct {
		what   string
		op     op
		times  int64
		err    error
		claims []weir.Claim
		want   []string // keys
	}{
		{"an acquire without an answer", opTake, 1, errLost, []weir.Claim{held("a"), window, held("b")}, []string{"a", "b"}},
		{"one that was not sent", opTake, 1, errUnrun, []weir.Claim{held("a")}, nil},
		{"one that Redis refused", opTake, 1, refused, []weir.Claim{held("a")}, nil},
		{"wrong input", opTake, 1, &weir.InputError{}, []weir.Claim{held("a")}, nil},
		{"one in a batch", opBatch, 1, errLost, []weir.Claim{held("a")}, []string{"a"}},
		{"a peek", opTimes, 0, errLost, []weir.Claim{held("a")}, nil},
		{"one beyond the limit", opCharge, 1, errLost, []weir.Claim{held("a")}, []string{"a"}},
		{"a renewal", opTake, 1, errLost, []weir.Claim{renewed}, nil},
		{"an acquire that its caller repeats", opTake, 1, errLost, []weir.Claim{own}, nil},
		{"a release without an answer", opRefund, 1, errLost, []weir.Claim{held("a"), window}, []string{"a"}},
		{"a release that was not sent", opCancel, 1, errUnrun, []weir.Claim{held("a"), own}, []string{"a", "own"}},
		{"a release that Redis refused", opRefund, 1, refused, []weir.Claim{held("a")}, []string{"a"}},
		{"a release of what is gone", opRefund, 1, weir.ErrLeaseGone, []weir.Claim{held("a")}, nil},
		{"a refund that its caller repeats", opRefund, 1, errLost, []weir.Claim{held("a"), renewed}, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var keys []string
			r := newReleases(time.Second, func(_ context.Context, claim weir.Claim) error {
				mu.Lock()
				defer mu.Unlock()
				keys = append(keys, claim.Key)
				return nil
			})
			r.leftover(&call{op: one.op, claims: one.claims, times: one.times, err: one.err})
			synctest.Wait()
			slices.Sort(keys)
			if !slices.Equal(keys, one.want) {
				t.Errorf("%s leaves %q to release, want %q", one.what, keys, one.want)
			}
		})
	}
}
