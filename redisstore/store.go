// Package redisstore is the distributed store: limits decided in Redis, by one Lua script
// a decision and Redis' own clock, the same from every node.
//
// All claims of a decision are one call, unless they live in different slots of a Redis Cluster. Then it is one call
// a slot, all at once; if one refuses, the others' grants are given back. That never grants too much; a decision that
// runs at the same moment may be refused for units that are on their way back.
//
// A claim's state is under one key: prefix, the limit's name, a letter for its algorithm,
// and the claim's key as the hash tag, so that the limits of one key share a slot:
//
//	weir:login:l:{ip:203.0.113.7}
//
// A claim's key that already has a hash tag, such as {tenant-7}:search, keeps it:
//
//	weir:search:b/{tenant-7}:search
package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/internal/algorithm"
	"github.com/weirproject/weir/internal/redisconn"
)

// A Conn is a connection to Redis for New, such as goredisconn's.
type Conn = redisconn.Conn

// Store is a weir.Store on Redis 6.2 or later, or Valkey. Make one with Open or New.
type Store struct {
	conn      Conn
	config    config
	clock     func() int64 // this process's, or the driven one
	bound     *bound
	scripts   *scripts
	arguments sync.Pool // of *arguments
	batches   sync.Pool // of *batch
	refusing  refusing  // in a Cluster
	releases  *releases
	clocks    *clocks
	closed    atomic.Bool
}

// New makes a store over a connection of the caller's, such as goredisconn's. Closing the
// store closes the Conn, which closes only connections that it opened itself.
func New(conn Conn, options ...Option) (*Store, error) {
	config, err := newConfig(options)
	if err != nil {
		return nil, err
	}
	scripts, err := newScripts(config.clock != nil)
	if err != nil {
		return nil, err
	}
	s := &Store{conn: conn, config: config, bound: newBound(config.timeout), scripts: scripts}
	s.releases = newReleases(config.timeout, s.release)
	s.clocks = newClocks(conn.Cluster(), config.warn)
	s.clock = func() int64 { return time.Now().UnixMicro() }
	if config.clock != nil {
		s.clock = func() int64 { return int64(config.clock()) }
	}
	s.arguments.New = func() any { return new(arguments) }
	s.batches.New = func() any { return &batch{seen: make(map[string]int)} }
	return s, nil
}

// call is one operation over claims of one slot, and its result.
type call struct {
	op        op
	claims    []weir.Claim
	times     int64        // opTimes
	taken     weir.Instant // opRefund, opCancel, opRestore
	decisions []weir.Decision
	each      bool // decisions for each of times, not for the last alone

	granted int64
	at      int64   // Redis' time
	leases  []int64 // of claims with leases: when they would have expired before; 0: not held
	err     error
}

// Decide implements weir.Store.
func (s *Store) Decide(
	ctx context.Context, claims []weir.Claim, times int64, decisions []weir.Decision,
) (int64, error) {
	if err := s.check(claims, times, decisions); err != nil {
		return 0, err
	}
	return s.decide(ctx, &call{claims: claims, times: times, decisions: decisions})
}

// decide decides one request, in one call unless its keys lie in several slots.
func (s *Store) decide(ctx context.Context, c *call) (int64, error) {
	c.op = opTimes
	if c.times == 1 && (s.config.clock == nil || s.clock() < 1<<52) { // opTake replies twice the time
		c.op = opTake
	}
	if !s.oneSlot(c.claims) {
		return s.decideSlots(ctx, c)
	}
	s.run(ctx, c)
	return c.granted, c.err
}

// Charge implements weir.Store.
func (s *Store) Charge(ctx context.Context, claims []weir.Claim, decisions []weir.Decision) error {
	if err := s.check(claims, 1, decisions); err != nil {
		return err
	}
	return s.runSlots(ctx, &call{op: chargeOp(claims), claims: claims, times: 1, decisions: decisions})
}

