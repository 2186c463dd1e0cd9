package history

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/internal/telemetry"
)

const (
	keyPrefix    = "weir:history:"
	writeTimeout = 2 * time.Second
	readTimeout  = 2 * time.Second
	maxWritten   = 60              // documents that are written at once, after an outage
	maxRead      = 60              // hashes that are read at once
	maxNote      = 16 << 10        // bytes of a node's description
	cacheBytes   = 64 << 20        // of documents of other nodes
	restAfter    = 5 * time.Second // a failed reading is not repeated for this time: reports answer meanwhile
	settled      = 2 * time.Minute // after its end a document changes only if its node had no Redis
	rereadAfter  = 5 * time.Minute // for these nodes

	nodesRegister = "nodes" // in the store
)

// shared is the history in Redis: a hash for each slot, with the document of each process. It has a separate
// connection, because answers are large. It is safe for concurrent use. nil has no nodes.
type shared struct {
	url      string
	register Register
	now      func() time.Time
	last     slot // that was written last; of the goroutine that writes

	mu     sync.Mutex
	client redisconn.Client // nil: not connected yet

	reading sync.Mutex // guards what follows
	slots   map[slot]*others
	failed  time.Time // the last reading that failed
	held    atomic.Int64
	faults  *atomic.Int64
}

// others are the documents of a slot by process, as they were at some time.
type others struct {
	at        time.Time
	documents map[string]string
}

// connected returns the connection, and connects first if necessary.
func (s *shared) connected(ctx context.Context) (redisconn.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		client, err := redisconn.OpenClient(ctx, s.url, redisconn.Config{Timeout: writeTimeout})
		if err != nil {
			return nil, err
		}
		s.client = client
	}
	return s.client, nil
}

// write writes documents, and removes the written ones from the map. lost: Redis may have lost
// earlier documents.
func (s *shared) write(ctx context.Context, id string, texts map[slot][]byte) (n int, lost bool, err error) {
	list := slices.SortedFunc(maps.Keys(texts), func(a, b slot) int { return a.start().Compare(b.start()) })
	for some := range slices.Chunk(list, maxWritten) {
		new, err := s.writeSome(ctx, id, some, texts)
		if err != nil {
			return n, true, err // Redis may come back empty, with a part of these
		}
		for i, one := range some {
			lost = lost || one == s.last && new[i]
			delete(texts, one)
			if one.step == minute {
				s.last = one
			}
		}
		n += len(some)
	}
	return n, lost, nil
}

// writeSome returns which of the documents were not there.
func (s *shared) writeSome(ctx context.Context, id string, some []slot, texts map[slot][]byte) ([]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	client, err := s.connected(ctx)
	if err != nil {
		return nil, err
	}
	var commands []redisconn.Command
	for _, one := range some {
		key := []string{keyPrefix + one.String()}
		seconds := strconv.FormatInt(int64((one.keeps()+time.Hour)/time.Second), 10)
		commands = append(commands, redisconn.Command{Name: "HSET", Keys: key, Args: []string{id, string(texts[one])}},
			redisconn.Command{Name: "EXPIRE", Keys: key, Args: []string{seconds}})
	}
	new := make([]bool, len(some))
	for i, result := range client.DoMulti(ctx, commands) {
		count, err := result.Int()
		if err != nil {
			return nil, err
		}
		if i%2 == 0 {
			new[i/2] = count > 0
		}
	}
	return new, nil
}

// Seed returns a secret number that is the same on all nodes of a Redis. The first node makes it.
func Seed(ctx context.Context, url string) (uint64, error) {
	client, err := redisconn.OpenClient(ctx, url, redisconn.Config{Timeout: writeTimeout})
	if err != nil {
		return 0, err
	}
	defer client.Close()
	key, own := []string{keyPrefix + "seed"}, strconv.FormatUint(rand.Uint64()|1, 10)
	err = client.Do(ctx, redisconn.Command{Name: "SET", Keys: key, Args: []string{own, "NX"}}).Err()
	if err != nil && err != redisconn.ErrNil { // nil: there is one
		return 0, err
	}
	text, err := client.Do(ctx, redisconn.Command{Name: "GET", Keys: key}).Text()
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(text, 10, 64)
}

