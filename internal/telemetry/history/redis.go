package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirproject/weir/internal/redisconn"
	"github.com/weirproject/weir/internal/telemetry"
)

const (
	keyPrefix    = "weir:history:"
	keyLasts     = 25 * time.Hour // of a minute in Redis
	writeTimeout = 2 * time.Second
	readTimeout  = 2 * time.Second
	mostWritten  = 60              // minutes that are written at once, after an outage
	mostRead     = 240             // keys of one MGET
	mostNodes    = 1000            // whose history is read
	mostNote     = 16 << 10        // bytes of a node's description
	cacheBytes   = 64 << 20        // of minutes of other nodes
	restAfter    = 5 * time.Second // a failed reading is not repeated for this time: reports answer meanwhile
	listLasts    = 5 * time.Second // of the list of nodes

	// Registers of the store.
	nodesRegister   = "nodes"
	historyRegister = "history"
)

// shared is the history in Redis: a key for each process and minute, all of a process in one slot of a Cluster. It has
// a connection of its own, because answers are large. It is safe for concurrent use. nil has no nodes.
type shared struct {
	url      string
	register Register
	now      func() time.Time
	late     func(minute int64) // a node has shared a minute late

	// Of the goroutine that writes.
	first int64 // minute of this process
	next  int64 // the minute that was written last, and may not be over

	mu     sync.Mutex
	client rueidis.Client // nil: not connected yet

	reading sync.Mutex // guards what follows
	others  map[string]*other
	listed  time.Time
	failed  time.Time // the last reading that failed
	held    atomic.Int64
	faults  *atomic.Int64
}

// An other is the history of a process.
type other struct {
	first, last int64            // minutes
	minutes     map[int64][]byte // nil: Redis does not have it
}

// connected returns the connection, and connects if there is none.
func (s *shared) connected(ctx context.Context) (rueidis.Client, error) {
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

func minuteKey(id string, minute int64) string {
	return keyPrefix + "{" + id + "}:" + strconv.FormatInt(minute, 10)
}

// write writes minutes, the last of which is not over, and returns how many it has written. If Redis has lost the
// minute that was written last, all are written again, the next time.
func (s *shared) write(ctx context.Context, id string, list []packedMinute) (n int, err error) {
	for some := range slices.Chunk(list, mostWritten) {
		if err := s.writeSome(ctx, id, some); err != nil {
			return n, err
		}
		n += len(some)
	}
	return n, nil
}

func (s *shared) writeSome(ctx context.Context, id string, list []packedMinute) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	client, err := s.connected(ctx)
	if err != nil {
		return err
	}
	var commands rueidis.Commands
	for _, one := range list {
		commands = append(commands, client.B().Set().Key(minuteKey(id, one.minute)).
			Value(rueidis.BinaryString(one.text)).Get().Ex(keyLasts).Build())
	}
	for i, result := range client.DoMulti(ctx, commands...) {
		err := result.Error()
		if err != nil && !rueidis.IsRedisNil(err) {
			return err
		}
		if s.first == 0 {
			s.first = list[i].minute
		}
		if err != nil && list[i].minute == s.next { // it was there
			s.next = 0
			return s.register.Register(ctx, historyRegister, id, "", 0)
		}
		s.next = list[i].minute // it is written again when it is over
	}
	note := fmt.Sprint(s.first, " ", s.next)
	return s.register.Register(ctx, historyRegister, id, note, keyLasts)
}