func chargeOp(claims []weir.Claim) op {
	if slices.ContainsFunc(claims, func(c weir.Claim) bool { return c.Settle }) {
		return opSettle
	}
	return opCharge
}

// Refund implements weir.Store.
func (s *Store) Refund(
	ctx context.Context, claims []weir.Claim, takenAt weir.Instant, decisions []weir.Decision,
) error {
	if err := s.check(claims, 1, decisions); err != nil {
		return err
	}
	c := call{op: refundOp(claims), claims: claims, times: 1, taken: takenAt, decisions: decisions}
	return s.runSlots(ctx, &c)
}

// refundOp is the operation that refunds claims: the shorter one unless one of them was delayed.
func refundOp(claims []weir.Claim) op {
	if slices.ContainsFunc(claims, func(c weir.Claim) bool { return c.Delay > 0 }) {
		return opCancel
	}
	return opRefund
}

// Reset implements weir.Store.
func (s *Store) Reset(ctx context.Context, claims []weir.Claim) error {
	if err := s.check(claims, 0, nil); err != nil {
		return err
	}
	ctx, stop := s.bound.limit(ctx)
	defer stop()
	return explain(s.conn.Delete(ctx, s.keys(claims)), claims)
}

// Close implements weir.Store. Releases that wait to be repeated are sent once more: see Releases.
func (s *Store) Close() error {
	if !s.closed.Swap(true) {
		s.releases.close(s.bound.Timeout)
		s.conn.Close()
	}
	return nil
}

// Releases counts the leases that the store releases in the background, after a call with an unknown outcome took them,
// or a release failed: the leases that it still tries to release, the released or gone ones, and the leases that it
// gave up, which end by their time-to-live.
func (s *Store) Releases() (pending, done, lost int64) {
	return s.releases.pending.Load(), s.releases.done.Load(), s.releases.lost.Load()
}

// release releases the lease of a claim, in the background where that fails.
func (s *Store) release(ctx context.Context, claim weir.Claim) error {
	c := call{op: opRefund, claims: []weir.Claim{claim}, times: 1}
	s.repeat(ctx, &c)
	return c.err
}

// Timeout is what bounds each call of the store: see WithTimeout. Layers over it derive theirs from it.
func (s *Store) Timeout() time.Duration { return s.bound.Timeout }

func (s *Store) check(claims []weir.Claim, times int64, decisions []weir.Decision) error {
	if s.closed.Load() {
		return weir.ErrClosed
	}
	return weir.Check(claims, times, decisions)
}

// These are the replies for granted of a script that changed no state.
const (
	otherPeriod = -1 // Redis' clock is beyond the calendar's bounds, which this process' clock chose
	otherForm   = -2 // a state is not as kind plain writes it
	failed      = -3 // of a request of a batch: an error text follows
)

// run makes the call. The leases that a failed call leaves are released later.
func (s *Store) run(ctx context.Context, c *call) {
	if s.repeat(ctx, c); c.err == nil {
		s.releases.answered()
		return
	}
	s.releases.leftover(c)
}

// repeat makes the call, again where the script found another period or form of state.
func (s *Store) repeat(ctx context.Context, c *call) {
	now, kinds := s.clock, kindOf
	if c.op == opTake && !s.clocks.behind() {
		kinds = kindOfTake
	}
	for range 4 {
		var redis int64
		behind := s.clocks.behind()
		redis, c.err = s.runAt(ctx, c, kinds, now, behind)
		switch {
		case c.err != nil:
			c.granted = 0 // also where an earlier try said why it did nothing
			return
		case c.granted == otherPeriod:
			now = func() int64 { return redis }
		case c.granted == otherForm:
			kinds = kindOf
		case !behind && c.refused() && s.clocks.behind(): // the reply told that what refused may be of a wrong clock
			kinds, c.leases = kindOf, c.leases[:0]
		default:
			return
		}
	}
	c.granted, c.err = 0, fmt.Errorf("%w (%w): Redis' clock ran away from the calendar",
		weir.ErrUnavailable, weir.ErrNotExecuted)
}