// announce describes this node to the others, for nodeLasts.
func (s *shared) announce(ctx context.Context, id string, n *telemetry.Node) error {
	if offset, err := s.clockOffset(ctx); err == nil {
		n.ClockOffset = offset
	}
	note, err := json.Marshal(n)
	if err == nil {
		err = s.register.Register(ctx, nodesRegister, id, string(note), nodeLasts)
	}
	return err
}

// clockOffset is how much the clock of this node is ahead of the store's.
func (s *shared) clockOffset(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	client, err := s.connected(ctx)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	there, err := client.Do(ctx, redisconn.Command{Name: "TIME"}).Time()
	if err != nil {
		return 0, err
	}
	return began.Add(time.Since(began) / 2).Sub(there), nil
}

// leave says that this node is gone, and closes the connection.
func (s *shared) leave(ctx context.Context, id string) {
	_ = s.register.Register(ctx, nodesRegister, id, "", 0) // it expires anyway
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		s.client.Close()
	}
}

// nodes returns the descriptions of all nodes by process. One that cannot be read is left out.
func (s *shared) nodes(ctx context.Context) (map[string]telemetry.Node, error) {
	notes, err := s.register.Registered(ctx, nodesRegister)
	list := make(map[string]telemetry.Node, len(notes))
	for id, note := range notes {
		var n telemetry.Node
		if len(note) > maxNote || json.Unmarshal([]byte(note), &n) != nil || n.Name != nameOf(id) {
			s.faults.Add(1)
			continue
		}
		list[id] = n
	}
	return list, err
}

// nameOf is the name of the node of a process.
func nameOf(id string) string {
	if i := strings.LastIndexByte(id, '/'); i >= 0 {
		return id[:i]
	}
	return id
}

// each calls it with the documents of other processes in some slots. After an error it has been called with the
// documents read before.
func (s *shared) each(ctx context.Context, id, node string, slots []slot, it func([]byte)) error {
	if s == nil {
		return nil
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	err := s.refresh(ctx, id, slots)
	for _, one := range slots {
		there := s.slots[one]
		if there == nil {
			continue
		}
		for process, text := range there.documents {
			if node == "" || nameOf(process) == node {
				it([]byte(text))
			}
		}
	}
	return err
}

// refresh reads the slots that are not in memory, or may have changed.
func (s *shared) refresh(ctx context.Context, id string, slots []slot) (err error) {
	now := s.now()
	if now.Sub(s.failed) < restAfter {
		return errors.New("the history of other nodes was not read: Redis failed a moment ago")
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	s.forget(now)
	missing := slices.DeleteFunc(slices.Clone(slots), func(one slot) bool {
		there := s.slots[one]
		return there != nil && there.at.Sub(one.end()) > settled && now.Sub(there.at) < rereadAfter
	})
	for some := range slices.Chunk(missing, maxRead) {
		if err == nil {
			err = s.readSome(ctx, id, some, now)
		}
	}
	if err != nil && context.Cause(ctx) != context.Canceled {
		s.failed = now
		s.faults.Add(1)
	}
	return err
}

// forget drops slots that are too old, and all slots if they are too large.
func (s *shared) forget(now time.Time) {
	for one := range s.slots {
		if now.Sub(one.end()) > one.keeps() || s.held.Load() > cacheBytes {
			s.replace(one, nil)
		}
	}
}

// replace replaces the documents of a slot; nil: they are forgotten.
func (s *shared) replace(one slot, by *others) {
	size := func(o *others) (n int64) {
		if o == nil {
			return 0
		}
		for _, text := range o.documents {
			n += int64(len(text))
		}
		return n
	}
	s.held.Add(size(by) - size(s.slots[one]))
	if s.slots[one] = by; by == nil {
		delete(s.slots, one)
	}
}

func (s *shared) readSome(ctx context.Context, id string, slots []slot, now time.Time) error {
	client, err := s.connected(ctx)
	if err != nil {
		return err
	}
	var commands []redisconn.Command
	for _, one := range slots {
		commands = append(commands, redisconn.Command{Name: "HGETALL", Keys: []string{keyPrefix + one.String()}})
	}
	for i, result := range client.DoMulti(ctx, commands) {
		documents, err := result.Map()
		if err != nil {
			return err
		}
		delete(documents, id)
		s.replace(slots[i], &others{now, documents})
	}
	return nil
}

// bytes is the memory of the documents of other processes.
func (s *shared) bytes() int64 {
	if s == nil {
		return 0
	}
	return s.held.Load()
}