// Seed returns a secret number that is the same on all nodes of a Redis. The first node makes it.
func Seed(ctx context.Context, url string) (uint64, error) {
	client, err := redisconn.OpenClient(ctx, url, redisconn.Config{Timeout: writeTimeout})
	if err != nil {
		return 0, err
	}
	defer client.Close()
	key, own := keyPrefix+"seed", strconv.FormatUint(rand.Uint64()|1, 10)
	err = client.Do(ctx, client.B().Set().Key(key).Value(own).Nx().Build()).Error()
	if err != nil && !rueidis.IsRedisNil(err) { // nil: there is one
		return 0, err
	}
	text, err := client.Do(ctx, client.B().Get().Key(key).Build()).ToString()
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
	reply, err := client.Do(ctx, client.B().Time().Build()).AsIntSlice()
	if err != nil || len(reply) != 2 {
		return 0, errors.Join(err, errPacked)
	}
	there := time.Unix(reply[0], reply[1]*1000)
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
		if len(note) > mostNote || json.Unmarshal([]byte(note), &n) != nil || n.Name != nameOf(id) {
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

// each calls it with the packed minutes of other processes from a minute to another. After an error it has been called
// with those that were read before.
func (s *shared) each(ctx context.Context, id, node string, from, to int64, it func([]byte)) error {
	if s == nil {
		return nil
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	err := s.refresh(ctx, id, node, from, to)
	for other, o := range s.others {
		if node != "" && nameOf(other) != node {
			continue
		}
		for minute := max(from, o.first); minute <= min(to, o.last); minute++ {
			if text := o.minutes[minute]; text != nil {
				it(text)
			}
		}
	}
	return err
}

// refresh reads what is missing.
func (s *shared) refresh(ctx context.Context, id, node string, from, to int64) (err error) {
	if s.now().Sub(s.failed) < restAfter {
		return errors.New("the history of other nodes was not read: Redis failed a moment ago")
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if s.now().Sub(s.listed) > listLasts {
		err = s.list(ctx, id)
	}
	for other, o := range s.others {
		if err == nil && (node == "" || nameOf(other) == node) {
			err = s.read(ctx, other, o, from, to)
		}
	}
	if err != nil && context.Cause(ctx) != context.Canceled {
		s.failed = s.now()
		s.faults.Add(1)
	}
	return err
}

// list reads which processes have a history, and of which minutes.
func (s *shared) list(ctx context.Context, id string) error {
	notes, err := s.register.Registered(ctx, historyRegister)
	if err != nil {
		return err
	}
	now := s.now()
	s.listed = now
	for gone, o := range s.others {
		if _, there := notes[gone]; !there {
			s.forget(o, 0, o.last+1)
			delete(s.others, gone)
		}
	}
	for name, note := range notes {
		var first, last int64
		_, err := fmt.Sscanf(note, "%d %d", &first, &last)
		if err != nil || name == id || first < 0 || last > minuteOf(now)+mostAhead {
			continue // it is not one of ours, or its clock is wrong
		}
		o := s.others[name]
		if o == nil && len(s.others) < mostNodes {
			o = &other{minutes: make(map[int64][]byte)}
			s.others[name] = o
		}
		if o != nil {
			s.update(o, max(first, minuteOf(now.Add(-kept))), last, minuteOf(now))
		}
	}
	return nil
}

// mostAhead is how far the clock of another node may be ahead, in minutes.
const mostAhead = 10

// update takes the minutes that a process says it has. Its last minute may be written again until it has a later one.
func (s *shared) update(o *other, first, last, now int64) {
	if known := max(first, o.last); known < min(last, now-settled) {
		s.late(known)
	}
	s.forget(o, o.first, first)
	if last != o.last || last >= now-mostAhead {
		s.forget(o, o.last, o.last+1)
	}
	o.first, o.last = first, last
}

// forget drops minutes from memory.
func (s *shared) forget(o *other, from, to int64) {
	for minute, text := range o.minutes {
		if minute >= from && minute < to {
			s.held.Add(-int64(len(text)))
			delete(o.minutes, minute)
		}
	}
}

// read reads the minutes of a process that are not in memory.
func (s *shared) read(ctx context.Context, id string, o *other, from, to int64) error {
	if s.held.Load() > cacheBytes {
		for _, one := range s.others {
			s.forget(one, 0, one.last+1)
		}
	}
	var missing []int64
	for minute := max(from, o.first); minute <= min(to, o.last); minute++ {
		if _, there := o.minutes[minute]; !there {
			missing = append(missing, minute)
		}
	}
	for some := range slices.Chunk(missing, mostRead) {
		if err := s.readSome(ctx, id, o, some); err != nil {
			return err
		}
	}
	return nil
}

func (s *shared) readSome(ctx context.Context, id string, o *other, minutes []int64) error {
	client, err := s.connected(ctx)
	if err != nil {
		return err
	}
	keys := make([]string, len(minutes))
	for i, minute := range minutes {
		keys[i] = minuteKey(id, minute)
	}
	list, err := client.Do(ctx, client.B().Mget().Key(keys...).Build()).ToArray()
	if err != nil {
		return err
	}
	if len(list) != len(keys) {
		return errPacked
	}
	for i := range list {
		text, err := list[i].AsBytes()
		if err != nil || len(text) > mostPacked {
			text = nil // it has expired, or is not one of ours
		}
		o.minutes[minutes[i]] = text
		s.held.Add(int64(len(text)))
	}
	return nil
}

// bytes is the memory of the minutes of other processes.
func (s *shared) bytes() int64 {
	if s == nil {
		return 0
	}
	return s.held.Load()
}