func (c *call) refused() bool {
	return c.granted == 0 && (c.op == opTake || c.op == opTimes && c.times > 0)
}

// runAt makes the call once, and returns Redis' time.
func (s *Store) runAt(
	ctx context.Context, c *call, kinds func(*weir.Limit) *kind, now func() int64, behind bool,
) (int64, error) {
	a := s.arguments.Get().(*arguments)
	defer s.arguments.Put(a)
	defer a.empty()
	a.times, a.now, a.behind = c.times, now, behind
	for i := range c.claims {
		a.kinds = append(a.kinds, kinds(c.claims[i].Limit))
	}
	s.prepare(a, c)
	ctx, stop := s.bound.limit(ctx)
	defer stop()
	keys, args := a.words[:len(c.claims)], a.words[len(c.claims):]
	sent := s.clocks.now()
	reply, err := s.conn.Run(ctx, s.scripts.get(c.op, a.kinds, behind), keys, args, a.reply)
	if err != nil {
		return 0, explain(err, c.claims)
	}
	a.reply = reply
	redis, err := c.read(a, s.config.clock != nil)
	if err == nil && s.config.clock == nil {
		s.clocks.see(redis, sent, keys[0])
	}
	return redis, err
}

// prepare fills in the keys and arguments of a script.
func (s *Store) prepare(a *arguments, c *call) {
	for i := range c.claims {
		s.addKey(a, &c.claims[i])
	}
	switch c.op {
	case opTimes:
		a.add(c.times)
	case opRefund, opRestore:
		a.add(int64(c.taken))
	case opCancel:
		a.add(int64(c.taken))
		a.addText(cancelArgs(c))
		a.units = true
	}
	for i := range c.claims {
		a.addClaim(a.kinds[i], &c.claims[i])
	}
	s.addClock(a)
	a.cut()
}

// addClock adds the time of a driven store.
func (s *Store) addClock(a *arguments) {
	if s.config.clock != nil {
		a.sent = s.clock()
		a.add(a.sent)
	}
}

// hideTime takes the time out of a driven store's reply: it may be one that no double holds.
func (a *arguments) hideTime(place int, driven bool) {
	if driven && place < len(a.reply) && !a.reply[place].IsText {
		a.reply[place].Int = 0
	}
}

// time is the time of a reply, or the time that a driven store sent.
func (a *arguments) time(place int, driven bool) int64 {
	if driven {
		return a.sent
	}
	return a.reply[place].Int
}

// read decodes the reply. driven says that the time is a test's.
func (c *call) read(a *arguments, driven bool) (now int64, err error) {
	kinds, reply := a.kinds, a.reply
	a.hideTime(1, driven && c.op != opTake)
	if err := c.check(kinds, reply); err != nil {
		return 0, err
	}
	if isCode(reply) {
		c.granted = reply[0].Int
		return a.time(1, driven), nil
	}
	if c.op == opTake {
		c.granted, c.at, reply = reply[0].Int&1, reply[0].Int>>1, reply[1:]
	} else {
		c.granted, c.at, reply = reply[0].Int, a.time(1, driven), reply[2:]
	}
	if err := c.inRange(driven); err != nil {
		return 0, err
	}
	c.readStates(kinds, reply)
	return c.at, c.gone()
}

// readStates decodes the states of the claims in a reply that has been checked.
func (c *call) readStates(kinds []*kind, reply []redisconn.Value) {
	for i, k := range kinds {
		if c.claims[i].Lease != "" {
			c.leases = append(c.leases, leaseExpiry(reply))
		}
		if c.decisions != nil {
			c.describe(i, k, reply)
		}
		reply = reply[k.values:]
	}
}

