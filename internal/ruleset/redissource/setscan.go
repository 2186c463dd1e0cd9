package redissource

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirproject/weir/internal/bounds"
)

const (
	memberPage  = 1000             // members that one SSCAN examines
	setPasses   = 3                // readings of a set that changes meanwhile
	setsAtOnce  = 16               // sets that are read at the same time
	setWithin   = 30 * time.Second // time limit for all sets
	maxSetBytes = 32 << 20         // memory of a set in Redis; bounds.ListFile bounds what is read of it
)

// A setReading is the result of reading a set.
type setReading struct {
	members []string // sorted; empty: there is no such key
	expires time.Time
	foreign string // why the key is not a readable set; "": it is
}

// readSets reads sets once. An error is of the connection.
func readSets(ctx context.Context, client rueidis.Client, names []string) (map[string]setReading, error) {
	ctx, cancel := context.WithTimeout(ctx, setWithin)
	defer cancel()
	found := make(map[string]setReading)
	var first error
	var mu sync.Mutex // guards found and first
	var all sync.WaitGroup
	slots := make(chan bool, setsAtOnce)
	for _, name := range names {
		slots <- true
		all.Go(func() {
			r, err := readSet(ctx, client, name)
			if foreign := ofTheKey(err); foreign != "" {
				r, err = setReading{foreign: foreign}, nil
			}
			mu.Lock()
			found[name], first = r, cmp.Or(first, err)
			mu.Unlock()
			<-slots
		})
	}
	all.Wait()
	return found, first
}

// readSet reads a set. One that changes meanwhile is read again: if it was deleted and refilled, it
// would come out with half of each.
func readSet(ctx context.Context, client rueidis.Client, name string) (r setReading, err error) {
	for range setPasses {
		if r, err = readOnce(ctx, client, name); err != nil || r.foreign != "" {
			return r, err
		}
		n, err := askAll(ctx, client, client.B().Scard().Key(name).Build())[0].AsInt64()
		if err != nil || n == int64(len(r.members)) {
			return r, err
		}
	}
	return r, nil
}

// readOnce reads a set page by page, unless it is too large.
func readOnce(ctx context.Context, client rueidis.Client, name string) (r setReading, err error) {
	b := client.B()
	about := askAll(ctx, client, b.Scard().Key(name).Build(), b.MemoryUsage().Key(name).Samples(samples).Build(),
		b.Pttl().Key(name).Build())
	count, err := about[0].AsInt64()
	size, errSize := about[1].AsInt64()
	left, errLeft := about[2].AsInt64()
	if rueidis.IsRedisNil(errSize) { // there is no such key
		errSize = nil
	}
	if err := cmp.Or(err, errSize, errLeft); err != nil {
		return r, err
	}
	if count > bounds.Listed || size > maxSetBytes {
		r.foreign = fmt.Sprintf("has %d members, which take some %d bytes; at most %d, and %d bytes", count, size,
			bounds.Listed, maxSetBytes)
		return r, nil
	}
	if left >= 0 {
		r.expires = time.Now().Add(time.Duration(left) * time.Millisecond)
	}
	r.members = make([]string, 0, count)
	bytes := 0
	for cursor := uint64(0); ; {
		command := client.B().Sscan().Key(name).Cursor(cursor).Count(memberPage).Build()
		page, err := askAll(ctx, client, command)[0].AsScanEntry()
		if err != nil {
			return r, err
		}
		r.members = append(r.members, page.Elements...) // may have duplicates
		for _, member := range page.Elements {
			bytes += len(member)
		}
		if len(r.members) > 2*bounds.Listed || bytes > bounds.ListFile { // it grows while it is read
			return setReading{foreign: fmt.Sprintf("has over %d members, or %d bytes of them; that is too much",
				bounds.Listed, bounds.ListFile)}, nil
		}
		if cursor = page.Cursor; cursor == 0 {
			slices.Sort(r.members)
			r.members = slices.Compact(r.members)
			return r, nil
		}
	}
}

func askAll(ctx context.Context, client rueidis.Client, commands ...rueidis.Completed) []rueidis.RedisResult {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	return client.DoMulti(ctx, commands...)
}

// ofTheKey returns the message of an error that concerns one key; "" for other errors.
func ofTheKey(err error) string {
	answer, ok := rueidis.IsRedisErr(err)
	switch {
	case !ok:
		return ""
	case strings.HasPrefix(answer.Error(), "WRONGTYPE"):
		return "is not a set; allowed: a set, such as SADD makes"
	case strings.HasPrefix(answer.Error(), "NOPERM"):
		return fmt.Sprintf("may not be read: %.200s", answer.Error())
	}
	return ""
}