// describe fills in the decisions of claim i: the last of times and, if each is set, the earlier ones.
func (c *call) describe(i int, k *kind, reply []redisconn.Value) {
	claim := &c.claims[i]
	last := k.decide(claim, reply, c.at)
	last.Remaining = algorithm.LessFloor(last.Remaining, claim.Floor)
	if c.times == 0 && k.standing != nil {
		standing := k.standing(claim, reply, c.at)
		last.Standing = &standing
	}
	if !c.each {
		c.decisions[i] = last
		return
	}
	for row := range c.rows() {
		d := &c.decisions[row*len(c.claims)+i]
		if units := (c.granted - 1 - int64(row)) * claim.Cost; units > 0 {
			*d = k.before(claim, reply, last, units, c.at)
		} else {
			*d = last
		}
	}
}

// rows is how many decisions a claim has.
func (c *call) rows() int { return len(c.decisions) / len(c.claims) }

// gone is the error of a charge or refund of a lease that was not held.
func (c *call) gone() error {
	gone := false
	switch c.op {
	case opCharge, opSettle:
		gone = c.granted == 0
	case opRefund, opCancel:
		gone = slices.Contains(c.leases, 0)
	}
	if gone {
		return weir.ErrLeaseGone
	}
	return nil
}

// explain makes an error of Redis one of weir's.
func explain(err error, claims []weir.Claim) error {
	var answer *redisconn.ServerError
	switch {
	case err == nil || !errors.As(err, &answer):
		return err
	case strings.HasPrefix(saidByScript(answer.Text), "WRONGTYPE "):
		return fmt.Errorf("%w: one of %d keys, the first for %q of limit %s: %w",
			weir.ErrForeignState, len(claims), claims[0].Key, claims[0].Limit.Name(), err)
	}
	if number, ok := strings.CutPrefix(saidByScript(answer.Text), "WEIR foreign "); ok {
		claim := &claims[0]
		if n, bad := strconv.Atoi(number); bad == nil && n >= 1 && n <= len(claims) {
			claim = &claims[n-1]
		}
		return fmt.Errorf("%w: key %q of limit %s; delete it in Redis, or use another prefix",
			weir.ErrForeignState, claim.Key, claim.Limit.Name())
	}
	return fmt.Errorf("%w: %w", weir.ErrUnavailable, err)
}

// saidByScript is an error's text without the prefix of Redis 6.2: the script's name and the
// line. It checks the beginning only, as the rest may repeat words of the call, such as a key.
func saidByScript(text string) string {
	if rest, ok := strings.CutPrefix(text, "Error running script (call to f_"); ok && len(rest) > 40 {
		text, _ = strings.CutPrefix(rest[40:], "): ")
	}
	for {
		rest, ok := strings.CutPrefix(text, "@user_script:")
		if !ok {
			return strings.TrimPrefix(text, "-")
		}
		_, text, _ = strings.Cut(rest, ": ")
	}
}

// key is the key of a claim's state. The separator after the letter distinguishes a key that is
// wrapped as hash tag from one that already has a hash tag: no two claims share a key.
func (s *Store) key(c *weir.Claim) string { return string(s.appendKey(nil, c)) }

func (s *Store) addKey(a *arguments, c *weir.Claim) {
	a.text = s.appendKey(a.text, c)
	a.end()
}

func (s *Store) appendKey(text []byte, c *weir.Claim) []byte {
	text = append(text, s.config.prefix...)
	text = append(text, c.Limit.Name()...)
	text = append(text, algorithms[c.Limit.Algorithm()].mark...)
	if hasTag(c.Key) {
		text = append(text, '/')
		return append(text, c.Key...)
	}
	text = append(text, ":{"...)
	text = append(text, c.Key...)
	return append(text, '}')
}

// hasTag reports whether Redis Cluster would hash only a part of the key.
func hasTag(key string) bool {
	_, rest, ok := strings.Cut(key, "{")
	return ok && strings.IndexByte(rest, '}') > 0
}

func (s *Store) keys(claims []weir.Claim) []string {
	keys := make([]string, len(claims))
	for i := range claims {
		keys[i] = s.key(&claims[i])
	}
	return keys
}
